"""How much two lists of neighbours agree."""

from typing import Any

import numpy as np

from fastcos import validate_metrics
from fastcos.metrics.rows import Floats, Integers

# numbers in one block of lists
_BLOCK = 2**22


def jaccard_at_k(first: Any, second: Any, *, k: int | None = None) -> float:
    """Mean over queries of #(A and B) / #(A or B) for the sets of the k nearest.

    With the overlap o = #(A and B) / k it is o / (2 - o) per query: two different numbers.

    Parameters
    ----------
    first, second : array_like (n, K), int
        Items by falling score, as top_k returns them; row i of both for the same query.
    k : int, optional
        Only the first k columns. Default: all.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        Lists of different shape, with negative numbers or with an item twice in a list.

    Notes
    -----
    Source: Wendlandt, Kummerfeld and Mihalcea, NAACL 2018, arXiv:1804.09692, measure embedding
    stability by the overlap.

    Examples
    --------
    >>> from fastcos.metrics import jaccard_at_k
    >>> jaccard_at_k([[1, 2], [0, 2]], [[2, 1], [2, 3]])
    0.6666666666666666
    """
    shared, k = _shared_at_k(first, second, k)
    return float((shared / (2 * k - shared)).mean())


def overlap_at_k(first: Any, second: Any, *, k: int | None = None) -> float:
    """Mean over queries of #(A and B) / k for the sets of the k nearest.

    Parameters
    ----------
    first, second : array_like (n, K), int
        Items by falling score, as top_k returns them; row i of both for the same query.
    k : int, optional
        Only the first k columns. Default: all.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        Lists of different shape, with negative numbers or with an item twice in a list.

    Examples
    --------
    >>> from fastcos.metrics import overlap_at_k
    >>> overlap_at_k([[1, 2], [0, 2]], [[2, 1], [2, 3]])
    0.75
    """
    shared, k = _shared_at_k(first, second, k)
    return float((shared / k).mean())


def _shared_at_k(first: Any, second: Any, k: int | None) -> tuple[Floats, int]:
    """Items that both lists of a query hold, (n,), and the length of the lists."""
    a, b = _two_lists(first, second, k)
    shared = np.empty(len(a))
    step = max(1, _BLOCK // a.shape[1])
    for start in range(0, len(a), step):
        block = slice(start, start + step)
        both = np.sort(np.concatenate([a[block], b[block]], axis=1), axis=1)
        shared[block] = (both[:, 1:] == both[:, :-1]).sum(axis=1)
    return shared, a.shape[1]


def _two_lists(first: Any, second: Any, k: int | None) -> tuple[Integers, Integers]:
    a = validate_metrics.as_neighbor_lists("first", first, k)
    b = validate_metrics.as_neighbor_lists("second", second, k)
    validate_metrics.as_same_shape("second", b, "first", a)
    return a, b

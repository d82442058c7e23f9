"""How much two lists of neighbours agree."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import candidate_lists
from fastcos.metrics import checks
from fastcos.metrics.labelled import Floats, Integers

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
    return float(jaccard_per_query(first, second, k).mean())


def jaccard_per_query(first: Any, second: Any, k: int | None = None) -> Floats:
    """Return #(A and B) / #(A or B) of every query, (n,)."""
    shared, k = _shared_at_k(first, second, k)
    return shared / (2 * k - shared)


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


class RankBiasedOverlap(NamedTuple):
    """Rank-biased overlap, mean over queries.

    Attributes
    ----------
    value : float
        In [0, 1]: extrapolated from the lists to infinite ones.
    residual : float
        By how much the items beyond the lists can still move it.
    """

    value: float
    residual: float


def rank_biased_overlap(
    first: Any, second: Any, *, persistence: float = 0.9, k: int | None = None
) -> RankBiasedOverlap:
    """(X_k / k) q^k + ((1 - q) / q) sum over d <= k of (X_d / d) q^d, X_d the overlap at depth d.

    The first ranks weigh most: q = 0.9 puts 86 % of the weight on the first ten.

    Parameters
    ----------
    first, second : array_like (n, K), int
        Items by falling score, as top_k returns them; row i of both for the same query.
    persistence : float
        q, greater than 0 and less than 1.
    k : int, optional
        Only the first k columns. Default: all.

    Returns
    -------
    RankBiasedOverlap
        (value, residual).

    Raises
    ------
    ValueError
        Lists of different shape, with negative numbers or with an item twice in a list; persistence
        out of range.

    Notes
    -----
    Source: Webber, Moffat and Zobel, ACM TOIS 28 (2010), equations 23 and 30 for lists of one
    length.

    Examples
    --------
    >>> from fastcos.metrics import rank_biased_overlap
    >>> round(rank_biased_overlap([[1, 2, 3]], [[1, 3, 2]], persistence=0.5).value, 6)
    0.875
    """
    q = validation.as_real("persistence", persistence, above=0, high=1 - 2.0**-53)
    a, b = _two_lists(first, second, k)
    k = a.shape[1]
    depths = np.arange(1, k + 1)
    weights = (1 - q) / q * q**depths / depths
    residuals = _residuals(q, k)
    values, left = np.empty(len(a)), np.empty(len(a))
    for block, places in _blocks_of_places(a, b):
        seen = np.where(places >= 0, np.maximum(places, depths - 1), k)
        rows = np.arange(len(seen))[:, None]
        found = np.bincount((rows * (k + 1) + seen).ravel(), minlength=seen.shape[0] * (k + 1))
        overlap = np.cumsum(found.reshape(-1, k + 1)[:, :k], axis=1)
        values[block] = overlap[:, -1] / k * q**k + (overlap * weights).sum(axis=1)
        left[block] = residuals[overlap[:, -1]]
    return RankBiasedOverlap(float(values.mean()), float(left.mean()))


def _residuals(q: float, k: int) -> Floats:
    """Largest less smallest value of the unseen depths, by the overlap 0 .. k at depth k.

    At best both next items of every depth d are shared until all are, at depth 2k - overlap.
    """
    overlaps, depths = np.arange(k + 1), np.arange(1, 2 * k + 1)
    full = 2 * k - overlaps
    partial = np.concatenate([[0.0], np.cumsum(q**depths / depths)])
    beyond = -np.log1p(-q) - partial[full]
    gained = np.concatenate([[0.0], np.cumsum(np.maximum(depths - k, 0) / depths * q**depths)])
    total: Floats = 2 * gained[full] + q ** (full + 1.0) / (1 - q) - overlaps * beyond
    return np.maximum((1 - q) / q * total, 0)


def kendall_distance(first: Any, second: Any, *, k: int | None = None) -> float:
    """Mean Kendall distance of top-k lists, K^(1/2), over its largest value k (3k - 1) / 2.

    Every pair of items that occur in the two lists costs 1 where the lists decide it differently
    (an item in a list is ahead of one outside), 1/2 where both items are in one list only. 0 for
    the same list, 1 for lists that share no item.

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
    Source: Fagin, Kumar and Sivakumar, SIAM J. Discrete Math. 17 (2003), section 3.1.

    Examples
    --------
    >>> from fastcos.metrics import kendall_distance
    >>> kendall_distance([[1, 2]], [[2, 1]]), kendall_distance([[1, 2]], [[3, 4]])
    (0.2, 1.0)
    """
    a, b = _two_lists(first, second, k)
    k = a.shape[1]
    total = 0
    for _, places in _blocks_of_places(a, b):
        places = validation.read_only(places)
        doubled = parallel.unfilled(len(places), np.int64)
        cuts = parallel.row_blocks(len(places), 1024)
        parallel.run(candidate_lists.doubled_kendall_rows, cuts, places, doubled)
        total += int(doubled.sum())
    return total / (len(a) * k * (3 * k - 1))


def _blocks_of_places(a: Integers, b: Integers) -> Iterator[tuple[slice, Integers]]:
    """Blocks of queries, and where each item of a is in b, (rows, k); -1 where it is not."""
    k = a.shape[1]
    step = max(1, _BLOCK // k)
    for start in range(0, len(a), step):
        block = slice(start, start + step)
        both = np.concatenate([a[block], b[block]], axis=1)
        # stable: of two equal items, the first is a's
        order = np.argsort(both, axis=1, kind="stable")
        both = np.take_along_axis(both, order, axis=1)
        rows, at = np.nonzero(both[:, 1:] == both[:, :-1])
        places = np.full((len(both), k), -1)
        places[rows, order[rows, at]] = order[rows, at + 1] - k
        yield block, places


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
    a = checks.as_neighbor_lists("first", first, k)
    b = checks.as_neighbor_lists("second", second, k)
    checks.as_same_shape("second", b, "first", a)
    return a, b

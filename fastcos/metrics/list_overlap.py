"""Overlap of two neighbour lists of the same query: Jaccard index, overlap at k and RBO."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.metrics.labelled import as_neighbor_lists
from fastcos.validation import Floats, Integers

# Number of entries in a block of lists. Because lists are compared in blocks, the functions need
# only a few MiB of memory in addition to the lists.
_BLOCK = 2**19


def jaccard_at_k(first: Any, second: Any, *, k: int | None = None) -> float:
    """Return the mean Jaccard index of the two sets of k nearest items that each query has.

    The mean is over the queries. Let A and B be the two sets of a query. The Jaccard index of the
    query is #(A and B) / #(A or B), which lies between 0 and 1. If both lists have k items and
    their overlap is o = #(A and B) / k, the Jaccard index is o / (2 - o).

    Source: Wendlandt, Kummerfeld and Mihalcea, NAACL 2018, arXiv:1804.09692 (stability of
    embeddings as overlap of neighbour lists).

    Parameters
    ----------
    first, second : array_like (n, K), int
        Items by descending score, as ``top_k`` returns them. Row i of both arrays belongs to the
        same query. Lists with fewer than K items are padded with -1. The Jaccard index of two empty
        lists is 1.
    k : int, optional
        Number of columns to use. Default: all.

    Examples
    --------
    >>> from fastcos.metrics import jaccard_at_k
    >>> jaccard_at_k([[1, 2], [0, 2]], [[2, 1], [2, 3]])
    0.6666666666666666
    """
    return float(jaccard_per_query(first, second, k).mean())


def jaccard_per_query(first: Any, second: Any, k: int | None = None) -> Floats:
    """Return the Jaccard index (n,) of the two lists of every query."""
    shared, of_first, of_second = _shared_at_k(first, second, k)
    union = of_first + of_second - shared
    return np.divide(shared, union, out=np.ones(len(union)), where=union > 0)


def overlap_at_k(first: Any, second: Any, *, k: int | None = None) -> float:
    """Return the mean of #(A and B) / k, where A and B are a query's two sets of k nearest items.

    The mean is over the queries, and lies between 0 and 1. If both lists of a query have fewer than
    k items, the length of the longer list replaces k. If ``first`` contains exact neighbours and
    ``second`` contains the neighbours that an approximate index returned, the overlap is the recall
    of this index.

    Parameters
    ----------
    first, second, k
        As in :func:`jaccard_at_k`.

    Examples
    --------
    >>> from fastcos.metrics import overlap_at_k
    >>> overlap_at_k([[1, 2], [0, 2]], [[2, 1], [2, 3]])
    0.75
    """
    return float(overlap_per_query(first, second, k).mean())


def overlap_per_query(first: Any, second: Any, k: int | None = None) -> Floats:
    """Return the overlap (n,) of the two lists of every query, as in :func:`overlap_at_k`."""
    shared, of_first, of_second = _shared_at_k(first, second, k)
    longest = np.maximum(of_first, of_second)
    return np.divide(shared, longest, out=np.ones(len(longest)), where=longest > 0)


class RankBiasedOverlap(NamedTuple):
    """The mean over queries of the rank-biased overlap (RBO) of two lists.

    Attributes
    ----------
    value : float
        Rank-biased overlap from 0 to 1, extrapolated to infinite lists.
    residual : float
        The items beyond the ends of the lists are unknown, so ``value`` is uncertain. ``residual``
        is the difference between the largest and the smallest contribution that these items could
        make to the overlap.
    """

    value: float
    residual: float


def rank_biased_overlap(
    first: Any, second: Any, *, persistence: float = 0.9, k: int | None = None
) -> RankBiasedOverlap:
    """Return the mean over queries of the rank-biased overlap of two lists.

    The rank-biased overlap of a query is (X_k / k) q^k + ((1 - q) / q) Σ_{d <= k} (X_d / d) q^d,
    where q is ``persistence``, and X_d is the number of items that the two lists share within their
    first d ranks. The first ranks have the largest weights: for q = 0.9, the first ten ranks have
    86 % of the total weight.

    Source: Webber, Moffat and Zobel, ACM TOIS 28 (2010), equations 23 and 30 for lists of equal
    length.

    Parameters
    ----------
    first, second, k
        As in :func:`jaccard_at_k`.
    persistence : float
        The parameter q of the rank-biased overlap, greater than 0 and less than 1.

    Returns
    -------
    RankBiasedOverlap

    Examples
    --------
    >>> from fastcos.metrics import rank_biased_overlap
    >>> round(rank_biased_overlap([[1, 2, 3]], [[1, 3, 2]], persistence=0.5).value, 6)
    0.875
    """
    q = validation.as_real("persistence", persistence, above=0, below=1)
    a, b = _two_lists(first, second, k)
    k = a.shape[1]
    depths = np.arange(1, k + 1)
    weights = (1 - q) / q * q**depths / depths
    residuals = _residuals(q, k)
    values, query_residuals = np.empty(len(a)), np.empty(len(a))
    for block, positions in _blocks_of_positions(a, b):
        shared_at = np.where(positions >= 0, np.maximum(positions, depths - 1), k)
        cells = np.arange(len(shared_at))[:, None] * (k + 1) + shared_at
        counts = np.bincount(cells.ravel(), minlength=len(shared_at) * (k + 1))
        overlap = np.cumsum(counts.reshape(-1, k + 1)[:, :k], axis=1)
        values[block] = overlap[:, -1] / k * q**k + (overlap * weights).sum(axis=1)
        query_residuals[block] = residuals[overlap[:, -1]]
    return RankBiasedOverlap(float(values.mean()), float(query_residuals.mean()))


def _residuals(q: float, k: int) -> Floats:
    """For each overlap at depth k, return how much the RBO depends on the items below depth k.

    Entry i of the result is for two lists that share i of their first k items. The items below
    depth k are unknown, so their contribution to the RBO is unknown. The entry is the largest
    possible contribution minus the smallest possible contribution. The contribution is largest if
    every item below depth k in one list also occurs in the other list. In this case, both lists
    contain the same items at the depth 2k - overlap and at every greater depth.
    """
    overlaps, depths = np.arange(k + 1), np.arange(1, 2 * k + 1)
    full_depths = 2 * k - overlaps
    partial_sums = np.concatenate([[0.0], np.cumsum(q**depths / depths)])
    remainders = -np.log1p(-q) - partial_sums[full_depths]
    gains = np.concatenate([[0.0], np.cumsum(np.maximum(depths - k, 0) / depths * q**depths)])
    total: Floats = 2 * gains[full_depths] + q ** (full_depths + 1.0) / (1 - q)
    total -= overlaps * remainders
    return np.maximum((1 - q) / q * total, 0)


def _blocks_of_positions(a: Integers, b: Integers) -> Iterator[tuple[slice, Integers]]:
    """Yield each slice of queries and, for each item of list a, its position in list b.

    The position of an item that list b does not contain is -1.
    """
    k = a.shape[1]
    step = max(1, _BLOCK // k)
    for start in range(0, len(a), step):
        block = slice(start, start + step)
        items = np.concatenate([a[block], b[block]], axis=1)
        # If both lists contain an item, the stable sort places the entry of list a before the entry
        # of list b.
        order = np.argsort(items, axis=1, kind="stable")
        items = np.take_along_axis(items, order, axis=1)
        rows, columns = np.nonzero((items[:, 1:] == items[:, :-1]) & (items[:, 1:] >= 0))
        positions = np.full((len(items), k), -1)
        positions[rows, order[rows, columns]] = order[rows, columns + 1] - k
        yield block, positions


def _shared_at_k(first: Any, second: Any, k: int | None) -> tuple[Floats, Integers, Integers]:
    """Return three arrays (n,): per query, the number of shared items, and the two list lengths."""
    a, b = _two_lists(first, second, k)
    shared = np.empty(len(a))
    step = max(1, _BLOCK // a.shape[1])
    for start in range(0, len(a), step):
        block = slice(start, start + step)
        # The positions of the items are not needed here, so the sort need not be stable; an
        # unstable sort is faster.
        items = np.sort(np.concatenate([a[block], b[block]], axis=1), axis=1)
        shared[block] = ((items[:, 1:] == items[:, :-1]) & (items[:, 1:] >= 0)).sum(axis=1)
    return shared, (a >= 0).sum(axis=1), (b >= 0).sum(axis=1)


def _two_lists(first: Any, second: Any, k: int | None) -> tuple[Integers, Integers]:
    a = as_neighbor_lists("first", first, k, padded=True)
    b = as_neighbor_lists("second", second, k, padded=True)
    if a.shape != b.shape:
        raise ValueError(
            f"second must have the same shape as first, which is {a.shape}, got {b.shape}"
        )
    return a, b

"""Search in NumPy until the kernels are compiled; kernels return bit-for-bit the same results.

For a batch of queries, the search reads the items once, in blocks. The matrix product of the
queries and a block gives approximate scores. The error of an approximate score is at most a proved
bound, the margin. An approximate score minus the margin is a lower bound on the exact score; an
approximate score plus the margin is an upper bound. A pair of a query and an item is a candidate as
long as its upper bound is at least the k-th largest lower bound of the query. If a pair is still a
candidate after the last block, its exact score is computed: a float64 sum, in the same order as in
:mod:`fastcos.kernels.pair_scores`.

The margin is derived as follows. Let u be the unit roundoff of the type of the product, let x and y
be rows with d entries, and let g(n) be n u / (1 - n u). In any order of summation, with or without
fused operations, an inner product has an error of at most g(d) sum |x_j y_j| <= g(d) |x| |y|
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1, and the
Cauchy-Schwarz inequality). If the entries of both rows are first rounded to the type of the
product, the rounding adds at most g(2) |x| |y| to the error. The exact score is a float64 sum, so
even the exact score has an error. The error of the float64 sum is at most g(d) |x| |y|, computed
with the unit roundoff u = 2^-53 of float64. In total, the approximate score and the exact score
differ by at most

    dot         2 g(d + 2) |x| |y|, plus 3 u (|x| |y| + |bias|) for rounding and adding the bias;
    cosine      2 g(d + 4) for normalising the query, the product, and the multiplication by the
                reciprocal norm of the item. Clipping the score to [-1, 1] cannot increase the
                error, because the real cosine lies in this interval;
    euclidean   (|x|^2 + |y|^2) times the sum of three terms: 2 g(d + 3) for the exact sum of
                squared differences, g(d + 2) for the product, and g(d + 8) for both squared norms
                and their sum.

Let S be |x| max |y| + max |bias| for dot, 1 for cosine, and |x|^2 + max |y|^2 for euclidean, where
each maximum is taken over the items of a block. Then the approximate and the exact score differ by
less than the margin c S with c = 1.1 (4 d + 24) u. The factor 1.1 in the margin covers the rounding
of the norms and of S. If the norms of two rows are in the range of ``_SAFE_NORMS``, the inner
product of the rows does not overflow. Underflow may change the inner product, but at most by the
margin c S. If any row of a block has a norm outside of ``_SAFE_NORMS``, every pair of a query and a
row of this block is a candidate.

The candidates include the k best items for the following reason. The approximate score minus the
margin is a lower bound on the exact score of a pair. Therefore the k-th largest lower bound of a
query is at most the exact score of its k-th best item. Every item that is among the k best, or ties
with the k-th best, has an exact score that is at least this lower bound. The upper bound of an item
is its approximate score plus the margin, and is at least its exact score. Therefore every item that
is among the k best, or ties with the k-th best, remains a candidate.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel
from fastcos.parallel import background
from fastcos.similarity.numpy_products import row_products, slices
from fastcos.validation import Floats, Integers

# _SAFE_NORMS maps a floating-point type to two norms. Products in this type are used only for rows
# of zeros and for rows whose norms lie between these two norms.
_SAFE_NORMS = {"float32": (2.0**-40, 2.0**40), "float64": (2.0**-400, 2.0**400)}
# Before BLAS multiplies rows, this many entries are converted at once to the type of the product
# (32 MiB of float32). BLAS is called once per conversion. On busy cores, every call of BLAS waits
# some milliseconds for its threads. To keep the number of calls small, a conversion should contain
# many entries.
_ENTRIES_PER_CONVERSION = 1 << 23
# While another process compiles the kernels, a search with at most this number of queries uses
# np.vecdot, which runs in one thread. A search with more queries uses BLAS. On a machine with two
# cores, a call of BLAS would wait up to 10 ms for its second thread. Multiplying one query by
# 20,000 rows of 128 columns takes only 0.5 ms.
_MAX_QUERIES_OF_VECDOT = 2


class _Candidates(NamedTuple):
    """(query, item) pairs whose item may be among the k best items of the query.

    ``numbers`` contains the row number of the item of each pair. ``lower`` and ``upper`` contain
    bounds on the exact score of each pair.
    """

    queries: Integers
    numbers: Integers
    lower: Floats
    upper: Floats

    def take(self, places: npt.NDArray[Any]) -> "_Candidates":
        return _Candidates(*(column[places] for column in self))


def search(
    metric_type: str,
    items: Any,
    numbers: Integers,
    queries: Any,
    exclusions: Any,
    k: int,
    *,
    pairs_per_block: int = 1 << 22,
) -> tuple[Integers, Floats]:
    """Return row numbers and raw scores (n, k) of the best items of each query, best items first.

    The results are bit-for-bit identical to those of ``scan.score_all``.

    Parameters
    ----------
    metric_type : {"cosine", "dot", "euclidean"}
    items, queries : EncodedRows
        The items (p, d) and the queries (n, d), of any type, with their float64 norms.
    numbers : ndarray of shape (m,)
        The ascending row numbers of the items that the search can return.
    exclusions : ExcludedItems
        The items that each query must not find.
    k : int
        The number of neighbours per query. If fewer items can be returned, the result is padded by
        -1 and -inf.
    pairs_per_block : int
        The number of approximate scores that are computed at once. The default is 16 MiB of
        float32.
    """
    n, m = len(queries.rows), len(numbers)
    width = max(1, min(m, pairs_per_block // n))
    query, place = _forbidden_pairs(exclusions, numbers)
    kth_lower = np.full(n, -np.inf)
    candidates = _Candidates(*(np.empty(0, dtype) for dtype in (np.int64, np.int64, "f8", "f8")))
    limit = 0
    use_float32 = items.rows.dtype != np.float64
    with np.errstate(all="ignore"):  # products of huge or tiny rows may overflow or underflow
        for lo in range(0, m, width):
            block = numbers[lo : lo + width]
            first, last = np.searchsorted(place, (lo, lo + width))
            forbidden_pairs = query[first:last], place[first:last] - lo
            arguments = metric_type, items, block, queries, forbidden_pairs, k, kth_lower
            pairs = _block_candidates(*arguments, "float32" if use_float32 else "float64")
            if use_float32 and (pairs is None or len(pairs.queries) > n * (4 * k + width // 16)):
                # There are too many candidates, because the rows are nearly parallel, or their
                # distances are small compared with their norms. Products in float64 have smaller
                # error margins than products in float32, so they can rule out most pairs.
                use_float32 = False
                pairs = _block_candidates(*arguments, "float64")
            both: Any = candidates, pairs
            candidates = _Candidates(*map(np.concatenate, zip(*both, strict=True)))
            if len(candidates.queries) > limit:
                candidates = _prune(candidates, k, kth_lower)
                limit = 2 * len(candidates.queries)
    return _exact_best(metric_type, items, queries, _prune(candidates, k, kth_lower), k)


def _block_candidates(
    metric_type: str,
    items: Any,
    block: Integers,
    queries: Any,
    forbidden: tuple[Integers, Integers],
    k: int,
    kth_lower: Floats,
    dtype: str,
) -> _Candidates | None:
    """Return every (query, item) pair of this block whose item may be among the query's k best.

    For each query, ``kth_lower`` (n,) contains a lower bound on its k-th best score in the blocks
    read so far; the function updates the array. If ``dtype`` is float32 and a norm is outside of
    the range that is safe for products in float32, the function returns None.
    """
    estimates, margins = _approximate_scores(metric_type, items, block, queries, dtype)
    if estimates is None:
        return None
    estimates[forbidden] = -np.inf
    width = estimates.shape[1]
    if k <= width and np.isneginf(kth_lower).any():
        kth = np.partition(estimates, width - k, axis=1)[:, width - k]
        np.maximum(kth_lower, kth - margins, out=kth_lower)
    # The thresholds are rounded down, so that no candidate is lost. Forbidden pairs have the
    # approximate score -inf, so they never become candidates.
    thresholds = np.nextafter((kth_lower - margins).astype(estimates.dtype), -np.inf)
    query, column = np.divmod(np.flatnonzero(estimates > thresholds[:, None]), width)
    scores = estimates[query, column].astype(np.float64)
    return _Candidates(query, block[column], scores - margins[query], scores + margins[query])


def _approximate_scores(
    metric_type: str, items: Any, block: Integers, queries: Any, dtype: str
) -> tuple[Any, Floats]:
    """Return approximate scores (n, m) of a block of items, and the margin (n,) of each query.

    The exact and the approximate score of a pair differ by at most the margin of the query. If
    ``dtype`` is float32 and a norm is outside of the range that is safe for products in float32,
    the scores are None. If ``dtype`` is float64, scores are returned even if a norm is outside of
    the range that is safe for products in float64. A query whose norm is outside of the safe range
    gets scores of 0 and an infinite margin. If an item in the block has a norm outside the safe
    range, all queries get scores of 0 and infinite margins.
    """
    depth = queries.rows.shape[1]
    query_norms, norms = queries.norms, items.norms[block]
    largest = _SAFE_NORMS[dtype][1]
    bias = items.bias[block] if len(items.bias) else np.zeros(1)
    are_safe = _are_safe(queries.rows, query_norms, dtype)
    is_block_safe = bool(np.abs(bias).max() < largest) and bool(
        _are_safe_numbers(items.rows, block, norms, dtype)
    )
    if dtype == "float32" and not (is_block_safe and are_safe.all()):
        return None, np.empty(0)
    query_rows = queries.rows
    if metric_type == "cosine":
        query_rows = query_rows / np.where(query_norms > 0, query_norms, 1.0)[:, None]
    query_rows = query_rows.astype(dtype)
    estimates = np.empty((len(query_rows), len(block)), dtype)
    is_same_type = items.rows.dtype == dtype
    for part in (
        [slice(0, len(block))]
        if is_same_type
        else slices(len(block), depth, _ENTRIES_PER_CONVERSION)
    ):
        right = _rows_of(items.rows, block[part]).astype(dtype, copy=False)
        if len(query_rows) <= _MAX_QUERIES_OF_VECDOT and background.is_running():
            np.vecdot(query_rows[:, None], right, out=estimates[:, part])
        else:
            with parallel.blas_lock():
                np.matmul(query_rows, right.T, out=estimates[:, part])
    if metric_type == "cosine":
        estimates *= np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms > 0).astype(dtype)
        scale = np.ones(len(query_rows))
    elif metric_type == "dot":
        if len(items.bias):
            estimates += bias.astype(dtype)
        scale = query_norms * norms.max() + np.abs(bias).max()
    else:
        estimates *= 2
        estimates -= (query_norms * query_norms).astype(dtype)[:, None]
        estimates -= (norms * norms).astype(dtype)
        scale = query_norms * query_norms + norms.max() ** 2
    are_safe &= is_block_safe
    estimates[~are_safe] = 0.0
    unit_roundoff = np.finfo(dtype).eps / 2
    margins = 1.1 * (4 * depth + 24) * unit_roundoff * scale
    return estimates, np.where(are_safe, margins, np.inf)


def _rows_of(rows: npt.NDArray[Any], numbers: Integers) -> npt.NDArray[Any]:
    """Return the rows with these ascending row numbers; consecutive rows are not copied."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return rows[numbers[0] : numbers[-1] + 1]
    return rows[numbers]


def _are_safe(rows: npt.NDArray[Any], norms: Floats, dtype: str) -> npt.NDArray[np.bool_]:
    """Return, for each row, whether products with the row are safe from overflow and underflow.

    Products with a row are safe if the norm of the row is in the range of ``_SAFE_NORMS``, or if
    the row consists of zeros.
    """
    smallest, largest = _SAFE_NORMS[dtype]
    are_safe = (norms > smallest) & (norms < largest)
    zero_norms = np.flatnonzero(norms == 0)
    are_safe[zero_norms] = ~rows[zero_norms].any(axis=1)
    return are_safe


def _are_safe_numbers(rows: Any, numbers: Integers, norms: Floats, dtype: str) -> bool:
    """Return whether all rows with these row numbers are safe, in the sense of ``_are_safe``."""
    smallest, largest = _SAFE_NORMS[dtype]
    unusual_rows = np.flatnonzero(~((norms > smallest) & (norms < largest)))
    return bool(_are_safe(rows[numbers[unusual_rows]], norms[unusual_rows], dtype).all())


def _forbidden_pairs(exclusions: Any, numbers: Integers) -> tuple[Integers, Integers]:
    """Return the (query, item) pairs that must not be found, as two arrays of indices.

    The first array contains the query of each pair. The second array contains the item of each
    pair, as an index into ``numbers``, and is in ascending order.
    """
    self_rows, indptr, indices = exclusions
    n = len(self_rows)
    query = np.concatenate([np.arange(n), np.repeat(np.arange(n), np.diff(indptr))])
    item = np.concatenate([self_rows, indices[indptr[0] : indptr[-1]]])
    place = np.minimum(np.searchsorted(numbers, item), len(numbers) - 1)
    is_listed = numbers[place] == item
    query, place = query[is_listed], place[is_listed]
    order = np.argsort(place, kind="stable")
    return query[order], place[order]


def _prune(candidates: _Candidates, k: int, kth_lower: Floats) -> _Candidates:
    """Return the candidates whose upper bounds reach the k-th best lower bound of their query.

    The function first updates ``kth_lower`` (n,) in place: it raises each entry to the k-th best
    lower bound among the candidates of its query, unless the entry is already higher.
    """
    order = np.lexsort((-candidates.lower, candidates.queries))
    query = candidates.queries[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    kth = order[rank == k - 1]
    owners = candidates.queries[kth]
    kth_lower[owners] = np.maximum(kth_lower[owners], candidates.lower[kth])
    return candidates.take(np.flatnonzero(candidates.upper >= kth_lower[candidates.queries]))


def _exact_best(
    metric_type: str, items: Any, queries: Any, candidates: _Candidates, k: int
) -> tuple[Integers, Floats]:
    """Return row numbers and exact raw scores (n, k) of the best candidates of each query."""
    n = len(queries.rows)
    columns, scores = np.full((n, k), -1, np.int64), np.full((n, k), -np.inf)
    exact_scores = _score(metric_type, queries, items, candidates.queries, candidates.numbers)
    order = np.lexsort((candidates.numbers, -exact_scores, candidates.queries))
    query = candidates.queries[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    is_best = rank < k
    order, query, rank = order[is_best], query[is_best], rank[is_best]
    columns[query, rank], scores[query, rank] = candidates.numbers[order], exact_scores[order]
    return columns, scores


def _score(metric_type: str, queries: Any, items: Any, query: Integers, number: Integers) -> Floats:
    """Return the exact raw score of each pair, bit for bit as ``pair_scores`` computes it."""
    scores = np.empty(len(query))
    for part in slices(len(query), queries.rows.shape[1]):
        x, y = queries.rows[query[part]], items.rows[number[part]]
        if metric_type == "euclidean":
            difference = np.subtract(x, y, dtype=np.float64)
            scores[part] = -row_products(difference, difference)
        else:
            scores[part] = row_products(x, y)
    if metric_type == "dot":
        if len(items.bias):
            scores += items.bias[number]
    elif metric_type == "cosine":
        lengths = queries.norms[query] * items.norms[number]
        cosines = np.divide(scores, lengths, out=np.zeros(len(scores)), where=lengths > 0)
        scores = np.clip(cosines, -1.0, 1.0)
    return scores

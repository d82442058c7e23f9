"""Top-k inner products or cosines between sparse rows, without the matrix of all scores.

The inner products of one query and all items are accumulated in an array of sums, one sum per item.
The kernel visits the non-zero columns of the query in order. For each of these columns, it
multiplies the query's value by the entries of the column's inverted list, and adds the products to
the sums. Integers are summed in int32, and other values in float64. The sums are read once, 64 sums
at a time, to find the items that reach the k-th best score so far. Only items whose sums reach the
k-th best score so far are scored in float64 and may become results.

Items with equal scores are ordered by item number, so results depend only on the rows.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from .candidate_filter import is_excluded
from .inverted_lists import add_lists
from .jit import kernel
from .select import keep_best, kth_largest, write_best
from .simd.arithmetic import lowest_bit
from .simd.sums_above import CHUNK, GROUP, largest_of_groups, sums_reaching

# The number of sums is padded to a multiple of this number. The multiple is GROUP times 16, because
# a 512-bit register holds 16 float32 numbers.
STRIP = 256
# A threshold is multiplied by this factor before it is compared with float32 scores. The factor
# lowers the threshold by more than the four rounding errors of such a comparison, so that these
# errors cannot drop an item.
_ROUNDING_MARGIN = 1.0 - 2.0**-20


class Queries(NamedTuple):
    """The queries as a CSR matrix, and, for each query, its norm and its excluded items.

    `indptr` (n + 1,) is int64. `indices` and `values` have the shape (nnz,). `values` has the type
    of the items' values, or is None if all values of queries and items are 1. `norms` (n,) is
    float64. `self_rows` (n,) int64 holds, for each query, the number of the item that is the query
    itself, or -1. The items excluded_indices[excluded_indptr[i] : excluded_indptr[i + 1]], in
    ascending order, are excluded from the results of query i.
    """

    indptr: Any
    indices: Any
    values: Any
    norms: Any
    self_rows: Any
    excluded_indptr: Any
    excluded_indices: Any


class Items(NamedTuple):
    """Inverted lists of m items with d columns: the transpose of the items' rows, as CSR.

    Attributes
    ----------
    list_indptr : int64 array (d + 1,)
        The position at which the list of each column begins.
    list_items : array (nnz,)
        The item numbers of all lists, which ascend within each list.
    list_values : array (nnz,) or None
        The values that belong to list_items. The field is None if all values are 1, or if
        list_items also contains the values (see ``inverted_lists``).
    norms : float64 array (m,)
        The norms of the items.
    factors : float32 or float64 array (m rounded up to a multiple of STRIP,)
        The factor by which the sum of each item is multiplied. The factor is 1 / norm for cosines
        and 1 for inner products; it is 0 for zero rows and for the padding. The factors are float32
        if the sums are int32, and otherwise float64.
    is_cosine : bool
        Whether scores are cosines; otherwise, scores are inner products.
    sum_type : array (0,)
        An empty array of the type of the sums, int32 or float64.
    """

    list_indptr: Any
    list_items: Any
    list_values: Any
    norms: Any
    factors: Any
    is_cosine: Any
    sum_type: Any


@kernel
def row_norms(lo, hi, indptr, data, norms):
    """Write the norms of rows lo to hi of a CSR matrix to `norms` (n,) float64.

    `data` is None if all values are 1.
    """
    for i in range(lo, hi):
        if data is None:
            norms[i] = math.sqrt(indptr[i + 1] - indptr[i])
        else:
            total = 0.0
            for t in range(indptr[i], indptr[i + 1]):
                total += np.float64(data[t]) * np.float64(data[t])
            norms[i] = math.sqrt(total)


@kernel
def _score(is_cosine, total, query_norm, item_norm):
    """Return the float64 score of a query and an item whose inner product is `total`."""
    if not is_cosine:
        return np.float64(total)
    if query_norm == 0.0 or item_norm == 0.0:
        return 0.0
    return min(max(total / (query_norm * item_norm), -1.0), 1.0)


@kernel
def _passes_filters(self_row, excluded, j):
    """Return whether item j may be a result: it is not the query itself and is not excluded."""
    return j != self_row and not is_excluded(j, excluded, 0, excluded.shape[0])


@kernel
def _first_threshold(n_excluded, k, sums, factors, maxima):
    """Return a positive lower bound on the r-th best scaled sum, where r is k + n_excluded.

    The items are divided into groups, and the largest scaled sum of each group is computed. Let m
    be the r-th largest of these sums. Each of r groups contains an item whose scaled sum is at
    least m, so the r-th best scaled sum is at least m. The function returns m, lowered by a margin
    for rounding errors. If fewer than r groups have a positive maximum, the function returns the
    smallest positive number of the type of `factors`. `maxima` has one entry per group and is
    overwritten.
    """
    lanes = 64 // factors.itemsize
    groups = sums.shape[0] // GROUP
    # With float64 factors, `tiny` is the smallest positive number. With float32 factors, this
    # number rounds to 0, so `tiny` is the smallest normal float32 number instead. A positive scaled
    # sum in float32 is larger than `tiny`, because it is a positive integer times a factor.
    tiny = factors.dtype.type(5e-324)
    if tiny == 0:
        tiny = np.finfo(factors.dtype).tiny
    if k + n_excluded > groups:
        return tiny
    for at in range(0, groups, lanes):
        largest_of_groups(sums, factors, at * GROUP, maxima, at)
    # Only groups with a positive sum are kept. In most groups, no item shares a column with a
    # sparse query.
    count = 0
    for group in range(groups):
        largest = maxima[group]
        maxima[count] = largest
        count += largest >= tiny
    if k + n_excluded > count:
        return tiny
    return max(
        tiny, maxima.dtype.type(kth_largest(maxima, count, k + n_excluded) * _ROUNDING_MARGIN)
    )


@kernel
def _keep_positive(
    is_cosine, norm, self_row, excluded, norms, factors, minimum, k, sums, bound, scores, columns,
    scratch,
):  # fmt: skip
    """Write the best k items of positive score to `scores` and `columns`; return their number.

    An item is written only if its scaled sum reaches `bound` and its score reaches `minimum`.
    `scores`, `columns` and `scratch` are buffers of 2 k + 64 entries.
    """
    scale = norm if is_cosine else 1.0
    count, threshold = 0, 0.0
    for start in range(0, sums.shape[0], CHUNK):
        word = sums_reaching(sums, start, factors, bound)
        while word != 0:
            j = start + lowest_bit(word)
            word &= word - np.uint64(1)
            score = _score(is_cosine, sums[j], norm, norms[j])
            # Of two items with equal scores, the one with the lower number ranks first, and items
            # are visited by ascending number. Therefore, an item is among the best k only if its
            # score exceeds the k-th best score so far.
            if score < minimum or score <= threshold or not _passes_filters(self_row, excluded, j):
                continue
            scores[count], columns[count] = score, j
            count += 1
            if count == scores.shape[0]:
                count = keep_best(scores, columns, count, k, scratch)
                threshold = scores[k - 1]
                bound = max(bound, factors.dtype.type(threshold * scale * _ROUNDING_MARGIN))
    return keep_best(scores, columns, count, k, scratch)


@kernel
def _append_nonpositive(
    is_cosine, norm, self_row, excluded, norms, minimum, k, sums, count, scores, columns, scratch
):
    """Add items to the `count` results: first items with score 0, then those with negative scores.

    The function stops when there are k results, or when it has added all items that reach
    `minimum`. The function returns the number of results.
    """
    n_items = norms.shape[0]
    for j in range(n_items):
        if count == k or minimum > 0.0:
            return count
        score = _score(is_cosine, sums[j], norm, norms[j])
        if score == 0.0 and _passes_filters(self_row, excluded, j):
            scores[count], columns[count] = score, j
            count += 1
    negative_scores, negative_columns, n_negative = scores[count:], columns[count:], 0
    for j in range(n_items):
        score = _score(is_cosine, sums[j], norm, norms[j])
        if score < 0.0 and score >= minimum and _passes_filters(self_row, excluded, j):
            negative_scores[n_negative], negative_columns[n_negative] = score, j
            n_negative += 1
            if n_negative == negative_scores.shape[0]:
                n_negative = keep_best(
                    negative_scores, negative_columns, n_negative, k - count, scratch
                )
    return count + keep_best(negative_scores, negative_columns, n_negative, k - count, scratch)


@kernel
def best_rows(lo, hi, queries, items, minimum, scores, columns):
    """Write the best k items of queries lo to hi, by exact scores.

    `queries` is a Queries, `items` is an Items, and `minimum` (float64) is the lowest score of a
    result. The results are written to `scores` (n, k) float64 and `columns` (n, k) int64, padded
    with -inf and -1. Let t be the total length of the inverted lists of all columns in which a
    query is non-zero. The kernel takes O(m + t) time for this query, and it allocates O(m + k)
    memory.
    """
    k, is_cosine = columns.shape[1], items.is_cosine
    capacity = 2 * k + 64
    sums = np.zeros(items.factors.shape[0], items.sum_type.dtype)
    run_scores, scratch = np.empty(capacity), np.empty(capacity)
    run_columns = np.empty(capacity, np.int64)
    maxima = np.empty(sums.shape[0] // GROUP, items.factors.dtype)
    for query in range(lo, hi):
        add_lists(
            queries.indptr[query], queries.indptr[query + 1], queries.indices, queries.values,
            items.list_indptr, items.list_items, items.list_values, sums,
        )  # fmt: skip
        # The kernels that are called below receive arrays instead of the records, so they are
        # compiled only once for all types of values.
        norm, self_row = queries.norms[query], queries.self_rows[query]
        first, last = queries.excluded_indptr[query], queries.excluded_indptr[query + 1]
        excluded = queries.excluded_indices[first:last]
        bound = _first_threshold(last - first + 1, k, sums, items.factors, maxima)
        count = _keep_positive(
            is_cosine, norm, self_row, excluded, items.norms, items.factors, minimum, k, sums,
            bound, run_scores, run_columns, scratch,
        )  # fmt: skip
        if count < k:
            count = _append_nonpositive(
                is_cosine, norm, self_row, excluded, items.norms, minimum, k, sums, count,
                run_scores, run_columns, scratch,
            )  # fmt: skip
        write_best(run_scores, run_columns, count, scores[query], columns[query])
        sums[:] = 0

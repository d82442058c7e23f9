"""The float64 score of a pair of rows, by which every dense search orders its results.

A score is a sum over the columns of two rows. The columns form whole blocks of 16 columns, and d
mod 16 columns remain. The sum over the whole blocks is computed in 16 partial sums, called lanes:
the term of column j is added to lane j mod 16. The 16 lanes are then added pairwise: first lanes l
and l + 8, then lanes l and l + 4, and so on. Finally, the terms of the last d mod 16 columns are
added one by one. No operation is reassociated. A multiplication and an addition are fused only if
the fused operation gives the same rounded result. Therefore, a score has the same bits on every
CPU.

The rows of a pair may have any of the number types that ``simd.low_precision`` lists. Numbers of
one or two bytes are widened to floats in registers.
"""

import math

import numpy as np

from .jit import borrowing_kernel, inlined_kernel, kernel
from .simd.row_products import row_square, two_row_distances, two_row_products

# The number of buckets into which pairs are sorted by item number. The counters of all buckets fit
# in the first-level cache.
_BUCKETS = 2048
# If there are at most this many pairs, they are scored in their original order, because sorting
# them would take more time than it would save.
_FEW_PAIRS = 256
# The values of ``metric_type``. With DOT, a score is the inner product plus the bias of the item.
# With COSINE, a score is the cosine. With EUCLIDEAN, a score is minus the squared Euclidean
# distance.
DOT = 0
COSINE = 1
EUCLIDEAN = 2


@borrowing_kernel
def score_pairs(metric_type, queries, query, query_norm, items, norms, bias, rows, count, scores):
    """Score the items rows[:count] for one query in float64; write the scores to scores[:count].

    `queries` (n, d) and `items` (p, d) are Rows, and `query` is the number of the query. `norms`
    (p,) holds the norms of the items. `bias` holds the bias of each item, or is empty if no item
    has a bias. `rows` holds item numbers, and `scores` is float64. With DOT, a score is the inner
    product of x and y, plus the bias of the item. With COSINE, a score is the inner product divided
    by |x| |y| and clipped to [-1, 1], or 0 if a norm is 0. With EUCLIDEAN, a score is -|x - y|^2,
    computed from differences. Computing the score from norms and an inner product would lose
    significant digits for near-duplicates.
    """
    last = count - 1
    # Two pairs are scored at a time, while the items of the next two pairs are prefetched.
    for entry in range(0, count, 2):
        second = min(entry + 1, last)
        next_first, next_second = min(entry + 2, last), min(entry + 3, last)
        numbers = rows[entry], rows[second], rows[next_first], rows[next_second]
        scores[entry], scores[second] = _two_scores(
            metric_type, queries, (query, query), items, numbers
        )
    if metric_type == DOT:
        for entry in range(count if bias.shape[0] > 0 else 0):
            scores[entry] += bias[rows[entry]]
    elif metric_type != EUCLIDEAN:
        for entry in range(count):
            scores[entry] = cosine(scores[entry], query_norm * norms[rows[entry]])


@inlined_kernel
def score_items(scoring, query, rows, count, scores):
    """Score the items rows[:count] for a query with score_pairs, and write the results to `scores`.

    `scoring` is a PairScoring.
    """
    score_pairs(
        scoring.metric_type, scoring.queries, query, scoring.query_norms[query], scoring.items,
        scoring.item_norms, scoring.item_bias, rows, count, scores,
    )  # fmt: skip


@borrowing_kernel
def _two_scores(metric_type, queries, query_numbers, items, rows):
    """Return the inner products or negative squared distances of two pairs of rows.

    `query_numbers` holds the numbers of the two queries, one per pair. `rows` holds four numbers of
    items. The first two items are those of the two pairs, and the other two items are only
    prefetched.
    """
    if metric_type == EUCLIDEAN:
        first, second = two_row_distances(queries, query_numbers, items, rows)
        return -first, -second
    return two_row_products(queries, query_numbers, items, rows)


@kernel
def cosine(product, norm):
    """Return the cosine of two rows: product / norm clipped to [-1, 1], or 0 if `norm` is 0.

    `product` is the inner product of the rows, and `norm` is the product of the norms of the rows.
    """
    return min(max(product / norm, -1.0), 1.0) if norm > 0.0 else 0.0


@kernel
def order_by_item(rows, n_items):
    """Sort m pairs roughly by item number; return their positions in this order, (m,) int32.

    `rows` (m,) holds the item number of each pair; all item numbers are below n_items.
    """
    order = np.empty(rows.shape[0], np.int32)
    if rows.shape[0] <= _FEW_PAIRS:
        for entry in range(rows.shape[0]):
            order[entry] = entry
        return order
    shift = 0
    while n_items >> shift > _BUCKETS:
        shift += 1
    starts = np.empty((n_items >> shift) + 2, np.int64)
    starts[:] = 0
    for entry in range(rows.shape[0]):
        starts[(rows[entry] >> shift) + 1] += 1
    for bucket in range(starts.shape[0] - 1):
        starts[bucket + 1] += starts[bucket]
    for entry in range(rows.shape[0]):
        bucket = rows[entry] >> shift
        order[starts[bucket]] = entry
        starts[bucket] += 1
    return order


@borrowing_kernel
def _score_by_twos(metric_type, query_numbers, rows, order, queries, items, scores):
    """Write the inner products or negative squared distances of pairs, two pairs at a time.

    The arguments are described in score_pairs_by_item.
    """
    if rows.shape[0] == 0:
        return
    # The items that one step prefetches are multiplied in the next step, so each entry of `order`
    # is read only once.
    last = rows.shape[0] - 1
    first, second = order[0], order[min(1, last)]
    x0, x1 = rows[first], rows[second]
    for at in range(0, last + 1, 2):
        next_first, next_second = order[min(at + 2, last)], order[min(at + 3, last)]
        x2, x3 = rows[next_first], rows[next_second]
        numbers = query_numbers[first], query_numbers[second]
        scores[first], scores[second] = _two_scores(
            metric_type, queries, numbers, items, (x0, x1, x2, x3)
        )
        first, second, x0, x1 = next_first, next_second, x2, x3


@borrowing_kernel
def score_pairs_by_item(
    metric_type, query_numbers, rows, order, queries, query_norms, items, norms, bias, scores
):
    """Write the score of query query_numbers[e] and item rows[e] to scores[e], for every pair e.

    `query_numbers` and `rows` (m,) are int64, `order` (m,) is the result of order_by_item, and
    `scores` (m,) is float64. The other arguments, and the definition of a score, are those of
    score_pairs. The pairs are scored in the order of their items, so that items that are close
    together in memory are read one after another.
    """
    _score_by_twos(metric_type, query_numbers, rows, order, queries, items, scores)
    for entry in range(rows.shape[0]):
        row = rows[entry]
        if metric_type == COSINE:
            norm = query_norms[query_numbers[entry]] * norms[row]
            scores[entry] = cosine(scores[entry], norm)
        elif metric_type == DOT and bias.shape[0] > 0:
            scores[entry] += bias[row]


@kernel
def row_norms(lo, hi, rows, norms):
    """Write the norms of rows lo to hi of a Rows (n, d) to `norms` (n,) float64."""
    for i in range(lo, hi):
        norms[i] = math.sqrt(row_square(rows, i))

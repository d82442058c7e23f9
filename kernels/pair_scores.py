"""The float64 score of a pair of rows, which defines "exact" in every dense search.

Each sum has 16 lanes: element j is added to lane j mod 16. The lanes are then added pairwise (lanes
l and l + 8, then lanes l and l + 4, and so on), and the last d mod 16 elements are added one by
one. No operation is reassociated, and none is fused where fusing would change the rounding, so the
bits are the same on every CPU.

Numbers of one or two bytes are widened in registers. Numba has neither float16 nor bfloat16, so an
array of uint16 holds the bits of float16, and an array of int16 the bits of bfloat16.
"""

import math

import numpy as np

from .jit import borrowing_kernel, inlined_kernel, kernel
from .simd.pair_products import (
    product,
    squared_distance,
    two_products,
    two_squared_distances,
)

# The number of buckets by which pairs are sorted into the order of the items. The counters of all
# buckets fit in the first-level cache.
_BUCKETS = 2048
# Up to this many pairs are scored in their original order, because sorting them would take longer
# than it saves.
_FEW_PAIRS = 256
# Rows with fewer columns than this need no prefetch, so their pairs are scored one by one. If two
# pairs are scored at a time, a self-join of 2,000 rows with 64 columns takes 1.08 times as long.
_NARROW = 128
# metric types
DOT = 0
COSINE = 1
EUCLIDEAN = 2


@borrowing_kernel
def score_pairs(
    metric_type, queries, query, query_norm, items, norms, offsets, columns, count, scores
):
    """Write the float64 scores of one query and the first `count` columns to scores.

    queries (n, d) and items (p, d) are rows, norms (p,) the norms of the items, and offsets (p,) is
    empty if all offsets are 0. columns (>= count,) holds item numbers, and scores (>= count,) is
    the output. With DOT, a score is <x, y> + offset. With COSINE, it is <x, y> / (|x| |y|) clipped
    to [-1, 1], or 0 if a norm is 0. With EUCLIDEAN, it is -|x - y|^2, computed from differences,
    because |x|^2 + |y|^2 - 2 <x, y> cancels for near-duplicates.
    """
    depth = items.shape[1]
    start = query * depth
    starts = start, start
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    last = count - 1
    for entry in range(0, count, 2):
        other = min(entry + 1, last)
        next_one, next_other = min(entry + 2, last), min(entry + 3, last)
        item_starts = (
            columns[entry] * depth, columns[other] * depth, columns[next_one] * depth,
            columns[next_other] * depth,
        )  # fmt: skip
        scores[entry], scores[other] = _two_scores(
            metric_type, flat_queries, starts, flat_items, item_starts, depth
        )
    if metric_type == DOT:
        for entry in range(count if offsets.shape[0] > 0 else 0):
            scores[entry] += offsets[columns[entry]]
    elif metric_type != EUCLIDEAN:
        for entry in range(count):
            scores[entry] = cosine(scores[entry], query_norm * norms[columns[entry]])


@inlined_kernel
def score_items(scoring, query, columns, count, scores):
    """Write the scores of a query and the first `count` columns, as score_pairs does."""
    score_pairs(
        scoring.metric_type, scoring.queries, query, scoring.query_norms[query], scoring.items,
        scoring.item_norms, scoring.item_offsets, columns, count, scores,
    )  # fmt: skip


@borrowing_kernel
def _two_scores(metric_type, queries, query_starts, items, item_starts, depth):
    """Return the inner products, or negative squared distances, of two pairs of rows."""
    if metric_type == EUCLIDEAN:
        first, second = two_squared_distances(queries, query_starts, items, item_starts, depth)
        return -first, -second
    return two_products(queries, query_starts, items, item_starts, depth)


@kernel
def cosine(product, norm):
    """Return the cosine of two rows, product / norm, where norm is the product of their norms.

    The cosine is 0 if norm is 0.
    """
    return min(max(product / norm, -1.0), 1.0) if norm > 0.0 else 0.0


@kernel
def order_by_item(columns, n_items):
    """Return an order (m,) int32 in which pairs with neighbouring items follow each other."""
    order = np.empty(columns.shape[0], np.int32)
    if columns.shape[0] <= _FEW_PAIRS:
        for entry in range(columns.shape[0]):
            order[entry] = entry
        return order
    shift = 0
    while n_items >> shift > _BUCKETS:
        shift += 1
    starts = np.empty((n_items >> shift) + 2, np.int64)
    starts[:] = 0
    for entry in range(columns.shape[0]):
        starts[(columns[entry] >> shift) + 1] += 1
    for bucket in range(starts.shape[0] - 1):
        starts[bucket + 1] += starts[bucket]
    for entry in range(columns.shape[0]):
        bucket = columns[entry] >> shift
        order[starts[bucket]] = entry
        starts[bucket] += 1
    return order


@borrowing_kernel
def _score_by_twos(metric_type, numbers, columns, order, queries, items, depth, scores):
    """Write the inner products, or negative squared distances, of pairs of rows, two at a time."""
    if columns.shape[0] == 0:
        return
    # The items that one step prefetches are multiplied in the next step, so each index is read only
    # once.
    last = columns.shape[0] - 1
    one, other = order[0], order[min(1, last)]
    x0, x1 = columns[one] * depth, columns[other] * depth
    for place in range(0, last + 1, 2):
        next_one, next_other = order[min(place + 2, last)], order[min(place + 3, last)]
        x2, x3 = columns[next_one] * depth, columns[next_other] * depth
        starts = numbers[one] * depth, numbers[other] * depth
        scores[one], scores[other] = _two_scores(
            metric_type, queries, starts, items, (x0, x1, x2, x3), depth
        )
        one, other, x0, x1 = next_one, next_other, x2, x3


@borrowing_kernel
def score_pairs_by_item(
    metric_type, numbers, columns, order, queries, query_norms, items, norms, offsets, scores
):
    """Write the score of query numbers[e] and item columns[e] to scores[e], in the order of items.

    numbers and columns (m,) are int64, order (m,) is the result of order_by_item, and scores (m,)
    float64 is the output. The other arguments, and the scores, are those of score_pairs. In this
    order, items that are close together in memory are read one after the other.
    """
    depth, count = items.shape[1], columns.shape[0]
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    if depth < _NARROW:
        for place in range(count):
            entry = order[place]
            query_start, item_start = numbers[entry] * depth, columns[entry] * depth
            if metric_type == EUCLIDEAN:
                scores[entry] = -squared_distance(
                    flat_queries, query_start, flat_items, item_start, depth
                )
            else:
                scores[entry] = product(flat_queries, query_start, flat_items, item_start, depth)
    else:
        _score_by_twos(
            metric_type, numbers, columns, order, flat_queries, flat_items, depth, scores
        )
    for entry in range(count):
        column = columns[entry]
        if metric_type == COSINE:
            scores[entry] = cosine(scores[entry], query_norms[numbers[entry]] * norms[column])
        elif metric_type == DOT and offsets.shape[0] > 0:
            scores[entry] += offsets[column]


@kernel
def row_norms(lo, hi, rows, norms):
    """Write |rows[i]| to norms (n,) float64 for rows lo to hi, where rows (n, d) is float."""
    depth = rows.shape[1]
    flat = rows.reshape(-1)
    for i in range(lo, hi):
        norms[i] = math.sqrt(product(flat, i * depth, flat, i * depth, depth))

"""Float64 scores of listed pairs of queries and items, computed from the original rows."""

import math

import numpy as np

from .jit import kernel
from .pair_scores import COSINE, EUCLIDEAN, cosine
from .simd.memory import prefetch_row
from .simd.pair_products import square_and_product, squared_distance

# The number of rows ahead of the current one that are prefetched. With 8 rows, scoring 100
# candidates of 768 columns for each of 1,000 queries takes 21 ms; with 2 rows, prefetched into the
# first-level cache, it takes 27 ms.
_AHEAD = 8


@kernel
def score_listed_items(lo, hi, scoring, numbers, columns, least_norm, scores):
    """Set scores[e] to the score of query numbers[e] and item columns[e], for pairs lo to hi.

    scoring is a PairScoring, whose item_norms and item_offsets are not read; the norms of the items
    are measured together with the scores. numbers and columns (m,) are int64, and the pairs of one
    query are next to each other. The output scores (m,) float64 holds the scores that
    pair_scores.score_pairs computes without offsets, or NaN if the norm of the item is not finite
    or is below least_norm. The kernel takes O((hi - lo) d) time and allocates O(d) memory.
    """
    metric_type, queries, items = scoring.metric_type, scoring.queries, scoring.items
    depth, last = items.shape[1], -1
    flat, query = items.reshape(-1), np.empty(depth)
    for pair in range(lo, min(lo + _AHEAD, hi)):
        prefetch_row(flat, columns[pair] * depth, depth)
    for pair in range(lo, hi):
        number = numbers[pair]
        if number != last:
            last = number
            for j in range(depth):
                query[j] = queries[number, j]
        row, later = columns[pair] * depth, columns[min(pair + _AHEAD, hi - 1)] * depth
        squares, score = square_and_product(flat, row, later, query, depth)
        norm = math.sqrt(squares)
        if not least_norm <= norm < np.inf:
            score = np.nan
        elif metric_type == EUCLIDEAN:
            score = -squared_distance(query, 0, flat, row, depth)
        elif metric_type == COSINE:
            score = cosine(score, scoring.query_norms[number] * norm)
        scores[pair] = score

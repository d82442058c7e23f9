"""Float64 scores of pairs of queries and items from the rows as given, norms measured meanwhile."""

import math

import numpy as np

from .jit import kernel
from .pair_scores import COSINE, EUCLIDEAN, cosine
from .simd.memory import prefetch_row
from .simd.pair_products import square_and_product, squared_distance

# The number of rows that are prefetched ahead, a line at a time. 1,000 x 100 candidates of 768
# columns then take 21 ms; with 2 rows, into the first cache, they take 27 ms.
_AHEAD = 8


@kernel
def score_listed_items(lo, hi, scoring, numbers, columns, least_norm, scores):
    """scores[e] = score of query numbers[e] and item columns[e], for pairs e in lo .. hi.

    O((hi - lo) d). scoring: PairScoring, whose item_norms and item_offsets are not read; numbers,
    columns (m,) int64, pairs of one query beside each other. scores (m,) float64 out: as of
    pair_scores.score_pairs without offsets; NaN where the item's norm is not finite or below
    least_norm. Allocates O(d).
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

"""Exact top-k search among rows of packed bits, by Hamming distance or cosine.

A query is compared with a block of eight items at a time. The words of the eight items are
interleaved: first word 0 of all eight items is stored, then word 1 of all eight items, and so on.
Eight words with the same number form one vector. Three instructions therefore compare word j of a
query with word j of all eight items. Each lane of the vector counts the bits of one item.
"""

import numpy as np

from .jit import kernel
from .select import keep_best, write_best
from .simd.hamming import LANES, count_bits

# The number of items of a block. A block of 256 items of 1,024 bits takes 32 KiB, so that it stays
# in the first-level or second-level cache.
_ITEMS = 256
# A threshold is multiplied by this factor, so that rounding errors of a cosine drop no item.
_ROUNDING_MARGIN = 1.0 - 1e-12


@kernel
def nearest_bits(lo, hi, is_cosine, query_rows, item_rows, self_rows, scores, rows):
    """Find the best k items of queries lo to hi; items with equal scores are ordered by number.

    `query_rows` and `item_rows` are BitRows. If is_cosine is 0, a score is the Hamming distance
    times -1. If is_cosine is 1, a score is the cosine of rows of zeros and ones, or 0 if a norm is
    0. `self_rows` (n,) holds, for each query, the number of the item that is the query itself, or
    -1. The results are written to `scores` (n, k) float64 and `rows` (n, k) int64. The kernel takes
    O((hi - lo) m w) time for m items of w words, and allocates O((hi - lo) k) memory.
    """
    queries, query_norms = query_rows.words, query_rows.norms
    items, norms = item_rows.words, item_rows.norms
    k, w, m = rows.shape[1], items.shape[1], items.shape[0]
    capacity = 4 * k + 64
    best_scores, best_rows = np.empty((hi - lo, capacity)), np.empty((hi - lo, capacity), np.int64)
    n_candidates, bounds = np.zeros(hi - lo, np.int64), np.full(hi - lo, -np.inf)
    scratch, counts = np.empty(capacity), np.empty(LANES, np.int64)
    words, flat = np.zeros(_ITEMS * w, np.uint64), queries.reshape(-1)
    for first in range(0, m, _ITEMS):
        last = min(m, first + _ITEMS)
        for item in range(first, last):
            start = (item - first) // LANES * LANES * w + (item - first) % LANES
            for j in range(w):
                words[start + LANES * j] = items[item, j]
        for i in range(lo, hi):
            at = i - lo
            for group in range(first, last, LANES):
                slope, base = 0.0, bounds[at]
                if is_cosine and base >= 0.0:
                    slope, base = base * query_norms[i] * _ROUNDING_MARGIN, 0.0
                items_above = count_bits(
                    words, (group - first) * w, flat, i * w, w, is_cosine, norms, group, slope,
                    base, counts,
                )  # fmt: skip
                if items_above == 0:
                    continue
                for lane in range(min(LANES, last - group)):
                    item = group + lane
                    score = -float(counts[lane])
                    if is_cosine:
                        size = query_norms[i] * norms[item]
                        score = min(1.0, counts[lane] / size) if size > 0.0 else 0.0
                    # Of two items with equal scores, the one with the lower number ranks first, and
                    # items are visited by ascending number. Therefore, an item is among the best k
                    # only if its score exceeds the k-th best score so far.
                    if score <= bounds[at] or item == self_rows[i]:
                        continue
                    best_scores[at, n_candidates[at]], best_rows[at, n_candidates[at]] = (
                        score,
                        item,
                    )
                    n_candidates[at] += 1
                    if n_candidates[at] == capacity:
                        n_candidates[at] = keep_best(
                            best_scores[at], best_rows[at], capacity, k, scratch
                        )
                        bounds[at] = best_scores[at, k - 1]
    for i in range(lo, hi):
        at = i - lo
        count = keep_best(best_scores[at], best_rows[at], n_candidates[at], k, scratch)
        write_best(best_scores[at], best_rows[at], count, scores[i], rows[i])

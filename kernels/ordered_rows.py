"""Recos of candidate lists: the product of two rows over the product of their sorted entries."""

import numpy as np

from .jit import kernel
from .pair_scores import prefetch_row, product

# rows that are prefetched before their scoring, as in pair_scores
_AHEAD = 4


@kernel
def recos_rows(lo, hi, queries, sorted_queries, items, sorted_items, columns, keys):
    """keys[i] = recos of query i and the items columns[i], for queries lo .. hi; 0 where undefined.

    queries (n, d), items (p, d) of one dtype, and the same with sorted entries; columns (n, c)
    int64, padded by -1; keys (n, c) float64 out, -inf for padding. O((hi - lo) c d).
    """
    depth = items.shape[1]
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    flat_own, flat_sorted = sorted_queries.reshape(-1), sorted_items.reshape(-1)
    descending = np.empty(depth, queries.dtype)
    for i in range(lo, hi):
        for j in range(depth):
            descending[j] = sorted_queries[i, depth - 1 - j]
        for entry in range(-_AHEAD, columns.shape[1]):
            ahead = columns[i, min(entry + _AHEAD, columns.shape[1] - 1)]
            if ahead >= 0:
                prefetch_row(flat_items, ahead * depth, depth)
                prefetch_row(flat_sorted, ahead * depth, depth)
            if entry < 0:
                continue
            column = columns[i, entry]
            if column < 0:
                keys[i, entry] = -np.inf
                continue
            start = column * depth
            top = product(flat_queries, i * depth, flat_items, start, depth)
            if top < 0.0:
                bottom = abs(product(descending, 0, flat_sorted, start, depth))
            else:
                bottom = abs(product(flat_own, i * depth, flat_sorted, start, depth))
            keys[i, entry] = min(max(top / bottom, -1.0), 1.0) if bottom > 0.0 else 0.0

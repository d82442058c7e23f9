"""Recos of listed pairs: a product of two rows over the product of their ordered entries."""

import numpy as np

from .jit import kernel
from .pair_scores import prefetch_row, product

# rows asked for ahead of their scoring, as in pair_scores
_AHEAD = 4


@kernel
def recos_rows(lo, hi, queries, rising_queries, items, rising_items, columns, keys):
    """keys[i] = recos of query i and the items columns[i], for queries lo .. hi; 0 where undefined.

    queries (n, d), items (p, d) of one dtype and the same with their entries rising; columns (n, c)
    int64, -1 for no item; keys (n, c) float64 out, -inf for none. O((hi - lo) c d).
    """
    depth = items.shape[1]
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    flat_own, flat_rising = rising_queries.reshape(-1), rising_items.reshape(-1)
    falling = np.empty(depth, queries.dtype)
    for i in range(lo, hi):
        for j in range(depth):
            falling[j] = rising_queries[i, depth - 1 - j]
        for entry in range(-_AHEAD, columns.shape[1]):
            ahead = columns[i, min(entry + _AHEAD, columns.shape[1] - 1)]
            if ahead >= 0:
                prefetch_row(flat_items, ahead * depth, depth)
                prefetch_row(flat_rising, ahead * depth, depth)
            if entry < 0:
                continue
            column = columns[i, entry]
            if column < 0:
                keys[i, entry] = -np.inf
                continue
            start = column * depth
            top = product(flat_queries, i * depth, flat_items, start, depth)
            if top < 0.0:
                bottom = abs(product(falling, 0, flat_rising, start, depth))
            else:
                bottom = abs(product(flat_own, i * depth, flat_rising, start, depth))
            keys[i, entry] = min(max(top / bottom, -1.0), 1.0) if bottom > 0.0 else 0.0

"""Recos of listed pairs: a product of two rows over the product of their ordered entries."""

import numpy as np

from .jit import kernel
from .pair_scores import prefetch_row, product, rough_product
from .select import kth_largest

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


@kernel
def sharp_rows(lo, hi, slack, units, inside, sharp, offsets):
    """sharp[i] = units[i], inside[i, 1:], and the distance to the space that inside[i] is in.

    units (n, d), inside (n, r) float32: of sorted unit rows; slack: what rounding may have added to
    their squared norms; sharp (n, d + r) float32, offsets (n,) = -inside[:, 0] out. A zero row has
    the offset -1.
    """
    d, r = units.shape[1], inside.shape[1]
    for i in range(lo, hi):
        there, rest = False, 1.0 + slack - np.float64(inside[i, 0]) * inside[i, 0]
        for j in range(d):
            there |= units[i, j] != 0.0
            sharp[i, j] = units[i, j]
        for j in range(1, r):
            sharp[i, d + j - 1] = inside[i, j]
            rest -= np.float64(inside[i, j]) * inside[i, j]
        sharp[i, d + r - 1] = np.float32(np.sqrt(max(rest, 0.0))) if there else np.float32(0.0)
        offsets[i] = -np.float64(inside[i, 0]) if there else -1.0


@kernel
def sharp_queries(lo, hi, depth, sharp, floors, queries):
    """queries[i] = sharp[i], behind depth times -floors[i], but the last column times floors[i].

    sharp, queries (n, w) float32; floors (n,) float64.
    """
    last = sharp.shape[1] - 1
    for i in range(lo, hi):
        weight = np.float32(floors[i])
        for j in range(depth):
            queries[i, j] = sharp[i, j]
        for j in range(depth, last):
            queries[i, j] = -weight * sharp[i, j]
        queries[i, last] = weight * sharp[i, last]


@kernel
def narrow_recos_lists(
    lo, hi, k, depth, slack, queries, query_offsets, items, item_offsets, counts, columns
):
    """Drop of every list what cannot be among its k best by recos, for lists lo .. hi.

    queries (n, w), items (p, w) float32: unit rows in `depth` columns, coordinates of their ordered
    entries, and in the last column at least what these leave out; another coordinate, negative, is
    in query_offsets (n,) and item_offsets (p,); slack: what rounding may add to either product.
    counts (n,) of columns (n, c) int64, in and out. O((hi - lo) c w).
    """
    width, longest = items.shape[1], columns.shape[1]
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    lower, upper, scratch = np.empty(longest), np.empty(longest), np.empty(longest)
    for i in range(lo, hi):
        count, own = counts[i], i * width
        if count <= k:
            continue
        for entry in range(min(_AHEAD, count)):
            prefetch_row(flat_items, columns[i, entry] * width, width)
        for entry in range(count):
            if entry + _AHEAD < count:
                prefetch_row(flat_items, columns[i, entry + _AHEAD] * width, width)
            start = columns[i, entry] * width
            top = np.float64(rough_product(flat_queries, own, flat_items, start, depth))
            # what is left out adds at most its product, and takes as much
            inside = np.float64(
                rough_product(flat_queries, own + depth, flat_items, start + depth, width - depth)
            )
            inside += query_offsets[i] * item_offsets[columns[i, entry]]
            apart = flat_queries[own + width - 1] * flat_items[start + width - 1]
            # a negative product is told from 0 only
            most, least = max(top + slack, 0.0), top - slack
            upper[entry] = most / max(inside - 2.0 * apart - slack, most, slack)
            lower[entry] = least / (inside + slack) if least > 0.0 else -1.0
            scratch[entry] = lower[entry]
        floor = kth_largest(scratch, count, k)
        kept = 0
        for entry in range(count):
            columns[i, kept] = columns[i, entry]
            kept += upper[entry] >= floor
        counts[i] = kept

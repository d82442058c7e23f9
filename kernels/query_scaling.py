"""Queries for the tiles: their norms, and the scale, offset and bound by which tiles compare them.

A query a becomes a' = factor a - coefficient shift, of norm about 1. Its raw scores become K =
slope score + intercept (see ``candidate_filter``), so that a bias counts at most 2^20.

``bound_items`` turns the addresses of packed items into arrays again. Numba reads a tuple of 12
arrays in 2 us at every call, and one array of their addresses in 0.1 us. The addresses are taken
once, when the items are packed (``fastcos.search.packing``).
"""

import math

import numpy as np

from .jit import borrowing_kernel, kernel
from .pair_scores import COSINE, EUCLIDEAN
from .records import Items, Projection, Queries, QueryFilters, QueryScaling
from .simd.addresses import array_at, as_read
from .simd.pair_products import product
from .simd.panel import PANEL

# A bias has at most this weight relative to inner products, so that float32 can hold both.
_LARGEST_BIAS_WEIGHT = 2.0**20
# The norms of ordinary queries, whose products with scorable items neither overflow nor vanish.
_SMALLEST_NORM, _LARGEST_NORM = 1e-100, 1e100
# The arrays of Items whose addresses are bound, in this order, each with its number of elements.
BOUND = (
    "rows", "norms", "offsets", "order", "packed", "small_offsets", "statistics", "shift", "signs",
    "tile_configuration", "scaling",
)  # fmt: skip
# The arrays of their Projection, which follow.
BOUND_PROJECTION = ("axes", "packed", "statistics", "rest_norms", "eta", "largest_k")
# The types of arrays whose type never changes.
_FLOAT64, _FLOAT32 = np.empty(0, np.float64), np.empty(0, np.float32)
_INT32, _UINT8 = np.empty(0, np.int32), np.empty(0, np.uint8)
# The place of the numbers behind the arrays: columns, and words of a row and of a projection.
_NUMBERS = 2 * (len(BOUND) + len(BOUND_PROJECTION))
N_SLOTS = _NUMBERS + 3


@kernel
def scale_queries(lo, hi, metric_type, rows, norms, units, shift, scaling):
    """Scale queries lo .. hi. O((hi - lo) d).

    rows (n, d), norms (n,) float64; units: as in BoundItems; shift (d,) float64 or empty. Out:
    scaling, QueryScaling.
    """
    depth, flat = rows.shape[1], rows.reshape(-1)
    unit, bias_unit = units[0], units[1]
    ratio = unit / bias_unit
    square = product(shift, 0, shift, 0, shift.shape[0])
    for i in range(lo, hi):
        norm = norms[i] if norms[i] > 0.0 else 1.0
        slope, intercept, weight = 1.0, 0.0, np.float32(0.0)
        if metric_type != COSINE:
            norm = max(norm, ratio / _LARGEST_BIAS_WEIGHT)
            slope = unit / norm
            if shift.shape[0] == 0:
                weight = np.float32(ratio / norm)
            if metric_type == EUCLIDEAN:
                intercept = 0.5 * norms[i] * norms[i] * slope
                slope *= 0.5
        coefficient = 0.0
        # A zero row has no part along the shift.
        if shift.shape[0] > 0 and norms[i] > 0.0:
            along = product(flat, i * depth, shift, 0, depth) / norm
            coefficient = along - square + 1.0
            weight, intercept = np.float32(coefficient), -coefficient
        scaling.factors[i], scaling.coefficients[i] = 1.0 / norm, coefficient
        scaling.slopes[i], scaling.intercepts[i] = slope, intercept
        scaling.weights[i] = weight


@kernel
def scaled_queries(rows, filters, items, shift):
    """Queries (n, d) as the filter takes them, with their norms. Allocates 52 bytes a query.

    filters: QueryFilters; items: BoundItems, with this shift.
    """
    n, depth, flat = rows.shape[0], rows.shape[1], rows.reshape(-1)
    norms = np.empty(n)
    scaling = QueryScaling(
        np.empty(n), np.empty(n), np.empty(n, np.float32), np.empty(n), np.empty(n)
    )
    for i in range(n):
        norms[i] = math.sqrt(product(flat, i * depth, flat, i * depth, depth))
    scale_queries(0, n, items.metric_type, rows, norms, items.units, shift, scaling)
    self_rows, indptr = filters.self_rows, filters.excluded_indptr
    if self_rows.shape[0] == 0:
        self_rows, indptr = as_read(np.full(n, -1)), as_read(np.zeros(n + 1, np.int64))
    return Queries(
        rows, as_read(norms), scaling, items.units[2], items.units[3],
        QueryFilters(self_rows, indptr, filters.excluded_rows, filters.allowed),
    )  # fmt: skip


@borrowing_kernel
def are_ordinary(norms):
    """Whether all norms are so far from zero and infinity that a query needs no special care."""
    ordinary = True
    for i in range(norms.shape[0]):
        ordinary &= _SMALLEST_NORM < norms[i] < _LARGEST_NORM
    return ordinary


@kernel
def bound_items(bound):
    """Items from the addresses of their arrays, BoundItems."""
    slots, row_type, packed_type = bound.slots, bound.row_type, bound.packed_type
    depth, words, projected_words = slots[_NUMBERS], slots[_NUMBERS + 1], slots[_NUMBERS + 2]
    rows = array_at(slots, 0, row_type)
    norms, offsets = array_at(slots, 2, _FLOAT64), array_at(slots, 4, _FLOAT64)
    order, packed = array_at(slots, 6, _INT32), array_at(slots, 8, packed_type)
    small_offsets = array_at(slots, 10, _FLOAT32)
    statistics, shift = array_at(slots, 12, _FLOAT32), array_at(slots, 14, _FLOAT64)
    signs, tile_configuration = array_at(slots, 16, _FLOAT32), array_at(slots, 18, _UINT8)
    scaling = array_at(slots, 20, _FLOAT32)
    axes, projected_statistics = array_at(slots, 22, _FLOAT32), array_at(slots, 26, _FLOAT32)
    size = depth * PANEL
    projection = Projection(
        axes.reshape(axes.shape[0] // size, depth, PANEL), array_at(slots, 24, packed_type),
        projected_words, projected_statistics.reshape(projected_statistics.shape[0] // 5, 5),
        array_at(slots, 28, _FLOAT32), array_at(slots, 30, _FLOAT32),
        array_at(slots, 32, _FLOAT32),
    )  # fmt: skip
    return Items(
        bound.isa, bound.metric_type, rows.reshape(rows.shape[0] // depth, depth), norms, offsets,
        order, packed, words, small_offsets, statistics.reshape(statistics.shape[0] // 5, 5), shift,
        signs.reshape(2, signs.shape[0] // 2), tile_configuration,
        scaling.reshape(scaling.shape[0] // 2, 2), projection,
    )  # fmt: skip

"""Queries of the tiled kernels: their norms, scales, offsets and bounds on rounding errors.

A query a becomes a' = factor a - coefficient shift, which has a norm of about 1. The raw score of a
pair becomes K = slope score + intercept (see ``candidate_filter``), with a scale at which a bias
weighs at most 2^20 times as much as an inner product.

``items_at`` turns the addresses of packed items back into arrays. At every call, Numba takes 2 us
to read a tuple of 12 arrays, but only 0.1 us to read one array that holds their addresses. The
addresses are taken once, when the items are packed (``fastcos.search.packing``).
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
# The norms of ordinary queries lie between these limits. The products of such queries with items
# that can be scored neither overflow nor vanish.
_SMALLEST_NORM, _LARGEST_NORM = 1e-100, 1e100
# The arrays of Items whose addresses are stored, in this order, each with its number of elements.
ARRAYS_OF_ITEMS = (
    "rows", "norms", "offsets", "order", "packed", "small_offsets", "statistics", "shift", "signs",
    "tile_configuration", "scaling",
)  # fmt: skip
# The arrays of the Projection of the items, whose addresses follow.
ARRAYS_OF_PROJECTION = ("axes", "packed", "statistics", "rest_norms", "eta", "largest_k")
# For each array, the index at which the array of addresses holds its address. The next entry holds
# the number of elements of the array.
(
    _ROWS, _NORMS, _OFFSETS, _ORDER, _PACKED, _SMALL_OFFSETS, _STATISTICS, _SHIFT, _SIGNS,
    _TILE_CONFIGURATION, _SCALING,
) = (2 * place for place in range(len(ARRAYS_OF_ITEMS)))  # fmt: skip
(_AXES, _PROJECTED, _PROJECTED_STATISTICS, _REST_NORMS, _ETA, _LARGEST_K) = (
    2 * (len(ARRAYS_OF_ITEMS) + place) for place in range(len(ARRAYS_OF_PROJECTION))
)
# The indices of three more entries: the numbers of columns, of words of a packed row, and of words
# of a projected row.
_COLUMNS, _WORDS, _PROJECTED_WORDS = range(_LARGEST_K + 2, _LARGEST_K + 5)
N_PLACES = _PROJECTED_WORDS + 1
# Examples of the arrays whose type is the same in every search.
_FLOAT64, _FLOAT32 = np.empty(0, np.float64), np.empty(0, np.float32)
_INT32, _UINT8 = np.empty(0, np.int32), np.empty(0, np.uint8)


@kernel
def scale_queries(lo, hi, metric_type, rows, norms, units, shift, scaling):
    """Scale queries lo to hi in O((hi - lo) d) time, and write the result to scaling.

    rows has the shape (n, d), norms (n,) is float64, units is described in ItemAddresses, and shift
    (d,) is float64 or empty. scaling is a QueryScaling.
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
        # A zero row has no component along the shift.
        if shift.shape[0] > 0 and norms[i] > 0.0:
            along = product(flat, i * depth, shift, 0, depth) / norm
            coefficient = along - square + 1.0
            weight, intercept = np.float32(coefficient), -coefficient
        scaling.factors[i], scaling.coefficients[i] = 1.0 / norm, coefficient
        scaling.slopes[i], scaling.intercepts[i] = slope, intercept
        scaling.weights[i] = weight


@kernel
def scaled_queries(rows, filters, items, shift):
    """Return the record of queries (n, d) that the candidate filter reads, with their norms.

    filters is a QueryFilters, and items an ItemAddresses that was made with this shift. The
    function allocates 52 bytes per query.
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
        no_rows, starts = np.empty(n, np.int64), np.empty(n + 1, np.int64)
        no_rows[:], starts[:] = -1, 0
        self_rows, indptr = as_read(no_rows), as_read(starts)
    return Queries(
        rows, as_read(norms), scaling, items.units[2], items.units[3],
        QueryFilters(self_rows, indptr, filters.excluded_rows, filters.allowed),
    )  # fmt: skip


@borrowing_kernel
def are_ordinary(norms):
    """Return whether all norms are far enough from zero and infinity for ordinary scoring.

    A norm that is NaN is not ordinary, because NaN fails every comparison.
    """
    ordinary = True
    for i in range(norms.shape[0]):
        ordinary &= _SMALLEST_NORM < norms[i] < _LARGEST_NORM
    return ordinary


@kernel
def items_at(addresses):
    """Return the Items whose arrays lie at the addresses in an ItemAddresses."""
    at, packed_type = addresses.places, addresses.packed_type
    depth = at[_COLUMNS]
    rows = array_at(at, _ROWS, addresses.row_type)
    statistics, signs = array_at(at, _STATISTICS, _FLOAT32), array_at(at, _SIGNS, _FLOAT32)
    scaling, axes = array_at(at, _SCALING, _FLOAT32), array_at(at, _AXES, _FLOAT32)
    projected_statistics = array_at(at, _PROJECTED_STATISTICS, _FLOAT32)
    projection = Projection(
        axes.reshape(axes.shape[0] // (depth * PANEL), depth, PANEL),
        array_at(at, _PROJECTED, packed_type),
        at[_PROJECTED_WORDS],
        projected_statistics.reshape(projected_statistics.shape[0] // 5, 5),
        array_at(at, _REST_NORMS, _FLOAT32),
        array_at(at, _ETA, _FLOAT32),
        array_at(at, _LARGEST_K, _FLOAT32),
    )
    return Items(
        addresses.isa,
        addresses.metric_type,
        rows.reshape(rows.shape[0] // depth, depth),
        array_at(at, _NORMS, _FLOAT64),
        array_at(at, _OFFSETS, _FLOAT64),
        array_at(at, _ORDER, _INT32),
        array_at(at, _PACKED, packed_type),
        at[_WORDS],
        array_at(at, _SMALL_OFFSETS, _FLOAT32),
        statistics.reshape(statistics.shape[0] // 5, 5),
        array_at(at, _SHIFT, _FLOAT64),
        signs.reshape(2, signs.shape[0] // 2),
        array_at(at, _TILE_CONFIGURATION, _UINT8),
        scaling.reshape(scaling.shape[0] // 2, 2),
        projection,
    )

"""Norms, scales, offsets and bounds on rounding errors of the queries of the tiled kernels.

A query a becomes a' = factor * a - coefficient * shift, which has a norm of about 1. The raw score
of a pair becomes K = slope * score + intercept (see ``candidate_filter``). The factors are chosen
such that the weight by which a query multiplies the offsets of items is at most 2^20.

``items_at`` makes the record Items from an ItemAddresses, which holds the addresses of all arrays
of Items and of its projection in one array. At every call, Numba takes 0.1 us to read the array of
addresses, but 2 us to read a tuple of 12 arrays. The addresses are collected once, when the items
are packed (``fastcos.search.packing``).
"""

import math

import numpy as np

from .jit import borrowing_kernel, kernel
from .pair_scores import COSINE, EUCLIDEAN
from .records import Items, Projection, Queries, QueryFilters, QueryScaling
from .simd.memory import array_at, as_read_only
from .simd.pair_products import product
from .simd.panel import N_STATISTICS, PANEL

# The largest weight by which a query multiplies the offset of an item, relative to the inner
# product. With a larger weight, a float32 sum of the inner product and the weighted offset would
# not be precise enough.
_MAX_OFFSET_WEIGHT = 2.0**20
# A query is *ordinary* if its norm lies between these limits. The products of an ordinary query
# with an item neither overflow nor vanish, provided that the item can be scored at all.
_MIN_ORDINARY_NORM, _MAX_ORDINARY_NORM = 1e-100, 1e100
# The table of an ItemAddresses has two entries for each of these fields of Items, in this order:
# the address and the number of elements of the array.
ARRAYS_OF_ITEMS = (
    "rows", "norms", "offsets", "order", "packed", "small_offsets", "statistics", "shift", "signs",
    "tile_configuration", "scaling",
)  # fmt: skip
# In the table of an ItemAddresses, the entries of Items are followed by two entries for each of
# these fields of Projection.
ARRAYS_OF_PROJECTION = ("axes", "packed", "statistics", "remainder_norms", "eta", "largest_k")
# For each array, the index at which the table of an ItemAddresses contains the address of the
# array. The entry after the address is the number of elements of the array.
(
    _ROWS, _NORMS, _OFFSETS, _ORDER, _PACKED, _SMALL_OFFSETS, _STATISTICS, _SHIFT, _SIGNS,
    _TILE_CONFIGURATION, _SCALING,
) = (2 * number for number in range(len(ARRAYS_OF_ITEMS)))  # fmt: skip
(_AXES, _PROJECTED, _PROJECTED_STATISTICS, _REMAINDER_NORMS, _ETA, _LARGEST_K) = (
    2 * (len(ARRAYS_OF_ITEMS) + number) for number in range(len(ARRAYS_OF_PROJECTION))
)
# The last three entries of the table of an ItemAddresses are the number of columns, the number of
# words of a packed row, and the number of words of a projected row.
_COLUMNS, _WORDS, _PROJECTED_WORDS = range(_LARGEST_K + 2, _LARGEST_K + 5)
TABLE_SIZE = _PROJECTED_WORDS + 1
# Empty arrays that tell ``array_at`` the type of the array at an address.
_FLOAT64, _FLOAT32 = np.empty(0, np.float64), np.empty(0, np.float32)
_INT32, _UINT8 = np.empty(0, np.int32), np.empty(0, np.uint8)


@kernel
def scale_queries(lo, hi, metric_type, rows, norms, units, shift, scaling):
    """Scale queries lo to hi in O((hi - lo) d) time, and write the result to scaling.

    `rows` (n, d) holds the queries, and `norms` (n,) float64 holds the norms of the queries.
    `units` is a ScalingUnits, and `shift` (d,) is float64 or empty. `scaling` is a QueryScaling.
    """
    depth, flat = rows.shape[1], rows.reshape(-1)
    unit, offset_unit = units.unit, units.offset_unit
    ratio = unit / offset_unit
    square = product(shift, 0, shift, 0, shift.shape[0])
    for i in range(lo, hi):
        norm = norms[i] if norms[i] > 0.0 else 1.0
        slope, intercept, weight = 1.0, 0.0, np.float32(0.0)
        if metric_type != COSINE:
            norm = max(norm, ratio / _MAX_OFFSET_WEIGHT)
            slope = unit / norm
            if shift.shape[0] == 0:
                weight = np.float32(ratio / norm)
            if metric_type == EUCLIDEAN:
                intercept = 0.5 * norms[i] * norms[i] * slope
                slope *= 0.5
        coefficient = 0.0
        # The component of a zero row along the shift is zero, so it is not computed.
        if shift.shape[0] > 0 and norms[i] > 0.0:
            along_shift = product(flat, i * depth, shift, 0, depth) / norm
            coefficient = along_shift - square + 1.0
            weight, intercept = np.float32(coefficient), -coefficient
        scaling.factors[i], scaling.coefficients[i] = 1.0 / norm, coefficient
        scaling.slopes[i], scaling.intercepts[i] = slope, intercept
        scaling.weights[i] = weight


@kernel
def scaled_queries(rows, filters, addresses, shift):
    """Return the record Queries for queries, given as rows (n, d); compute norms and scaling.

    `filters` is a QueryFilters, whose arrays may be empty, and `addresses` is the ItemAddresses of
    the items; `shift` is the shift of the items. The function allocates 44 bytes per query if
    filters has self_rows, and otherwise 60 bytes per query.
    """
    n, depth, flat = rows.shape[0], rows.shape[1], rows.reshape(-1)
    norms, units = np.empty(n), addresses.units
    scaling = QueryScaling(
        np.empty(n), np.empty(n), np.empty(n, np.float32), np.empty(n), np.empty(n)
    )
    for i in range(n):
        norms[i] = math.sqrt(product(flat, i * depth, flat, i * depth, depth))
    scale_queries(0, n, addresses.metric_type, rows, norms, units, shift, scaling)
    self_rows, indptr = filters.self_rows, filters.excluded_indptr
    if self_rows.shape[0] == 0:
        no_rows, zeros = np.empty(n, np.int64), np.empty(n + 1, np.int64)
        no_rows[:], zeros[:] = -1, 0
        self_rows, indptr = as_read_only(no_rows), as_read_only(zeros)
    return Queries(
        rows, as_read_only(norms), scaling, units.tile_error, units.shift_error,
        QueryFilters(self_rows, indptr, filters.excluded_rows, filters.allowed),
    )  # fmt: skip


@borrowing_kernel
def are_ordinary(norms):
    """Return whether all norms lie between _MIN_ORDINARY_NORM and _MAX_ORDINARY_NORM.

    If a norm is NaN, the result is False, because every comparison with NaN is false.
    """
    ordinary = True
    for i in range(norms.shape[0]):
        ordinary &= _MIN_ORDINARY_NORM < norms[i] < _MAX_ORDINARY_NORM
    return ordinary


@kernel
def items_at(addresses):
    """Return the Items whose arrays lie at the addresses in an ItemAddresses."""
    table, packed_type = addresses.table, addresses.packed_type
    depth = table[_COLUMNS]
    rows = array_at(table, _ROWS, addresses.row_type)
    statistics, signs = array_at(table, _STATISTICS, _FLOAT32), array_at(table, _SIGNS, _FLOAT32)
    scaling, axes = array_at(table, _SCALING, _FLOAT32), array_at(table, _AXES, _FLOAT32)
    projected_statistics = array_at(table, _PROJECTED_STATISTICS, _FLOAT32)
    projection = Projection(
        axes.reshape(axes.shape[0] // (depth * PANEL), depth, PANEL),
        array_at(table, _PROJECTED, packed_type),
        table[_PROJECTED_WORDS],
        projected_statistics.reshape(projected_statistics.shape[0] // N_STATISTICS, N_STATISTICS),
        array_at(table, _REMAINDER_NORMS, _FLOAT32),
        array_at(table, _ETA, _FLOAT32),
        array_at(table, _LARGEST_K, _FLOAT32),
    )
    return Items(
        addresses.isa,
        addresses.metric_type,
        rows.reshape(rows.shape[0] // depth, depth),
        array_at(table, _NORMS, _FLOAT64),
        array_at(table, _OFFSETS, _FLOAT64),
        array_at(table, _ORDER, _INT32),
        array_at(table, _PACKED, packed_type),
        table[_WORDS],
        array_at(table, _SMALL_OFFSETS, _FLOAT32),
        statistics.reshape(statistics.shape[0] // N_STATISTICS, N_STATISTICS),
        array_at(table, _SHIFT, _FLOAT64),
        signs.reshape(2, signs.shape[0] // 2),
        array_at(table, _TILE_CONFIGURATION, _UINT8),
        scaling.reshape(scaling.shape[0] // 2, 2),
        projection,
    )

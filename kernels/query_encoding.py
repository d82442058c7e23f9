"""Encoding of queries for the tiles: like items, queries are scaled, rotated and quantised.

A query a becomes a' = factor * a - coefficient * shift, whose norm is at most about 1. The raw
score of a pair becomes K = slope * score + intercept (see ``candidate_filter``). A query multiplies
the offsets of items by a weight. The factors are chosen such that this weight is at most 2^20.

``scale_queries`` computes the factors, ``encode_query`` rotates and quantises one query, and
``pack_query`` writes the codes of the query to a panel of queries.
"""

import math

import numpy as np

from .jit import borrowing_kernel, kernel
from .packing import LANES, LARGEST_CODE, load_row, norm_above, quantisation_step, rotate_row
from .pair_scores import COSINE, EUCLIDEAN
from .records import Queries, QueryFilters, QueryScaling, float64_row
from .simd.instruction_sets import has_codes, has_tile_registers, int16_words
from .simd.memory import as_read_only
from .simd.panel import PANEL
from .simd.quantise import largest_group_sum, measure_row, quantise_row
from .simd.row_products import row_product

# The largest weight by which a query multiplies the offset of an item. The weighted offset is then
# added to the inner product, which has no weight of its own. With a larger weight, a float32 sum of
# the inner product and the weighted offset would not be precise enough.
_MAX_OFFSET_WEIGHT = 2.0**20
# A query is *ordinary* if its norm lies between these limits. The products of an ordinary query
# with an item neither overflow nor vanish, provided that the item can be scored at all.
_MIN_ORDINARY_NORM, _MAX_ORDINARY_NORM = 1e-100, 1e100
# Some instruction sets add several neighbouring products in int16. Codes of a query form a group if
# their products are added to each other in int16. In every group, the positive codes must add up to
# at most this number. The magnitudes of the negative codes must also add up to at most this number.
_LARGEST_INT16_SUM = 128
# The largest magnitude of a code of a query's remainder. In products, the codes of an item are
# numbers between 1 and 255. With this limit on the codes of the remainder, the sum of two products
# fits in int16.
_LARGEST_REMAINDER_CODE = np.float32(63.0)


@kernel
def scale_queries(lo, hi, metric_type, rows, norms, units, shift, scaling):
    """Scale queries lo to hi in O((hi - lo) d) time, and write the result to `scaling`.

    `rows` is a Rows (n, d) of the queries, and `norms` (n,) float64 holds the norms of the queries.
    `units` is a ScalingUnits, and `shift` (d,) is float64 or empty. `scaling` is a QueryScaling.
    """
    unit, offset_unit = units.unit, units.offset_unit
    ratio = unit / offset_unit
    shifts = float64_row(shift)
    square = row_product(shifts, 0, shifts, 0)
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
            along_shift = row_product(shifts, 0, rows, i) / norm
            coefficient = along_shift - square + 1.0
            weight, intercept = np.float32(coefficient), -coefficient
        scaling.factors[i], scaling.coefficients[i] = 1.0 / norm, coefficient
        scaling.slopes[i], scaling.intercepts[i] = slope, intercept
        scaling.weights[i] = weight


@kernel
def with_norms_and_scaling(rows, filters, addresses, shift):
    """Compute the norms and the scaling of the queries `rows` (n, d); return a Queries record.

    `rows` is a Rows, and `filters` is a QueryFilters, whose arrays may be empty. `addresses` is the
    ItemAddresses of the items. It is needed because the units of the scaling are not a field of
    Items. `shift` is the shift of the items. The function allocates 44 bytes per query if `filters`
    has self_rows, and otherwise 60 bytes per query.
    """
    n = rows.data.shape[0]
    norms, units = np.empty(n), addresses.units
    scaling = QueryScaling(
        np.empty(n), np.empty(n), np.empty(n, np.float32), np.empty(n), np.empty(n)
    )
    for i in range(n):
        norms[i] = math.sqrt(row_product(rows, i, rows, i))
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


@borrowing_kernel
def query_step(x, largest, added_words):
    """Return the quantisation step of a query x (16 m,), whose largest magnitude is `largest`.

    No code exceeds 127 in magnitude. `added_words` is the number of words whose products are added
    in int16, or 0 if products are not added in int16 (``simd.instruction_sets``). With AVX2, 128 is
    added to each code of an item, so that the codes of the item lie between 1 and 255. A group
    consists of 2 * added_words codes of the query. The products of a group's codes with the codes
    of an item are added in int16. Let P be the sum of the positive codes of the query in the group,
    and -N the sum of the negative codes. If N and P are at most 128, the sums fit in int16, because
    every partial sum lies between -255 N and 255 P. Rounding changes each of the 2 * added_words
    codes by at most one half, so it changes N and P by at most added_words. Before rounding, N and
    P must therefore be at most 128 - added_words. If no code exceeded 64 / added_words in
    magnitude, the sums would also fit. However, this limit would make the step unnecessarily
    coarse, because the codes of a group are seldom all large.
    """
    step = quantisation_step(largest, LARGEST_CODE)
    if added_words > 0:
        largest_sum = np.float32(_LARGEST_INT16_SUM - added_words)
        step = max(step, quantisation_step(largest_group_sum(x, added_words), largest_sum))
    return step


@borrowing_kernel
def place_query(isa, codes, query, words, panel):
    """Write the codes of one query, padded with zeros, to a panel of 32 queries."""
    amx = has_tile_registers(isa)
    for k in range(words):
        at = (k >> 4) * 16 * PANEL + (query >> 4) * 256 + (k & 15) * 16 + (query & 15)
        if not amx:
            at = k * PANEL + query
        panel[at] = codes[k] if k < codes.shape[0] else np.int32(0)


@borrowing_kernel
def encode_query(
    isa, rows, row, factor, coefficient, shift, signs, added_words, buffer, codes, measured
):
    """Encode one row as a query: scale, shift, rotate and quantise the row.

    Items are scaled, shifted, rotated and quantised by the same steps. `added_words` is described
    in query_step. The function returns four numbers: the quantisation step, a bound on the norm of
    the encoded row, a bound on the norm of the residual, and the correction of products. The
    correction is -128 times the sum of the codes. The codes are written to `codes`
    (padded_width(max(d, 16)),) int8. After the call, `buffer` holds the row before quantisation; it
    has the same length as `codes`. `measured` (2,) is overwritten. If the instruction set uses
    float32 instead of codes, the row is not quantised, so the step is 1 and the residual is 0.
    """
    width = max(rows.n_columns, LANES)
    load_row(rows, row, factor, coefficient, shift, buffer)
    if has_codes(isa):
        rotate_row(buffer, width, signs)
    measure_row(buffer, measured)
    norm = norm_above(measured[1])
    if not has_codes(isa):
        return np.float32(1.0), norm, np.float32(0.0), np.int32(0)
    step = query_step(buffer, measured[0], added_words)
    sum_of_codes = quantise_row(buffer, step, np.float32(1.0) / step, codes, measured)
    return step, norm, norm_above(measured[0]), np.int32(-128) * sum_of_codes


@borrowing_kernel
def encode_remainder(step, buffer, codes, measured):
    """Quantise the remainder of a query, which is the query minus its step times its codes.

    `step` is the quantisation step of the query. `buffer` holds the query before quantisation, and
    `codes` holds its codes, as encode_query leaves them. The remainder overwrites `buffer`, and the
    codes of the remainder overwrite `codes`. The function returns three numbers: the quantisation
    step of the remainder, a bound on the norm of its rounding errors, and a correction. The
    correction is added to each product with the codes of the remainder.
    """
    for j in range(codes.shape[0]):
        buffer[j] -= step * np.float32(codes[j])
    measure_row(buffer, measured)
    remainder_step = quantisation_step(measured[0], _LARGEST_REMAINDER_CODE)
    sum_of_codes = quantise_row(
        buffer, remainder_step, np.float32(1.0) / remainder_step, codes, measured
    )
    return remainder_step, norm_above(measured[0]), np.int32(-128) * sum_of_codes


@borrowing_kernel
def pack_query(
    isa, rows, row, factor, coefficient, shift, signs, words, query, panel, buffer, codes, measured
):
    """Encode one row as encode_query does, and write it to a panel as query number `query`.

    The function returns the same four numbers as encode_query.
    """
    step, norm, residual, correction = encode_query(
        isa, rows, row, factor, coefficient, shift, signs, int16_words(isa), buffer, codes, measured
    )
    if has_codes(isa):
        place_query(isa, codes.view(np.int32), query, words, panel)
        return step, norm, residual, correction
    for k in range(words):
        panel[k * PANEL + query] = buffer[k]
    return step, norm, residual, correction

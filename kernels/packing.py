"""Packing of rows for the tiles: scaled, rotated, quantised to int8, in panels of 32.

Every quantised row is x = s q + e with integers |q| <= 127. The step s and the norms |s q| and |e|
are measured on the rotated float32 row. For up to 65,000 columns, rotation and rounding to float32
change an inner product by at most 2^-17.8 |x||y|. This bound of 2^-17.8 adds up the errors of both
rows: two passes of at most 15 butterflies, two roundings, and the rounding when a row is loaded.
SLACK is more than three times the bound.
"""

import numpy as np

from .jit import borrowing_kernel, kernel
from .rotation import rotate_row
from .select import sort_best_first
from .simd.hadamard import LANES
from .simd.instruction_sets import has_codes, has_tile_registers, int16_words
from .simd.load_row import load_elements
from .simd.memory import prefetch_row
from .simd.pair_products import product
from .simd.panel import GROUP, PANEL
from .simd.quantise import largest_group_sum, measure_row, quantise_row

# A bound on rounding errors relative to |x||y|. SLACK covers the rotation of both rows, their
# rounding to float32, and the rounding of thresholds.
SLACK = np.float32(2.0**-16)
# A float32 norm of up to 65,000 columns, computed in 16 sums, is multiplied by this factor, which
# exceeds the relative rounding error of the norm.
_ROUND_UP = np.float32(1.0 + 2.0**-12)
# A bound on the norm of the entries whose squares underflow in float32, in rows of norm at most 1.
_UNDERFLOW = np.float32(1e-18)
# The largest magnitude of a code.
LARGEST_CODE = np.float32(127.0)
# If products are added in int16, the positive codes of a query that are added together have at most
# this sum, and so have the magnitudes of its negative codes.
_LARGEST_INT16_SUM = 128
# The number of rows whose panels are formed together. The offsets of these rows differ little, and
# their buffer of 1 kB per column stays in the second-level cache.
CHUNK = 8 * PANEL
# An exclusive or with this constant adds 128 to the four signed codes of a word.
_TO_UNSIGNED = np.int32(-0x7F7F7F80)


@kernel
def padded_width(depth):
    """Return the number of columns of a row that is padded to whole vectors."""
    return (depth + LANES - 1) // LANES * LANES


@borrowing_kernel
def load_row(rows, row, factor, coefficient, shift, out):
    """Set out[j] to factor rows[row, j] - coefficient shift[j], rounded once, and zeros from d on.

    rows (n, d) of one- or two-byte numbers are passed as bits (see pair_scores). shift (d,) is
    float64 and is subtracted in float64; shift is empty if there is none. out (>= d,) is float32.
    """
    flat, depth = rows.reshape(-1), rows.shape[1]
    if shift.shape[0] > 0:
        load_elements(flat, row * depth, factor, coefficient, shift, out, depth)
    else:
        load_elements(flat, row * depth, factor, coefficient, (), out, depth)
    out[depth:] = np.float32(0.0)


@kernel
def shift_products(lo, hi, rows, factors, shift, products):
    """Write <shift, factors[i] rows[i] - shift> to products (n,) float64, for rows lo to hi."""
    flat, depth = rows.reshape(-1), rows.shape[1]
    square = product(shift, 0, shift, 0, depth)
    for i in range(lo, hi):
        products[i] = factors[i] * product(flat, i * depth, shift, 0, depth) - square


@kernel
def step_of(largest, largest_code):
    """Return the quantisation step for magnitudes up to `largest`, or 1 if `largest` is 0."""
    return largest / largest_code if largest > np.float32(1e-30) else np.float32(1.0)


@borrowing_kernel
def query_scale(isa, x, largest):
    """Return the quantisation step of a query x (16 m,), whose largest magnitude is `largest`.

    Codes are at most 127. AVX2 multiplies the codes of the query by the codes + 128 of an item,
    which lie in 1 .. 255, and adds the products of a group of 2 int16_words codes in int16. Every
    partial sum lies between -255 N and 255 P, where P and -N are the sums of the positive and of
    the negative codes of the query in the group. The sums fit in int16 if N and P are at most 128,
    because 255 * 128 < 2^15. Rounding changes N or P by at most one half for every code, so before
    rounding N and P may be 128 - int16_words. The step that is returned is finer than a step with
    which every code is at most 128 / int16_words / 2, because the codes of a group are seldom large
    together.
    """
    scale = step_of(largest, LARGEST_CODE)
    if int16_words(isa) > 0:
        largest_sum = np.float32(_LARGEST_INT16_SUM - int16_words(isa))
        scale = max(scale, step_of(largest_group_sum(isa, x), largest_sum))
    return scale


@kernel
def above(squares):
    """Return an upper bound of the square root of a float32 sum of squares."""
    return np.sqrt(squares) * _ROUND_UP + _UNDERFLOW


@kernel
def prepare_item_panels(lo, hi, layout, rows, offsets, panels):
    """Pack chunks lo to hi of 8 panels of items, with statistics for the bound of each panel.

    layout is a PanelLayout, rows a ScaledRows (m, d), and offsets (m,) is float64. panels is an
    ItemPanels. panels.order, the row of each slot, is an input and is changed: the rows of a chunk
    are sorted by their largest entries, because a panel has the quantisation step of its largest
    entry. The other arrays of panels are outputs. The kernel allocates 1 kB per column.
    """
    width = max(rows.rows.shape[1], LANES)
    buffer = np.empty((CHUNK, padded_width(width)), np.float32)
    codes, measured = np.empty(padded_width(width), np.int8), np.empty(2, np.float32)
    largest, squares = np.empty(CHUNK), np.empty(CHUNK, np.float32)
    places, numbers = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.int64)
    for chunk in range(lo, hi):
        _pack_chunk(
            chunk, layout, rows, offsets, panels, buffer, codes, measured, largest, squares, places,
            numbers,
        )  # fmt: skip


@borrowing_kernel
def _pack_chunk(
    chunk, layout, scaled, offsets, panels, buffer, codes, measured, largest, squares, places,
    numbers,
):  # fmt: skip
    isa, words, signs = layout.isa, layout.words, layout.signs
    rows, shift = scaled.rows, scaled.shift
    factors, coefficients = scaled.factors, scaled.coefficients
    order, small_offsets = panels.order, panels.small_offsets
    packed, statistics = panels.packed, panels.statistics
    width = max(rows.shape[1], LANES)
    first, last = chunk * CHUNK, min((chunk + 1) * CHUNK, order.shape[0])
    flat, depth, third = rows.reshape(-1), rows.shape[1], rows.shape[1] // 3 + 1
    for i in range(last - first):
        row = np.int64(order[first + i])
        next_start = order[min(first + i + 1, order.shape[0] - 1)] * depth
        # The next row is prefetched in thirds, between the steps, because a prefetch of more cache
        # lines at once would make some of them wait for the others.
        prefetch_row(flat, next_start, third)
        load_row(rows, row, factors[row], coefficients[row], shift, buffer[i])
        prefetch_row(flat, next_start + third, third)
        if has_codes(isa):
            rotate_row(buffer[i], width, signs)
        prefetch_row(flat, next_start + 2 * third, third)
        measure_row(buffer[i], measured)
        largest[i], squares[i] = measured[0], measured[1]
        places[i], numbers[i] = i, order[first + i]
    if has_codes(isa):
        sort_best_first(largest, places, last - first)
    for i in range(last - first):
        order[first + i] = numbers[places[i]]
        if small_offsets.shape[0] > 0:
            small_offsets[first + i] = offsets[numbers[places[i]]]
    for p in range(first // PANEL, (last + PANEL - 1) // PANEL):
        start, count = p * PANEL - first, min(PANEL, last - p * PANEL)
        scale, residual, norm = np.float32(1.0), np.float32(0.0), np.float32(0.0)
        if has_codes(isa):
            scale = step_of(np.float32(largest[start]), LARGEST_CODE)
        inverse = np.float32(1.0) / scale
        target = packed[p * PANEL * words : (p + 1) * PANEL * words]
        target[:] = zero_word(isa)
        for i in range(count):
            row = buffer[places[start + i]]
            norm = max(norm, above(squares[places[start + i]]))
            if has_codes(isa):
                quantise_row(row, scale, inverse, codes, measured)
                residual = max(residual, above(measured[0]))
                place_item(isa, codes.view(np.int32), i, words, target)
            else:
                for k in range(words):
                    target[i * words + k] = row[k]
        has_offsets = small_offsets.shape[0] > 0
        max_offset = min_offset = small_offsets[p * PANEL] if has_offsets else np.float32(0.0)
        for position in range(p * PANEL, p * PANEL + (count if has_offsets else 0)):
            max_offset, min_offset = (
                max(max_offset, small_offsets[position]),
                min(min_offset, small_offsets[position]),
            )
        statistics[p, 0], statistics[p, 1], statistics[p, 2] = inverse, norm, residual
        statistics[p, 3] = max_offset + abs(max_offset) * SLACK
        statistics[p, 4] = min_offset - abs(min_offset) * SLACK


@borrowing_kernel
def load_item(scaled, order, slot, out):
    """Load the row in a slot as load_row does, and prefetch the row in the next slot."""
    rows, depth = scaled.rows, scaled.rows.shape[1]
    ahead = order[min(slot + 1, order.shape[0] - 1)]
    prefetch_row(rows.reshape(-1), ahead * depth, depth)
    row = np.int64(order[slot])
    load_row(rows, row, scaled.factors[row], scaled.coefficients[row], scaled.shift, out)


@kernel
def zero_word(isa):
    """Return the word of an item's codes for four zeros; as padding, it adds 0 to a score."""
    return _TO_UNSIGNED if has_codes(isa) and not has_tile_registers(isa) else np.int32(0)


@borrowing_kernel
def place_item(isa, codes, item, words, target):
    """Write the words of an item's codes to its panel, followed by codes of zero."""
    amx, flip = has_tile_registers(isa), zero_word(isa)
    for k in range(words):
        at = (k >> 4) * 16 * PANEL + item * 16 + (k & 15)
        if not amx:
            at = (item // GROUP * words + k) * GROUP + item % GROUP
        target[at] = (codes[k] if k < codes.shape[0] else np.int32(0)) ^ flip


@borrowing_kernel
def place_query(isa, codes, query, words, target):
    """Write the words of a query's codes to its panel, followed by codes of zero."""
    amx = has_tile_registers(isa)
    for k in range(words):
        at = (k >> 4) * 16 * PANEL + (query >> 4) * 256 + (k & 15) * 16 + (query & 15)
        if not amx:
            at = k * PANEL + query
        target[at] = codes[k] if k < codes.shape[0] else np.int32(0)


@borrowing_kernel
def encode_query(isa, rows, row, factor, coefficient, shift, signs, buffer, codes, measured):
    """Encode one row as a query: scale, shift, rotate and quantise it, as items were when packed.

    The kernel returns the quantisation step, bounds on the norms of the encoded row and of its
    residual, and -128 times the sum of its codes. The codes are written to codes
    (padded_width(max(d, 16)),) int8. buffer, which has the same length, holds the row before
    quantisation afterwards; measured (2,) is overwritten. If the instruction set has no codes, the
    row is not quantised, so the step is 1 and the residual 0.
    """
    width = max(rows.shape[1], LANES)
    load_row(rows, row, factor, coefficient, shift, buffer)
    if has_codes(isa):
        rotate_row(buffer, width, signs)
    measure_row(buffer, measured)
    norm = above(measured[1])
    if not has_codes(isa):
        return np.float32(1.0), norm, np.float32(0.0), np.int32(0)
    scale = query_scale(isa, buffer, measured[0])
    total = quantise_row(buffer, scale, np.float32(1.0) / scale, codes, measured)
    return scale, norm, above(measured[0]), np.int32(-128) * total


@borrowing_kernel
def pack_query(
    isa, rows, row, factor, coefficient, shift, signs, words, query, target, buffer, codes, measured
):
    """Encode one row as a query (0 .. 31) of a panel; return the results of encode_query."""
    scale, norm, residual, start = encode_query(
        isa, rows, row, factor, coefficient, shift, signs, buffer, codes, measured
    )
    if has_codes(isa):
        place_query(isa, codes.view(np.int32), query, words, target)
        return scale, norm, residual, start
    for k in range(words):
        target[k * PANEL + query] = buffer[k]
    return scale, norm, residual, start

"""Packing of rows for the tiles: rows are scaled, rotated, quantised to int8 and put in panels.

A row x is quantised as x = s q + e. Here s is the quantisation step, q holds the codes, which are
integers of at most 127 in magnitude, and e is the residual. The step s and the norms |x| and |e|
are measured on the rotated float32 row, and |s q| is at most |x| + |e|. For up to 65,000 columns,
rotation and rounding to float32 change an inner product by at most 2^-17.8 |x||y|. The bound
2^-17.8 is the sum of the rounding errors of the two rows. The rounding error of a row has three
causes: the rounding when the row is loaded, two transforms with at most 15 passes of butterflies
each, and two further roundings. SLACK is more than three times as large as 2^-17.8.

The rotation is random and orthogonal, so inner products do not change. If one coordinate of a row
is much larger than the others, the rotation distributes this coordinate over the row. The largest
entry and the quantisation step then become smaller. For rows of the Magic: The Gathering decks, the
rotation reduces the norm of the quantisation error from 0.020 to 0.011. The rotation multiplies the
coordinates by random signs and applies the fast Hadamard transform, in vectors of 16 float32
numbers (``simd.hadamard``). Let m be the largest power of two that is at most d. A transform covers
m coordinates. If d is not a power of two, the row is transformed twice: one transform covers the
first m coordinates of the row, and a second transform covers the last m coordinates. The two
transforms overlap, so no padding is needed. Rows of fewer than 16 coordinates are padded to 16.

Rotating a row of 768 columns takes 0.2 us on one thread; with plain loops, it would take 1.9 us.
"""

import numpy as np

from .jit import borrowing_kernel, inlined_kernel, kernel
from .records import float64_row
from .select import sort_best_first
from .simd.hadamard import LANES, mix_lanes, mix_vectors
from .simd.instruction_sets import has_codes, has_tile_registers, least_words_by_item
from .simd.memory import prefetch_row
from .simd.panel import (
    GROUP,
    INVERSE_STEP,
    MAX_NORM,
    MAX_OFFSET,
    MAX_RESIDUAL,
    MIN_OFFSET,
    PANEL,
)
from .simd.quantise import measure_row, quantise_row
from .simd.row_products import row_product, scale_row

# A bound on the rounding errors of an inner product of rows x and y, relative to |x||y|. SLACK
# covers the rotation of both rows, their rounding to float32, the rounding of thresholds, of
# ``candidate_filter.product_below`` and of float64 products, and the rounding of products of codes
# to float32 if rows have more than 1,024 columns.
SLACK = np.float32(2.0**-16)
# The norm of a row of up to 65,000 columns is computed in float32 by 16 partial sums. The norm is
# multiplied by this factor, so that it is an upper bound in spite of rounding errors.
_ROUND_UP = np.float32(1.0 + 2.0**-12)
# In a row with a norm of at most 1, the squares of some entries may underflow in float32. This
# number bounds the norm of these entries.
_UNDERFLOW = np.float32(1e-18)
# The largest magnitude of a code.
LARGEST_CODE = np.float32(127.0)
# The number of rows that are sorted and divided into panels together. The offsets of the rows of
# one chunk differ little. The buffer of these rows takes 1 kB per column and stays in the
# second-level cache.
CHUNK = 8 * PANEL
# XOR with this constant adds 128 to each of the four signed codes of a word.
_TO_UNSIGNED = np.int32(-0x7F7F7F80)
# A tuple of two zeros and a tuple of four zeros. The length of the tuple tells ``mix_vectors`` how
# many vectors to transform.
_TWO_VECTORS, _FOUR_VECTORS = (0, 0), (0, 0, 0, 0)


@kernel
def padded_width(depth):
    """Return the number of columns to which a row of `depth` columns is padded."""
    return (depth + LANES - 1) // LANES * LANES


@borrowing_kernel
def load_row(rows, row, factor, coefficient, shift, out):
    """Set out[j] to factor * x[j] - coefficient * shift[j] for row x, or to 0 for j from d on.

    `rows` is a Rows (n, d). `shift` (d,) is float64, or empty if nothing is subtracted. The entries
    are computed in float64, and are rounded once when they are written to `out` (>= d,) float32.
    """
    scale_row(rows, row, factor, coefficient, shift, out)
    out[rows.n_columns :] = np.float32(0.0)


@borrowing_kernel
def _transform(x, first, size):
    """Complete the Hadamard transform of x[first : first + size].

    Each vector of 16 numbers in x[first : first + size] must already be transformed, and `size`
    must be 16 times a power of two.
    """
    step = LANES
    end = first + size
    while 4 * step <= size:
        for start in range(first, end, 4 * step):
            for at in range(start, start + step, LANES):
                mix_vectors(x, at, step, _FOUR_VECTORS)
        step *= 4
    if 2 * step <= size:
        for at in range(first, first + step, LANES):
            mix_vectors(x, at, step, _TWO_VECTORS)


@borrowing_kernel
def rotate_row(x, width, signs):
    """Rotate x[:width] in place in O(width log width) time; `width` must be at least 16.

    `signs` (2, width) float32 holds the random signs, +1 or -1, of the two transforms.
    """
    size = LANES
    while 2 * size <= width:
        size *= 2
    scale = np.float32(1.0 / np.sqrt(np.float64(size)))
    mix_lanes(x, 0, signs[0], size // LANES, scale)
    _transform(x, 0, size)
    if size < width:
        mix_lanes(x, width - size, signs[1], size // LANES, scale)
        _transform(x, width - size, size)


@kernel
def shift_products(lo, hi, rows, factors, shift, products):
    """Set products[i] to the inner product of shift with the row factors[i] * rows[i] - shift.

    The kernel processes the rows i from lo to hi. `rows` is a Rows (n, d), and `products` (n,) is
    float64.
    """
    shifts = float64_row(shift)
    square = row_product(shifts, 0, shifts, 0)
    for i in range(lo, hi):
        products[i] = factors[i] * row_product(shifts, 0, rows, i) - square


@kernel
def quantisation_step(largest, largest_code):
    """Return the quantisation step that turns the number `largest` into the code largest_code.

    If `largest` is at most 1e-30, the step is 1.
    """
    return largest / largest_code if largest > np.float32(1e-30) else np.float32(1.0)


@kernel
def norm_above(squares):
    """Return an upper bound on a row's norm, where `squares` is the float32 sum of its squares."""
    return np.sqrt(squares) * _ROUND_UP + _UNDERFLOW


@kernel
def prepare_item_panels(lo, hi, layout, rows, offsets, panels):
    """Pack the items of chunks lo to hi, and measure the statistics of each panel.

    A chunk consists of 8 panels. `layout` is a PanelLayout, `rows` is a ScaledRows (m, d), and
    `offsets` (m,) is float64. `panels` is an ItemPanels. The array `row_of_slot` of `panels` holds
    the number of the row in each slot. The kernel changes `row_of_slot` in place: it sorts the rows
    of a chunk by their largest entries. The rows are sorted because the largest entry of a panel
    determines the quantisation step of all rows of the panel. All arrays of `panels` except
    `row_of_slot` are outputs. The kernel allocates 1 kB per column.
    """
    width = max(rows.rows.n_columns, LANES)
    buffer = np.empty((CHUNK, padded_width(width)), np.float32)
    codes, measured = np.empty(padded_width(width), np.int8), np.empty(2, np.float32)
    largest, squares = np.empty(CHUNK), np.empty(CHUNK, np.float32)
    positions, row_numbers = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.int64)
    for chunk in range(lo, hi):
        _pack_chunk(
            chunk, layout, rows, offsets, panels, buffer, codes, measured, largest, squares,
            positions, row_numbers,
        )  # fmt: skip


@borrowing_kernel
def _pack_chunk(
    chunk, layout, scaled, offsets, panels, buffer, codes, measured, largest, squares, positions,
    row_numbers,
):  # fmt: skip
    """Pack one chunk for prepare_item_panels; overwrite the arguments from `buffer` to the last."""
    isa, words, signs = layout.isa, layout.words, layout.signs
    rows, shift = scaled.rows, scaled.shift
    factors, coefficients = scaled.factors, scaled.coefficients
    row_of_slot, small_offsets = panels.row_of_slot, panels.small_offsets
    packed, statistics = panels.packed, panels.statistics
    width = max(rows.n_columns, LANES)
    first, last = chunk * CHUNK, min((chunk + 1) * CHUNK, row_of_slot.shape[0])
    data, size = rows.data.reshape(-1), rows.data.shape[1]
    third = size // 3 + 1
    for i in range(last - first):
        row = np.int64(row_of_slot[first + i])
        next_start = row_of_slot[min(first + i + 1, row_of_slot.shape[0] - 1)] * size
        # Each row is processed in three steps, and a third of the next row is prefetched before
        # each step. The next row is not prefetched all in one go, because the CPU can wait for only
        # a limited number of cache lines at the same time.
        prefetch_row(data, next_start, third)
        load_row(rows, row, factors[row], coefficients[row], shift, buffer[i])
        prefetch_row(data, next_start + third, third)
        if has_codes(isa):
            rotate_row(buffer[i], width, signs)
        prefetch_row(data, next_start + 2 * third, third)
        measure_row(buffer[i], measured)
        largest[i], squares[i] = measured[0], measured[1]
        positions[i], row_numbers[i] = i, row_of_slot[first + i]
    if has_codes(isa):
        sort_best_first(largest, positions, last - first)
    for i in range(last - first):
        row_of_slot[first + i] = row_numbers[positions[i]]
        if small_offsets.shape[0] > 0:
            small_offsets[first + i] = offsets[row_numbers[positions[i]]]
    for p in range(first // PANEL, (last + PANEL - 1) // PANEL):
        start, count = p * PANEL - first, min(PANEL, last - p * PANEL)
        step, residual, norm = np.float32(1.0), np.float32(0.0), np.float32(0.0)
        if has_codes(isa):
            step = quantisation_step(np.float32(largest[start]), LARGEST_CODE)
        inverse_step = np.float32(1.0) / step
        panel = packed[p * PANEL * words : (p + 1) * PANEL * words]
        panel[:] = zero_word(isa)
        for i in range(count):
            row = buffer[positions[start + i]]
            norm = max(norm, norm_above(squares[positions[start + i]]))
            if has_codes(isa):
                quantise_row(row, step, inverse_step, codes, measured)
                residual = max(residual, norm_above(measured[0]))
                place_item(
                    isa, codes.view(np.int32), i, words, is_by_item(isa, words, False), panel
                )
            else:
                for k in range(words):
                    panel[i * words + k] = row[k]
        has_offsets = small_offsets.shape[0] > 0
        max_offset = min_offset = small_offsets[p * PANEL] if has_offsets else np.float32(0.0)
        for slot in range(p * PANEL, p * PANEL + (count if has_offsets else 0)):
            max_offset, min_offset = (
                max(max_offset, small_offsets[slot]),
                min(min_offset, small_offsets[slot]),
            )
        statistics[p, INVERSE_STEP] = inverse_step
        statistics[p, MAX_NORM], statistics[p, MAX_RESIDUAL] = norm, residual
        statistics[p, MAX_OFFSET] = max_offset + abs(max_offset) * SLACK
        statistics[p, MIN_OFFSET] = min_offset - abs(min_offset) * SLACK


@borrowing_kernel
def load_item(scaled, row_of_slot, slot, out):
    """Load the row in a slot as load_row does, and prefetch the row in the next slot."""
    rows, size = scaled.rows, scaled.rows.data.shape[1]
    next_row = row_of_slot[min(slot + 1, row_of_slot.shape[0] - 1)]
    prefetch_row(rows.data.reshape(-1), next_row * size, size)
    row = np.int64(row_of_slot[slot])
    load_row(rows, row, scaled.factors[row], scaled.coefficients[row], scaled.shift, out)


@kernel
def zero_word(isa):
    """Return a word with four item codes of 0, which add 0 to every score.

    With instruction sets other than AMX, 128 is added to the codes of items, so each of the four
    bytes of the word is 128.
    """
    return _TO_UNSIGNED if has_codes(isa) and not has_tile_registers(isa) else np.int32(0)


@inlined_kernel
def is_by_item(isa, words, has_projection):
    """Return whether the full codes of items are laid out by item (``simd.panel``).

    `words` is the number of words of a packed row. With AMX, full codes are never laid out by item,
    and callers ignore the result if it is true.
    """
    return has_projection or words >= least_words_by_item(isa)


@borrowing_kernel
def place_item(isa, codes, item, words, by_item, panel):
    """Write the codes of one item, padded with zero codes, to a panel of 32 items.

    `codes` holds the words of the codes, and `words` is the number of words of a packed row.
    `by_item` says whether the panel is laid out by item (``simd.panel``).
    """
    amx, flip = has_tile_registers(isa), zero_word(isa)
    for k in range(words):
        at = (k >> 4) * 16 * PANEL + item * 16 + (k & 15)
        if not amx:
            at = (item // GROUP * words + k) * GROUP + item % GROUP
        if by_item:
            at = item * words + k
        panel[at] = (codes[k] if k < codes.shape[0] else np.int32(0)) ^ flip

"""Projected codes, which are the quantised coordinates of rows along p axes.

The remainder of a row is the row minus its projection on the axes. ``projection_filter`` derives a
bound on scores from projected codes and norms of remainders. Rows are multiplied by the axes in
float32, in tiles of 32 rows and 32 axes. The coordinates are quantised without a further rotation,
because the axes were rotated at random when they were computed.
"""

from typing import Any, NamedTuple

import numpy as np

from .jit import borrowing_kernel, kernel
from .packing import (
    LARGEST_CODE,
    SLACK,
    load_item,
    load_row,
    norm_above,
    padded_width,
    place_item,
    quantisation_step,
    zero_word,
)
from .query_encoding import place_query, query_step
from .simd.instruction_sets import has_tile_registers, int16_words
from .simd.panel import (
    CODE_NORM,
    GROUP,
    INVERSE_STEP,
    MAX_NORM,
    MAX_OFFSET,
    MAX_RESIDUAL,
    MIN_OFFSET,
    N_PROJECTED_TERMS,
    OFFSET_WEIGHT,
    PANEL,
    REMAINDER_NORM,
    RESIDUAL_NORM,
    STEP_RATIO,
)
from .simd.quantise import measure_row, quantise_row
from .simd.tile_scores import multiply_floats
from .tiles import aligned_empty


class ProjectedQueries(NamedTuple):
    """The projected codes of a block of queries.

    Attributes
    ----------
    packed, corrections : as in Block
        The packed projected codes and their corrections. In Block, the fields `packed` and
        `corrections` hold the packed full codes and their corrections.
    bound_terms : float32 array (panels, 5, 32)
        The bound terms of the projected codes. Module ``simd.panel`` describes the five rows of
        each panel of bound terms.
    codes : int32 array (32 panels words,)
        The full codes of the queries, one query after the other.
    tile_counts, hit_counts : int64 array (panels,)
        For each panel of queries, the number of tiles that were compared by projected codes, and
        the number of hits in these tiles.
    uses_full_codes : uint8 array (panels,)
        A flag for each panel of queries. The flag is 1 if only the full codes are multiplied, and 0
        if the projected codes are multiplied first.
    min_products : float32 array (32,)
        For each query, a number that limits the candidates: an item whose tile score is below this
        number cannot reach the threshold of the query.
    """

    packed: Any
    bound_terms: Any
    corrections: Any
    codes: Any
    tile_counts: Any
    hit_counts: Any
    uses_full_codes: Any
    min_products: Any


# Queries are projected only if the share of their squared norms along the axes is at least
# _MIN_SHARE times the corresponding share of the items. Both shares are estimated from 32 axes,
# with relative errors of up to 25 %.
_MIN_SHARE = np.float32(0.5)
# The number of columns that are summed in one run. The rounding error grows with the length of a
# run and with the number of runs.
RUN = 128


@borrowing_kernel
def _project(isa, rows, count, axes, tile, coordinates):
    """Write the coordinates of rows[i] along the axes to coordinates[i], for each i below count.

    `rows` (32, >= d) and `coordinates` (32, >= p) are float32. `tile` (1024,) float32 is
    overwritten.
    """
    flat, flat_axes, depth = rows.reshape(-1), axes.reshape(-1), axes.shape[1]
    for part in range(axes.shape[0]):
        for first in range(0, depth, RUN):
            multiply_floats(
                isa, flat, first, rows.shape[1], count, flat_axes, (part * depth + first) * PANEL,
                min(RUN, depth - first), tile,
            )  # fmt: skip
            for i in range(count):
                for j in range(PANEL):
                    axis = part * PANEL + j
                    before = coordinates[i, axis] if first > 0 else np.float32(0.0)
                    coordinates[i, axis] = before + tile[i * PANEL + j]


@borrowing_kernel
def _remainder_norm(squares, squares_along_axes, eta):
    """Return an upper bound on the norm of a row's remainder.

    `squares` and `squares_along_axes` are the squared norms of the row and of its projection, and
    `eta` is the bound ETA of ``projection_filter``.
    """
    difference = squares - squares_along_axes + eta * squares
    return norm_above(max(difference, np.float32(0.0)))


@kernel
def prepare_projected_panels(lo, hi, layout, rows, panels, axes, eta, projected):
    """Project panels lo to hi of packed items on axes, and pack their coordinates.

    `layout` is the PanelLayout of the projected codes, `rows` is a ScaledRows, and `panels` is the
    ItemPanels that prepare_item_panels has written; `axes` and `eta` are described in Projection.
    The result is written to `projected`, which is a ProjectedPanels. The kernel allocates 128 bytes
    per column.
    """
    width, p = padded_width(rows.rows.n_columns), axes.shape[0] * PANEL
    buffer, coordinates = np.empty((PANEL, width), np.float32), np.empty((PANEL, p), np.float32)
    codes, tile = np.empty(p, np.int8), np.empty(PANEL * PANEL, np.float32)
    measured = np.empty(2, np.float32)
    buffer[:], coordinates[:] = np.float32(0.0), np.float32(0.0)
    for panel in range(lo, hi):
        _project_items(
            panel, layout, rows, panels.row_of_slot, axes, eta[0], projected, buffer, coordinates,
            codes, tile, measured,
        )  # fmt: skip
        # Projected codes have their own quantisation step and residuals. The other statistics of a
        # panel, its largest norm and its extreme offsets, are copied from the statistics of the
        # full codes.
        projected.statistics[panel, MAX_NORM] = panels.statistics[panel, MAX_NORM]
        projected.statistics[panel, MAX_OFFSET] = panels.statistics[panel, MAX_OFFSET]
        projected.statistics[panel, MIN_OFFSET] = panels.statistics[panel, MIN_OFFSET]


@borrowing_kernel
def _project_items(
    panel, layout, rows, row_of_slot, axes, eta, projected, buffer, coordinates, codes, tile,
    measured,
):  # fmt: skip
    """Project one panel of items; overwrite `buffer` and all arguments after it."""
    isa, words, remainder_norms = layout.isa, layout.words, projected.remainder_norms
    first, count = panel * PANEL, min(PANEL, row_of_slot.shape[0] - panel * PANEL)
    for i in range(count):
        load_item(rows, row_of_slot, first + i, buffer[i])
    _project(isa, buffer, count, axes, tile, coordinates)
    largest, residual = np.float32(0.0), np.float32(0.0)
    remainder_norms[first : first + PANEL] = np.float32(0.0)
    for i in range(count):
        measure_row(buffer[i], measured)
        squares = measured[1]
        measure_row(coordinates[i], measured)
        largest = max(largest, measured[0])
        remainder_norms[first + i] = _remainder_norm(squares, measured[1], eta)
    step = quantisation_step(largest, LARGEST_CODE)
    inverse_step = np.float32(1.0) / step
    packed_panel = projected.packed[panel * PANEL * words : (panel + 1) * PANEL * words]
    packed_panel[:] = zero_word(isa)
    for i in range(count):
        quantise_row(coordinates[i], step, inverse_step, codes, measured)
        residual = max(residual, norm_above(measured[0]))
        place_item(isa, codes.view(np.int32), i, words, False, packed_panel)
    projected.statistics[panel, INVERSE_STEP] = inverse_step
    projected.statistics[panel, MAX_RESIDUAL] = residual


@kernel
def arrange_by_item(lo, hi, words, by_group, by_item):
    """Copy panels lo to hi from by_group (laid out by groups) to by_item (laid out by item).

    The layouts are described in ``simd.panel``. `by_group` and `by_item` are flat arrays of panels.
    Each row of a panel has `words` words.
    """
    for group in range(lo * (PANEL // GROUP), hi * (PANEL // GROUP)):
        first = group * GROUP * words
        for word in range(words):
            for item in range(GROUP):
                by_item[first + item * words + word] = by_group[first + word * GROUP + item]


@kernel
def empty_projected_queries(n_panels, items):
    """Return a ProjectedQueries without projected codes; all panels use their full codes."""
    words, like = items.projection.words, np.empty(0, np.float32)
    packed = aligned_empty(n_panels * PANEL * words, items.projection.packed)
    packed[:] = 0
    bound_terms = aligned_empty(n_panels * N_PROJECTED_TERMS * PANEL, like).reshape(
        n_panels, N_PROJECTED_TERMS, PANEL
    )
    bound_terms[:] = np.float32(0.0)
    bound_terms[:, STEP_RATIO] = np.float32(1.0)
    corrections = np.empty(n_panels * PANEL, np.int32)
    tile_counts, hit_counts = np.empty(n_panels, np.int64), np.empty(n_panels, np.int64)
    uses_full_codes = np.empty(n_panels, np.uint8)
    corrections[:], tile_counts[:], hit_counts[:], uses_full_codes[:] = 0, 0, 0, 1
    return ProjectedQueries(
        packed, bound_terms, corrections,
        aligned_empty(n_panels * PANEL * items.words, np.empty(0, np.int32)), tile_counts,
        hit_counts, uses_full_codes, np.empty(PANEL, np.float32),
    )  # fmt: skip


@kernel
def pack_projected_queries(lo, hi, batch, queries, items, n_projected, packed, bound_terms, steps):
    """Project the first `n_projected` panels of a block of queries; return a ProjectedQueries.

    The block consists of the queries batch[lo:hi]. The arguments `packed`, `bound_terms` and
    `steps` belong to the Block of these queries. If the items have no projection, no panel is
    projected.
    """
    n_panels = bound_terms.shape[0] if items.projection.words > 0 else 0
    projected = empty_projected_queries(n_panels, items)
    project_queries(
        0, min(n_projected, n_panels), lo, hi, batch, queries, items, packed, bound_terms, steps,
        projected,
    )  # fmt: skip
    return projected


@kernel
def project_queries(
    first, last, lo, hi, batch, queries, items, packed, bound_terms, steps, projected
):
    """Project panels `first` to `last` of the queries batch[lo:hi]; write them to `projected`."""
    for panel in range(first, last):
        start = panel * PANEL
        count = min(PANEL, hi - lo - start)
        for i in range(count):
            copy_codes(
                items.isa, packed, start * items.words, i, items.words, projected.codes, start + i
            )
        project_panel(
            panel, lo + start, count, batch, queries, items, bound_terms[panel], steps[panel],
            int16_words(items.isa), projected,
        )  # fmt: skip


@kernel
def project_panel(
    panel, first, count, batch, queries, items, bound_terms, steps, added_words, projected
):
    """Project the queries batch[first : first + count], and write them to a panel of `projected`.

    `bound_terms` (5, 32) and `steps` (32,) belong to the full codes of the queries. `added_words`
    is described in ``query_encoding.query_step``. Queries that are unlike the items have small
    components along the axes. If the components of a panel of queries are small, the panel is not
    projected, and its full codes are used. The axes have been rotated at random, so 32 axes are
    enough to estimate the norms of the projections on all axes. The kernel reads these 32 axes to
    recognise a panel of queries with small components. For 768 columns, all axes take 0.8 MB, so
    reading all axes would take a tenth of the time of a search. The kernel allocates 128 bytes per
    column.
    """
    isa, projection, scaling = items.isa, items.projection, queries.scaling
    width, p = padded_width(queries.rows.n_columns), projection.axes.shape[0] * PANEL
    buffer, coordinates = np.empty((PANEL, width), np.float32), np.empty((PANEL, p), np.float32)
    buffer[:], coordinates[:] = np.float32(0.0), np.float32(0.0)
    tile, row_codes = np.empty(PANEL * PANEL, np.float32), np.empty(p, np.int8)
    measured = np.empty(2, np.float32)
    for i in range(count):
        query = batch[first + i]
        load_row(
            queries.rows, query, scaling.factors[query], scaling.coefficients[query], items.shift,
            buffer[i],
        )  # fmt: skip
    _project(isa, buffer, count, projection.axes[:1], tile, coordinates)
    if _share_of_first(buffer, coordinates, count, p) < _MIN_SHARE * _share_along_axes(items):
        return
    _project(isa, buffer, count, projection.axes, tile, coordinates)
    projected_terms = projected.bound_terms[panel]
    for i in range(count):
        inverse_step = _pack_projected_query(
            isa, i, buffer[i], coordinates[i], projection.eta[0], projection.words, added_words,
            projected_terms, projected.corrections, panel * PANEL + i,
            projected.packed[panel * PANEL * projection.words :], row_codes, measured,
        )  # fmt: skip
        ratio = inverse_step * steps[i]
        projected_terms[STEP_RATIO, i] = ratio
        projected_terms[OFFSET_WEIGHT, i] = bound_terms[OFFSET_WEIGHT, i] * ratio
    projected.uses_full_codes[panel] = 0


@borrowing_kernel
def _pack_projected_query(
    isa, i, row, coordinates, eta, words, added_words, projected_terms, corrections, at, packed,
    codes, measured,
):  # fmt: skip
    """Pack the projected codes of query i of a panel; return the inverse of the quantisation step.

    The kernel writes the bound terms of the query, except for STEP_RATIO and OFFSET_WEIGHT, to
    projected_terms. It writes the correction of the query to corrections[at].
    """
    measure_row(row, measured)
    squares = measured[1]
    measure_row(coordinates, measured)
    squares_along_axes = measured[1]
    step = query_step(coordinates, measured[0], added_words)
    sum_of_codes = quantise_row(coordinates, step, np.float32(1.0) / step, codes, measured)
    place_query(isa, codes.view(np.int32), i, words, packed)
    residual, inverse_step = norm_above(measured[0]), np.float32(1.0) / step
    corrections[at] = np.int32(-128) * sum_of_codes
    projected_terms[REMAINDER_NORM, i] = (
        _remainder_norm(squares, squares_along_axes, eta) * inverse_step
    )
    projected_terms[RESIDUAL_NORM, i] = (
        residual + eta * residual + (SLACK + eta) * norm_above(squares)
    ) * inverse_step
    projected_terms[CODE_NORM, i] = (norm_above(squares_along_axes) + residual) * inverse_step
    return inverse_step


@borrowing_kernel
def _share_along_axes(items):
    """Estimate what share of the items' squared norms lies along the axes; return this share.

    The estimate is computed from the items of the middle panel.
    """
    panel = items.statistics.shape[0] // 2
    remainder_norms = items.projection.remainder_norms[panel * PANEL : (panel + 1) * PANEL]
    norm, squares = items.statistics[panel, MAX_NORM], np.float32(0.0)
    for remainder_norm in remainder_norms:
        squares += remainder_norm * remainder_norm
    return np.float32(1.0) - squares / max(np.float32(PANEL) * norm * norm, np.float32(1e-30))


@borrowing_kernel
def _share_of_first(rows, coordinates, count, p):
    """Estimate what share of the rows' squared norms lies along p axes; return this share.

    The estimate uses 32 axes: `coordinates` holds the coordinates of the first `count` rows along
    the first 32 axes.
    """
    whole, part = np.float32(0.0), np.float32(0.0)
    for i in range(count):
        for value in rows[i]:
            whole += value * value
        for value in coordinates[i, :PANEL]:
            part += value * value
    return part * np.float32(p // PANEL) / max(whole, np.float32(1e-30))


@borrowing_kernel
def copy_codes(isa, packed, start, i, words, codes, row):
    """Copy the words of one query from a panel to a row of codes, where they are contiguous.

    The panel begins at packed[start], and the query is number i of this panel. The words of the
    query are copied to row number `row` of the flat array `codes`.
    """
    for k in range(words):
        at = (k >> 4) * 16 * PANEL + (i >> 4) * 256 + (k & 15) * 16 + (i & 15)
        if not has_tile_registers(isa):
            at = k * PANEL + i
        codes[row * words + k] = np.int32(packed[start + at])

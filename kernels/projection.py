"""Projected codes: codes of the coordinates of rows along p axes, and lengths of the remainders.

The remainder of a row is the row minus its projection on the axes. ``projection_filter`` derives
the bound on scores that follows from projected codes. Rows are multiplied by the axes in float32,
in tiles of 32 rows and 32 axes, before the rows are rotated. To make up for this order, the axes
are rotated once.
"""

from typing import Any, NamedTuple

import numpy as np

from .jit import borrowing_kernel, kernel
from .packing import (
    LARGEST_CODE,
    SLACK,
    above,
    load_item,
    load_row,
    padded_width,
    place_item,
    place_query,
    query_scale,
    step_of,
    zero_word,
)
from .simd.instruction_sets import has_tile_registers
from .simd.panel import CODE_NORM, GROUP, OFFSET_WEIGHT, PANEL, RESIDUAL_NORM, REST_NORM, THRESHOLD
from .simd.quantise import measure_row, quantise_row
from .simd.tile_scores import multiply_floats
from .tiles import aligned_empty


class ProjectedQueries(NamedTuple):
    """Projected codes of a block of queries.

    Attributes
    ----------
    packed, starts
        The arrays of Block, for the projected codes.
    lanes : float32 array (panels, 5, 32)
        The terms of the queries that passing_by_projection reads.
    codes : int32 array (32 panels words,)
        The full codes of the queries, one query after the other.
    counts : int64 array (panels, 2)
        The number of tiles that were compared by projected codes, and the number of hits in them.
    is_dense : uint8 array (panels,)
        Whether the full codes of a panel are multiplied, instead of the projected codes.
    least : float32 array (32,)
        For each query, the smallest score of a tile that reaches its threshold.
    """

    packed: Any
    lanes: Any
    starts: Any
    codes: Any
    counts: Any
    is_dense: Any
    least: Any


# A query is projected if the share of its squared length that lies along the axes is at least this
# multiple of the corresponding share of the items. Estimates of the share from 32 axes are wrong by
# up to a quarter.
_LEAST_SHARE = np.float32(0.5)
# The number of columns that are summed in one run. The rounding error grows with the length of a
# run and with the number of runs.
RUN = 128


@borrowing_kernel
def _project(isa, rows, count, axes, tile, out):
    """Write the coordinates of rows[i] along the axes to out[i], for each i below count.

    rows (32, >= d) and out (32, >= p) are float32. tile (1024,) float32 is overwritten.
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
                    before = out[i, part * PANEL + j] if first > 0 else np.float32(0.0)
                    out[i, part * PANEL + j] = before + tile[i * PANEL + j]


@borrowing_kernel
def _rest_norm(squares, squares_along_axes, eta):
    """Return a bound on a remainder's length, from squared lengths of a row and its projection."""
    return above(max(squares - squares_along_axes + eta * squares, np.float32(0.0)))


@kernel
def prepare_projected_panels(lo, hi, layout, rows, panels, axes, eta, projected):
    """Project panels lo to hi of packed items on axes, and pack their coordinates.

    layout is the PanelLayout of the projected codes, rows a ScaledRows, and panels the ItemPanels
    that prepare_item_panels has written; axes and eta are described in Projection. The result is
    written to projected, a ProjectedPanels. The kernel allocates 128 bytes per column.
    """
    width, p = padded_width(rows.rows.shape[1]), axes.shape[0] * PANEL
    buffer, out = np.empty((PANEL, width), np.float32), np.empty((PANEL, p), np.float32)
    codes, tile = np.empty(p, np.int8), np.empty(PANEL * PANEL, np.float32)
    measured = np.empty(2, np.float32)
    buffer[:], out[:] = np.float32(0.0), np.float32(0.0)
    for panel in range(lo, hi):
        _project_panel(
            panel, layout, rows, panels.order, axes, eta[0], projected, buffer, out, codes, tile,
            measured,
        )  # fmt: skip
        for column in (1, 3, 4):
            projected.statistics[panel, column] = panels.statistics[panel, column]


@borrowing_kernel
def _project_panel(
    panel, layout, rows, order, axes, eta, projected, buffer, out, codes, tile, measured
):
    isa, words, rest_norms = layout.isa, layout.words, projected.rest_norms
    first, count = panel * PANEL, min(PANEL, order.shape[0] - panel * PANEL)
    for i in range(count):
        load_item(rows, order, first + i, buffer[i])
    _project(isa, buffer, count, axes, tile, out)
    largest, residual = np.float32(0.0), np.float32(0.0)
    rest_norms[first : first + PANEL] = np.float32(0.0)
    for i in range(count):
        measure_row(buffer[i], measured)
        squares = measured[1]
        measure_row(out[i], measured)
        largest = max(largest, measured[0])
        rest_norms[first + i] = _rest_norm(squares, measured[1], eta)
    scale = step_of(largest, LARGEST_CODE)
    inverse = np.float32(1.0) / scale
    target = projected.packed[panel * PANEL * words : (panel + 1) * PANEL * words]
    target[:] = zero_word(isa)
    for i in range(count):
        quantise_row(out[i], scale, inverse, codes, measured)
        residual = max(residual, above(measured[0]))
        place_item(isa, codes.view(np.int32), i, words, target)
    projected.statistics[panel, 0], projected.statistics[panel, 2] = inverse, residual


@kernel
def order_by_item(lo, hi, words, grouped, packed):
    """Copy panels lo to hi from grouped to packed, so that the words of each item lie together."""
    for group in range(lo * (PANEL // GROUP), hi * (PANEL // GROUP)):
        first = group * GROUP * words
        for word in range(words):
            for item in range(GROUP):
                packed[first + item * words + word] = grouped[first + word * GROUP + item]


@kernel
def empty_projected_queries(n_panels, items):
    """Return ProjectedQueries without queries, in which every panel is marked as dense."""
    words = items.projection.words
    packed = aligned_empty(n_panels * PANEL * words, items.projection.packed)
    packed[:] = 0
    lanes = aligned_empty(n_panels * 5 * PANEL, np.empty(0, np.float32)).reshape(n_panels, 5, PANEL)
    lanes[:] = np.float32(0.0)
    lanes[:, THRESHOLD] = np.float32(1.0)
    starts, counts = np.empty(n_panels * PANEL, np.int32), np.empty((n_panels, 2), np.int64)
    is_dense = np.empty(n_panels, np.uint8)
    starts[:], counts[:], is_dense[:] = 0, 0, 1
    return ProjectedQueries(
        packed, lanes, starts,
        aligned_empty(n_panels * PANEL * items.words, np.empty(0, np.int32)), counts, is_dense,
        np.empty(PANEL, np.float32),
    )  # fmt: skip


@kernel
def pack_projected_queries(lo, hi, batch, queries, items, k, all_codes, lanes, scales):
    """Project the queries batch[lo:hi], or only the first panel of them if k > 0.

    k is the number of neighbours of a query, or 0 in a search for all items above a score.
    all_codes, lanes and scales belong to a Block. Nothing is projected if the items have no
    projection, or if a projection would not make a search for k neighbours faster.
    """
    n_panels = lanes.shape[0] if items.projection.words > 0 else 0
    projected = empty_projected_queries(n_panels, items)
    if items.projection.words > 0 and projection_pays(items.isa, k, items.projection.largest_k):
        n_first = 1 if k > 0 else lanes.shape[0]
        project_queries(
            0, n_first, lo, hi, batch, queries, items, all_codes, lanes, scales, projected
        )
    return projected


@kernel
def project_queries(
    first, last, lo, hi, batch, queries, items, all_codes, lanes, scales, projected
):
    """Project panels first to last of the queries batch[lo:hi], and mark them as not dense."""
    for panel in range(first, last):
        start = panel * PANEL
        count = min(PANEL, hi - lo - start)
        for i in range(count):
            copy_codes(
                items.isa, all_codes, start * items.words, i, items.words, projected.codes,
                start + i,
            )  # fmt: skip
        project_panel(
            panel, lo + start, count, batch, queries, items, lanes[panel], scales[panel], projected
        )


@kernel
def project_panel(panel, first, count, batch, queries, items, lanes, scales, projected):
    """Project the panel of queries batch[first : first + count], and mark it as not dense.

    lanes (4, 32) and scales (32,) belong to these queries. Queries that are unlike the items have
    little of their length along the axes, and their panel stays dense. To recognise such queries,
    the kernel reads 32 axes and estimates the length along all axes, which works because the axes
    are rotated at random. Reading all axes of 768 columns, which take 0.8 MB, would take a tenth of
    the time of a search. The kernel allocates 128 bytes per column.
    """
    isa, projection, scaling = items.isa, items.projection, queries.scaling
    width, p = padded_width(queries.rows.shape[1]), projection.axes.shape[0] * PANEL
    buffer, out = np.empty((PANEL, width), np.float32), np.empty((PANEL, p), np.float32)
    buffer[:], out[:] = np.float32(0.0), np.float32(0.0)
    tile, small = np.empty(PANEL * PANEL, np.float32), np.empty(p, np.int8)
    measured = np.empty(2, np.float32)
    for i in range(count):
        query = batch[first + i]
        load_row(
            queries.rows, query, scaling.factors[query], scaling.coefficients[query], items.shift,
            buffer[i],
        )  # fmt: skip
    _project(isa, buffer, count, projection.axes[:1], tile, out)
    if _share_of_first(buffer, out, count, p) < _LEAST_SHARE * _share_along_axes(items):
        return
    _project(isa, buffer, count, projection.axes, tile, out)
    panel_lanes = projected.lanes[panel]
    for i in range(count):
        _pack_projected_query(
            isa, i, buffer[i], out[i], projection.eta[0], projection.words, panel_lanes,
            projected.starts, panel * PANEL + i,
            projected.packed[panel * PANEL * projection.words :], small, measured,
        )  # fmt: skip
        panel_lanes[THRESHOLD, i] *= scales[i]
        panel_lanes[OFFSET_WEIGHT, i] = lanes[OFFSET_WEIGHT, i] * panel_lanes[THRESHOLD, i]
    projected.is_dense[panel] = 0


@kernel
def projection_pays(isa, k, largest_k):
    """Return whether a projection makes searches with many queries for k neighbours faster.

    With AMX, it does not, because multiplying a tile takes less time than the other steps of a
    search. With a projection, searches with many queries then ran at 0.84 to 1.03 times the speed
    of searches without one (20,000 to 60,000 rows of 384 to 1,536 columns, Sapphire Rapids).
    """
    return not has_tile_registers(isa) and k <= largest_k[1]


@borrowing_kernel
def _pack_projected_query(isa, i, row, out, eta, words, lanes, starts, at, packed, codes, measured):
    """Pack query i of a panel; lanes[THRESHOLD, i] becomes 1 / (quantisation step)."""
    measure_row(row, measured)
    squares = measured[1]
    measure_row(out, measured)
    squares_along_axes = measured[1]
    scale = query_scale(isa, out, measured[0])
    total = quantise_row(out, scale, np.float32(1.0) / scale, codes, measured)
    place_query(isa, codes.view(np.int32), i, words, packed)
    residual, unit = above(measured[0]), np.float32(1.0) / scale
    starts[at], lanes[THRESHOLD, i] = np.int32(-128) * total, unit
    lanes[REST_NORM, i] = _rest_norm(squares, squares_along_axes, eta) * unit
    lanes[RESIDUAL_NORM, i] = (residual + eta * residual + (SLACK + eta) * above(squares)) * unit
    lanes[CODE_NORM, i] = (above(squares_along_axes) + residual) * unit


@borrowing_kernel
def _share_along_axes(items):
    """Estimate the share of the items' squared lengths along the axes, from the middle panel."""
    panel = items.statistics.shape[0] // 2
    rest_norms = items.projection.rest_norms[panel * PANEL : (panel + 1) * PANEL]
    norm, squares = items.statistics[panel, 1], np.float32(0.0)
    for rest in rest_norms:
        squares += rest * rest
    return np.float32(1.0) - squares / max(np.float32(PANEL) * norm * norm, np.float32(1e-30))


@borrowing_kernel
def _share_of_first(rows, out, count, p):
    """Estimate the share of the rows' squared lengths along p axes, from the first 32 axes."""
    whole, part = np.float32(0.0), np.float32(0.0)
    for i in range(count):
        for value in rows[i]:
            whole += value * value
        for value in out[i, :PANEL]:
            part += value * value
    return part * np.float32(p // PANEL) / max(whole, np.float32(1e-30))


@borrowing_kernel
def copy_codes(isa, panels, start, i, words, codes, row):
    """Copy the words of query i of the panel at panels[start] to row `row` of codes."""
    for k in range(words):
        at = (k >> 4) * 16 * PANEL + (i >> 4) * 256 + (k & 15) * 16 + (i & 15)
        if not has_tile_registers(isa):
            at = k * PANEL + i
        codes[row * words + k] = np.int32(panels[start + at])

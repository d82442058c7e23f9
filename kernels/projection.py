"""Prefixes: codes of the coordinates of rows along p axes, and the lengths of what is left.

The bound that they give is in ``projection_filter``. Rows are multiplied by the axes in float32, in
tiles of 32 rows x 32 axes, before they are rotated. The axes are rotated instead, once.
"""

from collections import namedtuple

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
    step_of,
    zero_word,
)
from .simd.instruction_sets import has_tile_registers, largest_query_code
from .simd.panel import CODED, GROUP, PANEL, RESIDUAL, REST, TAU, WEIGHT
from .simd.quantise import measure_row, quantise_row
from .simd.tile_scores import multiply_floats
from .tiles import aligned_empty, are_few

# of items, all empty and words 0 where there are none: axes (p / 32, d, 32) float32; packed, words
# and statistics as in Items; rests (32 panels,) float32: r of each item; eta (1,)
# float32: ETA; largest_k (2,) float32: up to which k few queries, and many, are searched by them
Prefixes = namedtuple("Prefixes", "axes packed words statistics rests eta largest_k")
# of queries: packed and starts as in Block; lanes (panels, 5, 32) as passing_by_prefix takes them;
# codes (32 panels words,) int32: all codes of a query, one behind the other; spread: those of the
# prefixes of few queries, as in Block; counts (panels, 2): tiles, and hits of prefixes in them;
# is_dense (panels,) uint8: whether all codes are multiplied; least (32,) float32: of a tile, the
# scores that reach tau
QueryPrefixes = namedtuple(
    "QueryPrefixes", "packed lanes starts codes spread counts is_dense least"
)
# a query must have this part of the share of its squared length along the axes that items have:
# estimates by 32 axes err by a quarter
_LEAST_SHARE = np.float32(0.5)
# columns that are summed in one run: rounding grows with a run's length, and with their number
RUN = 128


@borrowing_kernel
def _project(isa, rows, count, axes, tile, out):
    """out[i] = coordinates of rows[i] along the axes, for i below count.

    rows (32, >= d), out (32, >= p) float32; tile (1024,) float32 is overwritten.
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
def _length_of_rest(squares, of_prefix, eta):
    """Bound on the length of what is left of a row, from two sums of squares."""
    return above(max(squares - of_prefix + eta * squares, np.float32(0.0)))


@kernel
def prepare_prefix_panels(
    lo, hi, isa, rows, factors, coefficients, shift, order, axes, eta, words, of_panels, packed,
    statistics, rests,
):  # fmt: skip
    """Pack panels lo .. hi of the items' prefixes.

    rows to shift and order: as prepare_item_panels takes and leaves them; axes, eta, words: as in
    Prefixes; of_panels (panels, 5): statistics of all codes. Out: packed (32 panels words,) int32,
    statistics (panels, 5) and rests (32 panels,) float32. Allocates 128 bytes a column.
    """
    width, p = padded_width(rows.shape[1]), axes.shape[0] * PANEL
    buffer, out = np.empty((PANEL, width), np.float32), np.zeros((PANEL, p), np.float32)
    codes, tile = np.empty(p, np.int8), np.empty(PANEL * PANEL, np.float32)
    measured = np.empty(2, np.float32)
    buffer[:] = np.float32(0.0)
    for panel in range(lo, hi):
        _pack_prefixes(
            panel, isa, rows, factors, coefficients, shift, order, axes, eta[0], words,
            packed, statistics, rests, buffer, out, codes, tile, measured,
        )  # fmt: skip
        statistics[panel, 1] = of_panels[panel, 1]
        statistics[panel, 3], statistics[panel, 4] = of_panels[panel, 3], of_panels[panel, 4]


@borrowing_kernel
def _pack_prefixes(
    panel, isa, rows, factors, coefficients, shift, order, axes, eta, words, packed, statistics,
    rests, buffer, out, codes, tile, measured,
):  # fmt: skip
    first, count = panel * PANEL, min(PANEL, order.shape[0] - panel * PANEL)
    for i in range(count):
        load_item(rows, order, first + i, factors, coefficients, shift, buffer[i])
    _project(isa, buffer, count, axes, tile, out)
    largest, residual = np.float32(0.0), np.float32(0.0)
    rests[first : first + PANEL] = np.float32(0.0)
    for i in range(count):
        measure_row(buffer[i], measured)
        squares = measured[1]
        measure_row(out[i], measured)
        largest = max(largest, measured[0])
        rests[first + i] = _length_of_rest(squares, measured[1], eta)
    scale = step_of(largest, LARGEST_CODE)
    inverse = np.float32(1.0) / scale
    target = packed[panel * PANEL * words : (panel + 1) * PANEL * words]
    target[:] = zero_word(isa)
    for i in range(count):
        quantise_row(out[i], scale, inverse, codes, measured)
        residual = max(residual, above(measured[0]))
        place_item(isa, codes.view(np.int32), i, words, target)
    statistics[panel, 0], statistics[panel, 2] = inverse, residual


@kernel
def order_by_item(lo, hi, words, grouped, packed):
    """Bring the words of each item together, from grouped to packed, in panels lo .. hi."""
    for group in range(lo * (PANEL // GROUP), hi * (PANEL // GROUP)):
        first = group * GROUP * words
        for word in range(words):
            for item in range(GROUP):
                packed[first + item * words + word] = grouped[first + word * GROUP + item]


@kernel
def pack_query_prefixes(
    lo, hi, isa, batch, queries, items, k, all_codes, lanes, scales, all_starts
):  # fmt: skip
    """Prefixes of queries batch[lo:hi], those of the first panel alone where k > 0.

    k: neighbours of a query, 0 where scores bound what is found; all_codes, lanes, scales and
    all_starts: of Block. Panels whose queries have none are_dense; nothing if the items have none.
    """
    prefix, n_panels = items.prefix, lanes.shape[0]
    if prefix.words == 0:  # arrays of the types alone
        return QueryPrefixes(
            all_codes, lanes, all_starts, all_starts, all_codes, np.empty((0, 2), np.int64),
            np.empty(0, np.uint8), np.empty(0, np.float32),
        )  # fmt: skip
    packed = aligned_empty(n_panels * PANEL * prefix.words, all_codes)
    packed[:] = 0
    own = aligned_empty(n_panels * 5 * PANEL, np.empty(0, np.float32)).reshape(n_panels, 5, PANEL)
    own[:] = np.float32(0.0)
    starts = np.zeros(n_panels * PANEL, np.int32)
    own[:, TAU] = np.float32(1.0)
    codes = aligned_empty(n_panels * PANEL * items.words, np.empty(0, np.int32))
    counts, least = np.zeros((n_panels, 2), np.int64), np.empty(PANEL, np.float32)
    made = QueryPrefixes(
        packed, own, starts, codes, packed, counts, np.ones(n_panels, np.uint8), least
    )
    if are_few(isa, hi - lo):
        _copy_all_codes(isa, 0, hi - lo, all_codes, items.words, codes)
    if pays_by_prefix(isa, hi - lo, k, prefix.largest_k):
        n_first = 1 if k > 0 else n_panels
        project_queries(
            0, n_first, lo, hi, isa, batch, queries, items, all_codes, lanes, scales, made
        )
    spread = spread_codes(isa, hi - lo, packed, prefix.words)
    return QueryPrefixes(packed, own, starts, codes, spread, counts, made.is_dense, least)


@kernel
def project_queries(
    first, last, lo, hi, isa, batch, queries, items, all_codes, lanes, scales, of_query
):  # fmt: skip
    """Make the prefixes of panels first .. last of queries, which are not dense from then on.

    Queries of another kind than the items, which have little of their length along the axes, stay
    dense: to read 0.8 MB of axes of 768 columns would cost one of them a tenth of its search. The
    axes are rotated at random, so that 32 of them show it. Allocates 128 bytes a column.
    """
    prefix, words = items.prefix, items.words
    least = _LEAST_SHARE * _share_along_axes(items)
    size = PANEL * prefix.words
    width, p = padded_width(queries.rows.shape[1]), prefix.axes.shape[0] * PANEL
    buffer, out = np.zeros((PANEL, width), np.float32), np.zeros((PANEL, p), np.float32)
    tile, small = np.empty(PANEL * PANEL, np.float32), np.empty(p, np.int8)
    measured = np.empty(2, np.float32)
    for panel in range(first, last):
        start = panel * PANEL
        count = min(PANEL, hi - lo - start)
        _copy_all_codes(isa, start, count, all_codes, words, of_query.codes)
        for i in range(count):
            query = batch[lo + start + i]
            load_row(
                queries.rows, query, queries.factors[query], queries.coefficients[query],
                items.shift, buffer[i],
            )  # fmt: skip
        _project(isa, buffer, count, prefix.axes[:1], tile, out)
        if _share_of_first(buffer, out, count, p) < least:
            continue
        _project(isa, buffer, count, prefix.axes, tile, out)
        own = of_query.lanes[panel]
        for i in range(count):
            _pack_prefix(
                isa, i, buffer[i], out[i], prefix.eta[0], prefix.words, own, of_query.starts,
                start + i, of_query.packed[panel * size :], small, measured,
            )  # fmt: skip
            own[TAU, i] *= scales[panel, i]
            own[WEIGHT, i] = lanes[panel, WEIGHT, i] * own[TAU, i]
        of_query.is_dense[panel] = 0


@kernel
def pays_by_prefix(isa, n, k, largest_k):
    """Whether n queries for k neighbours take less time by prefixes.

    With amx a tile takes less time than what is around it: of many queries 0.84 to 1.03 of the
    speed is left (20,000 to 60,000 rows of 384 to 1,536 columns, Sapphire Rapids).
    """
    if are_few(isa, n):
        return k <= largest_k[0]
    return not has_tile_registers(isa) and k <= largest_k[1]


@kernel
def spread_codes(isa, used, packed, words):
    """Words of few queries of a panel as score_run takes them, or nothing."""
    if not are_few(isa, used):
        return packed[:0]
    spread = aligned_empty(used * words * GROUP, packed)
    if has_tile_registers(isa):
        _copy_codes(isa, packed, 0, 0, words, spread, 0)
    else:
        _spread(used, packed, words, spread)
    return spread


@borrowing_kernel
def _spread(used, packed, words, spread):
    for i in range(used):
        for word in range(words):
            at = (i * words + word) * GROUP
            for copy in range(GROUP):
                spread[at + copy] = packed[word * PANEL + i]


@borrowing_kernel
def _pack_prefix(isa, i, row, out, eta, words, lanes, starts, at, packed, codes, measured):
    """Pack query i of a panel; lanes[TAU, i] becomes 1 / scale."""
    measure_row(row, measured)
    squares = measured[1]
    measure_row(out, measured)
    of_prefix = measured[1]
    scale = step_of(measured[0], np.float32(largest_query_code(isa)))
    total = quantise_row(out, scale, np.float32(1.0) / scale, codes, measured)
    place_query(isa, codes.view(np.int32), i, words, packed)
    residual, unit = above(measured[0]), np.float32(1.0) / scale
    starts[at], lanes[TAU, i] = np.int32(-128) * total, unit
    lanes[REST, i] = _length_of_rest(squares, of_prefix, eta) * unit
    lanes[RESIDUAL, i] = (residual + eta * residual + (SLACK + eta) * above(squares)) * unit
    lanes[CODED, i] = (above(of_prefix) + residual) * unit


@borrowing_kernel
def _share_along_axes(items):
    """Return the share of items' squared lengths along the axes, by the panel in the middle."""
    panel = items.statistics.shape[0] // 2
    rests = items.prefix.rests[panel * PANEL : (panel + 1) * PANEL]
    norm, squares = items.statistics[panel, 1], np.float32(0.0)
    for rest in rests:
        squares += rest * rest
    return np.float32(1.0) - squares / max(np.float32(PANEL) * norm * norm, np.float32(1e-30))


@borrowing_kernel
def _share_of_first(rows, out, count, p):
    """Estimate that share of rows by their coordinates along the first 32 of p axes."""
    whole, part = np.float32(0.0), np.float32(0.0)
    for i in range(count):
        for value in rows[i]:
            whole += value * value
        for value in out[i, :PANEL]:
            part += value * value
    return part * np.float32(p // PANEL) / max(whole, np.float32(1e-30))


@borrowing_kernel
def _copy_all_codes(isa, first, count, all_codes, words, codes):
    """Copy the words of the panel of queries first .. first + count to rows, one by one."""
    for i in range(count):
        _copy_codes(isa, all_codes, first * words, i, words, codes, first + i)


@borrowing_kernel
def _copy_codes(isa, panels, start, i, words, codes, row):
    """Copy the words of query i of the panel from start on to row `row` of codes."""
    for k in range(words):
        at = (k >> 4) * 16 * PANEL + (i >> 4) * 256 + (k & 15) * 16 + (i & 15)
        if not has_tile_registers(isa):
            at = k * PANEL + i
        codes[row * words + k] = np.int32(panels[start + at])

"""Exact top-k by screening: tiles drop what cannot be a neighbour, float64 scores decide the rest.

Bound. A query a is scaled to a' (norm about 1), an item b to b' (norm at most 1), and both are
quantised: a' = s q + e, b' = t c + f. The ranked key is an increasing function of
K = <a', b'> + w o, and with the tile's integer v = <q, c>

    |<a', b'> - s t v| <= |e| |b'| + |s q| |f| + SLACK |b'|        (Cauchy-Schwarz, rows.SLACK)

so K lies within s t v + w o +- E. In units of s, per panel of 32 items with largest norm N,
residual R and offset O, an item can have K >= tau only if

    v >= (tau - (|e| + SLACK) / s N - |s q| / s R - w / s O) / t.

The tile compares with the integer below this. (float32 tiles: s = t = 1, R = 0, |e| is the rounding
bound of a float32 sum.) SLACK also covers the rounding of this expression, of tau to float32 and of
the float64 keys, so what is dropped has a float64 key strictly below every kept bound.

Threshold. tau is first a guess: some rank among the scores of every few panels. Candidates that
pass are collected; a full buffer is cut by the k-th largest lower bound, which is a true bound of
the k-th best key and so the next tau; where that frees too little (many near-equal rows) the
candidates are scored in float64 and only the best k survive. In the end the k-th best key shows
whether the guess was low enough; if not, the query is reported and searched again without a guess.

Equal keys are ordered by lower item number. Nothing but the float64 keys (pair_scores) reaches the
answer, so tiles, blocks and guesses cannot show in it.
"""

from collections import namedtuple

import numpy as np

from .jit import kernel, screen_kernel
from .pair_scores import pair_keys
from .rows import (
    SLACK,
    load_panel,
    measure_panel,
    pack_query_codes,
    pack_query_floats,
    rotate_panel,
)
from .select import keep_best, kth_largest
from .tiles import (
    PANEL,
    aligned,
    end_tiles,
    largest_scores,
    lowest_bit,
    passing,
    score_panel,
    start_tiles,
)
from .topk import is_excluded, write_run

# rows (p, d) and norms, offsets (p,) float64 as given; order (m,) item of each position; codes
# (flat, stride bytes a row) or float_rows (flat); starts, small_offsets by position; statistics
# (panels, 4); signs (3, d); isa_state: configuration of the tile registers
Items = namedtuple(
    "Items",
    "rows norms offsets order codes stride starts small_offsets statistics signs isa_state",
)
# rows (n, d), norms (n,); factors: a' = factor a; weights w; K = slope key + intercept; errors:
# bound of the tile's own rounding, 0 for integers; own: item of the query itself or -1; excluded:
# CSR with sorted rows; permitted (p,) uint8, or empty where every item may be found
Queries = namedtuple(
    "Queries",
    "rows norms factors weights slopes intercepts error own excluded_indptr excluded_indices "
    "permitted",
)

_NEVER = np.float32(3e38)
# rows of `lanes`
_TAU, _RESIDUAL, _CODED, _WEIGHT = range(4)


@kernel
def _prepare_queries(
    queries, batch, first, last, signs, quantised, unsigned, packed, lanes, scales
):
    """Pack queries batch[first:last] by panels, with their lanes; lanes beyond never pass."""
    depth = queries.rows.shape[1]
    n_panels = lanes.shape[0]
    size = packed.shape[0] // n_panels
    panel = np.empty((depth, PANEL), np.float32)
    norms, residuals = np.empty(PANEL, np.float32), np.empty(PANEL, np.float32)
    for p in range(n_panels):
        start = first + p * PANEL
        load_panel(queries.rows, batch, start, last, queries.factors, panel)
        target = packed[p * size : (p + 1) * size]
        if quantised:
            rotate_panel(panel, signs)
        else:
            pack_query_floats(panel, target)
        scales[p, 0] = np.float32(1.0)
        measure_panel(panel, scales[p], norms, residuals)
        if quantised:
            pack_query_codes(panel, unsigned, target)
        for i in range(PANEL):
            if not quantised:
                scales[p, i], residuals[i] = np.float32(1.0), np.float32(queries.error)
            unit = np.float32(1.0) / scales[p, i]
            lanes[p, _RESIDUAL, i] = (residuals[i] + SLACK) * unit
            lanes[p, _CODED, i] = (norms[i] + residuals[i]) * unit
            here = start + i < last
            lanes[p, _WEIGHT, i] = queries.weights[batch[start + i]] * unit if here else 0.0
            lanes[p, _TAU, i] = -_NEVER if here else _NEVER


@screen_kernel
def _offer(top, best):
    """Offer one score per query to the (rank, 32) best, falling; top (32,) is overwritten."""
    last = best.shape[0] - 1
    some = False
    for i in range(PANEL):
        some |= top[i] > best[last, i]
    if some:
        for r in range(last + 1):
            for i in range(PANEL):
                held = best[r, i]
                larger = top[i] > held
                best[r, i] = top[i] if larger else held
                top[i] = held if larger else top[i]


@kernel
def _guess(isa, first_panel, last_panel, items, packed, depth, stride, lanes, scores, best):
    """Set every query's tau to the rank-th best of the largest scores of every stride-th panel."""
    n_queries = lanes.shape[0]
    size = packed.shape[0] // n_queries
    best[:] = -_NEVER
    top = np.empty(PANEL, np.float32)
    for p in range(first_panel + stride // 2, last_panel, stride):
        scale, offset = np.float32(1.0) / items.statistics[p, 0], items.statistics[p, 3]
        for q in range(n_queries):
            score_panel(
                isa, items.codes, p * PANEL * items.stride, items.stride, packed, q * size, depth,
                items.starts, p * PANEL, scores,
            )  # fmt: skip
            largest_scores(scores, top)
            for i in range(PANEL):
                top[i] = top[i] * scale + lanes[q, _WEIGHT, i] * offset
            _offer(top, best[q])
    for q in range(n_queries):
        for i in range(PANEL):
            if lanes[q, _TAU, i] < 0.0:
                lanes[q, _TAU, i] = best[q, -1, i]


@kernel
def _unpack(entries, count, query, queries, items, lanes, values, positions, columns, lower, upper):
    """Drop what the query may not find; bounds of the rest in units of the query's scale."""
    bits = values.view(np.int32)
    first, last = queries.excluded_indptr[query], queries.excluded_indptr[query + 1]
    own, permitted = queries.own[query], queries.permitted
    kept = 0
    for entry in range(count):
        position = entries[entry] & 0xFFFFFFFF
        column = items.order[position]
        if column == own or (permitted.shape[0] > 0 and permitted[column] == 0):
            continue
        if first < last and is_excluded(column, queries.excluded_indices, first, last):
            continue
        bits[kept] = np.int32(entries[entry] >> 32)
        positions[kept], columns[kept] = position, column
        kept += 1
    residual, coded, weight = lanes[_RESIDUAL], lanes[_CODED], lanes[_WEIGHT]
    for entry in range(kept):
        position = positions[entry]
        panel = position >> 5
        offset = weight * items.small_offsets[position]
        middle = np.float32(values[entry]) / items.statistics[panel, 0] + offset
        error = residual * items.statistics[panel, 1] + coded * items.statistics[panel, 2]
        error += abs(offset) * SLACK
        lower[entry], upper[entry] = middle - error, middle + error
    return kept


@kernel
def _cut(count, k, tau, values, positions, columns, lower, upper, scratch):
    """Keep what can reach max(tau, k-th largest lower bound); returns count and that bound."""
    if count >= k:
        for entry in range(count):
            scratch[entry] = lower[entry]
        tau = max(tau, kth_largest(scratch, count, k))
    kept = 0
    for entry in range(count):
        positions[kept], columns[kept] = positions[entry], columns[entry]
        values[kept] = values[entry]
        kept += upper[entry] >= tau
    return kept, tau


@kernel
def _score(form, query, queries, items, columns, count, run, run_keys, run_columns, keys):
    """Merge the float64 keys of count columns into a run of `run` best; returns its length."""
    k = run_keys.shape[0]
    pair_keys(
        form, queries.rows, query, queries.norms[query], items.rows, items.norms, items.offsets,
        columns, count, keys,
    )  # fmt: skip
    total = count + run
    for entry in range(run):
        keys[count + entry], columns[count + entry] = run_keys[entry], run_columns[entry]
    total = keep_best(keys, columns, total, k, keys[total:])
    for entry in range(total):
        run_keys[entry], run_columns[entry] = keys[entry], columns[entry]
    return total


@kernel
def _reached(query, queries, key, unit):
    """The key as a threshold in units of the query's scale, not above it."""
    bound = queries.slopes[query] * key + queries.intercepts[query]
    return np.float32((bound - 1e-12 * abs(queries.intercepts[query])) * unit)


@kernel
def _tighten(
    form, query, queries, items, entries, count, lanes, unit, run, run_keys, run_columns, work,
    keys, ending,
):  # fmt: skip
    """Cut a full buffer, or score all of it when ending or when the cut frees too little."""
    values, positions, columns, lower, upper, scratch = work
    k = run_keys.shape[0]
    count = _unpack(
        entries, count, query, queries, items, lanes, values, positions, columns, lower, upper
    )
    count, tau = _cut(count, k, lanes[_TAU], values, positions, columns, lower, upper, scratch)
    if ending or count > entries.shape[0] // 2:
        run = _score(form, query, queries, items, columns, count, run, run_keys, run_columns, keys)
        count = 0
        if run == k:
            tau = max(tau, _reached(query, queries, run_keys[k - 1], unit))
    else:
        bits = values.view(np.int32)
        for entry in range(count):
            entries[entry] = (np.int64(bits[entry]) << 32) | positions[entry]
    lanes[_TAU] = tau
    return count, run


@kernel
def search_rows(
    lo, hi, first_panel, last_panel, isa, form, shape, batch, queries, items, capacity,
    sample_stride, sample_rank, code_type, score_type, known, keys, columns, again,
):  # fmt: skip
    """Neighbours of queries batch[lo:hi] in a range of panels, in the rows of their numbers.

    O((hi - lo) m d) operations of the tiles. shape: whether codes are quantised, whether unsigned,
    and the depth in the tiles' steps; capacity: entries of a query's buffer, at least 4 k;
    sample_stride, sample_rank: what _guess uses, 0 for no guess; code_type, score_type: empty
    arrays of the types of packed queries and scores. In and out: known (n,) float32, a lower bound
    of the k-th best K. Out: keys (n, k) float64, columns (n, k) int64, again (n,) uint8, 1 where
    the guess was too high. Allocates, a query: 8 capacity + 16 k + its packed bytes; and 60
    capacity + 16 k.
    """
    quantised, unsigned, tile_depth = shape
    k = columns.shape[1]
    n_panels = (hi - lo + PANEL - 1) // PANEL
    size = ((tile_depth + 15) // 16 if unsigned else tile_depth) * 2048
    if not quantised:
        size = tile_depth * PANEL
    packed = aligned(n_panels * size, code_type)
    lanes = aligned(n_panels * 4 * PANEL, np.empty(0, np.float32)).reshape(n_panels, 4, PANEL)
    scales = np.empty((n_panels, PANEL), np.float32)
    scores = aligned(PANEL * PANEL, score_type)
    _prepare_queries(
        queries, batch, lo, hi, items.signs, quantised, unsigned, packed, lanes, scales
    )
    start_tiles(isa, items.isa_state)
    if sample_stride > 0:
        best = np.empty((n_panels, sample_rank, PANEL), np.float32)
        _guess(
            isa, first_panel, last_panel, items, packed, tile_depth, sample_stride, lanes, scores,
            best,
        )  # fmt: skip
    guessed = np.empty(hi - lo, np.float32)
    for i in range(hi - lo):
        p, lane = i >> 5, i & 31
        bound = known[batch[lo + i]] / scales[p, lane]
        lanes[p, _TAU, lane] = max(lanes[p, _TAU, lane], bound)
        guessed[i] = lanes[p, _TAU, lane]
    runs = np.zeros(hi - lo, np.int64)
    run_keys, run_columns = np.empty((hi - lo, k)), np.empty((hi - lo, k), np.int64)
    counts = np.zeros(n_panels * PANEL, np.int64)
    entries = np.empty((n_panels * PANEL, capacity), np.int64)
    work = (
        np.empty(capacity, score_type.dtype), np.empty(capacity, np.int64),
        np.empty(capacity + k, np.int64), np.empty(capacity, np.float32),
        np.empty(capacity, np.float32), np.empty(capacity, np.float32),
    )  # fmt: skip
    merged = np.empty(2 * (capacity + k))
    masks = np.empty(16, np.uint64)
    flat_lanes, flat_statistics = lanes.reshape(-1), items.statistics.reshape(-1)
    bits = scores.view(np.int32)
    n_positions = items.order.shape[0]
    for p in range(first_panel, last_panel):
        for q in range(n_panels):
            score_panel(
                isa, items.codes, p * PANEL * items.stride, items.stride, packed, q * size,
                tile_depth, items.starts, p * PANEL, scores,
            )  # fmt: skip
            if not passing(scores, flat_lanes, q * 4 * PANEL, flat_statistics, p, masks):
                continue
            for word in range(16):
                mask = masks[word]
                while mask != 0:
                    at = word * 64 + lowest_bit(mask)
                    mask &= mask - np.uint64(1)
                    position, i = p * PANEL + (at >> 5), q * PANEL + (at & 31)
                    if position >= n_positions:
                        continue
                    count = counts[i]
                    entries[i, count] = (np.int64(bits[at]) << 32) | position
                    count += 1
                    if count == capacity:
                        count, runs[i] = _tighten(
                            form, batch[lo + i], queries, items, entries[i], count,
                            lanes[q, :, i & 31], np.float32(1.0) / scales[q, i & 31], runs[i],
                            run_keys[i], run_columns[i], work, merged, count < 0,
                        )  # fmt: skip
                    counts[i] = count
    end_tiles(isa)
    for i in range(hi - lo):
        q, lane, query = i >> 5, i & 31, batch[lo + i]
        unit = np.float32(1.0) / scales[q, lane]
        _, run = _tighten(
            form, query, queries, items, entries[i], counts[i], lanes[q, :, lane], unit, runs[i],
            run_keys[i], run_columns[i], work, merged, counts[i] >= 0,
        )  # fmt: skip
        write_run(run_keys[i], run_columns[i], run, keys[query], columns[query])
        again[query] = 0
        if sample_stride > 0:
            again[query] = 1
            if run == k:
                bound = _reached(query, queries, run_keys[i, k - 1], unit)
                again[query] = bound < guessed[i]
                known[query] = _lowered(bound * scales[q, lane])


@kernel
def scan_panels(
    lo, hi, isa, form, shape, queries, items, capacity, sample_stride, sample_rank, panels_per_run,
    code_type, score_type, keys, columns,
):  # fmt: skip
    """Neighbours of few queries among the items of panels lo .. hi, as run lo // panels_per_run.

    keys, columns (runs, n, k) out; the other arguments as in search_rows.
    """
    run = lo // panels_per_run
    n = queries.rows.shape[0]
    known, again = np.full(n, -_NEVER), np.zeros(n, np.uint8)
    batch = np.arange(n)
    left = n
    first = np.int64(0)  # a literal would be compiled apart
    while left > 0:
        search_rows(
            first, left, lo, hi, isa, form, shape, batch, queries, items, capacity, sample_stride,
            sample_rank, code_type, score_type, known, keys[run], columns[run], again,
        )  # fmt: skip
        sample_stride, left = 0, 0
        for query in range(n):
            if again[query]:
                batch[left] = query
                left += 1


@kernel
def pass_rows(
    lo, hi, isa, form, shape, batch, queries, items, bounds, code_type, score_type, write, starts,
    counts, columns,
):  # fmt: skip
    """Count, or write, the items of queries batch[lo:hi] that may have a key of at least bounds.

    bounds (n,) float64: least keys wanted; counts (n,) int64 out; if write, columns out: item
    numbers from starts[query] on, unordered.
    """
    quantised, unsigned, tile_depth = shape
    n_panels = (hi - lo + PANEL - 1) // PANEL
    size = ((tile_depth + 15) // 16 if unsigned else tile_depth) * 2048
    if not quantised:
        size = tile_depth * PANEL
    packed = aligned(n_panels * size, code_type)
    lanes = aligned(n_panels * 4 * PANEL, np.empty(0, np.float32)).reshape(n_panels, 4, PANEL)
    scales = np.empty((n_panels, PANEL), np.float32)
    scores = aligned(PANEL * PANEL, score_type)
    _prepare_queries(
        queries, batch, lo, hi, items.signs, quantised, unsigned, packed, lanes, scales
    )
    for i in range(hi - lo):
        q, lane, query = i >> 5, i & 31, batch[lo + i]
        lanes[q, _TAU, lane] = _reached(
            query, queries, bounds[query], np.float32(1.0) / scales[q, lane]
        )
        counts[query] = 0
    masks = np.empty(16, np.uint64)
    flat_lanes, flat_statistics = lanes.reshape(-1), items.statistics.reshape(-1)
    n_positions = items.order.shape[0]
    start_tiles(isa, items.isa_state)
    for p in range(items.statistics.shape[0]):
        for q in range(n_panels):
            score_panel(
                isa, items.codes, p * PANEL * items.stride, items.stride, packed, q * size,
                tile_depth, items.starts, p * PANEL, scores,
            )  # fmt: skip
            if not passing(scores, flat_lanes, q * 4 * PANEL, flat_statistics, p, masks):
                continue
            for word in range(16):
                mask = masks[word]
                while mask != 0:
                    at = word * 64 + lowest_bit(mask)
                    mask &= mask - np.uint64(1)
                    position, i = p * PANEL + (at >> 5), q * PANEL + (at & 31)
                    if position >= n_positions:
                        continue
                    query = batch[lo + i]
                    column = items.order[position]
                    if column == queries.own[query]:
                        continue
                    if write:
                        columns[starts[query] + counts[query]] = column
                    counts[query] += 1
    end_tiles(isa)


@kernel
def _lowered(bound):
    return bound - abs(bound) * SLACK - np.float32(1e-30)

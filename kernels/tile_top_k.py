"""Exact top-k of dense rows: the screen's candidates are collected, cut and scored in float64.

Threshold. A query's tau is first a guess: some rank among the scores of every few panels.
Candidates that pass are collected; a full buffer is cut by the k-th largest lower bound, which is a
true bound of the k-th best key and so the next tau; where that frees too little (many near-equal
rows) the candidates are scored in float64 and only the best k survive. In the end the k-th best key
shows whether the guess was low enough; if not, the query is reported and searched again without a
guess.

Equal keys are ordered by lower item number. Nothing but the float64 keys (pair_scores) reaches the
answer, so tiles, blocks and guesses cannot show in it.
"""

from collections import namedtuple

import numpy as np

from .candidate_filter import (
    CODED,
    NEVER,
    RESIDUAL,
    TAU,
    WEIGHT,
    guess_thresholds,
    key_rounding,
    pack_block,
    threshold_of,
)
from .exhaustive_top_k import is_excluded, write_run
from .jit import kernel
from .packing import SLACK
from .pair_scores import pair_keys
from .select import keep_best, kth_largest
from .tiles import PANEL, end_tiles, passing, score_panel, start_tiles

# of each query of a block: entries (capacity,) score << 32 | position of `counts` candidates; the
# best `lengths` of those that were scored, keys and columns (k,)
_Found = namedtuple("_Found", "entries counts keys columns lengths")
# of one buffer at a time: values have the type of the scores
_Scratch = namedtuple("_Scratch", "values positions columns lower upper bounds keys")


@kernel
def _buffers(n, k, capacity, score_type):
    found = _Found(
        np.empty((n, capacity), np.int64), np.zeros(n, np.int64),
        np.empty((n, k)), np.empty((n, k), np.int64), np.zeros(n, np.int64),
    )  # fmt: skip
    scratch = _Scratch(
        np.empty(capacity, score_type.dtype), np.empty(capacity, np.int64),
        np.empty(capacity + k, np.int64), np.empty(capacity, np.float32),
        np.empty(capacity, np.float32), np.empty(capacity, np.float32),
        np.empty(2 * (capacity + k)),
    )  # fmt: skip
    return found, scratch


@kernel
def _unpack(entries, count, query, queries, items, lanes, unit, scratch):
    """Drop what the query may not find; bounds of the rest in units of the query's scale."""
    # of two keys that are compared
    rounding = np.float32(min(2.0 * key_rounding(query, queries) * unit, NEVER))
    values, positions, columns = scratch.values, scratch.positions, scratch.columns
    lower, upper = scratch.lower, scratch.upper
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
    residual, coded, weight = lanes[RESIDUAL], lanes[CODED], lanes[WEIGHT]
    for entry in range(kept):
        position = positions[entry]
        panel = position >> 5
        offset = weight * items.small_offsets[position]
        middle = np.float32(values[entry]) / items.statistics[panel, 0] + offset
        error = residual * items.statistics[panel, 1] + coded * items.statistics[panel, 2]
        error += abs(offset) * SLACK + rounding
        lower[entry], upper[entry] = middle - error, middle + error
    return kept


@kernel
def _cut(count, k, tau, scratch):
    """Keep what can reach max(tau, k-th largest lower bound); returns count and that bound."""
    values, positions, columns = scratch.values, scratch.positions, scratch.columns
    lower, upper, bounds = scratch.lower, scratch.upper, scratch.bounds
    if count >= k:
        for entry in range(count):
            bounds[entry] = lower[entry]
        tau = max(tau, kth_largest(bounds, count, k))
    kept = 0
    for entry in range(count):
        positions[kept], columns[kept] = positions[entry], columns[entry]
        values[kept] = values[entry]
        kept += upper[entry] >= tau
    return kept, tau


@kernel
def merge_scores(
    form, query, queries, items, columns, count, keys, length, best_keys, best_columns
):
    """Merge the float64 keys of count columns into the best `length` of k; returns their number."""
    pair_keys(
        form, queries.rows, query, queries.norms[query], items.rows, items.norms, items.offsets,
        columns, count, keys,
    )  # fmt: skip
    total = count + length
    for entry in range(length):
        keys[count + entry], columns[count + entry] = best_keys[entry], best_columns[entry]
    total = keep_best(keys, columns, total, best_keys.shape[0], keys[total:])
    for entry in range(total):
        best_keys[entry], best_columns[entry] = keys[entry], columns[entry]
    return total


@kernel
def _tighten(form, i, query, queries, items, block, found, scratch, ending):
    """Cut the buffer of the block's query i, or score it all when ending or when that frees little.

    The query's tau rises to what the best k so far, or k candidates, are known to have.
    """
    lanes, unit = block.lanes[i >> 5, :, i & 31], np.float32(1.0) / block.scales[i >> 5, i & 31]
    entries, keys = found.entries[i], found.keys[i]
    k = keys.shape[0]
    count = _unpack(entries, found.counts[i], query, queries, items, lanes, unit, scratch)
    count, tau = _cut(count, k, lanes[TAU], scratch)
    if ending or count > entries.shape[0] // 2:
        found.lengths[i] = merge_scores(
            form, query, queries, items, scratch.columns, count, scratch.keys, found.lengths[i],
            keys, found.columns[i],
        )  # fmt: skip
        count = 0
        if found.lengths[i] == k:
            tau = max(tau, threshold_of(query, queries, keys[k - 1], unit))
    else:
        bits = scratch.values.view(np.int32)
        for entry in range(count):
            entries[entry] = (np.int64(bits[entry]) << 32) | scratch.positions[entry]
    lanes[TAU] = tau
    found.counts[i] = count


@kernel
def search_rows(
    lo, hi, first_panel, last_panel, isa, form, shape, batch, queries, items, capacity,
    sample_stride, sample_rank, code_type, score_type, known, keys, columns, again,
):  # fmt: skip
    """Neighbours of queries batch[lo:hi] in a range of panels, in the rows of their numbers.

    O((hi - lo) m d) operations of the tiles. shape, code_type, score_type: as in pack_block;
    capacity: entries of a query's buffer, at least 4 k; sample_stride, sample_rank: what
    guess_thresholds uses, 0 for no guess. In and out: known (n,) float32, a lower bound of the k-th
    best K. Out: keys (n, k) float64, columns (n, k) int64, again (n,) uint8, 1 where the guess was
    too high. Allocates, a query: 8 capacity + 16 k + its packed bytes; and 60 capacity + 16 k.
    """
    n, k, depth = hi - lo, columns.shape[1], shape[2]
    block = pack_block(lo, hi, shape, batch, queries, items, code_type, score_type)
    found, scratch = _buffers(n, k, capacity, score_type)
    start_tiles(isa, items.isa_state)
    if sample_stride > 0:
        guess_thresholds(
            isa, depth, items, first_panel, last_panel, sample_stride, sample_rank, block
        )
    guessed = np.empty(n, np.float32)
    for i in range(n):
        q, lane = i >> 5, i & 31
        bound = known[batch[lo + i]] / block.scales[q, lane]
        guessed[i] = max(block.lanes[q, TAU, lane], bound)
        block.lanes[q, TAU, lane] = guessed[i]
    bits = block.scores.view(np.int32)
    sweeping, ended = np.bool_(False), np.bool_(True)  # literals would be compiled apart
    for p in range(first_panel, last_panel):
        for q in range(block.lanes.shape[0]):
            score_panel(
                isa, items.codes, p * PANEL * items.stride, items.stride, block.packed,
                q * block.size, depth, items.starts, p * PANEL, block.scores,
            )  # fmt: skip
            n_hits = passing(
                block.scores, block.lanes, q * 4 * PANEL, items.statistics, p,
                items.order.shape[0] - p * PANEL, block.hits,
            )  # fmt: skip
            for at in range(n_hits):
                hit = block.hits[at]
                i, position = q * PANEL + (hit & 31), p * PANEL + (hit >> 5)
                found.entries[i, found.counts[i]] = (np.int64(bits[hit]) << 32) | position
                found.counts[i] += 1
                if found.counts[i] == capacity:
                    _tighten(
                        form, i, batch[lo + i], queries, items, block, found, scratch, sweeping
                    )
    end_tiles(isa)
    for i in range(n):
        query, scale = batch[lo + i], block.scales[i >> 5, i & 31]
        _tighten(form, i, query, queries, items, block, found, scratch, ended)
        write_run(found.keys[i], found.columns[i], found.lengths[i], keys[query], columns[query])
        again[query] = sample_stride > 0
        if sample_stride > 0 and found.lengths[i] == k:
            bound = threshold_of(query, queries, found.keys[i, k - 1], np.float32(1.0) / scale)
            again[query] = bound < guessed[i]
            known[query] = _lowered(bound * scale)


@kernel
def _lowered(bound):
    return bound - abs(bound) * SLACK - np.float32(1e-30)


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
    known, again = np.full(n, -NEVER), np.zeros(n, np.uint8)
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

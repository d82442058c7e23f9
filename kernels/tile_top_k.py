"""Exact top-k of dense rows: candidates of the filter are collected, reduced and rescored.

Threshold. The first tau of a query is an estimate: a rank among the scores of a sample of panels.
Candidates that pass are collected in a buffer. A full buffer is reduced by the k-th largest lower
bound of its scores. This is a lower bound of the k-th best score, and so the next tau. If that
frees too little (many near-duplicates), the candidates are scored in float64, and only the best k
are kept. In the end the k-th best score shows whether the estimate was low enough. If not, the
query is marked and searched again without an estimate.

Equal scores are ordered by lower item number. Results consist of float64 scores (pair_scores) only,
so they do not depend on tiles, blocks and estimates.
"""

from collections import namedtuple

import numpy as np

from .candidate_filter import (
    CODED,
    NEVER,
    RESIDUAL,
    TAU,
    WEIGHT,
    estimate_thresholds,
    pack_block,
    score_rounding,
    threshold_of,
)
from .exhaustive_top_k import is_excluded, write_run
from .jit import kernel
from .packing import SLACK
from .pair_scores import score_pairs
from .select import keep_best, kth_largest
from .tiles import PANEL, end_tiles, passing, score_panel, start_tiles

# of each query of a block: entries (capacity,): tile score << 32 | position, of `counts`
# candidates; scores and columns (k,): the best `lengths` of those that were scored in float64
_Found = namedtuple("_Found", "entries counts scores columns lengths")
# of one buffer at a time: values have the type of the tile scores
_Scratch = namedtuple("_Scratch", "values positions columns lower upper bounds scores")


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
    """Drop excluded items; write bounds of the others in units of the query's scale."""
    # of both scores of a comparison
    rounding = np.float32(min(2.0 * score_rounding(query, queries) * unit, NEVER))
    values, positions, columns = scratch.values, scratch.positions, scratch.columns
    lower, upper = scratch.lower, scratch.upper
    bits = values.view(np.int32)
    # may_find spelled out: its call for every candidate costs a fifth of a search with k = 100
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
def _reduce(count, k, tau, scratch):
    """Keep candidates that can reach max(tau, k-th largest lower bound); return count and tau."""
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
    metric_type, query, queries, items, columns, count, scores, length, best_scores, best_columns
):
    """Merge the float64 scores of count columns into the best `length` of k; return how many."""
    score_pairs(
        metric_type, queries.rows, query, queries.norms[query], items.rows, items.norms,
        items.offsets, columns, count, scores,
    )  # fmt: skip
    total = count + length
    for entry in range(length):
        scores[count + entry], columns[count + entry] = best_scores[entry], best_columns[entry]
    total = keep_best(scores, columns, total, best_scores.shape[0], scores[total:])
    for entry in range(total):
        best_scores[entry], best_columns[entry] = scores[entry], columns[entry]
    return total


@kernel
def _tighten(metric_type, i, query, queries, items, block, found, scratch, ending):
    """Reduce the buffer of query i of the block; rescore it at the end or if that frees little.

    tau increases to the best known lower bound of the k-th best score.
    """
    lanes, unit = block.lanes[i >> 5, :, i & 31], np.float32(1.0) / block.scales[i >> 5, i & 31]
    entries, scores = found.entries[i], found.scores[i]
    k = scores.shape[0]
    count = _unpack(entries, found.counts[i], query, queries, items, lanes, unit, scratch)
    count, tau = _reduce(count, k, lanes[TAU], scratch)
    if ending or count > entries.shape[0] // 2:
        found.lengths[i] = merge_scores(
            metric_type, query, queries, items, scratch.columns, count, scratch.scores,
            found.lengths[i], scores, found.columns[i],
        )  # fmt: skip
        count = 0
        if found.lengths[i] == k:
            tau = max(tau, threshold_of(query, queries, scores[k - 1], unit))
    else:
        bits = scratch.values.view(np.int32)
        for entry in range(count):
            entries[entry] = (np.int64(bits[entry]) << 32) | scratch.positions[entry]
    lanes[TAU] = tau
    found.counts[i] = count


@kernel
def search_rows(
    lo, hi, first_panel, last_panel, isa, metric_type, shape, batch, queries, items, capacity,
    sample_stride, sample_rank, code_type, score_type, known, scores, columns, again,
):  # fmt: skip
    """Neighbours of queries batch[lo:hi] in a range of panels, written to rows batch[lo:hi].

    O((hi - lo) m d) operations of the tiles. shape, code_type, score_type: as in pack_block;
    capacity: entries of a query's buffer, at least 4 k; sample_stride, sample_rank: as in
    estimate_thresholds, 0 for no estimate. In/out: known (n,) float32, a lower bound of the k-th
    best K. Out: scores (n, k) float64, columns (n, k) int64, again (n,) uint8, 1 where the estimate
    was too high. Allocates 8 capacity + 16 k + packed bytes a query, and 60 capacity + 16 k.
    """
    n, k, depth = hi - lo, columns.shape[1], shape[2]
    block = pack_block(lo, hi, shape, batch, queries, items, code_type, score_type)
    found, scratch = _buffers(n, k, capacity, score_type)
    start_tiles(isa, items.isa_state)
    if sample_stride > 0:
        estimate_thresholds(
            isa, depth, items, first_panel, last_panel, sample_stride, sample_rank, block
        )
    estimates = np.empty(n, np.float32)
    for i in range(n):
        q, lane = i >> 5, i & 31
        bound = known[batch[lo + i]] / block.scales[q, lane]
        estimates[i] = max(block.lanes[q, TAU, lane], bound)
        block.lanes[q, TAU, lane] = estimates[i]
    bits = block.scores.view(np.int32)
    more, ending = np.bool_(False), np.bool_(True)  # literals would compile again
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
                        metric_type, i, batch[lo + i], queries, items, block, found, scratch, more,
                    )  # fmt: skip
    end_tiles(isa)
    for i in range(n):
        query, scale = batch[lo + i], block.scales[i >> 5, i & 31]
        _tighten(metric_type, i, query, queries, items, block, found, scratch, ending)
        write_run(
            found.scores[i], found.columns[i], found.lengths[i], scores[query], columns[query]
        )
        again[query] = sample_stride > 0
        if sample_stride > 0 and found.lengths[i] == k:
            bound = threshold_of(query, queries, found.scores[i, k - 1], np.float32(1.0) / scale)
            again[query] = bound < estimates[i]
            known[query] = _lowered(bound * scale)


@kernel
def _lowered(bound):
    return bound - abs(bound) * SLACK - np.float32(1e-30)


@kernel
def scan_panels(
    lo, hi, isa, metric_type, shape, queries, items, capacity, sample_stride, sample_rank,
    panels_per_run, code_type, score_type, scores, columns,
):  # fmt: skip
    """Neighbours of few queries in panels lo .. hi, written to run lo // panels_per_run.

    scores, columns (runs, n, k) out; the other arguments as in search_rows.
    """
    run = lo // panels_per_run
    n = queries.rows.shape[0]
    known, again = np.full(n, -NEVER), np.zeros(n, np.uint8)
    batch = np.arange(n)
    left = n
    first = np.int64(0)  # a literal would compile again
    while left > 0:
        search_rows(
            first, left, lo, hi, isa, metric_type, shape, batch, queries, items, capacity,
            sample_stride, sample_rank, code_type, score_type, known, scores[run], columns[run],
            again,
        )  # fmt: skip
        sample_stride, left = 0, 0
        for query in range(n):
            if again[query]:
                batch[left] = query
                left += 1

"""Exact top-k of dense rows: candidates of the filter are collected, reduced and rescored.

Threshold. The first threshold tau of a query is an estimate: a rank among the largest scores of a
sample of panels. The panels in the first half of the sample are scored twice. From the panels in
the other half, candidates are collected while the estimate rises. Candidates that reach tau are
collected in a buffer. When the buffer is full, and at the end, the k candidates with the best tile
scores are scored in float64. The k-th best of these float64 scores is a lower bound of the k-th
best of all scores, and becomes the next tau. The bound is close, because these candidates are
nearly the best k. The other candidates are scored in float64 only if their upper bound reaches the
new tau. All candidates are scored in two cases: if too few candidates of a full buffer are below
the new tau, because there are many near-duplicates, and if a block ends with few candidates. In the
end, the k-th best score shows whether the estimate was low enough. If the estimate was too high,
the query is marked and searched again without an estimate.

Shared thresholds. A grid of tasks (``search_grid``) searches every query in several ranges of
panels at once. Each task writes the k-th best score that it has proved to one float32 array, and
reads the scores that the other tasks wrote, without a lock. Two arguments show that results do not
depend on the numbers that a task reads in this array:

- Every value that is written is a lower bound of the k-th best score among all panels, because k
  rows whose scores reach the value have been scored. An update that comes late, or is lost when two
  tasks write at once, leaves an older and therefore lower bound, and fewer pairs are dropped.
- Nothing relies on the first argument. Each task reports the largest threshold that it used and
  that its own k-th best score does not reach (``unproved``). The report includes every threshold:
  an estimate, the threshold of another task, a torn or damaged value. A pair that the task dropped
  has a float64 score strictly below the threshold. When the results of all ranges have been merged
  and the k-th best score of a query does not reach one of these thresholds, the query is searched
  again without estimates, and the last time without sharing. NaN never becomes a threshold.

At the end, all queries of a block are treated together, and their pairs are scored in the order of
the items. Scoring in this order is 1.7 times as fast as reading the rows query by query (60,000
rows of 768 columns).

Equal scores are ordered by lower item number. Results contain only float64 scores (pair_scores), so
results do not depend on tiles, blocks and estimates.
"""

from typing import Any, NamedTuple

import numpy as np

from .candidate_filter import NEVER, is_excluded, score_rounding, threshold_of
from .few_queries import NOT_ORDINARY
from .jit import borrowing_kernel, inlined_kernel, kernel
from .packing import SLACK
from .pair_scores import order_by_item, score_pairs, score_pairs_by_item
from .projection import project_queries
from .projection_filter import abandon_costly_projections, find_hits_by_projection
from .query_blocks import list_hits, pack_block, rank_hits, rank_maxima, score_tile
from .query_scaling import are_ordinary, items_at, scaled_queries
from .records import PanelSearch, SearchResults
from .select import kth_largest, select_best, sort_best_first, write_best
from .simd.panel import CODE_NORM, OFFSET_WEIGHT, PANEL, RESIDUAL_NORM, THRESHOLD
from .simd.tile_scores import end_tiles, start_tiles
from .tiles import numbers_below

# A tile of the first stage of the sweep has about this many times the hits of a later tile, because
# its thresholds come from only one half of the sample.
_HITS_OF_STAGE_1 = 2.0
# An unproved threshold is rounded up by this share of SLACK. _lowered rounds a threshold down by
# all of SLACK, so the k-th best score still reaches a threshold that another task has proved.
_ROUNDED_UP = np.float32(0.25)
# A task reads the thresholds of the other tasks after every 16th (2^_SHARING_SHIFT) of its panels.
_SHARING_SHIFT = 4
# If a block has at most this many candidates, all of them are scored. Choosing the best candidates
# takes 2 us, whereas scoring one candidate takes 0.02 to 0.1 us.
_SCORED_AT_ONCE = 64


class _Candidates(NamedTuple):
    """The candidates of a block, and the best rows so far of each of its queries.

    Attributes
    ----------
    entries, counts : int64 array (n, capacity) and (n,)
        tile score << 32 | slot, for each of `counts` candidates that have no float64 score yet.
    scores, rows, lengths : arrays (n, k), (n, k) and (n,)
        The best rows among those that were scored in float64, `lengths` rows for each query, in any
        order.
    least : float64 array (n,)
        The k-th best of these scores, or -inf.
    """

    entries: Any
    counts: Any
    scores: Any
    rows: Any
    lengths: Any
    least: Any


class _Sample(NamedTuple):
    """The largest scores of a sample of panels.

    Attributes
    ----------
    best, top : float32 array (panels of queries, rank, 32) and (32,)
        The largest scores of panels, in descending order, and a buffer.
    swept : uint8 array (panels,)
        1 for each panel that stage 2 of the sweep skips.
    """

    best: Any
    top: Any
    swept: Any


class _Scratch(NamedTuple):
    """Buffers for one query at a time.

    values holds tile scores in their own type, and estimates holds estimates of K (see
    ``candidate_filter``). scores and rows belong to the pairs that are merged.
    """

    values: Any
    estimates: Any
    bounds: Any
    scores: Any
    rows: Any


@kernel
def _buffers(n, k, capacity, packed):
    counts, lengths, least = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    counts[:], lengths[:], least[:] = 0, 0, -np.inf
    candidates = _Candidates(
        np.empty((n, capacity), np.int64), counts, np.empty((n, k)), np.empty((n, k), np.int64),
        lengths, least,
    )  # fmt: skip
    scratch = _Scratch(
        np.empty(capacity, packed.dtype), np.empty(capacity, np.float32),
        np.empty(capacity + k, np.float32), np.empty(2 * (capacity + k)),
        np.empty(capacity + k, np.int64),
    )  # fmt: skip
    return candidates, scratch


@inlined_kernel
def _estimate(i, query, queries, items, block, candidates, scratch):
    """Drop excluded entries of query i of the block; write estimates of K of the other entries."""
    entries, estimates, values = candidates.entries[i], scratch.estimates, scratch.values
    bits = values.view(np.int32)
    order, offsets, statistics = items.order, items.small_offsets, items.statistics
    weight, filters = block.lanes[i >> 5, OFFSET_WEIGHT, i & 31], queries.filters
    # The code of may_find is repeated here, because calling it for every candidate would take a
    # fifth of the time of a search with k = 100.
    first, last = filters.excluded_indptr[query], filters.excluded_indptr[query + 1]
    own, permitted = filters.self_rows[query], filters.allowed
    excluded = filters.excluded_rows
    n_kept = 0
    for entry in range(candidates.counts[i]):
        candidate = entries[entry]
        slot = candidate & 0xFFFFFFFF
        row = order[slot]
        if row == own or (permitted.shape[0] > 0 and permitted[row] == 0):
            continue
        if first < last and is_excluded(row, excluded, first, last):
            continue
        bits[n_kept] = np.int32(candidate >> 32)
        value = np.float32(values[n_kept]) / statistics[slot >> 5, 0]
        estimates[n_kept] = value
        if offsets.shape[0] > 0:
            estimates[n_kept] += weight * offsets[slot]
        entries[n_kept] = candidate
        n_kept += 1
    candidates.counts[i] = n_kept


@borrowing_kernel
def _best_to_front(i, query, queries, items, block, candidates, scratch, most):
    """Move the candidates with the k best estimates to the front, and return their number.

    If there are at most `most` candidates, all of them are moved.
    """
    _estimate(i, query, queries, items, block, candidates, scratch)
    entries, estimates, bounds = candidates.entries[i], scratch.estimates, scratch.bounds
    count, length, k = candidates.counts[i], candidates.lengths[i], candidates.scores.shape[1]
    if count + length <= k or count <= most:
        return count
    unit = np.float32(1.0) / block.scales[i >> 5, i & 31]
    for entry in range(count):
        bounds[entry] = estimates[entry]
    for entry in range(length):
        bounds[count + entry] = threshold_of(query, queries, candidates.scores[i, entry], unit)
    least = kth_largest(bounds, count + length, k)
    front = 0
    for entry in range(count):
        if estimates[entry] >= least:
            entries[entry], entries[front] = entries[front], entries[entry]
            estimates[entry], estimates[front] = estimates[front], estimates[entry]
            front += 1
    return front


@borrowing_kernel
def _keep_reaching(front, i, items, block, candidates, scratch):
    """Drop the entries from position `front` on whose upper bounds do not reach tau."""
    entries, values = candidates.entries[i], scratch.values
    bits = values.view(np.int32)
    offsets, statistics = items.small_offsets, items.statistics
    lanes = block.lanes[i >> 5, :, i & 31]
    threshold, weight = lanes[THRESHOLD], lanes[OFFSET_WEIGHT]
    residual, coded = lanes[RESIDUAL_NORM], lanes[CODE_NORM]
    n_kept = 0
    for entry in range(front, candidates.counts[i]):
        candidate = entries[entry]
        slot = candidate & 0xFFFFFFFF
        panel = slot >> 5
        bits[0] = np.int32(candidate >> 32)
        offset = weight * offsets[slot] if offsets.shape[0] > 0 else np.float32(0.0)
        upper = np.float32(values[0]) / statistics[panel, 0] + offset + abs(offset) * SLACK
        upper += residual * statistics[panel, 1] + coded * statistics[panel, 2]
        entries[n_kept] = candidate
        n_kept += upper >= threshold
    candidates.counts[i] = n_kept


@borrowing_kernel
def _raise_by_codes(batch, lo, queries, items, block, candidates, scratch):
    """Raise every query's tau to the k-th best lower bound that the codes of its candidates give.

    The codes bound K, and the K of a float64 score may be lower by score_rounding.
    """
    k = candidates.scores.shape[1]
    for i in range(candidates.counts.shape[0]):
        q, lane = i >> 5, i & 31
        if candidates.counts[i] < k or block.projected.is_dense[q]:
            continue
        query = batch[lo + i]
        _estimate(i, query, queries, items, block, candidates, scratch)
        rounding = np.float32(score_rounding(query, queries) / block.scales[q, lane])
        residual, coded = block.lanes[q, RESIDUAL_NORM, lane], block.lanes[q, CODE_NORM, lane]
        weight, count = block.lanes[q, OFFSET_WEIGHT, lane], candidates.counts[i]
        for entry in range(count):
            slot = candidates.entries[i, entry] & 0xFFFFFFFF
            panel = slot >> 5
            error = residual * items.statistics[panel, 1] + coded * items.statistics[panel, 2]
            if items.small_offsets.shape[0] > 0:
                error += abs(weight * items.small_offsets[slot]) * SLACK
            scratch.bounds[entry] = scratch.estimates[entry] - error
        if count >= k:
            least = kth_largest(scratch.bounds, count, k) - rounding
            block.lanes[q, THRESHOLD, lane] = max(block.lanes[q, THRESHOLD, lane], least)


@borrowing_kernel
def _merge_scores(i, count, scratch, candidates):
    """Merge the first `count` scores and rows of scratch into the best k of query i."""
    scores, rows = scratch.scores, scratch.rows
    best_scores, best_rows = candidates.scores[i], candidates.rows[i]
    length = candidates.lengths[i]
    for entry in range(length):
        scores[count + entry], rows[count + entry] = best_scores[entry], best_rows[entry]
    total, k = count + length, best_scores.shape[0]
    if count > 0 and total >= k:
        candidates.least[i] = select_best(scores, rows, total, k, scores[total:])
        total = k
    for entry in range(total):
        best_scores[entry], best_rows[entry] = scores[entry], rows[entry]
    candidates.lengths[i] = total


@inlined_kernel
def _raise_threshold(i, query, queries, block, candidates):
    """Raise a query's tau to its k-th best score, once k of its candidates have been scored."""
    if candidates.lengths[i] == candidates.scores.shape[1]:
        q, lane = i >> 5, i & 31
        unit = np.float32(1.0) / block.scales[q, lane]
        bound = threshold_of(query, queries, candidates.least[i], unit)
        block.lanes[q, THRESHOLD, lane] = max(block.lanes[q, THRESHOLD, lane], bound)


@borrowing_kernel
def _score_front(metric_type, i, query, front, queries, items, block, candidates, scratch):
    """Score the first entries of query i in float64, and raise tau."""
    for entry in range(front):
        scratch.rows[entry] = items.order[candidates.entries[i, entry] & 0xFFFFFFFF]
    score_pairs(
        metric_type, queries.rows, query, queries.norms[query], items.rows, items.norms,
        items.offsets, scratch.rows, front, scratch.scores,
    )  # fmt: skip
    _merge_scores(i, front, scratch, candidates)
    _raise_threshold(i, query, queries, block, candidates)


@borrowing_kernel
def _tighten(metric_type, i, query, queries, items, block, candidates, scratch):
    """Free entries of the full buffer of query i of the block."""
    front = _best_to_front(i, query, queries, items, block, candidates, scratch, 0)
    # The only call stands in a loop, because LLVM would inline a second call into this function.
    while True:
        _score_front(metric_type, i, query, front, queries, items, block, candidates, scratch)
        _keep_reaching(front, i, items, block, candidates, scratch)
        if candidates.counts[i] <= candidates.entries.shape[1] // 2:
            break
        front = candidates.counts[i]


@kernel
def _list_pairs(fronts, lo, batch, items, candidates):
    """Return the queries, the items and an order of the first fronts[i] entries of each query i.

    The pairs are to be scored in this order, in which neighbouring items follow each other.
    """
    total = 0
    for front in fronts:
        total += front
    numbers, rows = np.empty(total, np.int64), np.empty(total, np.int64)
    _write_pairs(fronts, lo, batch, items, candidates, numbers, rows)
    return numbers, rows, order_by_item(rows, items.rows.shape[0])


@borrowing_kernel
def _write_pairs(fronts, lo, batch, items, candidates, numbers, rows):
    at = 0
    for i in range(fronts.shape[0]):
        for entry in range(fronts[i]):
            numbers[at] = batch[lo + i]
            rows[at] = items.order[candidates.entries[i, entry] & 0xFFFFFFFF]
            at += 1


@kernel
def _score_together(metric_type, fronts, lo, batch, queries, items, block, candidates, scratch):
    """Score the first fronts[i] entries of every query i, and merge the scores into the best k."""
    numbers, rows, order = _list_pairs(fronts, lo, batch, items, candidates)
    scores = np.empty(rows.shape[0])
    score_pairs_by_item(
        metric_type, numbers, rows, order, queries.rows, queries.norms, items.rows, items.norms,
        items.offsets, scores,
    )  # fmt: skip
    _merge_fronts(fronts, lo, batch, rows, scores, queries, block, candidates, scratch)


@borrowing_kernel
def _merge_fronts(fronts, lo, batch, rows, scores, queries, block, candidates, scratch):
    at = 0
    for i in range(fronts.shape[0]):
        n_kept = 0
        for _ in range(fronts[i]):
            scratch.scores[n_kept], scratch.rows[n_kept] = scores[at], rows[at]
            n_kept += not scores[at] < candidates.least[i]
            at += 1
        _merge_scores(i, n_kept, scratch, candidates)
        _raise_threshold(i, batch[lo + i], queries, block, candidates)


@kernel
def _finish_block(metric_type, lo, batch, queries, items, block, candidates, scratch):
    """Score the candidates that are left in the buffers.

    The candidates with the best estimates are scored first, and then the candidates whose upper
    bounds reach the scores of the first candidates.
    """
    fronts = np.empty(candidates.counts.shape[0], np.int64)
    most = _SCORED_AT_ONCE // fronts.shape[0]
    for step in range(2):
        total = 0
        for i in range(fronts.shape[0]):
            if step == 0:
                fronts[i] = _best_to_front(
                    i, batch[lo + i], queries, items, block, candidates, scratch, most
                )
            else:
                _keep_reaching(fronts[i], i, items, block, candidates, scratch)
                fronts[i] = candidates.counts[i]
            total += fronts[i]
        if total > 0:
            _score_together(
                metric_type, fronts, lo, batch, queries, items, block, candidates, scratch
            )


@inlined_kernel
def _find_hits(stage, p, q, items, block, sample):
    """Write the hits of a tile to block.hits, and return the number of hits.

    In a tile of the sample, the largest scores are also ranked. The first half of the sample, which
    is stage 0, is not searched for hits.
    """
    isa, n_hits = items.isa, -1
    if stage > 0:
        n_hits = find_hits_by_projection(isa, p, q, items, block)
    if n_hits < 0:
        score_tile(isa, p, q, items, block)
        if stage < 2:
            rank_maxima(p, q, items, block, sample.best[q], sample.top)
        return 0 if stage == 0 else list_hits(p, q, items, block)
    if stage < 2:
        rank_hits(p, q, n_hits, items, block, sample.best[q], sample.top)
    return n_hits


@borrowing_kernel
def _sweep(lo, items, queries, batch, search, block, sample, candidates, scratch, thresholds):
    """Collect the candidates that reach the thresholds in a range of panels, the sample first.

    Stage 0 ranks one half of the sample. Stage 1 ranks the other half and collects its candidates.
    Stage 2 collects the candidates of all panels except those of stage 1. Thresholds only rise, so
    every candidate of stage 1 that reaches the last threshold has been collected. Stage 1 tries
    projected codes with the first 32 queries, and stage 2 uses projected codes for all queries
    unless stage 1 has stopped using them for the first 32 queries.
    """
    metric_type, sample_stride = items.metric_type, search.sample_stride
    first_panel, last_panel = search.first_panel, search.last_panel
    capacity = candidates.entries.shape[1]
    bits = block.scores.view(np.int32)
    raise_at, share_at = first_panel, first_panel
    for stage in range(0 if sample_stride > 0 else 2, 3):
        first, step = first_panel, 1
        if stage < 2:
            first += sample_stride // 2 + stage * sample_stride
            step = 2 * sample_stride
        if stage == 2:
            abandon_costly_projections(_HITS_OF_STAGE_1, items, block)
            if items.projection.words > 0 and not block.projected.is_dense[0]:
                project_queries(
                    1, block.lanes.shape[0], lo, lo + block.used, batch, queries, items,
                    block.packed, block.lanes, block.scales, block.projected,
                )  # fmt: skip
        for p in range(first, last_panel, step):
            if sample.swept[p - first_panel]:
                continue
            sample.swept[p - first_panel] = stage == 1
            if stage == 2 and p >= raise_at and items.projection.words > 0:
                # With a higher threshold, the projected codes drop far more pairs. The threshold is
                # raised whenever the number of items doubles, because the k-th best score rises
                # with it.
                _raise_by_codes(batch, lo, queries, items, block, candidates, scratch)
                raise_at = first_panel + max((last_panel - first_panel) >> 3, 2 * (p - first_panel))
            if stage == 2 and p >= share_at and search.is_shared:
                _share_thresholds(lo, queries, batch, block, candidates, thresholds)
                share_at = p + 1 + ((last_panel - first_panel) >> _SHARING_SHIFT)
            for q in range(block.lanes.shape[0]):
                for at in range(_find_hits(stage, p, q, items, block, sample)):
                    hit = block.hits[at]
                    i, slot = q * PANEL + (hit & 31), p * PANEL + (hit >> 5)
                    candidates.entries[i, candidates.counts[i]] = (np.int64(bits[hit]) << 32) | slot
                    candidates.counts[i] += 1
                    if candidates.counts[i] == capacity:
                        query = batch[lo + i]
                        _tighten(metric_type, i, query, queries, items, block, candidates, scratch)


@borrowing_kernel
def _share_thresholds(lo, queries, batch, block, candidates, thresholds):
    """Write the proved k-th best scores of a block, and raise thresholds to shared ones.

    The thresholds are written without a lock, for the reason that the docstring of this module
    gives. A shared threshold that is NaN is ignored, because it fails the comparison.
    """
    k = candidates.scores.shape[1]
    for i in range(candidates.counts.shape[0]):
        q, lane, query = i >> 5, i & 31, batch[lo + i]
        scale = block.scales[q, lane]
        if candidates.lengths[i] == k:
            unit = np.float32(1.0) / scale
            bound = _lowered(threshold_of(query, queries, candidates.least[i], unit) * scale)
            if bound > thresholds[query]:
                thresholds[query] = bound
        shared = thresholds[query] / scale
        if shared > block.lanes[q, THRESHOLD, lane]:
            block.lanes[q, THRESHOLD, lane] = shared


@kernel
def search_block(lo, hi, items, queries, batch, search, results):
    """Find the neighbours of queries batch[lo:hi] in a range of panels.

    items is an Items, queries a Queries, batch (n',) an int64 array, and search a PanelSearch. The
    neighbours are written to the rows batch[lo:hi] of results, a SearchResults. The tiles perform
    O((hi - lo) m d) operations. The kernel allocates 36 capacity + 24 k + 4 sample_rank bytes and
    the packed bytes per query, 56 capacity + 32 k bytes per call, and up to 5 bytes per panel.
    """
    n, k = hi - lo, results.rows.shape[1]
    n_panels = search.last_panel - search.first_panel
    block = pack_block(lo, hi, batch, queries, items, k)
    candidates, scratch = _buffers(n, k, search.capacity, items.packed)
    start_tiles(items.isa, items.tile_configuration)
    best = np.empty((block.lanes.shape[0], search.sample_rank, PANEL), np.float32)
    swept = np.empty(n_panels, np.uint8)
    best[:], swept[:] = -NEVER, 0
    sample = _Sample(best, np.empty(PANEL, np.float32), swept)
    given_thresholds = np.empty(n, np.float32)
    for i in range(n):
        q, lane = i >> 5, i & 31
        bound = results.thresholds[batch[lo + i]] / block.scales[q, lane]
        if not search.is_shared and bound > block.lanes[q, THRESHOLD, lane]:
            block.lanes[q, THRESHOLD, lane] = bound
        given_thresholds[i] = block.lanes[q, THRESHOLD, lane]
    _sweep(
        lo, items, queries, batch, search, block, sample, candidates, scratch, results.thresholds
    )
    end_tiles(items.isa)
    if search.is_shared:
        _share_thresholds(lo, queries, batch, block, candidates, results.thresholds)
    _finish_block(items.metric_type, lo, batch, queries, items, block, candidates, scratch)
    _write_results(lo, queries, batch, search, block, candidates, given_thresholds, results)


@borrowing_kernel
def _write_results(lo, queries, batch, search, block, candidates, given_thresholds, results):
    k = results.rows.shape[1]
    for i in range(candidates.counts.shape[0]):
        query, scale = batch[lo + i], block.scales[i >> 5, i & 31]
        sort_best_first(candidates.scores[i], candidates.rows[i], candidates.lengths[i])
        write_best(
            candidates.scores[i], candidates.rows[i], candidates.lengths[i], results.scores[query],
            results.rows[query],
        )  # fmt: skip
        # The results need not contain a row below the given threshold, and a row below the k-th
        # best score is not a result.
        used, proved = block.lanes[i >> 5, THRESHOLD, i & 31], given_thresholds[i]
        if candidates.lengths[i] == k:
            bound = threshold_of(query, queries, candidates.least[i], np.float32(1.0) / scale)
            proved = max(proved, bound)
            lowered = _lowered(bound * scale)
            if lowered > results.thresholds[query]:
                results.thresholds[query] = lowered
        results.unproved[query] = -NEVER
        # A threshold can exceed the proved bound only if it is an estimate or the threshold of
        # another task.
        if used > proved and (search.sample_stride > 0 or search.is_shared):
            used *= scale
            results.unproved[query] = used + (abs(used) * SLACK + np.float32(1e-30)) * _ROUNDED_UP


@kernel
def _lowered(bound):
    return bound - abs(bound) * SLACK - np.float32(1e-30)


@kernel
def search_grid(lo, hi, addresses, queries, batch, grid, results):
    """Find the neighbours of queries batch (n',) in all panels, by the tasks lo to hi of a grid.

    addresses is an ItemAddresses, queries a Queries, and grid a TaskGrid. The neighbours are
    written to results, a SearchResults whose scores, rows and unproved have an axis of ranges in
    front, and whose thresholds are shared by all tasks. If grid.is_whole_search is true, lo and hi
    are panels, and _search_one_block searches this range of panels for all queries.
    """
    items = items_at(addresses)
    if grid.is_whole_search:
        _search_one_block(lo, hi, addresses, items, queries.rows, queries.filters, grid, results)
        return
    n_queries, n_panels = batch.shape[0], items.statistics.shape[0]
    for task in range(lo, hi):
        part = task % grid.n_ranges
        first = task // grid.n_ranges * grid.queries_per_block
        last = min(first + grid.queries_per_block, n_queries)
        first_panel = part * grid.panels_per_range
        last_panel = min(first_panel + grid.panels_per_range, n_panels)
        search = PanelSearch(
            first_panel, last_panel, grid.capacity, grid.sample_stride, grid.sample_rank,
            grid.n_ranges > 1,
        )  # fmt: skip
        own = SearchResults(
            results.thresholds, results.scores[part], results.rows[part], results.unproved[part]
        )
        search_block(first, last, items, queries, batch, search, own)


@kernel
def _search_one_block(lo, hi, addresses, items, query_rows, filters, grid, results):
    """Find the best k rows of panels lo to hi for each query of one block (n, d).

    The kernel performs the steps that Python performs around other grids: the queries are measured
    and scaled, searched with estimated thresholds, and those whose estimate was too high are
    searched again. For 33 queries among 1,000 rows of 64 columns, these steps would take longer in
    Python than the search. The results are written to part lo // panels_per_range. If
    grid.must_check is true and a query is not ordinary, rows[part, 0, 0] becomes NOT_ORDINARY and
    nothing is searched. The kernel allocates the memory of search_block, and 72 bytes per query.
    """
    part, n = lo // grid.panels_per_range, query_rows.shape[0]
    queries = scaled_queries(query_rows, filters, addresses, items.shift)
    if grid.must_check and not are_ordinary(queries.norms):
        results.rows[part, 0, 0] = NOT_ORDINARY
        return
    thresholds, unproved = np.empty(n, np.float32), np.empty(n, np.float32)
    thresholds[:] = -NEVER
    own = SearchResults(thresholds, results.scores[part], results.rows[part], unproved)
    unfinished, count, stride = numbers_below(n), n, grid.sample_stride
    first = np.int64(0)  # has the type of count, because a literal would be another signature
    while count > 0:
        search = PanelSearch(lo, hi, grid.capacity, stride, grid.sample_rank, False)
        search_block(first, count, items, queries, unfinished, search, own)
        searched, count, stride = count, 0, 0  # the second pass estimates no threshold
        for i in range(searched):
            query = unfinished[i]
            unfinished[count] = query
            count += unproved[query] > -NEVER

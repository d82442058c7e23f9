"""Exact top-k of many queries: candidates are collected in tiles, and rescored in float64.

Threshold. The first threshold tau of a query is an estimate. The kernel computes the largest score
of each panel in a sample. The r-th largest of these scores becomes tau, where the rank r is a
setting. The first part of the sample is a quarter of its panels, or a half if the sample is small.
The panels in the first part are scored twice: first only to estimate tau, and at the end to collect
candidates. In between, the other panels of the sample are scored, and their scores raise the
estimate of tau. With these panels, the search also begins to collect candidates
(``candidate_buffers``). At the end of a search, the estimate of tau is compared with the k-th best
score of the query. If the estimate was higher than the k-th best score, the search may have dropped
one of the best k rows. The query is then marked and searched again without an estimate.

Shared thresholds. A grid of tasks (``search_grid``) searches every query in several ranges of
panels at once. Unless each task performs a whole search (`is_whole_search` of BlockSettings), all
tasks share an array of float32. Each task writes its proved thresholds to the shared array and
reads the thresholds of other tasks, without taking a lock. The numbers that a task reads in the
shared array do not affect the results, for two reasons:

- A task writes a value to the shared array only after it has found k rows whose scores reach this
  value. The value is therefore a lower bound on the k-th best score among all panels. An update may
  be delayed, or may be lost because two tasks write at once. If an update is delayed or lost, the
  array still holds an older bound. The older bound is smaller than the new bound, so a search with
  the older bound drops fewer pairs.
- Even if a value in the shared array were wrong, the results would still be exact. For each query,
  a task compares two numbers: the k-th best score that the task found, and the last threshold that
  the task used. If the score is lower than the threshold, the task reports the threshold as
  ``unproved``. The reported threshold may be of any kind: an estimate, the threshold of another
  task, or even a torn or damaged value. If a task drops a pair because of a threshold, the float64
  score of the pair is strictly below this threshold. After the results of all ranges have been
  merged, the k-th best score of each query is compared with all thresholds that tasks reported for
  this query. If the score is below any of these thresholds, the query is searched again. The second
  search of a query uses no estimates. If a third search is necessary, its tasks do not share
  thresholds. NaN never becomes a threshold.

In this file, `query` is the index of a query in the search, and i is the position of the query in
the block. The index of the query's panel is q, and j is the position of the query in this panel.
The index of a panel of items is p.
"""

from typing import Any, NamedTuple

import numpy as np

from .candidate_buffers import (
    empty_candidates,
    empty_scratch,
    finish_block,
    lowered,
    make_room,
    raise_by_codes,
    write_results,
)
from .candidate_filter import NEVER, threshold_of
from .few_queries import STATUS_NOT_ORDINARY
from .jit import borrowing_kernel, inlined_kernel, kernel
from .projection import project_queries
from .projection_filter import abandon_costly_projections, find_hits_by_projection
from .query_blocks import (
    keep_refined_hits,
    list_hits,
    pack_block,
    rank_hits,
    rank_maxima,
    score_tile,
)
from .query_encoding import are_ordinary, with_norms_and_scaling
from .records import PanelSettings, SearchResults, items_at
from .simd.panel import PANEL, THRESHOLD
from .simd.tile_scores import end_tiles, start_tiles
from .tiles import numbers_below

# Stage 0 of _sweep scores a quarter of the sample if the sample has at least _SAMPLED_PER_RANK
# times as many panels as the rank of the threshold, and otherwise a half. A quarter of a smaller
# sample would give such low thresholds that stage 1 would collect too many candidates. With a
# quarter instead of a half, a search of 1,000 queries among 60,000 x 768 items takes 2 % less time.
_SAMPLED_PER_RANK = 16
# Stage 1 finds about this many times as many hits per tile as stage 2, because the thresholds of
# stage 1 are estimated from only a part of the sample.
_HITS_AFTER_A_QUARTER, _HITS_AFTER_A_HALF = 2.7, 2.0
# The panels of a task are divided into 2^_SHARING_SHIFT parts of equal size. Before each part, the
# task exchanges thresholds with the other tasks.
_SHARING_SHIFT = 4


class _Sample(NamedTuple):
    """The largest scores of a sample of panels.

    Attributes
    ----------
    best : float32 array (panels of queries, rank, 32)
        The sample contains one number for each query and panel: the largest score of the query in
        the panel. The array holds the `rank` largest of these numbers for each query, in descending
        order.
    largest : float32 array (32,)
        A buffer for the largest scores of one panel.
    scored_in : int8 array (panels,)
        The last stage of the sweep that has scored each panel, or -1. Stage 1 skips the panels of
        stage 0, and stage 2 skips the panels of stage 1, but not those of stage 0.
    """

    best: Any
    largest: Any
    scored_in: Any


@inlined_kernel
def _find_hits(stage, p, q, items, block, sample):
    """Write the hits of a tile to block.hits, and return the number of hits.

    If the tile belongs to the sample, the largest score of each query is also inserted into
    sample.best. In stage 0, which only estimates thresholds, the function lists no hits.
    """
    isa, n_hits = items.isa, -1
    if stage > 0:
        n_hits = find_hits_by_projection(isa, p, q, items, block)
    if n_hits < 0:
        score_tile(isa, p, q, items, block)
        if stage < 2:
            rank_maxima(p, q, items, block, sample.best[q], sample.largest)
        if stage == 0:
            return 0
        n_hits = list_hits(p, q, items, block)
        return keep_refined_hits(p, q, n_hits, items, block)
    n_hits = keep_refined_hits(p, q, n_hits, items, block)
    if stage < 2:
        rank_hits(p, q, n_hits, items, block, sample.best[q], sample.largest)
    return n_hits


@borrowing_kernel
def _sweep(lo, items, queries, batch, settings, block, sample, candidates, scratch, thresholds):
    """Search a range of panels in three stages; collect the candidates that reach the thresholds.

    Stage 0 scores the panels in the first part of the sample, and adds the largest score of each
    panel to a ranking. Stage 1 scores the other panels of the sample. It also adds their largest
    scores to the ranking, and it collects the candidates in these panels. Stage 2 collects the
    candidates in all panels that stage 1 has not searched. A threshold never falls, so a slot that
    reaches the final threshold also reaches every earlier threshold. Therefore, stage 1 has
    collected every slot in its panels that reaches the final threshold. As a trial, stage 1 of the
    sweep uses projected codes for the first 32 queries only. If the trial in stage 1 shows that
    projected codes are not too costly, stage 2 uses projected codes for all queries.
    """
    metric_type, sample_stride = items.metric_type, settings.sample_stride
    first_panel, last_panel = settings.first_panel, settings.last_panel
    capacity = candidates.entries.shape[1]
    bits = block.scores.view(np.int32)
    raise_at, share_at = first_panel, first_panel
    # Stage 0 scores one of `parts` consecutive panels of the sample, which is a half or a quarter.
    parts, hits_of_stage_1 = 2, _HITS_AFTER_A_HALF
    if last_panel - first_panel >= _SAMPLED_PER_RANK * settings.sample_rank * sample_stride:
        parts, hits_of_stage_1 = 4, _HITS_AFTER_A_QUARTER
    for stage in range(0 if sample_stride > 0 else 2, 3):
        first, stride = first_panel, 1
        if stage < 2:
            first += sample_stride // 2
            stride = sample_stride * (parts if stage == 0 else 1)
        if stage == 2:
            abandon_costly_projections(hits_of_stage_1, items, block)
            if items.projection.words > 0 and not block.projected.uses_full_codes[0]:
                project_queries(
                    1, block.bound_terms.shape[0], lo, lo + block.n_queries, batch, queries, items,
                    block.packed, block.bound_terms, block.steps, block.projected,
                )  # fmt: skip
        for p in range(first, last_panel, stride):
            if stage > 0 and sample.scored_in[p - first_panel] == stage - 1:
                continue
            sample.scored_in[p - first_panel] = stage
            if stage == 2 and p >= raise_at and items.projection.words > 0:
                # With a higher threshold, the projected codes drop far more pairs. The k-th best
                # score rises as more items are searched, so the threshold is raised whenever the
                # number of searched items has doubled.
                raise_by_codes(batch, lo, queries, items, block, candidates, scratch)
                raise_at = first_panel + max((last_panel - first_panel) >> 3, 2 * (p - first_panel))
            if stage == 2 and p >= share_at and settings.is_shared:
                _share_thresholds(lo, queries, batch, block, candidates, thresholds)
                share_at = p + 1 + ((last_panel - first_panel) >> _SHARING_SHIFT)
            for q in range(block.bound_terms.shape[0]):
                for at in range(_find_hits(stage, p, q, items, block, sample)):
                    hit = block.hits[at]
                    i, slot = q * PANEL + (hit & 31), p * PANEL + (hit >> 5)
                    candidates.entries[i, candidates.counts[i]] = (np.int64(bits[hit]) << 32) | slot
                    candidates.counts[i] += 1
                    if candidates.counts[i] == capacity:
                        query = batch[lo + i]
                        make_room(metric_type, i, query, queries, items, block, candidates, scratch)


@borrowing_kernel
def _share_thresholds(lo, queries, batch, block, candidates, thresholds):
    """Exchange proved thresholds with other tasks: share those of a block, and adopt higher ones.

    The thresholds are written without a lock; the docstring of this module explains why this is
    safe. A shared threshold that is NaN is ignored, because every comparison with NaN is false.
    """
    k = candidates.scores.shape[1]
    for i in range(candidates.counts.shape[0]):
        q, j, query = i >> 5, i & 31, batch[lo + i]
        step = block.steps[q, j]
        if candidates.lengths[i] == k:
            bound = threshold_of(query, queries, candidates.kth_scores[i], np.float32(1.0) / step)
            bound = lowered(bound * step)
            if bound > thresholds[query]:
                thresholds[query] = bound
        shared_threshold = thresholds[query] / step
        if shared_threshold > block.bound_terms[q, THRESHOLD, j]:
            block.bound_terms[q, THRESHOLD, j] = shared_threshold


@kernel
def search_block(lo, hi, items, queries, batch, settings, results):
    """Find the neighbours of queries batch[lo:hi] in a range of panels.

    `items` is an Items, `queries` is a Queries, `batch` (n',) int64 holds query numbers, `settings`
    is a PanelSettings, and `results` is a SearchResults. The neighbours of query batch[i] are
    written to row batch[i] of the arrays of results. The tiles perform O((hi - lo) m d) operations.
    The kernel allocates the packed queries, and additional memory:

    - 8 capacity + 16 k + 4 sample_rank + 36 bytes per query,
    - 28 bytes for each candidate that a buffer still holds at the end,
    - 1 byte per panel,
    - 36 capacity + 28 k bytes per call.
    """
    n, k = hi - lo, results.rows.shape[1]
    n_panels = settings.last_panel - settings.first_panel
    block = pack_block(lo, hi, batch, queries, items, np.int64(settings.use_projection))
    candidates = empty_candidates(n, k, settings.capacity)
    scratch = empty_scratch(k, settings.capacity, items.packed)
    start_tiles(items.isa, items.tile_configuration)
    best = np.empty((block.bound_terms.shape[0], settings.sample_rank, PANEL), np.float32)
    scored_in = np.empty(n_panels, np.int8)
    best[:], scored_in[:] = -NEVER, -1
    sample = _Sample(best, np.empty(PANEL, np.float32), scored_in)
    initial_thresholds = np.empty(n, np.float32)
    for i in range(n):
        q, j = i >> 5, i & 31
        bound = results.thresholds[batch[lo + i]] / block.steps[q, j]
        if not settings.is_shared and bound > block.bound_terms[q, THRESHOLD, j]:
            block.bound_terms[q, THRESHOLD, j] = bound
        initial_thresholds[i] = block.bound_terms[q, THRESHOLD, j]
    _sweep(
        lo, items, queries, batch, settings, block, sample, candidates, scratch, results.thresholds
    )
    end_tiles(items.isa)
    if settings.is_shared:
        _share_thresholds(lo, queries, batch, block, candidates, results.thresholds)
    finish_block(items.metric_type, lo, batch, queries, items, block, candidates, scratch)
    write_results(lo, queries, batch, settings, block, candidates, initial_thresholds, results)


@kernel
def search_grid(lo, hi, addresses, queries, batch, settings, results):
    """Run tasks lo to hi of a search, where `batch` (n',) holds the numbers of the queries.

    `addresses` is an ItemAddresses, `queries` is a Queries, and `settings` is a BlockSettings.
    `results` is a SearchResults. The arrays `scores`, `rows` and `unproved` of `results` have an
    additional first axis, with one entry per range of panels. All tasks share the array
    results.thresholds, unless settings.is_whole_search is true. If settings.is_whole_search is
    true, the kernel ignores `batch`, divides all queries into blocks, and performs each task by
    _search_whole_block. In this case, the kernel does not read any fields of `queries` except the
    rows and the filters, and writes only the scores and the rows of `results`.
    """
    items = items_at(addresses)
    n_queries = queries.rows.data.shape[0] if settings.is_whole_search else batch.shape[0]
    n_panels = items.statistics.shape[0]
    for task in range(lo, hi):
        range_number = task % settings.n_ranges
        first = task // settings.n_ranges * settings.queries_per_block
        last = min(first + settings.queries_per_block, n_queries)
        first_panel = range_number * settings.panels_per_range
        last_panel = min(first_panel + settings.panels_per_range, n_panels)
        if settings.is_whole_search:
            _search_whole_block(
                first, last, first_panel, last_panel, addresses, items, queries, settings,
                results.scores[range_number], results.rows[range_number],
            )  # fmt: skip
            continue
        panel_settings = PanelSettings(
            first_panel, last_panel, settings.capacity, settings.sample_stride,
            settings.sample_rank, settings.use_projection, settings.n_ranges > 1,
        )  # fmt: skip
        results_of_range = SearchResults(
            results.thresholds, results.scores[range_number], results.rows[range_number],
            results.unproved[range_number],
        )  # fmt: skip
        search_block(first, last, items, queries, batch, panel_settings, results_of_range)


@kernel
def _search_whole_block(
    first, last, first_panel, last_panel, addresses, items, queries, settings, scores, rows
):
    """Find the best k rows of a range of panels for queries `first` to `last`, without Python code.

    If settings.is_whole_search is false, Python performs some of the steps of this kernel. The
    kernel computes the norms and the scaling of the queries, and searches with estimated
    thresholds. If the estimate of a query was too high, the kernel searches this query again. For
    33 queries among 1,000 rows of 64 columns, computing norms and scaling in Python would take
    longer than the search. The results are written to positions `first` to `last` of `scores` (n,
    k) and `rows` (n, k). If settings.check_norms is true and the norm of any of the n queries is
    not ordinary, rows[first, 0] becomes STATUS_NOT_ORDINARY and nothing is searched. The kernel
    allocates as much memory as search_block, and additional memory for each of the n queries: 60
    bytes if the filters have self_rows, and otherwise 76 bytes.
    """
    n = queries.rows.data.shape[0]
    queries = with_norms_and_scaling(queries.rows, queries.filters, addresses, items.shift)
    if settings.check_norms and not are_ordinary(queries.norms):
        rows[first, 0] = STATUS_NOT_ORDINARY
        return
    thresholds, unproved = np.empty(n, np.float32), np.empty(n, np.float32)
    thresholds[:] = -NEVER
    results = SearchResults(thresholds, scores, rows, unproved)
    unfinished, stride = numbers_below(n), settings.sample_stride
    while first < last:
        panel_settings = PanelSettings(
            first_panel, last_panel, settings.capacity, stride, settings.sample_rank,
            settings.use_projection, False,
        )  # fmt: skip
        search_block(first, last, items, queries, unfinished, panel_settings, results)
        n_searched, last, stride = last, first, 0  # the second pass estimates no thresholds
        for i in range(first, n_searched):
            query = unfinished[i]
            unfinished[last] = query
            last += unproved[query] > -NEVER

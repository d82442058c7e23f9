"""Candidates of a block of queries: buffers, thresholds, and float64 scores of the best candidates.

A candidate of a query is a slot (the position of a packed item) whose tile score reaches the
threshold tau of the query. Each query has a buffer of candidates. When the buffer of a query is
full, and at the end of the search, the best candidates are scored in float64. To choose them, the
kernel estimates the value K of each candidate from its tile score (``candidate_filter``), and
determines the k-th largest value among these estimates and the best rows that have been scored
before. The candidates whose estimates reach this value are scored. There may be fewer than k of
them, because scored rows count, too. There may be more than k of them if estimates are equal. The
k-th best float64 score is a lower bound on the k-th best of all scores, and becomes the next tau.
The rows with the best estimates are nearly the same as the rows with the best scores. The next tau
is therefore close to the k-th best score of the rows that have been searched. After tau has risen,
the candidates whose upper bounds do not reach tau are dropped; their float64 scores are never
computed. If the remaining candidates of a full buffer still fill more than half of it, all of them
are scored. This happens if there are many near-duplicates. If a query has few candidates at the end
of a block, all of them are scored.

At the end of a block, the remaining candidates of all queries are scored together, in the order of
the items. For 60,000 rows of 768 columns, scoring in the order of the items is 1.7 times as fast as
scoring query by query.

Items with equal scores are ordered by item number. Results contain only float64 scores
(``pair_scores``), so results do not depend on tiles, blocks or estimates.

In this file, `query` is the index of a query in the search, and i is the position of the query in
the block. The index of the query's panel is q, and j is the position of the query in this panel.
The index of a panel of items is p.
"""

from typing import Any, NamedTuple

import numpy as np

from .candidate_filter import NEVER, is_excluded, score_rounding, threshold_of
from .jit import borrowing_kernel, inlined_kernel, kernel
from .packing import SLACK
from .pair_scores import order_by_item, score_pairs, score_pairs_by_item
from .select import kth_largest, select_best, sort_best_first, write_best
from .simd.panel import (
    CODE_NORM,
    INVERSE_STEP,
    MAX_NORM,
    MAX_RESIDUAL,
    OFFSET_WEIGHT,
    RESIDUAL_NORM,
    THRESHOLD,
)

# SLACK is a bound on relative rounding errors. Before a task shares a threshold that it has proved,
# it lowers the threshold by SLACK (``lowered``). A task may also report a threshold that it has not
# proved: an estimate, or the threshold of another task. The task raises such a threshold by
# _ROUNDED_UP * SLACK, which is less than SLACK. Therefore, if one task lowers and shares a
# threshold and another task raises and reports it, the reported threshold does not exceed the k-th
# best score.
_ROUNDED_UP = np.float32(0.25)
# At the end of a block of n queries, all candidates of a query are scored if there are at most
# _SCORED_AT_ONCE // n of them. Choosing the best candidates of a query takes 2 us, whereas scoring
# one candidate takes 0.02 to 0.1 us.
_SCORED_AT_ONCE = 64


class Candidates(NamedTuple):
    """The candidates of a block of n queries, and the best rows found so far for each query.

    Attributes
    ----------
    entries : int64 array (n, capacity)
        The candidates that have not been scored in float64, each stored as (bits of the tile score
        << 32) | slot. In a self-join, the upper bits may hold an integer that represents a bound
        instead of a tile score (``self_join``).
    counts : int64 array (n,)
        The number of candidates of each query that have not been scored in float64.
    scores, rows : float64 and int64 array (n, k)
        The best rows among those that have been scored in float64, and the scores of these best
        rows, in any order.
    lengths : int64 array (n,)
        For each query, the number of rows that `rows` currently holds; this number is at most k.
    kth_scores : float64 array (n,)
        The k-th best float64 score of each query, or -inf if fewer than k rows have been scored.
    """

    entries: Any
    counts: Any
    scores: Any
    rows: Any
    lengths: Any
    kth_scores: Any


class Scratch(NamedTuple):
    """Buffers that are reused for each query.

    `values` holds tile scores in the type of the tiles, and `estimates` holds estimates of K (see
    ``candidate_filter``). `keys` holds the numbers whose k-th largest is selected: lower bounds on
    K in raise_by_codes, and estimates and thresholds in _best_to_front. `scores` and `rows` hold
    the pairs that are being merged into the best k.
    """

    values: Any
    estimates: Any
    keys: Any
    scores: Any
    rows: Any


@kernel
def empty_candidates(n, k, capacity):
    """Return an empty Candidates for n queries and k neighbours."""
    counts, lengths, kth_scores = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    counts[:], lengths[:], kth_scores[:] = 0, 0, -np.inf
    return Candidates(
        np.empty((n, capacity), np.int64), counts, np.empty((n, k)), np.empty((n, k), np.int64),
        lengths, kth_scores,
    )  # fmt: skip


@kernel
def empty_scratch(k, capacity, packed):
    """Return a Scratch whose tile scores have the type of `packed`."""
    return Scratch(
        np.empty(capacity, packed.dtype), np.empty(capacity, np.float32),
        np.empty(capacity + k, np.float32), np.empty(2 * (capacity + k)),
        np.empty(capacity + k, np.int64),
    )  # fmt: skip


@inlined_kernel
def _estimate(i, query, queries, items, block, candidates, scratch):
    """Drop the candidates of a query that a filter excludes, and estimate the other candidates' K.

    The estimates are written to scratch.estimates.
    """
    entries, estimates, values = candidates.entries[i], scratch.estimates, scratch.values
    bits = values.view(np.int32)
    row_of_slot, offsets, statistics = items.row_of_slot, items.small_offsets, items.statistics
    weight, filters = block.bound_terms[i >> 5, OFFSET_WEIGHT, i & 31], queries.filters
    # The code of passes_filters is repeated here, because calling it for every candidate would take
    # a fifth of the time of a search with k = 100.
    first, last = filters.excluded_indptr[query], filters.excluded_indptr[query + 1]
    self_row, allowed = filters.self_rows[query], filters.allowed
    excluded = filters.excluded_rows
    n_passing = 0
    for entry in range(candidates.counts[i]):
        candidate = entries[entry]
        slot = candidate & 0xFFFFFFFF
        row = row_of_slot[slot]
        if row == self_row or (allowed.shape[0] > 0 and allowed[row] == 0):
            continue
        if first < last and is_excluded(row, excluded, first, last):
            continue
        bits[n_passing] = np.int32(candidate >> 32)
        value = np.float32(values[n_passing]) / statistics[slot >> 5, INVERSE_STEP]
        estimates[n_passing] = value
        if offsets.shape[0] > 0:
            estimates[n_passing] += weight * offsets[slot]
        entries[n_passing] = candidate
        n_passing += 1
    candidates.counts[i] = n_passing


@borrowing_kernel
def _best_to_front(i, query, queries, items, block, candidates, scratch, max_count):
    """Move the candidates with the best estimates to the front; return how many were moved.

    The estimates of the candidates and the thresholds that correspond to the best scores so far are
    ranked together. The candidates whose estimates reach the k-th largest of these numbers are
    moved. If there are at most max_count candidates, or if there are at most k numbers, all
    candidates are moved.
    """
    _estimate(i, query, queries, items, block, candidates, scratch)
    entries, estimates, keys = candidates.entries[i], scratch.estimates, scratch.keys
    count, length, k = candidates.counts[i], candidates.lengths[i], candidates.scores.shape[1]
    if count + length <= k or count <= max_count:
        return count
    inverse_step = np.float32(1.0) / block.steps[i >> 5, i & 31]
    for entry in range(count):
        keys[entry] = estimates[entry]
    for entry in range(length):
        score = candidates.scores[i, entry]
        keys[count + entry] = threshold_of(query, queries, score, inverse_step)
    kth_estimate = kth_largest(keys, count + length, k)
    n_front = 0
    for entry in range(count):
        if estimates[entry] >= kth_estimate:
            entries[entry], entries[n_front] = entries[n_front], entries[entry]
            estimates[entry], estimates[n_front] = estimates[n_front], estimates[entry]
            n_front += 1
    return n_front


@borrowing_kernel
def _keep_reaching(n_front, i, items, block, candidates, scratch):
    """Drop the first n_front candidates, and all candidates whose upper bounds do not reach tau."""
    entries, values = candidates.entries[i], scratch.values
    bits = values.view(np.int32)
    offsets, statistics = items.small_offsets, items.statistics
    bound_terms = block.bound_terms[i >> 5, :, i & 31]
    threshold, weight = bound_terms[THRESHOLD], bound_terms[OFFSET_WEIGHT]
    residual_norm, code_norm = bound_terms[RESIDUAL_NORM], bound_terms[CODE_NORM]
    n_reaching = 0
    for entry in range(n_front, candidates.counts[i]):
        candidate = entries[entry]
        slot = candidate & 0xFFFFFFFF
        p = slot >> 5
        bits[0] = np.int32(candidate >> 32)
        offset = weight * offsets[slot] if offsets.shape[0] > 0 else np.float32(0.0)
        upper = np.float32(values[0]) / statistics[p, INVERSE_STEP] + offset + abs(offset) * SLACK
        upper += residual_norm * statistics[p, MAX_NORM] + code_norm * statistics[p, MAX_RESIDUAL]
        entries[n_reaching] = candidate
        n_reaching += upper >= threshold
    candidates.counts[i] = n_reaching


@borrowing_kernel
def raise_by_codes(batch, lo, queries, items, block, candidates, scratch):
    """For each query that uses projected codes, raise tau to its k-th largest lower bound.

    Two kinds of queries are left out: queries with fewer than k candidates, and queries whose panel
    uses full codes only. The codes of a candidate give a lower bound on its K. However, the K that
    is computed from the float64 score of the candidate may be below this lower bound, because the
    float64 score has a rounding error. The difference is at most the result of ``score_rounding``.
    This result is therefore subtracted from the new tau.
    """
    k, statistics = candidates.scores.shape[1], items.statistics
    for i in range(candidates.counts.shape[0]):
        q, j = i >> 5, i & 31
        if candidates.counts[i] < k or block.projected.uses_full_codes[q]:
            continue
        query = batch[lo + i]
        _estimate(i, query, queries, items, block, candidates, scratch)
        rounding = np.float32(score_rounding(query, queries) / block.steps[q, j])
        bound_terms = block.bound_terms[q]
        residual_norm, code_norm = bound_terms[RESIDUAL_NORM, j], bound_terms[CODE_NORM, j]
        weight, count = bound_terms[OFFSET_WEIGHT, j], candidates.counts[i]
        for entry in range(count):
            slot = candidates.entries[i, entry] & 0xFFFFFFFF
            p = slot >> 5
            error = residual_norm * statistics[p, MAX_NORM]
            error += code_norm * statistics[p, MAX_RESIDUAL]
            if items.small_offsets.shape[0] > 0:
                error += abs(weight * items.small_offsets[slot]) * SLACK
            scratch.keys[entry] = scratch.estimates[entry] - error
        if count >= k:
            bound = kth_largest(scratch.keys, count, k) - rounding
            bound_terms[THRESHOLD, j] = max(bound_terms[THRESHOLD, j], bound)


@borrowing_kernel
def _merge_scores(i, count, scratch, candidates):
    """Merge the first `count` scores and rows of `scratch` into the best k of query i."""
    scores, rows = scratch.scores, scratch.rows
    best_scores, best_rows = candidates.scores[i], candidates.rows[i]
    length = candidates.lengths[i]
    for entry in range(length):
        scores[count + entry], rows[count + entry] = best_scores[entry], best_rows[entry]
    total, k = count + length, best_scores.shape[0]
    if count > 0 and total >= k:
        candidates.kth_scores[i] = select_best(scores, rows, total, k, scores[total:])
        total = k
    for entry in range(total):
        best_scores[entry], best_rows[entry] = scores[entry], rows[entry]
    candidates.lengths[i] = total


@inlined_kernel
def _raise_threshold(i, query, queries, block, candidates):
    """Raise tau of query i to the k-th best score, if at least k candidates have been scored."""
    if candidates.lengths[i] == candidates.scores.shape[1]:
        q, j = i >> 5, i & 31
        inverse_step = np.float32(1.0) / block.steps[q, j]
        bound = threshold_of(query, queries, candidates.kth_scores[i], inverse_step)
        block.bound_terms[q, THRESHOLD, j] = max(block.bound_terms[q, THRESHOLD, j], bound)


@borrowing_kernel
def _score_front(metric_type, i, query, n_front, queries, items, block, candidates, scratch):
    """Score the first n_front candidates of query i in float64, and raise tau."""
    for entry in range(n_front):
        scratch.rows[entry] = items.row_of_slot[candidates.entries[i, entry] & 0xFFFFFFFF]
    score_pairs(
        metric_type, queries.rows, query, queries.norms[query], items.rows, items.norms,
        items.bias, scratch.rows, n_front, scratch.scores,
    )  # fmt: skip
    _merge_scores(i, n_front, scratch, candidates)
    _raise_threshold(i, query, queries, block, candidates)


@borrowing_kernel
def make_room(metric_type, i, query, queries, items, block, candidates, scratch):
    """Make room in the full buffer of query i: raise tau, and drop candidates below tau."""
    n_front = _best_to_front(i, query, queries, items, block, candidates, scratch, 0)
    # The loop is written so that the code calls _score_front at only one place. If there were more
    # places, LLVM would copy the code of _score_front to each of them.
    while True:
        _score_front(metric_type, i, query, n_front, queries, items, block, candidates, scratch)
        _keep_reaching(n_front, i, items, block, candidates, scratch)
        if candidates.counts[i] <= candidates.entries.shape[1] // 2:
            break
        n_front = candidates.counts[i]


@kernel
def _list_pairs(front_counts, lo, batch, items, candidates):
    """Pair each query i of the block with its first front_counts[i] candidates; return the pairs.

    The function returns the query and the row of each pair, and the order in which the pairs are to
    be scored. The returned order is roughly the order of the items in memory.
    """
    total = 0
    for n_front in front_counts:
        total += n_front
    query_numbers, rows = np.empty(total, np.int64), np.empty(total, np.int64)
    _write_pairs(front_counts, lo, batch, items, candidates, query_numbers, rows)
    return query_numbers, rows, order_by_item(rows, items.rows.data.shape[0])


@borrowing_kernel
def _write_pairs(front_counts, lo, batch, items, candidates, query_numbers, rows):
    """Write to `query_numbers` and `rows` the pairs that _list_pairs returns."""
    at = 0
    for i in range(front_counts.shape[0]):
        for entry in range(front_counts[i]):
            query_numbers[at] = batch[lo + i]
            rows[at] = items.row_of_slot[candidates.entries[i, entry] & 0xFFFFFFFF]
            at += 1


@kernel
def _score_together(
    metric_type, front_counts, lo, batch, queries, items, block, candidates, scratch
):
    """For each query i of a block, score the first front_counts[i] candidates, and raise tau.

    The scores are merged into the best k rows of each query.
    """
    query_numbers, rows, order = _list_pairs(front_counts, lo, batch, items, candidates)
    scores = np.empty(rows.shape[0])
    score_pairs_by_item(
        metric_type, query_numbers, rows, order, queries.rows, queries.norms, items.rows,
        items.norms, items.bias, scores,
    )  # fmt: skip
    _merge_fronts(front_counts, lo, batch, rows, scores, queries, block, candidates, scratch)


@borrowing_kernel
def _merge_fronts(front_counts, lo, batch, rows, scores, queries, block, candidates, scratch):
    """Merge scores into the best k of each query, and raise tau.

    The scores belong to the pairs that _list_pairs returned.
    """
    at = 0
    for i in range(front_counts.shape[0]):
        count = 0
        for _ in range(front_counts[i]):
            scratch.scores[count], scratch.rows[count] = scores[at], rows[at]
            count += not scores[at] < candidates.kth_scores[i]
            at += 1
        _merge_scores(i, count, scratch, candidates)
        _raise_threshold(i, batch[lo + i], queries, block, candidates)


@kernel
def finish_block(metric_type, lo, batch, queries, items, block, candidates, scratch):
    """Score the candidates that remain in the buffers at the end of a block.

    The candidates with the best estimates are scored first, and their scores raise the thresholds.
    A second step scores the candidates whose upper bounds reach the raised thresholds.
    """
    front_counts = np.empty(candidates.counts.shape[0], np.int64)
    max_count = _SCORED_AT_ONCE // front_counts.shape[0]
    for step in range(2):
        total = 0
        for i in range(front_counts.shape[0]):
            if step == 0:
                front_counts[i] = _best_to_front(
                    i, batch[lo + i], queries, items, block, candidates, scratch, max_count
                )
            else:
                _keep_reaching(front_counts[i], i, items, block, candidates, scratch)
                front_counts[i] = candidates.counts[i]
            total += front_counts[i]
        if total > 0:
            _score_together(
                metric_type, front_counts, lo, batch, queries, items, block, candidates, scratch
            )


@borrowing_kernel
def write_results(lo, queries, batch, settings, block, candidates, initial_thresholds, results):
    """Write the best rows, the proved threshold and the unproved threshold of each query."""
    k = results.rows.shape[1]
    for i in range(candidates.counts.shape[0]):
        query, step = batch[lo + i], block.steps[i >> 5, i & 31]
        sort_best_first(candidates.scores[i], candidates.rows[i], candidates.lengths[i])
        write_best(
            candidates.scores[i], candidates.rows[i], candidates.lengths[i], results.scores[query],
            results.rows[query],
        )  # fmt: skip
        # Two thresholds are proved: the initial threshold and the k-th best score. The search need
        # not find rows below the initial threshold, and a row below the k-th best score cannot be a
        # result.
        used, proved = block.bound_terms[i >> 5, THRESHOLD, i & 31], initial_thresholds[i]
        if candidates.lengths[i] == k:
            bound = threshold_of(query, queries, candidates.kth_scores[i], np.float32(1.0) / step)
            proved = max(proved, bound)
            shared_threshold = lowered(bound * step)
            if shared_threshold > results.thresholds[query]:
                results.thresholds[query] = shared_threshold
        results.unproved[query] = -NEVER
        # If the threshold in use is above both proved thresholds, this task has not proved it. Such
        # a threshold is an estimate, or another task has shared it.
        if used > proved and (settings.sample_stride > 0 or settings.is_shared):
            used *= step
            results.unproved[query] = used + (abs(used) * SLACK + np.float32(1e-30)) * _ROUNDED_UP


@kernel
def lowered(bound):
    """Lower a threshold by more than the rounding error of a float32 product; return the result."""
    return bound - abs(bound) * SLACK - np.float32(1e-30)

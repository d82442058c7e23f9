"""Exact top-k of a self-join: the queries are the items, and most pairs are multiplied only once.

In a self-join, row b may be a neighbour of row a, and row a may be a neighbour of row b. The inner
product of a and b decides in both cases. The kernel therefore multiplies the codes of a pair once,
and compares the product with the thresholds of both rows. There are two exceptions. A tile contains
every pair within one panel twice. If one of the rows is in a sampled panel, the pair is multiplied
not only to find candidates, but also in the stage ``FIRST``, which estimates thresholds. With AVX2
and k = 10, a self-join of 30,000 rows of 384 columns takes 23 to 33 % less time than a search that
multiplies every pair twice (``docs/dev/costs.md``, "Self-joins").

Stages. Python divides the panels into blocks, and calls the kernel for one stage after another. The
stage is a field of the settings:

- Stage ``FIRST`` packs the rows of every block as queries, and estimates their thresholds from a
  sample of panels, as ``tile_top_k`` does.
- In a round, each block is compared with one other block. A task compares two blocks, and changes
  the thresholds and candidates of both. No block belongs to two tasks of a round, so the tasks of a
  round can run at the same time without a lock. The number m of blocks is even. In m - 1 rounds,
  each block is compared with every other block, like the players of a chess tournament
  (``opponents``).
- Stage ``LAST`` compares the rows of each block with each other, scores the remaining candidates in
  float64, and writes the results (``candidate_buffers``).

Bound. Let j be a query and i an item. Let v be the product of the codes of j and i. In the notation
of ``candidate_filter``, v gives the following bound on the inner product of the scaled rows:

    a'(j) · b'(i) ≤ s(j) (v t(i) + error(j)),  error(j) = (|e| N + |s q| R + SLACK |a'| N) / s(j).

Here N and R belong to the panel of i. If hits are refined (``query_blocks``), v is the refined
score of a hit. In this case, the bound term of refined scores replaces |e|. Let slope(j) be the
slope of query j (``query_encoding``). For every row i, the scaled query a'(i) and the scaled item
b'(i) are proportional, so

    a'(i) · b'(j) / slope(i) = a'(j) · b'(i) / slope(j),

apart from rounding errors. SLACK covers the rounding errors of this equation, and those of the
float32 operations of this file. The bound for rotated rows is 2^-17.8 (``packing``). SLACK exceeds
this bound by 180 times the largest relative rounding error of one float32 operation. Let unit(j) be
s(j) / slope(j), multiplied by a constant that is the same for all rows. All bound terms of row i
are divided by s(i). The inner product a'(i) · b'(j), divided by s(i), is therefore at most

    (v t(i) + error(j)) unit(j) / unit(i).

The product of the offset of j and the weight of i is added to this bound. If row j becomes a
candidate of row i, the candidate is stored with an integer instead of a tile score. The integer
represents the bound: ``candidate_buffers`` converts the integer to a number that is at least the
bound. The functions of ``candidate_buffers`` therefore treat both rows of a pair alike. It does not
matter which of the two rows was the query when the product was computed.
"""

import numpy as np

from .candidate_buffers import (
    Candidates,
    empty_scratch,
    finish_block,
    make_room,
    write_results,
)
from .candidate_filter import NEVER, product_below
from .jit import borrowing_kernel, kernel
from .projection import empty_projected_queries
from .query_blocks import Block, pack_block, rank_maxima, refine_hits, score_tile
from .records import PanelSettings, items_at
from .simd.hits import list_hits_of_both
from .simd.instruction_sets import int16_words
from .simd.panel import (
    CODE_NORM,
    GROUP,
    INVERSE_STEP,
    MAX_NORM,
    MAX_OFFSET,
    MAX_RESIDUAL,
    MIN_OFFSET,
    N_BOUND_TERMS,
    OFFSET_WEIGHT,
    PANEL,
    RESIDUAL_NORM,
    THRESHOLD,
    UNREFINED_RESIDUAL_NORM,
)
from .tiles import aligned_empty

# A self-join begins with the stage FIRST and ends with the stage LAST. The stages between these two
# are the rounds, which are numbered from 0.
FIRST, LAST = -1, -2
# A task divides its panels of queries into groups of this many panels. It compares a group with
# every panel of items before it begins with the next group, so that the queries of the group stay
# in the second-level cache. The results are also written group by group.
PANELS_AT_ONCE = 8
# The inner product of two rows of codes is below this number, and the number fits in int32.
_LARGEST_PRODUCT = np.float32(2.1e9)


@kernel
def search_self_join(lo, hi, addresses, queries, batch, settings, state, results):
    """Run tasks lo to hi of one stage of a self-join.

    `addresses` is an ItemAddresses. The items of the self-join are packed as int8 codes, for an
    instruction set without tile registers. `queries` is a Queries, and `batch` (n,) holds the
    number of the row in each slot. `settings` is a SelfJoinSettings, `state` is a SelfJoinState,
    and `results` is a SearchResults. In the stages FIRST and LAST, task t processes block t. In a
    round, task t compares two blocks. In the stage LAST, the neighbours of query batch[i] are
    written to row batch[i] of the arrays of results. All stages together perform O(n^2 d / 2)
    operations. A call allocates 36 * capacity + 28 * k bytes, and the buffers of a tile; the caller
    allocates the SelfJoinState. In two stages, a call allocates additional memory. In the stage
    FIRST, these are the packed queries of a block, and 4 * sample_rank bytes per query. In the
    stage LAST, they are 28 bytes for each remaining candidate of up to 256 rows.
    """
    items = items_at(addresses)
    candidates = state.candidates
    n, k, capacity = batch.shape[0], candidates.scores.shape[1], candidates.entries.shape[1]
    n_panels, per_block = items.statistics.shape[0], settings.panels_per_block
    scratch = empty_scratch(k, capacity, items.packed)
    tile = aligned_empty(PANEL * PANEL, items.packed)
    terms = np.empty((4, PANEL), np.float32)
    block = Block(
        state.packed, PANEL * items.words, n, state.bound_terms, state.steps, state.corrections,
        state.remainders, tile, np.empty(PANEL * PANEL, np.int32), np.empty(GROUP, np.int32),
        empty_projected_queries(0, items),
    )  # fmt: skip
    # Of these settings, a self-join only uses sample_stride and is_shared, in write_results.
    panel_settings = PanelSettings(
        0, n_panels, capacity, settings.sample_stride, settings.sample_rank, False, False
    )
    for task in range(lo, hi):
        first, second = task, task
        if settings.stage >= 0:
            first, second = opponents(task, settings.stage, settings.n_blocks)
        q0, p0 = first * per_block, second * per_block
        q1, p1 = min(q0 + per_block, n_panels), min(p0 + per_block, n_panels)
        if q0 >= n_panels or p0 >= n_panels:
            continue
        if settings.stage == FIRST:
            _start_block(q0, q1, queries, batch, items, settings, state, results)
            continue
        for q in range(q0, q1, PANELS_AT_ONCE):
            last_q = min(q + PANELS_AT_ONCE, q1)
            _compare_panels(
                q, last_q, max(p0, q), p1, batch, queries, items, block, state.units, terms,
                candidates, scratch,
            )  # fmt: skip
        if settings.stage == LAST:
            for q in range(q0, q1, PANELS_AT_ONCE):
                last_q = min(q + PANELS_AT_ONCE, q1)
                _finish_panels(
                    q, last_q, batch, queries, items, block, state, scratch, panel_settings, results
                )


@kernel
def _finish_panels(q0, q1, batch, queries, items, block, state, scratch, panel_settings, results):
    """Score the remaining candidates of query panels q0 to q1, and write the results."""
    lo, hi, candidates = q0 * PANEL, min(q1 * PANEL, batch.shape[0]), state.candidates
    block_of_panels = Block(
        block.packed, block.size, hi - lo, state.bound_terms[q0:q1], state.steps[q0:q1],
        state.corrections, block.remainders, block.scores, block.hits, block.products,
        block.projected,
    )  # fmt: skip
    candidates_of_panels = Candidates(
        candidates.entries[lo:hi], candidates.counts[lo:hi], candidates.scores[lo:hi],
        candidates.rows[lo:hi], candidates.lengths[lo:hi], candidates.kth_scores[lo:hi],
    )  # fmt: skip
    finish_block(
        items.metric_type, lo, batch, queries, items, block_of_panels, candidates_of_panels, scratch
    )
    write_results(
        lo, queries, batch, panel_settings, block_of_panels, candidates_of_panels,
        state.initial_thresholds[lo:hi], results,
    )  # fmt: skip


@borrowing_kernel
def opponents(task, round_number, n_blocks):
    """Return the two blocks that a task compares in a round, the smaller number first.

    The n_blocks blocks are like players of a tournament in which everybody plays against everybody
    else, and n_blocks is even. The last player keeps its seat, and the others move by one seat
    after every round. If a block has no panels, its tasks have nothing to do.
    """
    n_moving = n_blocks - 1
    first = (round_number + task) % n_moving
    second = (round_number - task) % n_moving if task > 0 else n_moving
    return min(first, second), max(first, second)


@kernel
def _start_block(q0, q1, queries, batch, items, settings, state, results):
    """Pack query panels q0 to q1, and estimate their thresholds from a sample of the item panels.

    The results are written to `state`.
    """
    start, stop = q0 * PANEL, min(q1 * PANEL, batch.shape[0])
    block = pack_block(start, stop, batch, queries, items, 0)
    for i in range(start, stop):
        q, j, query = i // PANEL, i % PANEL, batch[i]
        step = block.steps[q - q0, j]
        threshold = results.thresholds[query] / step
        if threshold > block.bound_terms[q - q0, THRESHOLD, j]:
            block.bound_terms[q - q0, THRESHOLD, j] = threshold
        state.initial_thresholds[i] = block.bound_terms[q - q0, THRESHOLD, j]
        ratio = queries.scaling.slopes[batch[0]] / queries.scaling.slopes[query]
        state.units[q, j] = step * np.float32(ratio)
    best = np.empty((q1 - q0, settings.sample_rank, PANEL), np.float32)
    best[:], largest = -NEVER, np.empty(PANEL, np.float32)
    for p in range(settings.sample_stride // 2, items.statistics.shape[0], settings.sample_stride):
        for q in range(q1 - q0):
            _score_tile(p, q, items, block)
            rank_maxima(p, q, items, block, best[q], largest)
    _store_block(q0, block, state)


@borrowing_kernel
def _store_block(q0, block, state):
    """Copy a block of packed queries into `state`, from panel q0 on.

    The arrays are copied by loops, because Numba takes 2 s to compile assignments of slices.
    """
    for at in range(block.packed.shape[0]):
        state.packed[q0 * block.size + at] = block.packed[at]
    for at in range(block.remainders.codes.shape[0]):
        state.remainders.codes[q0 * block.size + at] = block.remainders.codes[at]
    for at in range(block.remainders.ratios.shape[0]):
        state.remainders.ratios[q0 * PANEL + at] = block.remainders.ratios[at]
        state.remainders.corrections[q0 * PANEL + at] = block.remainders.corrections[at]
    for q in range(block.steps.shape[0]):
        for j in range(PANEL):
            state.steps[q0 + q, j] = block.steps[q, j]
            state.corrections[(q0 + q) * PANEL + j] = block.corrections[q * PANEL + j]
            for term in range(N_BOUND_TERMS):
                state.bound_terms[q0 + q, term, j] = block.bound_terms[q, term, j]


@borrowing_kernel
def _score_tile(p, q, items, block):
    """Score a tile like ``score_tile``, with code that is compiled once for all callers."""
    score_tile(items.isa, p, q, items, block)


@borrowing_kernel
def _compare_panels(
    q0, q1, p0, p1, batch, queries, items, block, units, terms, candidates, scratch
):
    """Compare query panels q0 to q1 with item panels p0 to p1; collect candidates of all rows.

    Query panel q is compared only with the item panels from q on, so that each pair of panels is
    compared once. `terms` (4, 32) is overwritten.
    """
    minima, slopes, errors, thresholds = terms[0], terms[1], terms[2], terms[3]
    for p in range(p0, p1):
        for q in range(q0, min(q1, p + 1)):
            _score_tile(p, q, items, block)
            _set_terms(
                p, q, UNREFINED_RESIDUAL_NORM, items.statistics, block.bound_terms, units, terms
            )
            n_hits = list_hits_of_both(
                block.scores, minima, slopes, errors, thresholds,
                batch.shape[0] - p * PANEL, block.hits,
            )  # fmt: skip
            if int16_words(items.isa) > 0 and n_hits > 0:
                refine_hits(p, q, n_hits, items, block)
                _set_terms(p, q, RESIDUAL_NORM, items.statistics, block.bound_terms, units, terms)
            for at in range(n_hits):
                hit = block.hits[at]
                i, j = hit >> 5, hit & 31
                product = np.float32(block.scores[hit])
                if product >= minima[j]:
                    _add_candidate(
                        q * PANEL + j, np.int64(block.scores[hit]), p * PANEL + i, batch, queries,
                        items, block, candidates, scratch,
                    )  # fmt: skip
                if p > q and product >= thresholds[i] * slopes[j] - errors[j]:
                    upper = (product + errors[j]) / slopes[j] / units[p, i]
                    bound_terms, statistics = block.bound_terms[p], items.statistics[q]
                    upper -= bound_terms[RESIDUAL_NORM, i] * statistics[MAX_NORM]
                    upper -= bound_terms[CODE_NORM, i] * statistics[MAX_RESIDUAL]
                    upper *= statistics[INVERSE_STEP]
                    upper = min(max(upper, -_LARGEST_PRODUCT), _LARGEST_PRODUCT)
                    # The conversion to an integer may lower the bound, but by less than 1. Adding 1
                    # therefore makes the integer at least as large as the bound.
                    _add_candidate(
                        p * PANEL + i, np.int64(upper) + 1, q * PANEL + j, batch, queries, items,
                        block, candidates, scratch,
                    )  # fmt: skip


@borrowing_kernel
def _set_terms(p, q, residual_norm, statistics, all_bound_terms, units, terms):
    """Compute the bounds with which ``list_hits_of_both`` compares the scores of a tile.

    Item i can reach the threshold of query j only if the product of their codes is at least
    terms[0, j]. Conversely, row j can reach the threshold of row i only if the product reaches a
    second bound. The second bound is terms[3, i] * terms[1, j] - terms[2, j]. The products are
    refined if residual_norm is RESIDUAL_NORM, and not refined if it is UNREFINED_RESIDUAL_NORM.
    """
    inverse_step = statistics[p, INVERSE_STEP]
    bound_terms, terms_of_items = all_bound_terms[q], all_bound_terms[p]
    for j in range(PANEL):
        error = bound_terms[residual_norm, j] * statistics[p, MAX_NORM]
        error += bound_terms[CODE_NORM, j] * statistics[p, MAX_RESIDUAL]
        terms[0, j] = product_below(
            bound_terms[THRESHOLD, j], bound_terms[residual_norm, j], bound_terms[CODE_NORM, j],
            bound_terms[OFFSET_WEIGHT, j], statistics, p,
        )  # fmt: skip
        terms[1, j] = inverse_step / units[q, j]
        terms[2, j] = error * inverse_step + np.float32(1.0)
        weight = terms_of_items[OFFSET_WEIGHT, j]
        offset = max(weight * statistics[q, MAX_OFFSET], weight * statistics[q, MIN_OFFSET])
        terms[3, j] = (terms_of_items[THRESHOLD, j] - offset) * units[p, j]


@borrowing_kernel
def _add_candidate(i, score, slot, batch, queries, items, block, candidates, scratch):
    """Append a slot and its tile score to query i's buffer; make room if the buffer is full."""
    candidates.entries[i, candidates.counts[i]] = (score << 32) | slot
    candidates.counts[i] += 1
    if candidates.counts[i] == candidates.entries.shape[1]:
        make_room(items.metric_type, i, batch[i], queries, items, block, candidates, scratch)

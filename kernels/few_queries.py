"""Exact top-k of a few queries: the codes of each query are multiplied by the codes of all items.

The planner usually chooses this kernel for a search of one query among rows that are packed as int8
codes. ``fastcos.search.launch`` calls ``search_few_queries`` once for each range of the rows, and
usually there is one range.

A *row* is the number of an item in its segment. Packed items are not in the order of their rows; a
*slot* is the position of an item among the packed items, and a *panel* is 32 slots. Each panel has
a quantisation step of its own. The product of the codes of a query and an item, times the
quantisation steps of the query and the panel, approximates their score. The proof at the top of
``candidate_filter`` shows by how much the score may exceed this approximation; the sum of both is
the *upper bound* on the score. The kernel takes the following steps:

1. The record Items is made from the addresses of its arrays. (A record is a named tuple of
   arguments; passing addresses takes less time than passing arrays.) The norms of the queries are
   computed. If settings.check_norms is true and a norm is zero, not finite or extreme, the kernel
   ends without a search, and its caller searches in another way (``STATUS_NOT_ORDINARY``).
2. The queries are scaled, rotated and quantised to int8 codes (``encode_queries``). The items were
   scaled, rotated and quantised when they were packed.
3. The codes of each query are multiplied by the codes of every slot (``multiply_codes``). The
   kernel stores the product of each slot, in 4 bytes, and also stores the largest product of each
   panel.
4. The slots with the largest products are scored in float64 (``find_best``). The products of
   different panels cannot be compared directly, because their quantisation steps differ. The
   largest product of each panel is therefore multiplied by the quantisation step of the panel,
   which gives one *estimate* per panel. The quantisation step of the query is left out: it is the
   same for all slots, and thresholds are divided by it. The *first* threshold is the r-th largest
   estimate. A slot with the product v in a panel with the step t is scored if v is at least
   threshold / t - 1. The 1 ensures that no rounding error excludes the slot that set the threshold.
5. The k-th best score among all slots cannot be lower than the k-th best score among the slots that
   step 4 scored in float64. The k-th best score of step 4 is therefore a *proved* threshold. A slot
   that step 4 did not score is now scored in float64 if its upper bound reaches the proved
   threshold. A slot whose upper bound does not reach this threshold cannot be among the k best.
6. The k best rows are sorted by descending score, and rows with equal scores by ascending row
   number.

The first threshold is a guess. It decides only how many slots are scored before a threshold is
proved, so the neighbours are the same for every value of r. In the code, r is called `rank`. The
planner chooses its first value such that, for most queries, at least k rows that the filters allow
reach the first threshold (``fastcos.search.task_grid.guess_rank``). In the example that the
docstring of ``fastcos.search`` describes, k is 10, and about 15 slots reach it. Step 4 may find
fewer than k rows, because the first threshold was too high or because a filter excludes rows. In
this case, r is multiplied by 4, which lowers the threshold, and step 4 is repeated until k rows
have been found or every slot has been scored. When step 4 is repeated, no product is computed
again, and no slot is scored twice.

Python divides the panels into ranges, one for each task. Products are numbered within a range: the
product at position j belongs to slot 32 lo + j, where lo is the first panel of the range.

The result is exact for three reasons. First, the slots that are not scored cannot be among the best
(step 5). Second, every score in the result is computed in float64 from the original rows
(``pair_scores``). Third, equal scores have a fixed order (``select``).

This file shows how one query is searched; the proof in ``candidate_filter`` shows that upper bounds
are correct. The imported names have the following meanings:

- ``items_at`` makes the record Items. It holds the original rows, the packed rows, and the
  *statistics* of each panel: the inverse of the quantisation step, the largest norms of the rows of
  the panel and of their residuals (what quantisation omits), and the extreme offsets.
- ``rows_of_query_bytes`` makes a record Rows of the queries. ``with_norms_and_scaling`` adds the
  norms of the queries and the factors that scale them, and returns the record Queries.
  ``are_ordinary`` checks the norms.
- ``encode_query`` scales, rotates and quantises one query. ``set_bound_terms`` stores the *bound
  terms* of the query, from which upper bounds on its scores are computed: the norms of its residual
  and of its codes, and the weight of offsets. (Other kernels also store a threshold there.)
- ``multiply_run`` multiplies the codes of a query by the codes of all slots of some panels. It
  reads panels in which the codes of 8 items are interleaved; ``multiply_run_by_item`` reads panels
  in which the codes of each item lie together (long rows with AVX2, and rows with a projection).
- ``estimate_panels`` computes the estimates of step 4, and ``threshold_of`` computes the proved
  threshold of step 5 from a float64 score. ``product_below`` returns a number for a threshold and a
  panel: a slot of the panel can reach the threshold only if its product is at least this number,
  which contains a margin of 1 for rounding errors.
- ``list_reaching`` lists the products of a panel that are at least a number, which is not rounded
  to an integer. ``passes_filters`` applies the filters, and ``score_pairs`` computes float64
  scores. ``kth_largest``, ``select_best``, ``keep_best`` and ``write_best`` select and sort the
  best of a short list of scores.
- NEVER is a threshold above every score, so every score reaches the threshold -NEVER.
- ``padded_width`` rounds a number of columns up to a multiple of 16, which is the constant LANES.
- The decorators ``kernel``, ``borrowing_kernel`` and ``inlined_kernel`` compile a function. They
  differ in how the compiled code is called, and not in its results.

Some names have no effect on most searches by the cosine. Offsets, and the weight by which a query
multiplies them, are zero for cosines, unless a direction that most rows share was subtracted from
the rows (``candidate_filter`` calls this a shift). If items have offsets, the largest weighted
offset of a panel is added to the estimate of the panel. The filters matter only if some items are
not allowed. The field `projection` matters only for items that have a projection. For such items,
``projected_queries`` takes the same steps as this kernel, except that its step 3 skips the full
codes of most slots.

The docstring of ``fastcos.search`` describes one search as an example, with the numbers of panels
and of scored slots.
"""

from typing import Any, NamedTuple

import numpy as np

from .candidate_filter import (
    NEVER,
    estimate_panels,
    passes_filters,
    product_below,
    set_bound_terms,
    threshold_of,
)
from .jit import borrowing_kernel, inlined_kernel, kernel
from .packing import LANES, is_by_item, padded_width
from .pair_scores import score_pairs
from .query_encoding import are_ordinary, encode_query, with_norms_and_scaling
from .records import items_at, rows_of_query_bytes
from .select import keep_best, kth_largest, select_best, write_best
from .simd.hits import list_reaching
from .simd.instruction_sets import has_tile_registers, int16_words_of_run
from .simd.memory import prefetch_row
from .simd.panel import CODE_NORM, GROUP, N_BOUND_TERMS, OFFSET_WEIGHT, PANEL, RESIDUAL_NORM
from .simd.tile_scores import multiply_run, multiply_run_by_item

# If the norm of a query is zero, not finite or extreme (``query_encoding.are_ordinary``), a search
# kernel writes STATUS_NOT_ORDINARY in place of the first row number. A caller that reads
# STATUS_NOT_ORDINARY searches in another way.
STATUS_NOT_ORDINARY = -2
# The number of rows that are scored in float64 at once.
_CHUNK = 256
# If there are several queries, the panels are divided into runs. All panels of a run are compared
# with the first query, then with the second query, and so on. Meanwhile, the next panel is
# prefetched. This constant is the largest number of words in a run. However, a run always contains
# at least one panel. One panel of 128 columns has this many words. We measured a search with four
# queries among 1,000,000 items of 128 columns. With runs of one panel, this search is 1.3 times as
# fast as with runs of 4 panels.
_WORDS_OF_RUN = 1 << 10


class QueryCodes(NamedTuple):
    """The codes of n queries, and the terms from which bounds on their scores are computed.

    Attributes
    ----------
    words : int32 array (n * words_per_query,)
        The codes of all queries, one query after the other, 4 codes per word. Words that
        ``multiply_run`` reads are stored 8 times in succession, except with AMX.
    words_per_query : int
    corrections : int32 array (n,)
        For each query, the number that is added to the products of its codes. The instructions that
        multiply codes require unsigned codes of items, so 128 is added to these. The correction of
        a query is therefore -128 times the sum of the query's codes.
    bound_terms : float32 array (5, 32)
        The terms of each query's bound, one query per column. Module ``simd.panel`` describes the
        five rows of the bound terms.
    steps : float32 array (32,)
        The quantisation step of each query.
    """

    words: Any
    words_per_query: Any
    corrections: Any
    bound_terms: Any
    steps: Any


class Buffers(NamedTuple):
    """Buffers that are reused for each query.

    Attributes
    ----------
    rows, scores : int64 and float64 array (256,)
        The rows that are about to be scored, and their scores.
    best_rows, best_scores : int64 and float64 array (2 k + 256,)
        The best rows so far, in any order, and their scores. Rows that are no longer among the best
        k are removed when the array is nearly full.
    scratch : float64 array (2 k + 256,)
        Overwritten when the best rows are selected.
    hits : int32 array (32,)
        The positions of the products that reach a threshold. Position 0 is the first product of the
        range of panels.
    panel_estimates : float32 array (panels,)
        For each panel, the estimate of step 4 in the docstring of this file.
    """

    rows: Any
    scores: Any
    best_rows: Any
    best_scores: Any
    scratch: Any
    hits: Any
    panel_estimates: Any


@kernel
def search_few_queries(lo, hi, addresses, query_bytes, filters, settings, scores, rows):
    """Find the best k rows of panels lo to hi for each query.

    `addresses` (an ItemAddresses) holds the addresses of the arrays of the items. `query_bytes`
    holds the bytes of at most 32 queries (see ``records.bytes_of``). `filters` (a QueryFilters)
    says which items are allowed in the results. `settings` (a FewQuerySettings) has three fields:
    first_rank, panels_per_range and check_norms. The number of the task is lo //
    settings.panels_per_range. The results of the task are written to scores[task] and rows[task],
    padded with -inf and -1. The arrays `scores` and `rows` have the shape (tasks, n, k). If
    settings.check_norms is true and the norm of a query is not ordinary
    (``query_encoding.are_ordinary``), rows[task, 0, 0] becomes STATUS_NOT_ORDINARY and nothing is
    searched. The kernel computes O(n m d) products of codes. Its largest arrays take 4 bytes per
    slot and query.
    """
    task, n, k = lo // settings.panels_per_range, query_bytes.shape[0], rows.shape[2]
    items = items_at(addresses)
    queries = with_norms_and_scaling(
        rows_of_query_bytes(query_bytes, items), filters, addresses, items.shift
    )
    if settings.check_norms and not are_ordinary(queries.norms):
        rows[task, 0, 0] = STATUS_NOT_ORDINARY
        return
    codes = encode_queries(queries, items)
    products = np.empty((n, (hi - lo) * PANEL), np.int32)
    largest_products = np.empty((n, hi - lo), np.int32)
    buffers = empty_buffers(hi - lo, k)
    multiply_codes(lo, hi, lo, 0, n, items, codes, products, largest_products)
    for i in range(n):
        n_best = find_best(
            i, lo, k, settings.first_rank, queries, items, codes, products[i], largest_products[i],
            buffers,
        )  # fmt: skip
        write_best_rows(n_best, buffers, scores[task, i], rows[task, i])


@kernel
def empty_buffers(n_panels, k):
    """Return Buffers for a range of n_panels panels and k neighbours."""
    # Arrays of the same type share one allocation. If each array were allocated separately, the
    # allocations would take 4 % of the time of a search for one query among 1,000 rows of 64
    # columns.
    capacity = 2 * k + _CHUNK
    integers, floats = np.empty(_CHUNK + capacity, np.int64), np.empty(_CHUNK + 2 * capacity)
    return Buffers(
        integers[:_CHUNK], floats[:_CHUNK], integers[_CHUNK:], floats[_CHUNK : _CHUNK + capacity],
        floats[_CHUNK + capacity :], np.empty(PANEL, np.int32), np.empty(n_panels, np.float32),
    )  # fmt: skip


@borrowing_kernel
def write_best_rows(n_best, buffers, scores, rows):
    """Sort the `n_best` best rows in `buffers`, and write the best k to `scores` and `rows`.

    The arrays `scores` and `rows` have the shape (k,).
    """
    best_scores, best_rows, k = buffers.best_scores, buffers.best_rows, rows.shape[0]
    n_best = keep_best(best_scores, best_rows, n_best, k, buffers.scratch)
    write_best(best_scores, best_rows, n_best, scores, rows)


@kernel
def encode_queries(queries, items):
    """Return the QueryCodes of all queries."""
    isa, n, words = items.isa, queries.rows.data.shape[0], items.words
    width = padded_width(max(queries.rows.n_columns, LANES))
    buffer, row_codes = np.empty(width, np.float32), np.empty(width, np.int8)
    measured, row_words = np.empty(2, np.float32), row_codes.view(np.int32)
    all_words, per_query = np.empty(n * words, np.int32), words
    bound_terms = np.empty((N_BOUND_TERMS, PANEL), np.float32)
    steps, corrections = np.empty(PANEL, np.float32), np.empty(n, np.int32)
    all_words[:], bound_terms[:] = 0, np.float32(0.0)
    for i in range(n):
        step, norm, residual, correction = encode_query(
            isa, queries.rows, i, queries.scaling.factors[i], queries.scaling.coefficients[i],
            items.shift, items.signs, int16_words_of_run(isa), buffer, row_codes, measured,
        )  # fmt: skip
        set_bound_terms(bound_terms, i, step, norm, residual, queries.scaling.weights[i])
        steps[i], corrections[i] = step, correction
        for word in range(min(words, row_words.shape[0])):
            all_words[i * words + word] = row_words[word]
    by_item = is_by_item(isa, words, items.projection.words > 0)
    if not has_tile_registers(isa) and not by_item:
        # A panel of items stores word j of 8 items side by side. Word j of the query is stored 8
        # times in succession, so that it can be multiplied by word j of all 8 items at once.
        all_words, per_query = repeated_words(all_words), words * GROUP
    return QueryCodes(all_words, per_query, corrections, bound_terms, steps)


@kernel
def repeated_words(words):
    """Return an array that repeats each word 8 times in succession: once per item of a group."""
    repeated = np.empty(words.shape[0] * GROUP, np.int32)
    for at in range(words.shape[0]):
        for copy in range(GROUP):
            repeated[at * GROUP + copy] = words[at]
    return repeated


@borrowing_kernel
def multiply_codes(
    first, last, lo, first_query, last_query, items, codes, products, largest_products
):
    """Multiply the codes of every slot of panels `first` to `last` by the codes of some queries.

    The products are written to `products`, and the largest product of each panel is written to
    `largest_products`. In `products` and `largest_products`, panel lo is the first panel. The
    kernel compares a run of panels with all queries before it reads the next run. Each panel is
    therefore read from memory only once.
    """
    panels_per_run, size = last - first, PANEL * items.words
    if last_query - first_query > 1:
        panels_per_run = max(1, _WORDS_OF_RUN // size)
    for panel in range(first, last, panels_per_run):
        count, at = min(panels_per_run, last - panel), panel - lo
        for i in range(first_query, last_query):
            run_products, run_largest = products[i, at * PANEL :], largest_products[i, at:]
            if is_by_item(items.isa, items.words, items.projection.words > 0):
                multiply_run_by_item(
                    items.isa, items.packed, panel * size, size, count, items.words, codes.words,
                    i * codes.words_per_query, codes.corrections[i], run_products, run_largest,
                )  # fmt: skip
            else:
                multiply_run(
                    items.isa, items.packed, panel * size, size, count, items.words, codes.words,
                    i * codes.words_per_query, codes.corrections[i], run_products, run_largest,
                )  # fmt: skip


@borrowing_kernel
def find_best(i, lo, k, first_rank, queries, items, codes, products, largest_products, buffers):
    """Find the best k rows of query i, unsorted, and return their number.

    The rows and their scores are the first entries of buffers.best_rows and buffers.best_scores.
    `lo` is the number of the panel to which the first products belong.
    """
    n_panels = largest_products.shape[0]
    n_best, kth_score, rank, previous_threshold = 0, -np.inf, min(first_rank, n_panels), NEVER
    # Step 4 of the file's docstring: slots that reach the first threshold are scored. The
    # threshold is then lowered until k rows have been found.
    while True:
        threshold = -NEVER  # if the rank is 0, every slot reaches the threshold
        if rank > 0:
            threshold = kth_estimate(i, lo, rank, -NEVER, items, codes, largest_products, buffers)
        n_best, kth_score = score_reaching(
            i, lo, k, threshold, previous_threshold, False, queries, items, codes, products,
            largest_products, buffers, n_best, kth_score,
        )  # fmt: skip
        if n_best >= k:
            break
        if rank == 0:
            return n_best
        previous_threshold, rank = threshold, min(4 * rank, n_panels) if rank < n_panels else 0
    # Step 5 of the file's docstring: among the slots that step 4 did not score, those whose upper
    # bounds reach the proved threshold are scored now.
    proved = threshold_of(i, queries, kth_score, np.float32(1.0) / codes.steps[i])
    n_best, _ = score_reaching(
        i, lo, k, proved, threshold, True, queries, items, codes, products, largest_products,
        buffers, n_best, kth_score,
    )  # fmt: skip
    return n_best


@inlined_kernel
def kth_estimate(i, lo, rank, minimum, items, codes, largest_products, buffers):
    """Return the `rank`-th largest of the estimates for query i; each panel has one estimate.

    Step 4 in the docstring of this file defines the estimates. `lo` is the number of the first
    panel. If the `rank`-th largest estimate is below `minimum`, the function returns `minimum`; the
    kernel of this file passes -NEVER, and ``projected_queries`` passes a threshold.
    """
    n_panels, panel_estimates = largest_products.shape[0], buffers.panel_estimates
    estimate_panels(
        lo, n_panels, largest_products, items.statistics, codes.bound_terms[OFFSET_WEIGHT, i],
        panel_estimates,
    )  # fmt: skip
    n_above = n_panels
    if minimum > -NEVER:
        # Only a few estimates are above the minimum. It is faster to select the rank-th largest
        # estimate from these few than from all estimates.
        n_above = 0
        for p in range(n_panels):
            estimate = panel_estimates[p]
            panel_estimates[n_above] = estimate
            n_above += estimate > minimum
    return kth_largest(panel_estimates, n_above, rank) if n_above >= rank else minimum


@borrowing_kernel
def score_reaching(
    i, lo, k, threshold, previous_threshold, by_upper_bound, queries, items, codes, products,
    largest_products, buffers, n_best, kth_score,
):  # fmt: skip
    """Score in float64 the slots that reach a threshold, and keep the best of them.

    Let v be the product of a slot, and t the step of its panel. If `by_upper_bound` is false, a
    slot reaches the threshold if v t, plus the largest weighted offset of the panel, reaches it,
    with a margin of 1 in v. If it is true, a slot reaches the threshold if the upper bound on its
    score does; the norms of the query's residual and codes then lower the product that is required.
    Slots that reach `previous_threshold` by the first rule are skipped, because an earlier call
    with the same threshold has scored them. The function returns the number of best rows in the
    buffers, and the k-th best score.
    """
    statistics, row_of_slot, filters = items.statistics, items.row_of_slot, queries.filters
    n_slots, hits, n_rows = row_of_slot.shape[0], buffers.hits, 0
    data, row_size, zero = items.rows.data.reshape(-1), items.rows.data.shape[1], np.float32(0.0)
    weight, residual_norm, code_norm = codes.bound_terms[OFFSET_WEIGHT, i], zero, zero
    if by_upper_bound:
        residual_norm = codes.bound_terms[RESIDUAL_NORM, i]
        code_norm = codes.bound_terms[CODE_NORM, i]
    for p in range(largest_products.shape[0]):
        panel = lo + p
        min_product = product_below(threshold, residual_norm, code_norm, weight, statistics, panel)
        if np.float32(largest_products[p]) < min_product:
            continue
        previous_min_product = product_below(
            previous_threshold, zero, zero, weight, statistics, panel
        )
        n_hits = list_reaching(products, p * PANEL, min_product, n_slots - panel * PANEL, hits, 0)
        for at in range(n_hits):
            product = np.float32(products[hits[at]])
            row = row_of_slot[lo * PANEL + hits[at]]
            if product >= previous_min_product or not passes_filters(row, i, filters):
                continue
            prefetch_row(data, row * row_size, row_size)
            buffers.rows[n_rows] = row
            n_rows += 1
            if n_rows == _CHUNK:
                n_best, kth_score = _score_rows(
                    i, n_rows, k, queries, items, buffers, n_best, kth_score
                )
                n_rows = 0
    return _score_rows(i, n_rows, k, queries, items, buffers, n_best, kth_score)


@borrowing_kernel
def _score_rows(i, n_rows, k, queries, items, buffers, n_best, kth_score):
    """Score the rows buffers.rows[:n_rows] in float64, and add them to the best rows.

    When the buffer of best rows is nearly full, and after the last rows have been scored, only the
    best k rows are kept. The function returns the number of best rows in the buffers, and the k-th
    best score.
    """
    best_scores, best_rows = buffers.best_scores, buffers.best_rows
    score_pairs(
        items.metric_type, queries.rows, i, queries.norms[i], items.rows, items.norms,
        items.bias, buffers.rows, n_rows, buffers.scores,
    )  # fmt: skip
    for at in range(n_rows):
        best_scores[n_best], best_rows[n_best] = buffers.scores[at], buffers.rows[at]
        n_best += not buffers.scores[at] < kth_score
    if n_best >= k and (n_rows < _CHUNK or n_best + _CHUNK > best_scores.shape[0]):
        kth_score = select_best(best_scores, best_rows, n_best, k, buffers.scratch)
        n_best = k
    return n_best, kth_score

"""Exact top-k of a few queries among packed items: each query reads the codes of all items itself.

``search_few_queries`` is the complete search of one query, from top to bottom:

1. The norm of the query is checked. The query is scaled, rotated and quantised to int8 codes, as
   the items were when they were packed (``encode_query``).
2. The codes of the query are multiplied by the codes of every slot (``score_codes``). The kernel
   stores the products, 4 bytes for each slot, and the largest product of each panel.
3. The slots with the largest products are scored in float64. A slot is scored if its product
   reaches the r-th largest of the panels' maxima, where r is a little more than k (``find_best``).
4. The k-th best of these scores is a lower bound of the k-th best of all scores, so it serves as a
   threshold. Of the other slots, only slots whose upper bound reaches the threshold are scored in
   float64. ``candidate_filter`` proves that no other slot can be among the best.
5. The k best slots are sorted, equal scores by lower row number.

The number r only decides how many slots are scored before the threshold is known, so every r gives
the same neighbours. If step 3 finds fewer than k slots, because a filter excludes the other slots,
r is multiplied by 4 until k slots are found or every slot has been scored.

If the items have a projection, ``projected_queries`` takes the same steps, except that in step 2 it
skips the codes of most slots.

A *slot* is a place in the packed order of the items, a *row* is the number of an item in its
segment, and a *panel* is 32 slots. A *task* searches a range of panels for all queries. A ``place``
is the position of a slot in such a range, counted from the first slot of the range.
"""

from typing import Any, NamedTuple

import numpy as np

from .candidate_filter import (
    NEVER,
    largest_scores_of_panels,
    may_find,
    reaching_score,
    set_bound_terms,
    threshold_of,
)
from .jit import borrowing_kernel, inlined_kernel, kernel
from .packing import LANES, encode_query, padded_width
from .pair_scores import score_pairs
from .query_scaling import are_ordinary, items_at, scaled_queries
from .select import keep_best, kth_largest, select_best, write_best
from .simd.hits import list_reaching
from .simd.instruction_sets import has_tile_registers
from .simd.memory import prefetch_row
from .simd.panel import CODE_NORM, GROUP, OFFSET_WEIGHT, PANEL, RESIDUAL_NORM
from .simd.tile_scores import score_run, score_run_by_item

# The row number in rows[part, 0, 0] if the norm of a query is zero, not finite, or not between
# 1e-100 and 1e100.
# Python then searches in another way.
NOT_ORDINARY = -2
# The number of slots that are scored in float64 at once.
_CHUNK = 256
# A run of panels is compared with one query after the other, while the next panel is prefetched. A
# run has at least this many words, which is one panel of 128 columns. A search with four queries
# among 1,000,000 items of 128 columns is then 1.3 times as fast as with runs of 4 panels.
_WORDS_OF_RUN = 1 << 10


class Codes(NamedTuple):
    """The codes of queries, and the terms with which their products are compared.

    Attributes
    ----------
    words : int32 array (n * words,)
        The codes of all queries, one query after the other, 4 codes per word.
    repeated, stride : int32 array, int
        The same codes in the form that ``score_run`` reads, ``stride`` words per query.
    starts : int32 array (n,)
        For each query, the number to which the products of its codes are added.
    terms : float32 array (4, 32)
        The terms of the bound of each query; see ``simd.panel``.
    scales : float32 array (32,)
        The quantisation step of each query.
    """

    words: Any
    repeated: Any
    stride: Any
    starts: Any
    terms: Any
    scales: Any


class Candidates(NamedTuple):
    """Slots that are about to be scored, and the best of the slots that have been scored.

    Attributes
    ----------
    rows, scores : int64 and float64 array (256,)
    best_rows, best_scores, scratch : int64, float64 and float64 array (2 k + 256,)
    hits : int32 array (32,)
    maxima : float32 array (panels,)
    """

    rows: Any
    scores: Any
    best_rows: Any
    best_scores: Any
    scratch: Any
    hits: Any
    maxima: Any


@kernel
def search_few_queries(lo, hi, addresses, query_rows, filters, search, scores, rows):
    """Find the best k rows of panels lo to hi for each query.

    addresses is an ItemAddresses, query_rows (n, d) holds at most 32 queries, filters is a
    QueryFilters, and search a FewQuerySearch. The results are written to part
    lo // panels_per_range of scores and rows (parts, n, k), padded by -inf and -1. If
    search.must_check is true and one of the queries is not ordinary, rows[part, 0, 0] becomes
    NOT_ORDINARY and nothing is searched. The kernel computes O(n m d) products of codes, and
    allocates 4 bytes per slot and query.
    """
    part, n, k = lo // search.panels_per_range, query_rows.shape[0], rows.shape[2]
    items = items_at(addresses)
    queries = scaled_queries(query_rows, filters, addresses, items.shift)
    if search.must_check and not are_ordinary(queries.norms):
        rows[part, 0, 0] = NOT_ORDINARY
        return
    codes = encode(queries, items)
    products = np.empty((n, (hi - lo) * PANEL), np.int32)
    largest = np.empty((n, hi - lo), np.int32)
    candidates = empty_candidates(hi - lo, k)
    score_codes(lo, hi, lo, 0, n, items, codes, products, largest)
    for i in range(n):
        count = find_best(
            i, lo, hi, search.rank, -NEVER, queries, items, codes, products[i], largest[i],
            candidates, k,
        )  # fmt: skip
        write_found(count, candidates, scores[part, i], rows[part, i])


@kernel
def empty_candidates(n_panels, k):
    """Return Candidates without any slot, for a range of n_panels panels and k neighbours."""
    capacity = 2 * k + _CHUNK
    return Candidates(
        np.empty(_CHUNK, np.int64), np.empty(_CHUNK), np.empty(capacity, np.int64),
        np.empty(capacity), np.empty(capacity), np.empty(PANEL, np.int32),
        np.empty(n_panels, np.float32),
    )  # fmt: skip


@borrowing_kernel
def write_found(count, candidates, scores, rows):
    """Write the best of the first `count` entries of candidates.best_* to scores and rows, sorted.

    scores and rows have the shape (k,).
    """
    best_scores, best_rows, k = candidates.best_scores, candidates.best_rows, rows.shape[0]
    count = keep_best(best_scores, best_rows, count, k, candidates.scratch)
    write_best(best_scores, best_rows, count, scores, rows)


@kernel
def encode(queries, items):
    """Return the codes of all queries."""
    isa, n, words = items.isa, queries.rows.shape[0], items.words
    width = padded_width(max(queries.rows.shape[1], LANES))
    buffer, row_codes = np.empty(width, np.float32), np.empty(width, np.int8)
    measured, row_words = np.empty(2, np.float32), row_codes.view(np.int32)
    all_words = np.empty(n * words, np.int32)
    terms, scales = np.empty((4, PANEL), np.float32), np.empty(PANEL, np.float32)
    all_words[:], terms[:] = 0, np.float32(0.0)
    starts = np.empty(n, np.int32)
    for i in range(n):
        scale, norm, residual, start = encode_query(
            isa, queries.rows, i, queries.scaling.factors[i], queries.scaling.coefficients[i],
            items.shift, items.signs, buffer, row_codes, measured,
        )  # fmt: skip
        set_bound_terms(terms, i, scale, norm, residual, queries.scaling.weights[i])
        scales[i], starts[i] = scale, start
        for word in range(min(words, row_words.shape[0])):
            all_words[i * words + word] = row_words[word]
    if has_tile_registers(isa) or items.projection.words > 0:
        return Codes(all_words, all_words, words, starts, terms, scales)
    return Codes(all_words, repeated_words(all_words), words * GROUP, starts, terms, scales)


@kernel
def repeated_words(words):
    """Return every word 8 times in succession, once for each item of a group of items."""
    repeated = np.empty(words.shape[0] * GROUP, np.int32)
    for at in range(words.shape[0]):
        for copy in range(GROUP):
            repeated[at * GROUP + copy] = words[at]
    return repeated


@borrowing_kernel
def score_codes(first, last, lo, first_query, last_query, items, codes, products, largest):
    """Multiply the codes of every slot of panels first to last by the codes of some queries.

    lo is the panel to which the first products belong. A few panels are compared with all queries
    before the next panels are read, so each panel is read from memory only once.
    """
    run = last - first
    if last_query - first_query > 1:
        run = max(1, min(PANEL, _WORDS_OF_RUN // (PANEL * items.words)))
    for panel in range(first, last, run):
        for i in range(first_query, last_query):
            _score_panels(panel, min(run, last - panel), lo, i, items, codes, products, largest)


@inlined_kernel
def _score_panels(first, count, lo, i, items, codes, products, largest):
    """Multiply the codes of `count` panels from `first` on by the codes of query i."""
    size, at = PANEL * items.words, first - lo
    products_of_run, largest_of_run = products[i, at * PANEL :], largest[i, at:]
    if has_tile_registers(items.isa) or items.projection.words == 0:
        score_run(
            items.isa, items.packed, first * size, size, count, items.words, codes.repeated,
            i * codes.stride, codes.starts[i], products_of_run, largest_of_run,
        )  # fmt: skip
    else:
        score_run_by_item(
            items.isa, items.packed, first * size, size, count, items.words, codes.repeated,
            i * codes.stride, codes.starts[i], products_of_run, largest_of_run,
        )  # fmt: skip


@borrowing_kernel
def find_best(
    i, lo, hi, rank, dropped_below, queries, items, codes, products, largest, candidates, k
):
    """Find the best rows of query i, unsorted, and return their number.

    The rows and their scores are written to candidates.best_rows and candidates.best_scores.
    Products below the threshold dropped_below may be missing. The function returns -1 if the best
    rows may be among the slots whose products are missing.
    """
    n_panels, maxima = hi - lo, candidates.maxima
    weight, scale = codes.terms[OFFSET_WEIGHT, i], codes.scales[i]
    residual, coded = codes.terms[RESIDUAL_NORM, i], codes.terms[CODE_NORM, i]
    has_dropped = dropped_below > -NEVER
    count, kth_score, scored_from, rank = 0, -np.inf, NEVER, min(rank, n_panels)
    zero = np.float32(0.0)
    while True:
        threshold = -NEVER
        if rank > 0:
            largest_scores_of_panels(lo, n_panels, largest, items.statistics, weight, maxima)
            threshold = max(kth_largest(maxima, n_panels, rank), dropped_below)
        count, kth_score = _score_reaching(
            i, lo, n_panels, threshold, zero, zero, scored_from, queries, items, weight, products,
            largest, candidates, k, count, kth_score,
        )  # fmt: skip
        scored_from = threshold
        if count >= k or rank == 0:
            break
        if has_dropped:
            return -1
        rank = min(4 * rank, n_panels) if rank < n_panels else 0
    if count < k:
        return count
    threshold = threshold_of(i, queries, kth_score, np.float32(1.0) / scale)
    if has_dropped and not threshold >= dropped_below:
        return -1
    count, _ = _score_reaching(
        i, lo, n_panels, threshold, residual, coded, scored_from, queries, items, weight, products,
        largest, candidates, k, count, kth_score,
    )  # fmt: skip
    return count


@borrowing_kernel
def _score_reaching(
    i, lo, n_panels, threshold, residual, coded, scored_from, queries, items, weight, products,
    largest, candidates, k, count, kth_score,
):  # fmt: skip
    """Score the slots whose products reach a threshold in float64, and keep the best of them.

    An upper bound of the product is compared with the threshold; residual and coded are terms of
    this bound. If they are 0, the product itself is compared. Slots whose products reach the
    threshold scored_from have been scored before. The kernel returns the number of the best rows so
    far, at most k, and the k-th best score.
    """
    statistics, order, n_slots = items.statistics, items.order, items.order.shape[0]
    filters, hits, n_taken = queries.filters, candidates.hits, 0
    flat, depth, zero = items.rows.reshape(-1), items.rows.shape[1], np.float32(0.0)
    for p in range(n_panels):
        panel = lo + p
        least = reaching_score(threshold, residual, coded, weight, statistics, panel)
        if np.float32(largest[p]) < least:
            continue
        scored = reaching_score(scored_from, zero, zero, weight, statistics, panel)
        n_hits = list_reaching(products, p * PANEL, least, n_slots - panel * PANEL, hits, 0)
        for at in range(n_hits):
            place = hits[at]
            row = order[lo * PANEL + place]
            if np.float32(products[place]) >= scored or not may_find(
                row, i, filters.self_rows, filters.allowed, filters.excluded_indptr,
                filters.excluded_rows,
            ):  # fmt: skip
                continue
            prefetch_row(flat, row * depth, depth)
            candidates.rows[n_taken] = row
            n_taken += 1
            if n_taken == _CHUNK:
                count, kth_score = _score_rows(
                    i, n_taken, queries, items, candidates, k, count, kth_score
                )
                n_taken = 0
    return _score_rows(i, n_taken, queries, items, candidates, k, count, kth_score)


@borrowing_kernel
def _score_rows(i, n_rows, queries, items, candidates, k, count, kth_score):
    """Score the first rows of candidates in float64; return the count and k-th score of the best.

    The best rows are reduced to k when their buffer is full, and after the last rows.
    """
    best_scores, best_rows = candidates.best_scores, candidates.best_rows
    score_pairs(
        items.metric_type, queries.rows, i, queries.norms[i], items.rows, items.norms,
        items.offsets, candidates.rows, n_rows, candidates.scores,
    )  # fmt: skip
    for at in range(n_rows):
        best_scores[count], best_rows[count] = candidates.scores[at], candidates.rows[at]
        count += not candidates.scores[at] < kth_score
    if count >= k and (n_rows < _CHUNK or count + _CHUNK > best_scores.shape[0]):
        kth_score = select_best(best_scores, best_rows, count, k, candidates.scratch)
        count = k
    return count, kth_score

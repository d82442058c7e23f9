"""Exact top-k of a few queries among items that have a projection.

The kernel follows the steps of ``few_queries`` with an exception: the full codes are multiplied
only for a sample of the panels. In the other panels, the projected codes are multiplied first
(``projection_filter``), and the full codes are multiplied only for the slots whose bound reaches a
threshold. This threshold is an estimate: a rank among the largest scores of the panels that have
been read so far. If the k-th best score shows in the end that the estimate was too high, the query
is compared with the full codes of all slots, so no neighbour is lost.

For queries that are unlike the items, almost every slot reaches the threshold. Such queries are not
made faster by the projection, and stop using it after a few panels.
"""

import numpy as np

from .candidate_filter import NEVER, largest_scores_of_panels
from .few_queries import (
    NOT_ORDINARY,
    empty_candidates,
    encode,
    find_best,
    repeated_words,
    score_codes,
    write_found,
)
from .jit import borrowing_kernel, inlined_kernel, kernel
from .projection import copy_codes, empty_projected_queries, project_panel
from .projection_filter import PANELS_TRIED, fetch_item
from .query_scaling import are_ordinary, items_at, scaled_queries
from .select import kth_largest
from .simd.hits import find_by_projection
from .simd.instruction_sets import has_tile_registers
from .simd.panel import OFFSET_WEIGHT, PANEL, THRESHOLD
from .simd.tile_scores import score_item
from .tiles import numbers_below

# The product that stands for a slot whose projected codes show that it cannot reach the threshold.
_DROPPED = np.int32(-(2**31))
# Multiplying a slot by itself takes _COST_OF_SLOT + _COST_OF_QUERY * (number of queries) times as
# long as multiplying it as part of a panel (measured on Zen 4).
_COST_OF_SLOT, _COST_OF_QUERY = 1.3, 0.16


@inlined_kernel
def projection_costs_more(n_hits, n_panels, n_queries, items):
    """Return whether multiplying the full codes of some panels would have taken less time.

    The projected codes of n_panels panels had n_hits hits, whose codes were multiplied one by one.
    """
    cost = items.words * (_COST_OF_SLOT + _COST_OF_QUERY * n_queries)
    return n_hits * cost > n_panels * PANEL * (items.words - items.projection.words)


@kernel
def project_few_queries(queries, items, codes):
    """Return the ProjectedQueries of few queries, and their words in the form of Codes.repeated.

    is_dense[0] says that the queries are not projected, because they are unlike the items or the
    items have no projection.
    """
    n, words = queries.rows.shape[0], items.projection.words
    projected = empty_projected_queries(1, items)
    if words > 0:
        project_panel(
            0, 0, n, numbers_below(n), queries, items, codes.terms, codes.scales, projected
        )
    all_words = np.empty(n * words, np.int32)
    for i in range(n):
        copy_codes(items.isa, projected.packed, 0, i, words, all_words, i)
    if has_tile_registers(items.isa):
        return projected, all_words
    return projected, repeated_words(all_words)


@kernel
def search_few_by_projection(lo, hi, addresses, query_rows, filters, search, scores, rows):
    """Search as ``search_few_queries`` does, among items that have a projection.

    search.sample_stride must be at least 2.
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
    # One threshold per query; products of the query that are below this threshold may be missing.
    dropped_below = np.empty(n, np.float32)
    dropped_below[:] = -NEVER
    candidates = empty_candidates(hi - lo, k)
    _score_by_projection(
        lo, hi, search, queries, items, codes, products, largest, candidates, dropped_below
    )
    for i in range(n):
        below, count = dropped_below[i], -1
        while count < 0:
            count = find_best(
                i, lo, hi, search.rank, below, queries, items, codes, products[i], largest[i],
                candidates, k,
            )  # fmt: skip
            if count < 0:
                score_codes(lo, hi, lo, i, i + 1, items, codes, products, largest)
                below = -NEVER
        write_found(count, candidates, scores[part, i], rows[part, i])


@kernel
def _score_by_projection(
    lo, hi, search, queries, items, codes, products, largest, candidates, dropped_below
):
    """Multiply the full codes of slots whose projected codes reach an estimated threshold.

    The products of other slots become _DROPPED. The threshold of each query is written to
    dropped_below.
    """
    n, stride = queries.rows.shape[0], search.sample_stride
    projected, repeated = project_few_queries(queries, items, codes)
    if projected.is_dense[0]:
        score_codes(lo, hi, lo, 0, n, items, codes, products, largest)
        return
    largest[:] = _DROPPED
    for panel in range(lo + stride // 2, hi, stride):
        for i in range(n):
            score_codes(panel, panel + 1, lo, i, i + 1, items, codes, products, largest)
    for i in range(n):
        _raise_threshold(i, lo, hi, search.sample_rank, items, codes, largest, candidates)
    _sweep_by_projection(
        lo, hi, search, items, codes, projected, repeated, products, largest, candidates,
        dropped_below,
    )  # fmt: skip


@borrowing_kernel
def _raise_threshold(i, lo, hi, rank, items, codes, largest, candidates):
    """Raise the threshold of query i to a rank among the largest scores of panels read so far."""
    largest_scores_of_panels(
        lo, hi - lo, largest[i], items.statistics, codes.terms[OFFSET_WEIGHT, i], candidates.maxima
    )
    estimate = kth_largest(candidates.maxima, hi - lo, min(rank, hi - lo))
    codes.terms[THRESHOLD, i] = max(codes.terms[THRESHOLD, i], estimate)


@borrowing_kernel
def _sweep_by_projection(
    lo, hi, search, items, codes, projected, repeated, products, largest, candidates, dropped_below
):
    """Multiply the full codes of slots outside the sample whose bounds reach the threshold."""
    n, stride, raise_at = dropped_below.shape[0], search.sample_stride, lo + ((hi - lo) >> 3)
    n_hits, n_tried, is_costly = 0, 0, False
    for panel in range(lo, hi):
        if (panel - lo) % stride == stride // 2:
            continue
        if panel == raise_at:
            # Among twice as many items, the r-th best score is higher, and as a threshold it drops
            # more slots.
            for i in range(n):
                _raise_threshold(i, lo, hi, search.rank, items, codes, largest, candidates)
            raise_at = lo + 2 * (panel - lo)
        for i in range(n):
            if is_costly:
                score_codes(panel, panel + 1, lo, i, i + 1, items, codes, products, largest)
            else:
                dropped_below[i] = codes.terms[THRESHOLD, i]
                n_hits += score_reaching_slots(
                    panel, lo, i, items, codes, projected, repeated, products, largest,
                    candidates.hits,
                )  # fmt: skip
                n_tried += 1
        # For queries that are unlike the items, almost every slot reaches the threshold.
        is_costly |= n_tried >= PANELS_TRIED and projection_costs_more(n_hits, n_tried, n, items)


@inlined_kernel
def score_reaching_slots(panel, lo, i, items, codes, projected, repeated, products, largest, hits):
    """Multiply the full codes of a panel's slots whose projected codes reach the threshold.

    The products of the other slots become _DROPPED. lo is the panel to which the first products
    belong, and hits (32,) int32 is overwritten. The function returns how many slots reach the
    threshold.
    """
    isa, words, projection = items.isa, items.words, items.projection
    n_hits = find_by_projection(
        isa, projection.packed, panel * PANEL * projection.words, projection.words, repeated,
        i * (repeated.shape[0] // codes.starts.shape[0]), projected.starts[i], i, codes.terms,
        projected.lanes, projection.statistics, panel, items.order.shape[0] - panel * PANEL,
        projection.rest_norms, hits, 0,
    )  # fmt: skip
    start, place = panel * PANEL * words, (panel - lo) * PANEL
    for at in range(n_hits):
        fetch_item(isa, items.packed, start, np.int64(hits[at]), words)
    for slot in range(PANEL):
        products[i, place + slot] = _DROPPED
    best = _DROPPED
    for at in range(n_hits):
        slot = np.int64(hits[at])
        product = score_item(
            isa, items.packed, start, slot, words, codes.words, i * words, codes.starts[i]
        )
        products[i, place + slot] = product
        best = max(best, product)
    largest[i, panel - lo] = best
    return n_hits

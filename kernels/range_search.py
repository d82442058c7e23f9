"""Range search: for each query, find all items whose scores reach a given score.

The kernels of this module list candidates. ``exhaustive_top_k.keep_above`` scores the candidates in
float64 and keeps those that reach the given score.
"""

import numpy as np

from .candidate_filter import passes_filters, product_below, threshold_of
from .few_queries import encode_queries, multiply_codes
from .jit import borrowing_kernel, inlined_kernel, kernel
from .projected_queries import (
    multiply_reaching_slots,
    project_few_queries,
    projection_costs_more,
)
from .projection_filter import PANELS_TRIED, abandon_costly_projections
from .query_blocks import find_hits, pack_block
from .simd.hits import list_reaching
from .simd.panel import CODE_NORM, OFFSET_WEIGHT, PANEL, RESIDUAL_NORM, THRESHOLD
from .simd.tile_scores import end_tiles, start_tiles


@kernel
def list_candidates(lo, hi, items, queries, batch, min_scores, use_projection, lists):
    """List the items whose scores may reach min_scores[query], for the queries batch[lo:hi].

    `items` is an Items, `queries` is a Queries, and `min_scores` (n,) is float64. If
    `use_projection` is true and the items have projected codes, the projected codes are multiplied
    before the full codes. The candidates are written to `lists`, which is a CandidateLists. The
    list of query i starts at starts[i] and ends before starts[i + 1]. The order of the candidates
    of a query is arbitrary.
    """
    block = pack_block(lo, hi, batch, queries, items, hi - lo if use_projection else 0)
    for i in range(hi - lo):
        q, j, query = i >> 5, i & 31, batch[lo + i]
        inverse_step = np.float32(1.0) / block.steps[q, j]
        threshold = threshold_of(query, queries, min_scores[query], inverse_step)
        block.bound_terms[q, THRESHOLD, j] = threshold
        lists.counts[query] = 0
    start_tiles(items.isa, items.tile_configuration)
    _search_panels(lo, items, queries, batch, block, lists)
    end_tiles(items.isa)


@borrowing_kernel
def _search_panels(lo, items, queries, batch, block, lists):
    """List the candidates of all queries of a block, searching all panels of items."""
    isa, row_of_slot, hits = items.isa, items.row_of_slot, block.hits
    for p in range(items.statistics.shape[0]):
        if p == PANELS_TRIED:
            abandon_costly_projections(1, items, block)
        for q in range(block.bound_terms.shape[0]):
            for at in range(find_hits(isa, p, q, items, block)):
                hit = hits[at]
                query, slot = batch[lo + q * PANEL + (hit & 31)], p * PANEL + (hit >> 5)
                _list_row(query, row_of_slot[slot], queries.filters, lists)


@kernel
def list_candidates_of_few(lo, hi, items, queries, min_scores, lists):
    """List the candidates of a few queries, comparing one query at a time."""
    codes = encode_queries(queries, items)
    for query in range(lo, hi):
        inverse_step = np.float32(1.0) / codes.steps[query]
        threshold = threshold_of(query, queries, min_scores[query], inverse_step)
        codes.bound_terms[THRESHOLD, query] = threshold
        lists.counts[query] = 0
    projected, projected_words = project_few_queries(queries, items, codes)
    products = np.empty((hi, PANEL * PANEL), np.int32)
    largest_products = np.empty((hi, PANEL), np.int32)
    hits, n_panels = np.empty(PANEL, np.int32), items.statistics.shape[0]
    n_hits, n_tried, is_costly = 0, 0, projected.uses_full_codes[0] > 0
    for first in range(0, n_panels, PANEL):
        last = min(first + PANEL, n_panels)
        if is_costly:
            multiply_codes(first, last, first, lo, hi, items, codes, products, largest_products)
        else:
            n_hits += _multiply_by_projection(
                first, last, lo, hi, items, codes, projected, projected_words, products,
                largest_products, hits,
            )  # fmt: skip
            n_tried += (last - first) * (hi - lo)
            is_costly = projection_costs_more(n_hits, n_tried, hi - lo, items)
        for query in range(lo, hi):
            _list_reaching(
                query, first, last, items, queries, codes, products[query],
                largest_products[query], hits, lists,
            )  # fmt: skip


@borrowing_kernel
def _multiply_by_projection(
    first, last, lo, hi, items, codes, projected, projected_words, products, largest_products, hits
):
    """For each query, multiply the full codes of the slots that projected codes do not rule out.

    The kernel processes the queries lo to hi and the slots of panels `first` to `last`. A slot is
    ruled out if its projected codes show that it does not reach the threshold of the query. The
    kernel returns the number of (query, slot) pairs whose full codes it has multiplied.
    """
    n_hits = 0
    for panel in range(first, last):
        for query in range(lo, hi):
            n_hits += multiply_reaching_slots(
                panel, first, query, items, codes, projected, projected_words, products,
                largest_products, hits,
            )  # fmt: skip
    return n_hits


@borrowing_kernel
def _list_reaching(
    query, first, last, items, queries, codes, products, largest_products, hits, lists
):
    """Find the rows that may reach the threshold of a query; append them to the list of the query.

    Only rows in panels `first` to `last` are examined.
    """
    bound_terms, row_of_slot = codes.bound_terms, items.row_of_slot
    for panel in range(first, last):
        min_product = product_below(
            bound_terms[THRESHOLD, query], bound_terms[RESIDUAL_NORM, query],
            bound_terms[CODE_NORM, query], bound_terms[OFFSET_WEIGHT, query], items.statistics,
            panel,
        )  # fmt: skip
        if np.float32(largest_products[panel - first]) < min_product:
            continue
        n_slots, start = row_of_slot.shape[0] - panel * PANEL, (panel - first) * PANEL
        for at in range(list_reaching(products, start, min_product, n_slots, hits, 0)):
            _list_row(query, row_of_slot[first * PANEL + hits[at]], queries.filters, lists)


@inlined_kernel
def _list_row(query, row, filters, lists):
    """Append a row to the list of a query, unless a filter excludes the row for this query."""
    if not passes_filters(row, query, filters):
        return
    at = lists.starts[query] + lists.counts[query]
    if at < lists.starts[query + 1]:
        lists.rows[at] = row
    lists.counts[query] += 1

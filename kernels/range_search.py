"""Range search: the items whose scores may reach a bound of each query."""

import numpy as np

from .candidate_filter import may_find, reaching_score, threshold_of
from .few_queries import encode, score_codes
from .jit import borrowing_kernel, inlined_kernel, kernel
from .projected_queries import project_few_queries, projection_costs_more, score_reaching_slots
from .projection_filter import PANELS_TRIED, abandon_costly_projections
from .query_blocks import find_hits, pack_block
from .simd.hits import list_reaching
from .simd.panel import CODE_NORM, OFFSET_WEIGHT, PANEL, RESIDUAL_NORM, THRESHOLD
from .simd.tile_scores import end_tiles, start_tiles


@kernel
def pass_rows(lo, hi, items, queries, batch, bounds, lists):
    """List the items whose scores may reach bounds[i], for the queries batch[lo:hi].

    items is an Items, queries a Queries, and bounds (n,) float64. The candidates are written to
    lists, a CandidateLists in which the list of query i starts at starts[i]. The order of the
    candidates of a query is arbitrary.
    """
    block = pack_block(lo, hi, batch, queries, items, 0)
    for i in range(hi - lo):
        q, lane, query = i >> 5, i & 31, batch[lo + i]
        unit = np.float32(1.0) / block.scales[q, lane]
        block.lanes[q, THRESHOLD, lane] = threshold_of(query, queries, bounds[query], unit)
        lists.counts[query] = 0
    start_tiles(items.isa, items.tile_configuration)
    _pass_panels(lo, items, queries, batch, block, lists)
    end_tiles(items.isa)


@borrowing_kernel
def _pass_panels(lo, items, queries, batch, block, lists):
    isa, order, hits = items.isa, items.order, block.hits
    for p in range(items.statistics.shape[0]):
        if p == PANELS_TRIED:
            abandon_costly_projections(1, items, block)
        for q in range(block.lanes.shape[0]):
            for at in range(find_hits(isa, p, q, items, block)):
                hit = hits[at]
                query, slot = batch[lo + q * PANEL + (hit & 31)], p * PANEL + (hit >> 5)
                _list_row(query, order[slot], queries.filters, lists)


@kernel
def pass_rows_of_few(lo, hi, items, queries, bounds, lists):
    """List candidates as pass_rows does, for few queries that are compared one at a time."""
    codes = encode(queries, items)
    for query in range(lo, hi):
        unit = np.float32(1.0) / codes.scales[query]
        codes.terms[THRESHOLD, query] = threshold_of(query, queries, bounds[query], unit)
        lists.counts[query] = 0
    projected, repeated = project_few_queries(queries, items, codes)
    products, largest = np.empty((hi, PANEL * PANEL), np.int32), np.empty((hi, PANEL), np.int32)
    hits, n_panels = np.empty(PANEL, np.int32), items.statistics.shape[0]
    n_hits, n_tried, is_costly = 0, 0, projected.is_dense[0] > 0
    for first in range(0, n_panels, PANEL):
        last = min(first + PANEL, n_panels)
        if is_costly:
            score_codes(first, last, first, lo, hi, items, codes, products, largest)
        else:
            n_hits += _score_run_by_projection(
                first, last, lo, hi, items, codes, projected, repeated, products, largest, hits
            )
            n_tried += (last - first) * (hi - lo)
            is_costly = projection_costs_more(n_hits, n_tried, hi - lo, items)
        for query in range(lo, hi):
            _pass_run(
                query, first, last, items, queries, codes, products[query], largest[query], hits,
                lists,
            )  # fmt: skip


@borrowing_kernel
def _score_run_by_projection(
    first, last, lo, hi, items, codes, projected, repeated, products, largest, hits
):
    """Multiply the full codes of the slots of panels first to last that may reach a threshold.

    The projected codes decide which slots these are. The function returns the number of the slots
    of all queries lo to hi.
    """
    n_hits = 0
    for panel in range(first, last):
        for query in range(lo, hi):
            n_hits += score_reaching_slots(
                panel, first, query, items, codes, projected, repeated, products, largest, hits
            )
    return n_hits


@borrowing_kernel
def _pass_run(query, first, last, items, queries, codes, products, largest, hits, lists):
    """List the slots of panels first to last whose products with a query reach its threshold."""
    terms, order = codes.terms, items.order
    for panel in range(first, last):
        least = reaching_score(
            terms[THRESHOLD, query], terms[RESIDUAL_NORM, query], terms[CODE_NORM, query],
            terms[OFFSET_WEIGHT, query], items.statistics, panel,
        )  # fmt: skip
        if np.float32(largest[panel - first]) < least:
            continue
        n_slots, place = order.shape[0] - panel * PANEL, (panel - first) * PANEL
        for at in range(list_reaching(products, place, least, n_slots, hits, 0)):
            _list_row(query, order[first * PANEL + hits[at]], queries.filters, lists)


@inlined_kernel
def _list_row(query, row, filters, lists):
    """Append a row to the list of a query, unless a filter excludes the row for this query."""
    if not may_find(
        row, query, filters.self_rows, filters.allowed, filters.excluded_indptr,
        filters.excluded_rows,
    ):  # fmt: skip
        return
    if lists.counts[query] < lists.capacity:
        lists.rows[lists.starts[query] + lists.counts[query]] = row
    lists.counts[query] += 1

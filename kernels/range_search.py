"""Range search: the items whose scores may reach a bound of each query."""

import numpy as np

from .candidate_filter import may_find, threshold_of
from .jit import borrowing_kernel, kernel
from .projection_filter import PANELS_TRIED, abandon_costly_projections
from .query_blocks import find_hits, pack_block
from .simd.panel import PANEL, THRESHOLD
from .simd.tile_scores import end_tiles, start_tiles


@kernel
def pass_rows(lo, hi, items, queries, batch, bounds, lists):
    """List the items whose scores may reach bounds[i], for the queries batch[lo:hi].

    items is an Items, queries a Queries, and bounds (n,) float64. The candidates are written, in no
    particular order, to lists, a CandidateLists in which the list of batch[i] starts at starts[i].
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
    isa, order, hits, filters = items.isa, items.order, block.hits, queries.filters
    self_rows, allowed = filters.self_rows, filters.allowed
    indptr, excluded = filters.excluded_indptr, filters.excluded_rows
    starts, counts, rows, capacity = lists.starts, lists.counts, lists.rows, lists.capacity
    is_filtered = allowed.shape[0] > 0 or excluded.shape[0] > 0
    for p in range(items.statistics.shape[0]):
        if p == PANELS_TRIED:
            abandon_costly_projections(1, items, block)
        for q in range(block.lanes.shape[0]):
            for at in range(find_hits(isa, p, q, items, block)):
                hit = hits[at]
                i, slot = lo + q * PANEL + (hit & 31), p * PANEL + (hit >> 5)
                query, row = batch[i], order[slot]
                if row == self_rows[query] or (
                    is_filtered and not may_find(row, query, self_rows, allowed, indptr, excluded)
                ):
                    continue
                if counts[query] < capacity:
                    rows[starts[i] + counts[query]] = row
                counts[query] += 1

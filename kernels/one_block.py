"""Exact top-k of one block of queries, which are taken as they are.

``search_one_block`` does in one launch what Python does for many blocks around ``search_grid``: it
measures and scales the queries, searches them by guessed thresholds, and searches those again whose
guess was too high. For 33 queries of 1,000 x 64 rows, Python would take longer than the search.
"""

import numpy as np

from .candidate_filter import NEVER
from .few_queries import NOT_ORDINARY
from .jit import kernel
from .query_scaling import are_ordinary, items_at, scaled_queries
from .records import PanelSearch, SearchResults
from .tile_top_k import search_block


@kernel
def search_one_block(lo, hi, addresses, query_rows, filters, search, scores, rows):
    """Best k rows of panels lo .. hi for each query, written to part lo // panels_per_range.

    The arguments are those of ``search_few_queries``, but query_rows (n, d) may have more rows. O(n
    m d) operations of the tiles, and for queries whose guess was too high as many again. Allocates
    as search_block does, and 72 bytes for each query.
    """
    part, n = lo // search.panels_per_range, query_rows.shape[0]
    items = items_at(addresses)
    queries = scaled_queries(query_rows, filters, addresses, items.shift)
    if search.must_check and not are_ordinary(queries.norms):
        rows[part, 0, 0] = NOT_ORDINARY
        return
    unproved = np.empty(n, np.float32)
    results = SearchResults(np.full(n, -NEVER), scores[part], rows[part], unproved)
    unfinished, count, stride = np.arange(n), n, search.sample_stride
    first = np.int64(0)  # of the type of count: a literal would be another signature
    while count > 0:
        panels = PanelSearch(lo, hi, search.capacity, stride, search.sample_rank, False)
        search_block(first, count, items, queries, unfinished, panels, results)
        searched, count, stride = count, 0, 0  # the second pass guesses nothing
        for i in range(searched):
            query = unfinished[i]
            unfinished[count] = query
            count += unproved[query] > -NEVER

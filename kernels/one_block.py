"""Exact top-k of one block of queries, which are neither validated nor converted.

``search_one_block`` does in one launch everything that Python does around ``search_grid`` when a
search has many blocks: it measures and scales the queries, searches them with estimated thresholds,
and searches the queries whose estimate was too high once more. For 33 queries among 1,000 rows of
64 columns, these steps would take longer in Python than the search.
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
    """Find the best k rows of panels lo to hi for each query.

    The arguments are those of ``search_few_queries``, but query_rows (n, d) may have more rows. The
    tiles perform O(n m d) operations, and once more as many for the queries whose estimated
    threshold was too high. The kernel allocates the memory of search_block, and 72 bytes per query.
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
    first = np.int64(0)  # a literal 0 would have another type than count, and another signature
    while count > 0:
        panels = PanelSearch(lo, hi, search.capacity, stride, search.sample_rank, False)
        search_block(first, count, items, queries, unfinished, panels, results)
        searched, count, stride = count, 0, 0  # the second pass estimates no threshold
        for i in range(searched):
            query = unfinished[i]
            unfinished[count] = query
            count += unproved[query] > -NEVER

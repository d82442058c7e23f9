"""Nearest neighbours: ``top_k``, ``SimilarityIndex``, range search, blocks of scores, re-ranking.

Every search of dense rows is planned first and executed afterwards; an index may store the plan.
``top_k(Q, X)`` returns the same bits as ``SimilarityIndex().fit(X).search(Q)``, and the rows may be
in memory, in a file or on a cluster::

    SimilarityIndex.search
        |  PreparedSearches.search (prepared): few queries, without conversion
        |      the stored Launch (launch) calls its kernel  --->  few_queries, tile_top_k
        |  None: the search cannot be prepared
        v
    top_k, SimilarityIndex
        |  SearchRequest (request), ItemSource (sources)
        v
    execute.execute                     one batch of queries after the other
        |  query_batch.read_batch       reads, validates and encodes the queries
        |
        |---> groups.GroupSearch        each query finds items of its group
        |---> lists.best_of_lists       each query has a list of items
        '---> segment_search.search_segments: segments of items; the best are merged
                  |
                  v
              scan.search_segment  ---> plan.plan_search: sizes in, SearchPlan out; reads no array
                  |                           ^
                  | the method of the plan    '---- explain, estimate: in words and seconds
                  v
              one kernel over tasks of query blocks x panel ranges

An index stores the plans of searches with few queries, together with the arguments of their kernels
(``prepared``), so the second such search launches the kernel at once. A measure that is an inner
product after encoding is searched by a scan of the codes. A measure that only has an upper bound of
this form is searched by ``filter_refine``. ``execute.finish`` converts raw scores to results.

The modules of the search, from the bottom up:

=================== ==============================================================================
``layout``          the format in which an instruction set packs a row
``cost_model``      thresholds by which a search is planned, rates by which its time is estimated
``task_grid``       the division of a scan into tasks for threads
``batches``         the numbers of queries and rows that fit the working memory
``plan``            ``plan_search``: from sizes to a ``SearchPlan``
``options``         threads, working memory and progress of a call
``filters``         excluded pairs of a query and an item, and allowed items
``rankings``        the best items of each query, and the merging of such rankings
``packing``         packed rows of items, and queries in the form that the tile kernels read
``projection``      short codes along principal axes, and the decision whether to use them
``duplicates``      groups of equal rows
``segments``        rows with their packed forms; the facts that a plan needs
``item_groups``     the group of each item, and the rows of a segment by group
``request``         the checked arguments of a search that is not prepared
``launch``          the call of a kernel for few queries, where only the queries are missing
``scan``            the execution of the plan of one segment
``numpy_search``    the same search in NumPy, while the kernels are not compiled
``sources``         one protocol for items in memory and items that are read in blocks
``query_batch``     a batch of queries: reading, validation and encoding
``filter_refine``   the search of a segment by a measure that has only an upper bound
``segment_search``  the search of all segments for a batch of queries
``lists``           the search of a separate list of items for each query
``groups``          the search of the items in the group of each query
``execute``         the execution of a request
``explain``         a plan in words; ``estimate``: its bytes and seconds
=================== ==============================================================================

The modules of the index, from the bottom up:

=================== ==============================================================================
``ids``             arrays of ids, and the lookup of an id among the rows of a segment
``index_parts``     a segment with ids, in memory or in a memory map; the merging of parts
``index_files``     the files of one part of a saved index
``index_state``     the items of an index at one moment; converts positions, ids and rows
``index_changes``   the state of an index after items are added, replaced or removed
``index_directory`` the directory of a saved index: its reading and writing
``prepared``        searches with few queries that an index stores ready to run
``id_filters``      ``allowed_ids`` and ``exclude_ids`` as positions
``model_check``     the name of the model that made the rows, and canaries
``index``           ``SimilarityIndex``, which replaces its state as a whole
=================== ==============================================================================

The other searches:

=================== ==============================================================================
``radius``          all pairs with a score of at least ``min_score``
``near_duplicates`` the connected components of these pairs
``communities``     groups of rows around central rows
``blocks``          all scores, for some queries at a time
``sparse``          nearest neighbours among sparse rows, by inverted lists (``sparse_rows``)
``bits``            nearest neighbours among packed bits
``rescoring``       the best of a list of candidates, by the exact score of a measure
``rerank``          a new order of candidates, by a score that exists only for pairs
``transformer``     a step of scikit-learn's pipelines, with ``distances``
=================== ==============================================================================
"""

from fastcos.search.blocks import similarity_blocks
from fastcos.search.communities import community_detection
from fastcos.search.explain import SearchExplanation, explain_top_k
from fastcos.search.index import SimilarityIndex
from fastcos.search.index_parts import IndexMemory
from fastcos.search.near_duplicates import NearDuplicates, near_duplicates
from fastcos.search.radius import neighbors_above
from fastcos.search.rerank import STSScorer, WordRotatorsScorer, rerank
from fastcos.search.rescoring import Rescored, rescore
from fastcos.search.results import IndexNeighbors, Neighbors
from fastcos.search.semantic_search import semantic_search
from fastcos.search.top_k import top_k

__all__ = [
    "IndexMemory",
    "IndexNeighbors",
    "NearDuplicates",
    "Neighbors",
    "Rescored",
    "STSScorer",
    "SearchExplanation",
    "SimilarityIndex",
    "WordRotatorsScorer",
    "community_detection",
    "explain_top_k",
    "near_duplicates",
    "neighbors_above",
    "rerank",
    "rescore",
    "semantic_search",
    "similarity_blocks",
    "top_k",
]

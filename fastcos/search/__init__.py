"""Nearest neighbours: ``top_k``, ``SimilarityIndex``, range search, blocks of scores, re-ranking.

Every search of dense rows is planned first and executed afterwards; an index may store the plan.
``top_k(Q, X)`` returns the same bits as ``SimilarityIndex().fit(X).search(Q)``, and the rows may be
in memory, in a file or on a cluster::

    SimilarityIndex.search
        |  PreparedSearches.search (prepared): few queries, without conversion
        |      the stored Launch (launch) calls its kernel  --->  few_queries, projected_queries,
        |                                                       tile_top_k
        |  None: the search cannot be prepared
        v
    top_k, SimilarityIndex
        |  SearchRequest (request), ItemSource (sources)
        v
    execute.execute                     one batch of queries after the other
        |  SearchRequest.read_batch     reads, validates and encodes the queries
        |
        |---> group_search.GroupSearch          each query finds items of its group
        |---> candidate_lists.best_of_lists     each query has a list of items
        '---> segment_search.search_segments: segments of items; the best are merged
                  |
                  v
              scan.search_segment  ---> plan.plan_search: sizes in, SearchPlan out; reads no array
                  |                           ^
                  | the method of the plan    '---- explain, estimate: in words and seconds
                  v
              the kernels of the method, over ranges of queries and rows

The method of a plan determines the modules of ``fastcos.kernels`` that search the segment::

    numpy           none, until the kernels are compiled: numpy_search multiplies matrices
    score_all       exhaustive_top_k.score_all_rows: every pair is scored in float64
    rows_as_given   tile_top_k.search_grid: float32 tiles of rows that are not packed
    tiles           the rows are packed; few_queries or projected_queries: few queries, one by one;
                    tile_top_k.search_grid: queries in blocks
    distinct        like tiles, but one row of each group of equal rows is packed and searched;
                    exhaustive_top_k.expand_copies adds its copies
    repack          packs the allowed rows and plans their search again, usually by tiles

``SimilarityIndex.fit`` packs the rows, or the first search does, if the kernels were not compiled
during ``fit``. The first search of few queries for k neighbours is planned, and the index stores
the plan together with the arguments of the kernel (``prepared``). The next search with the same
number of queries and the same k therefore launches the kernel at once.

A call of ``top_k`` with at most 7 queries packs nothing, because packing a row takes as long as
computing 7 scores of the row (``cost_model.CostModel.scores_per_packed_row``). The method of such a
call is usually ``score_all``; it is ``rows_as_given`` for 4 to 7 queries of many float32 rows on
CPUs with AVX-512, and ``numpy`` while the kernels are not compiled.

If a measure is an inner product of encoded rows, a scan of the packed rows finds the neighbours. If
a measure only has an upper bound that is an inner product, ``filter_refine`` finds candidates by
the bound and ranks them by the measure. ``execute.finish`` converts raw scores to results.

The modules of the search, from the bottom up:

==================== ===============================================================================
``layout``           the format in which an instruction set packs a row
``cost_model``       thresholds by which a search is planned, rates by which its time is estimated
``task_grid``        the division of a scan into tasks for threads
``batches``          the numbers of queries and rows that fit the working memory
``plan``             ``plan_search``: from sizes to a ``SearchPlan``
``options``          threads, working memory and progress of a call
``results``          the neighbours that a search returns, and their conversion to tables
``filters``          excluded pairs of a query and an item, and allowed items
``rankings``         the best items of each query, and the merging of such rankings
``packing``          packed rows of items, and queries in the form that the tile kernels read
``projection``       short codes along principal axes, and the decision whether to use them
``duplicates``       groups of equal rows
``segments``         rows with their packed forms; the facts that a plan needs
``item_groups``      the group of each item, and the rows of a segment by group
``request``          the checked arguments of a search that is not prepared; batches of its queries
``launch``           the call of a kernel for few queries, where only the queries are missing
``scan``             the execution of the plan of one segment
``numpy_search``     the same search in NumPy, while the kernels are not compiled
``sources``          one protocol for items in memory and items that are read in blocks
``filter_refine``    the search of a segment by a measure that has only an upper bound
``segment_search``   the search of all segments for a batch of queries
``candidate_lists``  the search of a separate list of items for each query
``group_search``     the search of the items in the group of each query
``execute``          the execution of a request
``top_k``            ``top_k``, which checks its arguments and executes the request
``output_directory`` the directory of results, in which an interrupted ``top_k`` resumes
``explain``          a plan in words; ``estimate``: its bytes and seconds
==================== ===============================================================================

The modules of the index, from the bottom up:

==================== ===============================================================================
``ids``              arrays of ids, and the lookup of an id among the rows of a segment
``index_parts``      a segment with ids, in memory or in a memory map; the merging of parts
``index_files``      the files of one part of a saved index
``index_state``      the items of an index at one moment; converts positions, ids and rows
``index_changes``    the state of an index after items are added, replaced or removed
``index_directory``  the directory of a saved index: its reading and writing
``prepared``         searches with few queries that an index stores ready to run
``id_filters``       ``allowed_ids`` and ``exclude_ids`` as positions
``model_check``      the name of the model that made the rows, and canaries
``attribute_hints``  errors for attribute names of other libraries, which name ours
``index``            ``SimilarityIndex``, which replaces its state as a whole
==================== ===============================================================================

The other searches:

==================== ===============================================================================
``range_candidates`` the items that may reach a score, by the bounds of the tiles
``range_search``     all pairs with a score of at least ``min_score``
``near_duplicates``  the connected components of these pairs
``communities``      groups of rows around central rows
``semantic_search``  the search of sentence-transformers, with exact scores
``score_blocks``     all scores, for some queries at a time
``sparse``           nearest neighbours among sparse rows, by inverted lists (``sparse_rows``)
``bits``             nearest neighbours among packed bits
``rescoring``        the best of a list of candidates, by the exact score of a measure
``rerank``           a new order of candidates, by a score that exists only for pairs
``transformer``      a step of scikit-learn's pipelines, with ``distances``
``compile_searches`` compiles all code that searches of rows of one type need
==================== ===============================================================================
"""

from fastcos.search.communities import community_detection
from fastcos.search.explain import SearchExplanation, explain_top_k
from fastcos.search.index import SimilarityIndex
from fastcos.search.index_parts import IndexMemory
from fastcos.search.near_duplicates import NearDuplicates, near_duplicates
from fastcos.search.range_search import neighbors_above
from fastcos.search.rerank import STSScorer, WordRotatorsScorer, rerank
from fastcos.search.rescoring import Rescored, rescore
from fastcos.search.results import IndexNeighbors, Neighbors
from fastcos.search.score_blocks import similarity_blocks
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

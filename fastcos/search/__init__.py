"""Nearest neighbours: ``top_k``, ``SimilarityIndex``, range search, blocks of scores, re-ranking.

A search for the nearest neighbours among dense rows first makes a plan and then executes it. Two
kinds of searches need no plan: searches in which each query has its own list of items
(``candidate_lists``, ``rescoring``), and searches that return all scores (``score_blocks``). When
an index has planned a search, it may store the resulting calls of compiled kernels. The results of
``top_k(Q, X)`` and ``SimilarityIndex().fit(X).search(Q)`` are bit-for-bit identical, whether the
rows are in memory or in a file.

The following terms occur in most modules. A *segment* is a set of rows that are searched together;
the rows of an index usually form one segment. The rows of a segment are usually *packed*: each row
is quantised to int8 codes, and 32 rows form a *panel* (``fastcos.kernels.packing``). A product of
codes approximates a score; the product and the largest possible error of the codes give an upper
bound on the score. Rows whose upper bound is too low are dropped, and the other rows are scored in
float64. Long rows may also have a *projection*, which consists of shorter codes with which most
rows are dropped. A search takes this path through the modules::

    SimilarityIndex.search
        |  PreparedSearches.search (prepared): few queries, which the kernel validates; see below
        |  if it returns None, because this search cannot be prepared:
        v
    (top_k begins here)
        |  ItemSource (sources)         the items
        |  SearchRequest (request)      what each query asks of the items
        v
    execute.execute                     for each batch of queries
        |  execute.read_batch           reads, validates and encodes the queries
        |
        |---> group_search.GroupSearch          if each query searches the items of its group
        |---> candidate_lists.best_of_lists     if each query searches its own list of items
        '---> segment_search.search_segments    otherwise; merges the best items of all segments
                  |
                  v
              scan.search_segment  ---> plan.plan_search: sizes in, SearchPlan out
                  |                           ^
                  | the method of the plan    '---- explain, estimate: the plan in words, seconds
                  v
              the kernels of the method, over ranges of queries and rows

A *launch* stores a compiled kernel and the arguments that do not depend on the queries. If an index
has stored a launch for a search, the search consists of these calls::

    SimilarityIndex.search        index         the caller passes only queries and k
      PreparedSearches.search     prepared      finds the stored launch of each segment
        Launch.run                launch        runs the launch for these queries
          match_row_type          similarity/encoded_rows, converts queries without loss
          bytes_of                kernels/records, returns a read-only view of the queries
          search_few_queries      kernels/few_queries, or another kernel of the launch
        IndexNeighbors            results       positions, scores (rounded to float32), and the ids
                                                at the positions

To understand this path, read ``SimilarityIndex.search`` down to the first call of
``prepared.search``, the methods ``PreparedSearches.search`` and ``Launch.run``, and the module
``kernels/few_queries.py``, which says why the result is exact. The docstring of
``kernels/candidate_filter.py`` proves the bound on which this rests. The example near the end of
this page follows one search with its numbers.

If the caller also passes ``n_threads``, a mask of allowed items or ids to drop, the stored launch
is used, too, after a few more steps. Launches are stored by the shape and the number type of the
queries and by k; in a large index, also by the number of threads and the working memory. If a
projection was added to the packed rows of a segment meanwhile, the search is planned again.

A projection can be added after ``fit`` has returned. For a segment of at least 4,096 rows and 192
columns, ``fit`` may start a thread that replaces the packed rows of the segment (``projection``).

The method of a plan determines the modules of ``fastcos.kernels`` that search the segment. The
files of these modules are in the folder ``kernels/`` at the top of the repository; the folder
``fastcos/kernels/`` contains only a wrapper that imports them::

    numpy           none; while the kernels are not compiled, numpy_search multiplies matrices
    score_all       exhaustive_top_k.score_all_rows computes the float64 score of every pair
    unpacked        tile_top_k.search_grid compares float32 tiles of rows that are not packed
    packed          the module of the plan's kernel: few_queries or projected_queries compare few
                    queries, one by one, with the packed rows; tile_top_k compares blocks of
                    queries; self_join multiplies each pair of rows once, if the queries are the
                    rows
    distinct        as for packed, but only one row of each group of equal rows is packed and
                    searched; exhaustive_top_k.expand_copies adds the other rows of the group
    repack          the allowed rows are packed for this search alone; a second plan, whose method
                    is usually packed, determines the modules

``SimilarityIndex.fit`` packs the rows if the search kernels are compiled. If the kernels are
compiled only after ``fit``, the first search that needs packed rows packs them. In the first search
with a given k and a given number of queries (at most 64), the index plans the search of each
segment, and usually stores one launch per segment (``prepared``). If the next search has the same
k, and its queries have the same shape and number type, it runs the stored launches without
planning. Some searches cannot be prepared: for example, searches with a large k, and most searches
of an index that has grouped equal rows. If the plans show that a search cannot be prepared, the
index stores this fact.

A call to ``top_k`` with at most 7 queries usually packs no rows, because packing a row takes as
long as scoring the row for 7 queries (``cost_model.CostModel.scores_per_packed_row``). The method
of such a call is usually ``score_all``. If ``top_k`` is called with 4 to 128 queries and many
float32 rows, the method is usually ``unpacked``, unless the instruction set is avx2 or avxvnni.
While the kernels are not compiled, the method is usually ``numpy``.

If the score of a measure can be computed from a product of encoded rows, a scan of the packed rows
finds the neighbours. If a measure is ``UpperBounded``, a product of encoded rows determines only an
upper bound on the score. In this case, ``filter_refine`` finds candidates by the upper bounds, and
ranks the candidates by their exact scores. There is no module for the measure "cosine": it is a row
of the table in ``fastcos/similarity/parameter_free.py``, like most other measures without
parameters. A search compares raw scores, which order the items in the same way as the scores of the
measure. ``results.neighbors_of`` converts the raw scores of the neighbours to scores of the
measure; if the index has stored a launch for the search, ``PreparedSearches.search`` converts them.

The planner consists of the functions of three modules. These functions only compute plans: they
change no data and start no threads. The plans depend on sizes, on a few facts about values (such as
whether norms are moderate), and on the constants of ``cost_model.COSTS``::

    plan       how a segment or a group is searched: the method, the kernel, and whether the kernel
               uses the projection; when duplicates are grouped and when a projection is tried
    task_grid  called by plan, group_search and explain: the tasks for threads, the buffers, and the
               ranks of the scores that serve as first thresholds
    batches    called by sources and explain: the queries of a batch, and the rows on disk that form
               a segment

A plan does not depend on the values of the queries, for example on their norms. It does not depend
on the number of pairs that the bounds rule out, either. Modules that do not belong to the planner
make the following decisions about a search:

* The packed form of the rows is chosen when an index is fitted, or when a search packs rows.
  ``layout.tile_layout`` chooses int8 codes or float32 numbers. If there are groups of equal rows
  and ``plan.pays_grouping`` returns True, ``Segment.pack`` packs only one row of each group. A
  sample of the rows decides whether a direction is subtracted from all rows
  (``packing._common_direction``). A second sample of the rows decides whether a projection is
  added, and how many axes it has (``projection._may_pay``, ``projection._directions``). The planner
  does not choose the packed form of the rows; it reads in ``SegmentSizes`` how the rows are packed.
* ``parallel.readiness`` decides whether a search runs kernels or NumPy, and starts a compilation if
  necessary. ``scan`` stores this decision in a ``Machine`` object, which the planner reads.
* The instruction set, the number of threads and the working memory are settings (``config``) or
  arguments of the call. The planner reads these values from the ``Machine`` object, too.
* The sizes of blocks inside a kernel are constants of the kernel, such as ``_WORDS_OF_RUN`` and
  ``_CHUNK`` in ``few_queries``.
* Some decisions about a search depend on the values of the queries or of the rows; the docstring of
  ``plan`` lists these decisions.

Each branch in the code of a search either makes a decision that this docstring lists, or belongs to
one of the following three kinds. Some branches check or convert an argument (``request``). Some
branches depend on which items each query searches: its own list of items, the items of its group,
or all items. The remaining branches reuse a stored plan or launch.

As an example, suppose that an index with 1,000 random float32 rows of 64 columns is searched for
the 10 nearest rows of one query, on a CPU with AVX-512 VNNI:

* ``fit`` has packed the 1,000 rows of the example. The 64 codes of a row are 16 words of 4 bytes.
  The rows are stored in 32 panels with 32 slots each (64 KiB), in which 24 slots stay empty.
* For the first search of the example, the planner makes a plan. The plan has the method "packed"
  and the kernel "few_queries". A single task searches all rows. The ``first_rank`` of the plan is
  12, which is used below.
* The index stores the launch of the example: the call of the kernel, without the query. The plan is
  the same for any number of threads, so the launch is stored under a key without options. The key
  is the shape of the queries, here (1, 64), their number type, and k.
* The second search of the example finds the stored launch and calls
  ``few_queries.search_few_queries`` for all 32 panels, in the calling thread.
* In the example, the kernel multiplies the codes of the query by the codes of every slot. The
  kernel then guesses a first threshold. For each of the 32 panels, it multiplies the largest
  product by the quantisation step of the panel; the 12th largest of these 32 results is the first
  threshold (``first_rank``).
* On average, about 15 slots of the example reach the first threshold and are scored in float64.
* The 10th best of the 15 float64 scores of the example is a proved threshold: a row that does not
  reach it is not among the 10 best.
* In most searches of the example, no slot that was not scored has an upper bound that reaches the
  proved threshold. The result then consists of the 10 best of the 15 scored rows; the other 985 of
  the 1,000 rows are never scored in float64. (Among more rows, or rows with more columns, a few
  more slots are usually scored.)

In each of the following three tables, an imported module comes before the modules that import it at
the top of their files.

The modules of the search:

==================== ===============================================================================
``layout``           the format of packed rows for each instruction set
``cost_model``       thresholds for planning a search, and rates for estimating its time
``task_grid``        divides the comparisons of queries with rows into tasks for threads
``batches``          computes how many queries and rows fit into the working memory
``plan``             ``plan_search`` makes a ``SearchPlan`` from the sizes of a search
``options``          the number of threads, the working memory and the progress callback of a call
``results``          the neighbours that a search returns, with their scores, also as tables
``filters``          excluded pairs and allowed items: their conversion to positions and records
``rankings``         the best items of each query, and the merging of rankings
``packing``          packs items, and converts queries to the form that the tile kernels read
``projection``       short codes along principal axes, and the decision whether to use them
``duplicates``       finds groups of equal rows
``segments``         a segment: rows of items, their packed forms, and the sizes that a plan needs
``item_groups``      the group of each item, and the rows of a segment sorted by group
``request``          what each query of a search asks of the items; a batch of queries
``launch``           a kernel call for few queries, complete except for the queries
``numpy_search``     the same search in NumPy, while the kernels are not compiled
``self_join``        runs a search whose queries are the rows of the segment
``scan``             executes the plan for one segment
``sources``          one protocol for items in memory and items that are read in blocks
``filter_refine``    searches a segment by a measure that has only an upper bound
``segment_search``   searches all segments for a batch of queries
``candidate_lists``  searches a separate list of items for each query
``group_search``     searches the items in the group of each query
``execute``          divides the queries into batches, reads and searches each batch
``top_k``            ``top_k``, which checks its arguments and executes the request
``output_directory`` the directory of results, in which an interrupted ``top_k`` resumes
``explain``          describes a plan in words; ``estimate`` computes its bytes and seconds
==================== ===============================================================================

The modules of the index:

==================== ===============================================================================
``ids``              the ids of the rows of a segment, sorted so that an id can be looked up
``model_check``      checks the name of the model that made the rows, and the canaries
``index_parts``      a part of an index: a segment with ids; the merging of parts
``index_files``      the files of one part of a saved index
``prepared``         stored searches with few queries, which an index runs without planning
``index_state``      the items of an index at one moment; converts between positions, ids and rows
``index_changes``    computes the state of an index after items are added, replaced or removed
``index_directory``  reads and writes the directory of a saved index
``attribute_hints``  errors for attribute names of other libraries, with the names of fastcos
``index``            ``SimilarityIndex``, which replaces its state as a whole
==================== ===============================================================================

The other searches:

==================== ===============================================================================
``range_candidates`` finds the items that may reach a score, by the bounds that tiles compute
``range_search``     all pairs with a score of at least ``min_score``
``near_duplicates``  groups of items that are connected by pairs with high scores
``communities``      groups of rows around central rows
``semantic_search``  ``semantic_search`` of sentence-transformers, with exact scores
``score_blocks``     the scores of all pairs, for a block of queries at a time
``sparse``           nearest neighbours among sparse rows, by inverted lists (``sparse_rows``)
``bits``             nearest neighbours among packed bits
``rescoring``        the best items in a list of candidates, by the exact score of a measure
``rerank``           a new order of candidates, by a score that is computed pair by pair
``transformer``      a transformer for scikit-learn's pipelines; it uses ``distances``
``compile_searches`` compiles all kernels that searches of dense rows need
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

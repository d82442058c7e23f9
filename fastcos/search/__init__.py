"""Nearest neighbours: ``top_k``, ``SimilarityIndex``, range search, blocks of scores, re-ranking.

One pipeline serves every entry point for dense rows. ``top_k(Q, X)`` gives the bits of
``SimilarityIndex().fit(X).search(Q)``, and rows may lie in memory, in a file or on a cluster::

    top_k ------------.                                            .-> inner-product scan (scan)
    SimilarityIndex ---+-> SearchRequest, FittedItems -> search --<--> filter_and_refine
    distributed.top_k -'    (request)            (search)          `-> lists (of allowed items)
                                                   |
                     batches of queries x segments of items, best k merged, finished once

``search`` cuts the queries into batches that fit ``working_memory``. Each batch meets each segment
of the items: one in memory, several of an index that changed, many where ``out_of_core`` reads
memory-mapped rows. A measure that is an inner product after encoding is scanned; one
with an upper bound goes through ``filter_refine``. ``finish`` alone turns raw scores into results.

An index has parts, each a segment with ``ids``: ``index_parts`` merges them, ``index_files`` writes
and maps them, ``index_state`` has all of them, and ``index`` replaces it as a whole.

``radius`` lists all pairs from a threshold on, ``near_duplicates`` connects them, ``communities``
groups rows around central ones, ``blocks`` yields all scores, ``sparse`` searches sparse rows by
inverted lists, ``transformer`` is a step of scikit-learn's pipelines, ``rerank`` reorders
candidates by a score that exists for pairs only, ``rescoring`` by the exact score of a measure.
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

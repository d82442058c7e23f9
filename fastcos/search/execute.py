"""Execute a request: divide its queries into batches, and search the items for each batch.

``execute`` runs the searches of dense rows that come from ``top_k``, from ``SimilarityIndex``, and
from rows on disk. Searches that an index has prepared do not use ``execute``: the module
``prepared`` runs them. ``execute`` divides the queries into batches that fit the working memory.
The request determines the method by which a batch is searched::

    each query finds items of its group        group_search.GroupSearch
    each query has a list of items             candidate_lists.best_of_lists
    all queries may find the same items        segment_search.search_segments

The search of a batch returns positions and raw scores, which ``neighbors_of`` converts to results.
Workers of a cluster call ``search_segments`` directly, each for a part of the items.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastcos import parallel
from fastcos.search.candidate_lists import best_of_lists
from fastcos.search.group_search import GroupSearch
from fastcos.search.options import ExecutionOptions
from fastcos.search.rankings import Ranking
from fastcos.search.request import QueryBatch, SearchRequest
from fastcos.search.results import Neighbors, neighbors_of
from fastcos.search.segment_search import search_segments
from fastcos.search.sources import ItemSource


def execute(
    items: ItemSource, request: SearchRequest, options: ExecutionOptions, results: Any = None
) -> Neighbors:
    """Answer a request: read and search every batch of queries, and convert rankings to results.

    If ``results`` is a ``storage.checkpoint.Checkpoint``, the neighbours of each batch are written
    to the files of the checkpoint and are not kept in memory.
    """
    n, k = request.queries.shape[0], request.k
    if not (n and k):
        return Neighbors(np.empty((n, k), np.int64), np.empty((n, k), np.float32))
    search = _batch_search(items, request, options)
    # The queries of a group follow one another, so that the rows of the group stay in the caches.
    order = None if request.groups is None else request.groups.order
    batches: Iterator[tuple[int, int]]
    if results is None:
        size = items.batch_size(request, options)
        batches = iter([(lo, min(n, lo + size)) for lo in range(0, n, size)])
        is_one_batch = n <= size and order is None
        shape = 0 if is_one_batch else n, k  # one batch is returned without a copy
        indices, scores = parallel.unfilled(shape, np.int64), parallel.unfilled(shape, np.float32)
    else:
        batches, is_one_batch = results.missing(), False
    for lo, hi in batches:
        numbers = slice(lo, hi) if order is None else order[lo:hi]
        queries = request.read_batch(items.measure, items.segments, numbers, lo, options.n_threads)
        positions, raw_scores = search(queries)
        neighbors = neighbors_of(
            items.measure, queries.rows, positions, raw_scores, request.min_score
        )
        if is_one_batch:
            return neighbors
        if results is None:
            indices[numbers], scores[numbers] = neighbors
        else:
            results.write(lo, **neighbors._asdict())
    return Neighbors(indices, scores) if results is None else Neighbors(**results.finish())


def _batch_search(
    items: ItemSource, request: SearchRequest, options: ExecutionOptions
) -> Callable[[QueryBatch], Ranking]:
    """Return the function that finds the best items for a batch of queries of this request."""
    if request.groups is not None:
        return GroupSearch(items, request, options).best_of
    search = search_segments if request.lists is None else best_of_lists
    return functools.partial(search, items, request, options)

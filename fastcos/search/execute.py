"""Execute a request: divide the queries into batches, and search the items for each batch.

``execute`` runs the searches of dense rows that come from ``top_k`` and ``SimilarityIndex``, among
rows in memory or on disk. Searches that an index has prepared do not use ``execute``: the module
``prepared`` runs them. ``execute`` divides the queries into batches, and ``read_batch`` reads,
validates and encodes the queries of a batch. A batch fits the working memory, with one exception:
if neither the queries nor the items are read in blocks, a batch has at least 1,024 queries
(``cost_model.CostModel.min_batch_queries``). The request determines the method by which a batch is
searched::

    each query finds items of its group        group_search.GroupSearch
    each query has a list of items             candidate_lists.best_of_lists
    all queries may find the same items        segment_search.search_segments

The search of a batch returns positions and raw scores, which ``neighbors_of`` converts to results.
Workers of a cluster call ``read_batch`` and ``search_segments`` directly, each worker for a part of
the queries and of the items.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastcos import parallel
from fastcos.parallel import memmap
from fastcos.search.candidate_lists import best_of_lists
from fastcos.search.filters import no_exclusions
from fastcos.search.group_search import GroupSearch
from fastcos.search.options import ExecutionOptions
from fastcos.search.rankings import Ranking
from fastcos.search.request import QueryBatch, SearchRequest
from fastcos.search.results import Neighbors, neighbors_of
from fastcos.search.segment_search import search_segments
from fastcos.search.sources import ItemSource
from fastcos.similarity.encoded_rows import encode_queries
from fastcos.validation import Integers


def execute(
    items: ItemSource,
    queries: Any,
    request: SearchRequest,
    options: ExecutionOptions,
    results: Any = None,
) -> Neighbors:
    """Return the neighbours that the request asks for, among these items, for each of the queries.

    ``queries`` (n, d) are rows in memory or in a memory map; they may be of a low-precision type.
    If ``results`` is a ``storage.checkpoint.Checkpoint``, the neighbours of each batch are written
    to the files of the checkpoint and are not kept in memory.
    """
    n, k = len(queries), request.k
    if not (n and k):
        return Neighbors(np.empty((n, k), np.int64), np.empty((n, k), np.float32))
    search = _batch_search(items, request, options)
    # The queries of a group follow one another, so that the rows of the group stay in the caches.
    order = None if request.groups is None else request.groups.order
    batches: Iterator[tuple[int, int]]
    if results is None:
        size = items.batch_size(queries, k, options)
        batches = iter([(lo, min(n, lo + size)) for lo in range(0, n, size)])
        is_one_batch = n <= size and order is None
        shape = 0 if is_one_batch else n, k  # one batch is returned without a copy
        indices, scores = parallel.unfilled(shape, np.int64), parallel.unfilled(shape, np.float32)
    else:
        batches, is_one_batch = results.missing(), False
    for lo, hi in batches:
        numbers = slice(lo, hi) if order is None else order[lo:hi]
        batch = read_batch(items, queries, request, numbers, lo, options.n_threads)
        positions, raw_scores = search(batch)
        neighbors = neighbors_of(
            items.measure, batch.rows, positions, raw_scores, request.min_score
        )
        if is_one_batch:
            return neighbors
        if results is None:
            indices[numbers], scores[numbers] = neighbors
        else:
            results.write(lo, **neighbors._asdict())
    return Neighbors(indices, scores) if results is None else Neighbors(**results.finish())


def read_batch(
    items: ItemSource,
    queries: Any,
    request: SearchRequest,
    numbers: slice | Integers,
    first_query: int,
    n_threads: int,
) -> QueryBatch:
    """Read, validate and encode the queries with these indices, and return them as a batch.

    The measure of the items must already be fitted. ``first_query`` is the number of queries in all
    earlier batches.
    """
    if isinstance(numbers, slice):
        rows = memmap.read_rows("queries", queries, numbers.start, numbers.stop)
    else:  # the request has groups, so the queries are in memory
        rows = queries[numbers]
    exclusions = no_exclusions(len(rows))
    if request.exclusions is not None:
        exclusions = request.exclusions.take(numbers)
    encoded = items.encoded_queries(queries)
    if encoded is None:
        encoded = encode_queries(items.measure, rows, n_threads)
    elif len(rows) < len(queries) or not isinstance(numbers, slice):
        encoded = encoded.take(numbers)
    return QueryBatch(first_query, len(queries), rows, encoded, exclusions)


def _batch_search(
    items: ItemSource, request: SearchRequest, options: ExecutionOptions
) -> Callable[[QueryBatch], Ranking]:
    """Return the function that finds the best items for a batch of queries."""
    if request.groups is not None:
        return GroupSearch(items, request, options).best_of
    search = search_segments if request.lists is None else best_of_lists
    return functools.partial(search, items, request=request, options=options)

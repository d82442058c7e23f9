"""Batches of queries: this module reads, validates and encodes the queries of a request.

Queries in memory are validated together with the request. Queries in a memory map and low-precision
queries are read batch by batch, and their values are validated at that time. No other module of a
search reads queries, so every method of search receives queries in the same form.
"""

from typing import NamedTuple

from fastcos.parallel import memmap
from fastcos.search.filters import ExcludedItems, no_exclusions
from fastcos.search.options import ExecutionOptions
from fastcos.search.request import SearchRequest
from fastcos.search.sources import ItemSource
from fastcos.similarity.base import BaseMeasure, encode_queries
from fastcos.similarity.encoded_rows import EncodedRows
from fastcos.validation import Integers, Rows


class QueryBatch(NamedTuple):
    """Queries that are searched together.

    Attributes
    ----------
    first : int
        The number of queries of the request in all earlier batches.
    rows : ndarray (n, d)
        The queries of the caller, as valid rows in memory.
    encoded : EncodedRows
        The same queries, encoded by the measure.
    exclusions : ExcludedItems
        The items that each query of the batch must not find.
    """

    first: int
    rows: Rows
    encoded: EncodedRows
    exclusions: ExcludedItems

    def take(self, places: Integers) -> "QueryBatch":
        """Return the queries at these ascending places, or this batch itself for all places."""
        if len(places) == len(self.rows):
            return self
        return QueryBatch(
            self.first, self.rows[places], self.encoded.take(places), self.exclusions.take(places)
        )


def read_batch(
    items: ItemSource,
    request: SearchRequest,
    options: ExecutionOptions,
    numbers: slice | Integers,
    first: int,
) -> QueryBatch:
    """Return the batch of queries with these numbers; earlier batches have ``first`` queries."""
    if isinstance(numbers, slice):
        rows = memmap.read_rows("queries", request.queries, numbers.start, numbers.stop)
    else:  # a request with groups has its queries in memory
        rows = request.queries[numbers]
    exclusions = no_exclusions(len(rows))
    if request.exclusions is not None:
        exclusions = request.exclusions.take(numbers)
    encoded = _encoded_items(items, request, rows, numbers)
    if encoded is None:
        encoded = encode_queries(items.measure, rows, options.n_threads)
    return QueryBatch(first, rows, encoded, exclusions)


def _encoded_items(
    items: ItemSource, request: SearchRequest, rows: Rows, numbers: slice | Integers
) -> EncodedRows | None:
    """Return the queries as encoded items, if the queries are the items of a single segment.

    The result is None for other queries, or if the measure encodes queries and items differently.
    """
    if len(items.segments) != 1 or request.queries is not items.segments[0].rows:
        return None
    encode = getattr(type(items.measure), "encode_queries", None)
    encoded = items.segments[0].encoded
    # Low-precision queries are converted to float32, but low-precision items are not.
    if encode is not BaseMeasure.encode_queries or rows.dtype != encoded.rows.dtype:
        return None
    is_whole = isinstance(numbers, slice) and len(rows) == len(encoded.rows)
    return encoded if is_whole else encoded.take(numbers)

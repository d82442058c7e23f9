"""The items of a search: segments in memory, or rows that are read in blocks.

``FittedItems`` are encoded segments in memory. ``MappedItems`` are rows on disk or low-precision
rows. Every search reads and encodes ``MappedItems`` in blocks that fit the working memory. The
method ``read_blocks`` is an exception: it reads 4,096 rows at a time, without checking whether they
fit. ``FittedItems`` and ``MappedItems`` both implement ``ItemSource``, so ``execute`` treats them
alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from fastcos import config, validation
from fastcos.parallel import memmap
from fastcos.search import cost_model
from fastcos.search.batches import (
    SEGMENT_MULTIPLE,
    BlockSizes,
    low_precision_memory,
    packs_low_precision,
    plan_batch,
    plan_blocks,
)
from fastcos.search.filters import AllowedRows
from fastcos.search.options import ExecutionOptions
from fastcos.search.request import SearchRequest
from fastcos.search.segments import Segment, encode_segment
from fastcos.similarity.base import BaseMeasure, Measure, require
from fastcos.similarity.encoded_rows import EncodedRows
from fastcos.validation import Integers, Rows


class SegmentTask(NamedTuple):
    """A segment to search, its allowed rows, and the memory for the search.

    Attributes
    ----------
    segment : Segment
        The segment.
    allowed_rows : AllowedRows or None
        The rows of the segment that are allowed in the results; None if all live rows are allowed.
    share : tuple of float
        For progress reports: the share of all items before the start of the segment, and the share
        of all items before its end.
    memory : float
        The number of bytes that the search of the segment may use.
    """

    segment: Segment
    allowed_rows: AllowedRows | None
    share: tuple[float, float]
    memory: float


class ItemSource(Protocol):
    """The interface by which a search reads items, in memory or on disk."""

    @property
    def measure(self) -> Measure:
        """The measure, which is fitted to the items."""

    @property
    def n_items(self) -> int:
        """The number of positions, including the positions of removed items."""

    @property
    def n_live(self) -> int:
        """The number of live items, which are the items that searches can return."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in memory, or an empty tuple if every search reads the rows in blocks."""

    @property
    def rows(self) -> Any:
        """The original rows of the first segment, or all rows if they are read in blocks."""

    def batch_size(self, queries: Any, k: int, options: ExecutionOptions) -> int:
        """Return how many queries form a batch, if k neighbours are searched for each query.

        The batch and its results fit in the working memory, with one exception: if neither the
        queries nor the items are read in blocks, a batch has at least 1,024 queries
        (``cost_model.CostModel.min_batch_queries``).
        """

    def encoded_queries(self, queries: Any) -> EncodedRows | None:
        """Return the encoded items if they can serve as the encoded queries, otherwise None."""

    def restricted_to(self, positions: Integers) -> "FittedItems | None":
        """Return a source that has only the items at these positions; a search packs no other rows.

        If the rows are read in blocks, the method returns None. In this case, no restricted source
        is needed, because a search always packs only the allowed rows of each block.
        """

    def tasks(
        self, queries: Rows, request: SearchRequest, options: ExecutionOptions, within: range | None
    ) -> Iterator[SegmentTask]:
        """Yield the segments that must be searched for a batch of queries.

        `within` is the range of positions to search; None stands for all items. Only
        ``MappedItems`` use `within`; ``FittedItems`` yield all of their segments.
        """

    def read_blocks(
        self, positions: Integers, options: ExecutionOptions
    ) -> Iterator["FittedItems"]:
        """Yield blocks of items in memory that together contain all items at these positions."""

    def read_listed(self, positions: Integers, options: ExecutionOptions) -> "FittedItems":
        """Return items in memory, among them all items at these positions."""


@dataclass(frozen=True)
class FittedItems:
    """Encoded items in memory: the segments of an index, or of one call of a search function.

    An object of this class never changes.
    """

    measure: Measure
    n_items: int
    segments: tuple[Segment, ...]

    @property
    def n_live(self) -> int:
        """The number of live items, which are the items that searches can return."""
        return sum(len(segment.live_row_numbers) for segment in self.segments)

    @property
    def rows(self) -> Any:
        """The original rows of the first segment."""
        return self.segments[0].rows

    def batch_size(self, queries: Any, k: int, options: ExecutionOptions) -> int:
        """Return the number of queries per batch, as ``ItemSource.batch_size`` describes."""
        if memmap.is_read_in_blocks(queries):
            return block_sizes(self.rows, queries, k, self.measure, options).queries
        # If the queries are items that are already encoded, they are not copied.
        n_columns = queries.shape[1] if self.encoded_queries(queries) is None else 0
        return plan_batch(k, n_columns, options.working_memory)

    def encoded_queries(self, queries: Any) -> EncodedRows | None:
        """Return the encoded items if the queries are the rows of the only segment."""
        if len(self.segments) != 1 or queries is not self.segments[0].rows:
            return None
        encoded = self.segments[0].encoded
        encode = getattr(type(self.measure), "encode_queries", None)
        # Encoded items of float16 or bfloat16 are stored as integers with the same bits
        # (``memmap.as_bits``), and cannot serve as queries. Encoded int8 items can.
        are_equal = encode is BaseMeasure.encode_queries and queries.dtype == encoded.rows.dtype
        return encoded if are_equal else None

    def restricted_to(self, positions: Integers) -> "FittedItems | None":
        """Return a source of the items at these positions; the items must form a single segment."""
        return FittedItems(self.measure, self.n_items, (self.segments[0].restricted_to(positions),))

    def tasks(
        self, queries: Rows, request: SearchRequest, options: ExecutionOptions, within: range | None
    ) -> Iterator[SegmentTask]:
        """Yield a task for every segment, as ``ItemSource.tasks`` describes."""
        n_before, n = 0, self.n_live
        for segment in self.segments:
            share = n_before / n, (n_before + len(segment.live_row_numbers)) / n
            n_before += len(segment.live_row_numbers)
            allowed_rows = segment.allow(request.allowed_positions)
            yield SegmentTask(segment, allowed_rows, share, options.working_memory)

    def read_blocks(
        self, positions: Integers, options: ExecutionOptions
    ) -> Iterator["FittedItems"]:
        """Yield all items at once, because they are in memory."""
        yield self

    def read_listed(self, positions: Integers, options: ExecutionOptions) -> "FittedItems":
        """Return all items, because they are in memory."""
        return self


@dataclass(frozen=True)
class MappedItems:
    """Rows on disk or low-precision rows, which every search reads in blocks."""

    measure: Measure
    rows: Any

    @property
    def n_items(self) -> int:
        """The number of rows."""
        return len(self.rows)

    @property
    def n_live(self) -> int:
        """The number of rows; searches can return every row."""
        return len(self.rows)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """An empty tuple: every search creates its own segments when it reads the rows."""
        return ()

    def batch_size(self, queries: Any, k: int, options: ExecutionOptions) -> int:
        """Return the number of queries per batch, as ``ItemSource.batch_size`` describes."""
        return block_sizes(self.rows, queries, k, self.measure, options).queries

    def encoded_queries(self, queries: Any) -> None:
        """Return None: items that are read in blocks are not stored in encoded form."""

    def restricted_to(self, positions: Integers) -> FittedItems | None:
        """Return None: searches of this source always pack only the allowed rows of each block."""
        return None

    def tasks(
        self, queries: Rows, request: SearchRequest, options: ExecutionOptions, within: range | None
    ) -> Iterator[SegmentTask]:
        """Read the rows in blocks, and yield the allowed rows of each block as a segment.

        A block fits in the working memory beside this batch of queries.
        """
        sizes = block_sizes(self.rows, queries, request.k, self.measure, options)
        within = range(self.n_items) if within is None else within
        for first in range(within.start, within.stop, sizes.items):
            last = min(within.stop, first + sizes.items)
            row_numbers = np.arange(last - first, dtype=np.int64)
            if request.allowed_positions is not None:
                in_block = slice(*np.searchsorted(request.allowed_positions, [first, last]))
                row_numbers = request.allowed_positions[in_block] - first
            if len(row_numbers):
                segment = self._read(first, last, options, row_numbers)
                share = (first - within.start) / len(within), (last - within.start) / len(within)
                yield SegmentTask(segment, None, share, sizes.memory)

    def read_blocks(self, positions: Integers, options: ExecutionOptions) -> Iterator[FittedItems]:
        """Read and yield the blocks that contain rows at these positions.

        The blocks start at multiples of ``SEGMENT_MULTIPLE``. The encoded rows are therefore
        bit-for-bit the same as if all rows were encoded together.
        """
        for first in range(0, self.n_items, SEGMENT_MULTIPLE):
            last = min(self.n_items, first + SEGMENT_MULTIPLE)
            if ((first <= positions) & (positions < last)).any():
                segment = self._read(first, last, options)
                yield FittedItems(self.measure, self.n_items, (segment,))

    def read_listed(self, positions: Integers, options: ExecutionOptions) -> FittedItems:
        """Read only the rows at these positions, and return them as one segment."""
        require(self.measure, "append")
        row_numbers = np.unique(positions)
        needed_bytes = float(len(row_numbers) * self.rows.shape[1] * self.rows.itemsize)
        validation.check_memory("working_memory", options.working_memory, needed_bytes)
        if not len(row_numbers):
            return FittedItems(self.measure, self.n_items, ())
        rows = memmap.take_rows("items", self.rows, row_numbers, options.n_threads)
        segment = encode_segment(self.measure, rows, options.n_threads, positions=row_numbers)
        return FittedItems(self.measure, self.n_items, (segment,))

    def _read(
        self, first: int, last: int, options: ExecutionOptions, numbers: Integers | None = None
    ) -> Segment:
        """Return the rows from ``first`` to ``last - 1`` as a segment.

        ``numbers`` contains row numbers in the segment; the row ``first`` has the number 0.
        Searches of the segment find only the rows in ``numbers``. If ``numbers`` is None, searches
        find all rows.
        """
        B = memmap.read_rows("items", self.rows, first, last, options.n_threads)
        return encode_segment(
            self.measure, B, options.n_threads, live_row_numbers=numbers, first_position=first
        )


def fit_items(X: Any, measure: Measure, options: ExecutionOptions) -> FittedItems | MappedItems:
    """Return the items X as a source, with the measure fitted to them.

    The items are encoded in memory, unless they must be read in blocks.
    """
    fitted_measure = measure.fit(X)
    if memmap.is_read_in_blocks(X) and not is_packed_as_a_whole(X, options):
        return MappedItems(fitted_measure, X)
    segment = encode_segment(fitted_measure, X, options.n_threads)
    return FittedItems(fitted_measure, len(X), (segment,))


def block_sizes(
    X: Any, queries: Any, k: int, measure: Measure, options: ExecutionOptions
) -> BlockSizes:
    """Return how many queries and how many items X fit in the working memory at once."""
    memory = options.working_memory
    if memmap.is_narrow(X) or memmap.is_narrow(queries):
        memory = min(memory, low_precision_memory(X.shape[1], X.nbytes))
    query_bytes = _bytes_per_row(measure, "encode_queries", queries)
    item_bytes = _bytes_per_row(measure, "encode_items", X)
    return plan_blocks(len(queries), len(X), k, query_bytes, item_bytes, memory)


def is_packed_as_a_whole(X: Any, options: ExecutionOptions) -> bool:
    """Return whether X contains low-precision rows that are packed all at once, without conversion.

    The result is False if low-precision rows must be converted to float32 block by block. Rows are
    converted in each of four cases: kernels cannot read the type of the rows; there are so few rows
    that compiling kernels would cost more time than the kernels save; the rows cannot be packed as
    int8 codes (``layout.tile_layout``); or the codes of the rows would exceed the working memory.
    """
    if not memmap.has_kernels(X):
        return False
    return packs_low_precision(len(X), X.shape[1], config.isa(), options.working_memory)


def _bytes_per_row(measure: Measure, encoder: str, X: Any) -> int:
    """Return the number of bytes that a row of X takes together with its encoded copy.

    ``encoder`` is the name of the measure's method that encodes the row.
    """
    entry = max(4, X.dtype.itemsize) + cost_model.COSTS.read_bytes_per_code
    kind = type(measure)
    encoders = {getattr(kind, "encode_items", None), getattr(kind, encoder, None)}
    if not encoders <= {BaseMeasure.encode_items, BaseMeasure.encode_queries}:
        entry += cost_model.COSTS.read_bytes_per_encoded_entry
    return int(entry * X.shape[1] + cost_model.COSTS.read_bytes_per_row)

"""Rows and results on disk: items read in blocks, a search cut to fit working_memory."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import config, validation
from fastcos.parallel import memmap
from fastcos.search.packing import ExecutionOptions, tile_layout
from fastcos.search.request import FittedItems, Searched, SearchRequest
from fastcos.search.segments import SEGMENT_MULTIPLE, Segment, encode_segment
from fastcos.similarity.base import Measure, Plain, require
from fastcos.storage.checkpoint import Checkpoint, rows_per_block
from fastcos.validation import Integers

# share of the working memory for searching a segment that was read; the rest is for the segment and
# the batch
_SEARCH_SHARE = 0.25
# share of the working memory for the queries' rows and results at most: where there are many of
# both, batch and segment are about even, since every batch packs all items and every segment packs
# all queries
_QUERIES_SHARE = 0.4
# norms, bias, and what a search keeps of a row, in bytes
_BYTES_PER_ROW = 160
# codes of an entry: packed once as query or item, and once while they are made
_BYTES_PER_CODE = 2
# an entry of an encoded row in float64, and of what its transform makes on the way
_BYTES_PER_ENCODED_ENTRY = 16
# columns and scores of a query: the best so far, those of the segment, and the best of both
_BYTES_PER_NEIGHBOR = 48
# queries of a batch that is kept on disk, at least: every batch reads all items anew
_LEAST_KEPT_QUERIES = 1 << 17
# the same for items in memory
_LEAST_KEPT_QUERIES_IN_MEMORY = 1024
# bytes for blocks of narrow rows, where these have fewer: 4,096 rows of 768 columns and codes
_LEAST_NARROW_MEMORY = float(1 << 25)
# bytes of a column of the smallest batch and segment, 64 rows encoded in float64
_BYTES_OF_WIDE_COLUMN = 5120.0


class BlockSizes(NamedTuple):
    """Queries of a batch, items of a segment, and the memory in bytes for searching it."""

    queries: int
    items: int
    memory: float


def block_sizes(
    X: Any, request: SearchRequest, measure: Measure, options: ExecutionOptions
) -> BlockSizes:
    """Cut queries and items so that a batch and a segment fit the working memory."""
    memory = options.working_memory
    if memmap.is_narrow(X) or memmap.is_narrow(request.queries):
        # what is widened need not exceed what was given
        least = max(_LEAST_NARROW_MEMORY, _BYTES_OF_WIDE_COLUMN * X.shape[1])
        memory = min(memory, max(least, X.nbytes))
    per_query = _bytes_per_row(measure, "encode_queries", request.queries)
    per_query += _BYTES_PER_NEIGHBOR * request.k
    per_item = _bytes_per_row(measure, "encode_items", X)
    queries = memmap.rows_that_fit(memory, _QUERIES_SHARE, per_query, len(request.queries))
    share = 1 - _SEARCH_SHARE - queries * per_query / memory
    items = memmap.rows_that_fit(memory, share, per_item, len(X))
    items -= items % SEGMENT_MULTIPLE if items > SEGMENT_MULTIPLE else 0
    return BlockSizes(queries, items, _SEARCH_SHARE * memory)


def fits_as_given(X: Any, options: ExecutionOptions) -> bool:
    """Whether kernels read narrow rows as they are given, packed as a whole.

    Others are widened block by block: a few, for which no kernel is compiled then, and rows whose
    codes exceed the working memory or are wider than they are.
    """
    if not memmap.has_kernels(X):
        return False
    layout = tile_layout(config.isa(), X.shape[1])
    size = len(X) * (4 * layout.words + _BYTES_PER_ROW)
    is_large = 4 * X.size > _LEAST_NARROW_MEMORY
    return is_large and layout.quantised and size <= options.working_memory


def _bytes_per_row(measure: Measure, side: str, X: Any) -> int:
    """Memory of a row of one side of a block, with its encoded copy if the measure makes one."""
    entry = max(4, X.dtype.itemsize) + _BYTES_PER_CODE
    kind = type(measure)
    encoders = {getattr(kind, "encode_items", None), getattr(kind, side, None)}
    if not encoders <= {Plain.encode_items, Plain.encode_queries}:
        entry += _BYTES_PER_ENCODED_ENTRY
    return int(entry * X.shape[1] + _BYTES_PER_ROW)


class MappedItems(FittedItems):
    """Rows on disk, or narrow ones, that every search reads in blocks."""

    __slots__ = ()

    @property
    def n_live(self) -> int:
        """Rows, all of which can be found."""
        return self.n_items

    @property
    def rows(self) -> Any:
        """The rows as given."""
        return self.given

    def only(self, positions: Integers) -> FittedItems | None:
        """Nothing is packed beforehand: the request says what can be found."""
        return None

    def read_segments(
        self, request: SearchRequest, options: ExecutionOptions, within: range | None
    ) -> Iterator[Searched]:
        """Read and yield segments of the permitted items among those within."""
        _, size, memory = block_sizes(self.rows, request, self.measure, options)
        within = range(self.n_items) if within is None else within
        for first in range(within.start, within.stop, size):
            last = min(within.stop, first + size)
            numbers = np.arange(last - first, dtype=np.int64)
            if request.permitted is not None:
                some = slice(*np.searchsorted(request.permitted, [first, last]))
                numbers = request.permitted[some] - first
            if len(numbers):
                segment = self._read(first, last, options, numbers)
                share = (first - within.start) / len(within), (last - within.start) / len(within)
                yield Searched(segment, None, share, memory)

    def read_blocks(self, positions: Integers, options: ExecutionOptions) -> Iterator[FittedItems]:
        """Read and yield blocks that hold items at these positions.

        Blocks that start at these multiples have the bits of all rows together.
        """
        for first in range(0, self.n_items, SEGMENT_MULTIPLE):
            last = min(self.n_items, first + SEGMENT_MULTIPLE)
            if ((first <= positions) & (positions < last)).any():
                segment = self._read(first, last, options)
                yield FittedItems(self.measure, self.n_items, (segment,))

    def read_listed(self, positions: Integers, options: ExecutionOptions) -> FittedItems:
        """Read the items at these positions alone, as one segment."""
        require(self.measure, "append")
        listed = np.unique(positions)
        needed = float(len(listed) * self.rows.shape[1] * self.rows.itemsize)
        validation.check_memory("working_memory", options.working_memory, needed)
        if not len(listed):
            return FittedItems(self.measure, self.n_items, ())
        rows = memmap.take_rows("items", self.rows, listed, options.n_threads)
        segment = encode_segment(self.measure, rows, options.n_threads, positions=listed)
        return FittedItems(self.measure, self.n_items, (segment,))

    def _read(
        self, first: int, last: int, options: ExecutionOptions, numbers: Integers | None = None
    ) -> Segment:
        B = memmap.read_rows("items", self.rows, first, last, options.n_threads)
        return encode_segment(self.measure, B, options.n_threads, numbers=numbers, first=first)


def results_in_directory(
    request: SearchRequest, X: Any, measure: Measure, options: ExecutionOptions, out: Any
) -> Checkpoint:
    """Open the directory where batches of neighbours go; the same request resumes there."""
    n, k = request.queries.shape[0], request.k
    mapped = memmap.is_on_disk(X) or memmap.is_on_disk(request.queries)
    least = _LEAST_KEPT_QUERIES if mapped else _LEAST_KEPT_QUERIES_IN_MEMORY
    batch = rows_per_block(X.shape[0] * X.shape[1], least=least)
    if mapped:
        batch = min(batch, block_sizes(X, request, measure, options).queries)
    arrays = {"indices": ((n, k), np.int64), "scores": ((n, k), np.float32)}
    return Checkpoint(out, fingerprint(request, X, measure), arrays, batch)


def fingerprint(request: SearchRequest, X: Any, measure: Measure) -> dict[str, Any]:
    """Return all that the result depends on."""
    import joblib  # here, for it takes 0.2 s; its hash sees every bit of a measure's arrays

    same = request.queries is X
    return {
        "queries": memmap.fingerprint(request.queries),
        "items": "the queries" if same else memmap.fingerprint(X),
        "k": request.k,
        "measure": [measure.name, joblib.hash(vars(measure))],
        "permitted": _fingerprints(request.permitted, *(request.lists or ())),
        "exclusions": _fingerprints(*(request.exclusions or ())),
        "min_score": request.min_score,
    }


def _fingerprints(*arrays: npt.NDArray[Any] | None) -> list[Any]:
    return [array if array is None else memmap.fingerprint(array) for array in arrays]

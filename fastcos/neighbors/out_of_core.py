"""Memory-mapped rows and results on disk: the plan of a search, cut to fit working_memory."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.engine.packing import ExecutionOptions
from fastcos.engine.segments import SEGMENT_MULTIPLE, Segment
from fastcos.measures.base import Measure, Plain, encode_segment
from fastcos.neighbors.types import MAPPED_SEARCH_SHARE, FittedItems, SearchRequest
from fastcos.storage import memmap
from fastcos.storage.checkpoint import Checkpoint, rows_per_block

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


class BlockSizes(NamedTuple):
    """Queries of a batch, and items of a segment."""

    queries: int
    items: int


def block_sizes(
    X: Any, request: SearchRequest, measure: Measure, options: ExecutionOptions
) -> BlockSizes:
    """Cut queries and items so that a batch and a segment fit the working memory."""
    memory = options.working_memory
    per_query = _bytes_per_row(measure, "encode_queries", request.queries)
    per_query += _BYTES_PER_NEIGHBOR * request.k
    per_item = _bytes_per_row(measure, "encode_items", X)
    queries = memmap.rows_that_fit(memory, _QUERIES_SHARE, per_query, len(request.queries))
    share = 1 - MAPPED_SEARCH_SHARE - queries * per_query / memory
    items = memmap.rows_that_fit(memory, share, per_item, len(X))
    items -= items % SEGMENT_MULTIPLE if items > SEGMENT_MULTIPLE else 0
    return BlockSizes(queries, items)


def _bytes_per_row(measure: Measure, side: str, X: Any) -> int:
    """Memory of a row of one side of a block, with its encoded copy if the measure makes one."""
    entry = max(4, X.dtype.itemsize) + _BYTES_PER_CODE
    kind = type(measure)
    encoders = {getattr(kind, "encode_items", None), getattr(kind, side, None)}
    if not encoders <= {Plain.encode_items, Plain.encode_queries}:
        entry += _BYTES_PER_ENCODED_ENTRY
    return int(entry * X.shape[1] + _BYTES_PER_ROW)


def read_segments(
    items: FittedItems, request: SearchRequest, options: ExecutionOptions, within: range | None
) -> Iterator[tuple[Segment, tuple[float, float]]]:
    """Yield segments of the permitted items, and which share of all items each is."""
    X, n_threads = items.mapped, options.n_threads
    size = block_sizes(X, request, items.measure, options).items
    within = range(len(X)) if within is None else within
    for first in range(within.start, within.stop, size):
        last = min(within.stop, first + size)
        numbers = np.arange(last - first, dtype=np.int64)
        if request.permitted is not None:
            some = slice(*np.searchsorted(request.permitted, [first, last]))
            numbers = request.permitted[some] - first
        if not len(numbers):
            continue
        B = memmap.read_rows("items", X, first, last, n_threads)
        segment = encode_segment(items.measure, B, n_threads, numbers=numbers, first=first)
        share = (first - within.start) / len(within), (last - within.start) / len(within)
        yield segment, share


def results_in_directory(
    request: SearchRequest, X: Any, measure: Measure, options: ExecutionOptions, out: Any
) -> Checkpoint:
    """Open the directory where batches of neighbours go; the same request resumes there."""
    n, k = request.queries.shape[0], request.k
    mapped = isinstance(X, np.memmap) or isinstance(request.queries, np.memmap)
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

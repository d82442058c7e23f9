"""Exact nearest neighbours among rows of packed bits, by Hamming distance or by cosine."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import bits, records
from fastcos.kernels.simd.hamming import LANES
from fastcos.search.options import ExecutionOptions
from fastcos.search.request import as_exclude_self
from fastcos.search.results import Neighbors, rounded_scores

# The measures of packed bits. The kernel identifies each measure by a number. With "hamming", a
# score is minus the Hamming distance. With "bit_cosine", a score is the cosine.
BIT_MEASURES = {"hamming": 0, "bit_cosine": 1}

# The number of queries in one block. The kernel rearranges the bits of the items once for all
# queries of a block.
_QUERIES_PER_BLOCK = 64
# The number of rows whose bits are counted at once.
_ROWS_PER_COUNT = 1 << 14
# The bytes that a neighbour takes until its score is converted to float32: 8 for a row number and 8
# for a float64 score. The kernel stores up to 4 k + 64 neighbours for each query of a block.
_BYTES_PER_NEIGHBOR = 16

Words = npt.NDArray[np.uint64]


def bit_top_k(
    queries: Any,
    items: Any,
    k: int,
    *,
    measure: str,
    exclude_self: bool | None,
    min_score: float | None,
    options: ExecutionOptions,
) -> Neighbors:
    """Return the nearest neighbours of each query among rows of packed bits.

    The queries (n, b) and the items (m, b) are uint8 arrays. Each byte holds eight bits, in the
    format that np.packbits returns and FAISS expects. The arguments and the result are those of
    ``top_k``. The search takes O(n m b) time. Rows are copied only if they are not C-contiguous or
    b is not a multiple of eight.
    """
    query_bytes = _as_bytes("queries", queries, or_vector=items is not None)
    item_bytes = query_bytes if items is None else _as_bytes("items", items)
    validation.check_same_width("items", item_bytes, "queries", query_bytes)
    Q = _as_words(query_bytes)
    X = Q if items is None else _as_words(item_bytes)
    lowest = -np.inf if min_score is None else validation.as_real("min_score", min_score)
    exclude_self = as_exclude_self(exclude_self, len(Q), len(X), has_items=items is not None)
    k = validation.as_neighbor_count(k, len(X), without_itself=exclude_self)
    n = len(Q)
    norms = validation.read_only(_norms(X))
    query_norms = norms[:n] if items is None else validation.read_only(_norms(Q))
    self_items = validation.read_only(np.arange(n) if exclude_self else np.full(n, -1))
    n_threads, block, batch = _sizes(n, k, options)
    indices, scores = parallel.unfilled((n, k), np.int64), np.empty((n, k), np.float32)
    for lo in range(0, n, batch):
        hi = min(n, lo + batch)
        raw_scores = parallel.unfilled((hi - lo, k), np.float64)
        parallel.run(
            bits.nearest_bits, parallel.row_blocks(hi - lo, block), BIT_MEASURES[measure],
            records.BitRows(Q[lo:hi], query_norms[lo:hi]), records.BitRows(X, norms),
            self_items[lo:hi], raw_scores, indices[lo:hi],
            n_threads=n_threads, progress=_progress_from(options.progress, lo, n),
        )  # fmt: skip
        scores[lo:hi] = rounded_scores(raw_scores)
        is_below = scores[lo:hi] < rounded_scores(lowest)
        scores[lo:hi][is_below], indices[lo:hi][is_below] = -np.inf, -1
    return Neighbors(indices, scores)


def _sizes(n: int, k: int, options: ExecutionOptions) -> tuple[int, int, int]:
    """Return the number of threads, the queries per block, and the queries per batch.

    A thread searches one block at a time. A batch consists of several blocks, whose scores are
    converted to float32 together.
    """
    bytes_in_block = float(_BYTES_PER_NEIGHBOR * (4 * k + 64) * 1.5)
    bytes_in_batch = float(_BYTES_PER_NEIGHBOR * k)
    required_bytes = 2 * max(bytes_in_block, bytes_in_batch)
    validation.check_memory("working_memory", options.working_memory, required_bytes)
    memory = options.working_memory / 2
    n_threads = min(options.n_threads, int(memory / bytes_in_block))
    block = min(_QUERIES_PER_BLOCK, int(memory / (bytes_in_block * n_threads)), -(-n // n_threads))
    batch = max(block, int(memory / bytes_in_batch))
    return n_threads, block, batch


def _progress_from(
    progress: parallel.Progress | None, first: int, total: int
) -> parallel.Progress | None:
    """Return a callback that converts progress within a batch to progress over all queries.

    ``first`` is the number of queries before the batch, and ``total`` is the number of all queries.
    """
    if progress is None:
        return None
    return lambda done, _: progress(first + done, total)


def _as_bytes(name: str, rows: Any, *, or_vector: bool = False) -> npt.NDArray[np.uint8]:
    """Return validated rows of packed bits as a uint8 array (n, b)."""
    array: npt.NDArray[Any] = np.asarray(validation.as_shared_array(rows))
    if or_vector and array.ndim == 1:
        array = array[np.newaxis]
    if array.dtype != np.uint8:
        raise TypeError(
            f"{name} must be packed bits of dtype uint8 (np.packbits(rows, axis=1)), got dtype "
            f"{array.dtype}"
        )
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{name} must be of shape (rows, bytes), with no dimension of 0, got {array.shape}"
        )
    return array


def _as_words(rows: npt.NDArray[np.uint8]) -> Words:
    """Return rows of bytes as rows of 64-bit words; the last word is padded with zeros."""
    padding = -rows.shape[1] % 8
    rows = np.pad(rows, ((0, 0), (0, padding))) if padding else np.ascontiguousarray(rows)
    return validation.read_only(rows.view(np.uint64))


def _norms(rows: Words) -> npt.NDArray[np.float64]:
    """Return the Euclidean norm of each row of bits, followed by ``LANES`` zeros as padding."""
    norms = np.zeros(len(rows) + LANES)
    for lo in range(0, len(rows), _ROWS_PER_COUNT):
        block = rows[lo : lo + _ROWS_PER_COUNT]
        counts = np.bitwise_count(block).sum(axis=1, dtype=np.int64)
        norms[lo : lo + len(block)] = np.sqrt(counts)
    return norms

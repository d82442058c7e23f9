"""Exact nearest neighbours among rows of packed bits: ``top_k`` by Hamming distance and cosine."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import bits
from fastcos.kernels.simd.hamming import LANES
from fastcos.search.packing import ExecutionOptions
from fastcos.search.request import rounded_scores
from fastcos.search.results import Neighbors

# measures of packed bits, and whether they are cosines
BIT_MEASURES = {"hamming": 0, "bit_cosine": 1}

# queries of a block: what is laid out of the items serves all of them
_QUERIES_PER_BLOCK = 64
# rows whose bits are counted at once
_ROWS_PER_COUNT = 1 << 14

Words = npt.NDArray[np.uint64]


def bit_top_k(
    queries: Any,
    items: Any,
    k: int,
    *,
    measure: str,
    exclude_self: bool,
    min_score: float | None,
    options: ExecutionOptions,
) -> Neighbors:
    """Do what ``top_k`` says for rows of packed bits, (n, b) uint8 of eight bits each.

    As np.packbits and FAISS pack them. Time O(n m b / 8); nothing is copied but rows of a number of
    bytes that is no multiple of eight.
    """
    query_bytes = _as_bytes("queries", queries, or_vector=items is not None)
    item_bytes = query_bytes if items is None else _as_bytes("items", items)
    validation.check_same_width("items", item_bytes, "queries", query_bytes)
    Q = _as_words(query_bytes)
    X = Q if items is None else _as_words(item_bytes)
    least = -np.inf if min_score is None else validation.as_real("min_score", min_score)
    own = items is None and exclude_self
    k = validation.as_neighbor_count(k, len(X), without_itself=own)
    n = len(Q)
    norms = _norms(X)
    query_norms = norms[:n] if items is None else _norms(Q)
    itself = np.arange(n) if own else np.full(n, -1)
    columns, raw = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    parallel.run(
        bits.nearest_bits,
        parallel.row_blocks(n, min(_QUERIES_PER_BLOCK, -(-n // options.n_threads))),
        BIT_MEASURES[measure], Q, validation.read_only(query_norms), X, validation.read_only(norms),
        validation.read_only(itself), raw, columns,
        n_threads=options.n_threads, progress=options.progress,
    )  # fmt: skip
    scores = rounded_scores(raw)
    is_below = scores < rounded_scores(least)
    scores[is_below], columns[is_below] = -np.inf, -1
    return Neighbors(columns, scores)


def _as_bytes(name: str, rows: Any, *, or_vector: bool = False) -> npt.NDArray[np.uint8]:
    """Return rows of packed bits (n, b)."""
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
            f"{name} must be of shape (rows, bytes), none of them 0, got {array.shape}"
        )
    return array


def _as_words(rows: npt.NDArray[np.uint8]) -> Words:
    """Return rows of bytes as words of 64 bits, the last filled with zeros."""
    missing = -rows.shape[1] % 8
    rows = np.pad(rows, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(rows)
    return validation.read_only(rows.view(np.uint64))


def _norms(rows: Words) -> npt.NDArray[np.float64]:
    """Return the roots of the numbers of bits that are 1, and zeros for a vector beyond the end."""
    norms = np.zeros(len(rows) + LANES)
    for lo in range(0, len(rows), _ROWS_PER_COUNT):
        part = rows[lo : lo + _ROWS_PER_COUNT]
        counts = np.bitwise_count(part).sum(axis=1, dtype=np.int64)
        norms[lo : lo + len(part)] = np.sqrt(counts)
    return norms

"""Deterministic blocked reduction: sums over rows in parts, added in order.

The parts follow from the data alone, not from threads, memory or shard boundaries, so a matrix in
memory and the same matrix in shards give bit-identical results.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, validation
from fastcos.kernels import sparse

# non-zeros of a part per column: its private sum (p, w) is cleared and added once, and so many keep
# that cheap (bench/lab/curves.py)
NNZ_PER_COLUMN = 48
# parts of a matrix at most, unless they would be larger than the next limit
_MOST_PARTS = 64
# non-zeros of a part: 64 MB of column numbers
_LARGEST_PART = 1 << 24
# parts that 2 or 4 threads share evenly: X'(XQ) of 3 M non-zeros takes 0.95 of the time with 4 in
# place of 3 (bench/lab/curves.py)
_EVEN = 4
# sums held at once, per thread: threads wait for each other after so many
_SUMS_PER_THREAD = 8


def count(n_columns: int, nnz: int) -> int:
    """Return the number of parts; 1 where too few non-zeros per column make several pay."""
    most = max(_MOST_PARTS, nnz // _LARGEST_PART)
    parts = min(nnz // (NNZ_PER_COLUMN * n_columns), most)
    return max(1, parts) if parts < 3 else max(_EVEN, parts - parts % _EVEN)


def starts(n_rows: int, n_columns: int, nnz: int) -> npt.NDArray[np.int64]:
    """Return after how many non-zeros and rows, added up, parts 1, 2, ... start."""
    parts = count(n_columns, nnz)
    return np.arange(1, parts, dtype=np.int64) * (n_rows + nnz) // parts


def at_once(parts: int, bytes_per_sum: int, n_threads: int | None) -> int:
    """Return how many sums are held at a time: what the memory allows and threads need."""
    size = config.n_threads() if n_threads is None else n_threads
    affordable = int(config.working_memory() * 2**20) // bytes_per_sum
    most = max(1, min(parts, affordable, _SUMS_PER_THREAD * size))
    return -(-parts // -(-parts // most))


def add(sums: npt.NDArray[Any], column: int, out: npt.NDArray[Any], n_threads: int | None) -> None:
    """Add sums (parts, p, w), one after the other, to columns column .. column + w of out."""
    blocks = parallel.row_blocks(len(out), 2048)
    parallel.run(
        sparse.add_parts, blocks, validation.read_only(sums), column, out, n_threads=n_threads
    )

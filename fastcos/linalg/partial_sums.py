"""Sums over rows in parts: which rows make a part, and how the sums of parts become one.

The parts follow from the data alone, not from threads, memory or the cuts of shards, and their sums
are added in order: a matrix in memory and the same matrix in shards have the same bits.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, validation
from fastcos.kernels import sparse

# a part's private sum is cleared and added once; so many non-zeros per column keep that cheap
_NNZ_PER_COLUMN = 48
# parts, but for so many non-zeros that these would be parts of more than 64 MB on disk
_MOST_PARTS, _LARGEST_PART = 64, 1 << 24
# a number of parts that 2 or 4 threads share evenly: X'(XQ) of a quarter of the decks takes 0.95 of
# the time with 4 in place of 3
_EVEN = 4
# sums held at once, per thread: threads wait for each other at the end of so many
_SUMS_PER_THREAD = 8


def count(n_columns: int, nnz: int) -> int:
    """Parts of a matrix; 1 where it has too few non-zeros per column for several to pay."""
    most = max(_MOST_PARTS, nnz // _LARGEST_PART)
    parts = min(nnz // (_NNZ_PER_COLUMN * n_columns), most)
    return max(1, parts) if parts < 3 else max(_EVEN, parts - parts % _EVEN)


def begins(n_rows: int, nnz: int, parts: int) -> npt.NDArray[np.int64]:
    """Return the non-zeros and rows, added up, after which parts 1, 2, ... begin."""
    return np.arange(1, parts, dtype=np.int64) * (n_rows + nnz) // parts


def at_once(parts: int, bytes_per_sum: int, n_threads: int | None) -> int:
    """How many sums are held at a time: what the working memory allows and threads need."""
    size = config.num_threads() if n_threads is None else n_threads
    affordable = int(config.working_memory() * 2**20) // bytes_per_sum
    most = max(1, min(parts, affordable, _SUMS_PER_THREAD * size))
    return -(-parts // -(-parts // most))


def add(sums: npt.NDArray[Any], column: int, out: npt.NDArray[Any], n_threads: int | None) -> None:
    """Add sums (parts, p, w), one after the other, to columns column .. column + w of out."""
    cuts = parallel.row_blocks(len(out), 2048)
    parallel.run(
        sparse.add_parts, cuts, validation.read_only(sums), column, out, n_threads=n_threads
    )

"""Sums over rows: the rows are divided into parts, and the sums of the parts are added in order.

Because the order of the additions is fixed, the results are deterministic. The boundaries of the
parts depend only on the data, not on the number of threads, the memory or the shards. Therefore a
matrix in memory and the same matrix in shards give bit-identical results.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, validation
from fastcos.kernels import sparse

# The rows are divided into several parts only if the columns of each part have at least this many
# non-zeros on average. The array of sums (p, w) of each part must be cleared at the beginning and
# added to the total at the end. With this many non-zeros per column, clearing and adding the arrays
# takes little time compared with the product (bench/lab/curves.py).
NNZ_PER_COLUMN = 48
# The rows are usually divided into at most this number of parts. More parts are allowed only if X
# has more than _MAX_PARTS * _LARGEST_PART non-zeros.
_MAX_PARTS = 64
# The largest number of non-zeros of a part: the column numbers of this many non-zeros take 64 MB.
_LARGEST_PART = 1 << 24
# If there are more than two parts, their number is a multiple of 4, so that each of 2 or 4 threads
# gets the same number of parts. If X has 3 million non-zeros, X'(X Q) takes 5% less time with 4
# parts than with 3 (bench/lab/curves.py).
_EVEN = 4
# For each thread, the sums of at most this many parts are in memory at the same time. When these
# sums have been computed, the threads wait for each other, and the sums are added to the total.
_SUMS_PER_THREAD = 8


def count(n_columns: int, nnz: int) -> int:
    """Return the number of parts of the rows; it is 1 if there are few non-zeros per column."""
    limit = max(_MAX_PARTS, nnz // _LARGEST_PART)
    parts = min(nnz // (NNZ_PER_COLUMN * n_columns), limit)
    return max(1, parts) if parts < 3 else max(_EVEN, parts - parts % _EVEN)


def starts(n_rows: int, n_columns: int, nnz: int) -> npt.NDArray[np.int64]:
    """For every part except the first, return the total work of all rows that precede the part.

    The work of a row is 1 plus its number of non-zeros.
    """
    parts = count(n_columns, nnz)
    return np.arange(1, parts, dtype=np.int64) * (n_rows + nnz) // parts


def at_once(parts: int, bytes_per_sum: int, n_threads: int | None) -> int:
    """Return how many parts to sum at once, limited by the number of threads and the memory."""
    size = config.n_threads() if n_threads is None else n_threads
    affordable = int(config.working_memory() * 2**20) // bytes_per_sum
    limit = max(1, min(parts, affordable, _SUMS_PER_THREAD * size))
    return -(-parts // -(-parts // limit))


def add(sums: npt.NDArray[Any], column: int, out: npt.NDArray[Any], n_threads: int | None) -> None:
    """Add the sums (parts, p, w) of all parts, in order, to ``out[:, column : column + w]``."""
    blocks = parallel.row_blocks(len(out), 2048)
    parallel.run(
        sparse.add_parts, blocks, validation.read_only(sums), column, out, n_threads=n_threads
    )

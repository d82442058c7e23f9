"""The transpose of a CSR matrix, computed on all threads."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, validation
from fastcos.kernels import csr, records

# The rows are divided into several parts only if the columns of each part have at least this many
# non-zeros on average. Each part needs a cleared counter for every column. With this many non-zeros
# per column, clearing the counters takes little time compared with the transposition.
_NNZ_PER_COLUMN = 8
# A part has at least this many non-zeros. With half as many non-zeros per part, a second thread
# would save no time (bench/lab/curves.py).
_NNZ_PER_PART = 2**18


def transposed(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[Any],
    data: npt.NDArray[Any] | None,
    n_columns: int,
    index_dtype: npt.DTypeLike,
    n_threads: int | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[Any] | None]:
    """Return indptr, indices and data of the transpose, whose rows have sorted indices.

    If `data` is None, the data of the transpose is None. The type `index_dtype` must be able to
    represent the number of rows. The rows are divided into parts, at most one per thread. If
    the matrix has p columns, the function takes O(nnz + parts p) time, and needs O(parts p) memory
    in addition to the result.
    """
    n, nnz = len(indptr) - 1, int(indptr[-1])
    read_only = validation.read_only
    indptr, indices, data = read_only(indptr), read_only(indices), read_only(data)
    # The result does not depend on how the rows are divided into parts. The number of parts can
    # therefore depend on the number of threads.
    threads = config.n_threads() if n_threads is None else n_threads
    parts = max(1, min(threads, nnz // max(_NNZ_PER_PART, _NNZ_PER_COLUMN * n_columns)))
    rows = parallel.work_blocks(indptr, -(-(nnz + n) // parts))
    counts = np.empty((len(rows) - 1, n_columns), np.int64)
    blocks = parallel.row_blocks(len(counts), 1)
    parallel.run(
        csr.count_columns, blocks, read_only(rows), indptr, indices, counts, n_threads=n_threads
    )
    column_starts = np.zeros(n_columns + 1, np.int64)
    np.cumsum(counts.sum(axis=0), out=column_starts[1:])
    places = np.cumsum(counts, axis=0) - counts + column_starts[:-1]
    row_numbers = np.empty(nnz, index_dtype)
    values = None if data is None else np.empty(nnz, data.dtype)
    parallel.run(
        csr.transpose_parts, blocks, read_only(rows), records.Csr(indptr, indices, data), places,
        row_numbers, values,
        n_threads=n_threads,
    )  # fmt: skip
    return read_only(column_starts), read_only(row_numbers), read_only(values)

"""The products of a sparse matrix: X A, X'Y, X'(X Q) and X'X, on all threads.

The bits do not depend on the number of threads, nor on which of the kernels does the work.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import config, parallel, validation
from fastcos.kernels import sparse, sparse_blocks
from fastcos.linalg import buffer_pool, partial_sums
from fastcos.linalg.csr import csr_arrays

Matrix = npt.NDArray[np.floating[Any]]

# non-zeros times columns of one block: some milliseconds
_WORK_PER_BLOCK = 1 << 24
# bytes of a panel's row: 64 columns of float32
_PANEL_BYTES = 256
_LARGEST_INT32 = 2**31 - 1
# rows of a factor that stay in the second-level cache beside a block of the product
_CACHED_BYTES = 1 << 20
# a result of so many bytes outgrows the caches before anyone reads it: written past them, X A of
# the decks with 64 and 128 columns takes 0.93 of the time
_STREAMED_BYTES = 1 << 26
# non-zeros of a row in one such piece of the factor, for pieces to pay: 1.7x with 20 (140,000 x
# 27,000 with 18 M non-zeros), 0.7x with 7 (the decks: 385,215 x 17,192 with 12 M)
_NNZ_PER_PIECE = 8
# non-zeros in a column of a block of rows, for its transpose to pay
_NNZ_PER_COLUMN_OF_A_BLOCK = 2
# columns multiplied until the transposes have earned their making
_COLUMNS_TO_PAY = 32
# X'X by dense blocks beats sparse products from one non-zero in so many cells on
_DENSE_GRAM_SHARE = 30


class Workspace:
    """Memory kept between calls: faulting it in costs as much as a narrow product."""

    def __init__(self) -> None:
        self._kept: Matrix = np.empty(0, np.float32)

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Matrix:
        """Return uninitialised memory, the same as long as the same is asked for."""
        if self._kept.shape != shape or self._kept.dtype != dtype:
            self._kept = buffer_pool.empty(shape, dtype)
        return self._kept


class SparseOperator:
    """The products of a CSR array as validate_csr.as_interactions returns it.

    X A is summed in the order of a row's non-zeros. The others sum over rows in parts, see
    :mod:`fastcos.linalg.partial_sums`; where that is a single one, X' is built and its rows summed.
    """

    def __init__(
        self, X: sp.csr_array, n_threads: int | None = None, workspace: Workspace | None = None
    ) -> None:
        self.shape: tuple[int, int] = X.shape
        self.dtype: np.dtype[Any] = X.dtype
        self._X, self._n_threads = X, n_threads
        self._memory = Workspace() if workspace is None else workspace
        self._columns_multiplied = 0
        self._arrays = kernel_arrays(X)

    def matmul(self, A: Matrix) -> Matrix:
        """Return X A."""
        A = as_factor(self, A)
        Y, is_streamed = product_memory(self.shape[0], A)
        indptr = self._arrays[0]
        if self._item_rows(A) >= self.shape[1]:
            cuts = work_cuts(indptr, A.shape[1])
            arrays = *self._arrays, on_cache_lines(A), Y, is_streamed
            parallel.run(
                kernel_body(sparse, "matmul_rows"), cuts, *arrays, n_threads=self._n_threads
            )
            return Y
        for column, width, panel in _panels(A):
            parallel.run(
                sparse_blocks.matmul_blocks,
                work_cuts(indptr, panel.shape[1]),
                *self._arrays,
                panel,
                self._item_rows(A),
                column,
                width,
                Y,
                n_threads=self._n_threads,
            )
        return Y

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return X'Y."""
        if len(self._part_cuts) == 2:
            return self.transposed().matmul(Y)
        return self._in_parts("rmatmul_parts", as_factor(self, Y))

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return X'(X Q)."""
        if len(self._part_cuts) == 2:
            return self.transposed().matmul(self.matmul(Q))
        Q = as_factor(self, Q)
        self._columns_multiplied += Q.shape[1]
        if self._transposes_pay(Q):
            return self._gram_in_blocks(Q)
        return self._in_parts("gram_parts", on_cache_lines(Q))

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X'X in float64."""
        n, p = self.shape
        if not is_dense_enough(n, p, self._X.nnz):
            return gram_by_products(self)
        total = np.zeros((p, p))
        for lo, hi in itertools.pairwise(dense_cuts(n, p)):
            block = self._X[lo:hi].toarray().astype(np.float64, copy=False)
            total += block.T @ block
        return total

    def transposed(self) -> "SparseOperator":
        """Return X'."""
        return self._other_way

    @functools.cached_property
    def _other_way(self) -> "SparseOperator":
        return SparseOperator(self._X.T.tocsr(), self._n_threads)

    def _in_parts(self, kernel: str, factor: Matrix) -> Matrix:
        out = np.zeros((self.shape[1], factor.shape[1]), factor.dtype)
        for column, width in panel_columns(factor):
            for first, sums in self._some_sums(width, factor.dtype):
                parallel.run(
                    kernel_body(sparse, kernel),
                    parallel.row_blocks(len(sums), 1),
                    self._part_cuts[first : first + len(sums) + 1],
                    *self._arrays,
                    factor,
                    column,
                    False,
                    sums,
                    n_threads=self._n_threads,
                )
                partial_sums.add(sums, column, out, self._n_threads)
        return out

    def _gram_in_blocks(self, Q: Matrix) -> Matrix:
        out = np.zeros(Q.shape, Q.dtype)
        first_blocks, transposes = self._transposes
        for column, width, panel in _panels(Q):
            for first, sums in self._some_sums(panel.shape[1], Q.dtype):
                parallel.run(
                    sparse_blocks.gram_blocks,
                    parallel.row_blocks(len(sums), 1),
                    first_blocks[first : first + len(sums) + 1],
                    transposes,
                    *self._arrays,
                    panel,
                    self._item_rows(Q),
                    sums,
                    n_threads=self._n_threads,
                )
                partial_sums.add(sums[:, :, :width], column, out, self._n_threads)
        return out

    def _some_sums(self, width: int, dtype: np.dtype[Any]) -> Iterator[tuple[int, Matrix]]:
        """Yield the first part and memory for sums (some, p, width), until no part is left."""
        p, parts = self.shape[1], len(self._part_cuts) - 1
        most = partial_sums.at_once(parts, p * width * dtype.itemsize, self._n_threads)
        sums = self._memory.array((most, p, width), dtype)
        for first in range(0, parts, most):
            yield first, sums[: parts - first]

    @functools.cached_property
    def _part_cuts(self) -> parallel.Blocks:
        n, p = self.shape
        indptr = self._arrays[0]
        begins = partial_sums.begins(n, int(indptr[-1]), partial_sums.count(p, int(indptr[-1])))
        inner = parallel.rows_at_work(indptr, begins)
        return validation.read_only(np.unique(np.concatenate([[0], inner, [n]])))

    def _item_rows(self, factor: Matrix) -> int:
        return rows_at_a_time(self.shape, self._X.nnz, factor)

    def _transposes_pay(self, Q: Matrix) -> bool:
        """Whether blocks with transposes are worth their making and their memory by now."""
        n, p = self.shape
        indptr, _, data = self._arrays
        # with whole rows they gain nothing: the decks, 98 and 102 ms of one core with 64 columns
        in_pieces = self._item_rows(Q) < p
        is_dense = indptr[-1] * sparse_blocks.ROWS >= _NNZ_PER_COLUMN_OF_A_BLOCK * n * p
        if not (in_pieces and is_dense and self._columns_multiplied >= _COLUMNS_TO_PAY):
            return False
        cuts = self._block_cuts[1]
        fits_int32 = np.diff(indptr[cuts]).max() <= _LARGEST_INT32
        starts = 4 * p * (n // sparse_blocks.ROWS + len(self._part_cuts))
        values = 0 if data is None else data.nbytes
        return bool(fits_int32 and starts + 2 * indptr[-1] + values <= _working_bytes())

    @functools.cached_property
    def _block_cuts(self) -> tuple[parallel.Blocks, parallel.Blocks]:
        """First block of every part, and the rows between which blocks lie."""
        parts = itertools.pairwise(self._part_cuts)
        rows = [np.arange(lo, hi, sparse_blocks.ROWS) for lo, hi in parts]
        cuts = np.append(np.hstack(rows), self.shape[0])
        return validation.read_only(np.cumsum([0, *map(len, rows)])), validation.read_only(cuts)

    @functools.cached_property
    def _transposes(self) -> tuple[parallel.Blocks, sparse_blocks.Transposes]:
        first_blocks, cuts = self._block_cuts
        nnz, data = self._X.nnz, self._arrays[2]
        starts = np.empty((len(cuts) - 1, self.shape[1] + 1), np.int32)
        rows = np.empty(nnz, np.uint16)
        values = None if data is None else np.empty(nnz, data.dtype)
        blocks = parallel.row_blocks(len(cuts) - 1, 1)
        arrays = *self._arrays, cuts, starts, rows, values
        parallel.run(sparse_blocks.transpose_blocks, blocks, *arrays, n_threads=self._n_threads)
        starts, rows = validation.read_only(starts), validation.read_only(rows)
        readable = None if values is None else validation.read_only(values)
        return first_blocks, sparse_blocks.Transposes(cuts, starts, rows, readable)


def as_factor(operator: Any, A: Matrix) -> Matrix:
    """Return A in the wider of both types, in C order and read-only."""
    dtype = np.result_type(operator.dtype, A.dtype)
    return validation.read_only(np.ascontiguousarray(A, dtype=dtype))


def is_dense_enough(n: int, p: int, nnz: int) -> bool:
    """Whether X'X of a sparse X (n, p) is summed from dense blocks of rows."""
    return nnz * _DENSE_GRAM_SHARE >= n * p


def dense_cuts(n: int, p: int) -> list[int]:
    """Rows between which such blocks lie: 128 MiB each, in float64."""
    return [*range(0, n, max(1, 2**24 // p)), n]


def rows_at_a_time(shape: tuple[int, int], nnz: int, factor: Matrix) -> int:
    """Return the rows of the factor that X is multiplied with at a time: all, or a cached piece."""
    n, p = shape
    row_bytes = min(_most_columns(factor), factor.shape[1]) * factor.itemsize
    rows = _CACHED_BYTES // int(row_bytes)
    pieces = p / rows
    if pieces < 2 or nnz < _NNZ_PER_PIECE * pieces * n or is_plain():
        return p
    return rows


def work_cuts(indptr: npt.NDArray[np.int64], width: int) -> parallel.Blocks:
    """Return the rows between which blocks of a product of that many columns lie."""
    return parallel.work_blocks(indptr, max(1, _WORK_PER_BLOCK // width))


def product_memory(n_rows: int, A: Matrix) -> tuple[Matrix, bool]:
    """Return memory of X A, and whether kernels write it past the caches.

    New memory they do not: the system has just cleared its pages, and they are in the caches.
    """
    Y, is_used = buffer_pool.empty_or_used((n_rows, A.shape[1]), A.dtype)
    return Y, is_used and A.shape[1] % 64 == 0 and Y.nbytes >= _STREAMED_BYTES


def gram_by_products(operator: Any) -> npt.NDArray[np.float64]:
    """Return X'X in float64 by products with columns of the identity."""
    p = operator.shape[1]
    total = np.empty((p, p))
    for column in range(0, p, 256):
        total[:, column : column + 256] = operator.gram_matmul(
            np.eye(p, min(256, p - column), -column)
        )
    return total


def _are_ones(data: Matrix) -> bool:
    """Whether all values are 1; reads on only while they are."""
    if data.strides == (0,):  # one value for all: ones of shards
        data = data[:1]
    return all((data[first : first + 2**15] == 1).all() for first in range(0, len(data), 2**15))


def kernel_arrays(X: sp.csr_array) -> tuple[Any, Any, Any]:
    """Return indptr, indices and data of what as_interactions returned, None for ones."""
    indptr, indices, data = csr_arrays(X)
    if indices.dtype == np.int64 and X.shape[1] <= _LARGEST_INT32:
        indices = validation.read_only(indices.astype(np.int32))
    return indptr, indices, None if _are_ones(data) else data


def panel_columns(factor: Matrix) -> Iterator[tuple[int, int]]:
    """Yield the first column and the number of columns of every panel of a factor."""
    width, most = factor.shape[1], _most_columns(factor)
    for column in range(0, width, most):
        yield column, min(most, width - column)


def _most_columns(factor: Matrix) -> int:
    return _PANEL_BYTES // factor.itemsize


def _panels(factor: Matrix) -> Any:
    """Yield (first column, columns, panel): the factor's columns as sparse_blocks takes them."""
    for column, width in panel_columns(factor):
        padded = next(w for w in reversed(sparse_blocks.WIDTHS) if w >= width)
        panel = buffer_pool.empty((len(factor), padded), factor.dtype)
        panel[:, :width] = factor[:, column : column + width]
        panel[:, width:] = 0
        yield column, width, validation.read_only(panel)


def _working_bytes() -> int:
    return int(config.working_memory() * 2**20)


def on_cache_lines(A: Matrix) -> Matrix:
    """Return A, or a copy if its rows could start at cache lines but do not."""
    if A.ctypes.data % buffer_pool.CACHE_LINE == 0 or A.strides[0] % buffer_pool.CACHE_LINE:
        return A
    copy = buffer_pool.empty(A.shape, A.dtype)
    copy[:] = A
    return validation.read_only(copy)


def is_plain() -> bool:
    """Return whether there is no vector IR: kernels run in their plain bodies."""
    return bool(config.isa() == "generic" or numba.config.DISABLE_JIT)


def kernel_body(module: Any, kernel: str) -> Any:
    """Return the kernel of a module, or where vector IR is not to be had its plain twin."""
    return getattr(module, f"{kernel}_plain" if is_plain() else kernel)

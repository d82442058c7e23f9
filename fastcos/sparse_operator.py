"""The products of a sparse matrix: X A, X'Y, X'(X Q) and X'X, on all threads.

The bits do not depend on the number of threads, nor on which of the kernels does the work.
"""

import functools
import itertools
import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import config, threads, validate
from fastcos.kernels import sparse, sparse_blocks
from fastcos.validate_csr import csr_arrays

Matrix = npt.NDArray[np.floating[Any]]

# non-zeros times columns of one block: some milliseconds
_WORK_PER_BLOCK = 1 << 24
# a part's private sum is cleared and added once; so many non-zeros per column keep that cheap
_NNZ_PER_COLUMN_OF_A_PART = 48
_MOST_PARTS = 64
# bytes of a panel's row: 64 columns of float32
_PANEL_BYTES = 256
_CACHE_LINE = 64
_LARGEST_INT32 = 2**31 - 1
# rows of a factor that stay in the second-level cache beside a block of the product
_CACHED_BYTES = 1 << 20
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
            self._kept = _aligned(shape, dtype)
        return self._kept


class SparseOperator:
    """The products of a CSR array as validate_csr.as_interactions returns it.

    X A is summed in the order of a row's non-zeros. The others sum over rows: fixed parts of the
    rows have a sum of their own each, and these are added in order; where X has too few non-zeros
    per column for that to pay, X' is built and its rows are summed.
    """

    def __init__(
        self, X: sp.csr_array, n_threads: int | None = None, workspace: Workspace | None = None
    ) -> None:
        self.shape: tuple[int, int] = X.shape
        self.dtype: np.dtype[Any] = X.dtype
        self._X, self._n_threads = X, n_threads
        self._memory = Workspace() if workspace is None else workspace
        self._columns_multiplied = 0
        indptr, indices, data = csr_arrays(X)
        if indices.dtype == np.int64 and X.shape[1] <= _LARGEST_INT32:
            indices = validate.read_only(indices.astype(np.int32))
        self._arrays = (indptr, indices, None if _are_ones(data) else data)

    def matmul(self, A: Matrix) -> Matrix:
        """Return X A."""
        A = as_factor(self, A)
        Y = _aligned((self.shape[0], A.shape[1]), A.dtype)
        indptr = self._arrays[0]
        if self._item_rows(A) >= self.shape[1]:
            cuts = threads.cuts_by_work(indptr, max(1, _WORK_PER_BLOCK // A.shape[1]))
            arrays = *self._arrays, _on_cache_lines(A), Y
            threads.run(
                kernel_body(sparse, "matmul_rows"), cuts, *arrays, n_threads=self._n_threads
            )
            return Y
        for column, width, panel in _panels(A):
            threads.run(
                sparse_blocks.matmul_blocks,
                threads.cuts_by_work(indptr, _WORK_PER_BLOCK // panel.shape[1]),
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
        if self._n_parts == 1:
            return self.transposed().matmul(Y)
        return self._in_parts("rmatmul_parts", as_factor(self, Y))

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return X'(X Q)."""
        if self._n_parts == 1:
            return self.transposed().matmul(self.matmul(Q))
        Q = as_factor(self, Q)
        self._columns_multiplied += Q.shape[1]
        if self._transposes_pay(Q):
            return self._gram_in_blocks(Q)
        return self._in_parts("gram_parts", _on_cache_lines(Q))

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X'X in float64."""
        n, p = self.shape
        if self._X.nnz * _DENSE_GRAM_SHARE < n * p:
            return gram_by_products(self)
        total = np.zeros((p, p))
        rows = max(1, 2**24 // p)
        for lo in range(0, n, rows):
            block = self._X[lo : lo + rows].toarray().astype(np.float64, copy=False)
            total += block.T @ block
        return total

    def transposed(self) -> "SparseOperator":
        """Return X'."""
        return self._other_way

    @functools.cached_property
    def _other_way(self) -> "SparseOperator":
        return SparseOperator(self._X.T.tocsr(), self._n_threads)

    def _in_parts(self, kernel: str, factor: Matrix) -> Matrix:
        width = factor.shape[1]
        out = np.empty((self.shape[1], width), factor.dtype)
        step = _panel_columns(factor)
        for column in range(0, width, step):
            sums = self._workspace(min(step, width - column), factor.dtype)
            threads.run(
                kernel_body(sparse, kernel),
                threads.cuts_by_rows(len(sums), 1),
                self._part_cuts,
                *self._arrays,
                factor,
                column,
                sums,
                n_threads=self._n_threads,
            )
            self._add_parts(sums, column, out)
        return out

    def _gram_in_blocks(self, Q: Matrix) -> Matrix:
        out = np.empty(Q.shape, Q.dtype)
        first_blocks, transposes = self._transposes
        for column, width, panel in _panels(Q):
            sums = self._workspace(panel.shape[1], Q.dtype)
            threads.run(
                sparse_blocks.gram_blocks,
                threads.cuts_by_rows(len(sums), 1),
                first_blocks,
                transposes,
                *self._arrays,
                panel,
                self._item_rows(Q),
                sums,
                n_threads=self._n_threads,
            )
            self._add_parts(sums[:, :, :width], column, out)
        return out

    def _add_parts(self, sums: Matrix, column: int, out: Matrix) -> None:
        cuts = threads.cuts_by_rows(self.shape[1], 2048)
        arrays = validate.read_only(sums), column, out
        threads.run(sparse.add_parts, cuts, *arrays, n_threads=self._n_threads)

    def _workspace(self, width: int, dtype: np.dtype[Any]) -> Matrix:
        """Return a sum for every part."""
        return self._memory.array((len(self._part_cuts) - 1, self.shape[1], width), dtype)

    @functools.cached_property
    def _n_parts(self) -> int:
        """Parts of the rows with sums of their own: by the data and the memory, not by threads."""
        p = self.shape[1]
        wanted = self._X.nnz // (_NNZ_PER_COLUMN_OF_A_PART * p)
        affordable = _working_bytes() // (_PANEL_BYTES * p)
        return int(max(1, min(wanted, affordable, _MOST_PARTS)))

    @functools.cached_property
    def _part_cuts(self) -> threads.Cuts:
        indptr = self._arrays[0]
        work = -(-int(indptr[-1] + self.shape[0]) // self._n_parts)
        return validate.read_only(threads.cuts_by_work(indptr, work))

    def _item_rows(self, factor: Matrix) -> int:
        """Rows of the factor that X is multiplied with at a time: all, or a cached piece."""
        n, p = self.shape
        row_bytes = min(_panel_columns(factor), factor.shape[1]) * factor.itemsize
        rows = _CACHED_BYTES // int(row_bytes)
        pieces = p / rows
        if pieces < 2 or self._X.nnz < _NNZ_PER_PIECE * pieces * n or _is_plain():
            return p
        return rows

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
        starts = 4 * p * (n // sparse_blocks.ROWS + self._n_parts)
        values = 0 if data is None else data.nbytes
        return bool(fits_int32 and starts + 2 * indptr[-1] + values <= _working_bytes())

    @functools.cached_property
    def _block_cuts(self) -> tuple[threads.Cuts, threads.Cuts]:
        """First block of every part, and the rows between which blocks lie."""
        parts = itertools.pairwise(self._part_cuts)
        rows = [np.arange(lo, hi, sparse_blocks.ROWS) for lo, hi in parts]
        cuts = np.append(np.hstack(rows), self.shape[0])
        return validate.read_only(np.cumsum([0, *map(len, rows)])), validate.read_only(cuts)

    @functools.cached_property
    def _transposes(self) -> tuple[threads.Cuts, sparse_blocks.Transposes]:
        first_blocks, cuts = self._block_cuts
        nnz, data = self._X.nnz, self._arrays[2]
        starts = np.empty((len(cuts) - 1, self.shape[1] + 1), np.int32)
        rows = np.empty(nnz, np.uint16)
        values = None if data is None else np.empty(nnz, data.dtype)
        blocks = threads.cuts_by_rows(len(cuts) - 1, 1)
        arrays = *self._arrays, cuts, starts, rows, values
        threads.run(sparse_blocks.transpose_blocks, blocks, *arrays, n_threads=self._n_threads)
        starts, rows = validate.read_only(starts), validate.read_only(rows)
        readable = None if values is None else validate.read_only(values)
        return first_blocks, sparse_blocks.Transposes(cuts, starts, rows, readable)


def as_factor(operator: Any, A: Matrix) -> Matrix:
    """Return A in the wider of both types, in C order and read-only."""
    dtype = np.result_type(operator.dtype, A.dtype)
    return validate.read_only(np.ascontiguousarray(A, dtype=dtype))


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


def _panel_columns(factor: Matrix) -> int:
    return _PANEL_BYTES // factor.itemsize


def _panels(factor: Matrix) -> Any:
    """Yield (first column, columns, panel): the factor's columns as sparse_blocks takes them."""
    most = _panel_columns(factor)
    for column in range(0, factor.shape[1], most):
        given = factor[:, column : column + most]
        width = given.shape[1]
        padded = next(w for w in reversed(sparse_blocks.WIDTHS) if w >= width)
        panel = _aligned((len(factor), padded), factor.dtype)
        panel[:, :width] = given
        panel[:, width:] = 0
        yield column, width, validate.read_only(panel)


def _working_bytes() -> int:
    return int(config.working_memory() * 2**20)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Matrix:
    """Return uninitialised memory that starts at a cache line.

    A vector across two lines costs two accesses: 1.4x in X A with 64 columns.
    """
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _CACHE_LINE, np.uint8)
    skip = -memory.ctypes.data % _CACHE_LINE
    return memory[skip : skip + size].view(dtype).reshape(shape)


def _on_cache_lines(A: Matrix) -> Matrix:
    """Return A, or a copy if its rows could start at cache lines but do not."""
    if A.ctypes.data % _CACHE_LINE == 0 or A.strides[0] % _CACHE_LINE:
        return A
    copy = _aligned(A.shape, A.dtype)
    copy[:] = A
    return validate.read_only(copy)


def _is_plain() -> bool:
    return bool(config.isa() == "generic" or numba.config.DISABLE_JIT)


def kernel_body(module: Any, kernel: str) -> Any:
    """Return the kernel of a module, or where vector IR is not to be had its plain twin."""
    return getattr(module, f"{kernel}_plain" if _is_plain() else kernel)

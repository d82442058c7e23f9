"""Operators: classes that compute the products X A, X'Y, X'(X Q) and X'X of a matrix X.

X may be sparse, dense or a SciPy LinearOperator. A sparse X stays sparse even if it is centred:
centring only adds rank-one terms to the products. The products of a sparse X are bit-identical for
any number of threads and any instruction set.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, validation
from fastcos.kernels import cpu, records, sparse, sparse_blocks
from fastcos.kernels.jit import DISABLE_JIT
from fastcos.linalg import partial_sums
from fastcos.linalg.csr import as_interactions, csr_arrays
from fastcos.linalg.transpose import transposed
from fastcos.parallel import buffer_pool
from fastcos.validation import Floats

if TYPE_CHECKING:
    import scipy.sparse as sp
    from scipy.sparse.linalg import LinearOperator

Matrix = npt.NDArray[np.floating[Any]]

# The values of the following constants are based on times that bench/lab/curves.py measured.

# The limit on the work for one block of rows. The work is the number of non-zeros of the block
# times the number of columns of the factor. A block with this much work takes about half a
# millisecond.
WORK_PER_BLOCK = 1 << 24
# The largest number of non-zeros of one block of rows. If the factor has few columns,
# WORK_PER_BLOCK alone would allow larger blocks. Multiplying a block with this number of non-zeros
# takes at least a fifth of a millisecond.
_NNZ_PER_BLOCK = 1 << 18
# If there are several blocks, their number is a multiple of 4, so that each of 2 or 4 threads gets
# the same number of blocks.
_EVEN_BLOCKS = 4
# A panel is a group of columns of a factor. Each row of a panel has this number of bytes, which is
# enough for 64 float32 columns.
_PANEL_BYTES = 256
# Column numbers, and offsets within a block, are stored as int32 if none of them exceeds this
# number.
LARGEST_INT32 = 2**31 - 1
# A product of at least this many bytes does not fit into the caches, so the caller must read it
# from memory. Kernels therefore bypass the caches when they write a product of this size to memory,
# which saves about 7% of the time.
STREAMED_BYTES = 1 << 26
# If a product is a sum over all rows of X in a fixed order, the rows are not divided among the
# threads. Instead, the columns of the factor are divided into groups, and each thread multiplies
# one group at a time. The width of a group is a multiple of this number.
_NARROWEST_GROUP = 8
# The rows of the factor A may be cut into pieces that fit in a cache. X A is then computed for one
# piece after the other. A is cut only if an average row of X has at least this many non-zeros per
# piece. On an Intel CPU, we timed the product X A twice: once with A cut into pieces of 1 MiB, and
# once with A in one piece. When an average row of X had 20 non-zeros per piece, cutting A made the
# product 1.7 times as fast. When an average row had only 7 non-zeros per piece, cutting A made the
# product take 1.4 times as long. On an AMD CPU (Zen 5), we multiplied an X with 20,000 columns and
# 60 non-zeros per row. Cutting A into five pieces doubled the time of this product.
NNZ_PER_PIECE = 8
# If the sums of a panel take at least this many bytes, X'(X Q) is computed from transposed blocks
# of X. This applies even to an X whose rows have few non-zeros. If there is only one part, the
# transpose of X replaces the transposed blocks. Transposed blocks save time only if X has many
# columns. We timed the product for a Q with 64 columns. When X had 84,432 columns, transposed
# blocks reduced the time by 35%. When X had 40,000 columns, transposed blocks reduced the time by
# 20%. When X had 17,192 columns, transposed blocks increased the time by 90%.
UNCACHED_BYTES = 1 << 23
# Blocks of rows are transposed only if a column of a block has on average at least this many
# non-zeros.
NNZ_PER_BLOCK_COLUMN = 2
# X or its blocks are transposed only after the operator has multiplied this many columns.
# Transposing takes time, and only later products get faster. For a single product with few columns,
# transposing would therefore take more time than it saves.
_COLUMNS_TO_PAY = 32
# X'X is summed from dense blocks if at least one in 30 entries of X is non-zero.
_DENSE_GRAM_SHARE = 30

# The size in bytes that replaces the size of the CPU's cache within ``cache_replaced``, or None.
_replaced_cache_bytes: int | None = None


@contextlib.contextmanager
def cache_replaced(n_bytes: int) -> Iterator[None]:
    """Cut factors within a ``with`` block as if the cache of the CPU had `n_bytes` bytes.

    ``fastcos warmup`` calls this function, so that even a small factor is cut into pieces, whatever
    the size of the CPU's cache is. The change affects all threads.
    """
    global _replaced_cache_bytes
    before, _replaced_cache_bytes = _replaced_cache_bytes, n_bytes
    try:
        yield
    finally:
        _replaced_cache_bytes = before


class Operator:
    """Base class of operators, which compute products of a matrix X (n, p) with a factor.

    The type of a product is the wider of two floating-point types: the type of X and the type of
    the factor.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def matmul(self, A: Matrix) -> Matrix:
        """Return the product X A (n, l) for A (p, l)."""
        raise NotImplementedError

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return the product X'Y (p, l) for Y (n, l)."""
        raise NotImplementedError

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return the product X'(X Q) (p, l) for Q (p, l)."""
        return self.rmatmul(self.matmul(Q))

    def gram(self) -> Floats:
        """Return X'X (p, p) in float64.

        This base class computes X'X as the product X'(X I) with the identity matrix I.
        """
        p = self.shape[1]
        total = np.empty((p, p))
        for column in range(0, p, 256):
            identity = np.eye(p, min(256, p - column), -column)
            total[:, column : column + 256] = self.gram_matmul(identity)
        return total

    def transposed(self) -> Operator:
        """Return the operator of X'."""
        return _TransposedOperator(self)


class _TransposedOperator(Operator):
    def __init__(self, X: Operator) -> None:
        self.shape, self.dtype = (X.shape[1], X.shape[0]), X.dtype
        self._X = X

    def matmul(self, A: Matrix) -> Matrix:
        return self._X.rmatmul(A)

    def rmatmul(self, Y: Matrix) -> Matrix:
        return self._X.matmul(Y)

    def transposed(self) -> Operator:
        return self._X


class _DenseOperator(Operator):
    """Computes the products of a dense X with BLAS."""

    def __init__(self, X: Matrix) -> None:
        self.shape, self.dtype = (X.shape[0], X.shape[1]), X.dtype
        self._X = X

    def matmul(self, A: Matrix) -> Matrix:
        A = as_factor(self, A)
        with parallel.blas_lock():
            return self._X @ A

    def rmatmul(self, Y: Matrix) -> Matrix:
        Y = as_factor(self, Y)
        with parallel.blas_lock():
            return self._X.T @ Y

    def gram(self) -> Floats:
        X = self._X.astype(np.float64, copy=False)
        with parallel.blas_lock():
            return X.T @ X

    def transposed(self) -> Operator:
        return _DenseOperator(self._X.T)


class _ImplicitOperator(Operator):
    """Computes the products of a SciPy LinearOperator."""

    def __init__(self, X: LinearOperator) -> None:
        self.shape = int(X.shape[0]), int(X.shape[1])
        self.dtype = np.result_type(X.dtype, np.float32)
        self._X = X

    def matmul(self, A: Matrix) -> Matrix:
        return np.asarray(self._X.matmat(A))

    def rmatmul(self, Y: Matrix) -> Matrix:
        return np.asarray(self._X.rmatmat(Y))


class _ShiftedOperator(Operator):
    """Computes the products of X - L R' from the products of X.

    L (n, r) and R (p, r) are float64 matrices with few columns. Products with L and R are computed
    in float64, with one exception. In the formula X A - L (R'A), the product of L and R'A is
    computed in the type of the result.
    """

    def __init__(self, X: Operator, L: Floats, R: Floats) -> None:
        self.shape, self.dtype = X.shape, X.dtype
        self._X, self._L, self._R = X, L, R

    def matmul(self, A: Matrix) -> Matrix:
        Y = self._X.matmul(A)
        A = A.astype(np.float64, copy=False)
        rows = max(1, 2**20 // Y.shape[1])
        with parallel.blas_lock():
            shift = (self._R.T @ A).astype(Y.dtype)
            for lo in range(0, len(Y), rows):
                Y[lo : lo + rows] -= self._L[lo : lo + rows].astype(Y.dtype) @ shift
        return Y

    def rmatmul(self, Y: Matrix) -> Matrix:
        Z = self._X.rmatmul(Y)
        with parallel.blas_lock():
            shift = self._R @ (self._L.T @ Y.astype(np.float64, copy=False))
        return (Z - shift).astype(Z.dtype, copy=False)

    def gram_matmul(self, Q: Matrix) -> Matrix:
        Z = self._X.gram_matmul(Q)
        Q = Q.astype(np.float64, copy=False)
        XL = self._XL
        with parallel.blas_lock():
            C = self._R.T @ Q
            shift = XL @ C + self._R @ (XL.T @ Q - (self._L.T @ self._L) @ C)
        return (Z - shift).astype(Z.dtype, copy=False)

    def gram(self) -> Floats:
        XL = self._XL
        with parallel.blas_lock():
            cross = XL @ self._R.T
            inner = self._R @ (self._L.T @ self._L) @ self._R.T
        return self._X.gram() - cross - cross.T + inner

    def transposed(self) -> Operator:
        return _ShiftedOperator(self._X.transposed(), self._R, self._L)

    @parallel.lazy_attribute
    def _XL(self) -> Floats:
        """The matrix X'L, (p, r)."""
        return self._X.rmatmul(self._L).astype(np.float64, copy=False)


class Workspace:
    """Holds an array between calls, so that calls with the same shape and dtype can reuse it.

    Reusing an array saves time, because the page faults of a new array take as long as a product
    with few columns.
    """

    def __init__(self) -> None:
        self._array: Matrix = np.empty(0, np.float32)

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Matrix:
        """Return the array of the last call if it has this shape and dtype, else a new array."""
        if self._array.shape != shape or self._array.dtype != dtype:
            self._array = buffer_pool.empty(shape, dtype)
        return self._array


class SparseOperator(Operator):
    """Computes the products of a sparse matrix X, which is a canonical CSR array.

    Row i of X A is a sum over the non-zeros of row i of X, added in their order. The products X'Y
    and X'(X Q) are sums over all rows, so the rows are divided into parts
    (:mod:`fastcos.linalg.partial_sums`). If there is only one part, the operator chooses one of two
    methods that give the same bits. In the first method, each thread sums some columns of the
    product. In the second method, the operator computes the transpose X' and multiplies row by row.
    """

    def __init__(self, X: sp.csr_array, n_threads: int | None = None) -> None:
        self.shape, self.dtype = X.shape, X.dtype
        self._X, self._n_threads = X, n_threads
        self._memory = Workspace()
        self._columns_multiplied = 0
        self._arrays = kernel_arrays(X)

    def matmul(self, A: Matrix) -> Matrix:
        """Return the product X A (n, l) for A (p, l)."""
        A = as_factor(self, A)
        Y, is_streamed = product_memory(self.shape[0], A)
        indptr = self._arrays[0]
        if self._item_rows(A) >= self.shape[1]:
            blocks, factor = work_blocks(indptr, A.shape[1]), on_cache_lines(A)
            kernel = kernel_body(sparse, "matmul_rows")
            self._run(kernel, blocks, self._arrays, factor, Y, is_streamed)
            return Y
        for column, width, panel in _panels(A):
            blocks = work_blocks(indptr, panel.shape[1])
            self._run(
                sparse_blocks.matmul_blocks, blocks, self._arrays, panel, self._item_rows(A),
                column, width, Y,
            )  # fmt: skip
        return Y

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return the product X'Y (p, l) for Y (n, l)."""
        Y = as_factor(self, Y)
        if self._multiplies_transpose(Y):
            return self.transposed().matmul(Y)
        return self._sum_parts("rmatmul_parts", Y)

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return the product X'(X Q) (p, l) for Q (p, l)."""
        Q = as_factor(self, Q)
        if self._multiplies_transpose(Q):
            return self.transposed().matmul(self.matmul(Q))
        if self._transposes_pay(Q):
            return self._gram_by_transposes(Q)
        return self._sum_parts("gram_parts", on_cache_lines(Q))

    def gram(self) -> Floats:
        """Return X'X in float64, (p, p)."""
        return sparse_gram(self, self._X.nnz, lambda lo, hi: self._X[lo:hi].toarray())

    def transposed(self) -> SparseOperator:
        """Return the operator of X'."""
        return self._transpose

    @parallel.lazy_attribute
    def _transpose(self) -> SparseOperator:
        import scipy.sparse as sp

        n, p = self.shape
        indices = np.int32 if n <= LARGEST_INT32 else np.int64
        X = self._arrays
        indptr, rows, values = transposed(X.indptr, X.indices, X.data, p, indices, self._n_threads)
        if values is None:
            values = np.broadcast_to(self.dtype.type(1), rows.shape)
        # If indptr had a wider type than the row numbers, SciPy would convert the row numbers to
        # this type. Therefore indptr gets the narrowest type that can hold its own values as well
        # as all row numbers.
        indptr = indptr.astype(np.result_type(indices, np.min_scalar_type(-len(rows))), copy=False)
        return SparseOperator(sp.csr_array((values, rows, indptr), shape=(p, n)), self._n_threads)

    def _run(self, kernel: Any, blocks: parallel.Blocks, *arrays: Any) -> None:
        parallel.run(kernel, blocks, *arrays, n_threads=self._n_threads)

    def _sum_parts(self, name: str, factor: Matrix) -> Matrix:
        """Compute a product part by part with the named kernel; return the sum of the parts."""
        kernel = kernel_body(sparse, name)
        if len(self._part_rows) == 2:
            return self._sum_in_order(kernel, factor)
        out = np.zeros((self.shape[1], factor.shape[1]), factor.dtype)
        for column, width in panel_columns(factor):
            columns = validation.read_only(np.array([column, column + width]))
            for first, sums in self._sums_at_once(width, factor.dtype):
                rows = self._part_rows[first : first + len(sums) + 1]
                arrays = rows, self._arrays, factor, columns, False, sums
                self._run(kernel, parallel.row_blocks(len(sums), 1), *arrays)
                partial_sums.add(sums, column, out, self._n_threads)
        return out

    def _sum_in_order(self, kernel: Any, factor: Matrix) -> Matrix:
        """Compute a product with a kernel that sums over all rows in order, and return the product.

        Each thread sums its columns in an array of its own. If two threads wrote neighbouring
        columns of one array, their caches would continually exchange cache lines (false sharing).
        """
        p, columns = self.shape[1], self._column_groups(factor)
        sums = buffer_pool.empty((len(columns) - 1, p, int(columns[1])), factor.dtype)
        tasks, rows = parallel.row_blocks(len(sums), 1), self._part_rows
        self._run(kernel, tasks, rows, self._arrays, factor, columns, False, sums)
        if len(sums) == 1:
            return sums[0]
        out = buffer_pool.empty((p, factor.shape[1]), factor.dtype)
        items = parallel.row_blocks(p, 2048)
        self._run(sparse.join_columns, items, validation.read_only(sums), columns, out)
        return out

    def _column_groups(self, factor: Matrix) -> parallel.Blocks:
        """Return the boundaries of groups of columns; each group is the work of one thread.

        The grouping does not affect the bits of a product. With several groups, an additional array
        holds their sums, and takes as much memory as the product. If this array would not fit into
        the setting ``working_memory``, the function makes only one group.
        """
        width = group = factor.shape[1]
        if self.shape[1] * width * factor.itemsize <= config.working_memory() * 2**20:
            per_thread = -(-width // self._size)
            group = min(group, -(-per_thread // _NARROWEST_GROUP) * _NARROWEST_GROUP)
            group = min(group, _PANEL_BYTES // factor.itemsize)
        return validation.read_only(parallel.row_blocks(width, group))

    def _multiplies_transpose(self, factor: Matrix) -> bool:
        """Return whether a sum over the rows of X should be computed as a product with X'.

        If the rows are divided into several parts, the product is summed part by part, without the
        transpose. If the rows are not divided, multiplying with the transpose is faster in two
        cases: the sums do not stay in a cache, or the product has too few columns to occupy all
        threads. Transposing takes time, so the transpose is computed only after the operator has
        multiplied many columns.
        """
        self._columns_multiplied += factor.shape[1]
        if len(self._part_rows) > 2 or self._columns_multiplied < _COLUMNS_TO_PAY:
            return False
        is_uncached = self.shape[1] * _panel_row_bytes(factor) >= UNCACHED_BYTES
        return is_uncached or len(self._column_groups(factor)) - 1 < self._size

    @property
    def _size(self) -> int:
        """The number of threads that compute the products."""
        return config.n_threads() if self._n_threads is None else self._n_threads

    def _gram_by_transposes(self, Q: Matrix) -> Matrix:
        out = np.zeros(Q.shape, Q.dtype)
        first_blocks, transposes = self._transposes
        for column, width, panel in _panels(Q):
            for first, sums in self._sums_at_once(panel.shape[1], Q.dtype):
                blocks = first_blocks[first : first + len(sums) + 1]
                arrays = blocks, transposes, self._arrays, panel, _cached_rows(Q), sums
                self._run(sparse_blocks.gram_blocks, parallel.row_blocks(len(sums), 1), *arrays)
                partial_sums.add(sums[:, :, :width], column, out, self._n_threads)
        return out

    def _sums_at_once(self, width: int, dtype: np.dtype[Any]) -> Iterator[tuple[int, Matrix]]:
        """For each group of parts, yield its first part and an array for the sums of the group.

        The function divides the parts into groups. If a group has m parts, the shape of its array
        is (m, p, width).
        """
        p, parts = self.shape[1], len(self._part_rows) - 1
        step = partial_sums.at_once(parts, p * width * dtype.itemsize, self._n_threads)
        sums = self._memory.array((step, p, width), dtype)
        for first in range(0, parts, step):
            yield first, sums[: parts - first]

    @parallel.lazy_attribute
    def _part_rows(self) -> parallel.Blocks:
        """The index of the first row of every part, followed by the number of rows."""
        n, p = self.shape
        indptr = self._arrays[0]
        starts = partial_sums.starts(n, p, int(indptr[-1]))
        inner = parallel.rows_at_work(indptr, starts)
        return validation.read_only(np.unique(np.concatenate([[0], inner, [n]])))

    def _item_rows(self, factor: Matrix) -> int:
        return rows_at_a_time(self.shape, self._X.nnz, factor)

    def _transposes_pay(self, Q: Matrix) -> bool:
        """Return True if transposed blocks of X fit in memory and if transposing saves time."""
        n, p = self.shape
        indptr, _, data = self._arrays
        is_uncached = self._item_rows(Q) < p or p * _panel_row_bytes(Q) >= UNCACHED_BYTES
        is_dense = indptr[-1] * sparse_blocks.ROWS >= NNZ_PER_BLOCK_COLUMN * n * p
        is_repaid = self._columns_multiplied >= _COLUMNS_TO_PAY
        if is_plain() or not (is_uncached and is_dense and is_repaid):
            return False
        fits_int32 = np.diff(indptr[self._block_rows[1]]).max() <= LARGEST_INT32
        starts = 4 * p * (n // sparse_blocks.ROWS + len(self._part_rows))
        needed_bytes = starts + 2 * indptr[-1] + (0 if data is None else data.nbytes)
        return bool(fits_int32 and needed_bytes <= int(config.working_memory() * 2**20))

    @parallel.lazy_attribute
    def _block_rows(self) -> tuple[parallel.Blocks, parallel.Blocks]:
        """Two arrays: the first block of every part, and the first row of every block.

        The last entry of the first array is the number of blocks. The last entry of the second
        array is the number of rows.
        """
        parts = itertools.pairwise(self._part_rows)
        rows = [np.arange(lo, hi, sparse_blocks.ROWS) for lo, hi in parts]
        ends = np.append(np.hstack(rows), self.shape[0])
        return validation.read_only(np.cumsum([0, *map(len, rows)])), validation.read_only(ends)

    @parallel.lazy_attribute
    def _transposes(self) -> tuple[parallel.Blocks, sparse_blocks.Transposes]:
        first_blocks, block_rows = self._block_rows
        nnz, data = self._X.nnz, self._arrays[2]
        starts = np.empty((len(block_rows) - 1, self.shape[1] + 1), np.int32)
        rows = np.empty(nnz, np.uint16)
        values = None if data is None else np.empty(nnz, data.dtype)
        outputs = sparse_blocks.Transposes(block_rows, starts, rows, values)
        blocks = parallel.row_blocks(len(block_rows) - 1, 1)
        self._run(sparse_blocks.transpose_blocks, blocks, self._arrays, outputs)
        read_only = map(validation.read_only, (starts, rows, values))
        return first_blocks, sparse_blocks.Transposes(block_rows, *read_only)


def as_operator(
    X: Any,
    center: Any = None,
    scale: Any = None,
    row_center: Any = None,
    n_threads: int | None = None,
) -> Operator:
    """Return (X - row_center 1' - 1 center') diag(1 / scale) as an Operator.

    X is a sparse or dense matrix, a LinearOperator, an Operator or InteractionShards. The function
    validates all arguments.
    """
    if n_threads is not None:
        n_threads = validation.as_thread_count("n_threads", n_threads)
    if validation.is_sparse(X):
        X = as_interactions("X", X, keep_zeros=True)
    elif isinstance(X, Operator) or hasattr(X, "_as_operator"):
        validation.check_none("scale", scale, "for interactions in shards")
    elif not _is_implicit(X):
        X = validation.as_rows("X", X)
    n, p = X.shape
    divisors = None if scale is None else validation.as_positive_diagonal("scale", scale, p)
    operator = _unshifted(X, divisors, n_threads)
    left_columns, right_columns = [], []
    if center is not None:
        left_columns.append(np.ones(n))
        right_columns.append(validation.as_vector("center", center, p))
    if row_center is not None:
        left_columns.append(validation.as_vector("row_center", row_center, n))
        right_columns.append(np.ones(p))
    if not left_columns:
        return operator
    R = np.column_stack(right_columns)
    return _ShiftedOperator(
        operator, np.column_stack(left_columns), R if divisors is None else R / divisors[:, None]
    )


def _unshifted(X: Any, divisors: Floats | None, n_threads: int | None) -> Operator:
    if isinstance(X, Operator):
        return X
    if _is_implicit(X):
        if divisors is None:
            return _ImplicitOperator(X)
        import scipy.sparse as sp
        from scipy.sparse.linalg import aslinearoperator

        return _ImplicitOperator(X @ aslinearoperator(sp.diags_array(1 / divisors)))
    if hasattr(X, "_as_operator"):
        return X._as_operator(n_threads)
    if not validation.is_sparse(X):
        return _DenseOperator(X if divisors is None else (X / divisors).astype(X.dtype))
    if divisors is not None:
        import scipy.sparse as sp

        values = (X.data / divisors[X.indices]).astype(X.dtype)
        X = sp.csr_array((values, X.indices, X.indptr), shape=X.shape)
    return SparseOperator(X, n_threads)


def _is_implicit(X: Any) -> bool:
    """Return whether X is a SciPy LinearOperator."""
    # If nobody has imported the module of the class LinearOperator, X cannot be a LinearOperator.
    if "scipy.sparse.linalg" not in sys.modules:
        return False
    from scipy.sparse.linalg import LinearOperator

    return isinstance(X, LinearOperator)


def as_factor(operator: Operator, A: Matrix) -> Matrix:
    """Return A as a read-only C-ordered array of the type that the product will have."""
    dtype = np.result_type(operator.dtype, A.dtype)
    return validation.read_only(np.ascontiguousarray(A, dtype=dtype))


def sparse_gram(X: Operator, nnz: int, dense_rows: Callable[[int, int], Matrix]) -> Floats:
    """Return X'X (p, p) for a sparse X; `nnz` is the number of its non-zeros.

    If X is not very sparse, X'X is summed over blocks of dense rows, of 128 MiB each. The function
    `dense_rows(lo, hi)` returns the rows [lo, hi) of X as a dense array.
    """
    n, p = X.shape
    if nnz * _DENSE_GRAM_SHARE < n * p:
        return Operator.gram(X)
    total = np.zeros((p, p))
    rows = max(1, 2**24 // p)
    for lo in range(0, n, rows):
        block = dense_rows(lo, min(n, lo + rows)).astype(np.float64, copy=False)
        with parallel.blas_lock():
            total += block.T @ block
    return total


def rows_at_a_time(shape: tuple[int, int], nnz: int, factor: Matrix) -> int:
    """Return how many rows of the factor to multiply at once: all, or as many as fit in a cache."""
    n, p = shape
    rows = _cached_rows(factor)
    pieces = p / rows
    if pieces < 2 or nnz < NNZ_PER_PIECE * pieces * n or is_plain():
        return p
    return rows


def _cached_rows(factor: Matrix) -> int:
    """Return how many rows of a panel fit in the fast cache, from which any row is read quickly."""
    return (_replaced_cache_bytes or cpu.fast_cache_bytes()) // _panel_row_bytes(factor)


def _panel_row_bytes(factor: Matrix) -> int:
    return min(_PANEL_BYTES, int(factor.shape[1] * factor.itemsize))


def work_blocks(indptr: npt.NDArray[np.int64], width: int) -> parallel.Blocks:
    """Return the boundaries of the blocks of rows into which a product is divided."""
    work = int(indptr[-1]) + len(indptr) - 1
    blocks = -(-work // max(1, min(_NNZ_PER_BLOCK, WORK_PER_BLOCK // width)))
    if blocks > 1:
        blocks = -(-blocks // _EVEN_BLOCKS) * _EVEN_BLOCKS
    return parallel.work_blocks(indptr, -(-work // blocks))


def product_memory(n_rows: int, A: Matrix) -> tuple[Matrix, bool]:
    """Return an array for X A, and whether the kernel should fill it with non-temporal stores.

    Non-temporal stores, which bypass the caches, are not used for newly allocated memory. Newly
    allocated memory is already in the caches, because the operating system has just cleared the
    pages of this memory.
    """
    Y, is_used = buffer_pool.empty_or_used((n_rows, A.shape[1]), A.dtype)
    return Y, is_used and A.shape[1] % 64 == 0 and Y.nbytes >= STREAMED_BYTES


def kernel_arrays(X: sp.csr_array) -> Any:
    """Return a validated CSR array as a record for kernels; `data` is None if all values are 1."""
    indptr, indices, data = csr_arrays(X)
    if indices.dtype == np.int64 and X.shape[1] <= LARGEST_INT32:
        indices = validation.read_only(indices.astype(np.int32))
    return records.Csr(indptr, indices, None if _are_ones(data) else data)


def _are_ones(data: Matrix) -> bool:
    """Return whether all values are 1; stop after the first chunk with any other value."""
    if data.strides == (0,):  # the array repeats a single stored value
        data = data[:1]
    return all((data[first : first + 2**15] == 1).all() for first in range(0, len(data), 2**15))


def panel_columns(factor: Matrix) -> Iterator[tuple[int, int]]:
    """Split a factor into panels; yield each panel's first column, and its number of columns."""
    width, step = factor.shape[1], _PANEL_BYTES // factor.itemsize
    for column in range(0, width, step):
        yield column, min(step, width - column)


def _panels(factor: Matrix) -> Any:
    """Yield every panel of a factor: its first column, its number of columns and its padded array.

    A panel is padded with zero columns, because the kernels of ``sparse_blocks`` accept only panels
    whose number of columns is in ``WIDTHS``.
    """
    for column, width in panel_columns(factor):
        padded = next(w for w in reversed(sparse_blocks.WIDTHS) if w >= width)
        panel = buffer_pool.empty((len(factor), padded), factor.dtype)
        panel[:, :width] = factor[:, column : column + width]
        panel[:, width:] = 0
        yield column, width, validation.read_only(panel)


def on_cache_lines(A: Matrix) -> Matrix:
    """Return A, or a copy of A whose rows start at cache lines.

    A is copied only if two conditions hold: the first row of A does not start at a cache line, and
    the distance between the rows of A is a multiple of a cache line.
    """
    if A.ctypes.data % buffer_pool.CACHE_LINE == 0 or A.strides[0] % buffer_pool.CACHE_LINE:
        return A
    copy = buffer_pool.empty(A.shape, A.dtype)
    copy[:] = A
    return validation.read_only(copy)


def is_plain() -> bool:
    """Return whether to run plain kernels, whose code for LLVM contains no vector instructions."""
    return config.isa() == "generic" or DISABLE_JIT


def kernel_body(module: Any, kernel: str) -> Any:
    """Return a kernel of a module, or the plain version of the kernel if ``is_plain()`` is true."""
    return getattr(module, f"{kernel}_plain" if is_plain() else kernel)

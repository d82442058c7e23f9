"""A matrix as what it does to other matrices: X A, X'Y, X'(X Q) and X'X.

Sparse and dense matrices and SciPy's LinearOperator behind one face. A sparse X stays sparse:
centring and scaling enter as rank-one terms. The bits do not depend on the number of threads.
"""

import functools
import math
from typing import Any, Protocol

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from fastcos import config, threads, validate
from fastcos.kernels import sparse
from fastcos.validate_csr import as_interactions, csr_arrays

Matrix = npt.NDArray[np.floating[Any]]

# non-zeros times columns of one block: some milliseconds
_WORK_PER_BLOCK = 1 << 24
# a part's private sum is cleared and added once; so many non-zeros per column keep that cheap
_NNZ_PER_COLUMN_OF_A_PART = 48
_MOST_PARTS = 64
_PANEL = 64
_LARGEST_INT32 = 2**31 - 1
_CACHE_LINE = 64
# X'X by dense blocks beats sparse products from one non-zero in so many cells on
_DENSE_GRAM_SHARE = 30


class Operator(Protocol):
    """X (n, p) by its products, in the wider of X's and the factor's floating type."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def matmul(self, A: Matrix) -> Matrix:
        """Return X A, (n, l)."""

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return X'Y, (p, l)."""

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return X'(X Q), (p, l)."""

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X'X, (p, p)."""

    def transposed(self) -> "Operator":
        """Return X'."""


class SparseOperator:
    """The products of a CSR array as validate_csr.as_interactions returns it.

    X A is summed in the order of a row's non-zeros. The others sum over rows: fixed parts of the
    rows have a sum of their own each, and these are added in order; where X has too few non-zeros
    per column for that to pay, X' is built and its rows are summed.
    """

    def __init__(self, X: sp.csr_array, n_threads: int | None = None) -> None:
        self.shape: tuple[int, int] = X.shape
        self.dtype: np.dtype[Any] = X.dtype
        self._X, self._n_threads = X, n_threads
        self._other_way: SparseOperator | None = None
        self._kept: Matrix = np.empty(0, X.dtype)
        indptr, indices, data = csr_arrays(X)
        if indices.dtype == np.int64 and X.shape[1] <= _LARGEST_INT32:
            indices = validate.read_only(indices.astype(np.int32))
        self._arrays = (indptr, indices, None if (data == 1).all() else data)

    def matmul(self, A: Matrix) -> Matrix:
        """Return X A."""
        A = _on_cache_lines(_as_factor(self, A))
        Y = _aligned((self.shape[0], A.shape[1]), A.dtype)
        cuts = threads.cuts_by_work(self._arrays[0], max(1, _WORK_PER_BLOCK // A.shape[1]))
        threads.run(_body("matmul_rows"), cuts, *self._arrays, A, Y, n_threads=self._n_threads)
        return Y

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return X'Y."""
        if self._n_parts(Y) == 1:
            return self.transposed().matmul(Y)
        return self._in_parts("rmatmul_parts", _as_factor(self, Y))

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return X'(X Q)."""
        if self._n_parts(Q) == 1:
            return self.transposed().matmul(self.matmul(Q))
        return self._in_parts("gram_parts", _on_cache_lines(_as_factor(self, Q)))

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X'X in float64."""
        n, p = self.shape
        if self._X.nnz * _DENSE_GRAM_SHARE < n * p:
            return _gram_by_products(self)
        total = np.zeros((p, p))
        rows = max(1, 2**24 // p)
        for lo in range(0, n, rows):
            block = self._X[lo : lo + rows].toarray().astype(np.float64, copy=False)
            total += block.T @ block
        return total

    def transposed(self) -> "SparseOperator":
        """Return X'."""
        if self._other_way is None:
            self._other_way = SparseOperator(self._X.T.tocsr(), self._n_threads)
        return self._other_way

    def _in_parts(self, kernel: str, factor: Matrix) -> Matrix:
        p, width = self.shape[1], factor.shape[1]
        out = np.empty((p, width), factor.dtype)
        indptr, n_parts = self._arrays[0], self._n_parts(factor)
        cuts = threads.cuts_by_work(indptr, -(-int(indptr[-1] + self.shape[0]) // n_parts))
        n_parts = len(cuts) - 1
        for column in range(0, width, _PANEL):
            sums = self._workspace((n_parts, p, min(_PANEL, width - column)), factor.dtype)
            threads.run(
                _body(kernel),
                threads.cuts_by_rows(n_parts, 1),
                validate.read_only(cuts),
                *self._arrays,
                factor,
                column,
                sums,
                n_threads=self._n_threads,
            )
            threads.run(
                sparse.add_parts,
                threads.cuts_by_rows(p, 2048),
                validate.read_only(sums),
                column,
                out,
                n_threads=self._n_threads,
            )
        return out

    def _workspace(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Matrix:
        """Return memory kept between calls: faulting it in costs as much as a narrow product."""
        if self._kept.shape != shape or self._kept.dtype != dtype:
            self._kept = _aligned(shape, dtype)
        return self._kept

    def _n_parts(self, factor: Matrix) -> int:
        """Parts of the rows with sums of their own: by the data and the memory, not by threads."""
        p = self.shape[1]
        panel_bytes = p * min(factor.shape[1], _PANEL) * factor.dtype.itemsize
        wanted = self._X.nnz // (_NNZ_PER_COLUMN_OF_A_PART * p)
        affordable = int(config.working_memory() * 2**20) // panel_bytes
        return int(max(1, min(wanted, affordable, _MOST_PARTS)))


class DenseOperator:
    """The products of a dense array, by BLAS."""

    def __init__(self, X: Matrix) -> None:
        self.shape: tuple[int, int] = (X.shape[0], X.shape[1])
        self.dtype: np.dtype[Any] = X.dtype
        self._X = X

    def matmul(self, A: Matrix) -> Matrix:
        """Return X A."""
        return self._X @ _as_factor(self, A)

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return X'Y."""
        return self._X.T @ _as_factor(self, Y)

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return X'(X Q)."""
        return self.rmatmul(self.matmul(Q))

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X'X in float64."""
        X = self._X.astype(np.float64, copy=False)
        return X.T @ X

    def transposed(self) -> "DenseOperator":
        """Return X'."""
        return DenseOperator(self._X.T)


class ImplicitOperator:
    """The products of a scipy.sparse.linalg.LinearOperator."""

    def __init__(self, X: LinearOperator) -> None:
        self.shape: tuple[int, int] = (int(X.shape[0]), int(X.shape[1]))
        self.dtype: np.dtype[Any] = np.result_type(X.dtype, np.float32)
        self._X = X

    def matmul(self, A: Matrix) -> Matrix:
        """Return X A."""
        return np.asarray(self._X.matmat(A))

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return X'Y."""
        return np.asarray(self._X.rmatmat(Y))

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return X'(X Q)."""
        return self.rmatmul(self.matmul(Q))

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X'X in float64."""
        return _gram_by_products(self)

    def transposed(self) -> "ImplicitOperator":
        """Return X'."""
        return ImplicitOperator(self._X.H)


class ShiftedOperator:
    """The products of X - L R' from those of X; L (n, r) and R (p, r) float64, r small.

    The rank-r terms are computed in float64.
    """

    def __init__(self, X: Operator, L: npt.NDArray[np.float64], R: npt.NDArray[np.float64]) -> None:
        self.shape, self.dtype = X.shape, X.dtype
        self._X, self._L, self._R = X, L, R

    def matmul(self, A: Matrix) -> Matrix:
        """Return X A."""
        Y = self._X.matmul(A)
        shift = (self._R.T @ A.astype(np.float64, copy=False)).astype(Y.dtype)
        rows = max(1, 2**20 // Y.shape[1])
        for lo in range(0, len(Y), rows):
            Y[lo : lo + rows] -= self._L[lo : lo + rows].astype(Y.dtype) @ shift
        return Y

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return X'Y."""
        Z = self._X.rmatmul(Y)
        shift = self._R @ (self._L.T @ Y.astype(np.float64, copy=False))
        return (Z - shift).astype(Z.dtype, copy=False)

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return X'(X Q)."""
        Z = self._X.gram_matmul(Q)
        Q = Q.astype(np.float64, copy=False)
        C = self._R.T @ Q
        shift = self._XL @ C + self._R @ (self._XL.T @ Q - (self._L.T @ self._L) @ C)
        return (Z - shift).astype(Z.dtype, copy=False)

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X'X in float64."""
        cross = self._XL @ self._R.T
        inner = self._R @ (self._L.T @ self._L) @ self._R.T
        return self._X.gram() - cross - cross.T + inner

    def transposed(self) -> "ShiftedOperator":
        """Return X'."""
        return ShiftedOperator(self._X.transposed(), self._R, self._L)

    @functools.cached_property
    def _XL(self) -> npt.NDArray[np.float64]:
        return self._X.rmatmul(self._L).astype(np.float64, copy=False)


def as_operator(
    X: Any,
    *,
    center: Any = None,
    scale: Any = None,
    row_center: Any = None,
    n_threads: int | None = None,
) -> Operator:
    """Return (X - row_center 1' - 1 center') diag(1 / scale) as an Operator.

    X is sparse, dense, a LinearOperator or in shards; all arguments are checked here.
    """
    if sp.issparse(X):
        X = as_interactions("X", X, keep_zeros=True)
    elif hasattr(X, "as_operator"):
        validate.as_none("scale", scale, "for interactions in shards")
    elif not isinstance(X, LinearOperator):
        X = validate.as_rows("X", X)
    n, p = X.shape
    divisors = None if scale is None else validate.as_positive_diagonal("scale", scale, p)
    operator = _unshifted(X, divisors, n_threads)
    left, right = [], []
    if center is not None:
        left.append(np.ones(n))
        right.append(validate.as_vector("center", center, p))
    if row_center is not None:
        left.append(validate.as_vector("row_center", row_center, n))
        right.append(np.ones(p))
    if not left:
        return operator
    R = np.column_stack(right)
    return ShiftedOperator(
        operator, np.column_stack(left), R if divisors is None else R / divisors[:, None]
    )


def _unshifted(X: Any, divisors: npt.NDArray[np.float64] | None, n_threads: int | None) -> Operator:
    if isinstance(X, LinearOperator):
        columns = aslinearoperator(sp.diags_array(1 / divisors)) if divisors is not None else None
        return ImplicitOperator(X if columns is None else X @ columns)
    if hasattr(X, "as_operator"):
        made: Operator = X.as_operator(n_threads)
        return made
    if not sp.issparse(X):
        return DenseOperator(X if divisors is None else (X / divisors).astype(X.dtype))
    if divisors is not None:
        values = (X.data / divisors[X.indices]).astype(X.dtype)
        X = sp.csr_array((values, X.indices, X.indptr), shape=X.shape)
    return SparseOperator(X, n_threads)


def _gram_by_products(operator: Operator) -> npt.NDArray[np.float64]:
    p = operator.shape[1]
    total = np.empty((p, p))
    for column in range(0, p, 256):
        total[:, column : column + 256] = operator.gram_matmul(
            np.eye(p, min(256, p - column), -column)
        )
    return total


def _as_factor(operator: Operator, A: Matrix) -> Matrix:
    dtype = np.result_type(operator.dtype, A.dtype)
    return validate.read_only(np.ascontiguousarray(A, dtype=dtype))


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


def _body(kernel: str) -> Any:
    is_plain = config.isa() == "generic" or numba.config.DISABLE_JIT
    return getattr(sparse, f"{kernel}_plain" if is_plain else kernel)

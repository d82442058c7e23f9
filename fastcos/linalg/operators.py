"""A matrix as what it does to other matrices: X A, X'Y, X'(X Q) and X'X.

Sparse and dense matrices and SciPy's LinearOperator behind one face. A sparse X stays sparse:
centring and scaling enter as rank-one terms. The bits do not depend on the number of threads.
"""

import functools
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from fastcos import validation
from fastcos.linalg.csr import as_interactions
from fastcos.linalg.sparse_operator import Matrix, SparseOperator, as_factor, gram_by_products


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


class DenseOperator:
    """The products of a dense array, by BLAS."""

    def __init__(self, X: Matrix) -> None:
        self.shape: tuple[int, int] = (X.shape[0], X.shape[1])
        self.dtype: np.dtype[Any] = X.dtype
        self._X = X

    def matmul(self, A: Matrix) -> Matrix:
        """Return X A."""
        return self._X @ as_factor(self, A)

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return X'Y."""
        return self._X.T @ as_factor(self, Y)

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
        return gram_by_products(self)

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
        validation.check_none("scale", scale, "for interactions in shards")
    elif not isinstance(X, LinearOperator):
        X = validation.as_rows("X", X)
    n, p = X.shape
    divisors = None if scale is None else validation.as_positive_diagonal("scale", scale, p)
    operator = _unshifted(X, divisors, n_threads)
    left, right = [], []
    if center is not None:
        left.append(np.ones(n))
        right.append(validation.as_vector("center", center, p))
    if row_center is not None:
        left.append(validation.as_vector("row_center", row_center, n))
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

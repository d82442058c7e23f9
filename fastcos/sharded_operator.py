"""Products with a matrix that comes in shards of rows, one after the other."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import validate
from fastcos.operators import Operator
from fastcos.sparse_operator import Matrix, SparseOperator, Workspace


class Shards(Protocol):
    """A matrix (n, p) as blocks of rows in order."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def blocks(self) -> Iterator[tuple[int, sp.csr_array]]:
        """First row and rows of every block."""


def tree_sum(terms: Iterable[Any]) -> Any:
    """Sum neighbours, then neighbouring sums, and so on; holds one sum per level.

    An odd one out goes up unchanged. The tree depends on the number of terms only.
    """
    levels: list[tuple[int, Any]] = []
    for term in terms:
        size = 1
        while levels and levels[-1][0] == size:
            term = levels.pop()[1] + term
            size *= 2
        levels.append((size, term))
    total = levels.pop()[1]
    while levels:
        total = levels.pop()[1] + total
    return total


class ShardedOperator:
    """X by its products; every call goes through all blocks of rows once.

    Sums over rows are added by :func:`tree_sum`, so that several machines can add the same bits.
    """

    def __init__(self, X: Shards, n_threads: int | None = None) -> None:
        self.shape, self.dtype = X.shape, X.dtype
        self._X, self._n_threads = X, n_threads
        self._workspace = Workspace()

    def matmul(self, A: Matrix) -> Matrix:
        """Return X A."""
        Y = np.empty((self.shape[0], A.shape[1]), np.result_type(self.dtype, A.dtype))
        for first, block in self._operators():
            Y[first : first + block.shape[0]] = block.matmul(A)
        return Y

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return X'Y."""
        Z: Matrix = tree_sum(
            block.rmatmul(Y[first : first + block.shape[0]]) for first, block in self._operators()
        )
        return Z

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return X'(X Q)."""
        Z: Matrix = tree_sum(block.gram_matmul(Q) for _, block in self._operators())
        return Z

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X'X in float64."""
        total: npt.NDArray[np.float64] = tree_sum(block.gram() for _, block in self._operators())
        return total

    def transposed(self) -> "TransposedOperator":
        """Return X'."""
        return TransposedOperator(self)

    def _operators(self) -> Iterator[tuple[int, SparseOperator]]:
        for first, X in self._X.blocks():
            yield first, SparseOperator(X, self._n_threads, self._workspace)


class TransposedOperator:
    """X' by the products of X; X'X of it, which is X X', takes two passes over X."""

    def __init__(self, X: Operator) -> None:
        self.shape, self.dtype = (X.shape[1], X.shape[0]), X.dtype
        self._X = X

    def matmul(self, A: Matrix) -> Matrix:
        """Return X'A."""
        return self._X.rmatmul(A)

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return X Y."""
        return self._X.matmul(Y)

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return X (X'Q)."""
        return self._X.matmul(validate.read_only(self._X.rmatmul(Q)))

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X X' in float64."""
        return self.gram_matmul(np.eye(self.shape[1])).astype(np.float64, copy=False)

    def transposed(self) -> Operator:
        """Return X."""
        return self._X

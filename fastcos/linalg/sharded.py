"""Products with a matrix that comes in shards of rows, with the bits of one in memory."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import config, parallel, validation
from fastcos.kernels import sparse
from fastcos.linalg import partial_sums, sparse_operator
from fastcos.linalg.operators import Operator
from fastcos.linalg.sparse_operator import Matrix, SparseOperator, Workspace


class Shards(Protocol):
    """A matrix (n, p) as blocks of rows in order."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    nnz: int
    first_rows: list[int]

    def blocks(self, lo: int = 0, hi: int | None = None) -> Iterator[tuple[int, sp.csr_array]]:
        """First row and rows of every block, those in [lo, hi) only."""

    def read_ahead(self, lo: int, hi: int) -> None:
        """Let the system read rows [lo, hi) in the background."""

    def rows_at_work(self, targets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """First rows before which there are so many non-zeros and rows."""


class ShardedOperator:
    """X by its products; every call goes through the rows once.

    Sums over rows are added in the parts and in the order of :class:`SparseOperator`. Threads take
    part after part, so that they do not wait for each other at the end of a shard.
    """

    def __init__(self, X: Shards, n_threads: int | None = None) -> None:
        self.shape, self.dtype = X.shape, X.dtype
        self._X, self._n_threads = X, n_threads
        self._memory = Workspace()
        n, p = X.shape
        begins = partial_sums.begins(n, X.nnz, partial_sums.count(p, X.nnz))
        self._part_cuts = np.unique(np.concatenate([[0], X.rows_at_work(begins), [n]])).tolist()

    def matmul(self, A: Matrix) -> Matrix:
        """Return X A."""
        Y = np.empty((self.shape[0], A.shape[1]), np.result_type(self.dtype, A.dtype))
        for first, X in self._X.blocks():
            Y[first : first + X.shape[0]] = SparseOperator(X, self._n_threads).matmul(A)
        return Y

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return X'Y."""
        return self._summed("rmatmul_parts", sparse_operator.as_factor(self, Y))

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return X'(X Q)."""
        Q = sparse_operator.on_cache_lines(sparse_operator.as_factor(self, Q))
        return self._summed("gram_parts", Q)

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X'X in float64."""
        n, p = self.shape
        if not sparse_operator.is_dense_enough(n, p, self._X.nnz):
            return sparse_operator.gram_by_products(self)
        total = np.zeros((p, p))
        for lo, hi in pairwise(sparse_operator.dense_cuts(n, p)):
            block = np.zeros((hi - lo, p))
            for first, X in self._X.blocks(lo, hi):
                block[first - lo : first - lo + X.shape[0]] = X.toarray()
            total += block.T @ block
        return total

    def transposed(self) -> "TransposedOperator":
        """Return X'."""
        return TransposedOperator(self)

    def _summed(self, kernel: str, factor: Matrix) -> Matrix:
        """Sum over rows by a kernel of fastcos.kernels.sparse."""
        if len(self._part_cuts) == 2:
            return self._summed_in_one(kernel, factor)
        p, width, parts = self.shape[1], factor.shape[1], len(self._part_cuts) - 1
        panels = list(sparse_operator.panel_columns(factor))
        most = partial_sums.at_once(parts, p * width * factor.itemsize, self._n_threads)
        memory = self._memory.array((most * p * width,), factor.dtype)
        sums = [
            memory[most * p * column : most * p * (column + w)].reshape(most, p, w)
            for column, w in panels
        ]
        out = np.zeros((p, width), factor.dtype)
        for first in range(0, parts, most):
            some = [panel[: parts - first] for panel in sums]
            numbers = parallel.row_blocks(len(some[0]), 1)
            parallel.run(
                self._sum_parts, numbers, first, kernel, factor, panels, some,
                n_threads=self._n_threads,
            )  # fmt: skip
            for (column, _), panel in zip(panels, some, strict=True):
                partial_sums.add(panel, column, out, self._n_threads)
        return out

    def _sum_parts(
        self,
        lo: int,
        hi: int,
        first: int,
        kernel: str,
        factor: Matrix,
        panels: list[tuple[int, int]],
        sums: list[Matrix],
    ) -> None:
        """Write the sums of parts first + lo .. first + hi, panel by panel of columns."""
        for slot in range(lo, hi):
            begin, end = self._part_cuts[first + slot], self._part_cuts[first + slot + 1]
            ahead = self._part_cuts[first + slot + self._size : first + slot + self._size + 2]
            if len(ahead) == 2:
                self._X.read_ahead(*ahead)
            for row, X in self._X.blocks(begin, end):
                for (column, _), panel in zip(panels, sums, strict=True):
                    _add_rows(kernel, X, row, factor, column, row > begin, panel[slot : slot + 1])

    def _summed_in_one(self, kernel: str, factor: Matrix) -> Matrix:
        """Sum all rows in order; every thread has columns of its own."""
        p, width = self.shape[1], factor.shape[1]
        columns = parallel.row_blocks(width, max(4, -(-width // self._size)))
        sums = [np.zeros((1, p, hi - lo), factor.dtype) for lo, hi in pairwise(columns)]
        numbers = parallel.row_blocks(len(sums), 1)

        def add_columns(lo: int, hi: int, X: sp.csr_array, row: int) -> None:
            for column, panel in zip(columns[lo:hi].tolist(), sums[lo:hi], strict=True):
                _add_rows(kernel, X, row, factor, column, True, panel)

        for row, X in self._X.blocks():
            parallel.run(add_columns, numbers, X, row, n_threads=self._n_threads)
        return np.concatenate([panel[0] for panel in sums], axis=1)

    @property
    def _size(self) -> int:
        """Threads."""
        return config.num_threads() if self._n_threads is None else self._n_threads


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
        return self._X.matmul(validation.read_only(self._X.rmatmul(Q)))

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X X' in float64."""
        return self.gram_matmul(np.eye(self.shape[1])).astype(np.float64, copy=False)

    def transposed(self) -> Operator:
        """Return X."""
        return self._X


def _add_rows(
    kernel: str, X: sp.csr_array, row: int, factor: Matrix, column: int, begun: bool, sums: Matrix
) -> None:
    """Add rows X, the first of which is that of this number, to a part's sum (1, p, w)."""
    n = X.shape[0]
    given = factor[row : row + n] if kernel == "rmatmul_parts" else factor
    cuts = validation.read_only(np.array([0, n]))
    arrays = sparse_operator.kernel_arrays(X)
    body = sparse_operator.kernel_body(sparse, kernel)
    body(0, 1, cuts, *arrays, given, column, begun, sums)

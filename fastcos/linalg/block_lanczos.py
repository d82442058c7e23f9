"""Leading eigenpairs of X'X by block Lanczos with full reorthogonalisation and thick restarts.

Source: Golub & Underwood 1977 (block Lanczos); Wu & Simon 2000 (thick restart). A block Krylov
space (Musco & Musco 2015) needs far fewer products than power iteration for the same residual.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.linalg import tall_skinny
from fastcos.linalg.sparse_operator import Matrix
from fastcos.parallel import Progress

Vector = npt.NDArray[np.float64]

# after a block was widened, steps before the new directions have shown what they hold
_STEPS_AFTER_WIDENING = 4
# lengths of columns, in roundings of the largest eigenvalue: below the one, what rounding left of
# the basis is removed before they are scaled; below the other they are rounding
_SHORT, _NOTHING = 100, 8


class Ritz(NamedTuple):
    """Approximate eigenpairs of X'X.

    Attributes
    ----------
    vectors : ndarray (p, k)
        Orthonormal to working precision.
    values : ndarray (k,), float64
        Falling.
    residuals : ndarray (k,), float64
        Estimates of ||X'Xv - value v|| / value.
    is_limited : bool
        Whether the rounding of the working precision keeps residuals above tol.
    """

    vectors: Matrix
    values: Vector
    residuals: Vector
    is_limited: bool


def block_width(k: int) -> int:
    """Columns of a block: narrow ones need fewer columns in all, wide ones cost less each."""
    return 16 if k <= 256 else 32 if k <= 512 else 64


def largest_basis(k: int) -> int:
    """Basis vectors held before a restart."""
    return 3 * k + 12 * block_width(k)


def leading_eigenpairs(
    gram_matmul: Callable[[Matrix], Matrix],
    p: int,
    k: int,
    *,
    tol: float,
    max_iter: int,
    dtype: npt.DTypeLike,
    generator: np.random.Generator,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Ritz:
    """Return the k leading eigenpairs of X'X, by at most max_iter products with a block.

    Stops when every estimated residual is at most tol, or when rounding keeps it from getting
    there. p must exceed largest_basis(k) + 2 block_width(k). Memory: largest_basis(k) vectors and a
    few blocks. progress is told the columns so far and how many it may take, after each.
    """
    basis = _Basis(gram_matmul, p, k, np.dtype(dtype), generator, n_threads)
    outlook = _Outlook(k, tol, max_iter, progress)
    next_check, before = 3 * k // 2, None
    for step in range(1, max_iter + 1):
        outlook.add(basis.extend())
        if step < max_iter and not basis.is_full and basis.size < next_check:
            continue
        values, weights, residuals = basis.ritz(k)
        now = _Check(basis.size, float(residuals.max()))
        outlook.look(now.residual)
        next_check, before = basis.size + _columns_left(before, now, tol, basis.width), now
        is_limited = basis.rounding(values) > tol
        if is_limited or step == max_iter:
            break
        if residuals.max() <= tol:
            if not (_is_tied(values, basis.width, tol) and basis.widen()):
                break
            next_check = basis.size + _STEPS_AFTER_WIDENING * basis.width
        if basis.is_full:
            basis.restart(values, weights)
            next_check, before = basis.size + 2 * basis.width, None
    return Ritz(basis.vectors(weights), values, residuals, is_limited)


class _Check(NamedTuple):
    """The largest residual at a size of the basis."""

    size: int
    residual: float


def _columns_left(before: _Check | None, now: _Check, tol: float, width: int) -> int:
    """Columns to add until the next look, which costs as much as a product or two.

    Half of what is left at the pace between the last two looks, for the pace rises.
    """
    if before is None or now.residual >= before.residual or now.residual <= tol:
        return 2 * width
    pace = math.log(before.residual / now.residual) / (now.size - before.size)
    return max(1, int(math.log(now.residual / tol) / pace / 2 / width)) * width


class _Outlook:
    """Tells how many columns X'X was multiplied by, of how many until the residual is tol."""

    def __init__(self, k: int, tol: float, max_iter: int, progress: Progress | None) -> None:
        self._progress, self._tol, self._most = progress, tol, max_iter * block_width(k)
        # before the first look: most are there before the first restart
        self._done, self._total = 0, largest_basis(k)
        self._first: _Check | None = None
        self.add(0)

    def add(self, columns: int) -> None:
        """Count so many columns more; the total stays no less."""
        self._done += columns
        if self._progress is not None:
            self._progress(self._done, max(self._done, min(self._total, self._most)))

    def look(self, residual: float) -> None:
        """Take the pace of the residual's fall since the first look for that of the rest."""
        first, now = self._first, _Check(self._done, max(residual, self._tol))
        if first is None:
            self._first = now
        elif now.residual < first.residual:
            fall = math.log(first.residual / now.residual) / (now.size - first.size)
            self._total = self._done + math.ceil(math.log(now.residual / self._tol) / fall)


def zero_level(dtype: np.dtype[Any]) -> float:
    """Eigenvalues of X'X up to this share of the largest cannot be told from 0."""
    return 32 * float(np.finfo(dtype).eps)


def _is_tied(values: Vector, width: int, tol: float) -> bool:
    """Whether width values above the last are equal: a Krylov space of so many starts is exhausted.

    There may be more copies of them, and what stands behind them then stands too high.
    """
    return bool((values[:-width] * (1 - tol) <= values[width - 1 : -1]).any())


class _Basis:
    """Orthonormal columns B, H = B'X'X B and the next block Q: X'X B = B H + Q R (last block)."""

    def __init__(
        self,
        gram_matmul: Callable[[Matrix], Matrix],
        p: int,
        k: int,
        dtype: np.dtype[Any],
        generator: np.random.Generator,
        n_threads: int | None,
    ) -> None:
        self._gram_matmul, self._generator, self._k = gram_matmul, generator, k
        self._cross = functools.partial(tall_skinny.cross, n_threads=n_threads)
        self._add_product = functools.partial(tall_skinny.add_product, n_threads=n_threads)
        self._product = functools.partial(tall_skinny.product, n_threads=n_threads)
        self.dtype, self.width, self.size = dtype, block_width(k), 0
        self._capacity = largest_basis(k)
        # products read columns up to a whole tile
        self._columns = np.zeros((p, self._capacity + tall_skinny.TILE), dtype)
        self._H = np.zeros((self._capacity, self._capacity))
        self._Q = self._fresh(self.width)
        self._R: Matrix = np.zeros((self.width, 0))

    @property
    def is_full(self) -> bool:
        """Whether the next block has no room."""
        return bool(self.size + self._Q.shape[1] > self._capacity)

    def extend(self) -> int:
        """Append the next block, find the one after it; return how many columns were appended."""
        first, last = self.size, self.size + self._Q.shape[1]
        self._columns[:, first:last] = self._Q
        self.size = last
        Z = np.require(self._gram_matmul(self._Q), self.dtype, ["C", "W"])
        C = self._remove_basis(Z)
        # H's new diagonal tells how large a column is
        self._H[first:last, first:last] = C[first:]
        self._Q, self._R, rest = self._orthonormal(Z)
        C += rest
        self._H[:last, first:last] = C
        self._H[first:last, :last] = C.T
        return int(last - first)

    def ritz(self, k: int) -> tuple[Vector, Matrix, Vector]:
        """Return the k largest Ritz values, their weights on B, and relative residuals."""
        m = self.size
        # all of them: by divide and conquer that is faster than a part by scipy.linalg.eigh
        values, weights = np.linalg.eigh(self._H[:m, :m])
        values, weights = np.maximum(values[: -k - 1 : -1], 0), weights[:, : -k - 1 : -1]
        r = np.linalg.norm(self._R @ weights[m - self._R.shape[1] :], axis=0)
        reference = np.where(values > zero_level(self.dtype) * values[0], values, values[0])
        return values, weights, np.divide(r, reference, out=np.zeros(k), where=reference > 0)

    def rounding(self, values: Vector) -> float:
        """Relative residual that the products' rounding leaves in the smallest non-zero value."""
        known = values[values > zero_level(np.dtype(np.float64)) * values[0]]
        return float(np.finfo(self.dtype).eps * values[0] / known[-1]) if len(known) else 0.0

    def vectors(self, weights: Matrix) -> Matrix:
        """Return the Ritz vectors as columns."""
        return self._product(self._columns, weights)

    def restart(self, values: Vector, weights: Matrix) -> None:
        """Keep the Ritz vectors of the given values only."""
        self._columns[:, : len(values)] = self.vectors(weights)
        self.size = len(values)
        self._H[:] = 0
        self._H[: self.size, : self.size] = np.diag(values)

    def widen(self) -> bool:
        """Double the next block by directions at random, if the basis has room for such blocks."""
        if self._k + 6 * self.width > self._capacity:
            return False
        self._Q = np.hstack([self._Q, self._fresh(self.width, self._Q)])
        self._R = np.vstack([self._R, np.zeros((self.width, self._R.shape[1]))])
        self.width = self._Q.shape[1]
        return True

    def _remove_basis(self, Z: Matrix) -> Matrix:
        """Make the columns Z orthogonal to B, in place; return B'Z."""
        C = self._cross(self._columns, Z, columns=self.size)
        self._add_product(self._columns, -C, Z)
        return C

    def _orthonormal(self, Z: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Return Q, R, C with Z = Q R + B C, to working precision; Q at random where Z lacks rank.

        Z, which is changed, is orthogonal to B but for rounding. That grows with the scaling of
        short columns: 1e-11 of a large eigenvalue is the residual of one that is 1e8 times smaller.
        """
        level = np.finfo(self.dtype).eps * self._H.diagonal().max()
        rest = np.zeros((self.size, Z.shape[1]))
        if np.linalg.eigvalsh(self._gram(Z))[0] <= (_SHORT * level) ** 2:
            rest += self._remove_basis(Z)
        Q, R = self._factors(Z, _NOTHING * level)
        rest += self._remove_basis(Q) @ R
        # what looked short by the rounding of longer columns, or was left of the basis, drops out
        Q, S = self._factors(Q, 0.5)
        R = S @ R
        missing = Z.shape[1] - Q.shape[1]
        if missing:
            Q = np.hstack([Q, self._fresh(missing, Q)])
            R = np.vstack([R, np.zeros((missing, R.shape[1]))])
        return Q, R, rest

    def _factors(self, Z: Matrix, shortest: float) -> tuple[Matrix, Matrix]:
        """Return Q, R with Z = Q R and Q'Q = 1, but for directions in which Z is not so long."""
        squares, E = np.linalg.eigh(self._gram(Z))
        good = squares > shortest**2
        lengths, E = np.sqrt(squares[good]), E[:, good]
        return self._product(Z, E / lengths), lengths[:, None] * E.T

    def _fresh(self, count: int, beside: Matrix | None = None) -> Matrix:
        """Return orthonormal random columns, orthogonal to B and to the columns beside."""
        Z = self._generator.standard_normal((len(self._columns), count)).astype(self.dtype)
        for _ in range(2):
            self._remove_basis(Z)
            if beside is not None:
                self._add_product(beside, -self._cross(beside, Z), Z)
            Z = self._factors(Z, 0)[0]
        return Z

    def _gram(self, Z: Matrix) -> Matrix:
        """Return Z'Z in float64, in which short columns are told from nothing."""
        Z = Z.astype(np.float64, copy=False)
        return self._cross(Z, Z)

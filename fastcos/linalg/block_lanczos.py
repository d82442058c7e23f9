"""Leading eigenpairs of X'X by block Lanczos with full reorthogonalisation and thick restarts.

Source: Golub & Underwood 1977 (block Lanczos); Wu & Simon 2000 (thick restart). A block Krylov
space (Musco & Musco 2015) needs far fewer products than power iteration for the same residual.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import tall_skinny
from fastcos.kernels.simd.tall_skinny import TILE
from fastcos.linalg.operators import Matrix, kernel_body
from fastcos.parallel import Progress
from fastcos.validation import Floats

# steps after a block was widened until the new directions have converged enough to be checked
_STEPS_AFTER_WIDENING = 4
# norms of columns, in roundings of the largest eigenvalue, below which they are orthogonalised
# again before they are scaled
_SHORT = 100
# and below which they are rounding
_NEGLIGIBLE = 8
# rows whose products are added one by one in the working precision
_ROWS_PER_PART = 512
# sums of such rows at most, which are added in float64
_MOST_PARTS = 64


class Ritz(NamedTuple):
    """Approximate eigenpairs of X'X: orthonormal vectors (p, k), descending values (k,).

    residuals (k,): estimates of ||X'Xv - value v|| / value; is_limited: whether the rounding of the
    working precision keeps them above tol.
    """

    vectors: Matrix
    values: Floats
    residuals: Floats
    is_limited: bool


def block_width(k: int) -> int:
    """Columns of a block: narrow ones need fewer in all, wide ones cost less each."""
    return 16 if k <= 256 else 32 if k <= 512 else 64


def largest_basis(k: int) -> int:
    """Basis vectors held before a restart."""
    return 3 * k + 12 * block_width(k)


class SVDProgress:
    """Reports the columns that X'X was multiplied by: in iterations, then for k certificates."""

    def __init__(self, progress: Progress | None, k: int) -> None:
        self._progress, self._k = progress, k
        self._before = self._done = 0

    def start(self, tol: float, max_iter: int) -> None:
        """Start an iteration, the first or another one in float64."""
        self._before += self._done
        self._tol, self._most = tol, max_iter * block_width(self._k)
        # before the first check: most iterations end before the first restart
        self._done, self._total = 0, largest_basis(self._k)
        self._first: _Check | None = None
        self.add(0)

    def add(self, columns: int) -> None:
        """Count more columns; the total is at least the columns done."""
        self._done += columns
        self._report(max(self._done, min(self._total, self._most)) + self._k)

    def check(self, residual: float) -> None:
        """Extrapolate the total from the decrease of the residual since the first check."""
        first, now = self._first, _Check(self._done, max(residual, self._tol))
        if first is None:
            self._first = now
        elif now.residual < first.residual:
            rate = math.log(first.residual / now.residual) / (now.size - first.size)
            self._total = self._done + math.ceil(math.log(now.residual / self._tol) / rate)

    def certified(self) -> None:
        """Report the end."""
        self._done += self._k
        self._report(self._done)

    def _report(self, total: int) -> None:
        if self._progress is not None:
            self._progress(self._before + self._done, self._before + total)


def leading_eigenpairs(
    gram_matmul: Callable[[Matrix], Matrix],
    p: int,
    k: int,
    report: SVDProgress,
    *,
    tol: float,
    max_iter: int,
    dtype: npt.DTypeLike,
    generator: np.random.Generator,
    n_threads: int | None = None,
) -> Ritz:
    """Return the k leading eigenpairs of X'X, by at most max_iter products with a block.

    Stops when every estimated residual is at most tol, or limited by rounding. p must exceed
    largest_basis(k) + 2 block_width(k). Memory: largest_basis(k) vectors and a few blocks.
    """
    basis = _Basis(gram_matmul, p, k, np.dtype(dtype), generator, n_threads)
    report.start(tol, max_iter)
    next_check, before = 3 * k // 2, None
    for step in range(1, max_iter + 1):
        report.add(basis.extend())
        if step < max_iter and not basis.is_full and basis.size < next_check:
            continue
        values, weights, residuals = basis.ritz(k)
        now = _Check(basis.size, float(residuals.max()))
        report.check(now.residual)
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
    """Return the columns to add until the next check, which costs as much as a product or two.

    Half of what is left at the rate between the last two checks, because the rate increases.
    """
    if before is None or now.residual >= before.residual or now.residual <= tol:
        return 2 * width
    rate = math.log(before.residual / now.residual) / (now.size - before.size)
    return max(1, int(math.log(now.residual / tol) / rate / 2 / width)) * width


def zero_level(dtype: np.dtype[Any]) -> float:
    """Return the share of the largest eigenvalue of X'X that cannot be distinguished from 0."""
    return 32 * float(np.finfo(dtype).eps)


def _is_tied(values: Floats, width: int, tol: float) -> bool:
    """Whether width values above the last are equal: a Krylov space of width starts is exhausted.

    More copies of that value may exist, and the values after it are then ranked too high.
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
        self._n_threads = n_threads
        self.dtype, self.width, self.size = dtype, block_width(k), 0
        self._capacity = largest_basis(k)
        # products read columns up to a whole tile
        self._columns = np.zeros((p, self._capacity + TILE), dtype)
        self._H = np.zeros((self._capacity, self._capacity))
        self._Q = self._fresh(self.width)
        self._R: Matrix = np.zeros((self.width, 0))

    @property
    def is_full(self) -> bool:
        """Whether the next block exceeds the capacity."""
        return bool(self.size + self._Q.shape[1] > self._capacity)

    def extend(self) -> int:
        """Append the next block, compute the one after it; return the columns appended."""
        first, last = self.size, self.size + self._Q.shape[1]
        self._columns[:, first:last] = self._Q
        self.size = last
        Z = np.require(self._gram_matmul(self._Q), self.dtype, ["C", "W"])
        C = self._remove_basis(Z)
        # _orthonormal reads H's new diagonal as the scale of a column
        self._H[first:last, first:last] = C[first:]
        # with the threads of OpenBLAS an SVD takes 1.1 to 1.2 times as long (bench.lab.curves)
        with parallel.one_blas_thread():
            self._Q, self._R, rest = self._orthonormal(Z)
        C += rest
        self._H[:last, first:last] = C
        self._H[first:last, :last] = C.T
        return int(last - first)

    def ritz(self, k: int) -> tuple[Floats, Matrix, Floats]:
        """Return the k largest Ritz values, their weights on B, and relative residuals."""
        m = self.size
        with parallel.one_blas_thread(), parallel.blas_lock():
            # all of them: divide and conquer is faster than a subset by scipy.linalg.eigh
            values, weights = np.linalg.eigh(self._H[:m, :m])
            values, weights = np.maximum(values[: -k - 1 : -1], 0), weights[:, : -k - 1 : -1]
            r = np.linalg.norm(self._R @ weights[m - self._R.shape[1] :], axis=0)
        reference = np.where(values > zero_level(self.dtype) * values[0], values, values[0])
        return values, weights, np.divide(r, reference, out=np.zeros(k), where=reference > 0)

    def rounding(self, values: Floats) -> float:
        """Return the relative residual that rounding leaves in the smallest non-zero value."""
        known = values[values > zero_level(np.dtype(np.float64)) * values[0]]
        return float(np.finfo(self.dtype).eps * values[0] / known[-1]) if len(known) else 0.0

    def vectors(self, weights: Matrix) -> Matrix:
        """Return the Ritz vectors as columns."""
        return self._product(self._columns, weights)

    def restart(self, values: Floats, weights: Matrix) -> None:
        """Keep the Ritz vectors of the given values only."""
        self._columns[:, : len(values)] = self.vectors(weights)
        self.size = len(values)
        self._H[:] = 0
        self._H[: self.size, : self.size] = np.diag(values)

    def widen(self) -> bool:
        """Double the next block by random directions, if the capacity allows such blocks."""
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
        """Return Q, R, C with Z = Q R + B C, to working precision; Q random where Z lacks rank.

        Z is changed, and is orthogonal to B up to rounding. Scaling short columns enlarges that
        rounding: 1e-11 of a large eigenvalue is the residual of one that is 1e8 times smaller.
        """
        level = np.finfo(self.dtype).eps * self._H.diagonal().max()
        rest = np.zeros((self.size, Z.shape[1]))
        squares = self._gram(Z)
        with parallel.blas_lock():
            is_short = np.linalg.eigvalsh(squares)[0] <= (_SHORT * level) ** 2
        if is_short:
            rest += self._remove_basis(Z)
        Q, R = self._factors(Z, _NEGLIGIBLE * level)
        C = self._remove_basis(Q)
        # drops directions that were only rounding of longer columns or remainders of the basis
        Q, S = self._factors(Q, 0.5)
        with parallel.blas_lock():
            rest += C @ R
            R = S @ R
        missing = Z.shape[1] - Q.shape[1]
        if missing:
            Q = np.hstack([Q, self._fresh(missing, Q)])
            R = np.vstack([R, np.zeros((missing, R.shape[1]))])
        return Q, R, rest

    def _factors(self, Z: Matrix, shortest: float) -> tuple[Matrix, Matrix]:
        """Return Q, R with Z = Q R and Q'Q = 1, without directions in which Z is shorter."""
        gram = self._gram(Z)
        with parallel.blas_lock():
            squares, E = np.linalg.eigh(gram)
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
        """Return Z'Z in float64, which resolves short columns."""
        Z = Z.astype(np.float64, copy=False)
        return self._cross(Z, Z)

    def _cross(self, B: Matrix, Z: Matrix, columns: int | None = None) -> Floats:
        """Return B'Z, of the first columns of B only if their number is given.

        B (p, m) and Z (p, w) are of one type, in which parts of the rows are summed; the parts are
        added in float64.
        """
        m = B.shape[1] if columns is None else columns
        tiled = -(-m // TILE) * TILE
        if tiled > B.shape[1]:
            B = np.pad(B, ((0, 0), (0, tiled - B.shape[1])))
        rows = parallel.row_blocks(len(Z), max(_ROWS_PER_PART, -(-len(Z) // _MOST_PARTS)))
        sums = np.empty((len(rows) - 1, tiled, Z.shape[1]), Z.dtype)
        arrays = (*map(validation.read_only, (rows, B, Z)), sums)
        self._run("cross_parts", parallel.row_blocks(len(sums), 1), *arrays)
        return sums[:, :m].sum(axis=0, dtype=np.float64)

    def _add_product(self, B: Matrix, C: Matrix, Z: Matrix) -> None:
        """Z += B C in place, for B (p, at least m), C (m, w) and Z (p, w); computed in Z's type."""
        C = np.ascontiguousarray(C, dtype=Z.dtype)
        arrays = validation.read_only(B), validation.read_only(C), Z
        self._run("add_product_rows", parallel.row_blocks(len(Z), _ROWS_PER_PART), *arrays)

    def _product(self, B: Matrix, C: Matrix) -> Matrix:
        """Return B[:, :m] C for C (m, w), in B's type."""
        Z = np.zeros((len(B), C.shape[1]), B.dtype)
        self._add_product(B, C, Z)
        return Z

    def _run(self, name: str, blocks: parallel.Blocks, *arrays: Any) -> None:
        parallel.run(kernel_body(tall_skinny, name), blocks, *arrays, n_threads=self._n_threads)

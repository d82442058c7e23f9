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

# After a block has been widened, the iteration makes this number of steps without checking the
# residuals, so that the new directions can converge.
_STEPS_AFTER_WIDENING = 4
# The level of rounding errors is about the machine precision times the largest eigenvalue. A block
# consists of several directions. A direction is short if its norm is at most _SHORT times this
# level. If a block contains a short direction, the block is orthogonalised again before its
# directions are scaled to unit norm. A direction whose norm is at most _NEGLIGIBLE times this level
# counts as 0.
_SHORT = 100
_NEGLIGIBLE = 8
# Sums over rows are computed in parts of at least this number of rows. Inside a part, products are
# added in the working precision.
_ROWS_PER_PART = 512
# A sum over rows has at most this number of parts. The sums of the parts are added in float64.
_MAX_PARTS = 64


class Ritz(NamedTuple):
    """Approximate eigenpairs of X'X: orthonormal vectors (p, k) and descending values (k,).

    `residuals` (k,) contains an estimate of ||X'Xv - cv|| / c for every eigenvector v and its
    eigenvalue c. `is_limited` is True if rounding errors of the working precision prevent the
    residuals from reaching `tol`.
    """

    vectors: Matrix
    values: Floats
    residuals: Floats
    is_limited: bool


def block_width(k: int) -> int:
    """Return how many columns a block has when k eigenpairs are computed.

    With narrow blocks, the iteration multiplies fewer columns before it converges. With wide
    blocks, the iteration multiplies each column in less time.
    """
    return 16 if k <= 256 else 32 if k <= 512 else 64


def largest_basis(k: int) -> int:
    """Return the number of basis vectors at which the iteration restarts."""
    return 3 * k + 12 * block_width(k)


class SVDProgress:
    """Reports the progress of an SVD: counts the columns that have been multiplied by X'X."""

    def __init__(self, progress: Progress | None, k: int) -> None:
        self._progress, self._k = progress, k
        self._before = self._done = 0

    def start(self, tol: float, max_iter: int) -> None:
        """Start to count the columns of an iteration, or of its repetition in float64."""
        self._before += self._done
        self._tol, self._max_columns = tol, max_iter * block_width(self._k)
        # Most iterations end before the first restart. The size of the basis at a restart is
        # therefore the first estimate of the total number of columns.
        self._done, self._total = 0, largest_basis(self._k)
        self._first: _Check | None = None
        self.add(0)

    def add(self, columns: int) -> None:
        """Add `columns` to the count; report the count and the estimated total."""
        self._done += columns
        self._report(max(self._done, min(self._total, self._max_columns)) + self._k)

    def check(self, residual: float) -> None:
        """Estimate the total number of columns by extrapolating the decrease of the residual."""
        first, current = self._first, _Check(self._done, max(residual, self._tol))
        if first is None:
            self._first = current
        elif current.residual < first.residual:
            rate = math.log(first.residual / current.residual) / (current.size - first.size)
            self._total = self._done + math.ceil(math.log(current.residual / self._tol) / rate)

    def certified(self) -> None:
        """Report that the k certificates have been computed, which is the last step of an SVD."""
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
    """Return the k leading eigenpairs of X'X; the iteration makes at most `max_iter` products.

    Each product multiplies X'X by a block of columns. The iteration stops when every estimated
    residual is at most `tol`, or when rounding prevents the residuals from becoming smaller. The
    number p of columns of X must be larger than ``largest_basis(k) + 2 * block_width(k)``, because
    the iteration stores ``largest_basis(k)`` vectors and a few blocks.
    """
    basis = _Basis(gram_matmul, p, k, np.dtype(dtype), generator, n_threads)
    report.start(tol, max_iter)
    next_check, previous = 3 * k // 2, None
    for step in range(1, max_iter + 1):
        report.add(basis.extend())
        if step < max_iter and not basis.is_full and basis.size < next_check:
            continue
        values, weights, residuals = basis.ritz(k)
        current = _Check(basis.size, float(residuals.max()))
        report.check(current.residual)
        next_check, previous = (
            basis.size + _columns_left(previous, current, tol, basis.width),
            current,
        )
        is_limited = basis.rounding(values) > tol
        if is_limited or step == max_iter:
            break
        if residuals.max() <= tol:
            if not (_is_tied(values, basis.width, tol) and basis.widen()):
                break
            next_check = basis.size + _STEPS_AFTER_WIDENING * basis.width
        if basis.is_full:
            basis.restart(values, weights)
            next_check, previous = basis.size + 2 * basis.width, None
    return Ritz(basis.vectors(weights), values, residuals, is_limited)


class _Check(NamedTuple):
    """The result of a check of the residuals: the size of the basis, and the largest residual."""

    size: int
    residual: float


def _columns_left(previous: _Check | None, current: _Check, tol: float, width: int) -> int:
    """Return the number of columns to add to the basis before the residuals are checked again.

    A check of the residuals takes as long as one or two products. From the decrease of the residual
    between the last two checks, the function extrapolates how many columns are needed to reach
    `tol`. The residual decreases faster and faster, so the function returns only half of this
    estimate.
    """
    if previous is None or current.residual >= previous.residual or current.residual <= tol:
        return 2 * width
    rate = math.log(previous.residual / current.residual) / (current.size - previous.size)
    return max(1, int(math.log(current.residual / tol) / rate / 2 / width)) * width


def zero_level(dtype: np.dtype[Any]) -> float:
    """Return the factor t: eigenvalues below t times the largest eigenvalue count as 0."""
    return 32 * float(np.finfo(dtype).eps)


def _is_tied(values: Floats, width: int, tol: float) -> bool:
    """Return whether at least `width` of the values are equal within tol, ignoring the smallest.

    A Krylov space with `width` start vectors contains at most `width` eigenvectors of each
    eigenvalue. If an eigenvalue occurs `width` times in a Krylov space, further eigenvectors of
    this eigenvalue may exist outside of the space. The smallest value is ignored, because the
    result need not contain all eigenvectors of the smallest eigenvalue.
    """
    return bool((values[:-width] * (1 - tol) <= values[width - 1 : -1]).any())


class _Basis:
    """The orthonormal basis B of the iteration, the matrix H = B'X'X B, and the next block Q.

    The matrices satisfy X'X B = B H + Q R. The matrix R is non-zero only in the columns of the last
    block.
    """

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
        # The array is one tile wider than the basis, because kernels read whole tiles of columns.
        self._columns = np.zeros((p, self._capacity + TILE), dtype)
        self._H = np.zeros((self._capacity, self._capacity))
        self._Q = self._random_columns(self.width)
        self._R: Matrix = np.zeros((self.width, 0))

    @property
    def is_full(self) -> bool:
        """Whether the next block no longer fits into the basis."""
        return bool(self.size + self._Q.shape[1] > self._capacity)

    def extend(self) -> int:
        """Append the next block Q to the basis, and compute the block that follows it.

        Return the number of columns that were appended.
        """
        first, last = self.size, self.size + self._Q.shape[1]
        self._columns[:, first:last] = self._Q
        self.size = last
        Z = np.require(self._gram_matmul(self._Q), self.dtype, ["C", "W"])
        C = self._remove_basis(Z)
        # The new diagonal block of H is stored before _orthonormal is called, because _orthonormal
        # derives the size of rounding errors from the diagonal of H.
        self._H[first:last, first:last] = C[first:]
        # With several OpenBLAS threads, an SVD takes 1.1 to 1.2 times as long as with one thread
        # (bench.lab.curves).
        with parallel.one_blas_thread():
            self._Q, self._R, basis_part = self._orthonormal(Z)
        C += basis_part
        self._H[:last, first:last] = C
        self._H[first:last, :last] = C.T
        return int(last - first)

    def ritz(self, k: int) -> tuple[Floats, Matrix, Floats]:
        """Return k Ritz values, the weights of the Ritz vectors in B, and the residuals."""
        m = self.size
        with parallel.one_blas_thread(), parallel.blas_lock():
            # Computing all eigenpairs by divide and conquer takes less time than computing a subset
            # by scipy.linalg.eigh.
            values, weights = np.linalg.eigh(self._H[:m, :m])
            values, weights = np.maximum(values[: -k - 1 : -1], 0), weights[:, : -k - 1 : -1]
            r = np.linalg.norm(self._R @ weights[m - self._R.shape[1] :], axis=0)
        reference = np.where(values > zero_level(self.dtype) * values[0], values, values[0])
        return values, weights, np.divide(r, reference, out=np.zeros(k), where=reference > 0)

    def rounding(self, values: Floats) -> float:
        """Return the residual due to rounding, relative to the smallest non-zero Ritz value."""
        positive = values[values > zero_level(np.dtype(np.float64)) * values[0]]
        return float(np.finfo(self.dtype).eps * values[0] / positive[-1]) if len(positive) else 0.0

    def vectors(self, weights: Matrix) -> Matrix:
        """Return the Ritz vectors, as columns; `weights` contains their weights in the basis B."""
        return self._product(self._columns, weights)

    def restart(self, values: Floats, weights: Matrix) -> None:
        """Restart the iteration: replace the basis by the Ritz vectors of these Ritz values."""
        self._columns[:, : len(values)] = self.vectors(weights)
        self.size = len(values)
        self._H[:] = 0
        self._H[: self.size, : self.size] = np.diag(values)

    def widen(self) -> bool:
        """Double the width of the next block by adding random columns, or return False.

        The result is False if the basis has no room for blocks that are twice as wide.
        """
        if self._k + 6 * self.width > self._capacity:
            return False
        self._Q = np.hstack([self._Q, self._random_columns(self.width, self._Q)])
        self._R = np.vstack([self._R, np.zeros((self.width, self._R.shape[1]))])
        self.width = self._Q.shape[1]
        return True

    def _remove_basis(self, Z: Matrix) -> Matrix:
        """Make the columns of Z orthogonal to B, in place; return B'Z for the original Z."""
        C = self._cross(self._columns, Z, columns=self.size)
        self._add_product(self._columns, -C, Z)
        return C

    def _orthonormal(self, Z: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Return Q, R and C such that Q'Q = I and, in working precision, Z = Q R + B C.

        Z must be orthogonal to B up to rounding errors. The function overwrites Z. The product B C
        is the part of Z in the span of B; this part exists only because of rounding errors. Scaling
        a short column of Z to length 1 enlarges the errors of this column, so B C must be
        subtracted from Z. For example, an error of 1e-11 times the largest eigenvalue is a relative
        error of 1e-3 in an eigenvalue that is 1e-8 times the largest. If Z does not have full rank,
        the missing columns of Q are random.
        """
        level = np.finfo(self.dtype).eps * self._H.diagonal().max()
        basis_part = np.zeros((self.size, Z.shape[1]))
        squares = self._gram(Z)
        with parallel.blas_lock():
            is_short = np.linalg.eigvalsh(squares)[0] <= (_SHORT * level) ** 2
        if is_short:
            basis_part += self._remove_basis(Z)
        Q, R = self._factors(Z, _NEGLIGIBLE * level)
        C = self._remove_basis(Q)
        # The directions of Q had the norm 1. Subtracting their parts in the span of the basis has
        # shortened them. If the norm of a direction is now at most 0.5, the direction consisted
        # mostly of rounding errors. Such directions are dropped.
        Q, S = self._factors(Q, 0.5)
        with parallel.blas_lock():
            basis_part += C @ R
            R = S @ R
        n_missing = Z.shape[1] - Q.shape[1]
        if n_missing:
            Q = np.hstack([Q, self._random_columns(n_missing, Q)])
            R = np.vstack([R, np.zeros((n_missing, R.shape[1]))])
        return Q, R, basis_part

    def _factors(self, Z: Matrix, shortest: float) -> tuple[Matrix, Matrix]:
        """Return Q and R with Z = Q R and Q'Q = I; drop directions of Z shorter than `shortest`."""
        gram = self._gram(Z)
        with parallel.blas_lock():
            squares, E = np.linalg.eigh(gram)
        is_long = squares > shortest**2
        lengths, E = np.sqrt(squares[is_long]), E[:, is_long]
        return self._product(Z, E / lengths), lengths[:, None] * E.T

    def _random_columns(self, count: int, other_columns: Matrix | None = None) -> Matrix:
        """Return `count` random orthonormal columns, orthogonal to B and to `other_columns`."""
        Z = self._generator.standard_normal((len(self._columns), count)).astype(self.dtype)
        for _ in range(2):
            self._remove_basis(Z)
            if other_columns is not None:
                self._add_product(other_columns, -self._cross(other_columns, Z), Z)
            Z = self._factors(Z, 0)[0]
        return Z

    def _gram(self, Z: Matrix) -> Matrix:
        """Return Z'Z in float64; in float32, columns with a small norm would vanish."""
        Z = Z.astype(np.float64, copy=False)
        return self._cross(Z, Z)

    def _cross(self, B: Matrix, Z: Matrix, columns: int | None = None) -> Floats:
        """Return B'Z for all columns of B, or for the first `columns` columns of B.

        B (p, m) and Z (p, w) have the same floating-point type. The sum over rows is divided into
        parts; each part is summed in the type of B and Z, and the sums of the parts are added in
        float64.
        """
        m = B.shape[1] if columns is None else columns
        tiled = -(-m // TILE) * TILE
        if tiled > B.shape[1]:
            B = np.pad(B, ((0, 0), (0, tiled - B.shape[1])))
        rows = parallel.row_blocks(len(Z), max(_ROWS_PER_PART, -(-len(Z) // _MAX_PARTS)))
        sums = np.empty((len(rows) - 1, tiled, Z.shape[1]), Z.dtype)
        arrays = (*map(validation.read_only, (rows, B, Z)), sums)
        self._run("cross_parts", parallel.row_blocks(len(sums), 1), *arrays)
        return sums[:, :m].sum(axis=0, dtype=np.float64)

    def _add_product(self, B: Matrix, C: Matrix, Z: Matrix) -> None:
        """Multiply the first m columns of B by C (m, w), and add the product to Z (p, w)."""
        C = np.ascontiguousarray(C, dtype=Z.dtype)
        arrays = validation.read_only(B), validation.read_only(C), Z
        self._run("add_product_rows", parallel.row_blocks(len(Z), _ROWS_PER_PART), *arrays)

    def _product(self, B: Matrix, C: Matrix) -> Matrix:
        """Return B[:, :m] @ C for C of shape (m, w), in the type of B."""
        Z = np.zeros((len(B), C.shape[1]), B.dtype)
        self._add_product(B, C, Z)
        return Z

    def _run(self, name: str, blocks: parallel.Blocks, *arrays: Any) -> None:
        parallel.run(kernel_body(tall_skinny, name), blocks, *arrays, n_threads=self._n_threads)

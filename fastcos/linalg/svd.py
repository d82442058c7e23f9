"""Truncated SVD of sparse, dense and implicit matrices, with a certificate per triplet."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.linalg import block_lanczos
from fastcos.linalg.block_lanczos import SVDProgress
from fastcos.linalg.operators import Matrix, Operator, as_operator
from fastcos.parallel import Progress
from fastcos.reports import as_table
from fastcos.validation import Floats

# columns of the shorter side up to which direct_svd takes a dense eigendecomposition
DENSE_SIDE = 2048
# one triplet in so many columns, from which both solvers do: cheaper than Lanczos
# (bench/compare/tasks.py)
_DENSE_SHARE = 5
# magnitude of entries whose Gram products float32 holds: their squares, summed over 10^6 rows
_LARGEST_FLOAT32 = 1e15
# singular values relative to the largest that a Gram matrix in float64 cannot distinguish from 0
_RANK_TOLERANCE = 1e-7
# rows of the vectors whose residuals stay in the cache
_ROWS_AT_ONCE = 1024
# distance of a unit vector from the span of others from which it is one of its own, and the square
# below which it is one of theirs: a thousand roundings
_INDEPENDENT, _REPEATED = 0.9, 1e-12
# relative residual of direct_svd's Lanczos iteration: what float64 reaches
_WORKING_PRECISION = 1e-11


@as_table
class SVD(NamedTuple):
    """The leading singular triplets of X.

    Attributes
    ----------
    U : ndarray (n, k) or None
        Left singular vectors as columns; None with ``compute_u=False``. On the longer side of X,
        orthogonal to a few eps (s[0] / s)².
    s : ndarray (k,), float64
        Singular values, descending; 0 where not above 1e-7 s[0].
    Vt : ndarray (k, p)
        Right singular vectors as rows. The entry of largest magnitude of each is positive, the
        first such on ties.
    residuals : ndarray (k,), float64
        The certificate: some singular value of X lies within ``residuals[i] * s[i]`` of ``s[i]``
        (where s[i] is 0, within ``residuals[i] * s[0]``).

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> import fastcos
    >>> X = sp.random_array((200, 40), density=0.2, rng=np.random.default_rng(0))
    >>> svd = fastcos.randomized_svd(X.tocsr(), 3)
    >>> svd.U.shape, svd.s.shape, svd.Vt.shape, bool((svd.residuals <= 1e-3).all())
    ((200, 3), (3,), (3, 40), True)
    """

    U: Matrix | None
    s: Floats
    Vt: Matrix
    residuals: Floats


def randomized_svd(
    X: Any,
    n_components: int,
    *,
    tol: float = 1e-3,
    max_iter: int = 100,
    compute_u: bool = True,
    center: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
    row_center: npt.ArrayLike | None = None,
    random_state: int | np.random.Generator = 0,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> SVD:
    """Truncated SVD to a given residual, with the residuals as a certificate.

    Block Lanczos from a random block on the shorter side of X, each step one pass over X, until
    every wanted triplet's residual is at most tol. Then the residuals are computed in float64. The
    iteration runs in X's precision, and again in float64 where float32 cannot reach tol. A small
    or nearly full problem is solved directly. Time O(nnz l) per pass of l = 16 to 64 columns
    and O(min(n, p) b^2) for b = 3 k + 12 l basis vectors; memory O(min(n, p) b) beside X and the
    result.

    Parameters
    ----------
    X : sparse matrix or array, array_like or LinearOperator (n, p)
        Sparse X stays sparse, centred and scaled too.
    n_components : int
        k, from 1 to min(n, p).
    tol : float
        Largest relative residual to accept, see :func:`svd_residuals`.
    max_iter : int
        Passes over X at most.
    compute_u : bool
        False leaves U out, which saves n k numbers.
    center, scale, row_center : array_like, optional
        As in :func:`fastcos.matmul`: the SVD is that of the centred and scaled X.
    random_state : int or numpy.random.Generator
        The same seed gives the same bits.
    n_threads : int, optional
        Default: that of the configuration.
    progress : callable, optional
        Called as progress(done, total) with numbers of columns that X'X is multiplied by, once a
        pass. The total is extrapolated from the decrease of the residual, and exact at the end.

    Returns
    -------
    SVD
        A named tuple (U, s, Vt, residuals). U and Vt are float32 for float32 X where that meets
        tol, else float64. The entry of largest magnitude of every row of Vt is positive.

    Raises
    ------
    ValueError
        An argument is not valid.

    Warns
    -----
    ConvergenceWarning
        A residual is above tol; the message says how large it is.

    Notes
    -----
    A certificate bounds the distance to *a* singular value of X. For a random start, none of the k
    largest is missed with probability 1. Where more singular values tie than a block has columns,
    further random directions find them.

    Source: Musco & Musco, NIPS 2015, with Lanczos' three-term recurrence and thick restarts; here
    the number of passes follows from the residual.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos import randomized_svd
    >>> X = sp.csr_array(np.diag([3.0, 2.0, 1.0]))
    >>> U, s, Vt, residuals = randomized_svd(X, 2)
    >>> s
    array([3., 2.])
    >>> bool(residuals.max() < 1e-3)
    True
    """
    operator = as_operator(X, center, scale, row_center, n_threads)
    _check_magnitude("X", _values_of(X))
    k = validation.as_count("n_components", n_components, high=min(operator.shape))
    compute_u = validation.as_flag("compute_u", compute_u)
    validation.check_progress(progress)
    tol = validation.as_real("tol", tol, above=0)
    max_iter = validation.as_count("max_iter", max_iter)
    generator = validation.as_generator("random_state", random_state)
    side, report = _shorter_side(operator), SVDProgress(progress, k)
    if _is_nearly_full(side.shape[1], k):
        found = _certified(operator, side, _dense_eigenvectors(side, k), compute_u, report)
        dtypes = []
    else:
        dtypes = list(dict.fromkeys([operator.dtype, np.dtype(np.float64)]))
        # products with the Gram matrix would overflow or underflow in float32
        largest = validation.largest_magnitude(_values_of(X))
        if not 1 / _LARGEST_FLOAT32 < largest < _LARGEST_FLOAT32:
            dtypes = dtypes[-1:]
    for dtype in dtypes:
        ritz = block_lanczos.leading_eigenpairs(
            side.gram_matmul, side.shape[1], k, report, tol=tol / 2, max_iter=max_iter,
            dtype=dtype, generator=generator, n_threads=n_threads,
        )  # fmt: skip
        if ritz.is_limited and dtype == np.float32:
            continue
        found = _certified(operator, side, ritz.vectors, compute_u, report)
        if found.residuals.max() <= tol or ritz.residuals.max() > tol / 2:
            break
    if found.residuals.max() > tol:
        from sklearn.exceptions import ConvergenceWarning  # here: the import takes 0.5 s

        warnings.warn(
            f"randomized_svd stopped at a relative residual of {found.residuals.max():.1e}, above "
            f"tol = {tol:g}; raise max_iter (now {max_iter}) or tol",
            ConvergenceWarning,
            stacklevel=2,
        )
    return found


def direct_svd(
    X: Any, n_components: int, *, compute_u: bool = False, progress: Progress | None = None
) -> SVD:
    """Truncated SVD to working precision in float64, of an Operator or what as_operator takes.

    By the eigendecomposition of the Gram matrix of the shorter side, dense up to DENSE_SIDE, else
    by Lanczos. The relative error of a singular value is about eps (s[0] / s[i])^2. progress is
    called as by randomized_svd.
    """
    operator = as_operator(X)
    k = validation.as_count("n_components", n_components, high=min(operator.shape))
    side, report = _shorter_side(operator), SVDProgress(progress, k)
    if side.shape[1] <= DENSE_SIDE or _is_nearly_full(side.shape[1], k):
        vectors = _dense_eigenvectors(side, k)
    else:
        vectors = block_lanczos.leading_eigenpairs(
            side.gram_matmul, side.shape[1], k, report, tol=_WORKING_PRECISION, max_iter=1000,
            dtype=np.float64, generator=np.random.default_rng(0),
        ).vectors  # fmt: skip
    return _certified(operator, side, vectors, compute_u, report)


def svd_residuals(
    X: Any,
    svd: Any,
    *,
    center: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
    row_center: npt.ArrayLike | None = None,
    n_threads: int | None = None,
) -> Floats:
    """Certificate for singular triplets of X from any solver.

    Computed in float64. With v scaled to unit length and r = ||X'Xv - s²v||, some singular value of
    X lies within min(r / s, sqrt(r)) of s. That bound is returned, divided by s.

    Parameters
    ----------
    X : sparse matrix, array_like or LinearOperator (n, p)
    svd : SVD or tuple (U, s, Vt)
        s (k,), Vt (k, p). U (n, k) is used only where X has more columns than rows, and may be
        None.
    center, scale, row_center, n_threads
        As in :func:`fastcos.matmul`: the triplets are those of the centred and scaled X.

    Returns
    -------
    ndarray (k,), float64
        Relative residuals: |s_i - sigma| <= residuals[i] * s_i for some singular value sigma of X.
        For s_i <= 1e-7 s_0, which a Gram matrix cannot distinguish from 0, relative to s_0. A
        triplet that repeats others certifies no further singular value: its residual is divided by
        the distance of its vector from the span of those before it, and infinite where that is 0.

    Raises
    ------
    ValueError
        X is not valid, or s and Vt do not fit each other and X; an s is negative; magnitudes are
        beyond 1e140 or below 1e-140, whose squares float64 does not hold.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import svd_residuals
    >>> X = np.diag([3.0, 2.0, 1.0])
    >>> U, s, Vt = np.linalg.svd(X)
    >>> bool(svd_residuals(X, (U, s, Vt)).max() < 1e-12)
    True
    >>> svd_residuals(X, (U, s * 1.1, Vt)).round(2)
    array([0.17, 0.17, 0.17])
    """
    operator = as_operator(X, center, scale, row_center, n_threads)
    try:
        U, s, Vt = svd[:3]
    except (TypeError, ValueError, IndexError, KeyError):
        what = type(svd).__name__ if isinstance(svd, list) else validation.format_value(svd)
        raise TypeError(f"svd must be (U, s, Vt, ...), got {what}") from None
    rows = validation.as_rows("svd.Vt", Vt, dtype=np.float64)
    validation.check_same_width("svd.Vt", rows, "X", operator)
    values = validation.as_vector("svd.s", s, len(rows))
    if not values.min() >= 0:
        raise ValueError(f"svd.s must be at least 0, got {values.min():g}")
    _check_magnitude("svd.s", values)
    _check_magnitude("X", _values_of(X))
    (n, p), side, vectors = operator.shape, operator, rows.T
    if p > n and U is not None:
        side, vectors = operator.transposed(), validation.as_rows("svd.U", U, dtype=np.float64)
        validation.check_length("svd.U", vectors, n, "X")
        validation.check_same_width("svd.U", vectors, "svd.s", values[None])
    return _without_repeats(_residuals(side.gram_matmul(vectors), vectors, values), vectors)


def _values_of(X: Any) -> npt.NDArray[Any]:
    """Return the values of an array or a sparse matrix; none of an operator."""
    values = getattr(X, "data", None) if validation.is_sparse(X) else X
    is_plain = isinstance(values, np.ndarray) and values.dtype.kind == "f"
    return cast("npt.NDArray[Any]", values) if is_plain else np.ones(1)


def _check_magnitude(name: str, values: npt.NDArray[Any]) -> None:
    """Refuse values whose Gram matrix float64 does not hold."""
    largest = validation.largest_magnitude(values)
    if 0 < largest < 1e-140 or largest > 1e140:
        raise ValueError(
            f"{name} must have its largest magnitude from 1e-140 to 1e140 (scale it), got "
            f"{largest:g}"
        )


def _certified(
    operator: Operator, side: Operator, vectors: Matrix, compute_u: bool, report: SVDProgress
) -> SVD:
    """Turn orthonormal vectors of X's shorter side into signed and certified triplets."""
    exact = vectors.astype(np.float64, copy=False)
    Z = side.gram_matmul(exact)
    squares = np.einsum("ij,ij->j", exact, Z) / np.einsum("ij,ij->j", exact, exact)
    s = np.sqrt(np.maximum(squares, 0))
    order = np.argsort(-s, kind="stable")
    values = np.where(s <= _RANK_TOLERANCE * s.max(), 0, s)
    residuals = _residuals(Z, exact, values)[order]
    s = values[order]
    if (np.diff(order) < 0).any():
        vectors = vectors[:, order]
    V: Matrix
    if side is operator:
        V = vectors * _signs(vectors)
        U = _images(operator.matmul, V, s) if compute_u else None
    else:
        V = _images(operator.rmatmul, vectors, s)
        U = vectors * _signs(V) if compute_u else None
        V *= _signs(V)
    report.certified()
    return SVD(U, s, np.ascontiguousarray(V.T), residuals)


def _residuals(Z: Matrix, vectors: Matrix, s: Floats) -> Floats:
    """Return svd_residuals from vectors as columns and their products Z with the Gram matrix."""
    squares, r_squares = np.zeros(len(s)), np.zeros(len(s))
    # by a power of two, which rounds nothing: the squares of small remainders would underflow
    scale = 2.0 ** (2 * np.frexp(s.max())[1])
    for first in range(0, len(Z), _ROWS_AT_ONCE):
        rows = vectors[first : first + _ROWS_AT_ONCE]
        rest = (Z[first : first + _ROWS_AT_ONCE] - rows * s**2) / scale
        squares += np.einsum("ij,ij->j", rows, rows)
        r_squares += np.einsum("ij,ij->j", rest, rest)
    lengths = np.sqrt(squares)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = scale * (np.sqrt(r_squares) / lengths)
        bound = np.fmin(r / s, np.sqrt(r))
    bound[~(lengths > 0)] = np.inf
    reference = np.where(s > _RANK_TOLERANCE * s.max(), s, s.max())
    # s of zeros is right for a zero matrix alone
    relative: Floats = np.where(bound > 0, np.inf, 0.0)
    np.divide(bound, reference, out=relative, where=reference > 0)
    return relative


def _without_repeats(residuals: Floats, vectors: Matrix) -> Floats:
    """Return the residuals divided by the distance of each vector from the span of those before.

    By Cholesky's elimination in the Gram matrix of the vectors, whose rounding is far below the
    distances that count: those of a solver's vectors are 1 but for its rounding, and left out.
    """
    with parallel.blas_lock():
        left = vectors.T @ vectors
    lengths = np.sqrt(np.maximum(left.diagonal(), np.finfo(np.float64).tiny))
    left = left / lengths / lengths[:, None]
    squares = np.zeros(len(left))
    for i in range(len(left)):
        squares[i] = left[i, i]
        if squares[i] > _REPEATED:
            left[i:, i:] -= np.outer(left[i:, i], left[i, i:] / squares[i])
    distances = np.sqrt(np.where(squares > _REPEATED, squares, 0))
    divided = np.full_like(residuals, np.inf)
    np.divide(residuals, distances, out=divided, where=distances > 0)
    return np.where(distances < _INDEPENDENT, divided, residuals)


def _shorter_side(operator: Operator) -> Operator:
    """Return X or X', whichever has fewer columns."""
    n, p = operator.shape
    return operator if p <= n else operator.transposed()


def _is_nearly_full(side: int, k: int) -> bool:
    """Whether a Krylov basis would nearly fill the space."""
    needed = block_lanczos.largest_basis(k) + 2 * block_lanczos.block_width(k)
    return side <= needed or k * _DENSE_SHARE >= side


def _dense_eigenvectors(side: Operator, k: int) -> Matrix:
    from scipy.linalg import eigh

    p, gram = side.shape[1], side.gram()
    # with two threads of OpenBLAS and p = 1,000: 1.0 to 1.5 s instead of 0.2, and 80 s beside other
    # work (bench/asv/start.py)
    with parallel.one_blas_thread(), parallel.blas_lock():
        return eigh(gram, subset_by_index=[p - k, p - 1])[1]


def _signs(V: Matrix) -> Matrix:
    """Return +-1 per column: the sign of its entry of largest magnitude, the first on ties."""
    largest = np.argmax(np.abs(V), axis=0)
    return np.where(V[largest, np.arange(V.shape[1])] < 0, -1, 1).astype(V.dtype)


def _images(product: Callable[[Matrix], Matrix], vectors: Matrix, s: Floats) -> Matrix:
    """Return product(vectors) / s, with orthonormal columns of the null space where s is 0.

    All non-zero singular values come first, so directions orthogonal to their images are null. The
    vectors are divided, not the longer images: a pass over those costs as much as computing them.
    """
    rank = int(np.count_nonzero(s))
    Y = product(vectors * np.divide(1, s, out=np.zeros_like(s), where=s > 0).astype(vectors.dtype))
    if rank < len(s):
        free = np.random.default_rng(0).standard_normal((len(Y), len(s) - rank)).astype(Y.dtype)
        with parallel.blas_lock():
            for _ in range(2):
                free -= Y[:, :rank] @ (Y[:, :rank].T @ free)
            Y[:, rank:] = np.linalg.qr(free)[0]
    return Y

"""Truncated SVD of sparse matrices, dense matrices and LinearOperators, with error bounds."""

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

# If the smaller dimension of X is at most this number, direct_svd computes a dense
# eigendecomposition.
DENSE_SIDE = 2048
# If at least 1 / _DENSE_SHARE of all triplets are requested, Lanczos takes longer than a dense
# eigendecomposition. direct_svd and randomized_svd then compute the dense eigendecomposition. The
# task "svd" of bench/compare/tasks.py measures the times of Lanczos and of the dense
# eigendecomposition.
_DENSE_SHARE = 5
# If no entry exceeds this magnitude, the sum of 10^6 squared entries does not overflow in float32.
_LARGEST_FLOAT32 = 1e15
# Singular values below this share of the largest singular value cannot be distinguished from 0 by a
# Gram matrix in float64.
_RANK_TOLERANCE = 1e-7
# Residuals are computed for this many rows of the vectors at a time, so that the rows stay in the
# cache.
_ROWS_AT_ONCE = 1024
# Let d be the distance of a unit vector from the span of other vectors. The vector counts as
# independent of the other vectors if d is at least _INDEPENDENT. The vector counts as a linear
# combination of the other vectors if d² is at most _REPEATED, which is as large as a few thousand
# rounding errors.
_INDEPENDENT, _REPEATED = 0.9, 1e-12
# The relative residual at which the Lanczos iteration of direct_svd stops. The iteration cannot
# reach a smaller residual in float64.
_WORKING_PRECISION = 1e-11


@as_table
class SVD(NamedTuple):
    """The leading singular triplets of a matrix X, each with a certificate of its accuracy.

    Attributes
    ----------
    U : ndarray (n, k) or None
        Left singular vectors as columns, or None with ``compute_u=False``. If n > p, the columns of
        U are orthogonal except for errors that are a small multiple of eps (s[0] / s)². If n <= p,
        the rows of Vt are orthogonal except for errors of this size.
    s : ndarray (k,), float64
        Singular values in descending order; values of at most 1e-7 s[0] are returned as 0.
    Vt : ndarray (k, p)
        Right singular vectors as rows. In each row, the entry with the largest magnitude is
        positive; if several entries have this magnitude, the first of them is positive.
    residuals : ndarray (k,), float64
        The certificate: X has a singular value whose distance from ``s[i]`` is at most
        ``residuals[i] * s[i]``. If ``s[i]`` is 0, X has a singular value of at most ``residuals[i]
        * s[0]``.

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
    """Return a truncated SVD of X; the residual of each triplet certifies the triplet's accuracy.

    The method is block Lanczos with a random first block, on the smaller of X'X and X X'. Each step
    reads X once, and the iteration ends when the residual of every requested triplet is at most
    ``tol``. When the iteration has ended, the residuals in the result are computed in float64. The
    iteration runs in the precision of X. If float32 cannot reach ``tol``, the iteration runs once
    more in float64. If one side of X is short, or if at least a fifth of all triplets is requested,
    a dense eigensolver computes the result in float64, without an iteration. A step of the
    iteration multiplies X'X by l columns, where l is 16 to 64, in O(nnz l) time. The basis has
    b = 3 k + 12 l vectors.
    Computing the basis takes O(min(n, p) b^2) time, in addition to the products. Storing the basis
    takes O(min(n, p) b) memory, in addition to X and the result.

    Parameters
    ----------
    X : sparse matrix or array, array_like or LinearOperator (n, p)
        The matrix. A sparse X stays sparse, even if it is centred and scaled.
    n_components : int
        The number k of triplets, from 1 to min(n, p).
    tol : float
        The largest accepted relative residual of a triplet, as :func:`svd_residuals` defines it.
    max_iter : int
        The largest number of passes over X. If the iteration runs once more in float64, the count
        starts again from 0.
    compute_u : bool
        Whether to compute U. Without U, the result takes less memory, because U contains n k
        numbers.
    center, scale, row_center : array_like, optional
        The vectors with which X is centred and scaled, as in :func:`fastcos.matmul`. The result is
        the SVD of the centred and scaled matrix.
    random_state : int or numpy.random.Generator
        The seed of the random first block. The same seed gives bit-identical results.
    n_threads : int, optional
        Number of threads. Default: the setting ``n_threads``.
    progress : callable, optional
        Called once per pass as ``progress(done, total)``, where ``done`` counts the columns that
        have been multiplied by X'X. ``total`` is extrapolated from the decrease of the residual,
        and is exact at the end.

    Returns
    -------
    SVD
        A named tuple (U, s, Vt, residuals). U and Vt are float32 if X is float32 and the iteration
        reaches ``tol`` in float32; otherwise, U and Vt are float64. In every row of Vt, the entry
        with the largest magnitude is positive.

    Raises
    ------
    ValueError
        An argument is not valid.

    Warns
    -----
    ConvergenceWarning
        The residual of at least one triplet is above ``tol``; the warning states the largest
        residual.

    Notes
    -----
    A certificate bounds the distance of ``s[i]`` from *a* singular value of X, which need not be
    singular value number i. From a random start, the iteration finds all of the k largest singular
    values with probability 1. A singular value may have more singular vectors than a block has
    columns. In this case, the iteration adds random directions to find all of these vectors.

    Source: Musco & Musco, NIPS 2015, with the three-term recurrence of Lanczos and thick restarts.
    Musco and Musco fix the number of passes over X, whereas this function stops when all residuals
    are at most ``tol``.

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
        svd = _certified(operator, side, _dense_eigenvectors(side, k), compute_u, report)
        dtypes = []
    else:
        dtypes = list(dict.fromkeys([operator.dtype, np.dtype(np.float64)]))
        # If the largest magnitude is very large or very small, products with the Gram matrix
        # overflow or underflow in float32, so only float64 is used.
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
        svd = _certified(operator, side, ritz.vectors, compute_u, report)
        if svd.residuals.max() <= tol or ritz.residuals.max() > tol / 2:
            break
    if svd.residuals.max() > tol:
        from sklearn.exceptions import ConvergenceWarning  # importing scikit-learn takes 0.5 s

        warnings.warn(
            f"randomized_svd stopped at a relative residual of {svd.residuals.max():.1e}, above "
            f"tol = {tol:g}; raise max_iter (now {max_iter}) or tol",
            ConvergenceWarning,
            stacklevel=2,
        )
    return svd


def direct_svd(
    X: Any, n_components: int, *, compute_u: bool = False, progress: Progress | None = None
) -> SVD:
    """Return a truncated SVD of X, computed from the eigenvectors of a Gram matrix in float64.

    X is anything that `as_operator` accepts. The eigenvectors of the smaller Gram matrix (X'X or X
    X') are singular vectors of X. If the Gram matrix has up to `DENSE_SIDE` columns, or if at least
    a fifth of all triplets is requested, a dense solver computes the eigenvectors; otherwise, block
    Lanczos computes them. The relative error of the singular value s[i] is about eps (s[0] /
    s[i])^2. `progress` has the same meaning as in :func:`randomized_svd`.
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
    """Return the residuals of singular triplets of X; the triplets may come from any solver.

    Let s be the singular value of a triplet, let v be its right singular vector, with norm 1, and
    let r = ||X'Xv - s²v||. X then has a singular value whose distance from s is at most the bound
    min(r / s, sqrt(r)). The function returns this bound divided by s, computed in float64.

    Parameters
    ----------
    X : sparse matrix, array_like or LinearOperator (n, p)
    svd : SVD or tuple (U, s, Vt)
        The triplets: s has shape (k,), Vt has shape (k, p), and U has shape (n, k) or is None. U is
        used only if X has more columns than rows.
    center, scale, row_center, n_threads
        The vectors with which X is centred and scaled, as in :func:`fastcos.matmul`. The triplets
        must belong to the centred and scaled matrix.

    Returns
    -------
    ndarray (k,), float64
        Relative residuals: |s_i - sigma| <= residuals[i] * s_i for some singular value sigma of X.
        If s_i is at most 1e-7 times the largest singular value s_0, a Gram matrix cannot
        distinguish s_i from 0. The residual of such an s_i is therefore relative to s_0 instead of
        s_i. A triplet that repeats earlier triplets is no evidence that X has a further singular
        value. Let d be the distance of a triplet's vector from the span of the earlier vectors. The
        residual of the triplet is therefore divided by d. If d is 0, the residual is infinite.

    Raises
    ------
    ValueError
        X is not valid, the shapes of s, Vt and X do not match, or a singular value is negative. The
        error is also raised if the largest magnitude in X is above 1e140 or below 1e-140, because
        float64 cannot represent its square.

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
        got = type(svd).__name__ if isinstance(svd, list) else validation.format_value(svd)
        raise TypeError(f"svd must be (U, s, Vt, ...), got {got}") from None
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
    """Return the values of a dense or sparse matrix of floats, or a single 1 for any other X."""
    values = getattr(X, "data", None) if validation.is_sparse(X) else X
    is_plain = isinstance(values, np.ndarray) and values.dtype.kind == "f"
    return cast("npt.NDArray[Any]", values) if is_plain else np.ones(1)


def _check_magnitude(name: str, values: npt.NDArray[Any]) -> None:
    """Raise ValueError if the squares of `values` would overflow or underflow in float64."""
    largest = validation.largest_magnitude(values)
    if 0 < largest < 1e-140 or largest > 1e140:
        raise ValueError(
            f"{name} must contain numbers whose largest magnitude is between 1e-140 and 1e140, got "
            f"{largest:g}. Multiply {name} by a suitable number"
        )


def _certified(
    operator: Operator, side: Operator, vectors: Matrix, compute_u: bool, report: SVDProgress
) -> SVD:
    """Return the singular triplets of X, computed from orthonormal eigenvectors, with residuals."""
    vectors64 = vectors.astype(np.float64, copy=False)
    Z = side.gram_matmul(vectors64)
    squares = np.einsum("ij,ij->j", vectors64, Z) / np.einsum("ij,ij->j", vectors64, vectors64)
    s = np.sqrt(np.maximum(squares, 0))
    order = np.argsort(-s, kind="stable")
    values = np.where(s <= _RANK_TOLERANCE * s.max(), 0, s)
    residuals = _residuals(Z, vectors64, values)[order]
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
    """Return the relative residuals of triplets; `Z` is the Gram matrix times `vectors`."""
    squares, r_squares = np.zeros(len(s)), np.zeros(len(s))
    # Without a scale, the squares of small remainders would underflow. Dividing by a power of two
    # causes no rounding error.
    scale = 2.0 ** (2 * np.frexp(s.max())[1])
    for first in range(0, len(Z), _ROWS_AT_ONCE):
        rows = vectors[first : first + _ROWS_AT_ONCE]
        remainders = (Z[first : first + _ROWS_AT_ONCE] - rows * s**2) / scale
        squares += np.einsum("ij,ij->j", rows, rows)
        r_squares += np.einsum("ij,ij->j", remainders, remainders)
    lengths = np.sqrt(squares)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = scale * (np.sqrt(r_squares) / lengths)
        bound = np.fmin(r / s, np.sqrt(r))
    bound[~(lengths > 0)] = np.inf
    reference = np.where(s > _RANK_TOLERANCE * s.max(), s, s.max())
    # If all computed singular values are 0, the triplets are certified only if all entries of the
    # matrix are 0.
    relative: Floats = np.where(bound > 0, np.inf, 0.0)
    np.divide(bound, reference, out=relative, where=reference > 0)
    return relative


def _without_repeats(residuals: Floats, vectors: Matrix) -> Floats:
    """Divide the residual of each vector by that vector's distance from the span of earlier ones.

    The Cholesky decomposition of the vectors' Gram matrix yields the distance of each vector from
    the span of the earlier vectors. The vectors that a solver returns are orthonormal up to
    rounding errors, so the distance of each vector from the span of the earlier vectors is about 1.
    If the distance is at least ``_INDEPENDENT``, the residual is not divided by the distance, so
    that triplets from a solver keep their residuals.
    """
    with parallel.blas_lock():
        gram = vectors.T @ vectors
    lengths = np.sqrt(np.maximum(gram.diagonal(), np.finfo(np.float64).tiny))
    remainder = gram / lengths / lengths[:, None]
    squares = np.zeros(len(remainder))
    for i in range(len(remainder)):
        squares[i] = remainder[i, i]
        if squares[i] > _REPEATED:
            remainder[i:, i:] -= np.outer(remainder[i:, i], remainder[i, i:] / squares[i])
    distances = np.sqrt(np.where(squares > _REPEATED, squares, 0))
    scaled_residuals = np.full_like(residuals, np.inf)
    np.divide(residuals, distances, out=scaled_residuals, where=distances > 0)
    return np.where(distances < _INDEPENDENT, scaled_residuals, residuals)


def _shorter_side(operator: Operator) -> Operator:
    """Return the operator of X, or of X' if X' has fewer columns."""
    n, p = operator.shape
    return operator if p <= n else operator.transposed()


def _is_nearly_full(side: int, k: int) -> bool:
    """Return whether a dense eigensolver computes k triplets faster than block Lanczos.

    The matrix has `side` triplets. A dense eigensolver is faster in two cases. In the first case,
    the Krylov basis for k triplets would have nearly as many vectors as the matrix has triplets, or
    even more. In the second case, k is at least `side` / `_DENSE_SHARE`.
    """
    n_vectors = block_lanczos.largest_basis(k) + 2 * block_lanczos.block_width(k)
    return side <= n_vectors or k * _DENSE_SHARE >= side


def _dense_eigenvectors(side: Operator, k: int) -> Matrix:
    from scipy.linalg import eigh

    p, gram = side.shape[1], side.gram()
    # For p = 1,000 columns, an eigendecomposition takes 0.2 s with one thread of OpenBLAS, but 1.0
    # to 1.5 s with two threads. While other programs use the CPU, an eigendecomposition with two
    # threads can take as long as 80 s (bench/asv/start.py).
    with parallel.one_blas_thread(), parallel.blas_lock():
        return eigh(gram, subset_by_index=[p - k, p - 1])[1]


def _signs(V: Matrix) -> Matrix:
    """Return, for every column, the sign (+1 or -1) of the entry with the largest magnitude."""
    largest = np.argmax(np.abs(V), axis=0)
    return np.where(V[largest, np.arange(V.shape[1])] < 0, -1, 1).astype(V.dtype)


def _images(product: Callable[[Matrix], Matrix], vectors: Matrix, s: Floats) -> Matrix:
    """Return ``product(vectors) / s``; for s = 0, return a unit vector orthogonal to the others.

    `product` maps the vectors to their images ``product(vectors)``, whose lengths are the singular
    values s. The vectors whose s is not 0 come first. Every direction that is orthogonal to the
    images of these vectors has the singular value 0. The function divides the vectors by s before
    it calls `product`. Dividing the images instead would take longer, because the images have more
    entries than the vectors.
    """
    rank = int(np.count_nonzero(s))
    Y = product(vectors * np.divide(1, s, out=np.zeros_like(s), where=s > 0).astype(vectors.dtype))
    if rank < len(s):
        null = np.random.default_rng(0).standard_normal((len(Y), len(s) - rank)).astype(Y.dtype)
        with parallel.blas_lock():
            for _ in range(2):
                null -= Y[:, :rank] @ (Y[:, :rank].T @ null)
            Y[:, rank:] = np.linalg.qr(null)[0]
    return Y

"""Truncated SVD of sparse, dense and implicit matrices, with a certificate per triplet."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, eigsh

from fastcos import validate
from fastcos.operators import Matrix, Operator, as_operator

Vector = npt.NDArray[np.float64]

# sides up to here, and wanted shares from 1/5 on, are cheaper by a dense eigendecomposition
_DENSE_SIDE = 2048
_DENSE_SHARE = 5
# a Gram matrix in float64 cannot tell smaller singular values from 0, relative to the largest
_RANK_TOLERANCE = 1e-7


class SVD(NamedTuple):
    """The leading singular triplets of X.

    Attributes
    ----------
    U : ndarray (n, k) or None
        Left singular vectors as columns. None where they were not asked for.
    s : ndarray (k,), float64
        Singular values, falling; 0 where not above 1e-7 s[0].
    Vt : ndarray (k, p)
        Right singular vectors as rows. The entry of largest magnitude of each is positive, the
        first such on ties.
    residuals : ndarray (k,), float64
        The certificate: some singular value of X lies within ``residuals[i] * s[i]`` of ``s[i]``
        (where s[i] is 0, within ``residuals[i] * s[0]``).
    """

    U: Matrix | None
    s: Vector
    Vt: Matrix
    residuals: Vector


def direct_svd(X: Any, n_components: int, *, compute_u: bool = False) -> SVD:
    """Truncated SVD to working precision in float64, of any X that as_operator takes.

    By the eigendecomposition of the Gram matrix of the shorter side, dense up to some 2,000, else
    by Lanczos (ARPACK). A singular value is right to about eps (s[0] / s[i])^2, relatively.
    """
    operator = X if hasattr(X, "gram_matmul") else as_operator(X)
    n, p = operator.shape
    k = validate.as_count("n_components", n_components, high=min(n, p))
    squares, vectors = _leading_eigenpairs(operator if p <= n else operator.transposed(), k)
    return _finished(operator, np.sqrt(np.maximum(squares, 0)), vectors, compute_u=compute_u)


def svd_residuals(X: Any, svd: Any) -> Vector:
    """Certificate for the singular triplets of X, wherever they come from.

    Computed in float64. With v scaled to unit length and r = ||X'Xv - s²v||, some singular value of
    X lies within min(r / s, sqrt(r)) of s. That bound is returned, divided by s.

    Parameters
    ----------
    X : sparse matrix, array_like or LinearOperator (n, p)
    svd : SVD or tuple (U, s, Vt)
        U is not used and may be None; s (k,), Vt (k, p).

    Returns
    -------
    ndarray (k,), float64
        Relative residuals: |s_i - sigma| <= residuals[i] * s_i for some singular value sigma of X.
        For s_i <= 1e-7 s_0, which a Gram matrix cannot tell from zero, relative to s_0.

    Raises
    ------
    ValueError
        X is not valid, or s and Vt do not fit each other and X.

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
    operator = X if hasattr(X, "gram_matmul") else as_operator(X)
    _, s, Vt = svd[:3]
    rows = validate.as_rows("svd.Vt", Vt, dtype=np.float64)
    validate.as_same_width("svd.Vt", rows, "X", operator)
    return _relative_residuals(operator, validate.as_vector("svd.s", s, len(rows)), rows.T)


def _relative_residuals(operator: Operator, s: Vector, vectors: Matrix) -> Vector:
    """Return svd_residuals for right singular vectors as columns."""
    lengths = np.linalg.norm(vectors, axis=0)
    V = vectors / np.where(lengths > 0, lengths, 1)
    r = np.linalg.norm(operator.gram_matmul(V) - V * s**2, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.fmin(r / s, np.sqrt(r))
    reference = np.where(s > _RANK_TOLERANCE * s.max(), s, s.max())
    bound = np.where(lengths > 0, bound, np.inf)
    return np.divide(bound, reference, out=np.zeros_like(bound), where=reference > 0)


def _finished(operator: Operator, s: Vector, vectors: Matrix, *, compute_u: bool) -> SVD:
    """Order, complete, sign and certify triplets given by s and the vectors of X's shorter side."""
    order = np.argsort(-s, kind="stable")
    s, vectors = s[order], vectors[:, order]
    s[s <= _RANK_TOLERANCE * s[0]] = 0
    U, V = (None, vectors) if len(vectors) == operator.shape[1] else (vectors, None)
    if V is None:
        V = _divided(operator.rmatmul(vectors), s)
    elif compute_u:
        U = _divided(operator.matmul(vectors), s)
    signs = _signs(V)
    V *= signs
    return SVD(
        U * signs if compute_u and U is not None else None,
        s,
        np.ascontiguousarray(V.T),
        _relative_residuals(operator, s, V),
    )


def _signs(V: Matrix) -> Matrix:
    """Return +-1 per column: the sign of its entry of largest magnitude, the first on ties."""
    largest = np.argmax(np.abs(V), axis=0)
    return np.where(V[largest, np.arange(V.shape[1])] < 0, -1, 1).astype(V.dtype)


def _divided(Y: Matrix, s: Vector) -> Matrix:
    """Return Y / s; where s is 0, columns that complete the others to an orthonormal set.

    All non-zero singular values come first, so whatever is orthogonal to their vectors is null.
    """
    rank = int(np.count_nonzero(s))
    Y[:, :rank] /= s[:rank].astype(Y.dtype)
    if rank < len(s):
        free = np.random.default_rng(0).standard_normal((len(Y), len(s) - rank)).astype(Y.dtype)
        for _ in range(2):
            free -= Y[:, :rank] @ (Y[:, :rank].T @ free)
        Y[:, rank:] = np.linalg.qr(free)[0]
    return Y


def _leading_eigenpairs(operator: Operator, k: int) -> tuple[Vector, Matrix]:
    """Return the k largest eigenvalues and eigenvectors of X'X, in any order."""
    p = operator.shape[1]
    if p <= _DENSE_SIDE or k * _DENSE_SHARE >= p:
        return scipy.linalg.eigh(operator.gram(), subset_by_index=[p - k, p - 1])  # type: ignore[no-any-return]

    def apply(v: Matrix) -> Matrix:
        return operator.gram_matmul(v.reshape(p, -1))

    gram = LinearOperator((p, p), matvec=apply, matmat=apply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(p)
    return eigsh(gram, k, v0=start, ncv=min(p, max(2 * k + 1, 20)))  # type: ignore[no-any-return]

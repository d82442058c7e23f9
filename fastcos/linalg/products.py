"""Products of a sparse matrix with dense ones: X A, X'Y and X'(X Q), centred and scaled at will."""

from typing import Any

import numpy.typing as npt

from fastcos import validation
from fastcos.linalg.fused_validation import unread_matmul
from fastcos.linalg.operators import as_operator
from fastcos.linalg.sparse_operator import Matrix


def matmul(
    X: Any,
    A: npt.ArrayLike,
    *,
    center: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
    row_center: npt.ArrayLike | None = None,
    n_threads: int | None = None,
) -> Matrix:
    """Return X A for sparse X and dense A.

    With the optional vectors it is (X - row_center 1' - 1 center') diag(1 / scale) A, and X is
    still not made dense. Time O(nnz l + (n + p) l), memory that of the result.

    Parameters
    ----------
    X : sparse matrix or array (n, p), or array_like
        Any SciPy format; CSR is used as it is. Duplicates count as their sum, in any order; where
        the order matters, they are summed and sorted on a private copy.
    A : array_like (p, l), float32 or float64
        The product is computed in the wider type of X and A; integers and booleans in X count as
        float32 where that is exact.
    center : array_like (p,), optional
        Subtracted from every row, for example the column means.
    scale : array_like (p,), optional
        Positive divisors of the columns, for example their standard deviations.
    row_center : array_like (n,), optional
        Subtracted from every column, for example user biases.
    n_threads : int, optional
        Default: that of the configuration.

    Returns
    -------
    ndarray (n, l), float32 or float64
        Without the optional vectors, products are added in the order of a row's columns, each with
        one rounding (fused multiply-add): the same bits on any number of threads, and a row of m
        non-zeros x is within m u / (1 - m u) of sum |x||a|, u = 2^-24 or 2^-53. The memory of a
        large result that nobody holds any more goes to the next one, or to the system when it needs
        it; up to working_memory is kept so.

    Raises
    ------
    ValueError
        A shape, an index or a value of X or another argument is not valid.
    TypeError
        An argument does not hold real numbers.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos import matmul
    >>> X = sp.csr_array([[1, 0, 2], [0, 3, 0]])
    >>> matmul(X, np.eye(3)[:, :2])
    array([[1., 0.],
           [0., 3.]])
    >>> matmul(X, np.eye(3)[:, :2], center=X.mean(axis=0))
    array([[ 0.5, -1.5],
           [-0.5,  1.5]])
    """
    count = _threads(n_threads)
    if center is None and scale is None and row_center is None:
        product = unread_matmul(X, A, count)
        if product is not None:
            return product
    operator = as_operator(X, center=center, scale=scale, row_center=row_center, n_threads=count)
    return operator.matmul(_as_factor("A", A, operator.shape[1], "columns"))


def rmatmul(
    X: Any,
    Y: npt.ArrayLike,
    *,
    center: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
    row_center: npt.ArrayLike | None = None,
    n_threads: int | None = None,
) -> Matrix:
    """Return X'Y for sparse X and dense Y, without X' as a matrix unless X is wide.

    Time O(nnz l + (n + p) l); beside the result at most working_memory.

    Parameters
    ----------
    X, center, scale, row_center, n_threads
        As in :func:`matmul`: the product is that of the centred and scaled X.
    Y : array_like (n, l), float32 or float64

    Returns
    -------
    ndarray (p, l), float32 or float64
        Summed in fixed parts of the rows: the same bits on any number of threads.

    Raises
    ------
    ValueError, TypeError
        As in :func:`matmul`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos import rmatmul
    >>> rmatmul(sp.csr_array([[1, 0, 2], [0, 3, 0]]), np.eye(2))
    array([[1., 0.],
           [0., 3.],
           [2., 0.]])
    """
    operator = as_operator(
        X, center=center, scale=scale, row_center=row_center, n_threads=_threads(n_threads)
    )
    return operator.rmatmul(_as_factor("Y", Y, operator.shape[0], "rows"))


def gram_matmul(
    X: Any,
    Q: npt.ArrayLike,
    *,
    center: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
    row_center: npt.ArrayLike | None = None,
    n_threads: int | None = None,
) -> Matrix:
    """Return X'(X Q) for sparse X and dense Q in one pass over X; X Q is never stored.

    Time O(nnz l + (n + p) l). Beside the result at most working_memory for sums of their own of
    parts of the rows, and as much for a transposed copy of X in blocks, which is made where it pays
    at once.

    Parameters
    ----------
    X, center, scale, row_center, n_threads
        As in :func:`matmul`: the product is that of the centred and scaled X.
    Q : array_like (p, l), float32 or float64

    Returns
    -------
    ndarray (p, l), float32 or float64
        Summed in fixed parts of the rows: the same bits on any number of threads.

    Raises
    ------
    ValueError, TypeError
        As in :func:`matmul`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos import gram_matmul
    >>> gram_matmul(sp.csr_array([[1, 0, 2], [0, 3, 0]]), np.eye(3))
    array([[1., 0., 2.],
           [0., 9., 0.],
           [2., 0., 4.]])
    """
    operator = as_operator(
        X, center=center, scale=scale, row_center=row_center, n_threads=_threads(n_threads)
    )
    return operator.gram_matmul(_as_factor("Q", Q, operator.shape[1], "columns"))


def _threads(n_threads: int | None) -> int | None:
    return None if n_threads is None else validation.as_count("n_threads", n_threads)


def _as_factor(name: str, factor: npt.ArrayLike, length: int, of: str) -> Matrix:
    rows = validation.as_rows(name, factor)
    validation.check_length(name, rows, length, f"X has {of}")
    return rows

"""The products X A, X'Y and X'(X Q) of a sparse matrix X, which may be centred and scaled."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import records, sparse
from fastcos.linalg import operators
from fastcos.linalg.csr import unchecked_arrays
from fastcos.linalg.operators import Matrix, as_operator


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

    If ``center``, ``scale`` or ``row_center`` are passed, the result is (X - row_center 1' - 1
    center') diag(1 / scale) A. X stays sparse even if these vectors are passed. If ``scale`` is
    passed, the values of X are copied. The function takes O(nnz l + (n + p) l) time, where nnz is
    the number of non-zeros.

    Parameters
    ----------
    X : sparse matrix or array (n, p), or array_like
        A matrix in any SciPy format; CSR is not copied. Duplicate entries are added. X may also be
        a LinearOperator or :class:`fastcos.linalg.InteractionShards`. For InteractionShards,
        ``scale`` must be omitted.
    A : array_like (p, l), float32 or float64
        The dense matrix that X is multiplied by. If X and A have different types, the product is
        computed in the wider type. Integers and booleans in X are converted to float32 if this
        conversion is exact, and to float64 otherwise.
    center : array_like (p,), optional
        A vector that is subtracted from every row of X, for example the column means.
    scale : array_like (p,), optional
        Positive numbers by which the columns of X are divided, for example their standard
        deviations.
    row_center : array_like (n,), optional
        A vector that is subtracted from every column of X, for example the biases of the users.
    n_threads : int, optional
        Number of threads. Default: the setting ``n_threads``.

    Returns
    -------
    ndarray (n, l), float32 or float64
        The result is bit-identical for any number of threads. If no optional vectors are passed,
        each entry of the result is the inner product of a row x of X with a column a of A. The
        inner product of x and a is summed in the order of the columns of X, with one rounding per
        non-zero (fused multiply-add). If x has m non-zeros, the error of this inner product is at
        most (m u / (1 - m u)) sum(|x||a|), with u = 2^-24 for float32 and u = 2^-53 for float64.
        Large results reuse the memory of earlier results that were freed; the process keeps up to
        ``working_memory`` of freed memory for this purpose.

    Raises
    ------
    ValueError
        X or another argument has an invalid shape, index or value.
    TypeError
        An argument contains something other than real numbers.

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
    if center is None and scale is None and row_center is None:
        product = _fused_matmul(X, A, n_threads)
        if product is not None:
            return product
    operator = as_operator(X, center, scale, row_center, n_threads)
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
    """Return X'Y for sparse X and dense Y, usually without forming the matrix X'.

    The function takes O(nnz l + (n + p) l) time, where nnz is the number of non-zeros. The rows are
    divided into parts, and the sums of the parts take at most ``working_memory``. If X has fewer
    than 96 non-zeros per column, the function may make a transposed copy of X, which takes as much
    memory as X.

    Parameters
    ----------
    X, center, scale, row_center, n_threads
        The same as in :func:`matmul`. The result is computed for the centred and scaled X.
    Y : array_like (n, l), float32 or float64
        The dense matrix that X' is multiplied by.

    Returns
    -------
    ndarray (p, l), float32 or float64
        Sums are taken over fixed parts of the rows, so the result is bit-identical for any number
        of threads.

    Raises
    ------
    ValueError, TypeError
        The same errors as :func:`matmul`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos import rmatmul
    >>> rmatmul(sp.csr_array([[1, 0, 2], [0, 3, 0]]), np.eye(2))
    array([[1., 0.],
           [0., 3.],
           [2., 0.]])
    """
    operator = as_operator(X, center, scale, row_center, n_threads)
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
    """Return X'(X Q) for sparse X and dense Q, usually without storing X Q.

    The function takes O(nnz l + (n + p) l) time, where nnz is the number of non-zeros. The rows are
    divided into parts, and the sums of the parts take at most ``working_memory``. The function also
    makes a transposed copy of X in blocks, if this copy fits in ``working_memory`` and makes the
    whole call faster. For some matrices X with fewer than 96 non-zeros per column, the function
    transposes X as a whole (like :func:`rmatmul`), and stores X Q.

    Parameters
    ----------
    X, center, scale, row_center, n_threads
        The same as in :func:`matmul`. The result is computed for the centred and scaled X.
    Q : array_like (p, l), float32 or float64
        The dense matrix that X'X is multiplied by.

    Returns
    -------
    ndarray (p, l), float32 or float64
        Sums are taken over fixed parts of the rows, so the result is bit-identical for any number
        of threads.

    Raises
    ------
    ValueError, TypeError
        The same errors as :func:`matmul`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos import gram_matmul
    >>> gram_matmul(sp.csr_array([[1, 0, 2], [0, 3, 0]]), np.eye(3))
    array([[1., 0., 2.],
           [0., 9., 0.],
           [2., 0., 4.]])
    """
    operator = as_operator(X, center, scale, row_center, n_threads)
    return operator.gram_matmul(_as_factor("Q", Q, operator.shape[1], "columns"))


def _fused_matmul(X: Any, A: npt.ArrayLike, n_threads: int | None) -> Matrix | None:
    """Check X while computing X A, and return X A; return None if X must be checked beforehand.

    A separate check would read the CSR array X once more. If A has 64 columns and X has 38,000 to
    900,000 non-zeros, this function is 1.1 to 1.5 times as fast as a check followed by a product
    (bench/lab/curves.py). The function returns None in three cases: if X has an invalid entry, if
    another kernel is faster, or if the kernel would have to be compiled for a rare type. If the
    function returns None, the caller must check X before the product. The result has the same bits
    whether or not X is checked beforehand. Duplicate and unsorted entries are added in the order in
    which they are stored.
    """
    arrays = unchecked_arrays("X", X)
    if arrays is None or arrays.indices.dtype != np.int32:
        return None
    factor = _as_factor("A", A, X.shape[1], "columns")
    in_pieces = operators.rows_at_a_time(X.shape, len(arrays.indices), factor) < X.shape[1]
    if factor.dtype != arrays.data.dtype or in_pieces or operators.is_plain():
        return None
    Y, is_streamed = operators.product_memory(X.shape[0], factor)
    is_invalid = np.empty(len(Y), np.bool_)
    blocks = operators.work_blocks(arrays.indptr, factor.shape[1])
    columns = validation.read_only(arrays.indices.view(np.uint32))
    matrix = records.Csr(arrays.indptr, arrays.indices, arrays.data)
    parallel.run(
        sparse.validated_matmul_rows, blocks, matrix, columns, operators.on_cache_lines(factor), Y,
        is_streamed, is_invalid,
        n_threads=n_threads,
    )  # fmt: skip
    return None if is_invalid.any() else Y


def _as_factor(name: str, factor: npt.ArrayLike, length: int, of: str) -> Matrix:
    rows = validation.as_rows(name, factor)
    validation.check_length(name, rows, length, f"X has {of}")
    return rows

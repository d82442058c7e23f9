"""The gate for interaction matrices: any sparse input becomes one canonical CSR array.

SciPy's own checks do not look: constructors and check_format(False) accept indices that are
negative or out of range and an indptr that falls, which crash compiled code, and
has_canonical_format is a cached flag that an edit in place leaves wrong. So the arrays themselves
are read, once.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import threads
from fastcos.kernels import csr
from fastcos.validate import as_rows, read_only, some_rows


class CSRArrays(NamedTuple):
    """A canonical CSR matrix as kernels take it; all read-only.

    Attributes
    ----------
    indptr : ndarray (n + 1,), int64
    indices : ndarray (nnz,), int32 or int64, rising within a row
    data : ndarray (nnz,), float32 or float64
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.integer[Any]]
    data: npt.NDArray[np.floating[Any]]


def as_interactions(name: str, X: Any) -> sp.csr_array:
    """Return X as a canonical CSR array of float32 or float64: sorted, unique, finite, no zeros.

    X is any SciPy sparse matrix or array, or a dense array_like (n, p). Duplicates are summed,
    indices sorted and explicit zeros dropped on a private copy; X itself is never changed. Integers
    and booleans become float32 where that is exact, else float64. One pass over the non-zeros.
    """
    if not sp.issparse(X):
        return sp.csr_array(as_rows(name, X))
    if X.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {X.dtype}")
    if X.ndim != 2:
        raise ValueError(f"{name} must be 2-dimensional (users, items), got shape {X.shape}")
    if 0 in X.shape:
        raise ValueError(f"{name} must have at least one row and one column, got {X.shape}")
    if X.format == "csr":
        indptr, indices, data = _as_structure(name, X)
    else:
        _check_coordinates(name, X)
        matrix = sp.csr_array(X)
        indptr, indices, data = matrix.indptr, matrix.indices, matrix.data
    nnz = int(indptr[-1])
    indices, data = indices[:nnz], _as_values(data[:nnz])
    worst = _checked(name, indptr, indices, data, X.shape[1])
    # flags of a new object are not stale, unlike X.has_canonical_format after an edit in place
    clean = sp.csr_array((data, indices, indptr), shape=X.shape, copy=worst > csr.FINE)
    if worst == csr.NOT_CANONICAL:
        clean.has_canonical_format = False
        clean.sum_duplicates()
        _checked(name, clean.indptr, clean.indices, clean.data, X.shape[1])  # sums may overflow
    if worst > csr.FINE:
        clean.eliminate_zeros()
    clean.has_canonical_format = True
    return clean


def csr_arrays(X: sp.csr_array) -> CSRArrays:
    """Return the three arrays of what as_interactions returned, as kernels take them."""
    return CSRArrays(
        read_only(X.indptr.astype(np.int64, copy=False)), read_only(X.indices), read_only(X.data)
    )


def _as_structure(name: str, X: Any) -> tuple[Any, Any, Any]:
    """Check what must hold before a kernel may follow indptr."""
    indptr, indices, data = X.indptr, X.indices, X.data
    n = X.shape[0]
    if indptr.shape != (n + 1,):
        raise ValueError(f"{name}.indptr must be of shape ({n + 1},), got {indptr.shape}")
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        raise TypeError(f"{name}.indptr and .indices must hold integers, got {indices.dtype}")
    if indptr[0] != 0:
        raise ValueError(f"{name}.indptr must start at 0, got {indptr[0]}")
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if len(falls):
        raise ValueError(f"{name}.indptr must not fall, got a fall after position {falls[0]}")
    if indptr[-1] > min(len(indices), len(data)):
        raise ValueError(
            f"{name}.indptr must end within indices ({len(indices)}) and data ({len(data)}), "
            f"got {indptr[-1]}"
        )
    if indices.dtype not in (np.int32, np.int64):
        indices = indices.astype(np.int64)
    return indptr, indices, data


def _check_coordinates(name: str, X: Any) -> None:
    """Refuse a non-CSR matrix whose own arrays would crash SciPy's conversion."""
    if X.format in ("csc", "bsr"):
        try:
            X.check_format(full_check=True)
        except ValueError as error:
            raise ValueError(f"{name} must be a valid sparse matrix, got: {error}") from None
    elif X.format == "coo":
        for axis, (coordinates, size) in enumerate(zip(X.coords, X.shape, strict=True)):
            if len(coordinates) and not 0 <= coordinates.min() <= coordinates.max() < size:
                raise ValueError(
                    f"{name} must have coordinates from 0 to {size - 1} on axis {axis}, "
                    f"got {coordinates.min()} to {coordinates.max()}"
                )


def _as_values(data: Any) -> Any:
    if data.dtype in (np.float32, np.float64):
        return np.ascontiguousarray(data)
    if data.dtype == np.float16 or data.dtype == np.bool_:
        return data.astype(np.float32)
    exact = data.dtype.kind in "iu" and (
        len(data) == 0 or (data.min() >= -(2**24) and data.max() <= 2**24)
    )
    return data.astype(np.float32 if exact else np.float64)


def _checked(name: str, indptr: Any, indices: Any, data: Any, n_columns: int) -> int:
    """Return the worst repairable finding of all rows; raise for those that are none."""
    n = len(indptr) - 1
    findings = threads.poisoned(n, np.uint8)
    threads.run(
        csr.check_rows,
        threads.cuts_by_work(indptr, 1 << 20),
        read_only(indptr.astype(np.int64, copy=False)),
        read_only(indices),
        read_only(data),
        n_columns,
        findings,
    )
    for finding, rule in (
        (csr.OUT_OF_RANGE, f"have column indices from 0 to {n_columns - 1}"),
        (csr.NOT_FINITE, "be finite"),
    ):
        rows = np.flatnonzero(findings == finding)
        if len(rows):
            what = _first_offender(rows[0], indptr, indices, data, n_columns)
            raise ValueError(f"{name} must {rule}, got {what} (at fault: {some_rows(rows)})")
    return csr.NOT_CANONICAL if (findings == csr.NOT_CANONICAL).any() else int(findings.max())


def _first_offender(row: int, indptr: Any, indices: Any, data: Any, n_columns: int) -> str:
    at = slice(int(indptr[row]), int(indptr[row + 1]))
    columns, values = indices[at], data[at]
    outside = np.flatnonzero((columns < 0) | (columns >= n_columns))
    if len(outside):
        return f"index {columns[outside[0]]} in row {row}"
    broken = np.flatnonzero(~np.isfinite(values))[0]
    return f"{values[broken]} in row {row}, column {columns[broken]}"

"""Validation of sparse matrices, and their conversion to one canonical CSR array.

SciPy's own checks do not suffice. SciPy's constructors and ``check_format(False)`` accept indices
out of range and a descending indptr, although compiled code would crash on such arrays. SciPy's
flag ``has_canonical_format`` is cached, and is wrong after the arrays have been edited in place.
Therefore this module checks the arrays without SciPy, and reads them only once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel
from fastcos.kernels import csr, records
from fastcos.validation import as_rows, format_rows, is_sparse, read_only

if TYPE_CHECKING:
    import scipy.sparse as sp

# float32 represents every whole number up to this number exactly.
_EXACT_FLOAT32 = 2**24


class CSRArrays(NamedTuple):
    """The read-only arrays of a CSR matrix in the types that kernels accept."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.integer[Any]]
    data: npt.NDArray[np.floating[Any]]


def transposed_interactions(name: str, X: Any) -> sp.csr_array:
    """Return the transpose of a CSC matrix as a validated CSR array, without converting it.

    A CSC matrix has the same arrays as its transpose in CSR format. The arrays are checked before
    SciPy reads them, because an error message from SciPy would not contain the name of the
    argument.
    """
    if X.dtype.kind in "fiub":
        _compressed(name, X, X.shape[1])
    return as_interactions(f"{name}.T", X.T)


def as_interactions(name: str, X: Any, *, keep_zeros: bool = False) -> sp.csr_array:
    """Return X as a canonical CSR array of float32 or float64.

    "Canonical" means that the indices of each row are sorted and unique, and that the values are
    finite and not 0.

    X is any SciPy sparse matrix or array, or a dense array_like (n, p), and is never changed. The
    function works on a private copy if it must sum duplicates, sort indices or drop explicit zeros.
    If `keep_zeros` is true, explicit zeros remain in the result, so no copy is needed to drop them.
    Integers and booleans are converted to float64 before duplicate entries are summed. If no
    magnitude in the result exceeds 2^24, float32 can represent the result exactly, and the result
    is converted to float32. The validation reads the non-zeros once.
    """
    import scipy.sparse as sp

    if not is_sparse(X):
        return sp.csr_array(as_rows(name, X))
    if X.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {X.dtype}")
    if X.ndim != 2:
        raise ValueError(f"{name} must be 2-dimensional (users, items), got shape {X.shape}")
    if 0 in X.shape:
        raise ValueError(f"{name} must have at least one row and one column, got {X.shape}")
    indptr, indices, data = _as_csr(name, X)
    defect = _worst_defect(name, indptr, indices, data, X.shape[1])
    if defect == csr.EXPLICIT_ZERO and keep_zeros:
        defect = csr.VALID
    # The new array computes its own flags, because X.has_canonical_format may be outdated after an
    # edit in place.
    matrix = sp.csr_array((data, indices, indptr), shape=X.shape, copy=defect > csr.VALID)
    if defect == csr.NOT_CANONICAL:
        with np.errstate(over="ignore"):
            matrix.sum_duplicates()
        # The sums of duplicates may have overflowed, so the values are validated again.
        _worst_defect(name, matrix.indptr, matrix.indices, matrix.data, X.shape[1])
    if defect > csr.VALID:
        matrix.eliminate_zeros()
    matrix.has_canonical_format = True
    if X.dtype.kind in "iub" and np.abs(matrix.data).max(initial=0) <= _EXACT_FLOAT32:
        matrix.data = matrix.data.astype(np.float32)
    return matrix


def one_per_row(columns: Any, n_columns: int) -> sp.csr_array:
    """Return a sparse matrix whose row i contains a 1 in column ``columns[i]`` and no other entry.

    If you pass this matrix as the argument ``exclude=`` of a search, it excludes one item per
    query.
    """
    import scipy.sparse as sp

    n = len(columns)
    return sp.csr_array((np.ones(n), columns, np.arange(n + 1)), shape=(n, n_columns))


def csr_arrays(X: sp.csr_array) -> CSRArrays:
    """Return the arrays of X in the types that kernels accept.

    X must be a result of ``as_interactions``.
    """
    return _read_only_arrays(X.indptr, X.indices, X.data)


def _read_only_arrays(indptr: Any, indices: Any, data: Any) -> CSRArrays:
    indptr = indptr.astype(np.int64, copy=False)
    return CSRArrays(read_only(indptr), read_only(indices), read_only(data))


def unchecked_arrays(name: str, X: Any) -> CSRArrays | None:
    """Return the arrays of a CSR matrix of floats, without checking their entries.

    If X is not a CSR matrix of float32 or float64, the function returns None.
    """
    is_plain = is_sparse(X) and X.format == "csr" and X.dtype in (np.float32, np.float64)
    if not is_plain or X.ndim != 2 or 0 in X.shape:
        return None
    return _read_only_arrays(*_compressed(name, X, X.shape[0]))


def _as_csr(name: str, X: Any) -> tuple[Any, Any, Any]:
    """Return X as the arrays indptr, indices and float data, without checking the indices.

    If X is not in CSR format, SciPy converts X to CSR. Invalid values could crash SciPy during the
    conversion, so this function checks X for such values first.
    """
    import scipy.sparse as sp

    if X.format == "csc":
        indptr, indices, data = _compressed(name, X, X.shape[1])
        _check_range(f"{name}.indices", indices, X.shape[0])
        X = sp.csc_array((data, indices, indptr), shape=X.shape).tocsr()
    elif X.format == "bsr":
        height, width = X.data.shape[1:]
        indptr, indices, data = _compressed(name, X, X.shape[0] // height)
        _check_range(f"{name}.indices", indices, X.shape[1] // width)
        X = sp.bsr_array((data, indices, indptr), shape=X.shape).tocsr()
    elif X.format == "lil":
        if [len(row) for row in X.rows] != [len(row) for row in X.data]:
            raise ValueError(f"{name}.rows and .data must have lists of the same lengths")
        X = X.tocsr()
    elif X.format == "dia":
        X = _diagonals(name, X).tocsr()
    elif X.format != "csr":
        X = _coordinates(name, X).tocsr()
    return _compressed(name, X, X.shape[0])


def _compressed(name: str, X: Any, n: int) -> tuple[Any, Any, Any]:
    """Return indptr, indices and data of n compressed rows, after checking that indptr is valid."""
    indptr, indices, data = (np.ascontiguousarray(a) for a in (X.indptr, X.indices, X.data))
    if indptr.shape != (n + 1,):
        raise ValueError(f"{name}.indptr must be of shape ({n + 1},), got {indptr.shape}")
    for field, array in (("indptr", indptr), ("indices", indices)):
        if array.dtype.kind not in "iu":
            raise TypeError(f"{name}.{field} must hold integers, got dtype {array.dtype}")
    if indices.ndim != 1 or data.ndim != (3 if X.format == "bsr" else 1):
        raise ValueError(f"{name}.indices must be 1-dimensional, got shape {indices.shape}")
    if indptr[0] != 0:
        raise ValueError(f"{name}.indptr must start at 0, got {indptr[0]}")
    descents = np.flatnonzero(indptr[1:] < indptr[:-1])
    if len(descents):
        raise ValueError(
            f"{name}.indptr must not descend, got a smaller value after position {descents[0]}"
        )
    if indptr[-1] > min(len(indices), len(data)):
        raise ValueError(
            f"{name}.indptr must not end above the length of indices ({len(indices)}) or of data "
            f"({len(data)}), got {indptr[-1]}"
        )
    if indices.dtype not in (np.int32, np.int64):
        indices = indices.astype(np.int64)
    nnz = int(indptr[-1])
    return indptr, indices[:nnz], _as_values(data[:nnz])


def _coordinates(name: str, X: Any) -> sp.coo_array:
    """Return X in COO format, after checking that all coordinates lie within the shape of X."""
    import scipy.sparse as sp

    try:
        X = X.tocoo()
    # A dok_array with malformed keys raises one of these errors.
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"{name} must be a valid sparse matrix, got: {error}") from None
    for field, coordinates, size in zip(("row", "col"), X.coords, X.shape, strict=True):
        if len(coordinates) != len(X.data):
            raise ValueError(
                f"{name}.{field} must be as long as data ({len(X.data)}), got {len(coordinates)}"
            )
        _check_range(f"{name}.{field}", coordinates, size)
    return sp.coo_array((_as_values(np.asarray(X.data)), X.coords), shape=X.shape)


def _diagonals(name: str, X: Any) -> sp.dia_array:
    """Return a DIA matrix, after checking that it has one offset per diagonal.

    SciPy does not check that the number of offsets equals the number of diagonals.
    """
    import scipy.sparse as sp

    offsets, data = np.asarray(X.offsets), np.asarray(X.data)
    if data.ndim != 2 or offsets.shape != data.shape[:1] or offsets.dtype.kind not in "iu":
        raise ValueError(
            f"{name}.offsets must contain {len(data)} whole numbers, one per row of data, got an "
            f"array of dtype {offsets.dtype} and shape {offsets.shape}"
        )
    if len(np.unique(offsets)) < len(offsets):
        raise ValueError(f"{name}.offsets must differ from each other, got {offsets.tolist()}")
    return sp.dia_array((_as_values(data), offsets), shape=X.shape)


def _check_range(field: str, indices: Any, size: int) -> None:
    if len(indices) and not 0 <= indices.min() <= indices.max() < size:
        position = int(np.flatnonzero((indices < 0) | (indices >= size))[0])
        raise ValueError(
            f"{field} must be from 0 to {size - 1}, got {indices[position]} at position {position}"
        )


def _as_values(data: Any) -> Any:
    """Return the values as float32 or float64; integers become float64, so that sums are exact."""
    if data.dtype in (np.float32, np.float64):
        return data
    with np.errstate(over="ignore"):
        return data.astype(np.float32 if data.dtype == np.float16 else np.float64)


def _worst_defect(name: str, indptr: Any, indices: Any, data: Any, n_columns: int) -> int:
    """Return the worst defect if all defects can be repaired; raise ValueError otherwise."""
    indptr = read_only(indptr.astype(np.int64, copy=False))
    defects = parallel.unfilled(len(indptr) - 1, np.uint8)
    unsigned = np.dtype(f"u{data.dtype.itemsize}").type
    columns, bits = indices.view(f"u{indices.dtype.itemsize}"), data.view(unsigned)
    magnitude = unsigned(np.iinfo(unsigned).max >> 1)  # a mask of all bits except the sign
    infinity = np.array(np.inf, data.dtype).view(unsigned)[()]
    matrix = records.Csr(indptr, read_only(indices), read_only(data))
    views = records.BitViews(read_only(columns), read_only(bits), magnitude, infinity)
    blocks = parallel.work_blocks(indptr, 1 << 20)
    parallel.run(csr.check_rows, blocks, matrix, views, n_columns, defects)
    for defect, rule in (
        (csr.OUT_OF_RANGE, f"have column indices from 0 to {n_columns - 1}"),
        (csr.NOT_FINITE, "be finite"),
    ):
        rows = np.flatnonzero(defects == defect)
        if len(rows):
            offender = _first_offender(rows[0], indptr, indices, data, n_columns)
            raise ValueError(f"{name} must {rule}, got {offender} (at fault: {format_rows(rows)})")
    return csr.NOT_CANONICAL if (defects == csr.NOT_CANONICAL).any() else int(defects.max())


def _first_offender(row: int, indptr: Any, indices: Any, data: Any, n_columns: int) -> str:
    """Return a description of the first invalid entry of this row, for an error message."""
    entries = slice(int(indptr[row]), int(indptr[row + 1]))
    columns, values = indices[entries], data[entries]
    outside = np.flatnonzero((columns < 0) | (columns >= n_columns))
    if len(outside):
        return f"index {columns[outside[0]]} in row {row}, position {entries.start + outside[0]}"
    invalid = np.flatnonzero(~np.isfinite(values))[0]
    return f"{values[invalid]} in row {row}, column {columns[invalid]}"

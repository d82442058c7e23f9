"""Sparse rows for the search among them: by row, by column, whole numbers in few bits."""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import inverted_lists, sparse_top_k
from fastcos.linalg.csr import as_interactions, csr_arrays, transposed_interactions
from fastcos.linalg.transpose import transposed
from fastcos.similarity import safe_norms

Arrays = tuple[npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[Any] | None]

# item and column numbers up to here are int32
LARGEST_INT32 = 2**31 - 1
# non-zeros of one block of a pass over them
_NNZ_PER_PASS = 1 << 20
# values looked at before all of them
_FIRST_VALUES = 4096
_LARGEST_LENGTH = 2**16 - 1
# the ends of lists are a small part from here on
_LONG_ON_AVERAGE = 128


class SparseRows:
    """Rows by row and by column, each made at first use, with their norms.

    Either is a tuple (indptr int64, indices, data), data None where all values are 1. Indices by
    row are int32 (int64 beyond), by column uint16 where that holds the rows. are_whole: whether all
    values are whole numbers of int16. packed (nnz,), int32 or None: the entries by column in one
    array, an item in the lower half, its value in the upper one.
    """

    def __init__(
        self, shape: tuple[int, int], by_row: Arrays | None, by_column: Arrays | None,
        n_threads: int | None, *, are_whole: bool, packed: npt.NDArray[np.int32] | None = None,
    ) -> None:  # fmt: skip
        self.shape, self.are_whole, self.packed = shape, are_whole, packed
        self._by_row, self._by_column, self._n_threads = by_row, by_column, n_threads

    @parallel.lazy_attribute
    def by_row(self) -> Arrays:
        """CSR of the rows."""
        n, d = self.shape
        if self._by_row is None:
            indptr, indices, data = self._by_column or self._by_row  # type: ignore[misc]
            return transposed(indptr, indices, data, n, _index_type(d), self._n_threads)
        return _narrowed(self._by_row, _index_type(d))

    @parallel.lazy_attribute
    def by_column(self) -> Arrays:
        """CSR of the transpose."""
        if self._by_column is None:
            return transposed(*self.by_row, self.shape[1], self._narrow_type, self._n_threads)
        return _narrowed(self._by_column, self._narrow_type)

    @parallel.lazy_attribute
    def norms(self) -> npt.NDArray[np.float64]:
        """Euclidean norms of the rows, (n,)."""
        indptr, _, data = self.by_row
        norms = parallel.unfilled(self.shape[0], np.float64)
        cuts = parallel.work_blocks(indptr, _NNZ_PER_PASS)
        parallel.run(sparse_top_k.row_norms, cuts, indptr, data, norms, n_threads=self._n_threads)
        return validation.read_only(norms)

    def columns_by_length(self) -> npt.NDArray[np.int64]:
        """Return the columns by their numbers of non-zeros, as given where these are large.

        Numbers from 2**16 on count as equal: 16 bits are sorted by radix.
        """
        lengths = np.diff((self._by_column or self.by_column)[0])
        if lengths.mean() > _LONG_ON_AVERAGE:
            return np.arange(len(lengths))
        capped = np.minimum(lengths, _LARGEST_LENGTH).astype(np.uint16)
        return np.argsort(capped, kind="stable")

    def with_columns(self, order: npt.NDArray[np.int64]) -> "SparseRows":
        """Return rows of whole numbers with their columns in another order, values as int16."""
        indptr, indices, data = self._by_column or self.by_column
        taken_indptr = np.zeros_like(indptr)
        np.cumsum(np.diff(indptr)[order], out=taken_indptr[1:])
        packed, taken, values = _empty_entries(len(indices), self._narrow_type, data is not None)
        cuts = parallel.work_blocks(taken_indptr, _NNZ_PER_PASS)
        inputs = map(validation.read_only, (order, indptr, indices, data, taken_indptr))
        arrays = *inputs, taken, values
        parallel.run(inverted_lists.take_rows, cuts, *arrays, n_threads=self._n_threads)
        by_column = taken_indptr, taken, values
        return SparseRows(
            self.shape, None, by_column, self._n_threads, are_whole=True, packed=packed
        )

    def only(self, numbers: npt.NDArray[np.int64]) -> "SparseRows":
        """Return the rows of these numbers."""
        import scipy.sparse as sp

        indptr, indices, data = self.by_row
        places = sp.csr_array((np.arange(len(indices)), indices, indptr), shape=self.shape)[numbers]
        kept = None if data is None else data[places.data]
        arrays = places.indptr.astype(np.int64), places.indices, kept
        shape = len(numbers), self.shape[1]
        return SparseRows(shape, arrays, None, self._n_threads, are_whole=self.are_whole)

    @property
    def _narrow_type(self) -> npt.DTypeLike:
        n = self.shape[0]
        return np.uint16 if n <= 2**16 else _index_type(n)


def as_sparse_rows(name: str, X: Any, measure: str, n_threads: int | None) -> SparseRows:
    """Check sparse rows; CSC is the CSR of the transpose, and is not converted."""
    is_csc = validation.is_sparse(X) and X.ndim == 2 and X.format == "csc"
    clean = transposed_interactions(name, X) if is_csc else as_interactions(name, X)
    validation.check_scorable(name, clean.data[None], clean.data[None], X.shape[1])
    arrays: Arrays = csr_arrays(clean)
    are_whole = _are_whole(arrays[0], clean.data, n_threads)
    if are_whole and (clean.data[:_FIRST_VALUES] == 1).all() and (clean.data == 1).all():
        arrays = *arrays[:2], None
    shape = clean.shape[::-1] if is_csc else clean.shape
    by_row, by_column = (None, arrays) if is_csc else (arrays, None)
    rows = SparseRows(shape, by_row, by_column, n_threads, are_whole=are_whole)
    if measure == "dot" or are_whole:
        return rows
    return _scaled_up(rows, n_threads)


def _are_whole(
    indptr: npt.NDArray[np.int64], data: npt.NDArray[Any], n_threads: int | None
) -> bool:
    """Whether int16 holds all values."""
    first = data[:_FIRST_VALUES]
    if (first != np.rint(first)).any():
        return False
    are_whole = parallel.unfilled(len(indptr) - 1, np.bool_)
    cuts = parallel.work_blocks(indptr, _NNZ_PER_PASS)
    arrays = indptr, validation.read_only(data), are_whole
    parallel.run(inverted_lists.find_whole_rows, cuts, *arrays, n_threads=n_threads)
    return bool(are_whole.all())


def _scaled_up(rows: SparseRows, n_threads: int | None) -> SparseRows:
    """Return rows of which those whose squares would underflow are scaled up."""
    indptr, indices, data = rows.by_row
    small = safe_norms.find_small(rows.norms)
    if data is None or data.dtype != np.float64 or not len(small):
        return rows
    row_of = np.repeat(np.arange(rows.shape[0]), np.diff(indptr))
    inside = np.isin(row_of, small)
    largest = np.zeros(rows.shape[0])
    np.maximum.at(largest, row_of[inside], np.abs(data[inside]))
    if not largest.any():
        return rows
    exponents = safe_norms.exponents_for(largest)
    scaled = np.ldexp(data, exponents[row_of])
    return SparseRows(rows.shape, (indptr, indices, scaled), None, n_threads, are_whole=False)


def _empty_entries(
    nnz: int, index_type: npt.DTypeLike, with_values: bool
) -> tuple[npt.NDArray[np.int32] | None, npt.NDArray[Any], npt.NDArray[np.int16] | None]:
    """Return memory for items and their values, where both are of 16 bits as halves of one array.

    The first is that array, or None.
    """
    if with_values and index_type == np.uint16:
        packed = np.empty(nnz, np.int32)
        halves = packed.view(np.int16).reshape(nnz, 2)
        low, high = (0, 1) if sys.byteorder == "little" else (1, 0)
        return packed, halves[:, low].view(np.uint16), halves[:, high]
    return None, np.empty(nnz, index_type), np.empty(nnz, np.int16) if with_values else None


def _index_type(count: int) -> npt.DTypeLike:
    return np.int32 if count <= LARGEST_INT32 else np.int64


def _narrowed(arrays: Arrays, index_type: npt.DTypeLike) -> Arrays:
    indptr, indices, data = arrays
    narrow = indices.astype(index_type, copy=False)
    return tuple(map(validation.read_only, (indptr, narrow, data)))  # type: ignore[return-value]

"""Sparse rows, stored both by row and by column, because a search needs both."""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import inverted_lists, records, sparse_top_k
from fastcos.linalg.csr import as_interactions, csr_arrays, transposed_interactions
from fastcos.linalg.transpose import transposed
from fastcos.similarity import safe_norms

Arrays = tuple[npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[Any] | None]

# Item numbers and column numbers are stored as int32 if none of them exceeds this number.
LARGEST_INT32 = 2**31 - 1
# A kernel that reads all non-zeros of a matrix reads them in blocks of about this many non-zeros.
_NNZ_PER_PASS = 1 << 20
# To find out whether all values are 1, or whether all are whole numbers, this many values are
# examined first. If one of these first values already makes the answer "no", the remaining values
# are not examined.
_FIRST_VALUES = 4096
# In columns_by_length, all columns with at least this many non-zeros count as equally long.
_MAX_SORTED_LENGTH = 2**16 - 1
# If columns have more non-zeros than this on average, ordering the columns by their number of
# non-zeros takes longer than it saves.
_MAX_MEAN_LENGTH = 128


class SparseRows:
    """Sparse rows, stored by row and by column, with their norms.

    ``by_row`` and ``by_column`` are tuples (indptr, indices, data) as in a CSR matrix, and are
    computed at first use. In both of these tuples, indptr is int64. If all values are 1, data is
    None. The indices of ``by_row`` are int32, or int64 if there are 2^31 or more columns. The
    indices of ``by_column`` are uint16 if there are at most 2^16 rows, and otherwise int32 or
    int64. ``are_whole`` says whether all values are whole numbers that fit int16. ``packed`` is
    None or an int32 array (nnz,) of the entries of ``by_column``. The lower 16 bits of each entry
    contain the row number, and the upper 16 bits contain the value.
    """

    def __init__(
        self, shape: tuple[int, int], by_row: Arrays | None, by_column: Arrays | None,
        n_threads: int | None, *, are_whole: bool, packed: npt.NDArray[np.int32] | None = None,
    ) -> None:  # fmt: skip
        self.shape, self.are_whole, self.packed = shape, are_whole, packed
        self._by_row, self._by_column, self._n_threads = by_row, by_column, n_threads

    @parallel.lazy_attribute
    def by_row(self) -> Arrays:
        """The arrays (indptr, indices, data) of the rows as a CSR matrix."""
        n, d = self.shape
        if self._by_row is None:
            indptr, indices, data = self._by_column or self._by_row  # type: ignore[misc]
            return transposed(indptr, indices, data, n, _index_type(d), self._n_threads)
        return _narrowed(self._by_row, _index_type(d))

    @parallel.lazy_attribute
    def by_column(self) -> Arrays:
        """The arrays (indptr, indices, data) of the transposed rows as a CSR matrix."""
        if self._by_column is None:
            return transposed(*self.by_row, self.shape[1], self._narrow_type, self._n_threads)
        return _narrowed(self._by_column, self._narrow_type)

    @parallel.lazy_attribute
    def norms(self) -> npt.NDArray[np.float64]:
        """The Euclidean norms (n,) of the rows."""
        indptr, _, data = self.by_row
        norms = parallel.unfilled(self.shape[0], np.float64)
        blocks = parallel.work_blocks(indptr, _NNZ_PER_PASS)
        parallel.run(sparse_top_k.row_norms, blocks, indptr, data, norms, n_threads=self._n_threads)
        return validation.read_only(norms)

    @property
    def nnz(self) -> int:
        """The number of non-zeros."""
        indptr = (self._by_row or self._by_column or self.by_row)[0]
        return int(indptr[-1])

    def used_columns(self) -> npt.NDArray[np.int64]:
        """Return the column numbers of all columns with a non-zero, in ascending order."""
        if self._by_row is not None:
            return np.unique(self._by_row[1]).astype(np.int64)
        indptr = self.by_column[0]
        return np.flatnonzero(indptr[1:] > indptr[:-1])

    def with_columns_only(self, columns: npt.NDArray[np.int64]) -> "SparseRows":
        """Keep only these columns, given in ascending order; all other columns must be empty."""
        by_row, by_column = None, None
        if self._by_row is not None:
            indptr, indices, data = self._by_row
            by_row = indptr, np.searchsorted(columns, indices), data
        else:
            indptr, indices, data = self.by_column
            lengths = indptr[columns + 1] - indptr[columns]
            by_column = np.concatenate([[0], np.cumsum(lengths)]), indices, data
        shape = self.shape[0], len(columns)
        return SparseRows(shape, by_row, by_column, self._n_threads, are_whole=self.are_whole)

    def columns_by_length(self) -> npt.NDArray[np.int64]:
        """Return the column numbers, ordered by ascending number of non-zeros in each column.

        If columns have more than ``_MAX_MEAN_LENGTH`` non-zeros on average, the column numbers are
        returned in their original order. All columns with at least ``_MAX_SORTED_LENGTH`` non-zeros
        count as equally long, so that the lengths fit 16 bits. NumPy sorts 16-bit numbers in linear
        time.
        """
        lengths = np.diff((self._by_column or self.by_column)[0])
        if lengths.mean() > _MAX_MEAN_LENGTH:
            return np.arange(len(lengths))
        sort_keys = np.minimum(lengths, _MAX_SORTED_LENGTH).astype(np.uint16)
        return np.argsort(sort_keys, kind="stable")

    def with_columns(self, order: npt.NDArray[np.int64]) -> "SparseRows":
        """Return the rows with int16 values, and with the columns rearranged by ``order``.

        ``order`` contains all column numbers. All values must be whole numbers that fit int16.
        """
        indptr, indices, data = self._by_column or self.by_column
        new_indptr = np.zeros_like(indptr)
        np.cumsum(np.diff(indptr)[order], out=new_indptr[1:])
        packed, new_indices, new_values = _empty_entries(
            len(indices), self._narrow_type, data is not None
        )
        blocks = parallel.work_blocks(new_indptr, _NNZ_PER_PASS)
        lists = records.Csr(*map(validation.read_only, (indptr, indices, data)))
        new_lists = records.Csr(validation.read_only(new_indptr), new_indices, new_values)
        parallel.run(
            inverted_lists.take_rows, blocks, validation.read_only(order), lists, new_lists,
            n_threads=self._n_threads,
        )  # fmt: skip
        by_column = new_indptr, new_indices, new_values
        return SparseRows(
            self.shape, None, by_column, self._n_threads, are_whole=True, packed=packed
        )

    def only(self, row_numbers: npt.NDArray[np.int64]) -> "SparseRows":
        """Return only the rows in ``row_numbers``."""
        import scipy.sparse as sp

        indptr, indices, data = self.by_row
        # ``data`` cannot always be passed to SciPy, because it may be None or an array of any type.
        # SciPy therefore selects the rows of another matrix. The values of this matrix are the
        # positions in ``data``: 0, 1, 2, and so on. The selected positions are then used to look up
        # the values in ``data``.
        entries = sp.csr_array((np.arange(len(indices)), indices, indptr), shape=self.shape)
        entries = entries[row_numbers]
        values = None if data is None else data[entries.data]
        by_row = entries.indptr.astype(np.int64), entries.indices, values
        shape = len(row_numbers), self.shape[1]
        return SparseRows(shape, by_row, None, self._n_threads, are_whole=self.are_whole)

    @property
    def _narrow_type(self) -> npt.DTypeLike:
        n = self.shape[0]
        return np.uint16 if n <= 2**16 else _index_type(n)


def without_unused_columns(*matrices: SparseRows) -> tuple[SparseRows, ...]:
    """Return the matrices without the columns that are empty in all of them, if this saves memory.

    All matrices must have the same number of columns. Inverted lists need memory for every column.
    If there are many more columns than non-zeros, most of this memory would be for empty columns.
    The scores stay bit-for-bit the same, because the remaining columns keep their order.
    """
    n_columns = matrices[0].shape[1]
    if n_columns <= sum(rows.nnz for rows in matrices):
        return matrices
    columns = np.unique(np.concatenate([rows.used_columns() for rows in matrices]))
    if not len(columns):  # all rows are zero
        columns = np.zeros(1, np.int64)
    return tuple(rows.with_columns_only(columns) for rows in matrices)


def as_sparse_rows(name: str, X: Any, measure: str, n_threads: int | None) -> SparseRows:
    """Return X as validated sparse rows.

    A CSC matrix is not converted, because its arrays can serve as ``SparseRows.by_column``. If the
    measure is cosine, rows whose squares would underflow are scaled up.
    """
    is_csc = validation.is_sparse(X) and X.ndim == 2 and X.format == "csc"
    matrix = transposed_interactions(name, X) if is_csc else as_interactions(name, X)
    validation.check_scorable(name, matrix.data[None], matrix.data[None], X.shape[1])
    arrays: Arrays = csr_arrays(matrix)
    are_whole = _are_whole(arrays[0], matrix.data, n_threads)
    if are_whole and (matrix.data[:_FIRST_VALUES] == 1).all() and (matrix.data == 1).all():
        arrays = *arrays[:2], None
    shape = matrix.shape[::-1] if is_csc else matrix.shape
    by_row, by_column = (None, arrays) if is_csc else (arrays, None)
    rows = SparseRows(shape, by_row, by_column, n_threads, are_whole=are_whole)
    if measure == "dot" or are_whole:
        return rows
    return _scaled_up(rows, n_threads)


def _are_whole(
    indptr: npt.NDArray[np.int64], data: npt.NDArray[Any], n_threads: int | None
) -> bool:
    """Return whether all values are whole numbers that fit int16."""
    first_values = data[:_FIRST_VALUES]
    if (first_values != np.rint(first_values)).any():
        return False
    are_whole = parallel.unfilled(len(indptr) - 1, np.bool_)
    blocks = parallel.work_blocks(indptr, _NNZ_PER_PASS)
    parallel.run(
        inverted_lists.find_whole_rows, blocks, indptr, validation.read_only(data), are_whole,
        n_threads=n_threads,
    )  # fmt: skip
    return bool(are_whole.all())


def _scaled_up(rows: SparseRows, n_threads: int | None) -> SparseRows:
    """Scale up each row whose squares would underflow, and return all rows."""
    indptr, indices, data = rows.by_row
    small_rows = safe_norms.find_small(rows.norms)
    if data is None or data.dtype != np.float64 or not len(small_rows):
        return rows
    row_of_entry = np.repeat(np.arange(rows.shape[0]), np.diff(indptr))
    is_small = np.isin(row_of_entry, small_rows)
    largest = np.zeros(rows.shape[0])
    np.maximum.at(largest, row_of_entry[is_small], np.abs(data[is_small]))
    if not largest.any():
        return rows
    exponents = safe_norms.exponents_for(largest)
    scaled_values = np.ldexp(data, exponents[row_of_entry])
    by_row = indptr, indices, scaled_values
    return SparseRows(rows.shape, by_row, None, n_threads, are_whole=False)


def _empty_entries(
    nnz: int, index_type: npt.DTypeLike, with_values: bool
) -> tuple[npt.NDArray[np.int32] | None, npt.NDArray[Any], npt.NDArray[np.int16] | None]:
    """Return three new arrays for inverted lists: the packed entries, the items and the values.

    There are packed entries only if ``with_values`` is True and the item numbers have 16 bits. Each
    packed entry has 32 bits: one half is the item number, and the other half is the value. The
    arrays of items and values are then views of these halves. If there are no packed entries, the
    first of the three arrays is None. ``with_values`` is False if all values are 1. In this case,
    the returned array of values is None.
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
    narrow_indices = indices.astype(index_type, copy=False)
    new_arrays = indptr, narrow_indices, data
    return tuple(map(validation.read_only, new_arrays))  # type: ignore[return-value]

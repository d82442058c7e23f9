"""Validation and transposition of CSR arrays, each in one pass over the non-zeros."""

import numpy as np

from .jit import kernel

# The results of check_rows: VALID, and then the defects, from the worst to the least severe.
VALID, OUT_OF_RANGE, NOT_FINITE, NOT_CANONICAL, EXPLICIT_ZERO = 0, 1, 2, 3, 4
# The number of rows that are validated together. If a group of _ROWS_AT_ONCE rows has a defect, the
# rows of the group are validated one by one.
_ROWS_AT_ONCE = 256


@kernel
def check_rows(lo, hi, X, views, n_columns, findings):
    """For each row of X from lo to hi, write the worst defect of the row to `findings` (n,) uint8.

    A finding is one of the constants of this module: VALID, OUT_OF_RANGE, NOT_FINITE, NOT_CANONICAL
    or EXPLICIT_ZERO. `X` is a Csr whose indptr has already been validated, and `views` holds the
    BitViews of X. The kernel takes O(nnz) time.
    """
    for first in range(lo, hi, _ROWS_AT_ONCE):
        last = min(hi, first + _ROWS_AT_ONCE)
        if _all_valid(first, last, X, views, n_columns):
            findings[first:last] = VALID
        else:
            _check_each_row(first, last, X, n_columns, findings)


@kernel
def _all_valid(lo, hi, X, views, n_columns):
    """Return whether all rows from lo to hi are free of defects.

    Two vectorised loops check that the values are valid and that the indices ascend. The first and
    the last index of each row are compared with the number of columns.
    """
    indptr, indices, columns, bits = X.indptr, X.indices, views.columns, views.values
    magnitude, infinity = views.magnitude, views.infinity
    start, stop = indptr[lo], indptr[hi]
    if start == stop:
        return True
    # The loops run over slices, because Numba would otherwise test whether each index is negative.
    bits, columns, indices = bits[start:stop], columns[start:stop], indices[start:stop]
    # The bits of each value, without the sign bit, are read as an integer and compared with the
    # bits of infinity. A value is infinite or NaN if its integer is at least as large as the
    # integer of infinity. 1 is subtracted from both integers before they are compared, so that the
    # comparison also detects explicit zeros. For an explicit zero, the subtraction wraps around to
    # the largest integer.
    one = bits.dtype.type(1)
    largest = bits.dtype.type(0)
    for t in range(stop - start):
        largest = max(largest, bits.dtype.type((bits[t] & magnitude) - one))
    if largest >= bits.dtype.type(infinity - one):
        return False
    descents = 0
    for t in range(1, stop - start):
        descents += indices[t] <= indices[t - 1]
    for i in range(lo, hi):
        first, last = indptr[i] - start, indptr[i + 1] - start
        if first < last:
            # If the column numbers of a row ascend, only the first and the last of them can be out
            # of range. A negative column number, read as an unsigned number, is larger than
            # n_columns.
            if columns[first] >= n_columns or columns[last - 1] >= n_columns:
                return False
            # The column numbers may decrease where a new row begins.
            if first > 0:
                descents -= indices[first] <= indices[first - 1]
    return descents == 0


@kernel
def are_within(start, stop, columns, n_columns):
    """Return whether columns[start:stop] holds only numbers below n_columns, in any order.

    `columns` holds the column indices of a matrix as unsigned integers, as in BitViews.
    """
    columns = columns[start:stop]
    widest = columns.dtype.type(0)
    for t in range(stop - start):
        widest = max(widest, columns[t])
    return widest < n_columns


@kernel
def _check_each_row(lo, hi, X, n_columns, findings):
    """Validate rows lo to hi one by one, and write the findings that check_rows describes."""
    indptr, indices, data = X.indptr, X.indices, X.data
    for i in range(lo, hi):
        outside, broken, unsorted, zero = False, False, False, False
        previous = np.int64(-1)
        for t in range(indptr[i], indptr[i + 1]):
            column = np.int64(indices[t])
            outside |= column < 0 or column >= n_columns
            unsorted |= column <= previous
            previous = column
            broken |= not np.isfinite(data[t])
            zero |= data[t] == 0
        if outside:
            findings[i] = OUT_OF_RANGE
        elif broken:
            findings[i] = NOT_FINITE
        elif unsorted:
            findings[i] = NOT_CANONICAL
        elif zero:
            findings[i] = EXPLICIT_ZERO
        else:
            findings[i] = VALID


@kernel
def count_columns(lo, hi, boundaries, indptr, indices, counts):
    """Set counts[part, j] to the number of non-zeros of column j in each of the parts lo to hi.

    `boundaries` (parts + 1,) int64 holds the row at which each part begins; `indptr` (n + 1,) is
    int64 and `indices` (nnz,) is int. `counts` (parts, p) int64 is the output.
    """
    for part in range(lo, hi):
        part_counts = counts[part]
        part_counts[:] = 0
        # The indices are unsigned, because Numba would otherwise test whether each index is
        # negative.
        for column in indices[indptr[boundaries[part]] : indptr[boundaries[part + 1]]]:
            part_counts[np.uint64(column)] += 1


@kernel
def transpose_parts(lo, hi, boundaries, X, positions, rows, values):
    """Write the entries of parts lo to hi of a CSR matrix to their positions in its transpose.

    `X` is a Csr, and `boundaries` (parts + 1,) int64 holds the row at which each part begins.
    `positions` (parts, p) is int64. In the transpose, the entries of column j that come from part q
    are contiguous, and positions[q, j] is the position of the first of them. The kernel overwrites
    `positions`. The row numbers and the values of the entries are written to `rows` (nnz,) and
    `values` (nnz,), and row numbers ascend within a column. `values` is None if the data of X is
    None.
    """
    _transpose_arrays(lo, hi, boundaries, X.indptr, X.indices, X.data, positions, rows, values)


@kernel
def _transpose_arrays(lo, hi, boundaries, indptr, indices, data, positions, rows, values):
    """Compute the same result as transpose_parts, but take each array as a separate argument.

    The arrays are separate arguments for the following reason. If `data` is an argument with the
    value None, Numba leaves out the code that reads `data`. If `data` were a field of a record,
    Numba would compile the code that reads `data` even if the field were None.
    """
    for part in range(lo, hi):
        next_of = positions[part]
        for i in range(boundaries[part], boundaries[part + 1]):
            for t in range(indptr[i], indptr[i + 1]):
                column = np.uint64(indices[t])
                position = np.uint64(next_of[column])
                next_of[column] += 1
                rows[position] = i
                if data is not None:
                    values[position] = data[t]

"""Checks of CSR arrays, in one pass over the non-zeros."""

import numpy as np

from .jit import kernel

FINE, OUT_OF_RANGE, NOT_FINITE, NOT_CANONICAL, EXPLICIT_ZERO = 0, 1, 2, 3, 4


# rows looked at together before one by one
_ROWS_AT_ONCE = 256


@kernel
def check_rows(
    lo, hi, indptr, indices, data, columns, bits, magnitude, infinity, n_columns, findings
):
    """Write the worst finding of every row; FINE < the others, errors before repairs.

    indptr (n + 1,) int64, already known to rise within the arrays; indices (nnz,) int and data
    (nnz,) float, and both again as unsigned integers of their size: columns, bits, where magnitude
    masks the sign off and infinity is the pattern of +inf; findings (n,) uint8, out. A row that has
    an error reports the error even if it could also be repaired. O(nnz).
    """
    for first in range(lo, hi, _ROWS_AT_ONCE):
        last = min(hi, first + _ROWS_AT_ONCE)
        if _all_fine(first, last, indptr, indices, columns, bits, magnitude, infinity, n_columns):
            findings[first:last] = FINE
        else:
            _check_each_row(first, last, indptr, indices, data, n_columns, findings)


@kernel
def _all_fine(lo, hi, indptr, indices, columns, bits, magnitude, infinity, n_columns):
    """Whether no row has a finding, by two loops that vectorise and a look at the ends of rows."""
    start, stop = indptr[lo], indptr[hi]
    if start == stop:
        return True
    # slices, for numba lets an index that could be negative count from the end, entry by entry
    bits, columns, indices = bits[start:stop], columns[start:stop], indices[start:stop]
    # without its sign, a pattern from infinity on is not finite; less one, 0 is the largest
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
            # a row that rises lies between its ends; as unsigned, a negative column is too large
            if columns[first] >= n_columns or columns[last - 1] >= n_columns:
                return False
            # from the last of one row to the first of the next it may fall
            if first > 0:
                descents -= indices[first] <= indices[first - 1]
    return descents == 0


@kernel
def are_within(start, stop, columns, n_columns):
    """Whether entries start .. stop have an index within n_columns, in whatever order they come.

    columns as in check_rows.
    """
    # a slice, for numba lets an index that could be negative count from the end, entry by entry
    columns = columns[start:stop]
    widest = columns.dtype.type(0)
    for t in range(stop - start):
        widest = max(widest, columns[t])
    return widest < n_columns


@kernel
def _check_each_row(lo, hi, indptr, indices, data, n_columns, findings):
    """Do what check_rows does, row by row."""
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
            findings[i] = FINE

"""Validation and transposition of CSR arrays, each in one pass over the non-zeros."""

import numpy as np

from .jit import kernel

# The results of check_rows: VALID, then the defects from the worst to the least.
VALID, OUT_OF_RANGE, NOT_FINITE, NOT_CANONICAL, EXPLICIT_ZERO = 0, 1, 2, 3, 4
# The number of rows that are validated together. They are validated one by one only if that fails.
_ROWS_AT_ONCE = 256


@kernel
def check_rows(lo, hi, X, views, n_columns, findings):
    """Write the worst defect of every row; errors are worse than defects that can be repaired.

    X: Csr, whose indptr is already validated; views: BitViews of X; findings (n,) uint8, out.
    O(nnz).
    """
    for first in range(lo, hi, _ROWS_AT_ONCE):
        last = min(hi, first + _ROWS_AT_ONCE)
        if _all_valid(first, last, X, views, n_columns):
            findings[first:last] = VALID
        else:
            _check_each_row(first, last, X, n_columns, findings)


@kernel
def _all_valid(lo, hi, X, views, n_columns):
    """Return whether no row has a defect, by two vectorised loops and a check of row ends."""
    indptr, indices, columns, bits = X.indptr, X.indices, views.columns, views.values
    magnitude, infinity = views.magnitude, views.infinity
    start, stop = indptr[lo], indptr[hi]
    if start == stop:
        return True
    # Slices, because Numba would test every index for wraparound of negative values otherwise.
    bits, columns, indices = bits[start:stop], columns[start:stop], indices[start:stop]
    # Without its sign, a number that is not finite has at least the bits of infinity. 0 - 1 wraps
    # to the largest integer, so that an explicit zero fails, too.
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
            # Columns of an ascending row lie between its ends. As unsigned numbers, negative ones
            # are too large.
            if columns[first] >= n_columns or columns[last - 1] >= n_columns:
                return False
            # Columns may decrease from one row to the next.
            if first > 0:
                descents -= indices[first] <= indices[first - 1]
    return descents == 0


@kernel
def are_within(start, stop, columns, n_columns):
    """Return whether entries start .. stop are indices below n_columns, in any order.

    columns as in BitViews.
    """
    columns = columns[start:stop]
    widest = columns.dtype.type(0)
    for t in range(stop - start):
        widest = max(widest, columns[t])
    return widest < n_columns


@kernel
def _check_each_row(lo, hi, X, n_columns, findings):
    """Compute check_rows, row by row."""
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
    """counts[part, j] = number of non-zeros of column j in the rows of a part, parts lo .. hi.

    boundaries (parts + 1,) int64 rows; indptr (n + 1,) int64; indices (nnz,) int; counts (parts, p)
    int64, out.
    """
    for part in range(lo, hi):
        own = counts[part]
        own[:] = 0
        # Unsigned, because Numba would test indices for wraparound of negative values otherwise.
        for column in indices[indptr[boundaries[part]] : indptr[boundaries[part + 1]]]:
            own[np.uint64(column)] += 1


@kernel
def transpose_parts(lo, hi, boundaries, X, positions, rows, values):
    """Write the entries of parts lo .. hi to their positions in the transpose.

    positions (parts, p) int64: where the entries of column j from this part start; overwritten.
    X: Csr; its data and values (nnz,), or both None; rows, values (nnz,) out, rows ascending in
    every column.
    """
    _transpose_arrays(lo, hi, boundaries, X.indptr, X.indices, X.data, positions, rows, values)


@kernel
def _transpose_arrays(lo, hi, boundaries, indptr, indices, data, positions, rows, values):
    """Do as transpose_parts; arguments may be None where members of a record may not."""
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

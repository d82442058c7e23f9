"""Products of a CSR matrix X with dense matrices: X A, X'Y and X'X Q, and column moments.

Every product has two bodies with the same bits: panels of 64, 32, 16, 4 and 1 columns in registers
(``gather``), and a plain loop, the truth of the tests. A value times a number is added with one
rounding, in the order of a row's non-zeros. data is None where all values are 1.
"""

import numpy as np

from . import csr, csr_row_sums
from .jit import kernel
from .multiply_add import multiply_add
from .prefetch import prefetch

WIDTHS = (64, 32, 16, 4, 1)
_gather_64, _gather_32, _gather_16, _gather_4, _gather_1 = map(csr_row_sums.gather_row, WIDTHS)
_stream_64 = csr_row_sums.gather_row(64, is_streamed=True)
_scatter_64, _scatter_32, _scatter_16, _scatter_4, _scatter_1 = map(
    csr_row_sums.scatter_row, WIDTHS
)
_gram_64, _gram_32, _gram_16, _gram_4, _gram_1 = map(csr_row_sums.gram_row, WIDTHS)
# entries whose indices are looked at together: 32 KiB with values of float32
_ENTRIES_AT_ONCE = 4096
_ROWS_AT_ONCE = 8
_LINE_OF_ENTRIES = 16


@kernel
def matmul_rows(lo, hi, indptr, indices, data, A, Y, is_streamed):
    """Y[i] = X[i] A for rows lo .. hi.

    indptr (n + 1,) int64; indices (nnz,) int; data (nnz,) float or None; A (p, l) float, C order;
    Y (n, l) of A's type, out. O(nnz l) time. An empty row gives zeros. is_streamed: whether Y is
    written past the caches; l is then a multiple of 64, and Y starts at a cache line.
    """
    _multiply(lo, hi, indptr, indices, data, A, Y, is_streamed)
    if is_streamed:
        csr_row_sums.fence()


@kernel
def _multiply(lo, hi, indptr, indices, data, A, Y, is_streamed):
    """Do what matmul_rows does; whether a column of every row came out finite."""
    width = A.shape[1]
    are_finite = True
    for i in range(lo, hi):
        first, last = indptr[i], indptr[i + 1]
        column, total = 0, A.dtype.type(0)
        while column + 64 <= width:
            if is_streamed:
                total = _stream_64(data, indices, first, last, A, column, Y, i, column)
            else:
                total = _gather_64(data, indices, first, last, A, column, Y, i, column)
            column += 64
        while column + 32 <= width:
            total = _gather_32(data, indices, first, last, A, column, Y, i, column)
            column += 32
        while column + 16 <= width:
            total = _gather_16(data, indices, first, last, A, column, Y, i, column)
            column += 16
        while column + 4 <= width:
            total = _gather_4(data, indices, first, last, A, column, Y, i, column)
            column += 4
        while column < width:
            total = _gather_1(data, indices, first, last, A, column, Y, i, column)
            column += 1
        are_finite &= np.isfinite(total)
    return are_finite


@kernel
def matmul_unread_rows(lo, hi, indptr, indices, data, columns, A, Y, is_streamed, is_left):
    """Do what matmul_rows does, for entries that nobody has checked; leave rows that cannot be.

    X is read from memory once: some thousand indices are checked and then multiplied, while the
    next ones are on their way. A value that is not finite makes every sum of its row so, whatever A
    it meets. columns: indices as unsigned integers; A is finite; is_left (n,) bool, out: whether
    row i is not to be used, for it or a row near it has an index out of range, or a sum that is not
    finite. The others as in matmul_rows; data is an array.
    """
    first = lo
    while first < hi:
        last = first + 1
        while last < hi and indptr[last] - indptr[first] < _ENTRIES_AT_ONCE:
            last += 1
        is_left[first:last] = not (
            csr.are_within(indptr[first], indptr[last], columns, A.shape[0])
            and _multiply_ahead(first, last, indptr, indices, data, A, Y, is_streamed)
        )
        first = last
    if is_streamed:
        csr_row_sums.fence()


@kernel
def _multiply_ahead(first, last, indptr, indices, data, A, Y, is_streamed):
    """Multiply a few rows at a time and ask for as many of the next entries."""
    are_finite = True
    for i in range(first, last, _ROWS_AT_ONCE):
        end = min(i + _ROWS_AT_ONCE, last)
        for t in range(
            indptr[i] + _ENTRIES_AT_ONCE, indptr[end] + _ENTRIES_AT_ONCE, _LINE_OF_ENTRIES
        ):
            prefetch(indices, t)
            prefetch(data, t)
        are_finite &= _multiply(i, end, indptr, indices, data, A, Y, is_streamed)
    return are_finite


@kernel
def _plus(total, data, t, factor):
    """Total plus value number t times factor, rounded once."""
    return total + factor if data is None else multiply_add(data[t], factor, total)


@kernel
def matmul_rows_plain(lo, hi, indptr, indices, data, A, Y, is_streamed):
    """Do what matmul_rows does, without vector IR."""
    for i in range(lo, hi):
        for c in range(A.shape[1]):
            Y[i, c] = 0
        for t in range(indptr[i], indptr[i + 1]):
            j = indices[t]
            for c in range(A.shape[1]):
                Y[i, c] = _plus(Y[i, c], data, t, A[j, c])


@kernel
def rmatmul_parts(lo, hi, cuts, indptr, indices, data, Y, y_column, begun, Z):
    """Z[part] = X[rows of part]' Y[rows of part, y_column : y_column + w] for parts lo .. hi.

    cuts (parts + 1,) int64 rows; Y (n, l) float, C order; begun: whether Z[part] holds a sum that
    this one is added to; Z (parts, p, w) of Y's type, out. O(nnz w) time. The rows of a part are
    added in order.
    """
    width = Z.shape[2]
    for part in range(lo, hi):
        target = Z[part]
        if not begun:
            target[:] = 0
        for i in range(cuts[part], cuts[part + 1]):
            first, last = indptr[i], indptr[i + 1]
            column = 0
            while column + 64 <= width:
                _scatter_64(data, indices, first, last, Y, i, y_column + column, target, column)
                column += 64
            while column + 32 <= width:
                _scatter_32(data, indices, first, last, Y, i, y_column + column, target, column)
                column += 32
            while column + 16 <= width:
                _scatter_16(data, indices, first, last, Y, i, y_column + column, target, column)
                column += 16
            while column + 4 <= width:
                _scatter_4(data, indices, first, last, Y, i, y_column + column, target, column)
                column += 4
            while column < width:
                _scatter_1(data, indices, first, last, Y, i, y_column + column, target, column)
                column += 1


@kernel
def rmatmul_parts_plain(lo, hi, cuts, indptr, indices, data, Y, y_column, begun, Z):
    """Do what rmatmul_parts does, without vector IR."""
    for part in range(lo, hi):
        if not begun:
            Z[part] = 0
        for i in range(cuts[part], cuts[part + 1]):
            for t in range(indptr[i], indptr[i + 1]):
                j = indices[t]
                for c in range(Z.shape[2]):
                    Z[part, j, c] = _plus(Z[part, j, c], data, t, Y[i, y_column + c])


@kernel
def gram_parts(lo, hi, cuts, indptr, indices, data, Q, q_column, begun, Z):
    """Z[part] = X[rows]'(X[rows] Q[:, q_column : q_column + w]) for the rows of parts lo .. hi.

    cuts (parts + 1,) int64 rows; Q (p, l) float, C order; begun: whether Z[part] holds a sum that
    this one is added to; Z (parts, p, w) of Q's type, out. X Q is never stored: a row's product
    stays in registers. O(nnz w) time.
    """
    width = Z.shape[2]
    for part in range(lo, hi):
        target = Z[part]
        if not begun:
            target[:] = 0
        for i in range(cuts[part], cuts[part + 1]):
            first, last = indptr[i], indptr[i + 1]
            column = 0
            while column + 64 <= width:
                _gram_64(data, indices, first, last, Q, q_column + column, target, column)
                column += 64
            while column + 32 <= width:
                _gram_32(data, indices, first, last, Q, q_column + column, target, column)
                column += 32
            while column + 16 <= width:
                _gram_16(data, indices, first, last, Q, q_column + column, target, column)
                column += 16
            while column + 4 <= width:
                _gram_4(data, indices, first, last, Q, q_column + column, target, column)
                column += 4
            while column < width:
                _gram_1(data, indices, first, last, Q, q_column + column, target, column)
                column += 1


@kernel
def gram_parts_plain(lo, hi, cuts, indptr, indices, data, Q, q_column, begun, Z):
    """Do what gram_parts does, without vector IR."""
    row = Q[0].copy()
    for part in range(lo, hi):
        if not begun:
            Z[part] = 0
        for i in range(cuts[part], cuts[part + 1]):
            for c in range(Z.shape[2]):
                row[c] = 0
            for t in range(indptr[i], indptr[i + 1]):
                j = indices[t]
                for c in range(Z.shape[2]):
                    row[c] = _plus(row[c], data, t, Q[j, q_column + c])
            for t in range(indptr[i], indptr[i + 1]):
                j = indices[t]
                for c in range(Z.shape[2]):
                    Z[part, j, c] = _plus(Z[part, j, c], data, t, row[c])


@kernel
def add_parts(lo, hi, Z, column, out):
    """out[j, column : column + w] += Z[0, j], then Z[1, j] and so on, for rows j in lo .. hi.

    Z (parts, p, w); out (p, l), in and out. O((hi - lo) parts w) time.
    """
    for j in range(lo, hi):
        for part in range(Z.shape[0]):
            for c in range(Z.shape[2]):
                out[j, column + c] += Z[part, j, c]

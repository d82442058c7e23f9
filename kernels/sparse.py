"""Products of a CSR matrix X with dense matrices: X A, X'Y and X'X Q.

The columns of the dense matrix are processed in panels of 64, 32, 16, 8, 4 or 1 columns. The sums
of one row of a panel stay in registers (``simd.sparse_row``), and rows of a large dense matrix are
prefetched. Products are added in the order of the non-zeros of a row by fused multiply-adds, which
round only once. Results are therefore bit-for-bit identical to the results of the plain loops
(``*_plain``), which run on CPUs for which there is no vector code. If all values of X are 1, the
field ``data`` of X is None.
"""

import numpy as np

from . import csr
from .jit import kernel
from .simd.arithmetic import multiply_add
from .simd.memory import prefetch
from .simd.sparse_row import AHEAD, fence, gram_row, scatter_row, sum_row

# The number of non-zeros that are validated before they are multiplied. With float32 values, 4,096
# non-zeros take 32 KiB and stay in the first-level cache.
_VALIDATED_AT_ONCE = 4096
# The rows of a dense matrix are prefetched if the matrix has more than this number of bytes. A
# matrix of at most this size stays in the first-level or second-level cache, so prefetching would
# take more time than it saves. The limit is lower for rows that are changed than for rows that are
# only read, because the CPU waits longer for changed rows (docs/dev/costs.md, "Sparse products").
_LARGE_IF_READ = 1 << 20
_LARGE_IF_CHANGED = 1 << 18
# The number of rows that are multiplied between two rounds of prefetches.
_ROWS_AT_ONCE = 8
# The number of non-zeros per prefetch, which is the number of int32 indices in a cache line.
_LINE = 16


@kernel
def matmul_rows(lo, hi, X, A, Y, is_streamed):
    """Set Y[i] to the product X[i] A of a sparse row and a dense matrix, for rows lo to hi.

    `X` is a Csr (n, p), and `A` is a float array (p, l) in C order. The result is written to `Y`
    (n, l), which has the type of A. If row i of X is empty, Y[i] is a row of zeros. The kernel
    takes O(nnz l) time. If is_streamed is true, `Y` bypasses the caches on its way to memory; l
    must then be a multiple of 64, and `Y` must begin at a cache line.
    """
    _multiply(lo, hi, X, A, Y, is_streamed)
    if is_streamed:
        fence()


@kernel
def _multiply(lo, hi, X, A, Y, is_streamed):
    """Multiply like matmul_rows, but omit the fence; return whether all rows of Y seem finite.

    For each row of Y, the kernel tests whether one entry is finite. The tested entry lies in the
    last panel of columns. It is enough to test one entry per row, because a non-finite value in row
    i of X makes every entry of Y[i] non-finite.
    """
    indptr, indices, data = X.indptr, X.indices, X.data
    ahead = _prefetched(indices, A.shape[0] * A.shape[1] * A.itemsize > _LARGE_IF_READ)
    are_finite = True
    for i in range(lo, hi):
        first, last = indptr[i], indptr[i + 1]
        total = sum_row(data, indices, first, last, A, Y, i, is_streamed, last <= ahead)
        are_finite &= np.isfinite(total)
    return are_finite


@kernel
def validated_matmul_rows(lo, hi, X, columns, A, Y, is_streamed, is_rejected):
    """Set Y[i] to X[i] A as matmul_rows does, and validate X in the same pass over memory.

    The kernel alternates between two steps: it validates a few thousand indices, and then
    multiplies the corresponding values. During the multiplication, it prefetches the next indices
    and values. A value of X that is not finite makes every sum of its row non-finite, even if the
    value is multiplied by 0. `columns` holds the indices of X, viewed as unsigned integers. `A`
    must be finite, and the values of X must be an array, not None. The output `is_rejected` (n,)
    bool is true for each row i for which Y[i] is not valid. The rows of a group are validated
    together. If one row of the group has an index out of range or a sum that is not finite, all
    rows of the group are rejected.
    """
    indptr = X.indptr
    first = lo
    while first < hi:
        last = first + 1
        while last < hi and indptr[last] - indptr[first] < _VALIDATED_AT_ONCE:
            last += 1
        is_rejected[first:last] = not (
            csr.are_within(indptr[first], indptr[last], columns, A.shape[0])
            and _multiply_ahead(first, last, X, A, Y, is_streamed)
        )
        first = last
    if is_streamed:
        fence()


@kernel
def _multiply_ahead(first, last, X, A, Y, is_streamed):
    """Multiply rows `first` to `last` like _multiply, but also prefetch non-zeros of later rows.

    The rows are multiplied in groups of _ROWS_AT_ONCE rows. Before the kernel multiplies the
    non-zeros of a group, it prefetches the non-zeros that lie _VALIDATED_AT_ONCE positions after
    them.
    """
    indptr, indices, data = X.indptr, X.indices, X.data
    are_finite = True
    for i in range(first, last, _ROWS_AT_ONCE):
        end = min(i + _ROWS_AT_ONCE, last)
        for t in range(indptr[i] + _VALIDATED_AT_ONCE, indptr[end] + _VALIDATED_AT_ONCE, _LINE):
            prefetch(indices, t)
            prefetch(data, t)
        are_finite &= _multiply(i, end, X, A, Y, is_streamed)
    return are_finite


@kernel
def _prefetched(indices, is_large):
    """Return a position p: a row is multiplied with prefetches if it ends at or before p.

    Prefetches are used only if `is_large` is true, that is, if the dense matrix is large. A row is
    multiplied with prefetches only if at least AHEAD non-zeros follow it.
    """
    return len(indices) - AHEAD if is_large else -1


@kernel
def _plus(total, data, t, factor):
    """Return total + data[t] * factor, rounded once; data[t] counts as 1 if `data` is None."""
    return total + factor if data is None else multiply_add(data[t], factor, total)


@kernel
def matmul_rows_plain(lo, hi, X, A, Y, is_streamed):
    """Compute the same result as matmul_rows with plain loops instead of vector code."""
    indptr, indices, data = X.indptr, X.indices, X.data
    for i in range(lo, hi):
        for c in range(A.shape[1]):
            Y[i, c] = 0
        for t in range(indptr[i], indptr[i + 1]):
            j = indices[t]
            for c in range(A.shape[1]):
                Y[i, c] = _plus(Y[i, c], data, t, A[j, c])


@kernel
def rmatmul_parts(lo, hi, boundaries, X, Y, columns, accumulate, Z):
    """For each task, set Z[task] to X'Y, restricted to a part of the rows and a group of columns.

    The kernel performs the tasks lo to hi. `X` is a Csr, `boundaries` (parts + 1,) int64 holds the
    row at which each part begins, and `Y` (n, l) is a float array in C order. `columns` (groups +
    1,) int64 holds the column of Y at which each group of columns begins. Task t multiplies part t
    // groups of the rows by group t % groups of the columns. The result is written to the first
    columns of Z[task]. `Z` (tasks, p, w) has the type of Y, and w is at least the number of columns
    of every group. If `accumulate` is true, the result is added to Z[task]; otherwise, it replaces
    Z[task]. Within a part, the products of the rows are added in the order of the rows. The result
    therefore does not depend on how the columns are divided into groups. The kernel takes O(nnz w)
    time.
    """
    indptr, indices, data = X.indptr, X.indices, X.data
    for task in range(lo, hi):
        part, first_column, width = _part_and_columns(task, columns)
        target = Z[task]
        if not accumulate:
            target[:] = 0
        ahead = _prefetched(indices, target.size * target.itemsize > _LARGE_IF_CHANGED)
        for i in range(boundaries[part], boundaries[part + 1]):
            first, last = indptr[i], indptr[i + 1]
            scatter_row(
                data, indices, first, last, Y, i, first_column, target, width, last <= ahead
            )


@kernel
def rmatmul_parts_plain(lo, hi, boundaries, X, Y, columns, accumulate, Z):
    """Compute the same result as rmatmul_parts with plain loops instead of vector code."""
    indptr, indices, data = X.indptr, X.indices, X.data
    for task in range(lo, hi):
        part, first_column, width = _part_and_columns(task, columns)
        if not accumulate:
            Z[task] = 0
        for i in range(boundaries[part], boundaries[part + 1]):
            for t in range(indptr[i], indptr[i + 1]):
                j = indices[t]
                for c in range(width):
                    Z[task, j, c] = _plus(Z[task, j, c], data, t, Y[i, first_column + c])


@kernel
def gram_parts(lo, hi, boundaries, X, Q, columns, accumulate, Z):
    """For each task, set Z[task] to X'X Q for some rows of X and a group of columns of Q.

    The kernel performs the tasks lo to hi. `Q` (p, l) is a float array in C order. The other
    arguments, the tasks and the output are described in rmatmul_parts. X Q is never stored in
    memory, because the product of a row and Q stays in registers. The kernel takes O(nnz w) time.
    """
    indptr, indices, data = X.indptr, X.indices, X.data
    for task in range(lo, hi):
        part, first_column, width = _part_and_columns(task, columns)
        target = Z[task]
        if not accumulate:
            target[:] = 0
        ahead = _prefetched(indices, target.size * target.itemsize > _LARGE_IF_CHANGED)
        for i in range(boundaries[part], boundaries[part + 1]):
            first, last = indptr[i], indptr[i + 1]
            gram_row(data, indices, first, last, Q, first_column, target, width, last <= ahead)


@kernel
def gram_parts_plain(lo, hi, boundaries, X, Q, columns, accumulate, Z):
    """Compute the same result as gram_parts with plain loops instead of vector code."""
    indptr, indices, data = X.indptr, X.indices, X.data
    row = Q[0].copy()
    for task in range(lo, hi):
        part, first_column, width = _part_and_columns(task, columns)
        if not accumulate:
            Z[task] = 0
        for i in range(boundaries[part], boundaries[part + 1]):
            for c in range(width):
                row[c] = 0
            for t in range(indptr[i], indptr[i + 1]):
                j = indices[t]
                for c in range(width):
                    row[c] = _plus(row[c], data, t, Q[j, first_column + c])
            for t in range(indptr[i], indptr[i + 1]):
                j = indices[t]
                for c in range(width):
                    Z[task, j, c] = _plus(Z[task, j, c], data, t, row[c])


@kernel
def _part_and_columns(task, columns):
    """Return the part of a task, and the first column and the width of its column group."""
    groups = len(columns) - 1
    group = task % groups
    return task // groups, columns[group], columns[group + 1] - columns[group]


@kernel
def join_columns(lo, hi, Z, columns, out):
    """Join column groups: copy the first entries of Z[g, j] to out[j, columns[g] : columns[g + 1]].

    The kernel processes all groups g and the rows j from lo to hi. `Z` has the shape (groups, p,
    w), and `out` has the shape (p, l). The kernel takes O((hi - lo) l) time.
    """
    for j in range(lo, hi):
        for g in range(Z.shape[0]):
            for c in range(columns[g], columns[g + 1]):
                out[j, c] = Z[g, j, c - columns[g]]


@kernel
def add_parts(lo, hi, Z, column, out):
    """Add Z[0, j], Z[1, j], ..., in this order, to out[j, column : column + w].

    The kernel processes the rows j from lo to hi. `Z` has the shape (parts, p, w), and `out` (p, l)
    is changed in place. The kernel takes O((hi - lo) parts w) time.
    """
    for j in range(lo, hi):
        for part in range(Z.shape[0]):
            for c in range(Z.shape[2]):
                out[j, column + c] += Z[part, j, c]

"""The products X A and X'(X Q), by blocks of rows of X, for dense factors that exceed the cache.

X_b is a block of rows of X. The product Y_b = X_b Q of a block stays in the second-level cache. If
the rows of X are long, the columns of X are divided into ranges, and Y_b is summed over one range
after another. The rows of Q that belong to one range then also stay in the second-level cache. The
rows of X_b'Y_b are computed one by one, from the transpose of the block. Z = X'(X Q) is read and
written sequentially, once per block. The row-wise algorithm (``sparse``), in contrast, updates
random rows of Z, one per non-zero. For 18 million non-zeros in 27,000 columns with Zipfian
frequencies, computing X'(X Q) by blocks is twice as fast as computing it row by row.

Products are added in the same order as in the row-wise algorithm, so the results of both algorithms
are bit-for-bit identical. The dense factor is passed in panels of 64, 32 or 16 columns; a panel
with any other number of columns is padded. If all values of X are 1, the field ``data`` of X is
None.
"""

from typing import Any, NamedTuple

import numpy as np

from .jit import kernel
from .simd.sparse_row import bounded_row_sum
from .tiles import aligned_empty

# The possible numbers of columns of a panel.
WIDTHS = (64, 32, 16)
# The number of rows of a block. The product of a block and a panel of 64 float32 columns or of 32
# float64 columns takes 512 KiB and fits in a second-level cache.
ROWS = 2048

_add_64, _add_32, _add_16 = map(bounded_row_sum, WIDTHS)


class Transposes(NamedTuple):
    """A CSR matrix with p columns, divided into transposed blocks of up to ROWS rows.

    `boundaries` (blocks + 1,) int64 holds the row at which each block begins. `starts` (blocks, p +
    1) int32 holds the position of the first entry of each column, counted from the first non-zero
    of the block. `rows` (nnz,) uint16 holds the row of each entry, counted from the first row of
    the block. `values` (nnz,) holds the values of the entries, or is None if all values are 1.
    """

    boundaries: Any
    starts: Any
    rows: Any
    values: Any


@kernel
def transpose_blocks(lo, hi, X, transposes):
    """Write the transposes of blocks lo to hi of X; row numbers ascend within each column.

    `X` is a Csr. `transposes` is a Transposes, whose boundaries are an input and whose other arrays
    are outputs. The kernel takes O(nnz + (hi - lo) p) time and allocates O(p) memory.
    """
    _transpose_arrays(
        lo, hi, X.indptr, X.indices, X.data, transposes.boundaries, transposes.starts,
        transposes.rows, transposes.values,
    )  # fmt: skip


@kernel
def _transpose_arrays(lo, hi, indptr, indices, data, boundaries, starts, rows, values):
    """Compute the same result as transpose_blocks, but take each array as a separate argument.

    The arrays are separate arguments for the following reason. If `data` is an argument with the
    value None, Numba leaves out the code that reads `data`. If `data` were a field of a record,
    Numba would compile the code that reads `data` even for records in which `data` is None.
    """
    places = np.empty(starts.shape[1], np.int32)
    for block in range(lo, hi):
        start, base = starts[block], indptr[boundaries[block]]
        start[:] = 0
        for t in range(base, indptr[boundaries[block + 1]]):
            start[indices[t] + 1] += 1
        for j in range(1, start.shape[0]):
            start[j] += start[j - 1]
        for j in range(start.shape[0]):
            places[j] = start[j]
        for i in range(boundaries[block], boundaries[block + 1]):
            for t in range(indptr[i], indptr[i + 1]):
                place = places[indices[t]]
                places[indices[t]] = place + 1
                rows[base + place] = i - boundaries[block]
                if data is not None:
                    values[base + place] = data[t]


@kernel
def _add_row(data, indices, first, last, A, Y, row, bound):
    """Add the product of one row of X and the matrix A to Y[row], as ``bounded_row_sum`` does.

    `A` has 64, 32 or 16 columns.
    """
    width = A.shape[1]
    if width == 64:
        return _add_64(data, indices, first, last, A, Y, row, bound)
    if width == 32:
        return _add_32(data, indices, first, last, A, Y, row, bound)
    return _add_16(data, indices, first, last, A, Y, row, bound)


@kernel
def _multiply_block(first, last, X, panel, item_rows, places, Y):
    """Set Y[i - first] to the product X[i] @ panel, for the rows i from `first` to `last`.

    The rows of the panel are divided into ranges of item_rows rows. The kernel adds the products of
    all rows i with the first range, then the products of all rows i with the second range, and so
    on.
    """
    indptr, indices, data = X.indptr, X.indices, X.data
    if item_rows >= panel.shape[0]:
        for i in range(first, last):
            _add_row(data, indices, indptr[i], indptr[i + 1], panel, Y, i - first, None)
        return
    Y[: last - first] = 0
    for i in range(first, last):
        places[i - first] = indptr[i]
    for bound in range(item_rows, panel.shape[0] + item_rows, item_rows):
        for i in range(first, last):
            places[i - first] = _add_row(
                data, indices, places[i - first], indptr[i + 1], panel, Y, i - first, bound
            )


@kernel
def matmul_blocks(lo, hi, X, panel, item_rows, column, width, Y):
    """Set Y[i, column : column + width] to the product X[i] @ panel[:, :width], for rows lo to hi.

    `X` is a Csr whose indices ascend within a row, and `panel` is a float array in C order with p
    rows and 64, 32 or 16 columns. One pass over a block of rows of X reads item_rows rows of the
    panel; item_rows must be positive. The output `Y` (n, l) has the type of the panel. The kernel
    takes O(nnz width) time.
    """
    block = aligned_empty(ROWS * panel.shape[1], panel).reshape(ROWS, panel.shape[1])
    places = np.empty(ROWS, np.int64)
    for first in range(lo, hi, ROWS):
        last = min(first + ROWS, hi)
        _multiply_block(first, last, X, panel, item_rows, places, block)
        for i in range(first, last):
            for c in range(width):
                Y[i, column + c] = block[i - first, c]


@kernel
def gram_blocks(lo, hi, first_blocks, transposes, X, panel, item_rows, Z):
    """For each part from lo to hi, set Z[part] to P'P times `panel`, where P is the part of X.

    `first_blocks` (parts + 1,) int64 holds the block at which each part begins, and `transposes` is
    the Transposes of X. `X`, `panel` and `item_rows` are described in matmul_blocks. The output is
    `Z` (parts, p, width of the panel). The kernel takes O(nnz width + blocks p) time.
    """
    block = aligned_empty(ROWS * panel.shape[1], panel).reshape(ROWS, panel.shape[1])
    places = np.empty(ROWS, np.int64)
    for part in range(lo, hi):
        target = Z[part]
        target[:] = 0
        for b in range(first_blocks[part], first_blocks[part + 1]):
            first, last = transposes.boundaries[b], transposes.boundaries[b + 1]
            _multiply_block(first, last, X, panel, item_rows, places, block)
            start, base = transposes.starts[b], X.indptr[first]
            for j in range(panel.shape[0]):
                if start[j + 1] > start[j]:
                    _add_row(
                        transposes.values, transposes.rows, base + start[j], base + start[j + 1],
                        block, target, j, ROWS,
                    )  # fmt: skip

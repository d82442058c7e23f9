"""X A and X'(X Q) in blocks of rows, for factors that outgrow the cache.

A block of rows Y_b = X_b Q stays in the second-level cache, and where rows are long it is summed
item block by item block, so that the rows of Q stay there too. X_b'Y_b is then summed column by
column by means of the block's transpose: Z is read and written once per block and in order, where
the row-wise form updates rows of Z all over memory, one per non-zero. On 18 M non-zeros of 27,000
Zipfian columns X'(X Q) takes half the time.

Every sum is added up in the order of the row-wise form (``sparse``): the same bits. Factors come in
panels of exactly 64, 32 or 16 columns, padded; values are None where all are 1.
"""

from typing import Any, NamedTuple

import numpy as np

from . import csr_row_sums
from .jit import kernel

WIDTHS = (64, 32, 16)
# 512 KiB of a panel of 64 float32 or 32 float64
ROWS = 2048
_CACHE_LINE = 64

_gather_64, _gather_32, _gather_16 = map(csr_row_sums.gather_row, WIDTHS)
_add_64, _add_32, _add_16 = map(csr_row_sums.add_gathered_row, WIDTHS)


class Transposes(NamedTuple):
    """Blocks of up to ROWS rows, and the transpose of each.

    cuts (blocks + 1,) int64 rows; starts (blocks, p + 1) int32, where each column starts, from the
    block's first non-zero; rows (nnz,) uint16, from the block's first row; values (nnz,) or None.
    """

    cuts: Any
    starts: Any
    rows: Any
    values: Any


@kernel
def transpose_blocks(lo, hi, indptr, indices, data, cuts, starts, rows, values):
    """Write the transposes of blocks lo .. hi, see Transposes; rows rise within a column.

    starts, rows, values out. O(nnz + (hi - lo) p) time; allocates O(p).
    """
    places = np.empty(starts.shape[1], np.int32)
    for block in range(lo, hi):
        start, base = starts[block], indptr[cuts[block]]
        start[:] = 0
        for t in range(base, indptr[cuts[block + 1]]):
            start[indices[t] + 1] += 1
        for j in range(1, start.shape[0]):
            start[j] += start[j - 1]
        places[:] = start
        for i in range(cuts[block], cuts[block + 1]):
            for t in range(indptr[i], indptr[i + 1]):
                place = places[indices[t]]
                places[indices[t]] = place + 1
                rows[base + place] = i - cuts[block]
                if data is not None:
                    values[base + place] = data[t]


@kernel
def _block_of_rows(panel):
    """Memory for ROWS rows of a panel that starts at a cache line."""
    size = ROWS * panel.shape[1]
    flat = np.empty(size + _CACHE_LINE // panel.itemsize, panel.dtype)
    skip = (-flat.ctypes.data % _CACHE_LINE) // panel.itemsize
    return flat[skip : skip + size].reshape(ROWS, panel.shape[1])


@kernel
def _add_row(data, indices, first, last, A, Y, row, bound):
    width = A.shape[1]
    if width == 64:
        return _add_64(data, indices, first, last, A, Y, row, bound)
    if width == 32:
        return _add_32(data, indices, first, last, A, Y, row, bound)
    return _add_16(data, indices, first, last, A, Y, row, bound)


@kernel
def _set_row(data, indices, first, last, A, Y, row):
    width = A.shape[1]
    if width == 64:
        _gather_64(data, indices, first, last, A, 0, Y, row, 0)
    elif width == 32:
        _gather_32(data, indices, first, last, A, 0, Y, row, 0)
    else:
        _gather_16(data, indices, first, last, A, 0, Y, row, 0)


@kernel
def _multiply_block(first, last, indptr, indices, data, panel, item_rows, places, Y):
    """Y[i - first] = X[i] panel for rows first .. last, item_rows rows of the panel at a time."""
    if item_rows >= panel.shape[0]:
        for i in range(first, last):
            _set_row(data, indices, indptr[i], indptr[i + 1], panel, Y, i - first)
        return
    Y[: last - first] = 0
    places[: last - first] = indptr[first:last]
    for bound in range(item_rows, panel.shape[0] + item_rows, item_rows):
        for i in range(first, last):
            places[i - first] = _add_row(
                data, indices, places[i - first], indptr[i + 1], panel, Y, i - first, bound
            )


@kernel
def matmul_blocks(lo, hi, indptr, indices, data, panel, item_rows, column, width, Y):
    """Y[i, column : column + width] = X[i] panel[:, :width] for rows lo .. hi.

    indptr (n + 1,) int64; indices (nnz,) int, rising within a row; data (nnz,) float or None; panel
    (p, 64, 32 or 16) float, C order; item_rows > 0; Y (n, l) of its type, out. O(nnz width) time.
    """
    block, places = _block_of_rows(panel), np.empty(ROWS, np.int64)
    for first in range(lo, hi, ROWS):
        last = min(first + ROWS, hi)
        _multiply_block(first, last, indptr, indices, data, panel, item_rows, places, block)
        for i in range(first, last):
            for c in range(width):
                Y[i, column + c] = block[i - first, c]


@kernel
def gram_blocks(lo, hi, first_blocks, transposes, indptr, indices, data, panel, item_rows, Z):
    """Z[part] = X[rows]'(X[rows] panel) for the blocks of parts lo .. hi.

    first_blocks (parts + 1,) int64; transposes a Transposes; the others as in matmul_blocks; Z
    (parts, p, panel's width), out. O(nnz width + blocks p) time.
    """
    block, places = _block_of_rows(panel), np.empty(ROWS, np.int64)
    for part in range(lo, hi):
        target = Z[part]
        target[:] = 0
        for b in range(first_blocks[part], first_blocks[part + 1]):
            first, last = transposes.cuts[b], transposes.cuts[b + 1]
            _multiply_block(first, last, indptr, indices, data, panel, item_rows, places, block)
            start, base = transposes.starts[b], indptr[first]
            for j in range(panel.shape[0]):
                if start[j + 1] > start[j]:
                    _add_row(
                        transposes.values, transposes.rows, base + start[j], base + start[j + 1],
                        block, target, j, ROWS,
                    )  # fmt: skip

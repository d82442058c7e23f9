"""Linear maps that map equal rows to equal images, bit for bit.

A BLAS matrix product may round a row differently if the row has another position in the matrix, or
if the matrix has another size. If a matrix product maps the rows, two equal rows may therefore have
slightly different images, and rounding errors then decide which row is ranked first. With the
functions of this module, equal rows have equal images, because the image of a row depends only on
that row.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import row_transforms
from fastcos.validation import Floats, Integers, Rows

# Number of multiplications in one task of a thread. Starting a task takes much less time than
# performing this many multiplications.
_WORK_PER_BLOCK = 1_000_000
# Largest number of rows in a task. The number is small, so that the copies of the rows stay in the
# cache.
_MAX_ROWS = 2048


def map_rows(rows: Rows, root: Floats, mean: Floats | None = None) -> Floats:
    """Return (rows - mean) root, (n, r) float64.

    If exact arithmetic would map a row to 0, the function returns exactly 0 for this row.

    The shapes are rows (n, d), root (d, r) and mean (d,); the default mean is 0. Equal rows have
    bit-for-bit identical images, which do not depend on the other rows or on the number of threads.
    """
    mean = np.zeros(rows.shape[1]) if mean is None else mean
    with parallel.blas_lock():
        largest = float(np.linalg.norm(root, 2)) if root.size else 0.0
    images = parallel.unfilled((len(rows), root.shape[1]), np.float64)
    parallel.run(
        row_transforms.map_rows, row_cuts(rows, root.shape[1]), as_contiguous(rows),
        as_contiguous(mean), as_contiguous(root), largest, images,
    )  # fmt: skip
    return images


def first_copies(rows: Rows) -> Integers | None:
    """For each of n rows, return the number of the first row that is equal to it.

    The result is None if all rows are different.

    Rounding may have given different values to equal rows. With ``values[first_copies(rows)]``,
    each row gets the value of the first row that equals it. The function takes O(n d + n log n)
    time.
    """
    _, first, group_of = np.unique(fingerprints(rows), return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return None
    numbers = first[group_of].astype(np.int64)
    # Different rows may have the same fingerprint. Each row is therefore compared with the first
    # row that has the same fingerprint. If the two rows differ, the later row counts as a row
    # without copies.
    copies = np.flatnonzero(numbers != np.arange(len(rows)))
    differs = (rows[copies] != rows[numbers[copies]]).any(axis=1)
    numbers[copies[differs]] = copies[differs]
    return numbers


def fingerprints(rows: Rows) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each row; equal float32 and float64 rows have equal hashes."""
    hashes = parallel.unfilled(len(rows), np.uint64)
    parallel.run(row_transforms.fingerprint_rows, row_cuts(rows, 1), as_contiguous(rows), hashes)
    return hashes


def as_contiguous(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array in the form that kernels require: in C order, and read-only."""
    return validation.read_only(np.ascontiguousarray(array))


def row_cuts(rows: Rows, work: int) -> parallel.Blocks:
    """Return blocks of rows for a kernel that makes ``work`` multiplications for each entry."""
    size = min(_MAX_ROWS, _WORK_PER_BLOCK // (rows.shape[1] * max(work, 1)) // 4 * 4)
    return parallel.row_blocks(len(rows), max(4, size))

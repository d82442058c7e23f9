"""Linear maps of rows that keep equal rows equal, bit for bit.

A matrix product of BLAS rounds a row differently by its place in the block and by the size of the
block. Two equal rows then have slightly different images, and the order of their ties becomes
noise. The functions here make the image of a row a function of that row alone.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import row_transforms
from fastcos.validation import Floats, Integers, Rows

# Number of multiplications in a task of a thread, which takes much longer than starting the task.
_WORK_PER_BLOCK = 1_000_000
# Largest number of rows in a task, so that their copies stay in the cache.
_MAX_ROWS = 2048


def map_rows(rows: Rows, root: Floats, mean: Floats | None = None) -> Floats:
    """Return (rows - mean) root, (n, r) float64; rows that would be 0 without rounding are 0.

    rows (n, d); root (d, r); mean (d,), default 0. Equal rows have bit-for-bit identical images,
    for any other rows, blocks and number of threads.
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
    """Return for each row the number (n,) of the first row that equals it; None if all differ.

    ``values[first_copies(rows)]`` gives equal rows the same value if rounding made it differ. Takes
    The function takes O(n d + n log n) time.
    """
    _, first, group_of = np.unique(fingerprints(rows), return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return None
    numbers = first[group_of].astype(np.int64)
    # Different rows may have the same fingerprint. Each of them is its own first copy.
    copies = np.flatnonzero(numbers != np.arange(len(rows)))
    differs = (rows[copies] != rows[numbers[copies]]).any(axis=1)
    numbers[copies[differs]] = copies[differs]
    return numbers


def fingerprints(rows: Rows) -> npt.NDArray[np.uint64]:
    """Return a hash of 64 bits per row, which is the same for equal rows of float32 and float64."""
    hashes = parallel.unfilled(len(rows), np.uint64)
    parallel.run(row_transforms.fingerprint_rows, row_cuts(rows, 1), as_contiguous(rows), hashes)
    return hashes


def as_contiguous(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array in C order and read-only, as kernels require."""
    return validation.read_only(np.ascontiguousarray(array))


def row_cuts(rows: Rows, work: int) -> parallel.Blocks:
    """Return blocks of rows for kernels that do this number of multiplications per entry."""
    size = min(_MAX_ROWS, _WORK_PER_BLOCK // (rows.shape[1] * max(work, 1)) // 4 * 4)
    return parallel.row_blocks(len(rows), max(4, size))

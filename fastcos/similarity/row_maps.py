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

# multiplications of a block of rows that one thread does at once: enough to hide its start
_WORK_PER_BLOCK = 1_000_000
# rows of such a block at most: their copies stay in the cache
_MOST_ROWS = 2048


def map_rows(rows: Rows, root: Floats, mean: Floats | None = None) -> Floats:
    """Return (rows - mean) root, (n, r) float64; rows that only rounding keeps from 0 are 0.

    rows (n, d); root (d, r); mean (d,), default 0. Equal rows have bit-identical images, whatever
    the other rows are, for any block of them and any number of threads.
    """
    mean = np.zeros(rows.shape[1]) if mean is None else mean
    with parallel.blas_lock():
        largest = float(np.linalg.norm(root, 2)) if root.size else 0.0
    out = parallel.unfilled((len(rows), root.shape[1]), np.float64)
    parallel.run(
        row_transforms.map_rows, row_cuts(rows, root.shape[1]), as_contiguous(rows),
        as_contiguous(mean), as_contiguous(root), largest, out,
    )  # fmt: skip
    return out


def first_copies(rows: Rows) -> Integers | None:
    """Return for each row the number of the first row that equals it, (n,); None if all differ.

    ``values[first_copies(rows)]`` gives equal rows one value where a sum rounded it differently.
    O(n d + n log n).
    """
    _, first, group_of = np.unique(fingerprints(rows), return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return None
    numbers = first[group_of].astype(np.int64)
    # rows that differ may have one fingerprint: then each keeps its own value
    other = np.flatnonzero(numbers != np.arange(len(rows)))
    differs = (rows[other] != rows[numbers[other]]).any(axis=1)
    numbers[other[differs]] = other[differs]
    return numbers


def fingerprints(rows: Rows) -> npt.NDArray[np.uint64]:
    """Return 64 bits per row, equal for identical rows of either float type."""
    out = parallel.unfilled(len(rows), np.uint64)
    parallel.run(row_transforms.fingerprint_rows, row_cuts(rows, 1), as_contiguous(rows), out)
    return out


def as_contiguous(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array as kernels take it: C order, read-only."""
    return validation.read_only(np.ascontiguousarray(array))


def row_cuts(rows: Rows, work: int) -> parallel.Blocks:
    """Return blocks of rows for kernels that do this work per entry."""
    size = min(_MOST_ROWS, _WORK_PER_BLOCK // (rows.shape[1] * max(work, 1)) // 4 * 4)
    return parallel.row_blocks(len(rows), max(4, size))

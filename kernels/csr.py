"""Checks of CSR arrays, in one pass over the non-zeros."""

import numpy as np

from .jit import kernel

FINE, OUT_OF_RANGE, NOT_FINITE, NOT_CANONICAL, EXPLICIT_ZERO = 0, 1, 2, 3, 4


@kernel
def check_rows(lo, hi, indptr, indices, data, n_columns, findings):
    """Write the worst finding of every row; FINE < the others, errors before repairs.

    indptr (n + 1,) int64, already known to rise within the arrays; indices (nnz,) int; data (nnz,)
    float; findings (n,) uint8, out. A row that has an error reports the error even if it could also
    be repaired. O(nnz).
    """
    for i in range(lo, hi):
        outside, broken, unsorted, zero = False, False, False, False
        previous = np.int64(-1)
        for t in range(indptr[i], indptr[i + 1]):
            column = np.int64(indices[t])
            outside |= column < 0 or column >= n_columns
            unsorted |= column <= previous
            previous = column
            # x - x is NaN for NaN and for both infinities
            broken |= data[t] - data[t] != 0
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

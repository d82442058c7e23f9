"""X A of a large sparse X as it is given: its entries are checked while the product reads them.

A check of its own reads X once more, which takes a quarter of X A with 64 columns.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import sparse
from fastcos.linalg.csr import unread_arrays
from fastcos.linalg.sparse_operator import (
    Matrix,
    is_plain,
    on_cache_lines,
    product_memory,
    rows_at_a_time,
    work_cuts,
)

# fewer entries stay in the cache between the check and the product
_NNZ = 2**20


def unread_matmul(X: Any, A: npt.ArrayLike, n_threads: int | None) -> Matrix | None:
    """Return X A, or None where it takes the other way: all of X checked first.

    That is so where X is small, where its entries are at fault, where other kernels win, and for
    the rarer types, which would have to be compiled. The bits are those of the other way; of
    duplicates and unsorted indices, those of the order in which they are stored.
    """
    arrays = unread_arrays("X", X)
    if arrays is None or arrays.indices.dtype != np.int32 or len(arrays.indices) < _NNZ:
        return None
    factor = validation.as_rows("A", A)
    validation.check_length("A", factor, X.shape[1], "X has columns")
    needs_pieces = rows_at_a_time(X.shape, len(arrays.indices), factor) < X.shape[1]
    if factor.dtype != arrays.data.dtype or needs_pieces or is_plain():
        return None
    Y, is_streamed = product_memory(X.shape[0], factor)
    is_left = np.empty(len(Y), np.bool_)
    parallel.run(
        sparse.matmul_unread_rows,
        work_cuts(arrays.indptr, factor.shape[1]),
        *arrays,
        validation.read_only(arrays.indices.view(np.uint32)),
        on_cache_lines(factor),
        Y,
        is_streamed,
        is_left,
        n_threads=n_threads,
    )
    return None if is_left.any() else Y

"""Rows of int8, float16 and bfloat16 as the kernels take them: not widened as a whole.

Numba has neither type of two bytes. So float16 is handed over as uint16 and bfloat16 as int16, and
the kernels widen numbers in registers (:mod:`fastcos.kernels.pair_scores`).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.storage import memmap

# type of the bits by the name of the type of numbers
_BITS = {"int8": np.int8, "float16": np.uint16, "bfloat16": np.int16}


def has_kernels(X: Any) -> bool:
    """Whether the kernels read the rows X as they are, though they are narrow."""
    return memmap.is_narrow(X) and X.dtype.name in _BITS


def as_bits(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return narrow rows as the kernels take them, others as they are."""
    if not has_kernels(X):
        return X
    native = np.ascontiguousarray(X, X.dtype.newbyteorder("="))
    return validation.read_only(native.view(_BITS[X.dtype.name]))


def from_bits(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the numbers that rows of the kernels stand for."""
    if rows.dtype == np.uint16:
        return rows.view(np.float16)
    if rows.dtype == np.int16:
        from ml_dtypes import bfloat16  # who made such rows has it

        return rows.view(bfloat16)
    return rows

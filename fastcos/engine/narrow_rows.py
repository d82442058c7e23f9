"""Rows of int8, float16 and bfloat16 as the kernels take them: not widened as a whole.

Numba has neither type of two bytes. So float16 is handed over as uint16 and bfloat16 as int16, and
the kernels widen numbers in registers (:mod:`fastcos.kernels.pair_scores`). Where a kernel needs
floats, as for packing, blocks are widened that stay in a cache.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.storage import memmap

# type of the bits by the name of the type of numbers
_BITS = {"int8": np.int8, "float16": np.uint16, "bfloat16": np.int16}
# rows that are checked or widened at once: 3 MiB of float32 for 768 columns
BLOCK_ROWS = 1024


def has_kernels(X: Any) -> bool:
    """Whether the kernels read the rows X as they are, though they are narrow."""
    return memmap.is_narrow(X) and X.dtype.name in _BITS


def as_bits(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return narrow rows as the kernels take them, others as they are."""
    if not has_kernels(X):
        return X
    return validation.read_only(np.ascontiguousarray(X).view(_BITS[X.dtype.name]))


def from_bits(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the numbers that rows of the kernels stand for."""
    if rows.dtype == np.uint16:
        return rows.view(np.float16)
    if rows.dtype == np.int16:
        from ml_dtypes import bfloat16  # who made such rows has it

        return rows.view(bfloat16)
    return rows


def check_finite(name: str, X: npt.NDArray[Any]) -> None:
    """Refuse NaN and infinity: the kernels take those of float16 for numbers."""
    if X.dtype == np.int8:
        return
    exponent = np.uint16(0x7C00 if X.dtype == np.float16 else 0x7F80)
    for lo in range(0, len(X), BLOCK_ROWS):
        bits = X[lo : lo + BLOCK_ROWS].view(np.uint16)
        is_broken = ((bits & exponent) == exponent).any(axis=1)
        if is_broken.any():
            broken = validation.format_rows(lo + np.flatnonzero(is_broken))
            raise ValueError(
                f"{name} must be finite, got NaN or infinity in {broken} (counted from 0)"
            )


def widened(rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return the numbers that rows of the kernels stand for, as float32."""
    if rows.dtype != np.uint16:
        return from_bits(rows).astype(np.float32)
    # as the kernels do it, in half the time of NumPy's own cast: the sign stays, and exponents of
    # float16 are counted from 15, those of float32 from 127
    words = rows.view(np.int16).astype(np.int32)
    words <<= 13
    words &= np.int32(-0x70002000)
    numbers = words.view(np.float32)
    numbers *= np.float32(2.0**112)
    return numbers

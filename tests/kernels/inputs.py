"""Kernels get read-only arrays, like the arrays that the validation returns.

For arrays of other types, Numba would compile the kernels again.
"""

from typing import Any

import numpy as np

from fastcos.kernels.records import rows_of
from fastcos.validation import read_only


def frozen_rows(array: Any) -> Any:
    """Return the record that kernels read in place of an array of rows."""
    return rows_of(read_only(array))


def frozen(*arrays: Any) -> list[Any]:
    """Return read-only views of arrays, and all other arguments unchanged."""
    return [read_only(a) if isinstance(a, np.ndarray) else a for a in arrays]

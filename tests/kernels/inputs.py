"""Read-only arrays, as validation passes them to kernels: other types compile again."""

from typing import Any

import numpy as np

from fastcos.kernels.records import rows_of
from fastcos.validation import read_only


def frozen_rows(array: Any) -> Any:
    """The record that kernels read in place of an array of rows."""
    return rows_of(read_only(array))


def frozen(*arrays: Any) -> list[Any]:
    """Read-only views of arrays; other arguments are returned unchanged."""
    return [read_only(a) if isinstance(a, np.ndarray) else a for a in arrays]

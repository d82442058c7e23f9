"""Arrays as the gate hands them to kernels; others would only be compiled for once more."""

from typing import Any

import numpy as np

from fastcos.validation import read_only


def frozen(*arrays: Any) -> list[Any]:
    """Read-only views of arrays; other arguments as they are."""
    return [read_only(a) if isinstance(a, np.ndarray) else a for a in arrays]

"""Arrays of safetensors files, by safetensors, which is an extra."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.storage import FastcosFormatError


def read_safetensors(path: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Return all arrays of a safetensors file."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise FastcosFormatError(
            f"{path}: safetensors files need safetensors: pip install 'fastcos[io]'"
        ) from None
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, TypeError, ValueError) as error:
        # TypeError: a type that NumPy does not have, such as bfloat16
        what = str(error).partition("\n")[0]
        raise FastcosFormatError(f"{path} must be a whole safetensors file: {what}") from None

"""The provenance of a result: parameters, versions and machine, stored beside the result.

The name of the processor comes from ``fastcos.kernels.cpu``, and the instruction set and the number
of threads come from ``fastcos.config``.
"""

import contextlib
import math
import platform
from importlib import metadata
from typing import Any

from fastcos import config
from fastcos.kernels import cpu

# Packages whose versions can change results.
PACKAGES = ("fastcos", "numba", "llvmlite", "numpy", "scipy", "scikit-learn", "matplotlib")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that affect results."""
    by_package = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):  # a native wheel needs no Numba
            by_package[name] = metadata.version(name)
    return by_package


def provenance(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters, versions and machine as a dict that can be written as JSON."""
    settings = config.get_config()
    return {
        "parameters": json_ready(parameters),
        "versions": versions(),
        "machine": {
            "system": platform.platform(),
            "processor": cpu.name(),
            "instruction_set": settings.isa,
            "threads": settings.n_threads,
        },
    }


def json_ready(value: Any) -> Any:
    """Return value with NumPy arrays and scalars as Python values, and NaN and infinity as None."""
    if isinstance(value, dict):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    if hasattr(value, "tolist"):
        return json_ready(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

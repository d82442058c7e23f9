"""The provenance of a result: the parameters, software versions and machine that produced it.

Provenance is stored together with the result.
"""

import contextlib
import math
import platform
from importlib import metadata
from typing import Any

from fastcos import config
from fastcos.kernels import cpu

# The packages whose versions are recorded, because another version could change a result.
PACKAGES = ("fastcos", "numba", "llvmlite", "numpy", "scipy", "scikit-learn", "matplotlib")


def versions() -> dict[str, str]:
    """Return the version of Python, and of each package in ``PACKAGES`` that is installed."""
    by_package = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):  # a native wheel needs no Numba
            by_package[name] = metadata.version(name)
    return by_package


def provenance(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters, the software versions and the machine of a run as a dict for JSON."""
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
    """Return `value` as Python lists, dicts and scalars for JSON; NaN and infinity become None."""
    if isinstance(value, dict):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    if hasattr(value, "tolist"):
        return json_ready(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""Settings of a library that depend on the CPU or on installed packages.

The file of a library chooses a list, for example by `SETTINGS = settings.openblas()`. Each setting
in the list is tried for two turns; the fastest setting is then used in all processes.
"""

import sys
from pathlib import Path
from typing import NamedTuple

from bench import machine


class Setting(NamedTuple):
    """Environment variables of a library's process, and the name of the setting in tables."""

    name: str = ""
    variables: dict = {}


DEFAULT = [Setting()]
# The kernels of OpenBLAS: name, value of OPENBLAS_CORETYPE, and the instruction set they need.
OPENBLAS_KERNELS = (("AVX-512", "SkylakeX", "avx512f"), ("AVX2", "Haswell", "avx2"))


def openblas():
    """Return a setting for each family of OpenBLAS kernels that this CPU can run.

    OpenBLAS chooses kernels by the model of the CPU. On new and on virtual CPUs, this choice is
    often not the fastest.
    """
    cpu_features = machine.features()
    settings = [
        Setting(f"{name} kernels", {"OPENBLAS_CORETYPE": core})
        for name, core, instructions in OPENBLAS_KERNELS
        if instructions in cpu_features
    ]
    return settings or DEFAULT


def mkl_library():
    """Return the path of the MKL that pip has installed; raise ImportError if it is missing."""
    packages = [Path(place) for place in sys.path if place.endswith("site-packages")]
    for prefix in (Path(sys.prefix), *(place.parents[2] for place in packages)):
        for library in Path(prefix, "lib").glob("libmkl_rt.so*"):
            return str(library)
    raise ImportError("MKL is not installed; pip install mkl")

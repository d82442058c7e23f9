"""Settings of a library that depend on the CPU or on what is installed: the fastest one counts.

A library's file says `SETTINGS = settings.openblas()`, say. Each setting is tried for two turns,
and the fastest is used in all processes.
"""

import sys
from pathlib import Path
from typing import NamedTuple

from bench import machine


class Setting(NamedTuple):
    """Environment variables of a library's process, and their name in tables."""

    name: str = ""
    variables: dict = {}


DEFAULT = [Setting()]
# Kernels of OpenBLAS: name, value of OPENBLAS_CORETYPE, instruction set that they need.
OPENBLAS_KERNELS = (("AVX-512", "SkylakeX", "avx512f"), ("AVX2", "Haswell", "avx2"))


def openblas():
    """Return a setting for each family of OpenBLAS kernels that this CPU can run.

    OpenBLAS chooses kernels by the model of the CPU; on new and on virtual CPUs this choice is
    often not the fastest one.
    """
    known = machine.features()
    found = [
        Setting(f"{name} kernels", {"OPENBLAS_CORETYPE": core})
        for name, core, needed in OPENBLAS_KERNELS
        if needed in known
    ]
    return found or DEFAULT


def mkl_library():
    """Return the path of MKL as pip installs it; raise ImportError if it is missing."""
    packages = [Path(place) for place in sys.path if place.endswith("site-packages")]
    for prefix in (Path(sys.prefix), *(place.parents[2] for place in packages)):
        for library in Path(prefix, "lib").glob("libmkl_rt.so*"):
            return str(library)
    raise ImportError("MKL is not installed; pip install mkl")

"""Settings of a library that depend on the CPU or on installed packages.

The file of a library may define a list of settings, for example with the line
`SETTINGS = settings.openblas()`. Each setting in the list is tried for two turns; the fastest
setting is then used in all processes.
"""

import os
import sys
from pathlib import Path
from typing import NamedTuple

from bench import machine


class Setting(NamedTuple):
    """A setting of a library: its name in tables, and the environment variables that it sets."""

    name: str = ""
    variables: dict = {}


DEFAULT = [Setting()]
# For each kind of OpenBLAS kernels: its name, the value of OPENBLAS_CORETYPE that selects it, and
# the instruction set that it needs.
OPENBLAS_KERNELS = (("AVX-512", "SkylakeX", "avx512f"), ("AVX2", "Haswell", "avx2"))


# With FASTCOS_ISA=avx2, fastcos uses only AVX2, so that the run shows the speed on a CPU without
# AVX-512.
# The other libraries are therefore also limited to AVX2 if they have a variable for this purpose.
AVX2_VARIABLES = {
    "FAISS_SIMD_LEVEL": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
}  # fmt: skip


def is_limited_to_avx2():
    """Return whether this run is limited to AVX2, to show the speed on a CPU without AVX-512."""
    return os.environ.get("FASTCOS_ISA") == "avx2"


def openblas():
    """Return a list with one setting for each kind of OpenBLAS kernels that this run can use.

    Which kinds can be used depends on the CPU and on FASTCOS_ISA. OpenBLAS chooses kernels by the
    model of the CPU. On new and on virtual CPUs, this choice is often not the fastest.
    """
    allowed = machine.features() - ({"avx512f"} if is_limited_to_avx2() else set())
    settings = [
        Setting(f"{name} kernels", {"OPENBLAS_CORETYPE": core})
        for name, core, instructions in OPENBLAS_KERNELS
        if instructions in allowed
    ]
    return settings or DEFAULT


def mkl_library():
    """Return the path of the MKL that pip has installed; raise ImportError if it is missing."""
    packages = [Path(place) for place in sys.path if place.endswith("site-packages")]
    for prefix in (Path(sys.prefix), *(place.parents[2] for place in packages)):
        for library in Path(prefix, "lib").glob("libmkl_rt.so*"):
            return str(library)
    raise ImportError("MKL is not installed; pip install mkl")

"""FAISS with Intel's MKL, instead of the OpenBLAS that the wheel of FAISS contains.

The wheel of faiss-cpu contains OpenBLAS, and conda's faiss-cpu uses MKL. This file uses the wheel,
together with a copy of MKL that pip has installed. MKL is loaded first and OpenBLAS second, so that
the dynamic linker takes the function sgemm from MKL.
"""

from bench.compare.libraries.faiss import search, self_join  # noqa: F401
from bench.compare.settings import Setting, mkl_library

NAME = "FAISS with MKL"
REQUIRES = "faiss-cpu>=1.15"
_MKL = {"LD_PRELOAD": mkl_library(), "MKL_THREADING_LAYER": "GNU"}
SETTINGS = [
    Setting("", _MKL),
    Setting("BLAS for every batch", _MKL | {"COMPARE_FAISS_BLAS": "1"}),
]


def versions():
    """Return the version of MKL."""
    from bench.compare.libraries.mkl import mkl_version

    return {"MKL": mkl_version()}

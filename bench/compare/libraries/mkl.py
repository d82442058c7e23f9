"""Intel's MKL, called by sparse_dot_mkl: sparse products."""

import ctypes
import os

import numpy as np

from bench.compare.settings import mkl_library

os.environ.setdefault("MKL_RT", mkl_library())
from sparse_dot_mkl import dot_product_mkl

NAME = "MKL"
REQUIRES = "sparse_dot_mkl>=0.9"


def mkl_version():
    """Return the version of MKL, such as "2026.2-Product"."""
    text = ctypes.create_string_buffer(198)
    ctypes.CDLL(mkl_library()).mkl_get_version_string(text, 198)
    return text.value.decode().partition("Version ")[2].partition(" ")[0]


def versions():
    return {"MKL": mkl_version()}


def product(X, A):
    return (lambda: dot_product_mkl(X, A)), np.asarray


def gram(X, A):
    """Multiply by a CSR copy of X'; with a CSC view of X', MKL would take four times as long."""
    transposed = X.T.tocsr()
    return (lambda: dot_product_mkl(transposed, dot_product_mkl(X, A))), np.asarray

"""SciPy: sparse products, and ARPACK's svds."""

import importlib.util
from importlib import metadata

import numpy as np
from scipy.sparse import linalg

from bench.compare.settings import openblas

NAME = "SciPy"
REQUIRES = "scipy>=1.15"
SETTINGS = openblas()


def versions():
    """Return the name of the ARPACK code that SciPy contains, which has no version of its own."""
    is_in_c = importlib.util.find_spec("scipy.sparse.linalg._eigen.arpack._arpacklib")
    language = "C" if is_in_c else "Fortran"
    return {"ARPACK": f"the {language} code in SciPy {metadata.version('scipy')}"}


def product(X, A):
    return (lambda: X @ A), np.asarray


def gram(X, A):
    """Multiply by a CSC view of X', with which SciPy is twice as fast as with a CSR copy."""
    return (lambda: X.T @ (X @ A)), np.asarray


def svd(X, k, tolerance):
    """Pass ARPACK ten times the tolerance of the task, which is the fastest value that suffices.

    The tolerance of ARPACK limits a residual that is defined differently from the residual of the
    task. In a scan of the tasks with 400,000 and 800,000 non-zeros, 0.1 was the fastest tolerance
    with which the residual of the task was at most 0.01.
    """

    def call():
        return linalg.svds(X, k, tol=10 * tolerance, random_state=0, return_singular_vectors="vh")

    def read(result):
        order = np.argsort(-result[1])
        return np.column_stack([result[1], result[2]])[order]

    return call, read

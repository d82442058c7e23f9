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
    """Return the language of SciPy's ARPACK code, because this code has no version of its own."""
    is_in_c = importlib.util.find_spec("scipy.sparse.linalg._eigen.arpack._arpacklib")
    language = "C" if is_in_c else "Fortran"
    return {"ARPACK": f"the {language} code in SciPy {metadata.version('scipy')}"}


def product(X, A):
    return (lambda: X @ A), np.asarray


def gram(X, A):
    """Multiply by X' as a CSC view; with a CSR copy of X', SciPy would take twice as long."""
    return (lambda: X.T @ (X @ A)), np.asarray


def svd(X, k, tolerance):
    """Call ARPACK with a tolerance that is ten times as large as the tolerance of the task.

    The tolerance of ARPACK and the tolerance of the task refer to two different definitions of the
    residual. We tried several tolerances of ARPACK on the tasks with 400,000 and 800,000 non-zeros.
    Some of these tolerances kept the residual of the task at or below 0.01; among them, ARPACK was
    fastest with a tolerance of 0.1.
    """

    def call():
        return linalg.svds(X, k, tol=10 * tolerance, random_state=0, return_singular_vectors="vh")

    def read(result):
        order = np.argsort(-result[1])
        return np.column_stack([result[1], result[2]])[order]

    return call, read

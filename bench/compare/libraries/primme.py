"""PRIMME: truncated SVD. PRIMME has no wheel, and its source needs the LAPACK of the system."""

import numpy as np
import primme

NAME = "PRIMME"
REQUIRES = "primme>=3"


def svd(X, k, tolerance):
    def call():
        return primme.svds(X, k, tol=min(tolerance, 1e-3), return_stats=False)

    def read(result):
        order = np.argsort(-result[1])
        return np.column_stack([result[1], result[2]])[order]

    return call, read

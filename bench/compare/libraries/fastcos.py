"""fastcos, measured by the same rules as every other library."""

import numpy as np

import fastcos
from fastcos.parallel import readiness

NAME = "fastcos"
REQUIRES = "fastcos"

# By default, fastcos runs slower NumPy code until its kernels are compiled. This call makes fastcos
# compile its kernels immediately, so that only compiled kernels are timed.
readiness.compile_at_once()


def search(items, queries, k):
    index = fastcos.SimilarityIndex().fit(items)
    return (lambda: index.search(queries, k)), lambda result: result.indices


def self_join(rows, k):
    return (lambda: fastcos.top_k(rows, k=k)), lambda result: result.indices


def sparse_join(X, k):
    # X.T is a CSC view of X. The timed call therefore includes the conversion of X.T to CSR. The
    # timed call of the library implicit includes this conversion, too.
    return (lambda: fastcos.top_k(X.T, k=k)), lambda result: np.maximum(result.scores, 0)


def product(X, A):
    return (lambda: fastcos.matmul(X, A)), np.asarray


def gram(X, A):
    return (lambda: fastcos.gram_matmul(X, A)), np.asarray


def svd(X, k, tolerance):
    def read(result):
        return np.column_stack([result.s, result.Vt])

    return (lambda: fastcos.randomized_svd(X, k, tol=tolerance, compute_u=False)), read

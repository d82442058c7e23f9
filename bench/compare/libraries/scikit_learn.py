"""scikit-learn: NearestNeighbors by brute force, and randomized_svd."""

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import randomized_svd

from bench.compare.rows import without_itself
from bench.compare.settings import openblas

NAME = "scikit-learn"
REQUIRES = "scikit-learn>=1.6"
SETTINGS = openblas()


def search(items, queries, k):
    model = NearestNeighbors(n_neighbors=k, algorithm="brute", metric="cosine").fit(items)
    return (lambda: model.kneighbors(queries, return_distance=True)), lambda result: result[1]


def self_join(rows, k):
    def call():
        model = NearestNeighbors(n_neighbors=k + 1, algorithm="brute", metric="cosine").fit(rows)
        return model.kneighbors(rows)

    return call, lambda result: without_itself(result[1])


def svd(X, k, tolerance):
    """Use parameters from a scan: the fastest parameters that reach a residual of 0.01."""

    def call():
        return randomized_svd(X, k, n_iter=6, n_oversamples=64, random_state=0, flip_sign=False)

    return call, lambda result: np.column_stack([result[1], result[2]])

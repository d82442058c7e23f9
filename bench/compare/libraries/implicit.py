"""implicit: its exact top k among dense factors, and its cosine recommender."""

import warnings

import numpy as np
from implicit.cpu.topk import topk
from implicit.nearest_neighbours import CosineRecommender
from implicit.utils import ParameterWarning
from scipy.sparse import csr_matrix

from bench.compare.libraries.sparse_dot_topn import best_of_rows
from bench.compare.rows import n_threads, unit, without_itself
from bench.compare.settings import openblas

NAME = "implicit"
REQUIRES = "implicit>=0.7"
SETTINGS = openblas()


def search(items, queries, k):
    items, queries = unit(items), unit(queries)
    return (lambda: topk(items, queries, k)), lambda result: result[0]


def self_join(rows, k):
    def call():
        units = unit(rows)
        return topk(units, units, k + 1)

    return call, lambda result: without_itself(result[0])


def sparse_join(X, k):
    users = csr_matrix(X.astype(np.float64))
    model = CosineRecommender(K=k + 1, num_threads=n_threads())

    def call():
        model.fit(users, show_progress=False)
        return model.similarity

    warnings.simplefilter("ignore", ParameterWarning)  # about implicit itself
    return call, lambda result: best_of_rows(result, k)

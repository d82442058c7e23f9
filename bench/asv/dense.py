"""Exact neighbours among dense rows, by cosine, k = 10."""

from functools import cache

import numpy as np

import fastcos
from bench import data

K = 10
SIZES = [(1_000, 64), (10_000, 64), (4_000, 768)]


@cache
def fitted_index(make_rows, *size):
    """Return an index of rows; calls with equal arguments return the same index.

    asv calls setup before every sample. If every call of setup created a new index, asv would time
    a cold index, to which fastcos has not yet added a projection of the rows.
    """
    return fastcos.SimilarityIndex().fit(make_rows(*size))


class IndexSearch:
    """Searches of a fitted index."""

    params = [[1, 16, 256], SIZES]
    param_names = ["queries", "rows x columns"]
    version = "2"

    def setup(self, queries, size):
        self.queries = data.gaussian(queries, size[1], seed=1)
        self.index = fitted_index(data.gaussian, *size)
        self.index.search(self.queries, K)

    def time_search(self, *_):
        self.index.search(self.queries, K)


class EmbeddingSearch:
    """Searches of an index whose rows resemble text embeddings."""

    params = [[1, 256]]
    param_names = ["queries"]
    version = "2"
    # Searches warm the index up for one second. During this time, fastcos adds a projection of the
    # rows to the index.
    warmup_time = 1.0

    def setup(self, queries):
        self.queries = data.embeddings(queries, 384, seed=1)
        self.index = fitted_index(data.embeddings, 20_000, 384)
        self.index.search(self.queries, K)

    def time_search(self, *_):
        self.index.search(self.queries, K)


class SelfJoin:
    """The neighbours of all rows, in one call."""

    params = [SIZES]
    param_names = ["rows x columns"]
    version = "1"

    def setup(self, size):
        self.rows = data.gaussian(*size)
        fastcos.top_k(self.rows, k=K)

    def time_top_k(self, *_):
        fastcos.top_k(self.rows, k=K)


class OneShot:
    """Searches by `top_k`, without an index that was built beforehand."""

    params = [[1, 1_000], SIZES]
    param_names = ["queries", "rows x columns"]
    version = "1"

    def setup(self, queries, size):
        self.queries, self.items = data.gaussian(queries, size[1], seed=1), data.gaussian(*size)
        fastcos.top_k(self.queries, self.items, k=K)

    def time_top_k(self, *_):
        fastcos.top_k(self.queries, self.items, k=K)


class IndexFit:
    """The fit of an index."""

    params = [SIZES]
    param_names = ["rows x columns"]
    version = "1"

    def setup(self, size):
        self.rows = data.gaussian(*size)
        fastcos.SimilarityIndex().fit(self.rows)

    def time_fit(self, *_):
        fastcos.SimilarityIndex().fit(self.rows)


class Rescore:
    """The exact scores of 100 candidates for each of 1,000 queries."""

    version = "1"

    def setup(self):
        self.rows = data.gaussian(1_000, 768, seed=1), data.gaussian(10_000, 768)
        numbers = np.arange(1_000)[:, None] + 100 * np.arange(100)
        self.candidates = numbers % 10_000
        fastcos.search.rescore(*self.rows, self.candidates, K)

    def time_rescore(self):
        fastcos.search.rescore(*self.rows, self.candidates, K)


class NeighborsAbove:
    """The search for all pairs above a score."""

    version = "1"

    def setup(self):
        self.rows = data.gaussian(5_000, 64)
        fastcos.neighbors_above(self.rows, min_score=0.5)

    def time_neighbors_above(self):
        fastcos.neighbors_above(self.rows, min_score=0.5)

"""The exact index for ann-benchmarks: copy this folder to ann_benchmarks/algorithms/fastcos there.

Implements the methods that its runner calls.
"""

import fastcos

try:
    from ann_benchmarks.algorithms.base.module import BaseANN
except ModuleNotFoundError:  # in this repository
    BaseANN = object

MEASURES = {"angular": "cosine", "euclidean": "neg_euclidean"}


class Fastcos(BaseANN):
    """fastcos.SimilarityIndex."""

    def __init__(self, metric):
        if metric not in MEASURES:
            raise NotImplementedError(f"fastcos does not support the metric {metric}")
        self._index = fastcos.SimilarityIndex(MEASURES[metric])
        self._found = None

    def fit(self, X):
        """Fit the index."""
        self._index.fit(X)

    def query(self, v, n):
        """Return the indices of the n nearest rows of one vector."""
        return self._index.search(v[None], n).indices[0]

    def batch_query(self, X, n):
        """Search all vectors at once; get_batch_results returns the indices."""
        self._found = self._index.search(X, n).indices

    def get_batch_results(self):
        """Return the indices (queries, n)."""
        return self._found

    def __str__(self):
        return f"fastcos({self._index.measure})"

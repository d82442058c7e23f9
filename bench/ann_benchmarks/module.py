"""The exact index for ann-benchmarks: copy this folder to ann_benchmarks/algorithms/fastcos there.

The four methods that its runner calls, and nothing else; `harness.py` calls them the same way here.
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
        """Prepare the rows."""
        self._index.fit(X)

    def query(self, v, n):
        """Numbers of the n nearest rows of one vector."""
        return self._index.search(v[None], n).indices[0]

    def batch_query(self, X, n):
        """Search all vectors at once; the numbers are fetched by get_batch_results."""
        self._found = self._index.search(X, n).indices

    def get_batch_results(self):
        """Numbers (queries, n)."""
        return self._found

    def __str__(self):
        return f"fastcos({self._index.measure})"

"""The exact index of fastcos, for VIBE (github.com/vector-index-bench/vibe).

Copy this folder to vibe/algorithms/fastcos in a clone of VIBE. The class has the methods that the
runner of VIBE calls.
"""

import fastcos

try:
    from vibe.algorithms.base.module import BaseANN
except ImportError:  # VIBE may be missing, as in the repository of fastcos
    BaseANN = object

# For each distance of VIBE, the measure of fastcos that orders items in the same way.
MEASURES = {
    "cosine": "cosine", "normalized": "cosine", "ip": "dot", "euclidean": "neg_euclidean",
}  # fmt: skip


class Fastcos(BaseANN):
    """The exact index fastcos.SimilarityIndex with the methods that VIBE calls."""

    def __init__(self, metric):
        if metric not in MEASURES:
            raise ValueError(f"metric must be one of {', '.join(MEASURES)}, got {metric}")
        self.name = f"fastcos({MEASURES[metric]})"
        self._index = fastcos.SimilarityIndex(MEASURES[metric])
        self._indices = None

    def fit(self, X):
        """Fit the index."""
        self._index.fit(X)

    def query(self, v, n):
        """Return the indices of the n nearest rows of one vector."""
        return self._index.search(v[None], n).indices[0]

    def batch_query(self, X, n):
        """Search all vectors at once, and store the indices for get_batch_results."""
        self._indices = self._index.search(X, n).indices

    def get_batch_results(self):
        """Return the indices (queries, n) of the latest batch_query."""
        return self._indices

    def __str__(self):
        return self.name

"""Exact neighbours among sparse rows."""

import numpy as np

import fastcos
from bench import answers, inputs

SHAPES = {"500 x 2,000": (2_000, 500, 40_000), "3,000 x 10,000": (10_000, 3_000, 400_000)}


class ItemNeighbors(answers.Situation):
    """Items of Zipfian interactions, compared by their users."""

    params = [list(SHAPES), [10, 100]]
    param_names = ["shape", "k"]

    @answers.once
    def setup(self, shape, k):
        self.items, self.k = inputs.zipf_interactions(*SHAPES[shape]).T.tocsr(), k
        found = self.time_top_k()
        dense = self.items.toarray().astype(np.float64)
        lengths = np.linalg.norm(dense, axis=1, keepdims=True)
        dense /= np.where(lengths > 0, lengths, 1)
        cosines = dense @ dense.T
        np.fill_diagonal(cosines, -np.inf)
        best = -np.sort(-cosines, axis=1)[:, :k]
        # counts have many ties, and SciPy sums in another order
        self.error = answers.at_most(1e-6, float(abs(found.scores - best).max()))

    def time_top_k(self, *_):
        return fastcos.top_k(self.items, k=self.k)

    def track_error(self, *_):
        return self.error

    track_error.unit = "cosine"

    def track_peak_bytes(self, *_):
        return answers.peak_bytes(self.time_top_k)

    track_peak_bytes.unit = "bytes"

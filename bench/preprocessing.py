"""The sparse weightings that come before a factorisation."""

import numpy as np
import scipy.sparse as sp

import fastcos
from bench import answers
from bench.products import SHAPES, interactions

TRANSFORMERS = {
    "normalise": fastcos.NormalizeRows,
    "standardise": fastcos.StandardizeColumns,
    "popularity": fastcos.PopularityWeights,
    "ppmi": fastcos.ShiftedPPMI,
}


class Weightings(answers.Situation):
    """fit_transform of every transformer."""

    params = [list(TRANSFORMERS), list(SHAPES)]
    param_names = ["transformer", "shape"]
    # it counts the pairs of items: a minute where the popular items have 40,000 users
    skip_params = [("ppmi", "40,000 x 20,000")]

    @answers.once
    def setup(self, transformer, shape):
        self.X = interactions(shape)
        self.transformer = TRANSFORMERS[transformer]()
        found = self.time_fit_transform()
        lengths = np.sqrt(self.X.sum(axis=1))
        truth = sp.diags_array(1 / np.maximum(lengths, 1)) @ self.X
        error = abs(found - truth).max() if transformer == "normalise" else 0
        self.error = answers.at_most(1e-5, error)
        self.entries = found.nnz if sp.issparse(found) else len(self.X.data)

    def time_fit_transform(self, *_):
        return self.transformer.fit_transform(self.X)

    def track_entries(self, *_):
        return self.entries

    track_entries.unit = "non-zeros"

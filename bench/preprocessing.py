"""Sparse weightings before a factorisation."""

import numpy as np
import scipy.sparse as sp

import fastcos
from bench import answers
from bench.products import SHAPES, interactions

TRANSFORMERS = {
    "normalise": fastcos.models.NormalizeRows,
    "standardise": fastcos.models.StandardizeColumns,
    "popularity": fastcos.models.PopularityWeights,
    "ppmi": fastcos.models.ShiftedPPMI,
}


def over(divisors):
    """Return the diagonal matrix of reciprocals; 0 counts as 1."""
    return sp.diags_array(1 / np.where(divisors > 0, divisors, 1))


def deviations(X):
    mean = X.mean(axis=0)
    return np.sqrt(np.maximum((X * X).mean(axis=0) - mean * mean, 0))


# all entries of X are 1
TRUTHS = {
    "normalise": lambda X: over(np.sqrt(X.sum(axis=1))) @ X,
    "standardise": lambda X: X @ over(deviations(X)),
    "popularity": lambda X: X @ over(np.sqrt(X.sum(axis=0))),
}


class Weightings(answers.Situation):
    """fit_transform of all transformers."""

    params = [list(TRANSFORMERS), list(SHAPES)]
    param_names = ["transformer", "shape"]
    # it counts pairs of items: a minute if the popular items have 40,000 users
    skip_params = [("ppmi", "40,000 x 20,000")]

    @answers.once
    def setup(self, transformer, shape):
        self.X = interactions(shape)
        self.transformer = TRANSFORMERS[transformer]()
        found = self.time_fit_transform()
        self.error = np.nan  # asv shows n/a
        if transformer in TRUTHS:
            deviation = abs(found - TRUTHS[transformer](self.X.astype(np.float64)))
            self.error = answers.at_most(1e-5, deviation.max())
        self.entries = found.nnz

    def time_fit_transform(self, *_):
        return self.transformer.fit_transform(self.X)

    def track_error(self, *_):
        return self.error

    track_error.unit = "largest deviation"

    def track_entries(self, *_):
        return self.entries

    track_entries.unit = "non-zeros"

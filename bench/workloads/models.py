"""Models: fit, and recommendations."""

import warnings

import numpy as np

import fastcos
from bench import answers, inputs
from bench.limits import Work, bytes_of, svd_work
from bench.workloads import Workload
from bench.workloads.sparse import MIDDLE, SMALL

N_COMPONENTS = 16
N_PASSES = 5


class LinearMFFit(Workload):
    """Fit of a linear matrix factorisation."""

    question = "models"
    unit = "non-zeros"
    axes = {"shape": [MIDDLE], "objective": ["dropout", "weight_decay"]}
    quick = {"objective": ["dropout"]}
    roofline = {"objective": ["dropout"]}
    limit = 1e-2

    def make(self, shape, objective):
        warnings.simplefilter("ignore", fastcos.models.AmbiguousSolutionWarning)
        self.X = inputs.interactions(shape)
        self.model = fastcos.LinearMF(N_COMPONENTS, objective=objective, regularization=10.0)

    def call(self):
        return self.model.fit(self.X)

    def error(self, answer):
        return answers.eigen_residual(self.X, answer.singular_values_, answer.components_)

    def work(self):
        return svd_work(self.X, N_COMPONENTS)


class CosineMFFit(Workload):
    """Fit of a cosine factorisation by a fixed number of passes."""

    question = "models"
    unit = "pairs"
    axes = {"shape": [SMALL]}
    roofline = {}

    def make(self, shape):
        self.X = inputs.interactions(shape)
        self.model = fastcos.CosineMF(N_COMPONENTS, max_iter=N_PASSES, validation_fraction=0.0)

    def call(self):
        return self.model.fit(self.X)

    def error(self, answer):
        """Known items must score above any."""
        scores = answer.user_embeddings(self.X) @ answer.item_embeddings().T
        drawn = np.random.default_rng(0).permuted(scores, axis=1)
        return float(scores[self.X.toarray() > 0].mean() - drawn.mean() < 0.02)

    def work(self):
        """Count the cosine of every known pair in every pass."""
        pairs = float(N_PASSES * self.X.nnz)
        return Work(pairs, 3 * pairs * N_COMPONENTS, reads=bytes_of(self.X))


class Recommend(Workload):
    """Recommendations without the items that users know."""

    question = "models"
    unit = "pairs"
    limit = 1e-5
    roofline = {}

    def make(self):
        self.X = inputs.interactions(SMALL)
        self.model = fastcos.LinearMF(N_COMPONENTS, regularization=10.0).fit(self.X)

    def call(self):
        return self.model.recommend(self.X, 10)

    def error(self, answer):
        """Compare with scores by V, the shrinkage and V'."""
        Vt = self.model.components_.astype(np.float64)
        scores = (self.X @ Vt.T * self.model.shrinkage_) @ Vt
        scores = np.where(self.X.toarray() > 0, -np.inf, scores)
        best = -np.sort(-scores, axis=1)[:, :10]
        lost = best - np.take_along_axis(scores, answer.indices, axis=1)
        return lost.max() / best.max()

    def work(self):
        n, p = self.X.shape
        return Work(float(n) * p, float(n) * p * N_COMPONENTS, "tile", bytes_of(self.X))

"""Models: fit, transform, embeddings, recommendations."""

import warnings

import numpy as np

import fastcos
from bench import answers
from bench.products import SHAPES, interactions

N_COMPONENTS = 16


class LinearModel(answers.Situation):
    """LinearMF under both objectives."""

    params = [list(SHAPES), ["dropout", "weight_decay"]]
    param_names = ["shape", "objective"]

    @answers.once
    def setup(self, shape, objective):
        self.X, self.objective = interactions(shape), objective
        warnings.simplefilter("ignore", fastcos.models.AmbiguousSolutionWarning)
        self.model = self.time_fit()
        wide, Vt = self.X.astype(np.float64), self.model.components_.astype(np.float64)
        s = self.model.singular_values_
        residual = np.linalg.norm(wide.T @ (wide @ Vt.T) - Vt.T * s**2, axis=0).max() / s[0] ** 2
        self.residual = answers.at_most(1e-2, residual)

    def time_fit(self, *_):
        model = fastcos.LinearMF(N_COMPONENTS, objective=self.objective, regularization=10.0)
        return model.fit(self.X)

    def time_transform(self, *_):
        return self.model.transform(self.X)

    def time_item_embeddings(self, *_):
        return self.model.item_embeddings("balanced" if self.objective == "dropout" else None)

    def track_residual(self, *_):
        return self.residual

    track_residual.unit = "share of the largest eigenvalue"

    def track_peak_bytes(self, *_):
        return answers.peak_bytes(self.time_fit)

    track_peak_bytes.unit = "bytes"


class CosineModel(answers.Situation):
    """CosineMF, a fixed number of passes."""

    params = [["2,000 x 500"]]
    param_names = ["shape"]

    @answers.once
    def setup(self, shape):
        self.X = interactions(shape)
        self.model = self.time_fit()
        users, items = self.model.user_embeddings(self.X), self.model.item_embeddings()
        scores = users @ items.T
        drawn = np.random.default_rng(0).permuted(scores, axis=1)
        known = self.X.toarray() > 0
        self.gap = float(scores[known].mean() - drawn[known].mean())
        answers.at_most(0, float(self.gap < 0.02))

    def time_fit(self, *_):
        return fastcos.CosineMF(N_COMPONENTS, max_iter=5, validation_fraction=0.0).fit(self.X)

    def time_transform(self, *_):
        return self.model.transform(self.X)

    def track_score_of_known_above_any(self, *_):
        return self.gap

    track_score_of_known_above_any.unit = "cosine"


class Recommendation(answers.Situation):
    """Recommendations without the items that users know."""

    @answers.once
    def setup(self):
        self.X = interactions("2,000 x 500")
        warnings.simplefilter("ignore", fastcos.models.AmbiguousSolutionWarning)
        self.model = fastcos.LinearMF(N_COMPONENTS, regularization=10.0).fit(self.X)
        found = self.time_recommend().indices
        wide = self.X.toarray().astype(np.float64)
        scores = self.model.transform(self.X) @ self.model.item_embeddings().astype(np.float64).T
        scores = np.where(wide > 0, -np.inf, scores)
        best = -np.sort(-scores, axis=1)[:, :10]
        lost = best - np.take_along_axis(scores, found, axis=1)
        self.error = answers.at_most(1e-5, float(lost.max() / best.max()))

    def time_recommend(self):
        return self.model.recommend(self.X, 10)

    def track_error(self):
        return self.error

    track_error.unit = "share of the best score"

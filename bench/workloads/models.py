"""Models: fit, transform, embeddings, recommendations."""

import warnings

import numpy as np

import fastcos
from bench import answers, inputs
from bench.workloads import Work, Workload
from bench.workloads.sparse import MIDDLE, SMALL, bytes_of

N_COMPONENTS = 16
N_PASSES = 5


class _Model(Workload):
    """A model of interactions."""

    question = "models"
    unit = "non-zeros"
    axes = {"shape": [SMALL, MIDDLE], "objective": ["dropout", "weight_decay"]}
    quick = None

    def make(self, shape, objective):
        warnings.simplefilter("ignore", fastcos.models.AmbiguousSolutionWarning)
        self.X, self.objective = inputs.interactions(shape), objective
        self.model = self.new().fit(self.X)

    def new(self):
        return fastcos.LinearMF(N_COMPONENTS, objective=self.objective, regularization=10.0)

    def scores(self, users):
        """Return the predictions for some users, in float64."""
        Vt = self.model.components_.astype(np.float64)
        return (self.X[users] @ Vt.T * self.model.shrinkage_) @ Vt

    def work(self):
        """Count X A, with as many columns as the model has."""
        nnz, p = float(self.X.nnz), self.X.shape[1]
        return Work(nnz, nnz * N_COMPONENTS, "float32", bytes_of(self.X), 0.0, nnz,
                    (p, N_COMPONENTS), self.X.indices)  # fmt: skip


class LinearMFFit(_Model):
    limit = 1e-2
    quick = {"shape": [MIDDLE], "objective": ["dropout"]}

    def call(self):
        return self.new().fit(self.X)

    def error(self, answer):
        return answers.eigen_residual(self.X, answer.singular_values_, answer.components_)

    def work(self):
        """Count two blocks of columns, as for the SVD."""
        one = super().work()
        return one._replace(multiply_adds=4 * one.multiply_adds, gathers=4 * one.gathers)


class LinearMFTransform(_Model):
    limit = 1e-4

    def call(self):
        return self.model.transform(self.X)

    def error(self, answer):
        items = self.model.item_embeddings().astype(np.float64)
        return answers.relative_error(answer[:50] @ items.T, self.scores(slice(50)))


class ItemEmbeddings(_Model):
    unit = "items"
    limit = 1e-5

    def call(self):
        return self.model.item_embeddings("balanced" if self.objective == "dropout" else None)

    def error(self, answer):
        """Compare scores of some users, which no rescaling changes."""
        rescaling = "balanced" if self.objective == "dropout" else None
        users = self.model.user_embeddings(self.X[:50], rescaling)
        return answers.relative_error(users @ answer.T.astype(np.float64), self.scores(slice(50)))

    def work(self):
        size = 4.0 * self.X.shape[1] * N_COMPONENTS
        return Work(self.X.shape[1], reads=size, writes=size)


class CosineMFFit(_Model):
    """A fixed number of passes; known items must score above any."""

    unit = "pairs"
    axes = {"shape": [SMALL]}

    def make(self, shape):
        self.X = inputs.interactions(shape)

    def call(self):
        return fastcos.CosineMF(N_COMPONENTS, max_iter=N_PASSES, validation_fraction=0.0).fit(
            self.X
        )

    def error(self, answer):
        scores = answer.user_embeddings(self.X) @ answer.item_embeddings().T
        drawn = np.random.default_rng(0).permuted(scores, axis=1)
        return float(scores[self.X.toarray() > 0].mean() - drawn.mean() < 0.02)

    def work(self):
        """Count the cosine of every known pair in every pass."""
        pairs = float(N_PASSES * self.X.nnz)
        return Work(pairs, 3 * pairs * N_COMPONENTS, reads=bytes_of(self.X))


class Recommend(_Model):
    """Recommendations without the items that users know."""

    unit = "pairs"

    limit = 1e-5
    axes = {"shape": [SMALL], "objective": ["dropout"]}

    def call(self):
        return self.model.recommend(self.X, 10)

    def error(self, answer):
        scores = self.model.transform(self.X) @ self.model.item_embeddings().astype(np.float64).T
        scores = np.where(self.X.toarray() > 0, -np.inf, scores)
        best = -np.sort(-scores, axis=1)[:, :10]
        lost = best - np.take_along_axis(scores, answer.indices, axis=1)
        return lost.max() / best.max()

    def work(self):
        n, p = self.X.shape
        return Work(float(n) * p, float(n) * p * N_COMPONENTS, "tile", bytes_of(self.X))

"""Models: fit, and recommendations."""

import warnings
from functools import partial

import numpy as np

import fastcos
from bench import inputs
from bench.limits import Work, bytes_of, svd_work
from bench.workloads import Case, Workload
from bench.workloads.sparse import MIDDLE, SMALL

N_COMPONENTS = 16
N_PASSES = 5


@Workload(
    "models", unit="non-zeros", axes={"shape": [MIDDLE], "objective": ["dropout", "weight_decay"]},
    quick={"objective": ["dropout"]}, roofline={"objective": ["dropout"]}, limit=1e-2,
)  # fmt: skip
def LinearMFFit(shape, objective):
    """Fit of a linear matrix factorisation."""
    warnings.simplefilter("ignore", fastcos.models.AmbiguousSolutionWarning)
    X = inputs.interactions(shape)
    model = fastcos.LinearMF(N_COMPONENTS, objective=objective, regularization=10.0)

    def error(answer):
        """Return the largest |X'Xv - s^2 v| as a share of the largest eigenvalue of X'X."""
        wide, s, V = X.astype(np.float64), answer.singular_values_, answer.components_.T
        V = V.astype(np.float64)
        return np.linalg.norm(wide.T @ (wide @ V) - V * s**2, axis=0).max() / s[0] ** 2

    return Case(partial(model.fit, X), error, svd_work(X, N_COMPONENTS))


@Workload("models", unit="pairs", axes={"shape": [SMALL]}, roofline={})
def CosineMFFit(shape):
    """Fit of a cosine factorisation by a fixed number of passes."""
    X = inputs.interactions(shape)
    model = fastcos.CosineMF(N_COMPONENTS, max_iter=N_PASSES, validation_fraction=0.0)

    def error(answer):
        """Known items must score above any."""
        scores = answer.user_embeddings(X) @ answer.item_embeddings().T
        drawn = np.random.default_rng(0).permuted(scores, axis=1)
        return float(scores[X.toarray() > 0].mean() - drawn.mean() < 0.02)

    # the cosine of every known pair in every pass
    pairs = float(N_PASSES * X.nnz)
    work = Work(pairs, 3 * pairs * N_COMPONENTS, reads=bytes_of(X))
    return Case(partial(model.fit, X), error, work)


@Workload("models", unit="pairs", limit=1e-5, roofline={})
def Recommend():
    """Recommendations without the items that users know."""
    X = inputs.interactions(SMALL)
    model = fastcos.LinearMF(N_COMPONENTS, regularization=10.0).fit(X)

    def error(answer):
        """Compare with scores by V, the shrinkage and V'."""
        Vt = model.components_.astype(np.float64)
        scores = (X @ Vt.T * model.shrinkage_) @ Vt
        scores = np.where(X.toarray() > 0, -np.inf, scores)
        best = -np.sort(-scores, axis=1)[:, :10]
        lost = best - np.take_along_axis(scores, answer.indices, axis=1)
        return lost.max() / best.max()

    pairs = float(X.shape[0] * X.shape[1])
    work = Work(pairs, pairs * N_COMPONENTS, "tile", bytes_of(X))
    return Case(partial(model.recommend, X, 10), error, work)

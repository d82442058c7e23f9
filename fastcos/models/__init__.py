"""Matrix factorisations and preprocessing of interactions; all are scikit-learn estimators.

A model maps users (rows of X) and items (columns) to k-dimensional rows::

    X -> preprocessing (optional) -> fit -> item_embeddings()      rows for top_k, audit, metrics
                                         -> user_embeddings(X)     the same as transform(X)
                                         -> scoring_embeddings(X)  inner products are scores
                                         -> recommend(X, k)        top_k of these scores

``LinearMF`` solves the two objectives of arXiv:2403.05440 in closed form from one truncated SVD;
objective "dropout" leaves a diagonal rescaling of the columns free. ``CosineMF`` trains with
normalised rows (``cosine_training``, kernels in ``kernels.training``), so that no rescaling is
free. ``NormalizeRows``, ``StandardizeColumns``, ``PopularityWeights`` and ``ShiftedPPMI`` transform
X before training and keep it sparse. Models have ``save`` and ``load``.

``simulate_interactions`` draws the interactions of the paper's section 4, with known item clusters,
and ``presets`` lists the named readings of the choices that the paper leaves open.
"""

from fastcos.models.base import ScoringEmbeddings
from fastcos.models.cosine_mf import CosineMF
from fastcos.models.linear_mf import AmbiguousSolutionWarning, LinearMF
from fastcos.models.preprocessing import (
    NormalizeRows,
    PopularityWeights,
    ShiftedPPMI,
    StandardizeColumns,
)
from fastcos.models.simulation import Simulation, presets, simulate_interactions

__all__ = [
    "AmbiguousSolutionWarning",
    "CosineMF",
    "LinearMF",
    "NormalizeRows",
    "PopularityWeights",
    "ScoringEmbeddings",
    "ShiftedPPMI",
    "Simulation",
    "StandardizeColumns",
    "presets",
    "simulate_interactions",
]

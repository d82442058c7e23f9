"""Matrix factorisations and preprocessing of interactions, as estimators for scikit-learn.

A model maps the users (rows of X) and the items (columns of X) to k-dimensional rows::

    X -> preprocessing (optional) -> fit -> item_embeddings()      rows for top_k, audit, metrics
                                         -> user_embeddings(X)     the same as transform(X)
                                         -> scoring_embeddings(X)  inner products are scores
                                         -> recommend(X, k)        top_k of these scores

``LinearMF`` solves the two objectives of arXiv:2403.05440 in closed form from one truncated SVD.
The objective "dropout" does not determine the scales of the latent dimensions: every diagonal
rescaling of these dimensions gives another solution. ``CosineMF`` normalises users and items during
training, so its loss determines the scales of its latent dimensions. The module ``cosine_training``
contains the training loop of ``CosineMF``, and ``kernels.training`` contains the kernels that the
loop calls. The transformers ``NormalizeRows``, ``StandardizeColumns``, ``PopularityWeights`` and
``ShiftedPPMI`` change X before training and keep X sparse. Every model has the methods ``save`` and
``load``.

``simulate_interactions`` draws interactions with known item clusters, as in section 4 of the paper
arXiv:2403.05440. The paper leaves some details of its simulation open. ``presets`` returns several
presets, and each preset is one choice of all these details.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastcos.models.cosine_mf import CosineMF as CosineMF
    from fastcos.models.linear_mf import (
        AmbiguousSolutionWarning as AmbiguousSolutionWarning,
        LinearMF as LinearMF,
    )
    from fastcos.models.preprocessing import (
        NormalizeRows as NormalizeRows,
        PopularityWeights as PopularityWeights,
        ShiftedPPMI as ShiftedPPMI,
        StandardizeColumns as StandardizeColumns,
    )
    from fastcos.models.simulation import (
        Simulation as Simulation,
        presets as presets,
        simulate_interactions as simulate_interactions,
    )
    from fastcos.similarity.scoring_embeddings import ScoringEmbeddings as ScoringEmbeddings

# Each name is imported only when it is first used, so that a program that only simulates does not
# wait for the import of scikit-learn.
_NAMES_OF = {
    "models.cosine_mf": ("CosineMF",),
    "models.linear_mf": ("AmbiguousSolutionWarning", "LinearMF"),
    "models.preprocessing": (
        "NormalizeRows", "PopularityWeights", "ShiftedPPMI", "StandardizeColumns",
    ),
    "models.simulation": ("Simulation", "presets", "simulate_interactions"),
    "similarity.scoring_embeddings": ("ScoringEmbeddings",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"fastcos.{_MODULE_OF[name]}"), name)

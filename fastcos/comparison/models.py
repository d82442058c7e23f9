"""Models that ``compare`` fits: one model per objective, all from one factorisation of X."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone

from fastcos import validation
from fastcos.comparison.candidates import EQ2
from fastcos.models.linear_mf import N_COMPONENTS, LinearMF
from fastcos.models.preprocessing import (
    NormalizeRows,
    PopularityWeights,
    ShiftedPPMI,
    StandardizeColumns,
)
from fastcos.parallel import Progress
from fastcos.similarity.rescalings import Rescaling, rescaling_grid, rescalings

# The accepted values of ``objective``: Eq. 1 is "dropout", Eq. 2 is "weight_decay".
OBJECTIVES = ("both", "dropout", "weight_decay")


class Settings(NamedTuple):
    """The validated arguments of the models that ``compare`` fits.

    If a regularisation strength is None, its default is computed from the data.
    """

    n_components: int
    objective: str
    regularization: float | None
    weight_decay: float | None
    random_state: int


def as_settings(
    shape: tuple[int, int], n_components: Any, objective: Any, regularization: Any,
    weight_decay: Any, random_state: Any,
) -> Settings:  # fmt: skip
    """Return the validated arguments of the models; `shape` is the shape of the interactions."""
    rank = min(N_COMPONENTS, *shape) if n_components is None else n_components
    strengths = {"regularization": regularization, "weight_decay": weight_decay}
    return Settings(
        n_components=validation.as_count("n_components", rank, high=min(shape)),
        objective=validation.as_choice("objective", objective, OBJECTIVES),
        **{
            name: None if value is None else validation.as_real(name, value, low=0)
            for name, value in strengths.items()
        },
        random_state=validation.as_count("random_state", random_state, low=0),
    )


class FittedModels(NamedTuple):
    """The fitted model of each objective, with the regularisation strengths of both objectives.

    `users` is the matrix of interactions from which the models compute user embeddings.
    """

    by_objective: dict[str, LinearMF]
    regularization: float
    weight_decay: float
    users: Any


# Each preprocessing is a pair of values: the transformer that is applied to X (or None), and the
# argument ``center`` of the model.
PREPROCESSINGS: Mapping[str, tuple[Any, bool | str]] = {
    "none": (None, False),
    "standardize_columns": (StandardizeColumns(), True),
    "center_columns": (None, True),
    "center_rows": (None, "rows"),
    "double_center": (None, "both"),
    "normalize_rows": (NormalizeRows(), False),
    "ips_columns": (PopularityWeights(column_power=0.5), False),
    "ips_rows": (PopularityWeights(column_power=0.0, row_power=0.5), False),
    "correspondence_scaling": (PopularityWeights(column_power=0.5, row_power=0.5), False),
    "shifted_ppmi": (None, False),
}


def fit_models(
    X: sp.csr_array,
    settings: Settings,
    preprocessing: str = "none",
    progress: Progress | None = None,
) -> FittedModels:
    """Fit a model for each chosen objective; all models share one factorisation of X.

    If `preprocessing` is not "none", X is transformed before the models are fitted. If X is
    transformed, the models use the default regularisation strengths, because the strengths in
    `settings` are meant for the scale of the original X.
    """
    transformer, center = PREPROCESSINGS[preprocessing]
    matrix = users = X
    if preprocessing == "shifted_ppmi":
        # The SVD of the shifted PPMI of the items is the closed-form solution of negative sampling.
        matrix = ShiftedPPMI().fit(X).ppmi_
    elif transformer is not None:
        matrix = users = clone(transformer).fit_transform(X)
    model = LinearMF(settings.n_components, center=center, random_state=settings.random_state)
    model.fit(matrix, progress=progress)
    strength, decay = settings.regularization, settings.weight_decay
    if strength is None or preprocessing != "none":
        strength = model.default_regularization("dropout")
    largest = float(model.singular_values_[0])
    if decay is None or preprocessing != "none":
        decay = math.sqrt(strength)
        # A weight decay of at least the largest singular value would make every column zero.
        if decay >= largest:
            decay = largest / 2
    if settings.objective != "dropout" and 0 < largest <= decay:
        rule = f"less than the largest singular value of X, {largest:g}"
        raise ValueError(f"weight_decay must be {rule}, got {decay:g}")
    models = {
        objective: model.reregularized(objective, value)
        for objective, value in (("dropout", strength), ("weight_decay", decay))
        if settings.objective in ("both", objective)
    }
    return FittedModels(models, strength, decay, users)


class ModelVariant(NamedTuple):
    """The item embeddings of one objective under one rescaling (None for Eq. 2)."""

    name: str
    objective: str
    rescaling: Rescaling | None

    def embeddings(self, models: Mapping[str, LinearMF]) -> npt.NDArray[np.floating[Any]]:
        """Return the item embeddings (p, k)."""
        return models[self.objective].item_embeddings(self.rescaling)


def named_variants(chosen: Sequence[str | Rescaling] | None, objective: str) -> list[ModelVariant]:
    """Return the variants of Eq. 1, one per chosen rescaling, and then the variant of Eq. 2.

    By default, all rescalings that have a name are chosen. If only Eq. 1 is compared, the result
    does not contain the variant of Eq. 2. If only Eq. 2 is compared, the result contains only this
    variant.
    """
    by_name = {named.name: named.rescaling for named in rescalings()}
    choices = by_name if chosen is None else validation.as_list("rescalings", chosen)
    diagonals = [
        choice
        if isinstance(choice, Rescaling)
        else by_name[validation.as_choice("rescalings", choice, by_name)]
        for choice in choices
    ]
    variants = [ModelVariant(D.name, "dropout", D) for D in diagonals]
    variants.append(ModelVariant(EQ2, "weight_decay", None))
    return [variant for variant in variants if objective in ("both", variant.objective)]


def grid_variants(objective: str) -> list[ModelVariant]:
    """Return the variants of Eq. 1 under a grid of rescalings; [] if only Eq. 2 is compared."""
    grid = () if objective == "weight_decay" else rescaling_grid()
    return [ModelVariant(f"grid {D.formula}", "dropout", D) for D in grid]

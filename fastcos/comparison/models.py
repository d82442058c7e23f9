"""The models behind a comparison: both objectives from one factorisation, after preprocessing."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import scipy.sparse as sp

from fastcos.measures import checks
from fastcos.models.linear_mf import LinearMF
from fastcos.models.preprocessing import (
    NormalizeRows,
    PopularityWeights,
    ShiftedPPMI,
    StandardizeColumns,
)
from fastcos.parallel import Progress


class Settings(NamedTuple):
    """What decides the models; strengths None for the default of the data."""

    n_components: int
    objective: str
    regularization: float | None
    weight_decay: float | None
    seed: int


class Fitted(NamedTuple):
    """Models by objective, the strengths they have, and what their users' rows are made of."""

    models: dict[str, LinearMF]
    regularization: float
    weight_decay: float
    users: Any


class Prepared(NamedTuple):
    """What a model is fitted to, what its users' rows are made of, whether it subtracts means."""

    matrix: Any
    users: Any
    center: bool | str = False


def _transformed(transformer: Any, *, center: bool = False) -> Callable[[sp.csr_array], Prepared]:
    def prepare(X: sp.csr_array) -> Prepared:
        changed = transformer.fit_transform(X)
        return Prepared(changed, changed, center)

    return prepare


def _co_occurrence(X: sp.csr_array) -> Prepared:
    # the SVD of the matrix itself is the closed form of negative sampling
    return Prepared(ShiftedPPMI().fit(X).ppmi_, X)


PREPROCESSINGS: Mapping[str, Callable[[sp.csr_array], Prepared]] = {
    "none": lambda X: Prepared(X, X),
    "standardize_columns": _transformed(StandardizeColumns(), center=True),
    "center_columns": lambda X: Prepared(X, X, center=True),
    "center_rows": lambda X: Prepared(X, X, center="rows"),
    "double_center": lambda X: Prepared(X, X, center="both"),
    "normalize_rows": _transformed(NormalizeRows()),
    "ips_columns": _transformed(PopularityWeights(column_power=0.5)),
    "ips_rows": _transformed(PopularityWeights(column_power=0.0, row_power=0.5)),
    "correspondence_scaling": _transformed(PopularityWeights(column_power=0.5, row_power=0.5)),
    "shifted_ppmi": _co_occurrence,
}


def fit_models(
    X: sp.csr_array,
    settings: Settings,
    preprocessing: str = "none",
    progress: Progress | None = None,
) -> Fitted:
    """Fit both objectives (or the one chosen) to preprocessed X by one factorisation.

    Given strengths are in the units of X itself; after a preprocessing the defaults hold.
    """
    prepared = PREPROCESSINGS[preprocessing](X)
    model = LinearMF(settings.n_components, center=prepared.center, random_state=settings.seed)
    model.fit(prepared.matrix, progress=progress)
    strength, decay = settings.regularization, settings.weight_decay
    if strength is None or preprocessing != "none":
        strength = model.default_regularization("dropout")
    largest = float(model.singular_values_[0])
    if decay is None or preprocessing != "none":
        decay = math.sqrt(strength)
        if decay >= largest:  # the knee of at most 5 columns is the first, and none would be left
            decay = largest / 2
    if settings.objective != "dropout" and largest > 0:
        checks.as_leaving_columns("weight_decay", decay, largest)
    models = {
        objective: model.reregularized(objective, value)
        for objective, value in (("dropout", strength), ("weight_decay", decay))
        if settings.objective in ("both", objective)
    }
    return Fitted(models, strength, decay, prepared.users)

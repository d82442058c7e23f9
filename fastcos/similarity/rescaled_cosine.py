"""Two kinds of cosines: under the rescalings of the paper's model, and from the model's weights."""

import functools
from typing import Any, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.similarity.base import REGISTRY, BaseMeasure, Invariances, register
from fastcos.similarity.linear import Mapped, require_parameter
from fastcos.similarity.rescalings import Rescaling, as_diagonal, rescalings
from fastcos.similarity.row_transforms import inverses
from fastcos.validation import Floats, Rows


class ModelSpectrum(NamedTuple):
    """The diagonals of S and Σ of a model; the fields are named like the attributes of LinearMF."""

    shrinkage_: Floats
    singular_values_: Floats


def _spectrum_of(model: Any) -> ModelSpectrum | None:
    """Return the spectrum of a fitted LinearMF of objective (1), or None if there is no model."""
    if model is None:
        return None
    is_fitted = hasattr(model, "shrinkage_") and hasattr(model, "singular_values_")
    objective = getattr(model, "objective", "dropout")
    if not is_fitted or objective != "dropout":
        got = type(model).__name__ + " without fit" * hasattr(model, "fit")
        if is_fitted:
            got = f"one of the objective {validation.format_value(objective)}"
        raise TypeError(f"model must be a fitted LinearMF of the objective 'dropout', got {got}")
    return ModelSpectrum(model.shrinkage_, model.singular_values_)


@register
class RescaledCosine(Mapped):
    """Cosine of the items V_k S^½ D^-1 after a rescaling D of the symmetric solution V_k S^½.

    A named rescaling has the form D = S^c Σ^e with exponents c and e. Pitfall: the solutions for
    all D have the same loss, but their cosines compare different properties of the items. The
    function ``fastcos.rescalings()`` lists the meaning of the cosine under each named D. Sources:
    arXiv:2403.05440, Eq. 3; Levy et al. 2015 for the family of exponents.

    Parameters
    ----------
    rescaling : str, Rescaling or array_like (d,), default "identity"
        D, in any form that a ``rescaling=`` argument accepts.
    model : LinearMF, optional
        The fitted model whose ``item_embeddings()`` are the rows; its objective must be "dropout".
        A model is required unless ``rescaling`` is "identity" or an array.
    """

    name = "rescaled_cosine"
    needs = "model"

    def __init__(self, rescaling: Any = "identity", *, model: Any = None) -> None:
        self.model = _spectrum_of(model)
        self.rescaling: Any
        if isinstance(rescaling, str):
            names = [named.name for named in rescalings()]
            self.rescaling = validation.as_choice("rescaling", rescaling, names)
        elif isinstance(rescaling, Rescaling):
            spectrum = require_parameter("model", self.model, self.name)
            self.rescaling = as_diagonal(rescaling, *spectrum)
        else:
            self.rescaling = validation.as_vector("rescaling", rescaling)

    def _fit(self, items: Rows, users: Rows | None) -> None:
        d = items.shape[1]
        is_name, identity = isinstance(self.rescaling, str), ModelSpectrum(np.ones(d), np.ones(d))
        if is_name and self.rescaling != "identity":
            require_parameter("model", self.model, f"{self.name}:{self.rescaling}")
        diagonal = as_diagonal(self.rescaling, *(self.model or identity))
        validation.check_same_width("items", items, "D", diagonal[None])
        self.mean_, self.root_ = np.zeros(d), 1 / diagonal


for _named in rescalings():
    REGISTRY[f"rescaled_cosine:{_named.name}"] = functools.partial(RescaledCosine, _named.name)


@register
class Eq2Cosine(Mapped):
    """Cosine of V_k sqrt((σ - λ)_+), the solution of objective (2) of the paper (Eq. 6).

    Columns with a σ of at most λ become zero. An item becomes a zero row if its entries in all
    remaining columns are zero. Objective (2) determines its solution up to a rotation, which
    changes no cosine. If the rows already are the solution of objective (2), the measure equals the
    plain cosine. Sources: arXiv:2403.05440, Eq. 6; Zheng et al. arXiv:1804.05090.

    Parameters
    ----------
    model : LinearMF, optional
        The fitted model whose ``item_embeddings()`` (V_k S^½) are the rows; its objective must be
        "dropout". If no model is passed, the rows must already be the items of Eq. 6. For example,
        a model with the objective "weight_decay" returns these items from ``item_embeddings()``.
    regularization : float, default 100
        The regularisation λ of objective (2) of the paper; it is used only with a model.
    """

    name = "eq2_cosine"

    def __init__(self, *, model: Any = None, regularization: float = 100.0) -> None:
        self.regularization = validation.as_real("regularization", regularization, low=0)
        self.model = _spectrum_of(model)

    def _fit(self, items: Rows, users: Rows | None) -> None:
        d = items.shape[1]
        self.mean_, self.root_ = np.zeros(d), np.ones(d)
        if self.model is not None:
            shrinkage, values = self.model
            validation.check_same_width("items", items, "model", shrinkage[None])
            is_nonzero = shrinkage > 0
            self.root_[~is_nonzero] = 0
            values = np.maximum(values[is_nonzero] - self.regularization, 0)
            self.root_[is_nonzero] = np.sqrt(values / shrinkage[is_nonzero])


@register
class WeightCosine(BaseMeasure):
    """W_ij / sqrt(W_ii W_jj) for the weights W = AB' of a model; row i is [a_i, b_i], of width 2k.

    For A = B (Eq. 5 of the paper), the value is the cosine of b_i and b_j. No reparametrisation of
    the model changes the value of the measure. Pass the factors A and B side by side, as
    ``np.hstack([A, B])``. Pitfalls: W_ii must be at least 0; an item with W_ii = 0 becomes a zero
    row. Unless W is symmetric and positive semidefinite, the value is not a cosine and may lie
    outside of [-1, 1].
    """

    name = "weight_cosine"
    metric_type = "dot"
    needs = "rows [a_i, b_i]"
    invariances = Invariances(s="y", r="-", R="y", D="y", G="y", t="-")

    def encode_queries(self, Q: Rows) -> Rows:
        """Return a_i / sqrt(W_ii), (n, k) float64."""
        return self._half(Q, 0)

    def encode_items(self, B: Rows) -> Rows:
        """Return b_i / sqrt(W_ii), (p, k) float64."""
        return self._half(B, 1)

    def _half(self, rows: Rows, side: int) -> Floats:
        """Return the rows a_i (side 0) or the rows b_i (side 1), divided by sqrt(W_ii)."""
        if rows.shape[1] % 2:
            raise ValueError(f"rows must have an even number of columns, got {rows.shape[1]}")
        k = rows.shape[1] // 2
        weights = np.einsum("ij,ij->i", rows[:, :k], rows[:, k:], dtype=np.float64)
        if weights.min() < 0:
            i = int(weights.argmin())
            raise ValueError(
                f"W_ii must be at least 0 for each row, got {weights[i]:g} for row {i}"
            )
        half = rows[:, side * k : (side + 1) * k].astype(np.float64)
        half *= inverses(np.sqrt(weights))[:, None]
        return half

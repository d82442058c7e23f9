"""A diagonal metric learned from pairs of items that are known to be alike or not."""

from typing import Any, ClassVar

import numpy as np
import scipy.optimize

from fastcos import validation
from fastcos.measures import checks
from fastcos.measures.base import Invariances, Rows, invariances, register
from fastcos.measures.linear import Mapped
from fastcos.measures.row_transforms import Floats, unit_rows


@register
class LearnedDiagonal(Mapped):
    """Σ w x y / sqrt(Σ w x² Σ w y²), with weights w of the columns fitted to labelled pairs.

    w maximises the correlation of these cosines with the targets over all w whose largest ratio is
    κ², that is over the rescalings D of condition at most κ. The search starts from the plain
    cosine and ends in a local maximum, never below its start. Pitfalls: it fits d numbers, so give
    many more pairs than columns, and judge it on others; depends on the basis. Source: this
    project, after learned similarity (Herbold arXiv:2309.12697).

    Parameters
    ----------
    pairs : array_like (m, 2), int, optional
        Item numbers; required.
    targets : array_like (m,), optional
        How alike each pair is: any scale, such as 0 and 1; required.
    condition : float, default 10
        κ >= 1.
    """

    name: ClassVar[str] = "learned_diagonal"
    needs: ClassVar[str] = "pairs and targets"
    invariances: ClassVar[Invariances] = invariances("s=y r=y R=- D=- G=- t=-")

    def __init__(self, pairs: Any = None, targets: Any = None, *, condition: float = 10.0) -> None:
        given = checks.as_given("pairs", pairs, self.name)
        self.pairs = checks.as_pairs("pairs", given)
        given = checks.as_given("targets", targets, self.name)
        self.targets = validation.as_vector("targets", given, len(self.pairs))
        checks.check_varied("targets", self.targets)
        self.condition = validation.as_real("condition", condition, low=1)

    def _fit(self, items: Rows, users: Rows | None) -> None:
        """Fit the weights by L-BFGS-B over their logarithms."""
        pairs = checks.as_pairs("pairs", self.pairs, len(items))
        x, y = (unit_rows(items[pairs[:, side]]) for side in (0, 1))
        some = x.any(axis=1) & y.any(axis=1)
        if not some.any():
            raise ValueError("pairs must be of rows that are not zero, got a zero row in each pair")
        moments = (x * y)[some], (x * x)[some], (y * y)[some]
        targets = self.targets[some] - self.targets[some].mean()
        bound = np.log(self.condition)
        start = np.zeros(items.shape[1])
        done = scipy.optimize.minimize(
            _loss, start, (*moments, targets), "L-BFGS-B", jac=True,
            bounds=[(-bound, bound)] * len(start),
        )  # fmt: skip
        better = done.fun < _loss(start, *moments, targets)[0]
        self.mean_ = np.zeros(len(start))
        self.root_ = np.exp((done.x if better else start) / 2)


def _loss(
    logs: Floats, xy: Floats, xx: Floats, yy: Floats, targets: Floats
) -> tuple[float, Floats]:
    """Minus the correlation of weighted cosines with centred targets, and its gradient."""
    w = np.exp(logs)
    a, b = xx @ w, yy @ w
    norms = np.sqrt(a * b)
    cosines = (xy @ w) / norms
    centred = cosines - cosines.mean()
    size, target_size = np.linalg.norm(centred), np.linalg.norm(targets)
    if size <= 1e-12 or target_size == 0:
        return 0.0, np.zeros(len(w))
    correlation = float(centred @ targets / (size * target_size))
    slope = targets / (size * target_size) - correlation * centred / size**2
    by_weight = (slope / norms) @ xy - 0.5 * (
        (slope * cosines / a) @ xx + (slope * cosines / b) @ yy
    )
    return -correlation, -by_weight * w

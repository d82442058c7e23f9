"""Measures that depend on the norms of rows and on their directions."""

import numpy as np

from fastcos import validation
from fastcos.similarity.base import BaseMeasure, Invariances, register
from fastcos.similarity.moments import blocks_of
from fastcos.similarity.row_transforms import norms_of, unit_rows
from fastcos.validation import Floats, Rows


@register
class RadialCosine(BaseMeasure):
    """Cosine times |x|^γ |y|^γ: the cosine for γ = 0, the inner product for γ = 1.

    Pitfall: if popular items have large norms, a larger γ favours popular items. The value has no
    fixed range. The name is from arXiv:2504.16318, which gives no formula; the formula comes from
    this project.

    Parameters
    ----------
    power : float, default 0.5
        The exponent γ of the norms, at least 0.
    """

    name = "radial_cosine"
    metric_type = "dot"
    invariances = Invariances(s="rank", r="-", R="y", D="-", G="-", t="-")

    def __init__(self, power: float = 0.5) -> None:
        self.power = validation.as_real("power", power, low=0)

    def encode_items(self, B: Rows) -> Rows:
        """Return |b|^γ times the unit row, float64."""
        return unit_rows(B, norms_of(B) ** self.power)


class _MeanNorm(BaseMeasure):
    """Base class of measures that divide each norm by the mean norm of all nonzero items."""

    metric_type = "dot"
    invariances = Invariances(s="y", r="-", R="y", D="-", G="-", t="-")
    fits_in_blocks = True
    mean_norm_: float

    def _fit(self, items: Rows, users: Rows | None) -> None:
        norms = np.concatenate([norms_of(block) for _, block in blocks_of(items)])
        self.mean_norm_ = float(norms[norms > 0].mean()) if norms.any() else 1.0

    def _relative_norms(self, rows: Rows) -> Floats:
        return norms_of(rows) / self.mean_norm_


@register
class ScaledSimilarity(_MeanNorm):
    """α cosine + (1 - α) (|x| + |y|) / m, where m is the mean norm of the items that are not zero.

    Pitfalls: the value is unbounded. For one query, the items are ranked by α cosine + (1 - α) |y|
    / m, so popular items are favoured if they have large norms. In the cited article, the norms are
    not divided by m, so the measure depends on the units of the norms. To obtain the ranking of the
    article for a weight α, pass ``alpha`` = α / (α + (1 - α) m). Source: You (arXiv:2504.16318).

    Parameters
    ----------
    alpha : float, default 0.5
        The weight α of the cosine, from 0 to 1.
    """

    name = "scaled_similarity"

    def __init__(self, alpha: float = 0.5) -> None:
        self.alpha = validation.as_real("alpha", alpha, low=0, high=1)

    def encode_queries(self, Q: Rows) -> Rows:
        """Return α times the unit rows, float64."""
        return unit_rows(Q, np.full(len(Q), self.alpha))

    def encode_items(self, B: Rows) -> Rows:
        """Return the unit rows, float64."""
        return unit_rows(B)

    def item_bias(self, B: Rows) -> Floats:
        """Return (1 - α) |b| / m for each item b, where m is the mean norm."""
        return (1 - self.alpha) * self._relative_norms(B)

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return the raw scores plus (1 - α) |q| / m for each query q, where m is the mean norm."""
        return raw + (1 - self.alpha) * self._relative_norms(Q)[:, None]


@register
class FeatureAugmented(_MeanNorm):
    """Inner product or cosine of the rows [unit x, β |x| / m]; m is the mean norm of nonzero items.

    Pitfall: two rows count as similar if both have large norms. The value is the sum of the cosine
    and of β² |x| |y| / m². If ``normalized`` is true, this sum is divided by the norms of both
    augmented rows. Source: You (arXiv:2504.16318) had the idea of appending the norm to a row.

    Parameters
    ----------
    weight : float, default 1
        The weight β of the norm, at least 0.
    normalized : bool, default False
        Whether the augmented rows are scaled to unit norm.
    """

    name = "feature_augmented"

    def __init__(self, weight: float = 1.0, *, normalized: bool = False) -> None:
        self.weight = validation.as_real("weight", weight, low=0)
        self.normalized = validation.as_flag("normalized", normalized)

    def encode_items(self, B: Rows) -> Rows:
        """Return [unit b, β |b| / m], (p, d + 1) float64, where m is the mean norm."""
        norms = self.weight * self._relative_norms(B)
        rows = np.column_stack([unit_rows(B), norms])
        return unit_rows(rows) if self.normalized else rows

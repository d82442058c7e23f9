"""Cosine, inner product, angle and Euclidean distance: the measures that need no fitting."""

import numpy as np

from fastcos.similarity.base import Plain, invariances, register
from fastcos.validation import Floats


@register
class Cosine(Plain):
    """<x, y> / (|x| |y|); a zero row has no direction and scores 0 with everything.

    Pitfall: the value depends on the rescaling D of the columns, which the model may leave free.
    Source: arXiv:2403.05440.
    """

    name = "cosine"
    takes_sparse_rows = True


@register
class UserItemCosine(Plain):
    """Cosine of a user's row and an item's.

    Pitfall: unlike the inner product it depends on D, on both sides. Source: arXiv:2403.05440,
    section 2.1.
    """

    name = "user_item_cosine"


@register
class Dot(Plain):
    """<x, y>, between items.

    Pitfall: not invariant under D; popular items have large norms and come first.
    """

    name = "dot"
    takes_sparse_rows = True
    metric_type = "dot"
    invariances = invariances("s=rank r=- R=y D=- G=- t=-")


@register
class UserItemDot(Plain):
    """<user, item>: what a factorisation was trained to predict.

    The only elementary score that no reparametrisation (P G'^-1, B G) can change.
    Source: arXiv:2403.05440, section 2.
    """

    name = "user_item_dot"
    metric_type = "dot"
    invariances = invariances("s=rank r=- R=y D=y G=y t=rank")


@register
class Angular(Plain):
    """1 - angle / π: the cosine's ranking on a scale where equal steps are equal angles."""

    name = "angular"

    def to_score(self, raw: Floats, Q: object) -> Floats:
        """Return 1 - arccos(cosine) / π."""
        return 1 - np.arccos(np.clip(raw, -1, 1)) / np.pi


@register
class NegEuclidean(Plain):
    """-|x - y|, so that nearer is larger.

    On unit rows the cosine's ranking. Distances are summed from differences, so that near
    duplicates do not cancel.
    """

    name = "neg_euclidean"
    metric_type = "euclidean"
    invariances = invariances("s=rank r=- R=y D=- G=- t=y")

    def to_score(self, raw: Floats, Q: object) -> Floats:
        """Return minus the root of the squared distance."""
        return -np.sqrt(-raw)

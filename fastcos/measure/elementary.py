"""Cosine, inner product and Euclidean distance: the measures that need no fitting."""

from typing import ClassVar

import numpy as np

from fastcos.measure.base import Form, Keys, Plain, Rows, register


@register
class Cosine(Plain):
    """<x, y> / (|x| |y|); a zero row has no direction and scores 0 with everything."""

    name: ClassVar[str] = "cosine"
    form: ClassVar[Form] = "cosine"


@register
class Dot(Plain):
    """<x, y>."""

    name: ClassVar[str] = "dot"
    form: ClassVar[Form] = "dot"


@register
class NegEuclidean(Plain):
    """-|x - y|, so that nearer is larger."""

    name: ClassVar[str] = "neg_euclidean"
    form: ClassVar[Form] = "euclidean"

    def finish(self, keys: Keys, Q: Rows) -> Keys:
        """Return minus the root of the squared distance."""
        return -np.sqrt(-keys)

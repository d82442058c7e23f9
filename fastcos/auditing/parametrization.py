"""Which of the usual conventions two sides of a model follow, told by their columns.

Factors of one product differ by how they share the scale of the latent dimensions. Some sources
leave a mark: a truncated SVD hands out orthonormal columns on one side, and weight decay on both
sides makes both Gram matrices equal.
"""

from typing import NamedTuple

import numpy as np

from fastcos.auditing.variants import Floats, Moments

BALANCED, ITEMS_ORTHONORMAL, USERS_ORTHONORMAL = (
    "balanced",
    "items orthonormal",
    "users orthonormal",
)
# of what training by gradients leaves open, and of a randomised SVD
_TOLERANCE = 0.02


class Convention(NamedTuple):
    """A convention that the factors follow.

    Attributes
    ----------
    name : {"balanced", "items orthonormal", "users orthonormal"}
    meaning : str
        Where it comes from, and which side carries the spectrum.
    """

    name: str
    meaning: str


_MEANINGS = {
    BALANCED: "both sides have the same Gram matrix: weight decay on both sides (Eq. 2), or "
    "canonical factors",
    ITEMS_ORTHONORMAL: "the users carry the spectrum: the components of a truncated SVD",
    USERS_ORTHONORMAL: "the items carry the spectrum: the convention of LSA and PureSVD",
}


def convention(items: Moments, users: Moments | None) -> Convention | None:
    """Tell how the two sides share the spectrum; None where they bear no mark or are too narrow.

    Parameters
    ----------
    items : Moments
    users : Moments, optional
    """
    if len(items.second) < 2:
        return None
    own = _shape(items.second)
    even = np.eye(len(own)) / np.sqrt(len(own))
    name = None
    if users is not None:
        other = _shape(users.second)
        if _alike(own, other):
            name = BALANCED
        elif _alike(other, even):
            name = USERS_ORTHONORMAL
    if name is None and _alike(own, even):
        name = ITEMS_ORTHONORMAL
    return None if name is None else Convention(name, _MEANINGS[name])


def _shape(second: Floats) -> Floats:
    size = np.linalg.norm(second)
    return second / size if size > 0 else second


def _alike(one: Floats, other: Floats) -> bool:
    return bool(np.linalg.norm(one - other) < _TOLERANCE)

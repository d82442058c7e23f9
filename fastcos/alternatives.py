"""Item embeddings to set beside the given ones: rescalings of them, and forms that are not free."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.repairs import query_metric

Floats = npt.NDArray[np.float64]


class Variant(NamedTuple):
    """Item embeddings under a name.

    Attributes
    ----------
    name : str
    meaning : str
        What its cosines compare.
    condition : float or None
        Largest over smallest entry of the rescaling that leads to it from the given items; None
        where it is not a rescaling.
    rows : ndarray (p, r), float64
    """

    name: str
    meaning: str
    condition: float | None
    rows: Floats


def rescaled(items: Floats, users: Floats | None) -> Iterator[Variant]:
    """The given items under the scales of columns that other conventions would have chosen.

    Columns that are zero on either side stay as they are.
    """
    own = np.sqrt(np.square(items).mean(axis=0))
    own[own == 0] = 1.0
    scales = {
        "half_columns": ("columns divided by the root of their norm", own**-0.5),
        "unit_columns": ("columns of equal norm, as whitening makes them", 1 / own),
    }
    if users is not None:
        other = np.sqrt(np.square(users).mean(axis=0))
        other[other == 0] = 1.0
        scales["balanced"] = ("columns as long as the users': weight decay", np.sqrt(other / own))
        scales["weighted"] = ("columns times the users': columns of predictions", other)
    for name, (meaning, scale) in scales.items():
        yield Variant(name, meaning, float(scale.max() / scale.min()), items * scale)


def unfree(items: Floats, users: Floats | None) -> Iterator[Variant]:
    """Forms that every rescaling of the model leaves as they are.

    Whitening sees the directions of the items only; the two others see what users do with them.
    """
    if users is not None:
        for name, centered, meaning in (
            ("query_metric", True, "correlation over users of predicted scores"),
            ("project_back", False, "columns of predictions: the paper's remedy, for items"),
        ):
            metric = query_metric(users, centered=centered)
            yield Variant(name, meaning, None, items @ metric.factor)
    centred = items - items.mean(axis=0)
    _, s, Vt = np.linalg.svd(np.linalg.qr(centred, mode="r"))
    kept = np.flatnonzero(s > np.finfo(np.float64).eps * max(items.shape) * s.max(initial=0.0))
    if len(kept):
        rows = centred @ (Vt[kept].T / s[kept])
        yield Variant("whitened", "directions of the items, all alike", None, rows)


def in_random_basis(items: Floats, generator: np.random.Generator) -> Any:
    """The items in an orthogonal basis drawn at random: the same cosines, other dimensions."""
    Q, R = np.linalg.qr(generator.standard_normal((items.shape[1], items.shape[1])))
    return items @ (Q * np.sign(np.diag(R)))

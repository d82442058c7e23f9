"""Item embeddings to set beside the given ones: rescalings of them, and forms that are not free."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.engine.segments import SEGMENT_MULTIPLE
from fastcos.measures import Plain
from fastcos.storage import memmap

Floats = npt.NDArray[np.float64]
Map = Callable[[validation.Rows], validation.Rows]

# rows that are widened to float64 at once
_BLOCK = 8192


class Moments(NamedTuple):
    """What a card needs to know of the columns of one side.

    Attributes
    ----------
    mean : ndarray (d,), float64
    second : ndarray (d, d), float64
        Mean of the outer products of the rows.
    """

    mean: Floats
    second: Floats

    @property
    def covariance(self) -> Floats:
        """Mean of the outer products of the rows less their mean."""
        return self.second - np.outer(self.mean, self.mean)


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
    mapped : callable or None
        From rows of the items to the variant's, of the same type; None: as they are.
    """

    name: str
    meaning: str
    condition: float | None
    mapped: Map | None

    def rows(self, items: validation.Rows) -> validation.Rows:
        """The variant of some rows of the items."""
        return items if self.mapped is None else self.mapped(items)


AS_GIVEN = Variant("given", "the embeddings as they are", 1.0, None)


class VariantCosine(Plain):
    """The cosine of a variant's rows, as a measure of the given rows."""

    name: ClassVar[str] = "variant"

    def __init__(self, variant: Variant) -> None:
        self._variant = variant

    def items(self, B: validation.Rows) -> validation.Rows:
        """Return the variant's rows."""
        return self._variant.rows(B)


def moments(items: Any) -> Moments:
    """Mean and mean outer product of the rows, float64, in blocks of rows."""
    n, d = items.shape
    total, second = np.zeros(d), np.zeros((d, d))
    for _, rows in memmap.iter_blocks("rows", items, _BLOCK):
        block = rows.astype(np.float64)
        total += block.sum(axis=0)
        second += block.T @ block
    return Moments(total / n, second / n)


def rescaled(own: Moments, users: Moments | None) -> Iterator[Variant]:
    """The given items under the scales of columns that other conventions would have chosen.

    Columns that are zero on either side stay as they are.
    """
    sizes = _column_sizes(own)
    scales = {
        "half_columns": ("columns divided by the root of their norm", sizes**-0.5),
        "unit_columns": ("columns of equal norm, as whitening makes them", 1 / sizes),
    }
    if users is not None:
        other = _column_sizes(users)
        scales["balanced"] = ("columns as long as the users': weight decay", np.sqrt(other / sizes))
        scales["weighted"] = ("columns times the users': columns of predictions", other)
    for name, (meaning, scale) in scales.items():
        condition = float(scale.max() / scale.min())
        yield Variant(name, meaning, condition, _scaled_by(scale))


def unfree(own: Moments, users: Moments | None) -> Iterator[Variant]:
    """Forms that every rescaling of the model leaves as they are, to the accuracy of a card.

    Whitening sees the directions of the items only; the two others see what users do with them.
    """
    if users is not None:
        for name, metric, meaning in (
            ("query_metric", users.covariance, "correlation over users of predicted scores"),
            ("project_back", users.second, "columns of predictions: the paper's remedy, for items"),
        ):
            values, vectors = _eigen(metric)
            if len(values):
                zero = np.zeros(len(vectors))
                yield Variant(name, meaning, None, _times(vectors * values**0.5, zero))
    values, vectors = _eigen(own.covariance)
    if len(values):
        whitening = _times(vectors * values**-0.5, own.mean)
        yield Variant("whitened", "directions of the items, all alike", None, whitening)


def _scaled_by(scale: Floats) -> Map:
    return lambda rows: rows * scale.astype(rows.dtype)


def _times(factor: Floats, mean: Floats) -> Map:
    """The map to (rows - mean) factor, in the type of the rows, some of them at a time."""

    def mapped(rows: validation.Rows) -> validation.Rows:
        left, right = mean.astype(rows.dtype), factor.astype(rows.dtype)
        out = np.empty((len(rows), factor.shape[1]), rows.dtype)
        for lo in range(0, len(rows), SEGMENT_MULTIPLE):
            some: Any = rows[lo : lo + SEGMENT_MULTIPLE]
            np.matmul(some - left if mean.any() else some, right, out=out[lo : lo + len(some)])
        return out

    return mapped


def in_random_basis(rows: validation.Rows, generator: np.random.Generator) -> Floats:
    """The rows in an orthogonal basis drawn at random: the same cosines, other dimensions."""
    d = rows.shape[1]
    Q, R = np.linalg.qr(generator.standard_normal((d, d)))
    turned: Floats = rows.astype(np.float64) @ (Q * np.sign(np.diag(R)))
    return turned


def singular_values(second: Floats) -> Floats:
    """Singular values of rows with these second moments, falling, up to a common factor."""
    values: Floats = np.sqrt(np.maximum(np.linalg.eigvalsh(second)[::-1], 0.0))
    return values


def _column_sizes(side: Moments) -> Floats:
    sizes = np.sqrt(np.diag(side.second))
    return np.where(sizes > 0, sizes, 1.0)


def _eigen(second: Floats) -> tuple[Floats, Any]:
    """Eigenvalues above the rounding of the largest, and their eigenvectors."""
    values, vectors = np.linalg.eigh(second)
    kept = values > np.finfo(np.float64).eps * len(values) * max(values[-1], 0.0)
    return values[kept], vectors[:, kept]

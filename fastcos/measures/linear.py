"""The base of all measures that are the cosine of (row - mean) root."""

from typing import ClassVar, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.measures.base import Plain, Rows
from fastcos.measures.row_transforms import Floats, mapped_rows

# eigenvalues below this share of the largest are rounding
RANK_TOLERANCE = 1e-12


class Mapped(Plain):
    """Cosine of (row - mean_) root_; subclasses learn the two."""

    fits_in_blocks: ClassVar[bool] = True
    mean_: Floats
    root_: Floats

    def encode_items(self, B: Rows) -> Rows:
        """Return (B - mean) root, (p, r) float64; rows that only rounding keeps from 0 are 0."""
        root = validation.check_fitted(self.name, getattr(self, "root_", None))
        return mapped_rows(B, self.mean_, root)


class Spectrum(NamedTuple):
    """Eigenvalues of a symmetric matrix, falling, and its eigenvectors as columns."""

    values: Floats
    vectors: Floats


def spectrum(S: Floats) -> Spectrum:
    """Eigendecomposition by falling eigenvalue."""
    values, vectors = np.linalg.eigh(S)
    return Spectrum(values[::-1].copy(), np.ascontiguousarray(vectors[:, ::-1]))


def root_of(name: str, S: Floats) -> Floats:
    """Return L (d, r) with S = L L' for a positive semidefinite S of rank r >= 1.

    An eigenvalue counts as zero below 1e-12 of the largest; a clearly negative one is refused.
    """
    values, vectors = spectrum(S)
    if not values[0] > 0:
        raise ValueError(f"{name} must have a positive eigenvalue, got at most {values[0]:g}")
    if values[-1] < -RANK_TOLERANCE * values[0] * len(values):
        raise ValueError(f"{name} must be positive semidefinite, got the eigenvalue {values[-1]:g}")
    kept = values > RANK_TOLERANCE * values[0]
    return np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept]))


def inverse_root_of(name: str, S: Floats, *, n_components: int | None, ridge: float) -> Floats:
    """Return L (d, r) with L L' the inverse of S + ridge times the mean eigenvalue.

    Columns of S that are zero are dropped: constant columns of the data. What is left must be of
    full rank, unless only the leading n_components directions are kept or ridge is positive.
    """
    used = np.flatnonzero(np.diag(S) > 0)
    values, vectors = spectrum(S[np.ix_(used, used)])
    kept = len(used)
    if n_components is not None:
        kept = validation.as_count("n_components", n_components, 1, max(1, kept))
    largest = values[0] if len(values) else 0.0
    rank = int((values > RANK_TOLERANCE * largest).sum())
    if ridge == 0 and rank < 1:
        raise ValueError(f"{name} must differ from each other to be whitened, got equal rows")
    if ridge == 0 and rank < kept:
        raise ValueError(
            f"{name} must vary in all {kept} dimensions to be whitened, got {rank}: give more "
            "rows, n_components or ridge"
        )
    values = np.maximum(values, 0) + ridge * values.mean()
    root = np.zeros((len(S), kept))
    root[used] = vectors[:, :kept] / np.sqrt(values[:kept])
    return root

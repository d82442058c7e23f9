"""The gate's part for pairs of rows, condition numbers and metrics."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation

Floats = npt.NDArray[np.float64]

# beyond it float64 holds neither the weights, its square, nor what they multiply
LARGEST_CONDITION = 1e15


def as_condition(name: str, condition: Any) -> float:
    """Return condition as a condition number: from 1 to LARGEST_CONDITION."""
    return validation.as_real(name, condition, low=1, high=LARGEST_CONDITION)


def as_cosines(name: str, values: Any) -> Floats:
    """Return one number or several, from -1 to 1 but for float32 rounding, as float64 (n,)."""
    cosines = validation.as_vector(name, np.atleast_1d(values))
    outside = np.flatnonzero(np.abs(cosines) > 1 + 1e-6)
    if len(outside):
        at = int(outside[0])
        raise ValueError(f"{name} must be from -1 to 1, got {cosines[at]!r} at position {at}")
    return np.clip(cosines, -1.0, 1.0)


def as_pairs(**sides: Any) -> tuple[list[Floats], bool]:
    """Return equally shaped vectors (d,) or rows (n, d) as rows, and whether they were vectors.

    Each row comes back divided by its largest entry in size, which no cosine sees: squares neither
    overflow nor vanish.
    """
    single = all(np.ndim(side) == 1 for side in sides.values())
    rows = [
        validation.as_rows(name, np.asarray(side)[np.newaxis] if single else side, dtype=np.float64)
        for name, side in sides.items()
    ]
    first = next(iter(sides))
    for name, side in zip(sides, rows, strict=True):
        validation.check_same_width(name, side, first, rows[0])
        validation.check_length(name, side, len(rows[0]), first)
    sizes = [np.abs(side).max(axis=1, keepdims=True) for side in rows]
    scaled = [
        validation.read_only(np.asarray(side / np.where(size > 0, size, 1.0), np.float64))
        for side, size in zip(rows, sizes, strict=True)
    ]
    return scaled, single


def as_metric(name: str, metric: Any, size: int | None = None) -> Floats:
    """Return a symmetric positive definite matrix (d, d), or the diagonal of one as (d,)."""
    if np.ndim(metric) == 1:
        length = np.size(metric) if size is None else size
        return validation.as_positive_diagonal(name, metric, length)
    matrix: Floats = validation.as_rows(name, metric, dtype=np.float64).astype(np.float64)
    d = len(matrix) if size is None else size
    if matrix.shape != (d, d):
        raise ValueError(f"{name} must be of shape ({d}, {d}) or ({d},), got {matrix.shape}")
    values = np.linalg.eigvalsh(matrix)
    asymmetry = np.abs(matrix - matrix.T).max()
    if asymmetry > 1e-10 * np.abs(matrix).max() or not values[0] > 0:
        raise ValueError(
            f"{name} must be symmetric and positive definite, got a smallest eigenvalue of "
            f"{values[0]:g}"
        )
    return matrix


def as_many(name: str, n_directed: int, least: int) -> None:
    """Refuse rows of which fewer than least have a direction."""
    if n_directed < least:
        raise ValueError(f"{name} must have {least} rows that are not zero, got {n_directed}")

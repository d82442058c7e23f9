"""The gate of the measures: parameters, metrics of the columns, rows that are two halves."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation

_FLOATS = (np.float32, np.float64)


def as_given(name: str, value: Any, measure: str) -> Any:
    """Refuse None where a measure has no default."""
    if value is None:
        raise ValueError(f"{name} must be given, {_as_in(measure, name)}, got None")
    return value


def as_one_of(
    name: str, value: Any, other_name: str, other: Any, measure: str | None = None
) -> None:
    """Refuse two values, and none, where one of them is needed (by a measure, if it is one)."""
    if (value is None) == (other is None):
        got = "neither" if value is None else "both"
        how = "" if measure is None else f", {_as_in(measure, name)}"
        raise ValueError(f"one of {name} and {other_name} must be given{how}, got {got}")


def _as_in(measure: str, name: str) -> str:
    return f'as in get_measure("{measure}", {name}=...)'


def as_model_of_eq1(name: str, model: Any) -> None:
    """Refuse what is no fitted model of Eq. 1."""
    fitted = hasattr(model, "shrinkage_") and hasattr(model, "singular_values_")
    objective = getattr(model, "objective", "dropout")
    if not fitted or objective != "dropout":
        got = f"one of the objective {objective!r}" if fitted else type(model).__name__
        raise TypeError(
            f"{name} must be a fitted LinearMF of the objective 'dropout', got {got}"
            f"{' without fit' if hasattr(model, 'fit') and not fitted else ''}"
        )


def check_fitted(measure: Any, attribute: str) -> None:
    """Refuse an object that has not learned attribute yet."""
    if not hasattr(measure, attribute):
        raise ValueError(f"the measure must be fitted first, got {type(measure).__name__} as made")


def as_mapped(rows: Any, offsets: Any) -> None:
    """Refuse what a measure of one's own made of rows, if the engine cannot take it."""
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype not in _FLOATS:
        came = f"{getattr(rows, 'dtype', type(rows).__name__)} of shape {np.shape(rows)}"
        raise TypeError(f"rows of a measure must be float32 or float64, (n, d), got {came}")
    if offsets is not None and (np.shape(offsets) != (len(rows),) or offsets.dtype != np.float64):
        raise ValueError(
            f"item_bias of a measure must be float64 of shape ({len(rows)},), got "
            f"{offsets.dtype} of shape {np.shape(offsets)}"
        )
    if offsets is not None and not np.isfinite(offsets).all():
        at = int(np.flatnonzero(~np.isfinite(offsets))[0])
        raise ValueError(f"item_bias of a measure must be finite, got {offsets[at]} for row {at}")


def as_finite_rows(norms: npt.NDArray[np.float64]) -> None:
    """Refuse rows of a measure of one's own whose norms are not finite."""
    if not np.isfinite(norms).all():
        broken = np.flatnonzero(~np.isfinite(norms))
        raise ValueError(
            "rows of a measure must be finite, got NaN or infinity in "
            f"{validation.format_rows(broken)} (a zero row has no direction to divide by)"
        )


def as_reduced(name: str, measure: Any, *, bounded: bool) -> None:
    """Refuse a measure whose keys are only bounds of its scores."""
    if bounded:
        raise ValueError(f"{name} must reduce to inner products here, got {measure.name}")


def as_symmetric(name: str, matrix: Any) -> npt.NDArray[np.float64]:
    """Return matrix as a finite, symmetric, read-only float64 array (d, d)."""
    S = validation.as_rows(name, matrix, dtype=np.float64)
    if S.shape[0] != S.shape[1]:
        raise ValueError(f"{name} must be square, got shape {S.shape}")
    gap, largest = float(np.abs(S - S.T).max()), float(np.abs(S).max())
    if gap > 1e-6 * largest:
        raise ValueError(f"{name} must be symmetric, got entries that differ by {gap:g}")
    return validation.read_only((S + S.T) / 2)


def as_semidefinite(name: str, values: npt.NDArray[np.float64], tolerance: float) -> None:
    """Refuse falling eigenvalues of which one is clearly negative, or none positive."""
    if not values[0] > 0:
        raise ValueError(f"{name} must have a positive eigenvalue, got at most {values[0]:g}")
    if values[-1] < -tolerance * values[0] * len(values):
        raise ValueError(f"{name} must be positive semidefinite, got the eigenvalue {values[-1]:g}")


def as_leaving_columns(name: str, value: float, largest: float) -> None:
    """Refuse a strength of Eq. 2 that leaves no column of the model."""
    if value >= largest:
        raise ValueError(
            f"{name} must be less than the largest singular value of X, {largest:g}, or Eq. 2 has "
            f"no column, got {value:g}"
        )


def as_whitenable(name: str, rank: int, wanted: int) -> None:
    """Refuse a second moment of lower rank than the directions wanted."""
    if rank < 1:
        raise ValueError(f"{name} must differ from each other to be whitened, got rows all alike")
    if rank < wanted:
        raise ValueError(
            f"{name} must vary in all {wanted} dimensions to be whitened (give n_components or "
            f"ridge, or more rows), got {rank}"
        )


def as_local_count(name: str, wanted: int, others: int) -> int:
    """Return how many neighbours a row is judged by, of so many other rows."""
    if wanted > others:
        raise ValueError(
            f"{name} must be at most the number of rows it is sought among ({others}), got {wanted}"
        )
    return wanted


def as_even_width(name: str, rows: validation.Rows) -> None:
    """Refuse rows that are not two halves."""
    if rows.shape[1] % 2:
        raise ValueError(f"{name} must have an even number of columns, got {rows.shape[1]}")


def as_nonnegative(name: str, values: npt.NDArray[Any]) -> None:
    """Refuse negative values."""
    if values.min(initial=0) < 0:
        at = int(np.flatnonzero(values < 0)[0])
        raise ValueError(f"{name} must be at least 0, got {values[at]:g} at position {at}")


def as_pairs(name: str, pairs: Any) -> npt.NDArray[np.int64]:
    """Return pairs as whole numbers of at least 0, (m, 2) int64 with m >= 2."""
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2 or len(array) < 2 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be whole numbers of shape (m, 2), m >= 2, got {array.dtype} of shape "
            f"{array.shape}"
        )
    as_nonnegative(name, array.min(axis=1))
    return validation.read_only(array.astype(np.int64))


def as_numbers_below(name: str, numbers: npt.NDArray[np.int64], n_items: int) -> None:
    """Refuse numbers of items that are not there."""
    if numbers.max() >= n_items:
        raise ValueError(
            f"{name} must be below {n_items}, the number of items, got {numbers.max()}"
        )


def as_directed(name: str, n_directed: int) -> None:
    """Refuse pairs that all have a zero row."""
    if not n_directed:
        raise ValueError(f"{name} must be of rows that are not zero, got a zero row in every pair")


def as_varied(name: str, values: npt.NDArray[Any]) -> None:
    """Refuse values that are all equal."""
    if values.min() == values.max():
        raise ValueError(f"{name} must have two different values, got only {values[0]:g}")


def as_registered(measure: Any, makers: dict[str, Any]) -> str:
    """Return the name under which the measure's very class is registered."""
    name = getattr(measure, "name", "")
    if makers.get(name) is not type(measure):
        raise TypeError(
            "measure must be a name or of a registered class to be saved, "
            f"got {type(measure).__name__}"
        )
    return str(name)


def as_storable(measure: Any, parameter: str, kind_of_arrays: type[Any]) -> Any:
    """Return the parameter of a measure if it is None, a number, text, an array or that kind."""
    value = getattr(measure, parameter, measure)
    storable = (bool, int, float, str, np.ndarray, kind_of_arrays)
    if value is not None and not isinstance(value, storable):
        kind = "nothing under its name" if value is measure else type(value).__name__
        raise TypeError(
            f"{parameter} of the measure must be a number, a text or an array to be saved, "
            f"got {kind}"
        )
    return value

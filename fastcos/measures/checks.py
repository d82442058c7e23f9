"""Checks of arguments that several measures and ``compare_vectors`` share."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation


def as_given(name: str, value: Any, measure: str) -> Any:
    """Refuse None for a parameter that the measure requires."""
    if value is None:
        raise ValueError(
            f'{name} must be given, as in get_measure("{measure}", {name}=...), got None'
        )
    return value


def as_pairs(name: str, pairs: Any, n_items: int | None = None) -> npt.NDArray[np.int64]:
    """Return pairs of item numbers (m, 2), int64, m >= 2; below n_items where it is given."""
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2 or len(array) < 2 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be whole numbers of shape (m, 2), m >= 2, got {array.dtype} of shape "
            f"{array.shape}"
        )
    if array.min() < 0:
        raise ValueError(f"{name} must be at least 0, got {array.min()}")
    if n_items is not None and array.max() >= n_items:
        raise ValueError(f"{name} must be below {n_items}, the number of items, got {array.max()}")
    return validation.read_only(array.astype(np.int64))


def check_varied(name: str, values: npt.NDArray[Any]) -> None:
    """Refuse values that are all equal."""
    if values.min() == values.max():
        raise ValueError(f"{name} must have two different values, got only {values[0]:g}")

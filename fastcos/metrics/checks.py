"""Validation that several metrics share: labels with both kinds of pairs, lists, sizes."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.validation import as_count, as_vector, format_rows, read_only


def as_shared_labels(name: str, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the codes of non-zero rows renumbered 0 .. C-1, if pairs of both kinds exist."""
    values, renumbered = np.unique(codes, return_inverse=True)
    if not 2 <= len(values) < len(codes):
        raise ValueError(
            f"{name} must have at least two different values on non-zero rows, one of them "
            f"repeated, got {len(values)} on {len(codes)} rows"
        )
    return read_only(renumbered.astype(np.int64))


def as_neighbor_lists(
    name: str, indices: Any, k: Any = None, *, n_items: int | None = None, padded: bool = False
) -> npt.NDArray[np.int64]:
    """Return the first k columns of lists (n, K) as int64; no repeated item, -1 only if padded."""
    array = np.asarray(indices)
    if array.dtype.kind not in "iu" or array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{name} must be a two-dimensional array of integers (lists, items), got shape "
            f"{array.shape} of {array.dtype}"
        )
    k = array.shape[1] if k is None else as_count("k", k, 1, array.shape[1])
    lists = np.ascontiguousarray(array[:, :k], dtype=np.int64)
    least = -1 if padded else 0
    if lists.min() < least or (n_items is not None and lists.max() >= n_items):
        bounds = f"of at least {least}" if n_items is None else f"from {least} to {n_items - 1}"
        odd = lists.min() if lists.min() < least else lists.max()
        raise ValueError(f"{name} must hold item numbers {bounds}, got {odd}")
    ordered = np.sort(lists, axis=1)
    equal = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    repeated = np.flatnonzero(equal.any(axis=1))
    if len(repeated):
        raise ValueError(
            f"{name} must not repeat an item in a list, got repetitions in {format_rows(repeated)}"
        )
    return read_only(lists)


def check_same_length(name: str, length: int, other_name: str, other_length: int) -> None:
    """Refuse a length other than other_length."""
    if length != other_length:
        raise ValueError(f"{name} must be as long as {other_name} ({other_length}), got {length}")


def check_enough(name: str, count: int, least: int, what: str) -> int:
    """Return count if it is at least least."""
    if count < least:
        raise ValueError(f"{name} must have at least {least} {what}, got {count}")
    return count


def check_varying(name: str, varies: bool, what: str) -> None:
    """Refuse data without variance where a correlation needs it."""
    if not varies:
        raise ValueError(f"{name} must have {what} that differ, got only equal ones")


def as_popularity(name: str, values: Any, length: int) -> npt.NDArray[np.float64]:
    """Return values (length,) as float64: none negative, not all zero."""
    vector = as_vector(name, values, length)
    if vector.min() < 0 or vector.max() == 0:
        raise ValueError(
            f"{name} must be at least 0 and not 0 everywhere, got values from {vector.min():g} to "
            f"{vector.max():g}"
        )
    return vector

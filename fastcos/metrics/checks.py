"""The gate of the metrics: labels with pairs of both kinds, lists of neighbours, sizes that fit."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.validation import as_count, as_vector, format_rows, read_only


def as_shared_labels(name: str, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the codes of non-zero rows renumbered 0 .. C-1, if pairs of both kinds exist."""
    values, renumbered = np.unique(codes, return_inverse=True)
    if not 2 <= len(values) < len(codes):
        raise ValueError(
            f"{name} must have at least two different values on rows that are not zero, one of "
            f"them on several, got {len(values)} on {len(codes)} rows"
        )
    return read_only(renumbered.astype(np.int64))


def as_neighbor_lists(
    name: str, indices: Any, k: Any = None, *, n_items: int | None = None, padded: bool = False
) -> npt.NDArray[np.int64]:
    """Return the first k columns of lists (n, K) as int64; no item twice, -1 only where padded."""
    array = np.asarray(indices)
    if array.dtype.kind not in "iu" or array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{name} must be a two-dimensional array of whole numbers (lists, items), got shape "
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
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    repeated = np.flatnonzero(twice.any(axis=1))
    if len(repeated):
        raise ValueError(
            f"{name} must hold no item twice in a list, got one in {format_rows(repeated)}"
        )
    return read_only(lists)


def as_same_shape(
    name: str, array: npt.NDArray[Any], other_name: str, other: npt.NDArray[Any]
) -> None:
    """Refuse an array of another shape than other's."""
    if array.shape != other.shape:
        raise ValueError(
            f"{name} must be of the shape of {other_name}, {other.shape}, got {array.shape}"
        )


def as_same_length(name: str, length: int, other_name: str, other_length: int) -> None:
    """Refuse a length other than other_length."""
    if length != other_length:
        raise ValueError(f"{name} must be as long as {other_name} ({other_length}), got {length}")


def as_known_labels(
    name: str, labels: Any, known: npt.NDArray[Any], length: int
) -> npt.NDArray[np.int64]:
    """Return labels (length,) as the codes that as_labels gives to known."""
    array = np.asarray(labels)
    if array.shape != (length,):
        raise ValueError(f"{name} must be of shape ({length},), got {array.shape}")
    if known.dtype.kind == "O":
        known, array = known.astype(str), array.astype(str)
    values = np.unique(known)
    codes = np.minimum(np.searchsorted(values, array), len(values) - 1)
    odd = np.flatnonzero(values[codes] != array)
    if len(odd):
        raise ValueError(f"{name} must be among the labels, got {array[odd].tolist()[0]!r}")
    return read_only(codes.astype(np.int64))


def as_wide(name: str, rows: npt.NDArray[Any], least: int) -> None:
    """Refuse rows of fewer than least columns."""
    if rows.shape[1] < least:
        raise ValueError(f"{name} must have at least {least} columns, got {rows.shape[1]}")


def as_enough(name: str, count: int, least: int, what: str) -> int:
    """Return count if it is at least least."""
    if count < least:
        raise ValueError(f"{name} must have at least {least} {what}, got {count}")
    return count


def as_varying(name: str, varies: bool, what: str) -> None:
    """Refuse data that does not vary where a correlation needs it to."""
    if not varies:
        raise ValueError(f"{name} must have {what} that differ, got all alike")


def as_nonnegative(name: str, values: Any, length: int) -> npt.NDArray[np.float64]:
    """Return values (length,) float64, none negative, not all zero."""
    vector = as_vector(name, values, length)
    if vector.min() < 0 or vector.max() == 0:
        raise ValueError(
            f"{name} must be at least 0 and not 0 everywhere, got values from {vector.min():g} to "
            f"{vector.max():g}"
        )
    return vector


def as_fitting(name: str, n_bytes: int, working_memory: float) -> None:
    """Refuse what needs more than working_memory MiB."""
    if n_bytes > working_memory * 2**20:
        raise ValueError(
            f"{name} must fit in the working memory of {working_memory:g} MiB, got a need of "
            f"{n_bytes / 2**20:.0f} MiB"
        )

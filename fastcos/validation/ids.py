"""Validate ids of items. An id is a whole number or a string, and names one item.

String ids are stored in a NumPy array of fixed-width strings, which can be memory-mapped and
compared quickly. In an array of fixed-width strings, every string takes as much memory as the
longest string: 8,000 short ids and one id of 20,000 characters would take 640 MB. If fixed-width
strings would waste too much memory, the ids are stored in an array of Python strings (dtype
object).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation

Ids = npt.NDArray[Any]

# Placeholder id in results for a missing item. The placeholder is -1 if the ids of the index are
# whole numbers, and "" if the ids are strings.
NO_ID = -1
# The largest number of characters of an id in an array of fixed-width strings. With ids of 500
# characters, the ids of ten results take 20 kB.
_MAX_WIDTH = 500
# An error message shows at most this many characters of an id.
_LETTERS_SHOWN = 80
# Ids are stored as fixed-width strings only if these take at most this many times as much memory as
# Python strings.
MAX_PADDING_RATIO = 8
# The number of bytes that a Python string takes in addition to its characters.
_BYTES_PER_STRING = 64


def are_strings(ids: Ids) -> bool:
    """Return whether ``ids`` are strings: an array of fixed-width strings, or of Python strings."""
    return ids.dtype.kind in "UO"


def format_id(value: Any) -> str:
    """Return an id as text for an error message, without its NumPy type; a long id is cut."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _LETTERS_SHOWN else f"{text[:_LETTERS_SHOWN]}..."


def as_ids(name: str, ids: Any, length: int | None = None, *, distinct: bool = True) -> Ids:
    """Return ``ids`` as a new array (n,) of int64 or strings.

    ValueError is raised if the number of ids is not `length`, or if an id is -1 or "". With
    distinct=True, a repeated id also raises ValueError. Ids that are neither whole numbers nor
    strings raise TypeError.
    """
    values = validation.from_container(name, ids)
    # A list is read as Python objects, because NumPy would convert ["a", 1] to two strings.
    array = np.asarray(values, dtype=None if hasattr(values, "dtype") else object)
    if array.ndim != 1 or (length is not None and len(array) != length):
        shape = "1-dimensional" if length is None else f"of shape ({length},)"
        raise ValueError(f"{name} must be {shape}, got shape {array.shape}")
    if not len(array):  # NumPy reads an empty list as float64
        return np.empty(0, array.dtype if array.dtype.kind == "U" else np.int64)
    array = _as_numbers_or_strings(name, array)
    if distinct:
        distinct_ids, counts = np.unique(array, return_counts=True)
        if len(distinct_ids) < len(array):
            repeated = format_id(distinct_ids[counts > 1][0])
            raise ValueError(f"{name} must be distinct, got {repeated} more than once")
    reserved = "" if are_strings(array) else NO_ID
    if (array == reserved).any():
        place = int(np.flatnonzero(array == reserved)[0])
        raise ValueError(
            f"{name} must not hold {reserved!r}, because {reserved!r} marks a missing item in "
            f"results, got {reserved!r} at position {place}"
        )
    return array


def _as_numbers_or_strings(name: str, array: npt.NDArray[Any]) -> Ids:
    """Return a one-dimensional array of any dtype as int64 or strings, or raise an error."""
    if array.dtype.kind in "OT":
        objects = array.tolist()
        types = set(map(type, objects))
        if types == {str} and "\0" not in "".join(objects):
            return _compact(array.astype(object))
        if types == {int} and min(objects) >= -(2**63) and max(objects) < 2**63:
            return np.array(objects, np.int64)
        return _converted_objects(name, array, objects)
    if array.dtype.kind == "U":
        return _compact(array)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold whole numbers or strings, got dtype {array.dtype}")
    if array.dtype == np.uint64 and array.max(initial=0) >= 2**63:
        raise ValueError(f"{name} must fit int64, got {array.max()}")
    return array.astype(np.int64)


def _converted_objects(name: str, array: npt.NDArray[Any], objects: list[Any]) -> Ids:
    """Return Python objects as an array of int64 or strings, after a check of each object.

    The function is slow, so the caller first tries faster tests for the usual lists of ids.
    """
    kind: Any = str if objects and isinstance(objects[0], str) else (int, np.integer)
    for value in objects:
        if not isinstance(value, kind) or isinstance(value, bool):
            if validation.is_missing(value):
                row = next(row for row, other in enumerate(objects) if other is value)
                raise TypeError(
                    f"{name} must have an id for every row, got {format_id(value)} in row {row}"
                )
            is_either = isinstance(value, (str, int, np.integer))
            hint = "not both" if is_either else "such as str(id) for each id"
            raise TypeError(
                f"{name} must hold whole numbers or strings, {hint}, got {format_id(value)}"
            )
        if kind is str and "\0" in value:
            raise ValueError(f"{name} must hold no NUL character, got {format_id(value)}")
        if kind is not str and not -(2**63) <= value < 2**63:
            raise ValueError(f"{name} must fit int64, got {value}")
    if kind is str:
        return _compact(array.astype(object))
    return np.array(objects, np.int64)


def _compact(ids: Ids) -> Ids:
    """Return strings as a new array of fixed-width strings or, to save memory, of Python strings.

    The result contains Python strings if padding every string to the same width would waste too
    much memory.
    """
    lengths = string_lengths(ids)
    width = int(lengths.max(initial=1))
    python_bytes = int(lengths.sum()) + _BYTES_PER_STRING * len(ids)
    if width > _MAX_WIDTH or 4 * width * len(ids) > MAX_PADDING_RATIO * python_bytes:
        return ids.astype(object)
    return ids.astype(f"U{width}")


def string_lengths(ids: Ids) -> npt.NDArray[np.int64]:
    """Return the number of characters of each string id."""
    if ids.dtype == object:
        return np.fromiter(map(len, ids), np.int64, len(ids))
    return np.strings.str_len(ids)

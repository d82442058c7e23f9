"""Ids of items: whole numbers or strings, each of one item.

Strings are an array of fixed width, which can be memory-mapped and compared fast. Every string then
takes the memory of the longest, so that one id of 20,000 letters among 8,000 would cost 640 MB.
Where that wastes too much, they are an array of Python's strings (dtype object).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.validation import Integers

Ids = npt.NDArray[Any]

# in results: no item
NO_ID = -1
# letters of a string of fixed width at most: one row of results of 10 ids then takes 20 kB
_MOST_LETTERS = 500
# letters of an id that an error shows
_LETTERS_SHOWN = 80
# how many times the memory of the strings themselves an array of fixed width may take, and bytes
# that Python needs for a string besides its letters
_MOST_PADDING, _BYTES_OF_STRING = 8, 64


class ItemIds:
    """The ids of a segment's rows, and their order, by which they are found in O(log p).

    values (p,) are of all rows, removed ones included; order (p,) are the numbers of the rows by
    ascending id, None where the ids ascend.
    """

    def __init__(self, values: Ids, order: Integers | None = None) -> None:
        self.values, self.order = validation.read_only(values), validation.read_only(order)

    @classmethod
    def of(cls, values: Ids) -> "ItemIds":
        """Return ids with their order."""
        if (values[1:] > values[:-1]).all():
            return cls(values)
        return cls(values, np.argsort(values, kind="stable"))

    def find(self, ids: Ids) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the numbers of the rows with these ids, and whether there is such a row."""
        found = np.ones(len(ids), np.bool_)
        if ids.dtype != self.values.dtype:
            # of one width: NumPy would widen a copy of all ids. Longer ids are not here
            if self.values.dtype != object:
                found = _lengths(ids) <= self.values.dtype.itemsize // 4
            ids = ids.astype(self.values.dtype)
        places = np.searchsorted(self.values, ids, sorter=self.order)
        places = np.minimum(places, len(self.values) - 1)
        numbers = places if self.order is None else self.order[places]
        return numbers, found & (self.values[numbers] == ids)


def are_strings(ids: Ids) -> bool:
    """Whether ids are strings, of one width or not."""
    return ids.dtype.kind in "UO"


def shown(one: Any) -> str:
    """Return an id as an error shows it: without NumPy's type, and cut where it is long."""
    text = repr(one.item() if isinstance(one, np.generic) else one)
    return text if len(text) <= _LETTERS_SHOWN else f"{text[:_LETTERS_SHOWN]}..."


def joined(parts: Sequence[Ids]) -> Ids:
    """Return the ids of several parts in one array, all whole numbers or all strings."""
    if len({part.dtype for part in parts}) > 1:
        width = max((part.dtype.itemsize for part in parts if part.dtype != object), default=0)
        size = sum(part.nbytes for part in parts)
        if width * sum(map(len, parts)) > _MOST_PADDING * max(size, 1):
            parts = [part.astype(object) for part in parts]
    return np.concatenate(parts)


def _lengths(ids: Ids) -> npt.NDArray[np.int64]:
    """Return how many letters each string has."""
    if ids.dtype == object:
        return np.fromiter(map(len, ids), np.int64, len(ids))
    return np.strings.str_len(ids)


def _compact(ids: Ids) -> Ids:
    """Return strings as a new array of fixed width, or of Python's strings where that is shorter.

    ids: an array of either kind.
    """
    lengths = _lengths(ids)
    width = int(lengths.max(initial=1))
    needed = int(lengths.sum()) + _BYTES_OF_STRING * len(ids)
    if width > _MOST_LETTERS or 4 * width * len(ids) > _MOST_PADDING * needed:
        return ids.astype(object)
    return ids.astype(f"U{width}")


def as_ids(name: str, ids: Any, length: int | None = None, *, distinct: bool = True) -> Ids:
    """Return ids as new int64 numbers or strings (n,), each once where they must be distinct."""
    values = validation.from_container(name, ids)
    # as objects: NumPy would turn ["a", 1] into two strings
    array = np.asarray(values, dtype=None if hasattr(values, "dtype") else object)
    if array.ndim != 1 or (length is not None and len(array) != length):
        wanted = "1-dimensional" if length is None else f"of shape ({length},)"
        raise ValueError(f"{name} must be {wanted}, got shape {array.shape}")
    if not len(array):  # NumPy makes float64 of []
        return np.empty(0, array.dtype if array.dtype.kind == "U" else np.int64)
    array = _as_numbers_or_strings(name, array)
    if distinct:
        some, counts = np.unique(array, return_counts=True)
        if len(some) < len(array):
            raise ValueError(
                f"{name} must be distinct, got {shown(some[counts > 1][0])} more than once"
            )
    bad = "" if are_strings(array) else NO_ID
    if (array == bad).any():
        at = int(np.flatnonzero(array == bad)[0])
        raise ValueError(
            f"{name} must not hold {bad!r}, which stands for no item, got it at position {at}"
        )
    return array


def _as_numbers_or_strings(name: str, array: npt.NDArray[Any]) -> Ids:
    if array.dtype.kind in "OT":
        objects = array.tolist()
        kinds = set(map(type, objects))
        if kinds == {str} and "\0" not in "".join(objects):
            return _compact(array.astype(object))
        if kinds == {int} and min(objects) >= -(2**63) and max(objects) < 2**63:
            return np.array(objects, np.int64)
        kind: Any = str if objects and isinstance(objects[0], str) else (int, np.integer)
        for one in objects:
            if not isinstance(one, kind) or isinstance(one, bool):
                if validation.is_missing(one):
                    at = next(row for row, value in enumerate(objects) if value is one)
                    raise TypeError(
                        f"{name} must have an id for every row, got {shown(one)} in row {at}"
                    )
                is_either = isinstance(one, (str, int, np.integer))
                hint = "not both" if is_either else "such as str(id) of each"
                got = shown(one)
                raise TypeError(f"{name} must hold whole numbers or strings, {hint}, got {got}")
            if kind is str and "\0" in one:
                raise ValueError(f"{name} must hold no NUL character, got {shown(one)}")
            if kind is not str and not -(2**63) <= one < 2**63:
                raise ValueError(f"{name} must fit 64 bits with a sign, got {one}")
        if kind is str:
            return _compact(array.astype(object))
        return np.array(objects, np.int64)
    if array.dtype.kind == "U":
        return _compact(array)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold whole numbers or strings, got dtype {array.dtype}")
    if array.dtype == np.uint64 and array.max(initial=0) >= 2**63:
        raise ValueError(f"{name} must fit 64 bits with a sign, got {array.max()}")
    return array.astype(np.int64)

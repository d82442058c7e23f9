"""Ids of items: whole numbers or strings, each of one item."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.validation import Integers

Ids = npt.NDArray[Any]

# in results: no item
NO_ID = -1


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
            found = np.strings.str_len(ids) <= self.values.dtype.itemsize // 4
            ids = ids.astype(self.values.dtype)
        places = np.searchsorted(self.values, ids, sorter=self.order)
        places = np.minimum(places, len(self.values) - 1)
        numbers = places if self.order is None else self.order[places]
        return numbers, found & (self.values[numbers] == ids)


def as_ids(name: str, ids: Any, length: int | None = None, *, distinct: bool = True) -> Ids:
    """Return ids as int64 numbers or strings (n,), each once where they must be distinct."""
    values = validation.from_container(name, ids)
    # as objects: NumPy would turn ["a", 1] into two strings
    array = np.asarray(values, dtype=None if hasattr(values, "dtype") else object)
    if array.ndim != 1 or (length is not None and len(array) != length):
        wanted = "1-dimensional" if length is None else f"of shape ({length},)"
        raise ValueError(f"{name} must be {wanted}, got shape {array.shape}")
    array = _as_numbers_or_strings(name, array)
    some, counts = np.unique(array, return_counts=True)
    if distinct and len(some) < len(array):
        raise ValueError(
            f"{name} must be distinct, got {some[counts > 1][0].item()!r} more than once"
        )
    bad = "" if array.dtype.kind == "U" else NO_ID
    if (array == bad).any():
        at = int(np.flatnonzero(array == bad)[0])
        raise ValueError(
            f"{name} must not hold {bad!r}, which stands for no item, got it at position {at}"
        )
    return array


def _as_numbers_or_strings(name: str, array: npt.NDArray[Any]) -> Ids:
    if array.dtype.kind in "OT":
        objects = array.tolist()
        kind: Any = str if objects and isinstance(objects[0], str) else (int, np.integer)
        for one in objects:
            if not isinstance(one, kind) or isinstance(one, bool):
                is_either = isinstance(one, (str, int, np.integer))
                hint = "not both" if is_either else "such as str(id) of each"
                raise TypeError(f"{name} must hold whole numbers or strings, {hint}, got {one!r}")
            if kind is str and "\0" in one:
                raise ValueError(f"{name} must hold no NUL character, got {one!r}")
            if kind is not str and not -(2**63) <= one < 2**63:
                raise ValueError(f"{name} must fit 64 bits with a sign, got {one}")
        return np.array(objects, np.str_ if kind is str else np.int64)
    if array.dtype.kind == "U":
        return array
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold whole numbers or strings, got dtype {array.dtype}")
    if array.dtype == np.uint64 and array.max(initial=0) >= 2**63:
        raise ValueError(f"{name} must fit 64 bits with a sign, got {array.max()}")
    return array.astype(np.int64)

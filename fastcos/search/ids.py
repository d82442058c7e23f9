"""The ids of the rows of a segment, with the order that is needed to look up an id."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.validation import Integers
from fastcos.validation.ids import MAX_PADDING_RATIO, Ids, string_lengths


class ItemIds:
    """The ids of the rows of one segment; ``find`` looks up an id in O(log p) time.

    ``values`` (p,) contains the ids of all rows, including the rows of removed items. ``order``
    (p,) contains the row numbers by ascending id, or is None if the ids are already in ascending
    order.
    """

    def __init__(self, values: Ids, order: Integers | None = None) -> None:
        self.values, self.order = validation.read_only(values), validation.read_only(order)

    @classmethod
    def sort(cls, values: Ids) -> "ItemIds":
        """Return ItemIds for the ids (p,) of the rows, and compute the order of the ids."""
        if (values[1:] > values[:-1]).all():
            return cls(values)
        return cls(values, np.argsort(values, kind="stable"))

    def find(self, ids: Ids) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return a row number for each id, and a mask that is True for known ids.

        If the mask is False for an id, no row has this id, and the row number returned for this id
        is arbitrary.
        """
        can_match = np.ones(len(ids), np.bool_)
        if ids.dtype != self.values.dtype:
            # The ids are converted to the type of the segment's ids, because NumPy would otherwise
            # copy and convert all ids of the segment. If the type of the segment's ids is too
            # narrow for an id, the segment does not contain this id.
            if self.values.dtype != object:
                can_match = string_lengths(ids) <= self.values.dtype.itemsize // 4
            ids = ids.astype(self.values.dtype)
        slots = np.searchsorted(self.values, ids, sorter=self.order)
        slots = np.minimum(slots, len(self.values) - 1)
        rows = slots if self.order is None else self.order[slots]
        return rows, can_match & (self.values[rows] == ids)


def concatenated_ids(arrays: Sequence[Ids]) -> Ids:
    """Concatenate arrays of ids; either all ids are whole numbers, or all ids are strings."""
    if len({ids.dtype for ids in arrays}) > 1:
        width = max((ids.dtype.itemsize for ids in arrays if ids.dtype != object), default=0)
        size = sum(ids.nbytes for ids in arrays)
        if width * sum(map(len, arrays)) > MAX_PADDING_RATIO * max(size, 1):
            arrays = [ids.astype(object) for ids in arrays]
    return np.concatenate(arrays)

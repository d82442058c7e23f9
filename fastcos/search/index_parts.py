"""The parts of an index that grows: segments with ids, and when they are merged.

Adding makes a part of the new rows alone. Removing hides items of the parts that hold them. So that
a search meets few parts, and hidden items do not pile up, a change then merges small parts and
writes anew those of which less than half is left. Every row is copied O(log p) times on average::

    rows of a part    below 4,096    to 16,384    to 65,536    to 262,144    ...
    parts at most               1            3            3             3
"""

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.parallel import memmap
from fastcos.search.ids import NO_ID, Ids, ItemIds, are_strings, joined
from fastcos.search.segments import Segment, encode_segment
from fastcos.similarity.base import Measure
from fastcos.validation import Integers

# rows below which parts are merged at once: adding one row to so many of 128 columns takes 15 ms
# (test_index_upsert in bench/test_dense.py)
_SMALL = 4096
# how many parts of a tier are merged, and how much larger a part of the next tier is
_TIER = 4
# share of a part's items below which it is written anew without the removed ones
_LEAST_LEFT = 0.5


class IndexPart(NamedTuple):
    """A segment of an index, the ids of its rows, and the key that names its files.

    is_mapped: its arrays are maps of files.
    """

    segment: Segment
    ids: ItemIds
    key: str
    is_mapped: bool = False

    @property
    def n_removed(self) -> int:
        """Items that cannot be found any more."""
        return len(self.segment.rows) - len(self.segment.numbers)

    @property
    def rows(self) -> Any:
        """All rows as given, those of removed items included."""
        return self.segment.rows

    def positions_of(self, numbers: Integers) -> Integers:
        """Return the positions of the items of these numbers."""
        return self.segment.positions_of(numbers)

    def find(self, ids: Ids) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the numbers of the items with these ids, and whether each can be found."""
        numbers, found = self.ids.find(ids)
        return numbers, found & self.is_live(numbers)

    def is_live(self, numbers: Integers) -> npt.NDArray[np.bool_]:
        """Return whether the items of these numbers can be found."""
        live = self.segment.numbers
        if len(live) == len(self.ids.values):
            return np.ones(numbers.shape, np.bool_)
        places = np.minimum(np.searchsorted(live, numbers), len(live) - 1)
        return live[places] == numbers

    def without(self, gone: Integers) -> "IndexPart":
        """Return the part without the items of these numbers."""
        segment = self.segment.without(gone)
        if len(segment.numbers):
            segment.pack()
        # what is packed anew is not what files of the old key hold
        key = self.key if segment.left is not None else uuid.uuid4().hex
        return self._replace(segment=segment, key=key)


class MappedPart(NamedTuple):
    """Rows that stay on disk, all of which can be found, and their ids, None for the positions."""

    rows: Any
    ids: ItemIds | None

    def positions_of(self, numbers: Integers) -> Integers:
        """Return the positions of the items of these numbers, which are the numbers."""
        return numbers

    def find(self, ids: Ids) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the numbers of the items with these ids, and whether each can be found."""
        if self.ids is not None:
            return self.ids.find(ids)
        found = (ids >= 0) & (ids < len(self.rows))
        return np.where(found, ids, 0), found

    def ids_at(self, positions: Integers) -> Ids:
        """Return the ids at positions, -1 or "" where there is no item."""
        found = (positions >= 0) & (positions < len(self.rows))
        if self.ids is None:
            return np.where(found, positions, NO_ID)
        values = self.ids.values
        no_id = "" if are_strings(values) else NO_ID
        return np.where(found, values[np.where(found, positions, 0)], no_id).astype(values.dtype)


class Contents(NamedTuple):
    """Rows with their ids and positions, in the order of the positions."""

    rows: Any
    ids: Ids
    positions: Integers


def new_part(contents: Contents, measure: Measure, n_threads: int | None) -> IndexPart:
    """Encode and pack contents as one part; measure is fitted."""
    rows, ids, positions = contents
    first = int(positions[0])
    is_run = int(positions[-1]) - first + 1 == len(positions)
    segment = encode_segment(
        measure, rows, n_threads, first=first, positions=None if is_run else positions
    )
    segment.pack()
    return IndexPart(segment, ItemIds.of(ids), uuid.uuid4().hex)


def contents_of(parts: Sequence[IndexPart]) -> Contents:
    """Return what can be found in some parts."""
    rows, ids, positions = [], [], []
    for segment, part_ids, *_ in parts:
        live: Any = segment.numbers
        if len(live) == len(segment.rows):
            live = slice(None)
        rows.append(segment.rows[live])
        ids.append(part_ids.values[live])
        positions.append(segment.positions_of(segment.numbers))
    if len(parts) == 1:
        return Contents(rows[0], ids[0], positions[0])
    together = np.concatenate(positions)
    order: Any = np.argsort(together, kind="stable")
    if (order[1:] > order[:-1]).all():
        return Contents(_joined(rows), joined(ids), together)
    return Contents(_joined(rows)[order], joined(ids)[order], together[order])


def _joined(rows: list[Any]) -> Any:
    if len({some.dtype for some in rows}) > 1:  # float16 and bfloat16 have no type in common
        rows = [memmap.read_rows("items", some, 0, len(some)) for some in rows]
    return validation.read_only(np.concatenate(rows))


def merged(
    parts: Sequence[IndexPart], measure: Measure, n_threads: int | None
) -> tuple[IndexPart, ...]:
    """Merge what the table of the module says; largest parts first, empty ones dropped."""
    kept: list[IndexPart] = []
    for part in parts:
        n_live = len(part.segment.numbers)
        if 0 < n_live < _LEAST_LEFT * len(part.segment.rows):
            part = new_part(contents_of([part]), measure, n_threads)
        if n_live:
            kept.append(part)
    while (some := _to_merge(kept)) is not None:
        one = new_part(contents_of(some), measure, n_threads)
        kept = [part for part in kept if all(part is not other for other in some)] + [one]
    kept.sort(key=lambda part: -len(part.segment.numbers))
    return tuple(kept)


def _to_merge(parts: Sequence[IndexPart]) -> list[IndexPart] | None:
    """Return parts of one tier and type that are too many; rows of float32 are never widened."""
    tiers: dict[tuple[Any, int], list[IndexPart]] = {}
    for part in parts:
        tier = 0
        while len(part.segment.numbers) >= _SMALL * _TIER**tier:
            tier += 1
        tiers.setdefault((part.segment.rows.dtype, tier), []).append(part)
    for (_, tier), some in sorted(tiers.items(), key=lambda entry: entry[0][1]):
        if len(some) >= (_TIER if tier else 2):
            return some
    return None

"""The parts of an index: each part contains rows and their ids, and small parts are merged.

When items are added to an index, they form a new part, so that no old row is copied. When items are
removed, their rows stay in the part, but searches skip these rows. An item of a part is called live
until it is removed. A search is fast if the index has few parts and few removed rows. Therefore
every change also merges small parts, and rewrites every part in which less than half of the rows
are live. Over all changes of an index, a row is copied O(log p) times on average. For each number
type of the rows, the number of parts of each size is limited::

    live rows of a part         below 4,096    to 16,384    to 65,536    to 262,144    ...
    largest number of parts               1            3            3             3

The rows of a memory map form a single part that never changes (``MappedPart``).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels.records import ARRAYS_OF_PROJECTION
from fastcos.parallel import memmap
from fastcos.search.ids import ItemIds, concatenated_ids
from fastcos.search.packing import PackedItems
from fastcos.search.segments import Segment, encode_segment
from fastcos.similarity.base import Measure
from fastcos.validation import Integers
from fastcos.validation.ids import NO_ID, Ids, are_strings

# Two parts are merged immediately if each of them has fewer live rows than this number. When a
# single row is added, at most this number of rows is therefore packed (docs/dev/costs.md, "small
# parts of an index"). More rows are packed only if larger parts are merged as well.
_SMALL_PART = 4096
# The names that the arrays of packed items have in a saved directory. The record that kernels read
# has the same names for these arrays, except for the array "order" (``_RENAMED_FIELDS``).
PACKED_ARRAYS = ("order", "packed", "small_offsets", "statistics", "shift")
_RENAMED_FIELDS = {"order": "row_of_slot"}
# In a directory, the array NAME of a projection is called prefix_NAME. This dictionary contains the
# exceptions to this rule.
_STORED_PROJECTION = {"remainder_norms": "prefix_rests"}
# Parts whose sizes lie in the same range are merged into one part as soon as there are
# _MERGE_FACTOR of them. Parts with fewer than _SMALL_PART live rows are merged as soon as there are
# two of them. The upper end of a range of sizes is _MERGE_FACTOR times its lower end.
_MERGE_FACTOR = 4
# A part is rewritten without its removed rows if the share of live rows in the part is below this
# number.
_MIN_LIVE_SHARE = 0.5


class IndexMemory(NamedTuple):
    """The memory of an index, in bytes.

    Attributes
    ----------
    codes : int
        The size of the arrays that a search reads for all items: codes, norms and biases. The
        codes, norms and biases of an item take about 30 bytes plus 1.1 bytes per column; on CPUs
        without int8 instructions, they take about 30 bytes plus 4 bytes per column.
    rows : int
        The size of the original rows. A search reads only the rows of the few items that the codes
        cannot rule out.
    mapped : int
        The number of bytes of codes and rows that are in memory-mapped files. The operating system
        reads memory-mapped files when they are needed, and can drop them from memory.
    """

    codes: int
    rows: int
    mapped: int


class Part(Protocol):
    """Some or all items of an index, in memory or in a memory map, together with their ids."""

    @property
    def rows(self) -> Any:
        """The matrix of all original rows, including the rows of removed items."""

    @property
    def id_type(self) -> np.dtype[Any]:
        """The NumPy type of the ids."""

    @property
    def memory(self) -> IndexMemory:
        """The number of bytes that the part takes in memory and in memory-mapped files."""

    def find_positions(self, ids: Ids) -> Integers:
        """Return, for each id, the position of the live item with this id; -1 if there is none."""

    def find_rows(self, positions: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return a row number for each position, and a mask that is True for live items.

        An item is live if it was not removed. If this part has no live item at a position, the mask
        is False, and the row number is arbitrary.
        """

    def ids_of(self, row_numbers: Integers) -> Ids:
        """Return the ids of the rows with these row numbers."""

    def live_positions(self) -> Integers:
        """Return the ascending positions of all live items."""


@dataclass(frozen=True, eq=False)
class IndexPart:
    """A segment in memory, the ids of its rows, and the key that is a part of its file names.

    ``is_mapped`` says whether the arrays are memory maps of the files of a saved index.
    """

    segment: Segment
    ids: ItemIds
    key: str
    is_mapped: bool = False

    @property
    def rows(self) -> Any:
        """The matrix of all original rows, including the rows of removed items."""
        return self.segment.rows

    @property
    def id_type(self) -> np.dtype[Any]:
        """The NumPy type of the ids."""
        return self.ids.values.dtype

    @parallel.lazy_attribute
    def ids_are_positions(self) -> bool:
        """Whether the id of each row is the position of the row. The ids are read only once."""
        positions = self.segment.positions_of(np.arange(len(self.rows)))
        return np.array_equal(self.ids.values, positions)

    @property
    def n_live(self) -> int:
        """The number of items that were not removed."""
        return len(self.segment.live_row_numbers)

    @property
    def n_removed(self) -> int:
        """The number of rows whose items were removed."""
        return len(self.segment.rows) - self.n_live

    @property
    def memory(self) -> IndexMemory:
        """The number of bytes that the part takes in memory and in memory-mapped files."""
        encoded = self.segment.encoded
        arrays = [
            array
            for packed in self.segment.packed_forms
            for array in packed_arrays(packed).values()
        ]
        rows, codes = self.rows.nbytes, sum(array.nbytes for array in (*arrays, encoded.norms))
        mapped = codes + rows if self.is_mapped else 0
        return IndexMemory(codes + encoded.bias.nbytes, rows, mapped)

    def find_positions(self, ids: Ids) -> Integers:
        """Return, for each id, the position of the live item with this id; -1 if there is none."""
        row_numbers, is_known = self.ids.find(ids)
        is_live = is_known & self._are_live(row_numbers)
        return np.where(is_live, self.segment.positions_of(row_numbers), -1)

    def find_rows(self, positions: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return a row number for each position, and a mask that is True for live items."""
        row_numbers, is_live = self.segment.locate(positions)
        if self.n_removed:
            is_live[is_live] = self._are_live(row_numbers[is_live])
        return row_numbers, is_live

    def ids_of(self, row_numbers: Integers) -> Ids:
        """Return the ids of the rows with these row numbers."""
        return self.ids.values.take(row_numbers)

    def live_positions(self) -> Integers:
        """Return the ascending positions of all live items."""
        return self.segment.positions_of(self.segment.live_row_numbers)

    def without(self, row_numbers: Integers) -> "IndexPart":
        """Return a copy of this part, whose searches skip the rows in ``row_numbers``."""
        segment = self.segment.without(row_numbers)
        if len(segment.live_row_numbers):
            segment.pack()
        # If the segment was packed again, the files with the old key do not contain the new packed
        # rows.
        key = self.key if segment.live is not None else uuid.uuid4().hex
        return replace(self, segment=segment, key=key)

    def _are_live(self, row_numbers: Integers) -> npt.NDArray[np.bool_]:
        """Return, for each of these rows, whether its item is live."""
        live_rows = self.segment.live_row_numbers
        if len(live_rows) == len(self.ids.values):
            return np.ones(row_numbers.shape, np.bool_)
        places = np.minimum(np.searchsorted(live_rows, row_numbers), len(live_rows) - 1)
        return live_rows[places] == row_numbers


@dataclass(frozen=True, eq=False)
class MappedPart:
    """Memory-mapped rows and their ids; items can be neither added nor removed.

    The position of an item is the number of its row. ``ids`` is None if the ids are the positions.
    """

    rows: Any
    ids: ItemIds | None

    @property
    def id_type(self) -> np.dtype[Any]:
        """The NumPy type of the ids."""
        return np.dtype(np.int64) if self.ids is None else self.ids.values.dtype

    @property
    def memory(self) -> IndexMemory:
        """The memory of the part, which has memory-mapped rows and no codes."""
        return IndexMemory(0, self.rows.nbytes, self.rows.nbytes)

    def find_positions(self, ids: Ids) -> Integers:
        """Return the position of the item with each id, or -1 if there is no such item."""
        if self.ids is None:
            return np.where((ids >= 0) & (ids < len(self.rows)), ids, -1)
        row_numbers, is_known = self.ids.find(ids)
        return np.where(is_known, row_numbers, -1)

    def find_rows(self, positions: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the row number of each position, and a mask that is True for live items."""
        return positions, (positions >= 0) & (positions < len(self.rows))

    def ids_of(self, row_numbers: Integers) -> Ids:
        """Return the ids of the rows with these row numbers."""
        return row_numbers if self.ids is None else self.ids.values.take(row_numbers)

    def live_positions(self) -> Integers:
        """Return all positions."""
        return np.arange(len(self.rows), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Contents:
    """Rows (p, d) with their ids (p,) and positions (p,), ordered by position."""

    rows: Any
    ids: Ids
    positions: Integers


def ids_at(parts: Sequence[Part], positions: Integers) -> Ids:
    """Return the id of the item at each position; if there is no item, the id is -1 or "".

    There must be at least one part.
    """
    if len(parts) == 1:
        # Most indexes have only one part. Reading the ids of a single part without a mask is three
        # times as fast as with a mask.
        row_numbers, is_live = parts[0].find_rows(positions)
        if is_live.all():
            return parts[0].ids_of(row_numbers)
    id_type = np.result_type(*(part.id_type for part in parts))
    ids: Ids = np.empty(positions.shape, id_type)
    ids[...] = "" if are_strings(ids) else NO_ID
    for part in parts:
        row_numbers, is_live = part.find_rows(positions)
        ids[is_live] = part.ids_of(row_numbers[is_live])
    return ids


def packed_arrays(packed: PackedItems) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of packed items by name, without the arrays of the encoded rows."""
    arrays = {
        name: getattr(packed.arrays, _RENAMED_FIELDS.get(name, name)) for name in PACKED_ARRAYS
    }
    projection = packed.arrays.projection
    if projection.words:
        for name in ARRAYS_OF_PROJECTION:
            arrays[_STORED_PROJECTION.get(name, f"prefix_{name}")] = getattr(projection, name)
    return arrays


def new_part(contents: Contents, measure: Measure, n_threads: int | None) -> IndexPart:
    """Encode and pack these items, and return them as a part; ``measure`` must be fitted."""
    positions = contents.positions
    first = int(positions[0])
    are_consecutive = int(positions[-1]) - first + 1 == len(positions)
    segment = encode_segment(
        measure, contents.rows, n_threads, first_position=first,
        positions=None if are_consecutive else positions,
    )  # fmt: skip
    segment.pack()
    return IndexPart(segment, ItemIds.sort(contents.ids), uuid.uuid4().hex)


def contents_of(parts: Sequence[IndexPart]) -> Contents:
    """Return the live items of all parts, with their rows in one matrix.

    The function copies the rows if the index has several parts, or if rows were removed from its
    only part.
    """
    rows, ids, positions = [], [], []
    for part in parts:
        live_rows: Any = part.segment.live_row_numbers if part.n_removed else slice(None)
        rows.append(part.rows[live_rows])
        ids.append(part.ids.values[live_rows])
        positions.append(part.live_positions())
    if len(parts) == 1:
        return Contents(rows[0], ids[0], positions[0])
    return concatenated(rows, ids, positions)


def concatenated(
    rows: Sequence[Any], ids: Sequence[Ids], positions: Sequence[Integers]
) -> Contents:
    """Return the items of several parts, ordered by position."""
    all_positions = np.concatenate(positions)
    all_rows, all_ids = _concatenated_rows(rows), concatenated_ids(ids)
    order: Any = np.argsort(all_positions, kind="stable")
    if (order[1:] > order[:-1]).all():
        return Contents(all_rows, all_ids, all_positions)
    ordered_rows = validation.read_only(all_rows[order])
    return Contents(ordered_rows, all_ids[order], all_positions[order])


def _concatenated_rows(matrices: Sequence[Any]) -> Any:
    """Concatenate matrices of rows; if their types differ, low-precision rows become float32."""
    if len({rows.dtype for rows in matrices}) > 1:  # no NumPy type combines float16 and bfloat16
        matrices = [memmap.read_rows("items", rows, 0, len(rows)) for rows in matrices]
    return validation.read_only(np.concatenate(matrices))


def merged(
    parts: Sequence[IndexPart], measure: Measure, n_threads: int | None
) -> tuple[IndexPart, ...]:
    """Merge small parts, rewrite parts with many removed rows, and return the resulting parts.

    The docstring of this module says which parts are merged or rewritten. In the result, the part
    with the most live rows comes first.
    """
    live_parts: list[IndexPart] = []
    for part in parts:
        if part.n_live < _MIN_LIVE_SHARE * len(part.rows) and part.n_live:
            part = new_part(contents_of([part]), measure, n_threads)
        if part.n_live:
            live_parts.append(part)
    while mergeable := _mergeable(live_parts):
        merged_part = new_part(contents_of(mergeable), measure, n_threads)
        live_parts = [part for part in live_parts if part not in mergeable] + [merged_part]
    live_parts.sort(key=lambda part: -part.n_live)
    return tuple(live_parts)


def _mergeable(parts: Sequence[IndexPart]) -> list[IndexPart]:
    """Return the parts that must be merged next, or an empty list.

    Parts form a tier if their sizes are in the same range and their rows have the same type. If a
    tier contains too many parts, all parts of the tier are returned. Parts of different tiers are
    not merged, so float32 rows are never converted to float64.
    """
    tiers: dict[tuple[Any, int], list[IndexPart]] = {}
    for part in parts:
        tier = 0
        while part.n_live >= _SMALL_PART * _MERGE_FACTOR**tier:
            tier += 1
        tiers.setdefault((part.rows.dtype, tier), []).append(part)
    for (_, tier), parts_of_tier in sorted(tiers.items(), key=lambda entry: entry[0][1]):
        if len(parts_of_tier) >= (_MERGE_FACTOR if tier else 2):
            return parts_of_tier
    return []

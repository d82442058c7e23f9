"""The items of an index at one moment.

An ``IndexState`` never changes. To change an index, fastcos computes a new state, and then replaces
the old state in a single assignment. A search that is running during the assignment finishes with
the old state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import storage
from fastcos.parallel import memmap
from fastcos.search import index_files
from fastcos.search.ids import ItemIds
from fastcos.search.index_parts import (
    Contents,
    IndexMemory,
    IndexPart,
    MappedPart,
    Part,
    concatenated,
    contents_of,
    ids_at,
    merged,
    new_part,
)
from fastcos.search.item_groups import ItemGroups
from fastcos.search.prepared import PreparedSearches, can_be_prepared
from fastcos.search.results import IndexNeighbors, Neighbors
from fastcos.search.sources import FittedItems, ItemSource, MappedItems
from fastcos.similarity.base import Measure, capabilities, warn_of_slow_changes
from fastcos.validation import Integers
from fastcos.validation.ids import NO_ID, Ids, are_strings, format_id


@dataclass(frozen=True, eq=False)
class IndexState:
    """The items of an index at one moment, in forms for searching and for looking up ids.

    Attributes
    ----------
    items : ItemSource
        The items in the form that searches read. Removed items keep their positions.
    parts : tuple of Part
        The items of the index with their ids. An index in memory may have several parts. If the
        rows of an index are memory-mapped, it has a single part.
    width : int
        The number of columns.
    has_string_ids : bool
        Whether the ids are strings.
    prepared : PreparedSearches or None
        Prepared searches for few queries; the only filter that they accept is a mask of items. None
        if no search can be prepared, because the measure transforms the rows, the rows are
        memory-mapped, or the index is empty.
    groups : ItemGroups or None
        The group of the item at each position, if the index has groups.
    """

    items: ItemSource
    parts: tuple[Part, ...]
    width: int
    has_string_ids: bool = False
    prepared: PreparedSearches | None = None
    groups: ItemGroups | None = None

    @property
    def n_positions(self) -> int:
        """The number of positions, including the positions of removed items."""
        return self.items.n_items

    @property
    def n_live(self) -> int:
        """The number of items in the index, without removed items."""
        return self.items.n_live

    @property
    def memory(self) -> IndexMemory:
        """The total memory of all parts."""
        sizes = [part.memory for part in self.parts]
        return IndexMemory(
            sum(size.codes for size in sizes),
            sum(size.rows for size in sizes),
            sum(size.mapped for size in sizes),
        )

    def parts_in_memory(self, purpose: str = "to be changed or saved") -> tuple[IndexPart, ...]:
        """Return the parts of the index; raise TypeError if its rows are memory-mapped.

        The error message contains "the rows of the index must be in memory", followed by
        ``purpose``.
        """
        parts = tuple(part for part in self.parts if isinstance(part, IndexPart))
        if len(parts) < len(self.parts):
            raise TypeError(
                f"the rows of the index must be in memory {purpose}, got a memory map: use "
                "fit(np.array(items))"
            )
        return parts

    def live_positions(self) -> Integers:
        """Return the ascending positions of all items that were not removed."""
        positions = [part.live_positions() for part in self.parts]
        return np.sort(np.concatenate([np.zeros(0, np.int64), *positions]))

    def find_positions(self, ids: Ids) -> Integers:
        """Return the position of the item with each id (m,), or -1 for an unknown id."""
        positions = np.full(len(ids), -1, np.int64)
        if not self.parts or not len(ids):
            return positions
        if are_strings(ids) != self.has_string_ids:
            rule = "strings" if self.has_string_ids else "whole numbers"
            got = format_id(ids[0])
            raise TypeError(f"ids must be {rule}, like the ids of the index, got {got}")
        for part in self.parts:  # an id is live in at most one part
            positions = np.maximum(positions, part.find_positions(ids))
        return positions

    def positions_of(self, ids: Ids) -> Integers:
        """Return the position of the item with each id (m,); raise ValueError for unknown ids."""
        positions = self.find_positions(ids)
        unknown = ids[positions < 0]
        if len(unknown):
            raise ValueError(f"ids must be in the index, got {format_id(unknown[0])}")
        return positions

    def ids_at(self, positions: Integers) -> Ids:
        """Return the id of the item at each position; if there is no item, the id is -1 or ""."""
        if not self.parts:
            no_id, id_type = ("", np.str_) if self.has_string_ids else (NO_ID, np.int64)
            return np.full(positions.shape, no_id, id_type)
        return ids_at(self.parts, positions)

    def rows_at(self, positions: Integers) -> npt.NDArray[Any]:
        """Return the live items at positions (m,) as rows (m, d) of float32 or float64."""
        masks, matrices = [], []
        for part in self.parts:
            row_numbers, is_live = part.find_rows(positions)
            masks.append(is_live)
            matrices.append(memmap.take_rows("items", part.rows, row_numbers[is_live]))
        kind = np.result_type(np.float32, *(rows.dtype for rows in matrices))
        vectors = np.empty((len(positions), self.width), kind)
        for is_live, rows in zip(masks, matrices, strict=True):
            vectors[is_live] = rows
        return vectors

    def with_ids(self, neighbors: Neighbors) -> IndexNeighbors:
        """Return the positions and scores of these neighbours, together with their ids."""
        return IndexNeighbors(*neighbors, self.ids_at(np.asarray(neighbors.indices)))

    def contents(self) -> Contents:
        """Return the live items as one matrix of rows, with ids and positions."""
        if not self.parts:
            no_numbers = np.zeros(0, np.int64)
            return Contents(np.empty((0, self.width), np.float32), no_numbers, no_numbers)
        if isinstance(self.parts[0], MappedPart):
            positions = self.live_positions()
            return Contents(np.asarray(self.parts[0].rows), self.ids_at(positions), positions)
        return contents_of(self.parts_in_memory())


def state_of_mapped_rows(measure: Measure, rows: Any, ids: Ids | None) -> IndexState:
    """Return the state of an index of memory-mapped rows, and fit the measure to the rows.

    If ``ids`` is None, the ids are the positions.
    """
    items = MappedItems(measure.fit(rows), rows)
    part = MappedPart(rows, None if ids is None else ItemIds.sort(ids))
    return IndexState(items, (part,), rows.shape[1], ids is not None and are_strings(ids))


def state_of_contents(
    measure: Measure, contents: Contents, n_positions: int, n_threads: int | None
) -> IndexState:
    """Fit the measure to the items, encode and pack them, and return the state of their index.

    ``n_positions`` includes the positions of removed items.
    """
    width = contents.rows.shape[1]
    if not len(contents.rows):
        return IndexState(FittedItems(measure, n_positions, ()), (), width)
    fitted_measure = measure.fit(contents.rows)
    part = new_part(contents, fitted_measure, n_threads)
    return _state_of_parts(fitted_measure, [part], n_positions, width, are_strings(contents.ids))


def changed_state(
    state: IndexState, measure: Measure, parts: Sequence[IndexPart], n_positions: int,
    new_items: Contents | None, n_threads: int | None,
) -> IndexState:  # fmt: skip
    """Return the state after a change: the remaining parts and, if there are any, the new items.

    ``state`` is the state before the change. ``parts`` contains the items of ``state`` that the
    change leaves as they are. ``measure`` has not been fitted.
    """
    if capabilities(measure).append:
        fitted_measure = state.items.measure
        has_string_ids = state.has_string_ids
        if new_items is not None:
            parts = [*parts, new_part(new_items, fitted_measure, n_threads)]
            has_string_ids = are_strings(new_items.ids)
        parts = merged(parts, fitted_measure, n_threads)
        return _state_of_parts(fitted_measure, parts, n_positions, state.width, has_string_ids)
    warn_of_slow_changes(measure)
    contents = [contents_of([part]) for part in parts if part.n_live]
    if new_items is not None:
        contents.append(new_items)
    if not contents:
        items = FittedItems(state.items.measure, n_positions, ())
        return IndexState(items, (), state.width, state.has_string_ids)
    all_items = concatenated(
        [items.rows for items in contents],
        [items.ids for items in contents],
        [items.positions for items in contents],
    )
    return state_of_contents(measure, all_items, n_positions, n_threads)


def read_state(
    stored: storage.Stored,
    measure: Measure,
    old_parts: Mapping[str, IndexPart],
    saved_fields: Mapping[str, index_files.Fields],
) -> IndexState:
    """Check the data of a saved index, and return the state of the index.

    ``old_parts`` contains the parts that this process has already opened, by key; parts that have
    not changed are reused. For each part, ``saved_fields`` contains the header fields as this
    process last read or wrote them.
    """
    stored_parts = storage.field(stored.fields, "parts", list)
    for fields in stored_parts:
        index_files.check_fields(fields)
    if len(stored_parts) == 1:  # an index has only one part if its measure learns from the items
        measure = measure.fit(stored.arrays[f"rows_{stored_parts[0]['key']}"])
    width = storage.field(stored.fields, "width", int)
    n_positions = storage.field(stored.fields, "positions", int)
    has_string_ids = storage.field(stored.fields, "has_names", bool)
    if not (width > 0 and 0 <= n_positions < index_files.MAX_POSITIONS):
        rule = f"width must be above 0, and positions from 0 to {index_files.MAX_POSITIONS - 1}"
        raise ValueError(f"{rule}, got width {width} and {n_positions} positions")
    parts = []
    for fields in stored_parts:
        key = fields["key"]
        part = old_parts.get(key)
        n_saved = saved_fields.get(key, {}).get("removed")
        # Items are only ever removed from a part, never restored. If a part still has the same
        # number of removed items, they are therefore the same items.
        if part is None or not part.n_removed == fields["removed"] == n_saved:
            part = index_files.read_part(fields, stored, measure)
        segment = part.segment
        last = segment.first_position + len(part.rows) - 1
        if segment.positions is not None:
            last = int(segment.positions[-1])
        facts = part.rows.shape[1], are_strings(part.ids.values)
        if facts != (width, has_string_ids) or last >= n_positions:
            raise ValueError(f"width, has_names and positions must fit the items of part {key}")
        parts.append(part)
    return _state_of_parts(measure, parts, n_positions, width, has_string_ids)


def _state_of_parts(
    measure: Measure, parts: Sequence[IndexPart], n_positions: int, width: int, has_string_ids: bool
) -> IndexState:
    """Return the state of an index with these parts; ``measure`` must already be fitted."""
    items = FittedItems(measure, n_positions, tuple(part.segment for part in parts))
    prepared = None
    if parts and can_be_prepared(measure, plans=()):
        prepared = PreparedSearches(items, parts)
    return IndexState(items, tuple(parts), width, has_string_ids, prepared)

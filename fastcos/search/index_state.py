"""What an index holds at one moment: its items, and what every kind of them answers.

A state never changes. A change makes a new one, which takes the place of the old one as a whole:
searches that run finish on the state that they started with. Items are in memory, as parts with
ids, or stay on disk, where their ids are their positions and nothing can be changed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from fastcos import storage, validation
from fastcos.search import index_files
from fastcos.search.ids import NO_ID, Ids, ItemIds, are_strings, joined
from fastcos.search.index_parts import (
    Contents,
    IndexPart,
    MappedPart,
    contents_of,
    merged,
    new_part,
)
from fastcos.search.plain_search import PlainSearch
from fastcos.search.request import SearchRequest
from fastcos.search.results import IndexNeighbors, Neighbors
from fastcos.search.sources import FittedItems, ItemSource, MappedItems
from fastcos.similarity.base import Measure, capabilities, warn_of_slow_changes
from fastcos.validation import Integers


class IndexMemory(NamedTuple):
    """Bytes of an index.

    Attributes
    ----------
    codes : int
        What searches read of all items: codes, norms, biases. About 1.1 bytes a column and 30 an
        item; 4 a column on CPUs without int8 instructions.
    rows : int
        Rows as given. Searches read only those of the few items that the codes do not exclude.
    mapped : int
        How much of both lies in files, which the system reads when needed and may drop.
    """

    codes: int
    rows: int
    mapped: int


class IndexState(NamedTuple):
    """Items in memory. plain: answers the searches that need no further steps, if any.

    mapped: the only part of items that stay on disk, see MappedState.
    """

    fitted: ItemSource
    parts: tuple[IndexPart, ...]
    width: int
    has_names: bool = False
    plain: PlainSearch | None = None
    mapped: MappedPart | None = None

    @property
    def parts_with_ids(self) -> Sequence[IndexPart | MappedPart]:
        """The parts in which ids are looked up."""
        return self.parts if self.mapped is None else (self.mapped,)

    def live_positions(self) -> Integers:
        """Return the ascending positions of all items that can be found."""
        live = [part.positions_of(part.segment.numbers) for part in self.parts]
        return np.sort(np.concatenate([np.zeros(0, np.int64), *live]))

    @property
    def memory(self) -> IndexMemory:
        """Bytes of codes and rows."""
        codes = rows = mapped = 0
        for part in self.parts:
            encoded, shared = part.segment.encoded, part.segment.rows
            arrays = [
                array
                for packed in part.segment.packed_forms
                for array in index_files.packed_arrays(packed).values()
            ]
            arrays += [encoded.norms, encoded.bias]
            size = sum(array.nbytes for array in arrays)
            codes, rows = codes + size, rows + shared.nbytes
            mapped += size - encoded.bias.nbytes + shared.nbytes if part.is_mapped else 0
        return IndexMemory(codes, rows, mapped)

    def in_memory(self, purpose: str) -> "IndexState":
        """Return the state, unless its items are on disk."""
        return self

    def contents(self) -> Contents:
        """Return the rows that can be found, with their ids and positions."""
        if self.parts:
            return contents_of(self.parts)
        none = np.zeros(0, np.int64)
        return Contents(np.empty((0, self.width), np.float32), none, none)

    def what_is_asked(self, request: SearchRequest) -> tuple[SearchRequest, Any]:
        """Return what identifies the results of a request in every state of the same items."""
        rows, _, positions = self.contents()
        if request.permitted is not None:
            positions = np.intersect1d(request.permitted, positions, assume_unique=True)
        return request._replace(permitted=positions), rows

    def ids_at(self, positions: Integers) -> Ids:
        """Return the ids at positions, -1 or "" where there is no item."""
        if len(self.parts) == 1:  # as most indexes: a third of the time without masks
            (part,) = self.parts
            numbers, found = part.segment.locate(positions)
            if found.all() and not part.n_removed:
                return part.ids.values.take(numbers)
        kinds = [part.ids.values.dtype for part in self.parts]
        names = np.dtype(np.str_ if self.has_names else np.int64)
        no_id = "" if self.has_names else NO_ID
        ids = np.full(positions.shape, no_id, np.result_type(*kinds) if kinds else names)
        for part in self.parts:
            numbers, found = part.segment.locate(positions)
            found[found] = part.is_live(numbers[found])
            ids[found] = part.ids.values[numbers[found]]
        return ids

    def with_ids(self, found: Neighbors) -> IndexNeighbors:
        """Return neighbours with their ids."""
        return IndexNeighbors(*found, self.ids_at(np.asarray(found.indices)))


class MappedState(IndexState):
    """Items that stay on disk."""

    __slots__ = ()

    @property
    def memory(self) -> IndexMemory:
        """Bytes of rows, which are those of the file."""
        size = self.fitted.rows.nbytes
        return IndexMemory(0, size, size)

    def in_memory(self, purpose: str) -> IndexState:
        """Refuse what needs the items in memory."""
        raise TypeError(
            f"the index must hold rows in memory {purpose}, got a memory map: fit(np.array(items))"
        )

    def live_positions(self) -> Integers:
        """Return all positions."""
        return np.arange(self.fitted.n_items, dtype=np.int64)

    def contents(self) -> Contents:
        """Return all rows."""
        positions = self.live_positions()
        return Contents(np.asarray(self.fitted.rows), self.ids_at(positions), positions)

    def what_is_asked(self, request: SearchRequest) -> tuple[SearchRequest, Any]:
        """Return the request and the rows, which say all."""
        return request, self.fitted.rows

    def ids_at(self, positions: Integers) -> Ids:
        """Return the ids at positions, -1 or "" where there is no item."""
        return cast(MappedPart, self.mapped).ids_at(positions)


def state_on_disk(measure: Measure, rows: Any, ids: Ids | None) -> IndexState:
    """Return the state of memory-mapped rows; ids None: their positions."""
    fitted = MappedItems(measure.fit(rows), rows)
    part = MappedPart(rows, None if ids is None else ItemIds.of(ids))
    has_names = ids is not None and are_strings(ids)
    return MappedState(fitted, (), rows.shape[1], has_names, mapped=part)


def state_of_rows(
    measure: Measure, contents: Contents, n_items: int, n_threads: int | None
) -> IndexState:
    """Fit the measure to these items, encode and pack them."""
    width = contents.rows.shape[1]
    if not len(contents.rows):
        return IndexState(FittedItems(measure, n_items, ()), (), width)
    fitted = measure.fit(contents.rows)
    part = new_part(contents, fitted, n_threads)
    has_names = are_strings(contents.ids)
    return _state_of(FittedItems(fitted, n_items, (part.segment,)), (part,), width, has_names)


def changed_state(
    state: IndexState, measure: Measure, parts: Sequence[IndexPart], n_items: int,
    new: Contents | None, n_threads: int | None,
) -> IndexState:  # fmt: skip
    """Return the state with these parts and new contents; measure is as it was before any fit."""
    if capabilities(measure).append:
        fitted = state.fitted.measure
        if new is not None:
            parts = [*parts, new_part(new, fitted, n_threads)]
        parts = merged(parts, fitted, n_threads)
        segments = tuple(part.segment for part in parts)
        has_names = state.has_names if new is None else are_strings(new.ids)
        return _state_of(FittedItems(fitted, n_items, segments), parts, state.width, has_names)
    warn_of_slow_changes(measure)
    contents = [contents_of([part]) for part in parts if len(part.segment.numbers)]
    contents += [] if new is None else [new]
    if not contents:
        items = FittedItems(state.fitted.measure, n_items, ())
        return IndexState(items, (), state.width, state.has_names)
    some_rows, some_ids, some_positions = zip(*contents, strict=True)
    rows, positions = np.concatenate(some_rows), np.concatenate(some_positions)
    ids = joined(some_ids)
    order = np.argsort(positions)
    ordered = Contents(validation.read_only(rows[order]), ids[order], positions[order])
    return state_of_rows(measure, ordered, n_items, n_threads)


def stored_state(
    stored: storage.Stored,
    measure: Measure,
    state: IndexState | None,
    known: dict[str, index_files.Fields],
) -> IndexState:
    """Return what a directory holds, checked; parts of state that are known there are kept."""
    fields, parts = stored.fields, []
    stored_parts = storage.field(fields, "parts", list)
    for field in stored_parts:
        index_files.check_field(field)
    have = {} if state is None else {part.key: part for part in state.parts}
    if len(stored_parts) == 1:  # a measure that learns has one part
        measure = measure.fit(stored.arrays[f"rows_{stored_parts[0]['key']}"])
    width, n_positions = (storage.field(fields, name, int) for name in ("width", "positions"))
    has_names = storage.field(fields, "has_names", bool)
    if not (width > 0 and 0 <= n_positions < index_files.MOST_POSITIONS):
        raise ValueError(f"width and positions must be counts, got {width}, {n_positions}")
    for field in stored_parts:
        key = field["key"]
        part = have.get(key)
        before = known.get(key, {}).get("removed")
        # removed items only become more: as many are the same
        if part is None or not part.n_removed == field["removed"] == before:
            part = index_files.from_stored(field, stored, measure)
        segment, n = part.segment, len(part.segment.rows)
        last = segment.first + n - 1 if segment.positions is None else segment.positions[-1]
        facts = segment.rows.shape[1], are_strings(part.ids.values)
        if facts != (width, has_names) or last >= n_positions:
            raise ValueError(f"width, has_names and positions must be those of part {key}")
        parts.append(part)
    fitted = FittedItems(measure, n_positions, tuple(part.segment for part in parts))
    return _state_of(fitted, parts, width, has_names)


def _state_of(
    fitted: FittedItems, parts: Sequence[IndexPart], width: int, has_names: bool
) -> IndexState:
    """Return the state of these parts, and prepare their plain search."""
    plain = PlainSearch(fitted, parts) if PlainSearch.serves(fitted) else None
    return IndexState(fitted, tuple(parts), width, has_names, plain)

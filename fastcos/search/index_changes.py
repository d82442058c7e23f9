"""Add, replace and remove items: each function returns the state of the index after the change.

The functions validate the caller's arguments, and raise an error before they compute the new state.
The caller holds ``parallel.writer_lock``, so that no other thread changes the index meanwhile.
"""

import dataclasses
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.search.index_parts import Contents, IndexPart
from fastcos.search.index_state import IndexState, changed_state
from fastcos.search.item_groups import ItemGroups
from fastcos.similarity.base import Measure
from fastcos.validation import Integers
from fastcos.validation.ids import Ids, as_ids, format_id


def add_or_replace(
    state: IndexState, measure: Measure, rows: Any, ids: Ids | None, groups: Any,
    n_threads: int | None, *, may_replace: bool,
) -> tuple[IndexState, Ids]:  # fmt: skip
    """Return the state of the index after items are added, and the ids of the new items.

    If ``may_replace`` is True and an id is already in the index, the new item replaces the item
    with this id. The rows and the ids are already validated, but the measure is not fitted yet. If
    ``ids`` is None, the ids of the new items are their positions.
    """
    parts, n_positions = state.parts_in_memory(), state.n_positions
    validation.check_width("items", rows, "the items of the index", state.width)
    row_groups = _as_groups(state, groups, len(rows))
    if ids is None:
        _check_ids_are_positions(state, parts)
        ids = np.arange(n_positions, n_positions + len(rows), dtype=np.int64)
    positions = state.find_positions(ids)
    is_new = positions < 0
    if not may_replace and not is_new.all():
        old_id = format_id(ids[~is_new][0])
        raise ValueError(f"ids must be new to the index (use upsert), got {old_id}")
    if not len(rows):
        return state, ids
    replaced_positions = positions[~is_new]
    n_new = int(np.count_nonzero(is_new))
    positions[is_new] = np.arange(n_positions, n_positions + n_new)
    # Indexing rows by an array copies them, so that the caller may change the original rows later.
    order = np.argsort(positions)
    new_items = Contents(validation.read_only(rows[order]), ids[order], positions[order])
    remaining_parts = _without(parts, replaced_positions)
    new_state = changed_state(
        state, measure, remaining_parts, n_positions + n_new, new_items, n_threads
    )
    if state.groups is not None and row_groups is not None:
        new_groups = state.groups.with_groups(positions, row_groups, n_positions + n_new)
        new_state = dataclasses.replace(new_state, groups=new_groups)
    return new_state, ids


def remove(state: IndexState, measure: Measure, ids: Ids, n_threads: int | None) -> IndexState:
    """Return the state of the index after the items with these ids are removed."""
    parts, positions = state.parts_in_memory(), state.positions_of(ids)
    if not len(positions):
        return state
    new_state = changed_state(
        state, measure, _without(parts, positions), state.n_positions, None, n_threads
    )
    return dataclasses.replace(new_state, groups=state.groups)


def groups_of(state: IndexState, groups: Any) -> ItemGroups:
    """Return the groups of the items of the index.

    ValueError is raised if the index has no groups. The argument ``groups`` is used only in the
    error message.
    """
    if state.groups is None:
        rule, value = "None for an index without groups", validation.format_value(groups)
        raise ValueError(f"groups must be {rule}, got {value}")
    return state.groups


def _as_groups(state: IndexState, groups: Any, n_rows: int) -> Ids | None:
    """Return the validated groups of new rows, or None if the index has no groups.

    ValueError is raised if the index has groups but ``groups`` is None. ValueError is also raised
    if ``groups`` is passed for an index without groups.
    """
    if state.groups is not None and groups is None:
        raise ValueError("groups must be given for an index with groups, got None")
    if groups is None:
        return None
    groups_of(state, groups).find(groups, n_rows)
    return as_ids("groups", groups, n_rows, distinct=False)


def _without(parts: tuple[IndexPart, ...], positions: Integers) -> list[IndexPart]:
    """Return the parts without the items at these positions, so that no search finds them."""
    remaining_parts = []
    for part in parts:
        row_numbers, is_live = part.find_rows(positions)
        remaining_parts.append(part.without(row_numbers[is_live]) if is_live.any() else part)
    return remaining_parts


def _check_ids_are_positions(state: IndexState, parts: tuple[IndexPart, ...]) -> None:
    """Raise TypeError if the ids of the index are not positions; new items then need ids."""
    if state.has_string_ids:
        raise TypeError("ids must be strings, like the ids of the index, got None")
    for part in parts:
        if not part.ids_are_positions:
            example = validation.format_value(part.ids.values[0].item())
            raise TypeError(
                f"ids must be passed, got None: the items of the index have ids, such as {example}"
            )

"""Changes of an index: each function returns the state of the index after a change.

The functions validate the arguments of the caller, and raise an error before any change. The
functions run under ``parallel.writer_lock``, so that no other change intervenes.
"""

import dataclasses
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.search import model_check
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
    """Add items, or replace items with the same ids if may_replace is true.

    measure is not fitted, and rows and ids are validated. Without ids, the new positions are the
    ids. The result is the new state and the ids of the items.
    """
    parts, n_positions = state.parts_in_memory(), state.n_positions
    model_check.check_width("items", rows, state.width)
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
    # Indexing by the order copies the rows, so that the caller may change the original rows.
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
    """Remove the items with these ids, which must be in the index."""
    parts, positions = state.parts_in_memory(), state.positions_of(ids)
    if not len(positions):
        return state
    new_state = changed_state(
        state, measure, _without(parts, positions), state.n_positions, None, n_threads
    )
    return dataclasses.replace(new_state, groups=state.groups)


def groups_of(state: IndexState, groups: Any) -> ItemGroups:
    """Return the groups of the items; raise an error for groups if the index has none."""
    if state.groups is None:
        rule, value = "None for an index without groups", validation.format_value(groups)
        raise ValueError(f"groups must be {rule}, got {value}")
    return state.groups


def _as_groups(state: IndexState, groups: Any, n_rows: int) -> Ids | None:
    """Return the validated groups of new rows; None for an index without groups."""
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
    """Raise an error for new items without ids if the ids of the index are not its positions."""
    if state.has_string_ids:
        raise TypeError("ids must be strings as those of the index, got None")
    for part in parts:
        last_id = part.ids.values[-1].item()
        if last_id != part.segment.positions_of(np.array([len(part.rows) - 1]))[0]:
            rule = f"given as for the items of the index ({validation.format_value(last_id)})"
            raise TypeError(f"ids must be {rule}, got None")

"""Convert an index to the content of a directory, and back.

``index_files`` converts one part of an index to arrays and back. This module converts the whole
index: the parts, the measure, the name of the model, the canaries and the groups. ``storage``
writes and reads the files.
"""

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fastcos import storage
from fastcos.search import index_files, model_check
from fastcos.search.index_parts import IndexPart
from fastcos.search.index_state import IndexState, read_state
from fastcos.search.item_groups import ItemGroups
from fastcos.similarity import serialization
from fastcos.similarity.base import Measure, get_measure
from fastcos.validation import Rows

# In the header of the directory, this name says what kind of object is stored.
KIND = "SimilarityIndex"


@dataclasses.dataclass(frozen=True)
class SavedIndex:
    """What a directory contained when this process last read it or wrote to it.

    Attributes
    ----------
    path : Path
        The directory.
    checksum : str
        The checksum of the header; empty while the directory is being written.
    part_fields : dict of Fields
        The fields of each part in the header, by the key of the part.
    array_names : frozenset of str
        The names of all arrays in the directory.
    """

    path: Path
    checksum: str
    part_fields: dict[str, index_files.Fields]
    array_names: frozenset[str]


class IndexFiles(NamedTuple):
    """The data that a save passes to ``storage.save_arrays``.

    Attributes
    ----------
    saved : SavedIndex
        The content of the directory after the save, with an empty checksum.
    fields : dict
        The fields of the header.
    arrays : dict of ndarray
        The arrays to be written, by name.
    kept_arrays : collection of str
        The names of the arrays that are already in the directory and are not written again.
    """

    saved: SavedIndex
    fields: dict[str, Any]
    arrays: dict[str, Any]
    kept_arrays: Any


class LoadedIndex(NamedTuple):
    """The measure, the items and the other contents of an index that was read from a directory."""

    measure: str | Measure
    state: IndexState
    model: str | None
    canaries: Rows | None
    saved: SavedIndex


def files_of(
    state: IndexState,
    measure: str | Measure,
    model: str | None,
    canaries: Rows | None,
    path: Path,
    saved: SavedIndex | None,
) -> IndexFiles:
    """Return the data that must be written to save an index to the directory ``path``.

    ``saved`` is the present content of the directory if this index was read from the directory or
    saved to it before. Otherwise, ``saved`` is None.
    """
    measure_fields, measure_arrays = serialization.to_parts(measure)
    to_save = index_files.parts_to_save(
        state.parts_in_memory(),
        {} if saved is None else saved.part_fields,
        frozenset() if saved is None else saved.array_names,
    )
    fields = {
        "measure": measure_fields,
        "width": state.width,
        "has_names": state.has_string_ids,
        "positions": state.n_positions,
        "parts": to_save.fields,
        "model": model_check.as_model(model),
    }
    arrays = to_save.arrays | measure_arrays
    if canaries is not None:
        arrays["canaries"] = canaries
    if state.groups is not None:
        arrays |= state.groups.to_arrays()
    written = SavedIndex(
        path, "", {part["key"]: part for part in to_save.fields},
        frozenset([*arrays, *to_save.kept_arrays]),
    )  # fmt: skip
    return IndexFiles(written, fields, arrays, to_save.kept_arrays)


def find_finished_save(written: SavedIndex, fields: dict[str, Any]) -> SavedIndex | None:
    """Return the content that an interrupted save wrote to a directory, with the new checksum.

    The result is None if the interrupted save did not replace the header of the directory.
    ``fields`` contains the fields of the new header.
    """
    with contextlib.suppress(storage.FastcosFormatError, OSError):
        saved_fields, checksum = storage.read_fields(written.path, KIND)
        # ``fields`` contains the keys of the parts. The keys are random, so no other save can have
        # chosen the same keys. If the header of the directory contains the same fields, the
        # interrupted save of this index must have written it.
        if saved_fields == json.loads(json.dumps(fields)):
            return dataclasses.replace(written, checksum=checksum)
    return None


def read_directory(
    path: Path,
    stored: storage.Stored,
    old_parts: Sequence[IndexPart],
    saved_fields: dict[str, index_files.Fields],
) -> LoadedIndex:
    """Check the content of a directory, and return the index that the directory contains.

    ``old_parts`` contains the parts that this process has already read; parts that have not changed
    since then are reused. ``saved_fields`` is described in ``index_state.read_state``.
    """
    with storage.refuse_damage(path):
        measure_fields = storage.field(stored.fields, "measure", dict)
        measure = serialization.from_parts(measure_fields, stored.arrays)
        parts_by_key = {part.key: part for part in old_parts}
        state = read_state(stored, get_measure(measure), parts_by_key, saved_fields)
        item_groups = ItemGroups.from_arrays(stored.arrays, state.n_positions)
        state = dataclasses.replace(state, groups=item_groups)
        fields_by_key = {fields["key"]: fields for fields in stored.fields["parts"]}
        model = None
        # Indexes that older versions of fastcos saved have no field "model".
        if stored.fields.get("model") is not None:
            model = storage.field(stored.fields, "model", str)
    saved = SavedIndex(path, stored.checksum, fields_by_key, frozenset(stored.arrays))
    return LoadedIndex(measure, state, model, stored.arrays.get("canaries"), saved)

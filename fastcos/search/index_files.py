"""Convert the parts of an index to the arrays that are saved in a directory, and back.

The directory contains a header and the arrays of every part; the name of an array ends with the key
of its part. The rows of a part never change. When the index is saved again, every new part is
written completely. Of an old part, only the list of removed rows is written, and only if it has
changed. The header is replaced last, in a single step (:mod:`fastcos.storage.directory`). The
arrays of a part are::

    rows_KEY, ids_KEY, norms_KEY     the rows (low-precision rows as bits), their ids and norms
    id_bytes_KEY, id_ends_KEY        the ids as bytes, if one id is much longer than the others
    positions_KEY                    the positions of the rows, if they are not consecutive
    id_order_KEY                     the row numbers by ascending id, if the ids do not ascend
    removed_KEY                      the row numbers of removed items
    order_KEY, packed_KEY, ...       the packed rows
    groups_..._KEY                   the groups of equal rows, if many rows repeat
    prefix_axes_KEY, ...             the projection of the packed rows, if there is one
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import config, storage, validation
from fastcos.kernels.records import Projection
from fastcos.kernels.simd.panel import INVERSE_STEP, N_STATISTICS, PANEL
from fastcos.parallel import memmap
from fastcos.search.duplicates import DuplicateGroups
from fastcos.search.filters import allow_rows
from fastcos.search.ids import ItemIds
from fastcos.search.index_parts import PACKED_ARRAYS, IndexPart, packed_arrays
from fastcos.search.layout import TileLayout, tile_layout
from fastcos.search.packing import PackedItems, packed_items
from fastcos.search.segments import Segment
from fastcos.similarity.base import Measure, capabilities
from fastcos.similarity.encoded_rows import NO_BIAS, EncodedRows, encode_items
from fastcos.storage import FastcosFormatError, Stored
from fastcos.validation import Integers
from fastcos.validation.ids import NO_ID, Ids

Arrays = dict[str, npt.NDArray[Any]]
Fields = dict[str, Any]

# NumPy type codes: first those that are accepted for whole numbers, then those that are accepted
# for rows. Low-precision rows are stored as integers with the same bits.
_INTEGER_TYPES, _ROW_TYPES = "ilq", "fdbhH"
# The smallest accepted scale of a panel, in codes per unit. The norms of packed rows are at most 1,
# and float32 panels have a scale of 1. If a damaged file contained a far smaller scale, the padding
# of a tile would reach a threshold, and a kernel would write this padding past the end of a buffer.
_MIN_SCALE = 0.5
# This entry of the saved layout says that all words of a packed item are adjacent. Older versions
# of fastcos do not recognise a layout with the entry _BY_ITEM, so they pack the rows again instead
# of misreading the packed items.
_BY_ITEM = "by item"
# A projection may have been saved without its array ``largest_k``. Searches then use the projection
# only if k is at most this number.
_DEFAULT_LARGEST_K = validation.read_only(np.full(2, 10, np.float32))
# Positions must be smaller than this number, so that sums of two positions do not overflow.
MAX_POSITIONS = 2**62


@dataclass(frozen=True)
class PartsToSave:
    """The data of a save: new arrays, the fields of each part, and names of unchanged arrays."""

    arrays: Arrays
    fields: list[Fields]
    kept_arrays: list[str]


def check_fields(fields: Any) -> None:
    """Raise ValueError if the fields of a part do not have the format of ``_arrays_and_fields``."""
    if not isinstance(fields, dict):
        raise ValueError(f"a part must be an object, got {fields!r}")
    storage.field(fields, "key", str)
    counts = storage.field(fields, "first", int), storage.field(fields, "removed", int)
    units = storage.field(fields, "unit", float), storage.field(fields, "bias_unit", float)
    if not all(0 <= count < MAX_POSITIONS for count in counts):
        raise ValueError(f"the fields 'first' and 'removed' must be at least 0, got {counts}")
    if not all(0 < unit < np.inf for unit in units):
        raise ValueError(f"the fields 'unit' and 'bias_unit' must be positive, got {units}")


def parts_to_save(
    parts: Sequence[IndexPart], saved_fields: Mapping[str, Fields], saved_arrays: Collection[str]
) -> PartsToSave:
    """Return the arrays and fields that must be written to save these parts in a directory.

    ``saved_fields`` maps the key of each part in the directory to the fields of the part.
    ``saved_arrays`` contains the names of all arrays in the directory. If a part is already in the
    directory, its arrays are not written again. The arrays of a part in memory may differ from its
    saved arrays, because this CPU may pack rows in another layout, or because a search may have
    added a projection.
    """
    arrays: Arrays = {}
    fields: list[Fields] = []
    kept_arrays: list[str] = []
    for part in parts:
        part_arrays, part_fields = _arrays_and_fields(part)
        if part.key not in saved_fields:
            arrays |= {f"{name}_{part.key}": array for name, array in part_arrays.items()}
            fields.append(part_fields)
            continue
        old_fields, removed = saved_fields[part.key], f"removed_{part.key}"
        fields.append({**old_fields, "removed": part_fields["removed"]})
        saved_names = {name for name in saved_arrays if name.endswith(f"_{part.key}")}
        if part_fields["removed"] != old_fields["removed"]:
            arrays[removed] = part_arrays["removed"]
            saved_names.discard(removed)
        kept_arrays += sorted(saved_names)
    return PartsToSave(arrays, fields, kept_arrays)


def _arrays_and_fields(part: IndexPart) -> tuple[Arrays, Fields]:
    """Return all arrays of a part, by name, and the header fields that describe the part."""
    segment, ids = part.segment, part.ids
    arrays: Arrays = {"rows": memmap.as_bits(segment.rows), **_arrays_of_ids(ids.values)}
    if ids.order is not None:
        arrays["id_order"] = ids.order
    if segment.positions is not None:
        arrays["positions"] = segment.positions
    if part.n_removed:
        is_removed = np.ones(len(part.rows), np.bool_)
        is_removed[segment.live_row_numbers] = False
        arrays["removed"] = np.flatnonzero(is_removed)
    if np.may_share_memory(segment.encoded.rows, segment.rows):
        arrays["norms"] = segment.encoded.norms
    groups = segment.duplicates
    segment.wait_for_projection()
    packed = segment.packed if groups is None else segment.distinct.packed
    arrays |= packed_arrays(packed)
    has_projection = packed.arrays.projection.words > 0
    if groups is not None:
        arrays |= {f"groups_{name}": array for name, array in groups._asdict().items()}
    return arrays, {
        "key": part.key,
        "first": segment.first_position,
        "removed": part.n_removed,
        "layout": _layout_fields(packed.layout, has_projection=has_projection),
        "unit": packed.units.unit,
        "bias_unit": packed.units.offset_unit,
    }


def _layout_fields(layout: TileLayout, *, has_projection: bool) -> list[Any]:
    """Return the header fields that describe the layout of packed rows."""
    fields = [layout.isa, layout.quantised, layout.words, layout.error]
    return [*fields, _BY_ITEM] if layout.is_by_item(has_projection) else fields


def _arrays_of_ids(ids: Ids) -> Arrays:
    """Return the arrays in which the ids are saved.

    Ids of type object are saved as UTF-8 bytes, together with the offset at which each id ends. All
    other ids are saved as they are.
    """
    if ids.dtype != object:
        return {"ids": ids}
    encoded = [text.encode("utf8", "surrogatepass") for text in ids]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {"id_bytes": np.frombuffer(b"".join(encoded), np.uint8), "id_ends": ends}


def _ids_from_bytes(id_bytes: npt.NDArray[Any], ends: npt.NDArray[Any]) -> Ids:
    """Return the ids that were stored as UTF-8 bytes.

    ``ends`` contains, for each id, the index of the first byte after the id; the caller has checked
    that ``ends`` is ascending. ValueError is raised if the bytes are not UTF-8.
    """
    text, starts = id_bytes.tobytes(), [0, *ends[:-1].tolist()]
    ids = [
        text[start:end].decode("utf8", "surrogatepass")
        for start, end in zip(starts, ends.tolist(), strict=True)
    ]
    return np.array(ids, dtype=object)


class _PartArrays:
    """The arrays of one part in a directory, which are checked when they are read.

    Kernels do not check their input. This class therefore checks every array whose numbers a kernel
    uses as indices. After each check, the memory pages that the check has read are released.
    """

    def __init__(self, stored: Stored, key: str) -> None:
        self._stored, self._key = stored, key

    def get(self, name: str) -> Any:
        """Return the array with this name, unchecked, or None if there is no such array."""
        return self._stored.arrays.get(f"{name}_{self._key}")

    def damage(self, name: str, rule: str) -> FastcosFormatError:
        """Return an error that names the file of an array and the rule that the array breaks."""
        file = self._stored.files.get(f"{name}_{self._key}", f"{name}_{self._key}")
        return FastcosFormatError(f"{file} is damaged: it {rule}")

    def of_shape(self, name: str, shape: tuple[int, ...], types: str) -> Any:
        """Return an array of the part; the array must have this shape and one of these types."""
        array = self.get(name)
        if array is None or array.shape != shape or array.dtype.char not in types:
            actual = "none" if array is None else f"{array.dtype} {array.shape}"
            raise self.damage(name, f"must be of shape {shape}, got {actual}")
        return array

    def distinct(self, name: str, size: int, count: int, *, ascending: bool) -> Any:
        """Check that an array (count,) holds distinct integers from 0 to size - 1; return it."""
        array = self.of_shape(name, (count,), _INTEGER_TYPES)
        low, high = array.min(initial=0), array.max(initial=0)
        if low < 0 or high >= max(size, 1):
            rule = f"must hold numbers from 0 to {size - 1}, got {low} to {high}"
            raise self.damage(name, rule)
        if ascending:
            are_distinct = bool((array[1:] > array[:-1]).all())
        else:
            is_used = np.zeros(size, np.bool_)
            is_used[array] = True
            are_distinct = np.count_nonzero(is_used) == len(array)
        if not are_distinct:
            raise self.damage(name, "must hold different numbers" + ", ascending" * ascending)
        memmap.release(array)
        return array

    def finite(self, name: str, shape: tuple[int, ...], types: str, low: float = -np.inf) -> Any:
        """Return an array of this shape and type, whose numbers are finite and at least ``low``."""
        array = self.of_shape(name, shape, types)
        smallest, largest = array.min(initial=np.inf), array.max(initial=-np.inf)
        if array.size and not (low <= smallest and largest < np.inf and smallest > -np.inf):
            rule = f"must be finite and at least {low:g}, got {smallest:g} to {largest:g}"
            raise self.damage(name, rule)
        memmap.release(array)
        return array

    def statistics(self, name: str, n_panels: int) -> Any:
        """Return the statistics of `n_panels` panels; the scales must be at least `_MIN_SCALE`."""
        array = self.finite(name, (n_panels, N_STATISTICS), "f")
        if not (array[:, INVERSE_STEP] >= _MIN_SCALE).all():
            raise self.damage(name, f"must hold scales of at least {_MIN_SCALE}")
        return array


def read_part(fields: Mapping[str, Any], stored: Stored, measure: Measure) -> IndexPart:
    """Read the part that these validated fields describe; the measure must already be fitted.

    If the measure has the capability ``append``, saved norms are not computed again. If the rows
    were packed in the layout that this CPU needs, the codes are read from the files; otherwise, the
    rows are packed again. If a file is damaged, FastcosFormatError is raised, and its message names
    the file.
    """
    arrays = _PartArrays(stored, fields["key"])
    bits = arrays.get("rows")
    if bits is None or bits.ndim != 2 or 0 in bits.shape or bits.dtype.char not in _ROW_TYPES:
        raise arrays.damage("rows", "must hold rows of numbers")
    ids = _read_ids(arrays, len(bits))
    segment = _read_segment(fields, arrays, bits, measure)
    groups = _read_groups(arrays, segment)
    segment.duplicates = groups
    packed = _read_packed(fields, arrays, segment, groups)
    if packed is not None and groups is not None:
        segment.distinct.packed = packed
    elif packed is not None:
        segment.packed = packed
        if len(packed.arrays.row_of_slot) > len(segment.live_row_numbers):
            segment.live = allow_rows(segment.live_row_numbers, len(bits))
    segment.pack()
    return IndexPart(segment, ids, fields["key"], is_mapped=True)


def _read_ids(arrays: _PartArrays, n: int) -> ItemIds:
    """Return the ids of the n rows of a part."""
    if arrays.get("id_ends") is None:
        ids = arrays.of_shape("ids", (n,), "lqU")
    else:
        ends = arrays.of_shape("id_ends", (n,), _INTEGER_TYPES)
        if ends[0] < 0 or (ends[1:] < ends[:-1]).any():
            raise arrays.damage("id_ends", "must hold ascending numbers")
        ids = _ids_from_bytes(arrays.of_shape("id_bytes", (int(ends[-1]),), "B"), ends)
    order = arrays.get("id_order")
    if order is not None:
        arrays.distinct("id_order", n, n, ascending=False)
    if ids.dtype.kind == "U":
        if ids.view(np.uint32).max(initial=0) > sys.maxunicode:
            raise arrays.damage("ids", "must hold texts")
    elif ids.dtype != object:
        ascending_ids = ids if order is None else ids[order]
        if not (ascending_ids[1:] > ascending_ids[:-1]).all() or (ascending_ids == NO_ID).any():
            raise arrays.damage(
                "ids", "must hold different numbers that ascend in the order of id_order"
            )
    memmap.release(ids)
    return ItemIds(ids, order)


def _read_segment(
    fields: Mapping[str, Any], arrays: _PartArrays, bits: Any, measure: Measure
) -> Segment:
    """Return a segment with the rows, norms and positions of a part, but without packed rows.

    ``bits`` contains the rows in the type in which they are stored.
    """
    n = len(bits)
    positions, norms = arrays.get("positions"), arrays.get("norms")
    if positions is not None:
        arrays.distinct("positions", MAX_POSITIONS, n, ascending=True)
    if norms is not None:
        arrays.finite("norms", (n,), "d", 0.0)
    rows = memmap.from_bits(bits)
    if norms is not None and capabilities(measure).append:
        encoded = EncodedRows(bits, norms, NO_BIAS)
    else:
        encoded = encode_items(measure, rows, None)
    live_rows: Integers = np.arange(n, dtype=np.int64)
    if fields["removed"]:
        removed_rows = arrays.distinct("removed", n, fields["removed"], ascending=True)
        live_rows = np.delete(live_rows, removed_rows)
    return Segment(
        measure.metric_type, encoded, live_rows, rows=rows, first_position=fields["first"],
        positions=positions,
    )  # fmt: skip


def _read_groups(arrays: _PartArrays, segment: Segment) -> DuplicateGroups | None:
    """Return the saved groups of equal rows, or None if the rows were not grouped."""
    first = arrays.get("groups_first")
    if first is None:
        return None
    n, n_live, n_groups = len(segment.rows), len(segment.live_row_numbers), len(first)
    arrays.distinct("groups_first", n, n_groups, ascending=False)
    group_of = arrays.of_shape("groups_group_of", (n,), _INTEGER_TYPES)[segment.live_row_numbers]
    if group_of.min(initial=0) < 0 or group_of.max(initial=0) >= n_groups:
        raise arrays.damage("groups_group_of", f"must hold numbers from 0 to {n_groups - 1}")
    arrays.distinct("groups_members", n, n_live, ascending=False)
    starts = arrays.of_shape("groups_starts", (n_groups + 1,), _INTEGER_TYPES)
    if starts[0] != 0 or starts[-1] != n_live or not (starts[1:] > starts[:-1]).all():
        raise arrays.damage("groups_starts", f"must ascend from 0 to {n_live}")
    names = DuplicateGroups._fields
    return DuplicateGroups(**{name: arrays.get(f"groups_{name}") for name in names})


def _read_packed(
    fields: Mapping[str, Any],
    arrays: _PartArrays,
    segment: Segment,
    groups: DuplicateGroups | None,
) -> PackedItems | None:
    """Return the saved packed rows, or None if this CPU needs another layout."""
    encoded, n = segment.encoded, len(segment.rows)
    depth = encoded.rows.shape[1]
    layout = tile_layout(config.isa(), depth)
    has_projection = arrays.get("prefix_axes") is not None
    if fields["layout"] != _layout_fields(layout, has_projection=has_projection):
        return None
    row_of_slot = arrays.get("order")
    n_packed = -1 if row_of_slot is None else row_of_slot.size
    if groups is not None:
        n_packed = len(groups.first)
    arrays.distinct("order", n, n_packed, ascending=False)
    if groups is None and n_packed < n:
        is_packed = np.zeros(n, np.bool_)
        is_packed[row_of_slot] = True
        if not is_packed[segment.live_row_numbers].all():
            raise arrays.damage("order", "must hold every item that has not been removed")
    n_panels = -(-n_packed // PANEL)
    arrays.of_shape("packed", (n_panels * PANEL * layout.words,), layout.empty_array().dtype.char)
    arrays.statistics("statistics", n_panels)
    for name, size, kind in (("small_offsets", n_packed, "f"), ("shift", depth, "d")):
        arrays.finite(name, (size if np.size(arrays.get(name)) else 0,), kind)
    projection = _read_projection(arrays, layout, depth, n_panels) if has_projection else None
    return packed_items(
        segment.metric_type, layout, encoded, [arrays.get(name) for name in PACKED_ARRAYS],
        fields["unit"], fields["bias_unit"], projection=projection,
    )  # fmt: skip


def _read_projection(
    arrays: _PartArrays, layout: TileLayout, depth: int, n_panels: int
) -> Projection:
    """Return the saved projection of the packed rows; each packed row has `depth` columns."""
    n_axes = len(arrays.get("prefix_axes")) * PANEL
    words = tile_layout(layout.isa, n_axes).words
    if not 0 < n_axes <= depth + PANEL or not layout.quantised:
        raise arrays.damage(
            "prefix_axes", f"must hold fewer axes than the rows have columns ({depth})"
        )
    largest_k = _DEFAULT_LARGEST_K
    if arrays.get("prefix_largest_k") is not None:
        largest_k = arrays.finite("prefix_largest_k", (2,), "f", 0.0)
    return Projection(
        axes=arrays.finite("prefix_axes", (n_axes // PANEL, depth, PANEL), "f"),
        packed=arrays.of_shape("prefix_packed", (n_panels * PANEL * words,), "i"),
        words=words,
        statistics=arrays.statistics("prefix_statistics", n_panels),
        remainder_norms=arrays.finite("prefix_rests", (n_panels * PANEL,), "f", 0.0),
        eta=arrays.finite("prefix_eta", (1,), "f", 0.0),
        largest_k=largest_k,
    )

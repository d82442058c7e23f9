"""An index as a directory: arrays of every part, named after it, and one header.

A part never changes, so that a later save writes new parts, and of an old one at most which of its
items were removed. The header is replaced last, in one step (:mod:`fastcos.storage.directory`)::

    rows_KEY  ids_KEY  norms_KEY         the items (narrow ones as bits), their ids, their norms
    positions_KEY  id_order_KEY          where positions have gaps, where ids do not ascend
    removed_KEY                          numbers of the removed items
    order_KEY  packed_KEY  ...           what is packed; groups_... where items repeat
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import config
from fastcos.engine import narrow_rows
from fastcos.engine.duplicates import DuplicateGroups
from fastcos.engine.packing import NO_BIAS, EncodedRows, packed_items, permit, tile_layout
from fastcos.engine.segments import Segment
from fastcos.measures.base import Measure, capabilities, encode_items
from fastcos.neighbors.ids import ItemIds
from fastcos.neighbors.index_parts import IndexPart

Arrays = dict[str, npt.NDArray[Any]]
Fields = dict[str, Any]

# arrays of a packed segment, by their names in the kernels' Items
PACKED = ("order", "packed", "small_offsets", "statistics", "shift")


def to_stored(
    parts: Sequence[IndexPart], stored: Mapping[str, Fields]
) -> tuple[Arrays, list[Fields], list[str]]:
    """Return arrays to write, fields of every part, and names of arrays that stay.

    stored: keys and fields of the parts that the directory holds.
    """
    arrays: Arrays = {}
    fields: list[Fields] = []
    kept: list[str] = []
    for part in parts:
        whole, field = _to_stored(part)
        named = {f"{name}_{part.key}": array for name, array in whole.items()}
        if part.key not in stored:
            arrays |= named
            fields.append(field)
            continue
        before, removed = stored[part.key], f"removed_{part.key}"
        # what a CPU of another layout packed stays, too
        fields.append({**before, "removed": field["removed"]})
        if field["removed"] != before["removed"]:
            arrays[removed] = named.pop(removed)
        kept += named
    return arrays, fields, kept


def _to_stored(part: IndexPart) -> tuple[Arrays, Fields]:
    """Return all arrays of a part by name, and its fields."""
    segment, ids = part.segment, part.ids
    arrays: Arrays = {"rows": narrow_rows.as_bits(segment.rows), "ids": ids.values}
    if ids.order is not None:
        arrays["id_order"] = ids.order
    if segment.positions is not None:
        arrays["positions"] = segment.positions
    n = len(segment.rows)
    if len(segment.numbers) < n:
        is_removed = np.ones(n, np.bool_)
        is_removed[segment.numbers] = False
        arrays["removed"] = np.flatnonzero(is_removed)
    if np.may_share_memory(segment.encoded.rows, segment.rows):
        arrays["norms"] = segment.encoded.norms
    groups = segment.duplicates
    packed = segment.packed if groups is None else segment.packed_distinct
    arrays |= {name: getattr(packed.arrays, name) for name in PACKED}
    if groups is not None:
        arrays |= {f"groups_{name}": array for name, array in groups._asdict().items()}
    return arrays, {
        "key": part.key,
        "first": segment.first,
        "removed": n - len(segment.numbers),
        "layout": list(packed.layout),
        "unit": packed.unit,
        "bias_unit": packed.bias_unit,
    }


def from_stored(
    field: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], measure: Measure
) -> IndexPart:
    """Return the part of these fields; measure is fitted. Norms and codes are not made again.

    Packed anew if saved on a CPU with another layout.
    """
    key = field["key"]

    def of(name: str) -> Any:
        return arrays.get(f"{name}_{key}")

    bits, norms = of("rows"), of("norms")
    rows = narrow_rows.from_bits(bits)
    if norms is not None and capabilities(measure).append:
        encoded = EncodedRows(bits, norms, NO_BIAS)
    else:
        encoded = encode_items(measure, rows, None)
    numbers = np.arange(len(rows), dtype=np.int64)
    if field["removed"]:
        numbers = np.delete(numbers, of("removed"))
    segment = Segment(
        measure.metric_type, encoded, numbers, rows=rows, first=field["first"],
        positions=of("positions"),
    )  # fmt: skip
    groups = of("groups_first")
    segment.duplicates = None
    if groups is not None:
        names = DuplicateGroups._fields
        segment.duplicates = DuplicateGroups(*(of(f"groups_{name}") for name in names))
    here = tile_layout(config.isa(), encoded.rows.shape[1])
    if field["layout"] == list(here):
        packed = packed_items(
            segment.metric_type, here, encoded, [of(name) for name in PACKED], field["unit"],
            field["bias_unit"],
        )  # fmt: skip
        if groups is not None:
            segment.packed_distinct = packed
        else:
            segment.packed = packed
            if len(packed.arrays.order) > len(numbers):
                segment.left = permit(numbers, len(rows))
    segment.pack()
    return IndexPart(segment, ItemIds(of("ids"), of("id_order")), key, is_mapped=True)

"""An index as a directory: arrays of every part, named after it, and one header.

A part never changes, so that a later save writes new parts, and of an old one at most which of its
items were removed. The header is replaced last, in one step (:mod:`fastcos.storage.directory`)::

    rows_KEY  ids_KEY  norms_KEY         the items (narrow ones as bits), their ids, their norms
    id_bytes_KEY  id_ends_KEY            in place of ids, where one id is much longer than others
    positions_KEY  id_order_KEY          where positions have gaps, where ids do not ascend
    removed_KEY                          numbers of the removed items
    order_KEY  packed_KEY  ...           what is packed; groups_... where items repeat
    prefix_axes_KEY  ...                 prefixes of what is packed, where searches use them
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import config, storage, validation
from fastcos.kernels.prefixes import Prefixes
from fastcos.kernels.query_scaling import BOUND_PREFIX
from fastcos.kernels.simd.panel import PANEL
from fastcos.parallel import memmap
from fastcos.search.duplicates import DuplicateGroups
from fastcos.search.ids import NO_ID, Ids, ItemIds
from fastcos.search.index_parts import IndexPart
from fastcos.search.layout import tile_layout
from fastcos.search.packing import PackedItems, packed_items, permit
from fastcos.search.segments import Segment
from fastcos.similarity.base import Measure, capabilities, encode_items
from fastcos.similarity.encoded_rows import NO_BIAS, EncodedRows
from fastcos.storage import FastcosFormatError, Stored

Arrays = dict[str, npt.NDArray[Any]]
Fields = dict[str, Any]

# arrays of a packed segment, by their names in the kernels' Items
PACKED = ("order", "packed", "small_offsets", "statistics", "shift")
# types of whole numbers, and of rows with the bits of narrow ones
_WHOLE, _ROWS = "ilq", "fdbhH"
# least codes per unit of a panel, whose rows have a norm of at most 1 (float32: 1). With far less
# the padding of a tile would pass a threshold, and be written behind the buffers
_LEAST_SCALE = 0.5
# mark of a layout in which the words of an item lie together, which others would read wrongly
_BY_ITEM = ("by item",)
# of prefixes in directories that do not say it
_LARGEST_K = validation.read_only(np.full(2, 10, np.float32))
# positions below which sums of them cannot overflow
MOST_POSITIONS = 2**62


def check_field(field: Any) -> None:
    """Refuse fields of a part that are not what _to_stored writes."""
    if not isinstance(field, dict):
        raise ValueError(f"a part must be an object, got {field!r}")
    storage.field(field, "key", str)
    counts = storage.field(field, "first", int), storage.field(field, "removed", int)
    units = storage.field(field, "unit", float), storage.field(field, "bias_unit", float)
    if not all(0 <= n < MOST_POSITIONS for n in counts):
        raise ValueError(f"first and removed must be at least 0, got {counts}")
    if not all(0 < unit < np.inf for unit in units):
        raise ValueError(f"unit and bias_unit must be positive, got {units}")


def to_stored(
    parts: Sequence[IndexPart], stored: Mapping[str, Fields], names: Collection[str]
) -> tuple[Arrays, list[Fields], list[str]]:
    """Return arrays to write, fields of every part, and names of arrays that stay.

    stored: keys and fields of the parts that the directory holds; names: of its arrays. These need
    not be those of a part here, which another CPU packs anew, and searches give prefixes.
    """
    arrays: Arrays = {}
    fields: list[Fields] = []
    kept: list[str] = []
    for part in parts:
        whole, field = _to_stored(part)
        if part.key not in stored:
            arrays |= {f"{name}_{part.key}": array for name, array in whole.items()}
            fields.append(field)
            continue
        before, removed = stored[part.key], f"removed_{part.key}"
        fields.append({**before, "removed": field["removed"]})
        stay = {name for name in names if name.endswith(f"_{part.key}")}
        if field["removed"] != before["removed"]:
            arrays[removed] = whole["removed"]
            stay.discard(removed)
        kept += sorted(stay)
    return arrays, fields, kept


def _to_stored(part: IndexPart) -> tuple[Arrays, Fields]:
    """Return all arrays of a part by name, and its fields."""
    segment, ids = part.segment, part.ids
    arrays: Arrays = {"rows": memmap.as_bits(segment.rows), **_ids_to_stored(ids.values)}
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
    segment.settle()
    packed = segment.packed if groups is None else segment.packed_distinct
    arrays |= packed_arrays(packed)
    mark = _BY_ITEM if packed.arrays.prefix.words > 0 and packed.layout.isa != "amx" else ()
    if groups is not None:
        arrays |= {f"groups_{name}": array for name, array in groups._asdict().items()}
    return arrays, {
        "key": part.key,
        "first": segment.first,
        "removed": n - len(segment.numbers),
        "layout": [*packed.layout, *mark],
        "unit": packed.units[0],
        "bias_unit": packed.units[1],
    }


def _ids_to_stored(ids: Ids) -> Arrays:
    """Return ids as one array of fixed width, or as UTF-8 bytes and where each id ends."""
    if ids.dtype != object:
        return {"ids": ids}
    encoded = [one.encode("utf8", "surrogatepass") for one in ids]
    ends = np.cumsum([len(one) for one in encoded], dtype=np.int64)
    return {"id_bytes": np.frombuffer(b"".join(encoded), np.uint8), "id_ends": ends}


def _ids_from_stored(content: npt.NDArray[Any], ends: npt.NDArray[Any]) -> Ids:
    """Return the ids of checked bytes and ends; ValueError where they are not UTF-8."""
    whole, starts = content.tobytes(), [0, *ends[:-1].tolist()]
    ids = [
        whole[first:last].decode("utf8", "surrogatepass")
        for first, last in zip(starts, ends.tolist(), strict=True)
    ]
    return np.array(ids, dtype=object)


def packed_arrays(packed: PackedItems) -> Arrays:
    """Return the arrays of packed items that are their own, by name."""
    arrays = {name: getattr(packed.arrays, name) for name in PACKED}
    prefix = packed.arrays.prefix
    if prefix.words:
        arrays |= {f"prefix_{name}": getattr(prefix, name) for name in BOUND_PREFIX}
    return arrays


def from_stored(field: Mapping[str, Any], stored: Stored, measure: Measure) -> IndexPart:
    """Return the part of these fields, which were checked; measure is fitted.

    Norms and codes are not made again.

    Packed anew if saved on a CPU with another layout. Every array by which a kernel indexes is
    checked: damage is a FastcosFormatError with the name of the file. Pages that were read for that
    are released.
    """
    key = field["key"]

    def of(name: str) -> Any:
        return stored.arrays.get(f"{name}_{key}")

    def check(name: str, shape: tuple[int, ...], kinds: str) -> Any:
        """Return an array of this shape and one of these types."""
        array = of(name)
        if array is None or array.shape != shape or array.dtype.char not in kinds:
            got = "none" if array is None else f"{array.dtype} {array.shape}"
            raise damage(name, f"must be of shape {shape}, got {got}")
        return array

    def check_range(name: str, size: int, shape: tuple[int, ...], *, ascending: bool) -> Any:
        """Return different whole numbers below size."""
        array = check(name, shape, _WHOLE)
        low, high = array.min(initial=0), array.max(initial=0)
        if low < 0 or high >= max(size, 1):
            raise damage(name, f"must hold numbers from 0 to {size - 1}, got {low} to {high}")
        if ascending:
            is_distinct = bool((array[1:] > array[:-1]).all())
        else:
            seen = np.zeros(size, np.bool_)
            seen[array] = True
            is_distinct = np.count_nonzero(seen) == len(array)
        if not is_distinct:
            raise damage(name, "must hold different numbers" + ", ascending" * ascending)
        memmap.release(array)
        return array

    def check_finite(name: str, shape: tuple[int, ...], kind: str, low: float = -np.inf) -> Any:
        """Return an array of this shape and type without NaN, infinity, and what is below low."""
        array = check(name, shape, kind)
        least, most = array.min(initial=np.inf), array.max(initial=-np.inf)
        if array.size and not (low <= least and most < np.inf and least > -np.inf):
            raise damage(name, f"must be finite and at least {low:g}, got {least:g} to {most:g}")
        memmap.release(array)
        return array

    def check_statistics(name: str, n_panels: int) -> Any:
        """Return statistics of panels with scales that no padding passes."""
        array = check_finite(name, (n_panels, 5), "f")
        if not (array[:, 0] >= _LEAST_SCALE).all():
            raise damage(name, f"must hold scales of at least {_LEAST_SCALE}")
        return array

    def damage(name: str, rule: str) -> FastcosFormatError:
        file = stored.files.get(f"{name}_{key}", f"{name}_{key}")
        return FastcosFormatError(f"{file} is damaged: it {rule}")

    bits, norms = of("rows"), of("norms")
    if bits is None or bits.ndim != 2 or 0 in bits.shape or bits.dtype.char not in _ROWS:
        raise damage("rows", "must hold rows of numbers")
    n = len(bits)
    if of("id_ends") is None:
        ids = check("ids", (n,), "lqU")
    else:
        ends = check("id_ends", (n,), _WHOLE)
        if ends[0] < 0 or (ends[1:] < ends[:-1]).any():
            raise damage("id_ends", "must hold ascending numbers")
        ids = _ids_from_stored(check("id_bytes", (int(ends[-1]),), "B"), ends)
    order_of_ids = of("id_order")
    if order_of_ids is not None:
        check_range("id_order", n, (n,), ascending=False)
    if ids.dtype.kind == "U":
        if ids.view(np.uint32).max(initial=0) > sys.maxunicode:
            raise damage("ids", "must hold texts")
    elif ids.dtype != object:
        ordered = ids if order_of_ids is None else ids[order_of_ids]
        if not (ordered[1:] > ordered[:-1]).all() or (ordered == NO_ID).any():
            raise damage("ids", "must hold different numbers, in the order of id_order")
    memmap.release(ids)
    if of("positions") is not None:
        check_range("positions", MOST_POSITIONS, (n,), ascending=True)
    if norms is not None:
        check_finite("norms", (n,), "d", 0.0)
    rows = memmap.from_bits(bits)
    if norms is not None and capabilities(measure).append:
        encoded = EncodedRows(bits, norms, NO_BIAS)
    else:
        encoded = encode_items(measure, rows, None)
    numbers = np.arange(len(rows), dtype=np.int64)
    if field["removed"]:
        gone = check_range("removed", n, (field["removed"],), ascending=True)
        numbers = np.delete(numbers, gone)
    segment = Segment(
        measure.metric_type, encoded, numbers, rows=rows, first=field["first"],
        positions=of("positions"),
    )  # fmt: skip
    groups = of("groups_first")
    segment.duplicates = None
    if groups is not None:
        size = len(groups)
        check_range("groups_first", n, (size,), ascending=False)
        group_of = check("groups_group_of", (n,), _WHOLE)[numbers]
        if group_of.min(initial=0) < 0 or group_of.max(initial=0) >= size:
            raise damage("groups_group_of", f"must hold numbers from 0 to {size - 1}")
        check_range("groups_members", n, (len(numbers),), ascending=False)
        starts = check("groups_starts", (size + 1,), _WHOLE)
        if starts[0] != 0 or starts[-1] != len(numbers) or not (starts[1:] > starts[:-1]).all():
            raise damage("groups_starts", f"must ascend from 0 to {len(numbers)}")
        names = DuplicateGroups._fields
        segment.duplicates = DuplicateGroups(*(of(f"groups_{name}") for name in names))
    here = tile_layout(config.isa(), encoded.rows.shape[1])
    has_prefixes = of("prefix_axes") is not None
    mark = _BY_ITEM if has_prefixes and here.isa != "amx" else ()
    if field["layout"] == [*here, *mark]:
        order = of("order")
        m = len(groups) if groups is not None else -1 if order is None else order.size
        check_range("order", n, (m,), ascending=False)
        if groups is None and m < n:
            seen = np.zeros(n, np.bool_)
            seen[order] = True
            if not seen[numbers].all():
                raise damage("order", "must hold every item that can be found")
        depth, n_panels = encoded.rows.shape[1], -(-m // PANEL)
        check("packed", (n_panels * PANEL * here.words,), here.empty_array().dtype.char)
        check_statistics("statistics", n_panels)
        for name, size, kind in (("small_offsets", m, "f"), ("shift", depth, "d")):
            check_finite(name, (size if np.size(of(name)) else 0,), kind)
        prefix = None
        if has_prefixes:
            n_axes = len(of("prefix_axes")) * PANEL
            words = tile_layout(here.isa, n_axes).words
            if not 0 < n_axes <= depth + PANEL or not here.quantised:
                raise damage("prefix_axes", f"must hold fewer axes than {depth}")
            largest_k = _LARGEST_K
            if of("prefix_largest_k") is not None:
                largest_k = check_finite("prefix_largest_k", (2,), "f", 0.0)
            prefix = Prefixes(
                check_finite("prefix_axes", (n_axes // PANEL, depth, PANEL), "f"),
                check("prefix_packed", (n_panels * PANEL * words,), "i"),
                words,
                check_statistics("prefix_statistics", n_panels),
                check_finite("prefix_rests", (n_panels * PANEL,), "f", 0.0),
                check_finite("prefix_eta", (1,), "f", 0.0),
                largest_k,
            )
        packed = packed_items(
            segment.metric_type, here, encoded, [of(name) for name in PACKED], field["unit"],
            field["bias_unit"], prefix=prefix,
        )  # fmt: skip
        if groups is not None:
            segment.packed_distinct = packed
        else:
            segment.packed = packed
            if len(packed.arrays.order) > len(numbers):
                segment.left = permit(numbers, len(rows))
    segment.pack()
    return IndexPart(segment, ItemIds(ids, of("id_order")), key, is_mapped=True)

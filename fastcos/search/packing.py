"""Pack rows for the tiles, and compute the scaling of queries.

``pack_items`` scales, rotates and quantises items once, in the layout of the instruction set.
``pack_queries`` only computes how queries are scaled; the kernels rotate and quantise them.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, validation
from fastcos.kernels import packing, query_encoding, records, tiles
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.kernels.simd.panel import INVERSE_STEP, MAX_NORM, N_STATISTICS, PANEL
from fastcos.parallel import memmap
from fastcos.search.filters import AllowedRows, ExcludedItems, kernel_filters
from fastcos.search.layout import TileLayout, float_layout, tile_layout
from fastcos.search.plan import pays_grouping
from fastcos.similarity import kernel_records
from fastcos.similarity.encoded_rows import METRIC_TYPES, EncodedRows, match_type
from fastcos.validation import Floats as Floats, Integers as Integers, Rows as Rows

# A rotation uses random signs to spread a row over its coordinates. This number is the seed of
# these signs.
_ROTATION_SEED = 20240308
# The configuration of the tile registers of AMX.
_TILE_REGISTERS = validation.read_only(tiles.configuration())
# Without a shift, nothing is subtracted from the rows before they are quantised.
_NO_SHIFT = validation.read_only(np.zeros(0))
# Packed rows are already scaled, so their tile scores need no scaling.
_NO_SCALING = validation.read_only(np.zeros((0, 2), np.float32))
# The smallest and the largest norm of rows that are safe for products in float32. If norms lie
# between these two numbers, products do not overflow. Products may underflow, but the resulting
# errors are less than a tenth of the bound on rounding errors.
_SMALLEST_NORM, _LARGEST_NORM = 1e-10, 1e15
# The sizes of the two samples that decide about a shift (a direction that is subtracted from all
# rows). The directions in the first sample are compared with each other. The 128^2 products that
# these comparisons need take less time than packing 1,000 items. The second sample gives the mean
# of the rows.
_COMPARED_ITEMS, _AVERAGED_ITEMS = 128, 2048
# The smallest number of directions that are compared with each other. For n items, n // 32
# directions are compared, but at least 32 and at most 128. Comparing 128 of 1,000 items would take
# 0.4 ms, as long as packing all 1,000 items.
_MIN_COMPARED = 32
# A shift is tried only for at least this many items, because sampling fewer items takes longer than
# searching them.
_MIN_ITEMS = 256
# Two directions count as close if their cosine is at least this number. The difference between 1
# and _CLOSE_COSINE is about as large as the error of a cosine that is computed from codes.
_CLOSE_COSINE = 0.98
# Each compared direction forms a group with the compared directions that are close to it. If the
# largest group contains at least this share of all compared directions, the shift is computed from
# this group.
_MIN_CLOSE_SHARE = 0.15
# If the mean of the unit rows has at least this length, the direction of the mean becomes the
# shift. Subtracting a mean of length 0.2 shortens unit rows by 2 %. The mean of 2,048 random
# directions is shorter than 0.2.
_MIN_MEAN_LENGTH = 0.2
# Rows that are compared by dot product are shifted if the smallest norm is at least this share of
# the largest norm.
_MIN_NORM_RATIO = 0.5


class RowScaling(NamedTuple):
    """The scaling of rows: tiles read ``factor * row - coefficient * shift`` instead of ``row``.

    ``factors`` (n,) and ``coefficients`` (n,) contain one number per row. ``shift`` (d,) is one
    vector for all rows; if ``shift`` is empty, ``coefficients`` is not used.
    """

    factors: Floats
    coefficients: Floats
    shift: Floats


class ItemScaling(NamedTuple):
    """The scaling of all items of a segment, including items that will not be packed.

    Attributes
    ----------
    rows : RowScaling
    offsets, scaled_offsets : ndarray (p,)
        ``offsets`` contains one number per item, which is added to the inner products of the item.
        ``scaled_offsets`` contains the same numbers in the units of the tiles. Both arrays are
        empty if nothing is added. If rows are compared by distance or are shifted, the offset of an
        item is computed from its row; otherwise, the offset is the bias of the item.
    unit, offset_unit : float
        Two powers of two: rows are multiplied by ``unit``, and offsets are multiplied by
        ``offset_unit``. If the score is the cosine, each row is divided by its norm, and ``unit``
        is 1.
    """

    rows: RowScaling
    offsets: Floats
    scaled_offsets: Floats
    unit: float
    offset_unit: float


class PackedItems(NamedTuple):
    """Items in panels of 32 rows: the rows, and the records Items and ItemAddresses for kernels."""

    metric_type: str
    layout: TileLayout
    rows: Rows
    arrays: Any
    addresses: Any

    @property
    def n_panels(self) -> int:
        """The number of panels of 32 slots."""
        return len(self.arrays.statistics)

    @property
    def row_numbers(self) -> Integers:
        """The row numbers of the packed items, in ascending order."""
        return np.sort(self.arrays.row_of_slot).astype(np.int64)

    @property
    def projection_sizes(self) -> tuple[int, tuple[float, float]]:
        """The fields ``projected_words`` and ``projection_max_k`` of ``plan.SegmentSizes``."""
        projection = self.arrays.projection
        if not projection.words:
            return 0, (0.0, 0.0)
        return projection.words, (float(projection.largest_k[0]), float(projection.largest_k[1]))

    @property
    def units(self) -> Any:
        """The factors and the error bounds of the items, as a ``kernels.records.ScalingUnits``."""
        return self.addresses.units


def norms_repeat(norms: Floats) -> bool:
    """Return whether norms are repeated so often that grouping equal rows may save time.

    The function takes O(n log n) time.
    """
    sorted_norms = np.sort(norms)
    return pays_grouping(np.flatnonzero(sorted_norms[1:] != sorted_norms[:-1]) + 1, len(norms))


def scale_items(
    metric_type: str, items: EncodedRows, numbers: Integers, n_threads: int | None
) -> ItemScaling:
    """Return the scaling of all items; only the items in ``numbers`` determine the shift.

    ``numbers`` contains row numbers in ascending order. For p items, the function takes O(p) time,
    or O(p d) time if the items are shifted.
    """
    norms = items.norms
    factors, offsets, unit, offset_unit = _scaling(metric_type, items)
    shift, coefficients = _NO_SHIFT, factors
    row_norms = norms[numbers]
    have_similar_norms = row_norms.min(initial=np.inf) >= _MIN_NORM_RATIO * row_norms.max(
        initial=0.0
    )
    if (metric_type == "cosine" or have_similar_norms) and not len(offsets):
        shift = _common_direction(items.rows, factors, numbers)
    if len(shift):
        offsets = _shift_products(items.rows, factors, shift, n_threads)
        coefficients = offsets + 1.0
    rows = RowScaling(validation.read_only(factors), validation.read_only(coefficients), shift)
    return ItemScaling(
        rows, offsets, validation.read_only(offsets * offset_unit), unit, offset_unit
    )


def pack_items(
    metric_type: str,
    items: EncodedRows,
    numbers: Integers,
    n_threads: int | None,
    scaling: ItemScaling | None = None,
) -> PackedItems:
    """Scale, shift, rotate, quantise and pack the items in ``numbers``.

    ``numbers`` contains the row numbers of m items, in ascending order. The function takes O(m d)
    time, plus the time of ``scale_items`` if ``scaling`` is None.
    """
    depth = items.rows.shape[1]
    layout = tile_layout(config.isa(), depth)
    if scaling is None:
        scaling = scale_items(metric_type, items, numbers, n_threads)
    row_of_slot, offsets, shift = numbers, scaling.offsets, scaling.rows.shift
    if metric_type != "cosine" or len(shift):
        # The bound of a panel depends on its largest offset or norm, so items with similar offsets
        # or norms are packed together.
        row_of_slot = numbers[np.argsort(-(offsets if len(offsets) else items.norms)[numbers])]
    # The array is copied, because the kernel sorts each chunk of row_of_slot in place.
    row_of_slot = row_of_slot.astype(np.int32)
    n_panels = -(-len(row_of_slot) // PANEL)
    packed = aligned(n_panels * PANEL * layout.words, layout.empty_array().dtype)
    statistics = np.empty((n_panels, N_STATISTICS), np.float32)
    small_offsets = np.empty(len(row_of_slot) if len(offsets) else 0, np.float32)
    # Every thread gets a block, even if the block consists of few chunks, because packing a chunk
    # of rows with 64 columns already takes 0.1 ms.
    n_chunks = -(-len(row_of_slot) // packing.CHUNK)
    share = -(-n_chunks // (n_threads or config.n_threads()))
    chunks_of_block = max(1, min(share, 2_000 // depth))
    if tiles.AVAILABLE:  # without tiles, every pair is scored, and nothing is packed
        parallel.run(
            packing.prepare_item_panels,
            parallel.row_blocks(n_chunks, chunks_of_block),
            panel_layout(layout, depth),
            records.ScaledRows(records.rows_of(items.rows), *scaling.rows),
            scaling.scaled_offsets,
            records.ItemPanels(row_of_slot, packed, small_offsets, statistics),
            n_threads=n_threads,
        )  # fmt: skip
    arrays = (row_of_slot, packed, small_offsets, statistics, shift)
    return packed_items(metric_type, layout, items, arrays, scaling.unit, scaling.offset_unit)


def have_moderate_norms(norms: Floats) -> bool:
    """Return whether float32 products of rows with these norms neither overflow nor underflow."""
    smallest = norms.min(where=norms > 0, initial=1.0)
    return bool(norms.max(initial=0.0) <= _LARGEST_NORM and smallest >= _SMALLEST_NORM)


def unpacked_items(metric_type: str, items: EncodedRows) -> PackedItems:
    """Return PackedItems that contain the unpacked rows instead of panels, in O(m) time.

    The rows must be float32 and have moderate norms. An incomplete last panel is left out.
    """
    norms, depth = items.norms, items.rows.shape[1]
    layout = float_layout(config.isa(), depth)
    n_panels = len(norms) // PANEL
    n = n_panels * PANEL
    factors, offsets, unit, offset_unit = _scaling(metric_type, items)
    scaling = np.zeros((n, 2), np.float32)
    scaling[:, 0] = factors[:n]
    if len(offsets):
        scaling[:, 1] = offsets[:n] * offset_unit
    statistics = np.zeros((n_panels, N_STATISTICS), np.float32)
    statistics[:, INVERSE_STEP] = 1.0
    largest = (norms[:n] * factors[:n]).reshape(n_panels, -1).max(axis=1)
    statistics[:, MAX_NORM] = largest * (1.0 + 2.0**-12)
    packed = items.rows.reshape(-1)[: n * depth]
    arrays = (np.arange(n, dtype=np.int32), packed, np.empty(0, np.float32), statistics, _NO_SHIFT)
    return packed_items(metric_type, layout, items, arrays, unit, offset_unit, scaling)


def panel_layout(layout: TileLayout, depth: int) -> Any:
    """Return the record that tells kernels how rows of ``depth`` columns are packed."""
    return records.PanelLayout(INSTRUCTION_SETS[layout.isa], layout.words, _signs(depth))


def scale_and_shift(packed: PackedItems, items: EncodedRows, n_threads: int | None) -> RowScaling:
    """Return the factors, the coefficients and the shift that were used to pack these items."""
    factors, shift = _scaling(packed.metric_type, items)[0], packed.arrays.shift
    coefficients = factors
    if len(shift):
        coefficients = _shift_products(items.rows, factors, shift, n_threads) + 1.0
    return RowScaling(validation.read_only(factors), validation.read_only(coefficients), shift)


def _scaling(metric_type: str, items: EncodedRows) -> tuple[Floats, Floats, float, float]:
    """Return the factors of the items, then `offsets`, `unit` and `offset_unit` of ItemScaling."""
    norms, offsets = items.norms, items.bias
    if metric_type == "euclidean":
        offsets = -0.5 * norms * norms
    offset_unit = _power_of_two(float(np.abs(offsets).max(initial=0.0)))
    if metric_type == "cosine":
        factors = np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms > 0)
        return factors, offsets, 1.0, offset_unit
    unit = _power_of_two(float(norms.max()))
    return np.full(len(norms), unit), offsets, unit, offset_unit


def packed_items(
    metric_type: str,
    layout: TileLayout,
    items: EncodedRows,
    arrays: Sequence[npt.NDArray[Any]],
    unit: float,
    offset_unit: float,
    scaling: npt.NDArray[np.float32] = _NO_SCALING,
    projection: Any = None,
) -> PackedItems:
    """Return PackedItems that contain ``arrays``.

    The five arrays are `row_of_slot`, `packed`, `small_offsets`, `statistics` and `shift`.
    ``projection`` is a ``kernels.records.Projection``, or None.
    """
    row_of_slot, packed, small_offsets, statistics, shift = map(validation.read_only, arrays)
    if projection is None:
        projection = _no_projection(items.rows.shape[1], layout.quantised)
    kernel_items = records.Items(
        isa=INSTRUCTION_SETS[layout.isa],
        metric_type=METRIC_TYPES[metric_type],
        rows=records.rows_of(items.rows),
        norms=items.norms,
        bias=items.bias,
        row_of_slot=row_of_slot,
        packed=packed,
        words=layout.words,
        small_offsets=small_offsets,
        statistics=statistics,
        shift=shift,
        signs=_signs(items.rows.shape[1]),
        tile_configuration=_TILE_REGISTERS,
        scaling=validation.read_only(scaling),
        projection=projection,
    )
    # ``rounding`` is a bound on float64 rounding errors. It covers the errors of three things: the
    # score, two coefficients, and the remainders of the rows. (The remainder of a row is the row
    # without its component along the shift.) Each of these quantities is a sum of `depth` terms
    # whose magnitudes add up to at most 2. ``rounding`` also covers the rounding error of the
    # squared norm of the shift, which should be 1.
    rounding = 16.0 * (len(shift) + 16) * 2.0**-53 if len(shift) else 0.0
    table = np.empty(records.TABLE_SIZE, np.int64)
    rows = kernel_items.rows
    arrays = [rows.data, *(getattr(kernel_items, name) for name in records.ARRAYS_OF_ITEMS[1:])]
    arrays += [getattr(projection, name) for name in records.ARRAYS_OF_PROJECTION]
    table[:-5:2] = [array.ctypes.data for array in arrays]
    table[1:-5:2] = [array.size for array in arrays]
    row_bytes = rows.data.shape[1]
    table[-5:] = rows.number_type, row_bytes, rows.n_columns, layout.words, projection.words
    addresses = records.ItemAddresses(
        isa=kernel_items.isa,
        metric_type=kernel_items.metric_type,
        table=validation.read_only(table),
        packed_type=validation.read_only(layout.empty_array()),
        units=records.ScalingUnits(unit, offset_unit, float(layout.error), rounding),
    )
    return PackedItems(metric_type, layout, items.rows, kernel_items, addresses)


def pack_queries(
    packed: PackedItems,
    queries: EncodedRows,
    exclusions: ExcludedItems,
    allowed: AllowedRows | None = None,
) -> Any:
    """Compute the factors that scale queries to norms of at most about 1; return a kernel record.

    The scaling of each query includes a weight of at most 2^20; the offsets of the items are
    multiplied by this weight. The queries are converted to the type in which the items are
    searched. ``allowed`` contains the rows that are allowed in the results; None allows all packed
    items.
    """
    queries, n = match_type(queries, packed.rows), len(queries.norms)
    rows = records.rows_of(queries.rows)
    scaling = records.QueryScaling(
        factors=np.empty(n),
        coefficients=np.empty(n),
        weights=np.empty(n, np.float32),
        slopes=np.empty(n),
        intercepts=np.empty(n),
    )
    query_encoding.scale_queries.call(
        (), 0, n, METRIC_TYPES[packed.metric_type], rows, queries.norms, packed.units,
        packed.arrays.shift, scaling,
    )  # fmt: skip
    return records.Queries(
        rows=rows,
        norms=queries.norms,
        scaling=scaling,
        tile_error=packed.units.tile_error,
        shift_error=packed.units.shift_error,
        filters=kernel_filters(exclusions, allowed),
    )


def pair_scoring(metric_type: str, queries: EncodedRows, items: EncodedRows) -> Any:
    """Return the record from which kernels compute exact scores of queries (n, d) and items (m, d).

    The queries are converted to the type in which the items are searched.
    """
    return kernel_records.pair_scoring(metric_type, match_type(queries, items.rows), items)


def _power_of_two(size: float) -> float:
    """Return the reciprocal of the next power of two above `size`.

    The result is at most 2^1000. If `size` is 0, the result is 1.
    """
    return 2.0 ** min(1000, -math.frexp(size)[1]) if size > 0 else 1.0


@functools.lru_cache(8)
def _no_projection(depth: int, quantised: bool) -> Any:
    shapes: Any = ((0, depth, PANEL), (0, N_STATISTICS), 0)
    axes, statistics, empty = (
        validation.read_only(np.zeros(shape, np.float32)) for shape in shapes
    )
    codes = validation.read_only(np.zeros(0, np.int32)) if quantised else empty
    return records.Projection(
        axes=axes,
        packed=codes,
        words=0,
        statistics=statistics,
        remainder_norms=empty,
        eta=empty,
        largest_k=empty,
    )


def aligned(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an uninitialised array (count,) whose data starts at a cache line.

    NumPy allocates the memory, because NumPy requests huge pages from Linux. The speed of a scan is
    limited by reading memory, and huge pages make reading faster.
    """
    dtype = np.dtype(dtype)
    size = count * dtype.itemsize
    memory = np.empty(size + 64, np.uint8)
    skip = -memory.ctypes.data % 64
    return memory[skip : skip + size].view(dtype)


# The signs are cached, because creating a random generator takes 0.25 ms, and even a search of 15
# ms needs the signs twice.
@functools.lru_cache(8)
def _signs(depth: int) -> npt.NDArray[np.float32]:
    bits = np.random.default_rng(_ROTATION_SEED).integers(0, 2, (2, max(depth, 16)))
    return validation.read_only((2 * bits - 1).astype(np.float32))


# The shift of rows (kernels.candidate_filter). Text embeddings have a mean of length 0.5 to 0.9.
# Subtracting the mean from all rows divides the error of the filter by 1.3 to 5. The mean of the
# rows is not always the best shift. The caller may already have subtracted another mean, such as
# the mean of the users. If the subtracted mean was much longer than a row, the difference points in
# nearly the opposite direction of this mean. The cosines of such rows differ from each other by
# less than the error of the filter. Without a shift in this direction, nearly all pairs would be
# scored in float64. In an earlier version, which lacked this shift, a search by the centred cosine
# took 60 times as long as a search by the plain cosine (docs/dev/benchmarks.md). If many rows are
# close to one direction, the shift is therefore this direction instead of the mean.


def _common_direction(rows: Rows, factors: Floats, numbers: Integers) -> Floats:
    """Return the direction (d,) common to many scaled rows, or an empty array if there is none.

    The direction is computed from a sample of at most 2,048 items, in O(128^2 d + 2048 d) time.
    """
    n = len(numbers)
    if n < _MIN_ITEMS:
        return _NO_SHIFT
    rows = memmap.from_bits(rows)
    # Let f be (i * golden ratio) mod 1. Sampled item i is at place f * n in the list of n items.
    # The places are spread over the whole list, but the distances between them vary. Even if
    # similar items recur at regular distances, the sample does not consist mainly of similar items.
    places = np.arange(min(_AVERAGED_ITEMS, n // 8)) * 0.6180339887498949 % 1.0
    sampled_items = numbers[(places * n).astype(np.int64)]
    sample, weights = rows[sampled_items], factors[sampled_items]
    first_places = slice(min(_COMPARED_ITEMS, max(_MIN_COMPARED, n // _MIN_COMPARED)))
    compared_rows = sample[first_places] * weights[first_places, None]
    # BLAS is not used, because its idle threads would keep cores busy for 30 ms, and the search
    # needs these cores.
    squares = np.square(compared_rows).sum(axis=1)
    compared_float32 = compared_rows.astype(np.float32)
    are_close = np.einsum("ij,kj->ik", compared_float32, compared_float32) > _CLOSE_COSINE * squares
    sizes = are_close.sum(axis=1)
    if sizes.max() < _MIN_CLOSE_SHARE * len(compared_rows):
        mean = np.einsum("i,ij->j", weights, sample) / len(sample)
        length = float(np.sqrt(np.square(mean).sum()))
        return validation.read_only(mean / length) if length >= _MIN_MEAN_LENGTH else _NO_SHIFT
    # Each step computes the mean of the rows, and keeps only the half of the rows that is nearest
    # to this mean. The mean of the remaining rows approaches the direction around which the rows
    # are densest.
    cluster = compared_rows[are_close[np.argmax(sizes)]]
    while len(cluster) > 8:
        distances = np.square(cluster - cluster.mean(axis=0)).sum(axis=1)
        cluster = cluster[np.argsort(distances, kind="stable")[: -(-len(cluster) // 2)]]
    mean = cluster.mean(axis=0)
    return validation.read_only(mean / np.sqrt(np.square(mean).sum()))


def _shift_products(rows: Rows, factors: Floats, shift: Floats, n_threads: int | None) -> Floats:
    """Return the inner products (n,) of ``shift`` and ``factor * row - shift``, in O(n d) time."""
    shift_products = parallel.unfilled(len(rows), np.float64)
    blocks = parallel.row_blocks(len(rows), max(1, 1_000_000 // rows.shape[1]))
    parallel.run(
        packing.shift_products, blocks, records.rows_of(rows), validation.read_only(factors), shift,
        shift_products, n_threads=n_threads,
    )  # fmt: skip
    return validation.read_only(shift_products)

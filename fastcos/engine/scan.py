"""The dense search engine under ``top_k`` and ``SimilarityIndex``: prepare items once, search."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, validation
from fastcos.engine import centering, safe_norms
from fastcos.kernels import (
    bands,
    candidate_filter,
    exhaustive_top_k,
    packing as rows,
    pair_scores,
    tile_top_k,
    tiles,
)
from fastcos.measures import checks

Rows = validation.Rows
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FORMS = {
    "dot": pair_scores.DOT,
    "cosine": pair_scores.COSINE,
    "euclidean": pair_scores.EUCLIDEAN,
    "norm_angle": pair_scores.NORM_ANGLE,
}
# forms that screen by the cosine
_OF_DIRECTIONS = ("cosine", "norm_angle")
# offsets weigh at most this much more than inner products, so that float32 holds both
_LARGEST_WEIGHT = 2.0**20
# below this many queries the items are split, not the queries
FEW_QUERIES = 64
# packing a row costs about as much as this many float64 scores of it
SCORES_PER_PACKING = 20
_LARGEST_BLOCK = 256
# a candidate of the screen is a word: 32 bits of score, 32 of its position
_MOST_SCREENED = 2**32


class Tiling(NamedTuple):
    """What the tiles of an instruction set need for rows of some depth."""

    isa: str
    quantised: bool
    unsigned: bool
    depth: int
    stride: int
    error: float


def tiling(isa: str, depth: int) -> Tiling:
    """Layout of the tiles; error bounds the rounding of a float32 inner product of unit rows."""
    if isa in ("amx", "vnni"):
        steps = -(-depth // 64)
        unsigned = isa == "vnni"
        return Tiling(isa, True, unsigned, -(-depth // 4) if unsigned else steps, 64 * steps, 0.0)
    return Tiling(isa, False, False, depth, depth, 1.1 * (depth + 8) * 2.0**-24)


def current_tiling(depth: int) -> Tiling:
    """Layout for the instruction set in use."""
    return tiling(config.isa(), depth)


def tile_types(layout: Tiling) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Empty arrays of the types of packed queries and of scores."""
    if layout.quantised:
        return np.empty(0, np.uint8), np.empty(0, np.int32)
    return np.empty(0, np.float32), np.empty(0, np.float32)


class Side(NamedTuple):
    """Transformed rows of one side with what the exact scores need."""

    rows: Rows
    norms: Floats
    offsets: Floats

    def of(self, some: Integers) -> "Side":
        """Some of the rows, in their order."""
        read_only = validation.read_only
        return Side(
            read_only(self.rows[some]), read_only(self.norms[some]), read_only(self.offsets[some])
        )


class Exclusions(NamedTuple):
    """Items that a query may not find: one of its own (or -1), and a CSR of others."""

    own: Integers
    indptr: Integers
    indices: Integers

    def of_rows(self, first: int, last: int) -> "Exclusions":
        """Those of queries first .. last."""
        return Exclusions(self.own[first:last], self.indptr[first : last + 1], self.indices)

    def of(self, queries: Integers) -> "Exclusions":
        """Those of some queries, in their order."""
        starts, ends = self.indptr[queries], self.indptr[queries + 1]
        indptr = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
        places = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], ends - starts)
        parts = (self.own[queries], indptr, self.indices[places])
        return Exclusions(*map(validation.read_only, parts))


def no_exclusions(n: int, *, own: bool, first: int = 0) -> Exclusions:
    """None but itself, if own, for n queries that are the rows first and on."""
    itself = np.arange(first, first + n, dtype=np.int64) if own else np.full(n, -1, np.int64)
    empty = np.zeros(n + 1, np.int64), np.zeros(0, np.int64)
    return Exclusions(*map(validation.read_only, (itself, *empty)))


class Prepared(NamedTuple):
    """Items in panels, with the units of their scaled rows."""

    form: str
    tiling: Tiling
    items: Any
    unit: float
    offset_unit: float


class Work(NamedTuple):
    """How a call may use the machine. working_memory in bytes."""

    n_threads: int | None
    working_memory: float
    progress: parallel.Progress | None = None

    @property
    def size(self) -> int:
        """Threads of the call."""
        return config.num_threads() if self.n_threads is None else self.n_threads


def side(given: Rows, offsets: Floats | None, n_threads: int | None, form: str = "dot") -> Side:
    """Norms of the rows, and offsets 0 where there are none.

    For the form "cosine" very short float64 rows are made longer, which no cosine sees.
    """
    checks.as_mapped(given, offsets)
    rows_in_order = cast(Rows, validation.read_only(np.ascontiguousarray(given)))
    norms = _norms(rows_in_order, n_threads)
    checks.as_finite_rows(norms)
    short = safe_norms.are_short(norms, given.dtype) if form == "cosine" else None
    if short is not None and given[short].any():
        rows_in_order = _lengthened(rows_in_order, short)
        norms = _norms(rows_in_order, n_threads)
    if offsets is None:
        offsets = np.zeros(len(given))
    return Side(rows_in_order, norms, validation.read_only(offsets))


def _norms(given: Rows, n_threads: int | None) -> Floats:
    norms = parallel.unfilled(len(given), np.float64)
    cuts = parallel.row_blocks(len(given), max(1, 1_000_000 // given.shape[1]))
    parallel.run(pair_scores.row_norms, cuts, given, norms, n_threads=n_threads)
    return validation.read_only(norms)


def _lengthened(given: Rows, short: npt.NDArray[np.bool_]) -> Rows:
    rows_in_order = given.copy()
    largest = np.abs(given[short]).max(axis=1, keepdims=True)
    rows_in_order[short] = np.ldexp(given[short], safe_norms.exponents(largest))
    return validation.read_only(rows_in_order)


def _power_of_two(size: float) -> float:
    """1 / the power of two above size, at most 2^1000; 1 for 0."""
    return 2.0 ** min(1000, -math.frexp(size)[1]) if size > 0 else 1.0


def _aligned(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Uninitialised array whose data starts at a cache line.

    Made by NumPy, which asks Linux for huge pages: a scan is bound by memory.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    memory = np.empty(size + 64, np.uint8)
    skip = -memory.ctypes.data % 64
    return memory[skip : skip + size].view(kind).reshape(shape)


def _signs(depth: int) -> npt.NDArray[np.float32]:
    bits = np.random.default_rng(20240308).integers(0, 2, (3, depth))
    return validation.read_only((2 * bits - 1).astype(np.float32))


def prepare(form: str, given: Side, candidates: Integers, n_threads: int | None = None) -> Prepared:
    """Scale, rotate, quantise and pack the candidates (rising numbers) among the items."""
    depth = given.rows.shape[1]
    layout = current_tiling(depth)
    offsets = given.offsets
    if form == "euclidean":
        offsets = -0.5 * given.norms * given.norms
    unit, shift = _power_of_two(float(given.norms.max())), centering.NONE
    offset_unit = _power_of_two(float(np.abs(offsets).max()))
    if form in _OF_DIRECTIONS:
        factors = np.divide(1.0, given.norms, out=np.zeros(len(given.rows)), where=given.norms > 0)
        unit, order = 1.0, candidates
        if form == "norm_angle":
            order = candidates[np.argsort(given.norms[candidates], kind="stable")]
        elif len(shift := centering.shift_for(given.rows, factors, candidates)):
            offsets = centering.products(given.rows, factors, shift, n_threads)
            order = candidates[np.argsort(-offsets[candidates])]
    else:
        factors = np.full(len(given.rows), unit)
        size = offsets if offsets.any() else given.norms
        order = candidates[np.argsort(-size[candidates])]
    n_panels = -(-len(order) // tiles.PANEL)
    shape = (n_panels * tiles.PANEL, layout.stride)
    codes = _aligned(shape if layout.quantised else (0, layout.stride), np.int8)
    floats = _aligned((0, depth) if layout.quantised else shape, np.float32)
    starts = np.zeros(n_panels * tiles.PANEL, np.int32)
    statistics = np.zeros((n_panels, 4), np.float32)
    small_offsets = (offsets[order] * offset_unit).astype(np.float32)
    signs = _signs(depth)
    parallel.run(
        rows.prepare_item_panels,
        parallel.row_blocks(n_panels, max(1, 20_000 // depth)),
        given.rows, validation.read_only(order), factors, shift, small_offsets, signs, codes,
        floats,
        starts, statistics,
        n_threads=n_threads,
    )  # fmt: skip
    packed = (codes if layout.quantised else floats).reshape(-1)
    arrays = (order, packed, starts, small_offsets, statistics, shift)
    return packed_items(form, layout, given, arrays, unit, offset_unit)


def packed_items(
    form: str,
    layout: Tiling,
    given: Side,
    arrays: Sequence[npt.NDArray[Any]],
    unit: float,
    offset_unit: float,
) -> Prepared:
    """Put together order, packed rows, starts, small offsets, statistics, shift for the kernels."""
    made = (_signs(given.rows.shape[1]), tiles.configuration())
    order, packed, *others = (validation.read_only(array) for array in (*arrays, *made))
    items = candidate_filter.Items(
        given.rows, given.norms, given.offsets, order, packed, layout.stride, *others
    )
    return Prepared(form, layout, items, unit, offset_unit)


def packed_queries(
    prepared: Prepared,
    given: Side,
    exclusions: Exclusions,
    permitted: npt.NDArray[np.uint8],
    offset_weights: Floats | None = None,
) -> Any:
    """Scale the queries so that their norm is about 1 and offsets weigh at most _LARGEST_WEIGHT.

    offset_weights (n,): from 0 to 1, by which a query's keys have the items' offsets; 1 if None.
    """
    norms, shift = np.where(given.norms > 0, given.norms, 1.0), prepared.items.shift
    slopes, rounding = np.ones(len(norms)), 0.0
    intercepts, weights = np.zeros(len(norms)), np.zeros(len(norms), np.float32)
    if len(shift):
        intercepts, rounding = centering.of_queries(given.rows, 1.0 / norms, shift)
        weights += np.float32(1.0)
    elif prepared.form not in _OF_DIRECTIONS:
        ratio = prepared.unit / prepared.offset_unit
        norms = np.maximum(norms, ratio / _LARGEST_WEIGHT)
        weights = (ratio / norms).astype(np.float32)
        slopes = prepared.unit / norms
        if prepared.form == "euclidean":
            intercepts = 0.5 * given.norms * given.norms * slopes
            slopes = 0.5 * slopes
    if offset_weights is not None:
        weights *= offset_weights.astype(np.float32)
    return candidate_filter.Queries(
        given.rows, given.norms, 1.0 / norms, weights, slopes, intercepts,
        prepared.tiling.error, rounding, *exclusions, permitted,
    )  # fmt: skip


def _guess(k: float, n_panels: int) -> tuple[int, int]:
    """Which panels to sample and which rank among their largest scores is the first threshold.

    A rank that fails for about one query in a hundred: those are searched twice.
    """
    # half of the panels sampled must be able to hold the rank, and 64 of them steady the guess
    stride = max(1, min(16, n_panels // 64, int(math.sqrt(n_panels / (2 * k)) * 4)))
    panels = max(1, n_panels // stride)
    expected = k / stride
    rank = expected + 2.33 * math.sqrt(expected) + 1.5
    return stride, min(panels, int(panels * -math.expm1(-rank / panels)) + 1)


def search(
    prepared: Prepared,
    queries: Side,
    exclusions: Exclusions,
    k: int,
    work: Work,
    permitted: Integers | None = None,
    floors: Floats | None = None,
) -> tuple[Integers, Floats]:
    """Columns (n, k) and keys (n, k) of the best items of every query, padded by -1 and -inf.

    permitted: rising numbers of the items that may be found, all that were prepared if None.
    floors (n,): items with lower keys need not be found, and may be or not.
    """
    items = prepared.items
    n_items, n_panels = len(items.order), len(items.statistics)
    share = 1.0 if permitted is None else max(1, len(permitted)) / n_items
    wanted = k / share
    few = wanted > n_items / 8 or n_items < 4 * tiles.PANEL
    if few or n_items > _MOST_SCREENED or not tiles.AVAILABLE:
        candidates = np.sort(items.order) if permitted is None else permitted
        given = Side(items.rows, items.norms, items.offsets)
        return score_all(prepared.form, given, candidates, queries, exclusions, k, work)
    mask = np.zeros(0, np.uint8)
    if permitted is not None:
        mask = np.zeros(len(items.rows), np.uint8)
        mask[permitted] = 1
    scaled = packed_queries(prepared, as_wide(queries, items.rows), exclusions, mask)
    if prepared.form == "norm_angle":
        return _search_bands(prepared, scaled, k, work)
    if len(scaled.norms) <= FEW_QUERIES and n_panels >= 512:
        return _scan(prepared, scaled, k, wanted, work)
    zero = np.zeros(0, np.int64)
    if prepared.form != "euclidean" and not items.offsets.any():
        # every key of a zero query is 0: no screen could drop a single item
        zero = np.flatnonzero(scaled.norms == 0)
        # norms vanish before rows do
        zero = zero[~scaled.rows[zero].any(axis=1)]
    columns, keys = _sweep(prepared, scaled, zero, k, wanted, work, floors)
    found = np.sort(items.order) if permitted is None else permitted
    for query in zero:
        columns[query], keys[query] = _lowest(found, exclusions, int(query), k)
    return columns, keys


def code_of(prepared: Prepared) -> tuple[Any, int, tuple[bool, bool, int]]:
    """What the kernels are told about tiles and keys: isa, form, shape."""
    layout = prepared.tiling
    shape = layout.quantised, layout.unsigned, layout.depth
    return tiles.ISA_TUPLES[layout.isa], FORMS[prepared.form], shape


def _capacity(wanted: float) -> int:
    """Candidates that a query's buffer holds."""
    return max(256, 1 << math.ceil(8 * wanted + 64).bit_length())


def _scan(
    prepared: Prepared, scaled: Any, k: int, wanted: float, work: Work
) -> tuple[Integers, Floats]:
    """Search for few queries: threads share the items, and the parts' answers are merged."""
    n, n_panels = len(scaled.norms), len(prepared.items.statistics)
    # runs of at least 0.1 ms, at most 64 of them
    per_run = max(256, -(-n_panels // 64))
    cuts = parallel.row_blocks(n_panels, per_run)
    shape = (len(cuts) - 1, n, k)
    part_keys, part_columns = (
        parallel.unfilled(shape, np.float64), parallel.unfilled(shape, np.int64)
    )  # fmt: skip
    parallel.run(
        tile_top_k.scan_panels, cuts, *code_of(prepared), scaled, prepared.items, _capacity(wanted),
        *_guess(min(wanted, per_run * 4), per_run), per_run, *tile_types(prepared.tiling),
        part_keys, part_columns,
        n_threads=work.n_threads, progress=work.progress,
    )  # fmt: skip
    part_keys = np.ascontiguousarray(part_keys.swapaxes(0, 1))
    part_columns = np.ascontiguousarray(part_columns.swapaxes(0, 1))
    columns, keys = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    exhaustive_top_k.merge_rows(0, n, part_keys, part_columns, keys, columns)
    return columns, keys


def _sweep(
    prepared: Prepared,
    scaled: Any,
    zero: Integers,
    k: int,
    wanted: float,
    work: Work,
    floors: Floats | None,
) -> tuple[Integers, Floats]:
    """Search for all queries but `zero`: threads share the queries, and each sweeps the items.

    The symmetry of a self-join is not used. On 40,000 x 128 rows the tiles are 0.11 of 0.28 s at
    k = 10 and of 0.70 s at k = 100, so half of them are a fifth and a twelfth at most; and both
    sides would have to be compared, and the buffers of all queries, not of a block, be held.
    """
    n, n_panels = len(scaled.norms), len(prepared.items.statistics)
    columns, keys = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    known, again = np.full(n, -3e38, np.float32), np.zeros(n, np.uint8)
    stride, rank = _guess(wanted, n_panels)
    if floors is not None and np.isfinite(floors).all():
        known = _known(scaled, floors)
    batch = np.delete(np.arange(n, dtype=np.int64), zero)
    while len(batch):
        block, n_threads = blocks(len(batch), _capacity(wanted), k, scaled.rows.shape[1], work)
        parallel.run(
            tile_top_k.search_rows, parallel.row_blocks(len(batch), block), 0, n_panels,
            *code_of(prepared), batch, scaled, prepared.items, _capacity(wanted), stride, rank,
            *tile_types(prepared.tiling), known, keys, columns, again,
            n_threads=n_threads, progress=work.progress,
        )  # fmt: skip
        batch, stride, rank = np.flatnonzero(again), 0, 0
    return columns, keys


def _search_bands(prepared: Prepared, scaled: Any, k: int, work: Work) -> tuple[Integers, Floats]:
    """Search by norm gap and angle: queries and panels by norm."""
    columns = parallel.unfilled((len(scaled.norms), k), np.int64)
    keys = parallel.unfilled((len(scaled.norms), k), np.float64)
    isa, _, shape = code_of(prepared)
    items = prepared.items
    ends = np.arange(tiles.PANEL, len(items.order) + tiles.PANEL, tiles.PANEL)
    norms = items.norms[items.order]
    firsts, lasts = norms[:: tiles.PANEL].copy(), norms[np.minimum(ends, len(norms)) - 1]
    batch = np.argsort(scaled.norms, kind="stable")
    capacity = max(32, 2 * k)
    block, n_threads = blocks(len(batch), capacity, k, 0, work)
    parallel.run(
        bands.search_bands, parallel.row_blocks(len(batch), block),
        isa, shape, batch, scaled, items, firsts, lasts, capacity, *tile_types(prepared.tiling),
        keys, columns,
        n_threads=n_threads, progress=work.progress,
    )  # fmt: skip
    return columns, keys


def _known(scaled: Any, floors: Floats) -> npt.NDArray[np.float32]:
    """Keys as thresholds of the screen, not above them."""
    bounds: Floats = scaled.slopes * floors + scaled.intercepts
    bounds -= rows.SLACK * (np.abs(bounds) + np.abs(scaled.intercepts)) + scaled.rounding + 1e-30
    return bounds.astype(np.float32)


def _lowest(
    candidates: Integers, exclusions: Exclusions, query: int, k: int
) -> tuple[Integers, Floats]:
    """The k lowest candidates that the query may find, with key 0, padded."""
    excluded = exclusions.indices[exclusions.indptr[query] : exclusions.indptr[query + 1]]
    some = candidates[: k + len(excluded) + 1]
    some = some[(some != exclusions.own[query]) & ~np.isin(some, excluded)][:k]
    columns, keys = np.full(k, -1, np.int64), np.full(k, -np.inf)
    columns[: len(some)], keys[: len(some)] = some, 0.0
    return columns, keys


def blocks(n: int, capacity: int, k: int, depth: int, work: Work) -> tuple[int, int]:
    """Of n queries those of a block, in whole panels, and threads: what fits the working memory.

    A machine of many cores with little memory searches on some of them. Few queries make small
    blocks, so that no thread waits long for another's last one.
    """
    a_query = 8 * capacity + 24 * k + 4 * depth + 64
    least = 2 * tiles.PANEL * a_query
    validation.check_memory("working_memory", work.working_memory, least)
    n_threads = min(work.size, int(work.working_memory / least))
    fits = int(work.working_memory / 2 / n_threads / a_query)
    block = min(_LARGEST_BLOCK, fits, (1 << 21) // (8 * capacity))
    even = max(2, -(-n // (4 * n_threads * tiles.PANEL)))
    return max(1, min(even, block // tiles.PANEL)) * tiles.PANEL, n_threads


def score_all(
    form: str,
    given: Side,
    candidates: Integers,
    queries: Side,
    exclusions: Exclusions,
    k: int,
    work: Work,
) -> tuple[Integers, Floats]:
    """Score every pair in float64: the path for few queries or items, and for a large k."""
    queries = as_wide(queries, given.rows)
    n, depth = queries.rows.shape
    m = len(candidates)
    # a run is a query or a part of one, of about 2 ms
    pairs = max(1, 100_000 // (1 + depth // 64))
    parts = min(max(1, m // max(pairs, 4 * k)), max(1, 64 // n))
    part_columns = parallel.unfilled((n * parts, k), np.int64)
    part_keys = parallel.unfilled((n * parts, k), np.float64)
    parallel.run(
        exhaustive_top_k.score_all_rows,
        parallel.row_blocks(n * parts, max(1, pairs * parts // m)),
        FORMS[form], queries.rows, queries.norms, given.rows, given.norms, given.offsets,
        validation.read_only(candidates), parts, *exclusions, part_keys, part_columns,
        n_threads=work.n_threads, progress=work.progress,
    )  # fmt: skip
    if parts == 1:
        return part_columns, part_keys
    columns, keys = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    shape = (n, parts, k)
    exhaustive_top_k.merge_rows(
        0, n, part_keys.reshape(shape), part_columns.reshape(shape), keys, columns
    )
    return columns, keys


def as_wide(queries: Side, items: Rows) -> Side:
    """float32 queries of float64 items as float64: the same keys, and nothing more to compile."""
    if queries.rows.dtype == items.dtype or items.dtype != np.float64:
        return queries
    return queries._replace(rows=validation.read_only(queries.rows.astype(np.float64)))

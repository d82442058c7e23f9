"""The dense search engine under ``top_k`` and ``SimilarityIndex``: prepare items once, search."""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import config, threads, validate
from fastcos.kernels import pair_scores, rows, screen, tiles, topk
from fastcos.measure import Measure

Rows = validate.Rows
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FORMS = {
    "dot": pair_scores.DOT,
    "cosine": pair_scores.COSINE,
    "euclidean": pair_scores.EUCLIDEAN,
}
# offsets weigh at most this much more than inner products, so that float32 holds both
_LARGEST_WEIGHT = 2.0**20


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


class Side(NamedTuple):
    """Transformed rows of one side with what the exact scores need."""

    rows: Rows
    norms: Floats
    offsets: Floats


class Exclusions(NamedTuple):
    """Items that a query may not find: one of its own (or -1), and a CSR of others."""

    own: Integers
    indptr: Integers
    indices: Integers


class Prepared(NamedTuple):
    """Items in panels, with the units of their scaled rows."""

    measure: Measure
    tiling: Tiling
    items: Any
    unit: float
    offset_unit: float


def no_exclusions(n_queries: int) -> Exclusions:
    """Every query may find every item."""
    empty = np.zeros(0, np.int64)
    return Exclusions(np.full(n_queries, -1, np.int64), np.zeros(n_queries + 1, np.int64), empty)


def side(given: Rows, offsets: Floats | None, n_threads: int | None) -> Side:
    """Norms of the rows, and offsets 0 where there are none."""
    given = validate.read_only(np.ascontiguousarray(given))
    norms = threads.poisoned(len(given), np.float64)
    cuts = threads.cuts_by_rows(len(given), max(1, 4_000_000 // given.shape[1]))
    threads.run(pair_scores.row_norms, cuts, given, norms, n_threads=n_threads)
    if offsets is None:
        offsets = np.zeros(len(given))
    return Side(given, validate.read_only(norms), validate.read_only(offsets))


def _power_of_two(size: float) -> float:
    """1 / the power of two above size; 1 for 0."""
    return 2.0 ** -math.frexp(size)[1] if size > 0 else 1.0


def _aligned(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Uninitialised array whose data starts at a cache line."""
    size = math.prod(shape)
    flat = tiles.aligned(size, np.empty(0, dtype))
    return flat.reshape(shape)


def _signs(depth: int) -> npt.NDArray[np.float32]:
    bits = np.random.default_rng(20240308).integers(0, 2, (3, depth))
    return (2 * bits - 1).astype(np.float32)


def prepare(
    measure: Measure, given: Side, candidates: Integers, n_threads: int | None = None
) -> Prepared:
    """Scale, rotate, quantise and pack the candidates among the items."""
    depth = given.rows.shape[1]
    layout = tiling(config.isa(), depth)
    offsets = given.offsets
    if measure.form == "euclidean":
        offsets = -0.5 * given.norms * given.norms
    unit = _power_of_two(float(given.norms.max()))
    offset_unit = _power_of_two(float(np.abs(offsets).max()))
    if measure.form == "cosine":
        factors = 1.0 / np.where(given.norms > 0, given.norms, 1.0)
        unit, order = 1.0, candidates
    else:
        factors = np.full(len(given.rows), unit)
        size = offsets if offsets.any() else given.norms
        order = candidates[np.argsort(-size[candidates], kind="stable")]
    n_panels = -(-len(order) // tiles.PANEL)
    shape = (n_panels * tiles.PANEL, layout.stride)
    codes = _aligned(shape if layout.quantised else (0, layout.stride), np.int8)
    floats = _aligned((0, depth) if layout.quantised else shape, np.float32)
    starts = np.zeros(n_panels * tiles.PANEL, np.int32)
    statistics = np.zeros((n_panels, 4), np.float32)
    small_offsets = (offsets[order] * offset_unit).astype(np.float32)
    signs = _signs(depth)
    threads.run(
        rows.prepare_item_panels,
        threads.cuts_by_rows(n_panels, max(1, 20_000 // depth)),
        given.rows, order, factors, small_offsets, signs, codes, floats, starts, statistics,
        n_threads=n_threads,
    )  # fmt: skip
    packed = (codes if layout.quantised else floats).reshape(-1)
    items = screen.Items(
        given.rows, given.norms, given.offsets, order, packed, layout.stride, starts,
        small_offsets, statistics, signs, tiles.configuration(),
    )  # fmt: skip
    return Prepared(measure, layout, items, unit, offset_unit)


def _queries(prepared: Prepared, given: Side, exclusions: Exclusions) -> Any:
    """Scale the queries so that their norm is about 1 and offsets weigh at most _LARGEST_WEIGHT."""
    form = prepared.measure.form
    norms = np.where(given.norms > 0, given.norms, 1.0)
    slopes, intercepts = np.ones(len(norms)), np.zeros(len(norms))
    weights = np.zeros(len(norms), np.float32)
    if form != "cosine":
        floor = prepared.unit / (prepared.offset_unit * _LARGEST_WEIGHT)
        norms = np.maximum(norms, floor)
        weights = (prepared.unit / (norms * prepared.offset_unit)).astype(np.float32)
        slopes = prepared.unit / norms
        if form == "euclidean":
            intercepts = 0.5 * given.norms * given.norms * slopes
            slopes = 0.5 * slopes
    return screen.Queries(
        given.rows, given.norms, 1.0 / norms, weights, slopes, intercepts,
        prepared.tiling.error, *exclusions,
    )  # fmt: skip


def _guess(k: int, n_panels: int) -> tuple[int, int]:
    """Which panels to sample and which rank among their groups is the first threshold.

    A rank that fails for about one query in a hundred: those are searched twice.
    """
    # half of the panels sampled must be able to hold the rank, and 64 of them steady the guess
    stride = max(1, min(16, n_panels // 64, int(math.sqrt(n_panels / (2 * k)) * 4)))
    groups = n_panels // stride
    expected = k / stride
    rank = expected + 2.33 * math.sqrt(expected) + 1.5
    return stride, int(groups * -math.expm1(-rank / groups)) + 1


def search(
    prepared: Prepared,
    queries: Side,
    exclusions: Exclusions,
    k: int,
    n_threads: int | None = None,
    progress: threads.Progress | None = None,
) -> tuple[Integers, Floats]:
    """Columns (n, k) and keys (n, k) of the best candidates of every query."""
    n, depth = queries.rows.shape
    layout, items = prepared.tiling, prepared.items
    columns = threads.poisoned((n, k), np.int64)
    keys = threads.poisoned((n, k), np.float64)
    n_items = len(items.order)
    if k > n_items // 8 or n_items < 4 * tiles.PANEL:
        return _search_all(prepared, queries, exclusions, k, keys, columns, n_threads, progress)
    known = np.full(n, -3e38, np.float32)
    again = np.zeros(n, np.uint8)
    capacity = max(256, 1 << (8 * k + 64).bit_length())
    packed_queries = _queries(prepared, queries, exclusions)
    code_type = np.empty(0, np.uint8 if layout.quantised else np.float32)
    score_type = np.empty(0, np.int32 if layout.quantised else np.float32)
    stride, rank = _guess(k, len(items.statistics))
    batch = np.arange(n, dtype=np.int64)
    block = max(32, min(256, (1 << 18) // capacity))
    while len(batch):
        threads.run(
            screen.search_rows,
            threads.cuts_by_rows(len(batch), block),
            tiles.ISA_TUPLES[layout.isa], FORMS[prepared.measure.form], layout.quantised,
            layout.unsigned, layout.depth, batch, packed_queries, items, capacity, stride, rank,
            code_type, score_type, known, keys, columns, again,
            n_threads=n_threads, progress=progress,
        )  # fmt: skip
        batch, stride, rank = np.flatnonzero(again), 0, 0
    return columns, keys


def _search_all(
    prepared: Prepared,
    queries: Side,
    exclusions: Exclusions,
    k: int,
    keys: Floats,
    columns: Integers,
    n_threads: int | None,
    progress: threads.Progress | None,
) -> tuple[Integers, Floats]:
    """Score every pair in float64: the path for few items or a large k."""
    items = prepared.items
    n, depth = queries.rows.shape
    threads.run(
        topk.score_all_rows,
        threads.cuts_by_rows(n, max(1, 50_000_000 // (len(items.order) * (depth + 16)))),
        FORMS[prepared.measure.form], queries.rows, queries.norms, items.rows, items.norms,
        items.offsets, np.sort(items.order), *exclusions, keys, columns,
        n_threads=n_threads, progress=progress,
    )  # fmt: skip
    return columns, keys

"""Strategy 1, the inner-product scan: drop by bounds of quantised products, score what is left.

``search`` filters packed items with the tiles and scores the survivors in float64. ``score_all``
scores every pair, for few queries, few items or a large k. Both return columns and raw scores,
best first, equal scores by lower column: the same bits by either way.

A self-join computes both halves of its symmetric matrix. Half of the tiles was built and measured:
candidates of all rows must wait until the last block, and their thresholds rise more slowly. It
took 1.1 to 1.3 times the CPU seconds (k = 10; 40,000 x 128, 30,000 x 384, 20,000 x 1,536; VNNI).
"""

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import exhaustive_top_k, packing, tile_top_k, tiles
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.kernels.simd.panel import PANEL
from fastcos.search.packing import (
    NO_FILTERS,
    ExcludedItems,
    ExecutionOptions,
    Floats,
    Integers,
    PackedItems,
    PermittedItems,
    Rows,
    TileLayout,
    pack_queries,
)
from fastcos.similarity.encoded_rows import METRIC_TYPES, EncodedRows

# up to this many queries threads share the items instead of the queries: at 64 both ways take the
# same time on 1,000,000 x 128 (bench.lab.search_plan)
FEW_QUERIES = 64
# bytes of codes that a thread reads for a query at least, where threads share the items. To wake a
# thread, and to merge what two runs find, takes 0.1 ms: one query of 10,000 x 384 (4 MB) takes 0.10
# ms in one thread and 0.25 in two, of 20,000 x 768 (15 MB) 0.38 and 0.32 (Zen 4;
# bench.lab.search_plan)
_LEAST_BYTES = 1 << 23
# queries that are searched in the time of one more reading of the items. With amx, a tile: two
# threads take 1.7, 1.9 and 1.4 times as long for 1, 16 and 64 queries of 10,000 x 384 (4 MB), 1.06,
# 1.3 and 0.86 of 20,000 x 384, 0.7 of 60,000 x 768
_QUERIES_OF_READING, _QUERIES_OF_READING_AMX = 4, PANEL
# panels of a run at most, so that a thread that is held up leaves runs to others. Every run has a
# threshold and candidates of its own: 64 queries of 60,000 x 768 take 9.9 ms in 2 runs, 11.3 in 4,
# 12.4 in 8; of 1,000,000 x 128 27 ms in 4 to 16 runs, 38 in 64 (Zen 5, two threads;
# bench.lab.search_plan)
_MOST_PANELS = 8192
# queries of a block at most: their buffers and lanes fit the second-level cache
_LARGEST_BLOCK = 256
# columns from which blocks are twice as large, and their buffers, too: an item is read once for all
# queries of a block that score it. 1,000 of 60,000 x 768 take 0.93 to 0.97 of the time with k = 10,
# 0.83 to 0.96 with k = 100; 40,000 x 128 0.97 to 1, and 1.03 to 1.06 (Xeon)
_WIDE = 768
# what a block costs beside its panels of queries, in panels: it reads all codes, in the time of 0.1
# (1,000,000 x 128). More, so that larger blocks win where durations are nearly equal
_PANELS_OF_READING = 0.5
# bytes of a block's candidate buffers, twice that cache: they are filled from their beginnings
_BLOCK_BYTES = 1 << 22
# items that tiles search at least: fewer are all scored
LEAST_ITEMS = 4 * PANEL
# a candidate of the filter is a word: 32 bits of score, 32 of its position; order holds int32
MAX_ITEMS = 2**31
# a guessed threshold fails for about one query in a hundred: 2.33 standard deviations
_GUESS_DEVIATIONS = 2.33
# panels sampled at least, where there are so many, to steady the guess: self-joins of 2,000 x 64
# take 0.88 of the time with 64 at least, of 10,000 x 64 the same. Few queries score all of them
# twice: four of 1,000 x 384 take 0.86 of the time with half as many (Zen 4)
_LEAST_SAMPLE = 32
# queries up to which half of the panels are sampled
_SMALL_SAMPLE_QUERIES = 4
# threshold of a query about which nothing is known
_NO_THRESHOLD = np.float32(-3e38)

Found = tuple[Integers, Floats]


def search(
    packed: PackedItems,
    queries: EncodedRows,
    exclusions: ExcludedItems,
    k: int,
    options: ExecutionOptions,
    permitted: PermittedItems | None = None,
    thresholds: Floats | None = None,
) -> Found:
    """Columns (n, k) and raw scores (n, k) of the best items of every query, padded by -1 and -inf.

    permitted: items that may be found, all packed ones if None.
    thresholds (n,): items with lower raw scores need not be found, and may be or not.

    Threads share the queries, and each sweeps all items. The symmetry of a self-join is not used: a
    tile would fill the buffers of its items, too, so that threads would share those of all rows,
    240 MB at 30,000 rows and k = 10. Half a sweep would save at most 20 % of the time at 128
    columns, 37 % at 384 and 33 % at 1,536 (k = 10; 8 % at 128 for k = 100).
    """
    items = packed.arrays
    n_items, n_panels = len(items.order), len(items.statistics)
    share = 1.0 if permitted is None else max(1, len(permitted.numbers)) / n_items
    wanted = k / share
    few = wanted > n_items / 8 or n_items < LEAST_ITEMS
    if few or n_items > MAX_ITEMS or not tiles.AVAILABLE:
        numbers = packed.numbers if permitted is None else permitted.numbers
        rows = EncodedRows(items.rows, items.norms, items.offsets)
        return score_all(packed.metric_type, rows, numbers, queries, exclusions, k, options)
    mask = np.zeros(0, np.uint8) if permitted is None else permitted.mask
    queries = as_wide(queries, items.rows)
    if len(queries.rows) <= FEW_QUERIES:
        return scan_few(
            packed, queries.rows, (*exclusions, mask), k, wanted, options.n_threads,
            options.progress,
        )  # fmt: skip
    scaled = pack_queries(packed, queries, exclusions, mask)
    n = len(scaled.norms)
    columns, scores = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    left = np.arange(n, dtype=np.int64)
    if packed.metric_type != "euclidean" and not items.offsets.any():
        # every score of a zero query is 0: no filter could drop a single item. Norms vanish before
        # rows do
        zero = np.flatnonzero(scaled.norms == 0)
        zero = zero[~scaled.rows[zero].any(axis=1)]
        if len(zero):
            left = np.delete(left, zero)
            numbers = packed.numbers if permitted is None else permitted.numbers
            for query in zero:
                columns[query], scores[query] = _lowest(numbers, exclusions, int(query), k)
    known, again = np.full(n, _NO_THRESHOLD), np.zeros(n, np.uint8)
    stride, rank = _guess(k, wanted, n_panels)
    if thresholds is not None and np.isfinite(thresholds).all():
        known = _filter_thresholds(scaled, thresholds)
    while len(left):
        block, n_threads, capacity = blocks(len(left), wanted, k, scaled.rows.shape[1], options)
        parallel.run(
            tile_top_k.search_rows, parallel.row_blocks(len(left), block), 0, n_panels,
            *packed.kernel_code, left, scaled, items, capacity, stride, rank,
            packed.layout.empty_array(), known, scores, columns, again,
            n_threads=n_threads, progress=options.progress,
        )  # fmt: skip
        left, stride, rank = np.flatnonzero(again), 0, 0
    return columns, scores


def search_unpacked(
    packed: PackedItems,
    queries: EncodedRows,
    exclusions: ExcludedItems,
    k: int,
    options: ExecutionOptions,
) -> Found:
    """Search rows as they are given, for few queries: float32 tiles, and float64 scores.

    Returns what ``search`` does. The items behind the last whole panel are all scored.
    """
    items = packed.arrays
    n, depth = queries.rows.shape
    rows = EncodedRows(items.rows, items.norms, items.offsets)
    of_thread = n * (36 * _capacity(k) + 24 * k + 4 * depth)
    if k > len(items.order) / 8 or options.working_memory < options.n_threads * of_thread:
        numbers = np.arange(len(items.rows))
        return score_all(packed.metric_type, rows, numbers, queries, exclusions, k, options)
    # no guess: a sample of the panels takes longer than the candidates of a first threshold. Every
    # run scores k items or more for each query
    columns, scores = scan_few(
        packed, queries.rows, (*exclusions, NO_FILTERS[3]), k, k, options.n_threads,
        options.progress, has_guess=False,
    )  # fmt: skip
    numbers = np.arange(len(items.order), len(items.rows))
    if len(numbers):
        rest = score_all(packed.metric_type, rows, numbers, queries, exclusions, k, options)
        parts = zip((columns, scores), rest, strict=True)
        return best_of_parts(*(np.stack(pair, axis=1) for pair in parts))
    return columns, scores


def scan_few(
    packed: PackedItems,
    rows: Rows,
    filters: tuple[Any, ...],
    k: int,
    wanted: float,
    n_threads: int,
    progress: parallel.Progress | None = None,
    *,
    has_guess: bool = True,
    must_check: bool = False,
) -> Found:
    """Columns and raw scores (n, k) of few queries, in one launch where one thread is enough.

    rows (n, d): queries as given, of the type of as_wide. filters: as kernels.query_scaling takes
    them. must_check: the queries were not checked, and columns[0, 0] is NOT_ORDINARY if one of them
    needs more care.
    """
    n_panels, n = len(packed.arrays.statistics), len(rows)
    per_run, stride, rank = _plan_runs(packed.layout, n, n_panels, k, wanted, n_threads)
    n_runs = 1 if n_panels <= per_run else -(-n_panels // per_run)
    scores, columns = np.empty((n_runs, n, k)), np.empty((n_runs, n, k), np.int64)
    if not has_guess:
        stride = rank = 0
    arguments = (
        *packed.kernel_code, rows, filters, packed.slots, packed.row_type, packed.score_type,
        packed.units, _capacity(wanted), stride, rank, per_run, must_check, scores, columns,
    )  # fmt: skip
    if n_runs == 1:
        parallel.call(tile_top_k.scan_panels, 0, n_panels, *arguments)
        if progress is not None:
            progress(n_panels, n_panels)
        return columns[0], scores[0]
    parallel.run(
        tile_top_k.scan_panels, parallel.row_blocks(n_panels, per_run), *arguments,
        n_threads=n_threads, progress=progress,
    )  # fmt: skip
    if must_check and columns[0, 0, 0] == tile_top_k.NOT_ORDINARY:
        return columns[0], scores[0]
    return best_of_parts(columns.swapaxes(0, 1), scores.swapaxes(0, 1))


def threads_pay(packed: PackedItems, n: int) -> bool:
    """Whether several threads search n queries faster than one."""
    return _work(packed.layout, n, len(packed.arrays.statistics)) >= 2 * _LEAST_BYTES


def _work(layout: TileLayout, n: int, n_panels: int) -> int:
    """Bytes of codes that are read, as many times as queries take."""
    of_reading = _QUERIES_OF_READING_AMX if layout.isa == "amx" else _QUERIES_OF_READING
    return n_panels * PANEL * 4 * layout.words * (1 + n // of_reading)


@functools.lru_cache(256)
def _plan_runs(
    layout: TileLayout, n: int, n_panels: int, k: int, wanted: float, n_threads: int
) -> tuple[int, int, int]:
    """Panels of a run, as many runs for each thread, and the guess of a threshold: see _guess."""
    n_threads = min(n_threads, max(1, _work(layout, n, n_panels) // _LEAST_BYTES))
    rounds = -(-n_panels // (n_threads * _MOST_PANELS))
    per_run = -(-n_panels // (n_threads * rounds))
    least_sample = _LEAST_SAMPLE // 2 if n <= _SMALL_SAMPLE_QUERIES else _LEAST_SAMPLE
    is_few = n <= INSTRUCTION_SETS[layout.isa].most_single_queries
    if is_few and per_run <= PANEL:  # one run: all its maxima are known without a sample
        least_sample = PANEL
    wanted = min(wanted, per_run * 4)
    return per_run, *_guess(min(k, wanted), wanted, per_run, least_sample)


def score_all(
    metric_type: str,
    items: EncodedRows,
    numbers: Integers,
    queries: EncodedRows,
    exclusions: ExcludedItems,
    k: int,
    options: ExecutionOptions,
) -> Found:
    """Score all pairs of the queries and the items of these numbers in float64. O(n m d)."""
    queries = as_wide(queries, items.rows)
    n, depth = queries.rows.shape
    m = len(numbers)
    # a run is a query or a part of one, of about 2 ms
    pairs = max(1, 100_000 // (1 + depth // 64))
    parts = min(max(1, m // max(pairs, 4 * k)), max(1, 64 // n))
    columns = parallel.unfilled((n * parts, k), np.int64)
    scores = parallel.unfilled((n * parts, k), np.float64)
    parallel.run(
        exhaustive_top_k.score_all_rows,
        parallel.row_blocks(n * parts, max(1, pairs * parts // m)),
        METRIC_TYPES[metric_type], queries.rows, queries.norms, *items,
        validation.read_only(numbers), parts, *exclusions, scores, columns,
        n_threads=options.n_threads, progress=options.progress,
    )  # fmt: skip
    if parts == 1:
        return columns, scores
    return best_of_parts(columns.reshape(n, parts, k), scores.reshape(n, parts, k))


def best_of_parts(columns: Integers, scores: Floats) -> Found:
    """Merge the k best of each part, (n, parts, k), to the k best of all, (n, k)."""
    n, _, k = columns.shape
    parts = (validation.read_only(part.reshape(n, -1)) for part in (scores, columns))
    best, best_scores = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    block = parallel.row_blocks(n, n)
    parallel.run(exhaustive_top_k.merge_rows, block, *parts, best_scores, best)
    return best, best_scores


def as_wide(queries: EncodedRows, items: Rows) -> EncodedRows:
    """Return queries in the type in which items of this type are searched: the scores are equal.

    Queries of items that are not float32 are searched in float64, which holds all their numbers.
    float64 queries of float32 items, such as a list of Python's floats, are searched in float32
    where that holds their numbers exactly, as it does for the output of a float32 model.
    """
    rows = as_searched(queries.rows, items.dtype)
    return queries if rows is queries.rows else queries._replace(rows=rows)


def as_searched(rows: Rows, dtype: np.dtype[Any]) -> Rows:
    """Return the rows of queries as as_wide does, for items of this type."""
    if dtype != np.float32:
        if rows.dtype == np.float32:
            return validation.read_only(rows.astype(np.float64))
    elif rows.dtype == np.float64:
        with np.errstate(over="ignore", under="ignore"):
            narrow = rows.astype(np.float32)
        if np.array_equal(narrow, rows):
            return validation.read_only(narrow)
    return rows


def blocks(n: int, wanted: float, k: int, depth: int, options: ExecutionOptions) -> tuple[int, ...]:
    """Queries of a block, in whole panels, threads, and capacity: what fits the working memory.

    A machine of many cores with little memory uses some of them, and smaller buffers. Threads get
    as many blocks each: of 192 queries of 60,000 x 768 96 each, which take 26 ms, not 64 and 128.
    """
    # as search_rows says: of a query, and of a panel of 32, which may be filled in part; what it
    # needs beside the queries is less than for two of them
    of_panel = PANEL * (4 * depth + 64)
    least, most = (36 * capacity(wanted) + 24 * k for capacity in (_least_capacity, _capacity))
    validation.check_memory("working_memory", options.working_memory, 3 * least + of_panel)
    factor = 2 if depth >= _WIDE else 1
    of_block = factor * _LARGEST_BLOCK * (most + of_panel / PANEL)
    is_short = options.working_memory < options.n_threads * of_block
    capacity, of_query = (_least_capacity(wanted), least) if is_short else (_capacity(wanted), most)
    panels = options.working_memory / (PANEL * of_query + of_panel)
    n_threads = max(1, min(options.n_threads, int(panels)))
    if panels < 1:
        return int((options.working_memory - of_panel) / of_query) - 2, n_threads, capacity
    buffered = factor * _BLOCK_BYTES // (8 * capacity * PANEL)
    largest = factor * _LARGEST_BLOCK // PANEL
    largest = max(1, min(largest, int(panels / n_threads), buffered))

    def duration(block: int) -> float:
        rounds = -(-n // (block * n_threads * PANEL))
        return rounds * (block + _PANELS_OF_READING)

    return min(range(largest, 0, -1), key=duration) * PANEL, n_threads, capacity


def _guess(
    k: float, wanted: float, n_panels: int, least_sample: int = _LEAST_SAMPLE
) -> tuple[int, int]:
    """Return which panels to sample and which rank among their maxima is the first threshold.

    Of the `wanted` best items k may be found. The rank fails for about one query in a hundred:
    those are searched twice.
    """
    # half of the panels sampled must be able to hold the rank
    most = int(math.sqrt(n_panels / (2 * wanted)) * 4)
    stride = max(1, min(16, (n_panels + 1) // least_sample, most))
    panels = max(1, n_panels // stride)
    expected = wanted / stride
    # a binomial variance: each of the best is in the sample, and may be found, or not
    deviation = math.sqrt(expected * (1 - k / wanted / stride))
    # of all panels the deviation is 0, and codes err: with 1.5 a rank fails for 11 % of queries of
    # 1,000 x 64, with 2.5 for 1 %
    rank = expected + _GUESS_DEVIATIONS * deviation + (1.5 if stride > 1 else 2.5)
    return stride, min(panels, int(panels * -math.expm1(-rank / panels)) + 1)


def _least_capacity(wanted: float) -> int:
    """Candidates that a query's buffer holds at least."""
    return 1 << math.ceil(4 * wanted + 64).bit_length()


def _capacity(wanted: float) -> int:
    """Candidates that a query's buffer holds, so that few buffers are full before the end.

    For queries of another kind than the items, 650 at k = 10 and 1,100 at k = 100 pass the tiles
    (30,000 x 1,536).
    """
    return max(1024, 1 << math.ceil(16 * wanted + 64).bit_length())


def _filter_thresholds(scaled: Any, thresholds: Floats) -> npt.NDArray[np.float32]:
    """Return raw scores as thresholds of the filter, not above them."""
    bounds: Floats = scaled.slopes * thresholds + scaled.intercepts
    rounding = packing.SLACK * (np.abs(bounds) + np.abs(scaled.intercepts))
    bounds -= rounding + scaled.rounding + 1e-30
    return bounds.astype(np.float32)


def _lowest(numbers: Integers, exclusions: ExcludedItems, query: int, k: int) -> Found:
    """Return the k lowest numbers that the query may find, with score 0, padded."""
    excluded = exclusions.indices[exclusions.indptr[query] : exclusions.indptr[query + 1]]
    some = numbers[: k + len(excluded) + 1]
    some = some[(some != exclusions.own[query]) & ~np.isin(some, excluded)][:k]
    columns, scores = np.full(k, -1, np.int64), np.full(k, -np.inf)
    columns[: len(some)], scores[: len(some)] = some, 0.0
    return columns, scores

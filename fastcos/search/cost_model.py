"""What a search costs: every threshold of the planner, and the rates of its estimates.

``fastcos.search.plan`` decides by these numbers how a search runs, and ``fastcos.search.estimate``
computes from them how long it takes. They were measured by ``python -m bench.lab.search_plan`` and
``python -m bench.lab.explain``; ``docs/dev/costs.md`` holds the measurements.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastcos.kernels.simd.panel import PANEL


@dataclass(frozen=True, eq=False)
class CostModel:
    """Every threshold by which a search is planned, and the rates by which its time is estimated.

    Measured by ``python -m bench.lab.search_plan``; the measurements are in ``docs/dev/costs.md``.
    Thresholds that compare methods are in units of the time in which the tiles read one row for the
    first query, or in multiply-adds or bytes, and not in seconds, so that they hold on many CPUs.
    """

    # --- Which method searches a segment ---------------------------------------------------------
    # If there are fewer rows than a few panels (of 32 packed rows each), the tiled kernel is no
    # faster than scoring every pair.
    min_rows_for_tiles: int = 4 * PANEL
    # The filter stores a candidate in 64 bits: a 32-bit score and a 32-bit slot, which is the place
    # of the row in the packed order.
    max_rows_for_tiles: int = 2**31
    # Where a query wants more than this share of the rows, a filter drops too few of them.
    max_neighbor_share: float = 1 / 8
    # Packing a row costs as much as this many float64 scores of it.
    scores_per_packed_row: int = 7
    # Rows that are not packed are multiplied as they are given for this many queries: for fewer,
    # the rows must be read from memory in any case, and for more, packing pays.
    min_queries_as_given: int = 4
    max_queries_as_given: int = 128
    # Multiply-adds below which this takes less than 10 ms and needs no kernels of its own.
    min_work_as_given: int = 2**28
    # A float64 score takes as long as the tiles need to read this many rows for one query: 7 for
    # 384 float32 columns in a cache, 16 where the rows are read from memory.
    tile_rows_per_score: int = 16
    # Queries that the tiles compare in the time in which they read the rows for the first one,
    # where a search is restricted to some of the rows.
    queries_per_filtered_sweep: int = 4
    # Bytes of a packed row besides its codes: norm, slot, bias and factors.
    bytes_beside_codes: int = 160
    # Duplicate rows are grouped only if a row has on average at least this many copies, itself
    # included. If rows have fewer copies, most groups are single rows, and grouping costs more than
    # it saves.
    min_average_copies: float = 2.0

    # --- Groups of items, of which each query searches one ----------------------------------------
    # Entries of a group's rows from which it is searched as a segment of its own: all threads then
    # share the rows, and wide rows are projected. That takes about 0.3 ms besides its
    # multiplications.
    min_entries_of_segment: int = 2**23
    # Multiply-adds of a group's queries with its items from which the panels of the group are
    # searched. That takes about 0.1 ms besides its multiplications. The kernel that scores every
    # pair would take twice as long.
    min_work_of_panels: int = 2**20
    # Items from which that is possible: a tile has 32 of them.
    min_items_in_panels: int = 2 * PANEL

    # --- How a scan is divided among threads -----------------------------------------------------
    # Up to this many queries, threads share the rows; beyond, they share the queries.
    max_queries_sharing_rows: int = 64
    # Bytes of codes that a thread must read for waking it, and for merging its results, to pay.
    min_bytes_per_thread: int = 1 << 23
    # Queries that are compared in the time of one more reading of the codes. Tiles of AMX compare
    # a whole panel of queries at a time.
    queries_per_reading: int = 4
    queries_per_reading_amx: int = PANEL
    # Every panel range has thresholds and candidates of its own, so that there should be few of
    # them; but a thread that is held up must be able to leave some to others.
    max_panels_per_range: int = 8192
    # The buffers of a query block must fit the second-level cache.
    max_queries_per_block: int = 256
    block_buffer_bytes: int = 1 << 22
    # From this many columns on blocks are twice as large: a row is read once for all queries of a
    # block that score it.
    wide_columns: int = 768
    # Seconds for what a block of queries takes besides its products, where a few queries that are
    # compared by themselves take none of it: 8 queries of 1,000 x 64 rows take 64 us as a block.
    seconds_per_query_block: float = 5.0e-5
    # Overhead of a query block, in panels of queries. It is measured as 0.1; 0.5 makes the planner
    # prefer larger blocks when two plans take about the same time.
    block_overhead_panels: float = 0.5
    # Up to this many threads, the rows are not divided for many queries. Beyond, they are if the
    # search then takes less than this share of the time: every range has candidates of its own.
    max_threads_without_ranges: int = 2
    max_share_of_time_in_ranges: float = 0.85
    # Passes over the rows in which tasks share thresholds. A damaged threshold costs another pass.
    max_sharing_passes: int = 2
    # Pairs that one task of an exhaustive search scores, for rows of up to 64 columns: about 2 ms.
    pairs_per_task: int = 100_000
    # Tasks into which the rows are divided for few queries of an exhaustive search.
    max_tasks_per_search: int = 64
    # Queries that one thread compares with all rows at once in a range search.
    queries_per_range_block: int = 128

    # Bytes of buffers up to which a plan does not depend on the working memory that is set.
    max_unchecked_bytes: int = 1 << 22

    # --- Candidates and the first threshold ------------------------------------------------------
    # Candidates that the buffer of a query holds: enough that few buffers are filled before the
    # end, and the least with which a search works.
    candidates_per_neighbor: int = 16
    min_candidates_per_neighbor: int = 4
    candidates_besides: int = 64
    min_capacity: int = 1024
    # The first threshold of a query is a guess, from a sample of the panels. It fails for one
    # query in a hundred, which is then searched again: 2.33 standard deviations.
    threshold_deviations: float = 2.33
    max_sample_stride: int = 16
    # Panels that are sampled at least, to steady the guess; very few queries score the sample
    # twice, so that half as many are sampled for them.
    min_sampled_panels: int = 32
    # Additions to the rank, for the errors of the codes.
    rank_margin_of_sample: float = 1.5
    rank_margin_of_all: float = 2.5

    # --- The projection: short codes along the leading principal axes ----------------------------
    # None: as many axes as a sample of the rows suggests. 0: no projection. Otherwise always so
    # many axes, for tests and benchmarks.
    projected_columns: int | None = None
    # Below these sizes the sample costs more than the projection saves.
    min_rows_to_project: int = 4096
    min_columns_to_project: int = 192
    # Multiply-adds of all calls so far from which a projection is added where ``fit`` did not.
    min_work_to_project: int = 2**40
    # The share of that work from which it pays with AVX2, whose tiles take three times as long as
    # those of VNNI (docs/dev/costs.md, "AVX2").
    share_of_work_to_project_avx2: float = 1 / 4
    # Numbers of axes that are compared, and their largest share of the columns: a longer projection
    # saves too little.
    projection_widths: tuple[int, ...] = (64, 96, 128, 160, 192, 224, 256, 320, 384)
    max_projected_share: float = 0.7
    # Rows of the sample by which the axes are chosen, and those of them that serve as queries.
    projection_sample_rows: int = 2048
    projection_sample_queries: int = 64
    # Rows that tell whether rows are as long along most axes, and the largest share of the columns
    # that they may fill: 0.15 of a text model with long rows, 1 of independent columns.
    spread_sample_rows: int = 512
    max_spread: float = 0.4
    # Pairs of k and the average rank of the threshold during a sweep, and those k for whose mean
    # the number of axes is chosen.
    threshold_ranks: tuple[tuple[int, int], ...] = ((10, 40), (20, 65), (50, 123), (100, 200))
    usual_k: tuple[int, ...] = (10, 100)
    # Length of the errors of int8 codes of both sides, of unit rows.
    code_error: float = 0.013
    # In equivalent columns: the fixed cost of a tile, and the fixed and the per-column cost of
    # scoring a pair by itself.
    tile_overhead_columns: float = 22
    pair_overhead_columns: float = 2200.0
    pair_cost_per_column: float = 2.0
    # How many times as fast the tiles must become, by the estimate, for few queries and for many:
    # the projection of the queries and the float64 scores remain.
    min_projection_gains: tuple[float, float] = (1.5, 2.0)

    # --- Batches and blocks that fit the working memory ------------------------------------------
    # Queries of a batch in memory, at least, so that every thread has some; the share of the
    # working memory for their encoded rows and results; and their bytes besides columns and k.
    min_batch_queries: int = 1024
    batch_share: float = 0.25
    batch_bytes_per_query: int = 128
    # Of rows that are read in blocks: the share of the working memory for searching a segment, and
    # at most for the queries. Every batch packs all rows, and every segment packs all queries.
    segment_search_share: float = 0.25
    read_queries_share: float = 0.4
    # Bytes of norms, bias and search state of a row; of the codes of an entry, made and packed; of
    # an entry that the measure transforms, in float64; and of a neighbour in three lists.
    read_bytes_per_row: int = 160
    read_bytes_per_code: int = 2
    read_bytes_per_encoded_entry: int = 16
    read_bytes_per_neighbor: int = 48
    # Queries of a batch that is written to ``out``, at least, for rows on disk and in memory.
    min_written_queries_on_disk: int = 1 << 17
    min_written_queries: int = 1024
    # Memory in bytes for blocks of low-precision rows, and per column, at least.
    low_precision_memory: float = float(1 << 25)
    low_precision_bytes_per_column: float = 5120.0
    # Queries that NumPy searches at once: more make its matrix product no faster. And bytes of one
    # candidate, and of the copies that selecting among candidates makes.
    numpy_batch_queries: int = 1024
    numpy_bytes_per_candidate: int = 96

    # --- Measures that only bound an inner product -----------------------------------------------
    # Candidates that are refined besides k; entries of a list of further candidates, at first, and
    # the factor by which a list that was too short grows; bytes of a candidate; queries refined
    # together.
    extra_candidates: int = 14
    refined_capacity: int = 256
    refined_growth: int = 8
    refined_bytes_per_candidate: int = 128
    refined_queries: int = 1024

    # --- Rates by which the time of a search is estimated ----------------------------------------
    # Bytes that one thread, and all threads together, read per second from memory; bytes of codes
    # that stay in the caches, and the rate of a thread that reads them there.
    bytes_per_second_of_thread: float = 1.6e10
    bytes_per_second: float = 6.5e10
    cached_bytes: float = float(1 << 25)
    cached_bytes_per_second_of_thread: float = 6.0e10
    # Multiply-adds per second of one thread by instruction set: of full tiles, and of queries that
    # are compared one by one.
    multiply_adds_per_second: tuple[tuple[str, float], ...] = (
        ("amx", 9.0e11), ("vnni", 3.5e11), ("avxvnni", 1.8e11), ("avx2", 1.0e11),
        ("avx512", 6.0e10), ("generic", 1.2e10),
    )  # fmt: skip
    single_multiply_adds_per_second: tuple[tuple[str, float], ...] = (
        ("amx", 1.0e11), ("vnni", 2.0e11), ("avxvnni", 6.0e10), ("avx2", 4.0e10),
        ("avx512", 2.0e10), ("generic", 6.0e9),
    )  # fmt: skip
    # Seconds for what a tile does besides its products, per query.
    seconds_per_tile_lane: float = 2.0e-9
    # Share of the rows whose codes are multiplied although there is a projection.
    share_after_projection: float = 0.15
    # Candidates of a query that are scored in float64, and the seconds for one of them.
    scored_pairs_per_neighbor: float = 4.0
    scored_pairs_besides: float = 30.0
    seconds_per_candidate: float = 2.5e-8
    seconds_per_candidate_column: float = 1.0e-10
    # Seconds for a pair where every pair is scored, of consecutive rows.
    seconds_per_score: float = 1.0e-8
    seconds_per_scored_column: float = 1.0e-10
    # Seconds for selecting and sorting one neighbor.
    seconds_per_neighbor: float = 5.0e-8
    # Seconds for packing a row, and an entry of it.
    seconds_per_packed_row: float = 1.0e-7
    seconds_per_packed_entry: float = 1.2e-9
    # The same for NumPy, while the kernels are not compiled.
    numpy_multiply_adds_per_second: float = 5.0e10
    seconds_per_numpy_pair: float = 3.0e-9
    # Seconds of a call besides: of a prepared search of an index, of any other search, for fitting
    # a measure, for waking threads and merging what they find, and for a row of a mask.
    seconds_per_prepared_call: float = 9.0e-6
    seconds_per_call: float = 1.2e-4
    seconds_per_fit: float = 2.0e-4
    seconds_per_handover: float = 5.0e-5
    seconds_per_masked_row: float = 2.0e-9


# The cost model by which all searches are planned.
COSTS = CostModel()


@contextmanager
def costs_replaced(**changes: object) -> Iterator[None]:
    """Plan by other costs within the block: for tests and benchmarks, in one thread."""
    global COSTS
    before = COSTS
    COSTS = dataclasses.replace(before, **changes)  # type: ignore[arg-type]
    try:
        yield
    finally:
        COSTS = before


def read_seconds(read: float, size: float, n_threads: int, costs: CostModel) -> float:
    """Return the seconds in which threads read so many bytes, of rows or codes of this size."""
    if size <= costs.cached_bytes:
        return read / (n_threads * costs.cached_bytes_per_second_of_thread)
    return read / min(n_threads * costs.bytes_per_second_of_thread, costs.bytes_per_second)

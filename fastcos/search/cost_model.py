"""The costs of a search: the thresholds of the planner, and the rates of the time estimates.

``fastcos.search.plan`` decides by these numbers how a search runs, and ``fastcos.search.estimate``
computes from them how long a search takes. The numbers were measured by
``python -m bench.lab.search_plan`` and ``python -m bench.lab.explain``; ``docs/dev/costs.md``
contains the measurements.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastcos.kernels.simd.panel import PANEL


@dataclass(frozen=True, eq=False)
class CostModel:
    """Every threshold by which searches are planned, and every rate by which time is estimated.

    The numbers were measured by ``python -m bench.lab.search_plan``; ``docs/dev/costs.md`` contains
    the measurements. Thresholds that compare methods are in multiply-adds, in bytes, or in units of
    the time in which the tiles read one row for the first query. These units are not seconds, so
    the thresholds hold on many CPUs. A tile consists of the scores of a panel of 32 packed rows
    with a panel of 32 queries.
    """

    # --- Which method searches a segment ---------------------------------------------------------
    # With fewer rows than this, a search by tiles is no faster than scoring every pair.
    min_rows_for_tiles: int = 4 * PANEL
    # Tiles search at most this many rows, because they store a candidate in 64 bits: a 32-bit
    # score, and a 32-bit slot, which is the place of the row in the packed order.
    max_rows_for_tiles: int = 2**31
    # If k is more than this share of the number of rows, the bounds of the tiles drop too few rows
    # to save time.
    max_neighbor_share: float = 1 / 8
    # Packing a row takes as long as computing this many float64 scores of the row.
    scores_per_packed_row: int = 7
    # Rows that are not packed are multiplied without packing if the number of queries is in this
    # range. With fewer queries, reading the rows from memory takes most of the time in any case;
    # with more queries, packing saves more time than it takes.
    min_queries_as_given: int = 4
    max_queries_as_given: int = 128
    # Below this number of multiply-adds, a search of unpacked rows takes less than 10 ms and needs
    # no kernels of its own.
    min_work_as_given: int = 2**28
    # Computing the float64 score of a row takes as long as reading this many rows by tiles for one
    # query. With 384 float32 columns, this number is 7 if the scored row is in a cache, and 16 if
    # the scored row is read from memory.
    tile_rows_per_score: int = 16
    # In a search of only some of the rows, reading the rows takes as long as comparing them with
    # this many queries.
    queries_per_filtered_sweep: int = 4
    # The number of bytes that a packed row takes besides its codes: norm, slot, bias and factors.
    bytes_beside_codes: int = 160
    # If at most this many ids are excluded from a search of an index, the search finds as many
    # additional neighbours, and the excluded items are dropped afterwards. If more ids are
    # excluded, a mask excludes them before the search, which takes a time proportional to the
    # number of items.
    max_dropped_ids: int = 64
    # Duplicate rows are grouped only if a row has on average at least this many copies, itself
    # included. If rows have fewer copies, most groups are single rows, and grouping costs more than
    # it saves.
    min_average_copies: float = 2.0

    # --- Groups of items, of which each query searches one ----------------------------------------
    # A group is searched as a segment of its own if its rows have at least this many entries. All
    # threads then share the rows, and wide rows are projected. Such a search takes about 0.3 ms in
    # addition to its multiplications.
    min_entries_of_segment: int = 2**23
    # The panels of a group are searched by tiles if comparing its queries with its items takes at
    # least this many multiply-adds. Such a search takes about 0.1 ms in addition to its
    # multiplications. If there is this much work, the kernel that scores every pair would take
    # twice as long as the tiles.
    min_work_of_panels: int = 2**20
    # The panels of a group are searched only if the group has at least this many items, because a
    # tile compares 32 items at once.
    min_items_in_panels: int = 2 * PANEL

    # --- How a scan is divided among threads -----------------------------------------------------
    # With at most this many queries, the rows are divided among the threads. With more queries, the
    # queries are divided.
    max_queries_sharing_rows: int = 64
    # A thread is woken only if it has at least this many bytes of codes to read. With fewer bytes
    # to read, waking the thread and merging its results would take longer than the thread saves.
    min_bytes_per_thread: int = 1 << 23
    # Reading the codes once more takes as long as comparing them with this many queries. The tiles
    # of AMX compare a whole panel of queries at a time.
    queries_per_reading: int = 4
    queries_per_reading_amx: int = PANEL
    # Every range of panels has thresholds and candidates of its own, so there should be few ranges.
    # However, ranges must be short enough that other threads can take over ranges of a slow thread.
    max_panels_per_range: int = 8192
    # The largest number of queries in a block, and the largest number of bytes of its buffers,
    # which must fit in the second-level cache.
    max_queries_per_block: int = 256
    block_buffer_bytes: int = 1 << 22
    # With at least this many columns, a block contains twice as many queries, because a row is read
    # only once for all queries of a block that score the row.
    wide_columns: int = 768
    # The seconds that a block of queries takes in addition to its products, for any number of
    # queries, and the seconds that each query takes in addition if it is compared by itself.
    seconds_per_query_block: float = 1.3e-5
    seconds_per_single_query: float = 0.9e-6
    # The overhead of a query block, in units of one panel of queries. This number was measured as
    # 0.1; the value 0.5 makes the planner prefer larger blocks when two plans take about the same
    # time.
    block_overhead_panels: float = 0.5
    # With at most the first number of threads, only the queries are divided in a search with many
    # queries. With more threads, the rows are divided as well if the search is then estimated to
    # take less than the second number times the time without dividing the rows. The rows are not
    # divided for a small gain, because every range of rows collects candidates of its own.
    max_threads_without_ranges: int = 2
    max_share_of_time_in_ranges: float = 0.85
    # The number of passes over the rows in which tasks share thresholds. Another pass follows only
    # if a shared threshold was damaged.
    max_sharing_passes: int = 2
    # The number of pairs that one task of an exhaustive search scores, for rows of up to 64
    # columns. A task of this size takes about 2 ms.
    pairs_per_task: int = 100_000
    # The largest number of tasks into which the rows are divided for few queries of an exhaustive
    # search.
    max_tasks_per_search: int = 64
    # The number of queries that one thread compares with all rows at once in a range search.
    queries_per_range_block: int = 128

    # If the buffers take at most this many bytes, the plan does not depend on the working memory.
    max_unchecked_bytes: int = 1 << 22

    # --- Candidates and the first threshold ------------------------------------------------------
    # These numbers determine how many candidates the buffer of a query holds. The first is a number
    # of candidates per neighbour, so large that few buffers are full before the end of the search.
    # The second is the smallest number per neighbour with which a search works. The third is a
    # number of candidates that is added to either, and the last is the size of the smallest buffer.
    candidates_per_neighbor: int = 16
    min_candidates_per_neighbor: int = 4
    candidates_besides: int = 64
    min_capacity: int = 1024
    # The first threshold of a query is estimated from a sample of the panels. With a margin of 2.33
    # standard deviations, the estimate is too high for one query in a hundred. Such a query is
    # searched again.
    threshold_deviations: float = 2.33
    max_sample_stride: int = 16
    # At least this many panels are sampled, so that the estimate is reliable. A search of very few
    # queries scores the sample twice, so half as many panels are sampled.
    min_sampled_panels: int = 32
    # One of two numbers is added to the rank of the first threshold, because the codes have
    # rounding errors: the first number if the panels are sampled, the second if all panels are
    # read.
    rank_margin_of_sample: float = 1.5
    rank_margin_of_all: float = 2.5

    # --- The projection: short codes along the leading principal axes ----------------------------
    # The number of axes onto which rows are projected. The value None stands for the number of axes
    # that a sample of the rows suggests, and 0 for no projection. Tests and benchmarks set other
    # numbers, which are used for all rows.
    projected_columns: int | None = None
    # With fewer rows or columns than this, drawing the sample takes longer than the projection
    # saves.
    min_rows_to_project: int = 4096
    min_columns_to_project: int = 192
    # If ``fit`` added no projection, one is added once the searches of an index have performed this
    # number of multiply-adds.
    min_work_to_project: int = 2**40
    # With AVX2, the projection is added after this share of min_work_to_project, because tiles of
    # AVX2 take three times as long as tiles of VNNI (docs/dev/costs.md, "AVX2"). The share has this
    # value for k up to the smaller entry of usual_k; for a larger k, it grows in proportion to k
    # until it is 1.
    share_of_work_to_project_avx2: float = 1 / 4
    # The candidate numbers of axes, whose costs are compared, and the largest allowed ratio of axes
    # to columns. With more axes than that, the projection saves too little time.
    projection_widths: tuple[int, ...] = (64, 96, 128, 160, 192, 224, 256, 320, 384)
    max_projected_share: float = 0.7
    # The number of sampled rows by which the axes are chosen, and the number of these rows that
    # serve as queries.
    projection_sample_rows: int = 2048
    projection_sample_queries: int = 64
    # The effective number of columns of the rows is estimated from a sample of this many rows. A
    # projection is considered if the effective number is at most ``max_spread`` times the number of
    # columns. The ratio of the two numbers is 0.15 for a text model whose rows are long along few
    # axes, and 1 for independent columns.
    spread_sample_rows: int = 512
    max_spread: float = 0.4
    # Pairs of a number k of neighbours, and the average rank of the threshold among all scores of a
    # query while the rows are read. The number of axes is chosen by the mean cost for the values of
    # k in usual_k.
    threshold_ranks: tuple[tuple[int, int], ...] = ((10, 40), (20, 65), (50, 123), (100, 200))
    usual_k: tuple[int, ...] = (10, 100)
    # The error that rounding to int8 codes adds to the inner product of a unit row and a unit
    # query.
    code_error: float = 0.013
    # The fixed cost of a tile, the fixed cost of scoring one pair by itself, and the cost per
    # column of such a pair. A cost is the number of columns that a tile multiplies in the same
    # time.
    tile_overhead_columns: float = 22
    pair_overhead_columns: float = 2200.0
    pair_cost_per_column: float = 2.0
    # A projection is added if the tiles are estimated to be at least this many times as fast with
    # the projection as without it: the first number holds for few queries, the second for many. The
    # gain in speed must be large, because a projection does not save the float64 scores, and
    # because the queries must be projected.
    min_projection_gains: tuple[float, float] = (1.5, 2.0)

    # --- Batches and blocks that fit the working memory ------------------------------------------
    # A batch in memory has at least this many queries, so that every thread has some queries.
    min_batch_queries: int = 1024
    # The share of the working memory for the encoded rows and the results of a batch of queries.
    batch_share: float = 0.25
    # The bytes that a query takes besides its columns and its k results.
    batch_bytes_per_query: int = 128
    # If rows are read in blocks, the first number is the share of the working memory for searching
    # a segment, and the second number is the largest share for the queries of a batch. Every batch
    # packs all rows, and every segment packs all queries.
    segment_search_share: float = 0.25
    read_queries_share: float = 0.4
    # The bytes that a row takes besides its entries while it is searched: norm, bias and state.
    read_bytes_per_row: int = 160
    # The bytes that the code of an entry takes while the code is computed and packed.
    read_bytes_per_code: int = 2
    # The bytes that an entry of a row takes while the measure transforms the row in float64.
    read_bytes_per_encoded_entry: int = 16
    # The bytes that a neighbour takes in the three lists of neighbours that exist at a time.
    read_bytes_per_neighbor: int = 48
    # The smallest number of queries whose results are written to ``out`` at once: first for rows on
    # disk, then for rows in memory.
    min_written_queries_on_disk: int = 1 << 17
    min_written_queries: int = 1024
    # Blocks of low-precision rows may take at least this many bytes: in total, and per column.
    low_precision_memory: float = float(1 << 25)
    low_precision_bytes_per_column: float = 5120.0
    # The number of queries that NumPy searches at once. A matrix product is no faster with more
    # queries.
    numpy_batch_queries: int = 1024
    # The bytes that one candidate of a search in NumPy takes, including the copies of the candidate
    # from which the best candidates are selected.
    numpy_bytes_per_candidate: int = 96

    # --- Measures that only bound an inner product -----------------------------------------------
    # The number of candidates that are scored by the measure in addition to k.
    extra_candidates: int = 14
    # The first capacity of the list of further candidates of a query.
    refined_capacity: int = 256
    # The factor by which the capacity grows if the list was too short.
    refined_growth: int = 8
    # The bytes that a candidate takes while it is scored by the measure.
    refined_bytes_per_candidate: int = 128
    # The number of queries whose candidates are scored together.
    refined_queries: int = 1024

    # --- Rates by which the time of a search is estimated ----------------------------------------
    # The bytes per second that one thread reads from memory.
    bytes_per_second_of_thread: float = 1.6e10
    # The bytes per second that all threads together read from memory.
    bytes_per_second: float = 6.5e10
    # Codes of at most this many bytes stay in the caches.
    cached_bytes: float = float(1 << 25)
    # The bytes per second that one thread reads from the caches.
    cached_bytes_per_second_of_thread: float = 6.0e10
    # The multiply-adds per second of one thread by instruction set, first for full tiles, and then
    # for queries that are compared one by one.
    multiply_adds_per_second: tuple[tuple[str, float], ...] = (
        ("amx", 9.0e11), ("vnni", 3.5e11), ("avxvnni", 1.8e11), ("avx2", 1.0e11),
        ("avx512", 6.0e10), ("generic", 1.2e10),
    )  # fmt: skip
    single_multiply_adds_per_second: tuple[tuple[str, float], ...] = (
        ("amx", 1.0e11), ("vnni", 2.0e11), ("avxvnni", 6.0e10), ("avx2", 4.0e10),
        ("avx512", 2.0e10), ("generic", 6.0e9),
    )  # fmt: skip
    # The seconds that a tile takes per query in addition to its products.
    seconds_per_tile_lane: float = 2.0e-9
    # The share of the rows whose full codes are multiplied in spite of a projection.
    share_after_projection: float = 0.15
    # For each query, this many candidates per neighbour are scored in float64.
    scored_pairs_per_neighbor: float = 4.0
    # For each query, this many candidates are scored in addition, for any k.
    scored_pairs_besides: float = 30.0
    # The seconds for scoring one candidate, and for each of its columns.
    seconds_per_candidate: float = 2.5e-8
    seconds_per_candidate_column: float = 1.0e-10
    # If every pair is scored, the seconds for scoring one pair, and for each of its columns. A pair
    # takes less time than a candidate, because consecutive rows are read from memory.
    seconds_per_score: float = 1.0e-8
    seconds_per_scored_column: float = 1.0e-10
    # The seconds for selecting and sorting one neighbour.
    seconds_per_neighbor: float = 5.0e-8
    # The seconds for packing a row, and for each entry of the row.
    seconds_per_packed_row: float = 1.0e-7
    seconds_per_packed_entry: float = 1.2e-9
    # The multiply-adds per second and the seconds per pair of NumPy, which searches while the
    # kernels are not compiled.
    numpy_multiply_adds_per_second: float = 5.0e10
    seconds_per_numpy_pair: float = 3.0e-9
    # The seconds that a prepared search of an index takes in addition to reading and computing.
    seconds_per_prepared_call: float = 9.0e-6
    # The seconds that any other search takes in addition to reading and computing.
    seconds_per_call: float = 1.2e-4
    # The seconds for fitting a measure.
    seconds_per_fit: float = 2.0e-4
    # The seconds for waking threads and merging their results.
    seconds_per_handover: float = 5.0e-5
    # The seconds per item for a mask of allowed items.
    seconds_per_masked_row: float = 2.0e-9


# The cost model by which all searches are planned.
COSTS = CostModel()


@contextmanager
def costs_replaced(**changes: object) -> Iterator[None]:
    """Plan searches by changed costs within a ``with`` block; for single-threaded tests."""
    global COSTS
    before = COSTS
    COSTS = dataclasses.replace(before, **changes)  # type: ignore[arg-type]
    try:
        yield
    finally:
        COSTS = before


def read_seconds(read: float, size: float, n_threads: int, costs: CostModel) -> float:
    """Return the seconds in which threads read `read` bytes in total from `size` bytes of data."""
    if size <= costs.cached_bytes:
        return read / (n_threads * costs.cached_bytes_per_second_of_thread)
    return read / min(n_threads * costs.bytes_per_second_of_thread, costs.bytes_per_second)

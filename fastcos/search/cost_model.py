"""Thresholds for planning a search, and rates for estimating how long the search takes.

To decide how a search runs, ``fastcos.search.plan`` compares the sizes of the search with the
thresholds. To estimate how long a search takes, ``fastcos.search.estimate`` uses the rates.
``docs/dev/costs.md`` contains the measurements behind the numbers; ``python -m
bench.lab.search_plan`` and ``python -m bench.lab.explain`` repeat some of the measurements.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastcos.kernels.simd.panel import PANEL


@dataclass(frozen=True, eq=False)
class CostModel:
    """The thresholds for planning a search, and the rates for estimating its time.

    Tiles are the fastest way to search many rows. The rows are packed in panels: a panel stores the
    int8 codes (or float32 numbers) of 32 rows together. A tile compares one panel of rows with one
    panel of 32 queries, so it consists of 32 x 32 scores. The scores of a tile are approximate.
    They only select candidates, which are rows that may be among the best. The candidates are then
    scored exactly in float64.

    To choose a method, the planner compares the sizes of a search with thresholds. Most thresholds
    are ratios, or counts of rows, queries, multiply-adds or bytes; these thresholds are valid for
    many CPUs. The few remaining thresholds are times in seconds.
    """

    # --- Which method searches a segment ---------------------------------------------------------

    # If a segment has fewer rows than this, searching it by tiles is no faster than computing the
    # float64 score of every pair.
    min_rows_for_tiles: int = 4 * PANEL
    # Tiles can search at most this many rows, because they store a candidate in 64 bits: 32 bits
    # for its score, and 32 bits for the number of its row in the packed order.
    max_rows_for_tiles: int = 2**31
    # If k is more than this share of the number of rows, tiles rule out too few rows to save time.
    max_neighbor_share: float = 1 / 8
    # Packing a row takes this many times as long as computing one float64 score of the row. Rows
    # are therefore packed only for more than this many queries.
    scores_per_packed_row: int = 7
    # The method "unpacked" compares rows by tiles without packing them. It is used if the number of
    # queries is in this range. With fewer than min_queries_unpacked queries, the time to read the
    # rows from memory dominates, whether they are packed or not. With more than
    # max_queries_unpacked queries, packing saves more time than it takes.
    min_queries_unpacked: int = 4
    max_queries_unpacked: int = 128
    # The method "unpacked" is used only for searches with at least this number of multiply-adds.
    # Other methods take less than 10 ms for a smaller search, so compiling the kernel of the method
    # "unpacked" would not pay off.
    min_work_unpacked: int = 2**28
    # Computing the float64 score of a row takes as long as comparing this many rows with one query
    # by tiles. We measured rows of 384 float32 columns. If the row is in a cache, its score takes
    # as long as comparing 7 rows. If the row must be read from memory, its score takes as long as
    # comparing 16 rows.
    tile_rows_per_score: int = 16
    # A search that allows only some of the rows may still compare all rows by tiles. It must then
    # read the codes of all rows. Reading these codes takes as long as comparing them with
    # queries_per_filtered_sweep queries.
    queries_per_filtered_sweep: int = 4
    # The bytes that a packed row takes in addition to its codes: its norm, its place in the packed
    # order, its bias and its factors.
    bytes_beside_codes: int = 160
    # The argument exclude_ids can be one list of items that is excluded for all queries. If
    # exclude_ids excludes at most this many items, the search finds one additional neighbour for
    # each excluded item, and the excluded items are then removed from the results. If exclude_ids
    # excludes more than max_dropped_ids items, the search uses a mask of allowed items. Making a
    # mask takes time proportional to the number of all items.
    max_dropped_ids: int = 64
    # Equal rows are grouped only if a row has, on average, at least this many copies, including the
    # row itself. With a lower average, most groups would contain only one row, and grouping would
    # take more time than it saves.
    min_average_copies: float = 2.0

    # --- Groups of items; each query searches one group -------------------------------------------

    # A group is searched as a segment of its own if its rows have at least this many entries in
    # total. If a group is a segment, its rows can be divided among all threads. If the rows are
    # wide, they can also be projected. The overhead of searching a group as a segment is about 0.3
    # ms.
    min_entries_of_segment: int = 2**23
    # A group with fewer entries than min_entries_of_segment may be searched by tiles; one thread
    # then searches the whole group. The group must be large enough: comparing all of its queries
    # with all of its items must take at least min_work_of_panels multiply-adds. Searching a group
    # by tiles has an overhead of about 0.1 ms. At min_work_of_panels multiply-adds, a search by
    # tiles takes half as long as computing the float64 score of every pair.
    min_work_of_panels: int = 2**20
    # A group is searched by tiles only if it has at least this many items, because a tile compares
    # 32 items at once.
    min_items_in_panels: int = 2 * PANEL

    # --- How a scan is divided among threads -----------------------------------------------------

    # A search with at most this many queries is a single launch: the compiled kernel performs all
    # steps of the search. If there are fewer panels of queries than threads, the threads divide the
    # rows among themselves; otherwise, they divide the queries.
    max_queries_sharing_rows: int = 64
    # A search uses a further thread only if this thread would read at least this many bytes of
    # codes. For fewer than min_bytes_per_thread bytes, waking the thread and merging its results
    # would take longer than the thread saves.
    min_bytes_per_thread: int = 1 << 23
    # Comparing this many queries with the codes takes as long as reading the codes once. With AMX,
    # this number of queries is larger than with other instruction sets, because a tile of AMX
    # compares a whole panel of queries at once.
    queries_per_reading: int = 4
    queries_per_reading_amx: int = PANEL
    # The largest number of panels in a range. Ranges should be long, because thresholds and
    # candidates are stored separately for each range; but they must be short enough that other
    # threads can take over the last ranges of a slow thread.
    max_panels_per_range: int = 8192
    # A block contains at most max_queries_per_block queries, and its buffers take at most
    # block_buffer_bytes bytes. The buffers must fit into the second-level cache.
    max_queries_per_block: int = 256
    block_buffer_bytes: int = 1 << 22
    # If rows have at least this many columns, blocks contain twice as many queries. Reading wide
    # rows takes much time. If a row is a candidate for several queries of a block, it is read from
    # memory only once.
    wide_columns: int = 768
    # A block of queries has an overhead of ``seconds_per_query_block`` seconds, no matter how many
    # queries it contains. A query that is compared by itself, without a tile, has an overhead of
    # ``seconds_per_single_query`` seconds.
    seconds_per_query_block: float = 1.3e-5
    seconds_per_single_query: float = 0.9e-6
    # The overhead of a block of queries, as a multiple of the time for comparing one panel of
    # queries. This number is larger than 0.1, the overhead that we measured. If two plans take
    # about the same time, the planner therefore chooses the plan with larger blocks.
    block_overhead_panels: float = 0.5
    # A search with many queries divides the queries among the threads. If there are more than
    # max_threads_without_ranges threads, the search may also divide the rows into ranges. The rows
    # are divided only if this saves enough time: the estimated time with ranges must be less than
    # max_share_of_time_in_ranges times the time without ranges. This factor is below 1, because
    # each range collects candidates of its own, which takes additional time.
    max_threads_without_ranges: int = 2
    max_share_of_time_in_ranges: float = 0.85
    # In at most this many passes over the rows, the tasks share their thresholds with each other.
    # Another pass follows only if a shared threshold was found to be damaged. In that pass, the
    # tasks share no thresholds.
    max_sharing_passes: int = 2
    # The kernel ``self_join`` multiplies each pair of rows once instead of twice
    # (``plan._plan_self_join``). The kernel saves no time if there are fewer than
    # min_columns_of_join columns, because the multiplications then take only a small part of the
    # time of a search. To estimate thresholds, the kernel samples every s-th panel. The smaller s
    # is, the more panels are sampled. If s is less than min_sample_stride_of_join, sampling would
    # take more time than the kernel saves, so the kernel is not used.
    min_columns_of_join: int = 256
    min_sample_stride_of_join: int = 5
    # For a large k, scoring the candidates in float64 takes most of the time. Let t be the seconds
    # for multiplying one row by all rows. A self-join is used only if t / k is at least this
    # number.
    min_seconds_per_joined_neighbor: float = 5e-7
    # A self-join compares pairs of blocks, in several rounds. A block has about
    # panels_of_joined_block panels. It has at least min_panels_of_joined_block panels, because
    # starting the threads for every round takes time.
    panels_of_joined_block: int = 64
    min_panels_of_joined_block: int = 16
    # During a self-join, every row has a buffer for candidates, which has space for
    # candidates_per_joined_neighbor * k + candidates_besides candidates. The buffers of all rows
    # are in memory until the end, so they should be small.
    candidates_per_joined_neighbor: int = 4
    # A search that scores every pair is divided into tasks. If the rows have fewer than 64 columns,
    # each task scores pairs_per_task pairs, which takes about 2 ms.
    pairs_per_task: int = 100_000
    # If there are few queries, a task scores only a part of the rows, for one query. The search
    # then has at most this many tasks.
    max_tasks_per_search: int = 64
    # The number of queries that a thread compares with all rows at once in a range search.
    queries_per_range_block: int = 128

    # If the buffers of a search take at most this many bytes, the plan of the search does not
    # depend on the working memory.
    max_unchecked_bytes: int = 1 << 22

    # --- Candidates and the first threshold ------------------------------------------------------

    # The buffer of a query holds candidates. Its capacity is the lowest power of two that exceeds
    # candidates_per_neighbor * k + candidates_besides. If this power of two is less than
    # min_capacity, the capacity is min_capacity. Buffers of this size are rarely full before the
    # end of the search. If the working memory is too small for buffers of this size,
    # candidates_per_neighbor is replaced by min_candidates_per_neighbor.
    candidates_per_neighbor: int = 16
    min_candidates_per_neighbor: int = 4
    candidates_besides: int = 64
    min_capacity: int = 1024
    # The first threshold of a query is a score that at least k rows will probably reach. To
    # estimate the first threshold, the best score of each panel in a sample is computed. The first
    # threshold is the score that has a certain rank among these best scores. Let N be the number of
    # rows in the sample that are among the k best of all rows. N rarely exceeds its expected value
    # plus threshold_deviations times its standard deviation. The rank is computed from this sum.
    # The first threshold is therefore too high for only one query in a hundred. What happens to
    # such a query depends on the search. If the search compares queries in blocks, it searches all
    # rows a second time for every query whose first threshold is too high. If the search compares
    # queries one by one, the kernel itself corrects the first threshold (``task_grid.guess_rank``).
    # The search of the rows is then not repeated.
    threshold_deviations: float = 2.33
    # Of every max_sample_stride consecutive panels, at least one is in the sample.
    max_sample_stride: int = 16
    # The sample contains at least this many panels, so that the estimate of the first threshold is
    # reliable. If there are fewer panels, the sample contains all of them. A search of very few
    # queries scores the sampled panels twice, so the minimum for such a search is half as large.
    min_sampled_panels: int = 32
    # Because the codes have rounding errors, a margin is added to the rank of the first threshold.
    # The margin is rank_margin_of_sample if the sample contains only some of the panels, and
    # rank_margin_of_all if the sample contains all panels.
    rank_margin_of_sample: float = 1.5
    rank_margin_of_all: float = 4.5

    # --- The projection: short codes along the leading principal axes ----------------------------

    # A projection stores for each row a second, shorter code: the coordinates of the row along a
    # few principal axes of the rows. A search first compares the query with the short codes, which
    # rule out most rows. After that, the search reads the full codes of only the remaining rows,
    # and compares the query with them.

    # The number of axes onto which rows are projected. None means that a sample of the rows
    # determines this number, and 0 means that the rows are not projected. Only tests set a positive
    # number.
    projected_columns: int | None = None
    # Rows are projected only if there are at least this many rows and columns. For fewer rows or
    # columns, drawing the sample of rows would take longer than the projection saves.
    min_rows_to_project: int = 4096
    min_columns_to_project: int = 192
    # ``Segment.pack``, which ``fit`` calls, also considers a projection; if it adds none, searches
    # of the segment add none either. If a search has packed the rows instead, as in ``top_k``, a
    # projection may be added once the searches of the segment have performed this many
    # multiply-adds in total. Removing items from an index starts a new total.
    min_work_to_project: int = 2**40
    # On CPUs whose widest instruction set is AVX2, tiles take three times as long as with VNNI
    # (docs/dev/costs.md, "AVX2"). With AVX2, min_work_to_project is therefore multiplied by a
    # factor, so that a projection is added earlier than with VNNI. The factor is
    # share_of_work_to_project_avx2 if k is at most usual_k[0]. For a larger k, the factor is k /
    # usual_k[0] times as large, but it never exceeds 1.
    share_of_work_to_project_avx2: float = 1 / 4
    # projection_widths contains the numbers of axes whose costs are compared. max_projected_share
    # is the largest allowed ratio of the number of axes to the number of columns. If the ratio is
    # larger than max_projected_share, a projection saves too little time.
    projection_widths: tuple[int, ...] = (64, 96, 128, 160, 192, 224, 256, 320, 384)
    max_projected_share: float = 0.7
    # To choose the number of axes, scores are computed in a sample of projection_sample_rows rows.
    # Of these rows, projection_sample_queries rows serve as queries.
    projection_sample_rows: int = 2048
    projection_sample_queries: int = 64
    # The effective number of columns is an estimate of the number of axes along which the rows
    # vary. It is computed from a sample of spread_sample_rows rows. A projection is considered only
    # if the effective number of columns is at most max_spread times the number of columns. The
    # ratio of the effective number of columns to the number of columns is 1 for independent
    # columns, and 0.15 for a text model whose embeddings vary mainly along few axes.
    spread_sample_rows: int = 512
    max_spread: float = 0.4
    # While a search for k neighbours reads the rows, the threshold of a query rises to the k-th
    # best score of the query. The rank of the threshold is its position among all scores of the
    # query, counted from the highest score. As the threshold rises, fewer scores are above it, so
    # the rank of the threshold falls to k. Each pair (k, r) in threshold_ranks says that the
    # average rank of the threshold is r during a search for k neighbours. For each number of axes,
    # the costs are averaged over the values of k in usual_k. The number of axes with the lowest
    # average cost is chosen.
    threshold_ranks: tuple[tuple[int, int], ...] = ((10, 40), (20, 65), (50, 123), (100, 200))
    usual_k: tuple[int, ...] = (10, 100)
    # The error that rounding to int8 codes adds to the inner product of a unit row and a unit
    # query.
    code_error: float = 0.013
    # The next three costs are multiples of the time that a tile needs to multiply one column. A
    # tile has the fixed cost tile_overhead_columns. Comparing a single (query, row) pair without a
    # tile has the fixed cost pair_overhead_columns, and the cost pair_cost_per_column for each
    # column.
    tile_overhead_columns: float = 22
    pair_overhead_columns: float = 2200.0
    pair_cost_per_column: float = 2.0
    # A projection is added only if it is estimated to make the tiles at least this many times as
    # fast. The first number is for searches with few queries, and the second number is for searches
    # with many queries. A smaller gain is not worthwhile for two reasons: every query must first be
    # projected, and the projection does not shorten the computation of the float64 scores.
    min_projection_gains: tuple[float, float] = (1.5, 2.0)

    # --- Batches and blocks that fit the working memory ------------------------------------------

    # A batch of queries in memory has at least this many queries, so that every thread has work.
    min_batch_queries: int = 1024
    # The queries of a batch, their encoded rows and their results may together take this share of
    # the working memory.
    batch_share: float = 0.25
    # The bytes that a query takes in addition to its columns and its k results.
    batch_bytes_per_query: int = 128
    # If items are read in blocks, the working memory is divided into three shares.
    # ``segment_search_share`` is the share that is reserved for the search of a segment.
    # ``read_queries_share`` is the largest share that the queries of a batch may take. The rest of
    # the working memory is for the items of a segment. Batches and segments should be large,
    # because every batch packs all items again, and every segment packs the queries of a batch
    # again.
    segment_search_share: float = 0.25
    read_queries_share: float = 0.4
    # The bytes that a row takes in addition to its entries while it is searched: for its norm, its
    # bias, and its state in the search.
    read_bytes_per_row: int = 160
    # The number of bytes that are reserved for the int8 code of each entry of a row while the row
    # is encoded and packed.
    read_bytes_per_code: int = 2
    # The number of bytes that each entry of a row needs while the measure transforms the row in
    # float64.
    read_bytes_per_encoded_entry: int = 16
    # The number of bytes for each neighbour of a query. Three rankings of the neighbours are in
    # memory at the same time, and each ranking stores 16 bytes per neighbour.
    read_bytes_per_neighbor: int = 48
    # Results are written to ``out`` for many queries at once. The number of queries is at least
    # min_written_queries_on_disk if the items are on disk, and at least min_written_queries if the
    # items are in memory.
    min_written_queries_on_disk: int = 1 << 17
    min_written_queries: int = 1024
    # Blocks of low-precision rows have a memory limit of their own
    # (``batches.low_precision_memory``). This limit is never below low_precision_memory bytes. It
    # is also never below low_precision_bytes_per_column times the number of columns.
    low_precision_memory: float = float(1 << 25)
    low_precision_bytes_per_column: float = 5120.0
    # The number of queries that a search in NumPy compares at once. More queries in one matrix
    # product would not reduce the time per query.
    numpy_batch_queries: int = 1024
    # The bytes that a candidate takes in a search in NumPy. These bytes include the temporary
    # copies of the candidate that exist while the best candidates are selected.
    numpy_bytes_per_candidate: int = 96

    # --- Measures for which an inner product is only an upper bound (filter_refine) ---------------

    # For each query, the measure first scores k + extra_candidates candidates.
    extra_candidates: int = 14
    # If the first candidates of a query do not suffice, all items with a sufficiently high bound
    # are collected in a list. This is the initial capacity of the list.
    refined_capacity: int = 256
    # If the list of a query is too short, the items are collected again, in a list that is
    # refined_growth times as long.
    refined_growth: int = 8
    # The bytes that a candidate takes while the measure scores it.
    refined_bytes_per_candidate: int = 128
    # The number of queries whose candidates the measure scores in one call.
    refined_queries: int = 1024

    # --- Rates by which the time of a search is estimated ----------------------------------------

    # The number of bytes that one thread can read from memory per second.
    bytes_per_second_of_thread: float = 1.6e10
    # The number of bytes that all threads together can read from memory per second.
    bytes_per_second: float = 6.5e10
    # Data of at most this many bytes is assumed to stay in the caches of the CPU.
    cached_bytes: float = float(1 << 25)
    # The number of bytes that one thread can read from the caches per second.
    cached_bytes_per_second_of_thread: float = 6.0e10
    # For each instruction set, ``multiply_adds_per_second`` is the number of multiply-adds that one
    # thread performs per second in full tiles. ``single_multiply_adds_per_second`` is the
    # corresponding number for queries that are compared one by one.
    multiply_adds_per_second: tuple[tuple[str, float], ...] = (
        ("amx", 9.0e11), ("vnni", 3.5e11), ("avxvnni", 1.8e11), ("avx2", 1.0e11),
        ("avx512", 6.0e10), ("generic", 1.2e10),
    )  # fmt: skip
    single_multiply_adds_per_second: tuple[tuple[str, float], ...] = (
        ("amx", 1.0e11), ("vnni", 2.0e11), ("avxvnni", 6.0e10), ("avx2", 4.0e10),
        ("avx512", 2.0e10), ("generic", 6.0e9),
    )  # fmt: skip
    # The overhead of a tile, in seconds per query of the tile.
    seconds_per_tile_lane: float = 2.0e-9
    # The share of the rows that a projection cannot rule out. The full codes of these rows are
    # compared with the query.
    share_after_projection: float = 0.15
    # A search by tiles scores candidates in float64. The estimated number of candidates, for each
    # query and each range of panels, is scored_pairs_per_neighbor * k + scored_pairs_besides.
    scored_pairs_per_neighbor: float = 4.0
    scored_pairs_besides: float = 30.0
    # Scoring a candidate in float64 takes a fixed time plus a time per column, both in seconds.
    seconds_per_candidate: float = 2.5e-8
    seconds_per_candidate_column: float = 1.0e-10
    # The next two numbers are for searches that score every pair instead of a few candidates.
    # Scoring a pair takes the fixed time seconds_per_score, plus a time per column. The fixed time
    # is shorter than seconds_per_candidate, because these searches read the rows in the order in
    # which the rows are stored.
    seconds_per_score: float = 1.0e-8
    seconds_per_scored_column: float = 1.0e-10
    # The seconds for selecting and sorting one neighbour.
    seconds_per_neighbor: float = 5.0e-8
    # Packing a row takes a fixed time plus a time per entry, both in seconds.
    seconds_per_packed_row: float = 1.0e-7
    seconds_per_packed_entry: float = 1.2e-9
    # While the kernels are not compiled, searches run in NumPy. The time of a search in NumPy
    # follows from two rates: the multiply-adds per second of one thread in a matrix product, and
    # the seconds per pair for all other steps.
    numpy_multiply_adds_per_second: float = 5.0e10
    seconds_per_numpy_pair: float = 3.0e-9
    # The fixed overhead of a search in seconds. The first number is for prepared searches of an
    # index, and the second number is for all other searches.
    seconds_per_prepared_call: float = 9.0e-6
    seconds_per_call: float = 1.2e-4
    # Fitting a measure takes this many seconds, plus a time that depends on the number of items.
    seconds_per_fit: float = 2.0e-4
    # The seconds for waking the threads of the pool and merging their results.
    seconds_per_handover: float = 5.0e-5
    # The seconds per item for making a mask of the allowed items.
    seconds_per_masked_row: float = 2.0e-9


# The cost model that is in force in this process.
COSTS = CostModel()


@contextmanager
def costs_replaced(**changes: object) -> Iterator[None]:
    """Replace fields of ``COSTS`` within a ``with`` block.

    Only tests and benchmarks call this function, because the change affects all threads.
    """
    global COSTS
    before = COSTS
    COSTS = dataclasses.replace(before, **changes)  # type: ignore[arg-type]
    try:
        yield
    finally:
        COSTS = before


def read_seconds(read: float, size: float, n_threads: int, costs: CostModel) -> float:
    """Return the time in seconds that `n_threads` threads need to read data together.

    `size` is the size of the data in bytes, which determines whether the data stays in the caches.
    `read` is the number of bytes that the threads read; if they read the data several times, `read`
    is larger than `size`.
    """
    if size <= costs.cached_bytes:
        return read / (n_threads * costs.cached_bytes_per_second_of_thread)
    return read / min(n_threads * costs.bytes_per_second_of_thread, costs.bytes_per_second)

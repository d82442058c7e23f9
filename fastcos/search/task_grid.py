"""Divide a scan into tasks: the queries and rows of each task, and the number of threads.

The functions of this module are pure: they compute with the sizes of a search and with the numbers
of ``cost_model``, and read no array. ``plan`` chooses the method of a search, and then calls the
functions of this module. These functions divide the search into tasks, and choose which score of a
sample serves as the first threshold. ``group_search`` and ``explain`` call a few of these functions
directly. In this module, a panel is a block of 32 packed rows or of 32 queries.
"""

import math
from dataclasses import dataclass

from fastcos import validation
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.kernels.simd.panel import PANEL
from fastcos.search import cost_model
from fastcos.search.cost_model import CostModel, read_seconds
from fastcos.search.layout import TileLayout


@dataclass(frozen=True)
class Machine:
    """The machine for which a search is planned, and the options of the call.

    Attributes
    ----------
    isa : str
        Name of the instruction set.
    n_threads : int
    working_memory : float
        The number of bytes for buffers, besides inputs and outputs.
    is_compiled : bool
        Whether the kernels are compiled.
    has_tiles : bool
        Whether there are tile kernels (``kernels.tiles.AVAILABLE``). There are none if kernels run
        as plain Python functions (NUMBA_DISABLE_JIT).
    """

    isa: str
    n_threads: int
    working_memory: float
    is_compiled: bool = True
    has_tiles: bool = True


@dataclass(frozen=True)
class ThresholdSample:
    """The panels from which the first threshold of a query is estimated.

    Every ``stride``-th panel is sampled, and the best score in each of these panels is found. The
    ``rank``-th largest of these best scores is the threshold. If ``stride`` is 0, no panel is
    sampled, and the threshold starts to rise when candidates are scored for the first time.
    """

    stride: int = 0
    rank: int = 0


@dataclass(frozen=True)
class TaskGrid:
    """The division of a scan into tasks; a task compares a block of queries with a range of rows.

    Attributes
    ----------
    queries_per_block : int
    n_query_blocks : int
    panels_per_range : int
    n_ranges : int
    n_threads : int
        The number of threads that run the tasks.
    """

    queries_per_block: int
    n_query_blocks: int
    panels_per_range: int
    n_ranges: int
    n_threads: int

    @property
    def is_one_task(self) -> bool:
        """Whether there is only one task, which runs in the calling thread."""
        return self.n_query_blocks == self.n_ranges == 1


# A grid with a single task, which runs in the calling thread.
ONE_TASK = TaskGrid(1, 1, 0, 1, 1)
# A search that does not estimate the first threshold samples no panel.
NO_SAMPLE = ThresholdSample()


def plan_exhaustive(
    n: int, m: int, n_columns: int, k: int, n_threads: int, costs: CostModel
) -> TaskGrid:
    """Divide the computation of n x m float64 scores into tasks that take about 2 ms each.

    There are n queries and m rows. A task scores a block of queries with all rows or, if there are
    few queries, one query with a part of the rows.

    The rows are divided into ``n_ranges`` ranges. Some fields of this grid differ from the
    docstring of ``TaskGrid``: ``queries_per_block`` is the number of (query, range) pairs per task,
    ``n_query_blocks`` is the number of tasks, and ``panels_per_range`` is 0.
    """
    per_task = max(1, costs.pairs_per_task // (1 + n_columns // 64))
    n_ranges = min(max(1, m // max(per_task, 4 * k)), max(1, costs.max_tasks_per_search // n))
    per_block = max(1, per_task * n_ranges // max(1, m))
    return TaskGrid(per_block, -(-n * n_ranges // per_block), 0, n_ranges, n_threads)


def one_by_one_is_faster(
    layout: TileLayout,
    n_queries: int,
    n_panels: int,
    costs: CostModel,
    *,
    has_projection: bool = False,
) -> bool:
    """Return whether answering queries one at a time is faster than answering them as one block."""
    if not layout.quantised or n_queries > PANEL:
        return False
    # With a projection, full codes are read only for rows that the projection cannot rule out. A
    # block of queries reads these full codes once for all of its queries. If there are more than
    # queries_per_reading queries, comparing a block of queries is therefore faster than comparing
    # the queries one by one.
    if has_projection and n_queries > costs.queries_per_reading:
        return False
    work = n_panels * PANEL * 4 * layout.words
    # A tile with fewer than 16 queries takes as long as a tile with 16 queries.
    lanes = PANEL // 2 if n_queries <= PANEL // 2 else PANEL
    of_block = lanes * work / dict(costs.multiply_adds_per_second)[layout.isa]
    one_by_one = n_queries * work / dict(costs.single_multiply_adds_per_second)[layout.isa]
    one_by_one += n_queries * costs.seconds_per_single_query
    return one_by_one <= costs.seconds_per_query_block + of_block


def useful_threads(layout: TileLayout, n_queries: int, n_panels: int, costs: CostModel) -> int:
    """Return the largest useful number of threads for a search with few queries.

    Each thread should read enough bytes of codes to make starting the thread worthwhile.
    """
    has_registers = INSTRUCTION_SETS[layout.isa].has_tile_registers
    per_reading = costs.queries_per_reading_amx if has_registers else costs.queries_per_reading
    # The work of the search, as a number of bytes of codes: reading this many bytes takes about as
    # long as the search.
    work = n_panels * PANEL * 4 * layout.words * (1 + n_queries // per_reading)
    return max(1, work // costs.min_bytes_per_thread)


def plan_query_blocks(
    n: int,
    needed_rows: float,
    k: int,
    layout: TileLayout,
    n_columns: int,
    n_panels: int,
    machine: Machine,
    costs: CostModel,
    *,
    may_share: bool = True,
) -> tuple[TaskGrid, int, float]:
    """Divide the queries among threads.

    The result is a tuple of the grid, the capacity of the buffers, and the bytes of the buffers.

    Each thread takes one block of queries after another, and compares each block with all rows. On
    a machine with many cores and little memory, the search uses smaller buffers and only some of
    the cores. The size of the blocks is chosen so that the work is divided evenly: two threads
    divide 192 queries into 96 and 96, and not into 64 and 128. If there are no more blocks than
    threads, the blocks have equal numbers of queries. If there are too few queries to give every
    thread a block, the rows are divided among the threads instead of the queries (``share_rows``).
    With many threads, there would be many small blocks of queries, and each block would read all
    codes again. If it saves time, ``_divide_rows`` therefore divides the rows into ranges, too; the
    grid then has fewer and larger blocks of queries. ``may_share`` says whether the rows may be
    divided. ValueError is raised if the buffers of one query exceed the working memory.
    """
    # The function ``tile_top_k.search_block`` allocates ``per_panel`` bytes for each panel of 32
    # queries, even if the panel is only partly filled. The function also allocates ``small`` or
    # ``large`` bytes for each query. The remaining buffers of the function take less memory in
    # total than the buffers of two queries.
    per_panel = PANEL * (4 * n_columns + 64)
    min_capacity = _min_capacity(needed_rows, costs)
    capacity = full_capacity(needed_rows, costs)
    small, large = (36 * size + 24 * k for size in (min_capacity, capacity))
    validation.check_memory("working_memory", machine.working_memory, 3 * small + per_panel)
    factor = 2 if n_columns >= costs.wide_columns else 1
    per_block = min(n, factor * costs.max_queries_per_block) * (large + per_panel / PANEL)
    # Even a block of one query needs ``large`` bytes for the query and ``per_panel`` bytes for its
    # panel. All other arrays of the block together take at most ``2 * large`` bytes.
    required = max(machine.n_threads * per_block, 3 * large + per_panel)
    is_short = machine.working_memory < required
    per_query = large
    if is_short:
        capacity, per_query = min_capacity, small
    fitting = machine.working_memory / (PANEL * per_query + per_panel)
    n_threads = max(1, min(machine.n_threads, int(fitting)))
    if fitting < 1:
        block = int((machine.working_memory - per_panel) / per_query) - 2
    else:
        buffered = factor * costs.block_buffer_bytes // (8 * capacity * PANEL)
        largest = factor * costs.max_queries_per_block // PANEL
        largest = max(1, min(largest, int(fitting / n_threads), buffered))

        def duration(panels: int) -> float:
            rounds = -(-n // (panels * n_threads * PANEL))
            return rounds * (panels + costs.block_overhead_panels)

        block = min(range(largest, 0, -1), key=duration) * PANEL
    n_blocks = -(-n // block)
    if n_blocks <= n_threads:
        # All blocks get the same size, but the number of blocks does not change. A larger number of
        # blocks would leave more panels of 32 queries only partly filled, and the search would take
        # longer.
        block = -(-n // n_blocks)
    grid = TaskGrid(block, n_blocks, n_panels, 1, n_threads)
    if may_share and fitting >= 1:
        outputs = 16.0 * n * k
        spare = machine.working_memory - n_threads * largest * (PANEL * per_query + per_panel)
        max_ranges = min(n_threads, int(spare / outputs) - 1)
        shared = share_rows(layout, n, n_panels, n_panels, machine, costs)
        max_shared = min(costs.max_queries_sharing_rows, largest * PANEL)
        if n <= max_shared and shared.n_ranges <= max(1, max_ranges):
            # If the rows are divided, candidates of each query are found separately in every range,
            # so more pairs must be scored. The rows are therefore divided only if there are too few
            # blocks of queries for all threads.
            if n_blocks < n_threads:
                grid = shared
        else:
            grid = _divide_rows(grid, n, k, layout, n_columns, largest, max_ranges, costs)
    running = min(grid.n_threads, grid.n_query_blocks * grid.n_ranges)
    block = min(grid.queries_per_block, n)
    buffers = running * (block * per_query + -(-block // PANEL) * per_panel)
    if grid.n_ranges > 1:
        buffers += 16.0 * n * k * (grid.n_ranges + 1)
    return grid, capacity, buffers


def share_rows(
    layout: TileLayout,
    n: int,
    n_panels: int,
    max_panels: int,
    machine: Machine,
    costs: CostModel,
) -> TaskGrid:
    """Divide the panels about equally among the threads; all n queries form a single block."""
    n_threads = min(machine.n_threads, useful_threads(layout, n, n_panels, costs))
    rounds = max(1, -(-n_panels // (n_threads * max_panels)))
    per_range = max(1, -(-n_panels // (n_threads * rounds)))
    n_ranges = 1 if n_panels <= per_range else -(-n_panels // per_range)
    return TaskGrid(n, 1, per_range, n_ranges, n_threads)


def _divide_rows(
    grid: TaskGrid,
    n: int,
    k: int,
    layout: TileLayout,
    n_columns: int,
    largest: int,
    max_ranges: int,
    costs: CostModel,
) -> TaskGrid:
    """Return a grid that divides both the queries and the rows, if this saves enough time.

    ``largest`` is the largest number of query panels in a block. The time of a search is estimated
    as the sum of two times: the time of the scan, and the time of scoring the candidates of every
    range. The time of the scan is the longer of two times: the time for reading the codes once per
    query block, and the time that the busiest thread needs for its multiplications. With two
    threads, dividing the rows saves no time.
    """
    n_panels, n_threads = grid.panels_per_range, grid.n_threads
    if n_threads <= costs.max_threads_without_ranges or n_panels < n_threads:
        return grid
    codes = n_panels * PANEL * 4.0 * layout.words
    rate = dict(costs.multiply_adds_per_second)[layout.isa]
    tile = PANEL * PANEL * layout.words * (4 if layout.quantised else 1) / rate
    per_score = costs.seconds_per_candidate + costs.seconds_per_candidate_column * n_columns
    scored = n * (costs.scored_pairs_per_neighbor * k + costs.scored_pairs_besides)

    def duration(panels: int, n_ranges: int) -> float:
        n_blocks = -(-n // (panels * PANEL))
        rounds = -(-n_blocks * n_ranges // n_threads)
        compute = rounds * (panels + costs.block_overhead_panels) * -(-n_panels // n_ranges) * tile
        read = read_seconds(codes * n_blocks, codes, n_threads, costs)
        return max(compute, read) + n_ranges * scored * per_score / n_threads

    current = duration(-(-grid.queries_per_block // PANEL), 1)
    choices = [
        (duration(panels, n_ranges), n_ranges, panels)
        for n_ranges in range(2, max_ranges + 1)
        for panels in range(1, largest + 1)
    ]
    if not choices:
        return grid
    seconds, n_ranges, panels = min(choices)
    if seconds > costs.max_share_of_time_in_ranges * current:
        return grid
    per_range = -(-n_panels // n_ranges)
    block = panels * PANEL
    return TaskGrid(block, -(-n // block), per_range, -(-n_panels // per_range), n_threads)


def guess_in_range(
    k: float, needed_rows: float, n_panels: int, costs: CostModel, min_sample: int | None = None
) -> ThresholdSample:
    """Return which panels of a range are sampled to estimate the first threshold.

    The arguments are those of ``guess_rank``. ``min_sample`` is the smallest number of panels in
    the sample; None stands for the usual number, ``min_sampled_panels``.
    """
    min_sample = costs.min_sampled_panels if min_sample is None else min_sample
    # Every ``stride``-th panel is sampled. The more rows a query needs, the more panels must be
    # sampled, and the smaller the stride must be. For example, if a query needs 100 rows and there
    # are 200 panels, the stride is at most 4.
    needed_in_range = min(needed_rows, n_panels * 4)
    max_stride = int(math.sqrt(n_panels / (2 * needed_in_range)) * 4)
    stride = max(1, min(costs.max_sample_stride, (n_panels + 1) // min_sample, max_stride))
    return ThresholdSample(stride, guess_rank(k, needed_rows, n_panels, costs, stride))


def guess_rank(
    k: float, needed_rows: float, n_panels: int, costs: CostModel, stride: int = 1
) -> int:
    """Return a rank r: the first threshold is the r-th largest of the sampled panels' best scores.

    Every ``stride``-th panel of a range of ``n_panels`` panels is sampled; with a stride of 1, all
    panels are sampled. Of the best ``needed_rows`` rows, k are on average allowed in the results.
    The number ``needed_rows`` may be larger than the number of rows in the range. The rank is at
    most the number of sampled panels.

    For about one query in a hundred, the first threshold is too high. If the first threshold of a
    query is too high, the next step depends on the kernel. The kernel "few_queries" scores more
    slots, but does not multiply the codes a second time. The kernel "projected_queries" compares
    the query with the full codes of all rows of the range. With the other kernels, the search is
    repeated for this query, without an estimated threshold.
    """
    needed_rows = min(needed_rows, n_panels * 4)
    k = min(k, needed_rows)
    panels = max(1, n_panels // stride)
    expected = needed_rows / stride
    # Each of the best rows is counted if it is in the sample and allowed in the results; otherwise,
    # it is not counted. The number of counted rows therefore has a binomial variance.
    deviation = math.sqrt(expected * (1 - k / needed_rows / stride))
    # If all panels are read and every row is allowed, all of the best rows are certainly counted.
    # The standard deviation of the number of counted rows is then 0. The threshold may still be too
    # high, because codes have rounding errors.
    margin = costs.rank_margin_of_sample if stride > 1 else costs.rank_margin_of_all
    n_best = expected + costs.threshold_deviations * deviation + margin
    # Assume that the n_best rows are distributed over the panels at random. If a panel contains at
    # least one of these rows, its best score is among the highest. The returned rank is the
    # expected number of such panels, rounded up.
    return min(panels, int(panels * -math.expm1(-n_best / panels)) + 1)


def _min_capacity(needed_rows: float, costs: CostModel) -> int:
    """Return the smallest permitted capacity of a query's buffer, as a number of candidates."""
    entries = costs.min_candidates_per_neighbor * needed_rows + costs.candidates_besides
    return 1 << math.ceil(entries).bit_length()


def full_capacity(needed_rows: float, costs: CostModel) -> int:
    """Return how many candidates the buffer of a query can hold.

    The buffers are so large that only a few of them become full.

    For example, an out-of-distribution query among 30,000 rows of 1,536 columns has 650 candidates
    if k is 10, and 1,100 candidates if k is 100.
    """
    entries = costs.candidates_per_neighbor * needed_rows + costs.candidates_besides
    return max(costs.min_capacity, 1 << math.ceil(entries).bit_length())


def sample_of_group(k: int, n_panels: int) -> ThresholdSample:
    """Return the sample of a group's panels from which the first threshold is estimated.

    A group has few panels. The sample may be half as large as usual, because it is still a large
    part of the group.
    """
    costs = cost_model.COSTS
    return guess_in_range(k, k, n_panels, costs, costs.min_sampled_panels // 2)

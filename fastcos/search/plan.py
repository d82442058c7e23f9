"""Plan searches: pure functions that compute a plan from the sizes of a search.

A plan depends on the sizes of the rows, on the request, on the machine, and on the constants in
``cost_model.COSTS``. A plan also depends on a few facts about the rows (``SegmentSizes``). The
functions of this module read no row and start no thread, so plans for any machine can be tested
without data. The functions make these decisions:

* ``plan_search`` chooses how one segment is searched: the method, the kernel, and the division of
  the work among threads. ``plan_pass`` plans a further search for the queries whose threshold was
  too high;
* ``plan_groups`` and ``plan_group_panels`` plan searches within groups, and ``plan_candidates``
  plans range searches;
* ``pays_grouping``, ``may_project``, ``work_to_project`` and ``gains_by_projection`` decide when
  duplicates are grouped and when a projection is added;
* ``n_candidates`` returns the number of items that a search with an ``UpperBounded`` measure scores
  in its first round; ``drops_excluded_ids`` returns whether excluded items are dropped after a
  search.

The modules ``task_grid``, ``batches`` and ``cost_model`` read no row and start no thread either.
``task_grid`` divides the work of a method among threads, and is called by the functions of this
module, by ``group_search`` and by ``explain``. ``batches`` computes how many queries and rows fit
the working memory, and is called by ``sources`` and ``explain``. ``cost_model`` contains the
numbers by which methods are compared. ``scan`` runs a plan, and ``explain`` describes it in words.
The docstring of ``fastcos.search`` lists the decisions about a search that other modules make.

Some decisions are made only while a search runs, because they depend on values and not only on
sizes:

* an index runs a prepared search only if two conditions hold: the queries need no validation, and
  the kernel finds no query norm that is zero, very small or very large (condition 3 in
  ``prepared``);
* if a projection does not make a query faster, the kernel stops using the projection for this
  query. If an estimated threshold was too high, the kernel scores more slots, or reads all rows
  once more. If a query of zeros has the same score with every row, it is not compared with any row.
  With the method "distinct", equal queries are searched only once (``scan``);
* if the norms of the rows differ too much, a planned self-join is replaced by a search of query
  blocks (``self_join.norms_are_similar``);
* if a group is searched by tiles, a query of zeros is nevertheless scored with every item of its
  group (``group_search``);
* the k-th best scores from earlier segments serve as first thresholds only if they are finite for
  all queries of the batch (``scan``).

A plan never changes results: every method returns bit-for-bit the same results, ordered by float64
scores. In this module, a panel is a block of 32 packed rows, and a slot is the place of a row in
the packed order.
"""

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from fastcos.kernels.self_join import PANELS_AT_ONCE
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.kernels.simd.panel import PANEL
from fastcos.search import cost_model
from fastcos.search.cost_model import CostModel
from fastcos.search.layout import TileLayout, float_layout, tile_layout
from fastcos.search.task_grid import (
    NO_SAMPLE,
    ONE_TASK,
    Machine,
    TaskGrid,
    ThresholdSample,
    full_capacity,
    guess_in_range,
    guess_rank,
    one_by_one_is_faster,
    plan_exhaustive,
    plan_query_blocks,
    share_rows,
    useful_threads,
)
from fastcos.validation import Integers

Method = Literal["numpy", "score_all", "unpacked", "packed", "distinct", "repack"]
KernelName = Literal["few_queries", "projected_queries", "few_blocks", "query_blocks", "self_join"]
Fact = Literal["distinct_rows", "moderate_norms"]


@dataclass(frozen=True)
class SegmentSizes:
    """What the planner must know about a segment.

    Attributes
    ----------
    n_rows, n_columns : int
        Shape of the encoded rows, including deleted rows.
    n_live : int
        The number of live rows, which are the rows that searches can return.
    row_type : str
        Name of the type of the rows, such as "float32".
    packed_for : str
        Name of the instruction set for which the rows are packed; empty if they are not packed.
    n_packed : int
        The number of slots of the packed rows, including rows that were deleted later.
    projected_words : int
        The number of 4-byte words in a projected row; 0 if there is no projection. If duplicate
        rows are grouped, only the distinct rows are projected.
    projection_max_k : tuple of float
        ``projection_max_k[0]`` is the largest k for which the projection makes a search with few
        queries faster. ``projection_max_k[1]`` is the largest k for which the projection makes a
        search with many queries faster.
    n_distinct : int or None
        The number of distinct rows; None if they have not been counted. If grouping equal rows
        would not save time, ``n_distinct`` equals ``n_live``.
    has_moderate_norms : bool or None
        Whether float32 products of the rows neither overflow nor underflow; None if the norms have
        not been checked.
    n_live_of_index : int or None
        The total number of live rows in this segment and in all segments that are searched together
        with it. If only one group is searched, only the rows of this group count. With None, as
        in ``filter_refine``, the segment is planned as if it were searched alone.
    """

    n_rows: int
    n_columns: int
    n_live: int
    row_type: str = "float32"
    packed_for: str = ""
    n_packed: int = 0
    projected_words: int = 0
    projection_max_k: tuple[float, float] = (0.0, 0.0)
    n_distinct: int | None = None
    has_moderate_norms: bool | None = None
    n_live_of_index: int | None = None


@dataclass(frozen=True)
class RequestSizes:
    """What the planner must know about a request.

    Attributes
    ----------
    n_queries, k : int
    n_allowed : int or None
        The number of rows of the segment that are allowed in the results; None if all live rows are
        allowed.
    excludes_pairs : bool
        Whether the request excludes (query, row) pairs other than the pair of a query with itself.
    is_self_join : bool
        Whether the queries are the rows of the segment, in the same order.
    """

    n_queries: int
    k: int
    n_allowed: int | None = None
    excludes_pairs: bool = False
    is_self_join: bool = False


@dataclass(frozen=True)
class SearchPlan:
    """How one segment is searched for one batch of queries.

    Attributes
    ----------
    method : str
        "numpy" computes matrix products in NumPy, while the kernels are not compiled. "score_all"
        computes the float64 scores of every pair. "unpacked" multiplies unpacked rows by float32
        tiles. "packed" multiplies packed rows, drops most pairs by bounds that follow from these
        products, and scores the other pairs in float64. "distinct" searches one row of each group
        of duplicates, according to the plan ``inner``. "repack" packs only the allowed rows, for
        this search alone, and searches them according to the plan ``inner``.
    needs : str or None
        A fact that must be looked up before the search can be planned. The caller looks up this
        fact, and calls ``plan_search`` again.
    kernel : str or None
        The kernel that multiplies the rows; None for a method that has no such kernel.
        "few_queries" compares one query after another with the packed rows, which are divided among
        the threads. "projected_queries" compares one query after another by projected codes.
        "few_queries" and "projected_queries" are the names of modules of ``fastcos.kernels``.
        "few_blocks" compares the rows with one block of queries, or with one block per thread.
        "query_blocks" compares the rows with many blocks of queries (``kernels.tile_top_k``). If
        the queries are the rows, "self_join" multiplies each pair of rows only once
        (``kernels.self_join``). With the kernels "few_queries", "projected_queries" and
        "few_blocks", one launch performs the whole search (``launch_is_whole_search``).
    layout : TileLayout or None
        Layout of the rows that the kernel reads.
    grid : TaskGrid
        The division of the search into tasks for threads.
    first_rank : int
        For the kernels "few_queries" and "projected_queries": the rank of the first threshold. The
        kernel scales the largest product of each panel. The ``first_rank``-th largest of these
        scaled products is the first threshold. Rows whose products reach the first threshold are
        scored first.
    sample : ThresholdSample
        For every kernel except "few_queries": the panels that are sampled to estimate the first
        threshold of a query.
    capacity : int
        For the kernels "few_blocks", "query_blocks" and "self_join": how many candidates the buffer
        of a query can hold.
    use_projection : bool
        Whether the kernel multiplies projected codes first. Projected codes usually rule out most
        pairs. If they rule out too few pairs to save time, the kernel stops using them
        (``kernels.projection_filter``).
    fits_all_options : bool
        Whether the plan is the same for any number of threads and any working memory. An unusually
        small working memory may nevertheless change the plan.
    needed_rows : float
        The number of best packed rows that must be found for a query, so that k of them are allowed
        in the results on average. This number is larger than k if some of the packed rows are not
        allowed.
    buffer_bytes : float
        The memory of the buffers in bytes, at most the working memory.
    inner : SearchPlan or None
        For the method "distinct": the plan for a search of the distinct rows. For "repack": the
        plan for the newly packed rows, which only this search uses. For "unpacked": the plan for
        the last rows, which are too few to fill a panel.
    reasons : tuple of str
        The reasons for the method, and the reasons against other methods.
    """

    method: Method
    needs: Fact | None = None
    kernel: KernelName | None = None
    layout: TileLayout | None = None
    grid: TaskGrid = ONE_TASK
    first_rank: int = 0
    sample: ThresholdSample = NO_SAMPLE
    capacity: int = 0
    use_projection: bool = False
    fits_all_options: bool = False
    needed_rows: float = 0.0
    buffer_bytes: float = 0.0
    inner: "SearchPlan | None" = None
    reasons: tuple[str, ...] = ()

    @property
    def launch_is_whole_search(self) -> bool:
        """Whether a single launch performs the whole search of the segment (``launch.Launch``).

        A launch calls the kernel once for each block of queries or range of rows. The kernel scales
        and encodes the queries itself. If the first threshold of a query is too high, the kernel
        corrects it, so no second launch is needed. An index can prepare a search that is a single
        launch (``prepared``).

        ``_plan_packed`` chooses a kernel only if k is at most an eighth of the number of allowed
        rows. For a search with few queries and no mask, the allowed rows of all segments count; for
        any other search, only the allowed rows of this segment count. Each query therefore finds k
        rows, unless the search excludes pairs.
        """
        return self.kernel in ("few_queries", "projected_queries", "few_blocks")


@dataclass(frozen=True)
class GroupPlan:
    """How each group of items is searched for the queries of the group.

    Attributes
    ----------
    is_small : ndarray (g,), bool
        The groups that are searched together, in one launch: every query is scored with all items
        of its group.
    is_tiled : ndarray (g,), bool
        The groups whose panels are searched by tiles. Several groups are searched at a time, each
        by one thread.
    is_segment : ndarray (g,), bool
        The groups that are searched as segments. One group is searched at a time, by all threads
        together.
    """

    is_small: npt.NDArray[np.bool_]
    is_tiled: npt.NDArray[np.bool_]
    is_segment: npt.NDArray[np.bool_]


def plan_groups(
    n_queries: Integers,
    n_items: Integers,
    n_columns: int,
    k: int,
    *,
    needs_segments: bool = False,
    has_tiles: bool = True,
    n_queries_so_far: Integers | None = None,
) -> GroupPlan:
    """Return how groups of these sizes (g,) are searched.

    ``needs_segments`` says whether every group must be searched as a segment of its own. This is
    the case, for example, if the measure is ``UpperBounded``. ``has_tiles`` is described in
    ``Machine``. ``n_queries_so_far`` (g,) contains the number of queries of each group in this
    search and all earlier searches. Packing a group saves time only if this number is large.
    ``n_queries_so_far=None`` means that there were no earlier searches.
    """
    costs = cost_model.COSTS
    work = n_queries * n_items * n_columns
    is_segment = (work > 0) & (
        needs_segments | (n_items * n_columns >= costs.min_entries_of_segment)
    )
    is_wide_enough = (n_items >= costs.min_items_in_panels) & (
        k <= costs.max_neighbor_share * n_items
    )
    pays_packing = (n_queries if n_queries_so_far is None else n_queries_so_far) > (
        costs.scores_per_packed_row
    )
    is_tiled = ~is_segment & is_wide_enough & pays_packing & (work >= costs.min_work_of_panels)
    is_tiled &= has_tiles
    return GroupPlan((work > 0) & ~is_segment & ~is_tiled, is_tiled, is_segment)


def plan_group_panels(
    n_queries: int, k: int, layout: TileLayout, n_columns: int, n_panels: int, machine: Machine
) -> SearchPlan:
    """Plan a search of groups by tiles, in which each group is searched by a single thread.

    All queries of a task belong to the same group. ``n_queries`` is the number of queries of the
    largest task, and ``n_panels`` is the number of panels of the largest group. The threads of the
    plan search different groups at the same time. The working memory limits the number of threads.
    The plan contains no sample, because the sample of a group depends on the number of panels of
    this group (``task_grid.sample_of_group``).
    """
    grid, capacity, buffers = plan_query_blocks(
        n_queries, float(k), k, layout, n_columns, n_panels,
        dataclasses.replace(machine, n_threads=1), cost_model.COSTS, may_share=False,
    )  # fmt: skip
    n_threads = max(1, min(machine.n_threads, int(machine.working_memory / buffers)))
    return SearchPlan(
        "packed", kernel="query_blocks", layout=layout,
        grid=dataclasses.replace(grid, n_threads=n_threads), capacity=capacity,
        needed_rows=float(k), buffer_bytes=n_threads * buffers,
    )  # fmt: skip


@dataclass(frozen=True)
class CandidatePlan:
    """How a range search finds the rows that may reach a score.

    Attributes
    ----------
    kernel : str or None
        The kernels "few_queries" and "query_blocks" are described in SearchPlan. ``kernel`` is None
        if there are no tile kernels; in this case, every allowed row is a candidate.
    queries_per_block : int
    use_projection : bool
        Whether the kernel multiplies projected codes first.
    """

    kernel: KernelName | None
    queries_per_block: int
    use_projection: bool


def plan_candidates(
    n_queries: int, n_packed: int, layout: TileLayout, *, has_projection: bool, has_tiles: bool
) -> CandidatePlan:
    """Return the plan by which a range search finds its candidates.

    ``has_tiles`` is described in Machine.
    """
    costs, n_panels = cost_model.COSTS, -(-n_packed // PANEL)
    if not has_tiles:
        return CandidatePlan(None, n_queries, use_projection=False)
    if one_by_one_is_faster(layout, n_queries, n_panels, costs, has_projection=has_projection):
        return CandidatePlan("few_queries", n_queries, use_projection=has_projection)
    has_registers = INSTRUCTION_SETS[layout.isa].has_tile_registers
    use_projection = has_projection and not has_registers
    return CandidatePlan("query_blocks", costs.queries_per_range_block, use_projection)


def plan_search(segment: SegmentSizes, request: RequestSizes, machine: Machine) -> SearchPlan:
    """Return how a segment is searched; equal arguments and costs give equal plans.

    Some facts on which a plan may depend, such as the number of distinct rows, take time to find
    out. If the plan depends on a fact that is still unknown, the plan names this fact in ``needs``.
    """
    return _plan_search(segment, request, machine, cost_model.COSTS)


@functools.lru_cache(1024)
def _plan_search(
    segment: SegmentSizes, request: RequestSizes, machine: Machine, costs: CostModel
) -> SearchPlan:
    n, is_packed = request.n_queries, bool(segment.packed_for)
    n_allowed = segment.n_live if request.n_allowed is None else request.n_allowed
    reasons: list[str] = []
    if not is_packed and not machine.is_compiled:
        if segment.n_distinct is None:
            return SearchPlan("numpy", needs="distinct_rows")
        if segment.n_distinct == segment.n_live:
            return _plan_numpy(segment, request, machine, costs)
        reasons.append(
            "the search waits until the kernels are compiled: some rows are duplicates, and the "
            "search can use NumPy only if all rows are different"
        )
    if not is_packed and n_allowed == segment.n_rows:
        plan = _plan_unpacked(segment, request, machine, costs, reasons)
        if plan is not None:
            return plan
    if not is_packed and n <= costs.scores_per_packed_row:
        reasons.append(
            "every pair is scored: the rows are not packed yet, and packing would save time only "
            f"if there were more than {costs.scores_per_packed_row} queries"
        )
        return _plan_score_all(segment, request, machine, costs, tuple(reasons))
    if request.n_allowed is None and not request.excludes_pairs:
        if segment.n_distinct is None:
            return SearchPlan("distinct", needs="distinct_rows")
        if segment.n_distinct < segment.n_live:
            return _plan_distinct(segment, request, machine, costs)
    if segment.n_distinct is not None and segment.n_distinct < segment.n_live:
        # If there are duplicates, only the packed form of the distinct rows can have a projection.
        # A search that has a mask or excludes pairs cannot use this packed form, so it cannot use
        # the projection.
        segment = dataclasses.replace(segment, projected_words=0)
    if request.n_allowed is not None:
        plan = _plan_allowed(segment, request, machine, costs, reasons)
        if plan is not None:
            return plan
    return _plan_packed(segment, request, machine, costs, tuple(reasons))


def _plan_numpy(
    segment: SegmentSizes, request: RequestSizes, machine: Machine, costs: CostModel
) -> SearchPlan:
    """Plan a search that computes its scores as matrix products in NumPy."""
    bytes_per_query = 2 * costs.numpy_bytes_per_candidate * request.k
    fits = int(machine.working_memory / bytes_per_query)
    batch = max(1, min(costs.numpy_batch_queries, fits))
    size = min(batch, request.n_queries)
    grid = TaskGrid(batch, -(-request.n_queries // batch), 0, 1, machine.n_threads)
    reason = "the search runs in NumPy until the kernels are compiled; the results are the same"
    return SearchPlan("numpy", grid=grid, buffer_bytes=size * bytes_per_query, reasons=(reason,))


def _plan_unpacked(
    segment: SegmentSizes,
    request: RequestSizes,
    machine: Machine,
    costs: CostModel,
    reasons: list[str],
) -> SearchPlan | None:
    """Plan float32 tiles of unpacked rows, or return None and append the reason to `reasons`."""
    n, work = request.n_queries, request.n_queries * segment.n_rows * segment.n_columns
    is_large = work >= costs.min_work_unpacked
    if not (costs.min_queries_unpacked <= n <= costs.max_queries_unpacked and is_large):
        reasons.append(
            "unpacked rows are not multiplied: multiplying them saves time only if there are "
            f"{costs.min_queries_unpacked} to {costs.max_queries_unpacked} queries, and if these "
            f"queries need at least 2^{round(math.log2(max(1, costs.min_work_unpacked)))} "
            "multiply-adds in total"
        )
        return None
    # With AVX2, tiles of int8 codes use wider registers than tiles of float32 rows
    # (``float_layout``), so a search of packed rows is faster.
    is_slow = machine.isa in ("avx2", "avxvnni")
    if not machine.has_tiles or segment.row_type != "float32" or is_slow:
        reasons.append(
            f"unpacked rows are not multiplied: with the instruction set {machine.isa}, "
            f"multiplying unpacked {segment.row_type} rows is too slow or impossible"
        )
        return None
    if segment.n_rows < PANEL:
        reasons.append(
            f"unpacked rows are not multiplied: the kernel multiplies panels of {PANEL} rows, and "
            "there are fewer rows"
        )
        return None
    if segment.has_moderate_norms is None:
        return SearchPlan("unpacked", needs="moderate_norms")
    if not segment.has_moderate_norms:
        reasons.append("unpacked rows are not multiplied: float32 might overflow")
        return None
    capacity = full_capacity(request.k, costs)
    per_thread = n * (36 * capacity + 24 * request.k + 4 * segment.n_columns)
    n_tiled = segment.n_rows // PANEL * PANEL
    if request.k > costs.max_neighbor_share * n_tiled:
        reasons.append("every pair is scored: k is more than 1/8 of the number of rows")
        return _plan_score_all(segment, request, machine, costs, tuple(reasons))
    if machine.working_memory < machine.n_threads * per_thread:
        reasons.append(
            "every pair is scored: the buffers of a faster search would exceed the working memory"
        )
        return _plan_score_all(segment, request, machine, costs, tuple(reasons))
    layout = float_layout(machine.isa, segment.n_columns)
    needed_rows, n_panels = float(request.k), n_tiled // PANEL
    grid, capacity, buffers = plan_query_blocks(
        n, needed_rows, request.k, layout, segment.n_columns, n_panels, machine, costs
    )
    reasons.append(
        f"the rows are multiplied without packing: for {n} queries, packing saves no time"
    )
    n_remaining = segment.n_rows - n_tiled
    remaining_grid = plan_exhaustive(
        n, n_remaining, segment.n_columns, request.k, machine.n_threads, costs
    )
    return SearchPlan(
        "unpacked", kernel="query_blocks", layout=layout, grid=grid, capacity=capacity,
        sample=guess_in_range(needed_rows, needed_rows, grid.panels_per_range, costs),
        needed_rows=needed_rows, buffer_bytes=buffers, reasons=tuple(reasons),
        inner=SearchPlan("score_all", grid=remaining_grid) if n_remaining else None,
    )  # fmt: skip


def _plan_score_all(
    segment: SegmentSizes,
    request: RequestSizes,
    machine: Machine,
    costs: CostModel,
    reasons: tuple[str, ...],
) -> SearchPlan:
    """Plan a search that scores every pair; a task is a block of queries or a range of rows."""
    n, k = request.n_queries, request.k
    m = segment.n_live if request.n_allowed is None else request.n_allowed
    grid = plan_exhaustive(n, m, segment.n_columns, k, machine.n_threads, costs)
    merged_bytes = 16.0 * n * grid.n_ranges * k if grid.n_ranges > 1 else 0.0
    return SearchPlan("score_all", grid=grid, buffer_bytes=merged_bytes, reasons=reasons)


def _plan_distinct(
    segment: SegmentSizes, request: RequestSizes, machine: Machine, costs: CostModel
) -> SearchPlan:
    """Plan a search in which one row represents each group of duplicates.

    After the search, the duplicates of the found rows are added to the results.
    """
    n_distinct = segment.n_distinct or 0
    rows = dataclasses.replace(segment, n_live=n_distinct, n_packed=n_distinct)
    # The query itself must not be returned, but it may be the only row of one of the best groups.
    # Therefore, the search finds the k + 1 best groups.
    request_groups = dataclasses.replace(
        request, k=min(request.k + 1, n_distinct), is_self_join=False
    )
    inner = _plan_packed(rows, request_groups, machine, costs, ())
    reason = (
        "duplicate rows have the same score, so only one row of each group of duplicates is "
        f"searched: {n_distinct:,} of {segment.n_live:,} rows"
    )
    return SearchPlan(
        "distinct", layout=inner.layout, grid=inner.grid, buffer_bytes=inner.buffer_bytes,
        use_projection=inner.use_projection, inner=inner, reasons=(reason, *inner.reasons),
    )  # fmt: skip


def n_candidates(k: int, n_items: int) -> int:
    """Return how many of ``n_items`` items a search by upper bounds scores in its first round.

    The first round scores the items with the largest upper bounds. If the k best of the scored
    items might not be the k best of all items, more items are scored (``filter_refine``).
    """
    return min(n_items, k + cost_model.COSTS.extra_candidates)


def drops_excluded_ids(n_excluded: int) -> bool:
    """Return whether ``n_excluded`` excluded items are dropped from the results of a search.

    If the function returns True, the search finds ``n_excluded`` additional neighbours per query.
    Otherwise, a mask excludes the items before the search.
    """
    return n_excluded <= cost_model.COSTS.max_dropped_ids


def pays_grouping(ends: Integers, n: int) -> bool:
    """Return whether grouping equal rows saves time.

    The n rows are ordered by group, and ``ends`` contains the end of every group except the last.
    """
    sizes = np.diff(np.concatenate([[0], ends, [n]])).astype(np.float64)
    # BLAS is not used, because its threads would keep cores busy for some milliseconds after each
    # product, and the search needs these cores.
    return bool(np.square(sizes).sum() >= cost_model.COSTS.min_average_copies * n)


def scores_are_faster(n_queries: int, n_allowed: int, n_live: int, costs: CostModel) -> bool:
    """Return whether scoring only the allowed rows is faster than comparing all rows by tiles."""
    sweep = 1 + n_queries / costs.queries_per_filtered_sweep
    return n_queries * n_allowed * costs.tile_rows_per_score <= n_live * sweep


def _plan_allowed(
    segment: SegmentSizes,
    request: RequestSizes,
    machine: Machine,
    costs: CostModel,
    reasons: list[str],
) -> SearchPlan | None:
    """Plan a search of only the allowed rows, or return None if a search with a mask is faster.

    The unit of all times is the time that the tiles take to read one row.
    """
    n, m = request.n_queries, request.n_allowed or 0
    if scores_are_faster(n, m, segment.n_live, costs):
        reason = f"scoring each of the {m:,} allowed rows is faster than comparing all rows"
        return _plan_score_all(segment, request, machine, costs, (*reasons, reason))
    if n <= costs.max_queries_sharing_rows:
        reasons.append(
            "all rows are searched, and a mask drops the rows that are not allowed; packing "
            "only the allowed rows would save no time, because there are few queries"
        )
        return None
    layout = tile_layout(segment.packed_for or machine.isa, segment.n_columns)
    codes = m * (4 * layout.words + costs.bytes_beside_codes)
    sweep = 1 + n / costs.queries_per_filtered_sweep
    pack = costs.scores_per_packed_row * costs.tile_rows_per_score
    if m * (pack + sweep) >= segment.n_live * sweep:
        reasons.append(
            "the allowed rows are not packed for this search alone, because there are too many"
        )
        return None
    if codes > machine.working_memory:
        reasons.append(
            "the allowed rows are not packed, because their codes would exceed the working memory"
        )
        return None
    # After the duplicates among the packed rows have been counted, the search of these rows is
    # planned again.
    rows = SegmentSizes(
        segment.n_rows, segment.n_columns, m, segment.row_type, n_distinct=m,
        has_moderate_norms=segment.has_moderate_norms,
    )  # fmt: skip
    inner = _plan_search(
        rows, dataclasses.replace(request, n_allowed=None),
        dataclasses.replace(machine, is_compiled=True), costs,
    )  # fmt: skip
    reason = f"the {m:,} allowed rows are packed for this search alone"
    return SearchPlan(
        "repack", layout=inner.layout, grid=inner.grid, buffer_bytes=codes + inner.buffer_bytes,
        inner=inner, reasons=(*reasons, reason),
    )  # fmt: skip


def _plan_packed(
    segment: SegmentSizes,
    request: RequestSizes,
    machine: Machine,
    costs: CostModel,
    reasons: tuple[str, ...],
) -> SearchPlan:
    """Plan a search by tiles or, if tiles save no time, a search that scores every pair."""
    n, k = request.n_queries, request.k
    m = segment.n_live if request.n_allowed is None else request.n_allowed
    n_packed = segment.n_packed if segment.packed_for else segment.n_live
    # Some of the best packed rows may not be allowed in the results, so more than k of the best
    # packed rows are needed.
    needed_rows = float(k) if m >= n_packed else k * n_packed / max(1, m)
    # If a search of all segments has few queries, few neighbours and no mask, it scans the packed
    # rows of every segment, including small segments. Scoring every pair of a small segment would
    # be faster than scanning its packed rows. However, only a search that scans packed rows can be
    # prepared. Preparing a search saves more time than scoring every pair would save. A search with
    # a mask is an exception, because a mask may allow fewer than k rows.
    #
    # Packed rows are scanned only if k is at most an eighth (max_neighbor_share) of the number of
    # allowed rows. Each query therefore finds k rows, as ``prepared`` requires. ``is_scanned``
    # compares k with the number of live rows in all segments. The last ``elif`` below compares k
    # with the number of allowed rows in this segment.
    is_scanned = (
        n <= costs.max_queries_sharing_rows
        and request.n_allowed is None
        and segment.n_live_of_index is not None
        and k <= costs.max_neighbor_share * segment.n_live_of_index
    )
    fault = ""
    if not machine.has_tiles:
        fault = "the setting NUMBA_DISABLE_JIT is on, and tiles need compiled kernels"
    elif n_packed > costs.max_rows_for_tiles:
        fault = f"tiles can search at most {costs.max_rows_for_tiles:,} rows"
    elif n_packed < costs.min_rows_for_tiles and not is_scanned:
        fault = f"tiles are faster only if there are at least {costs.min_rows_for_tiles} rows"
    elif needed_rows > costs.max_neighbor_share * n_packed and not is_scanned:
        fault = (
            "k is more than 1/8 of the number of rows, so upper bounds would exclude too few rows"
        )
    if fault:
        return _plan_score_all(
            segment, request, machine, costs, (*reasons, f"every pair is scored: {fault}")
        )
    layout = tile_layout(segment.packed_for or machine.isa, segment.n_columns)
    n_panels, has_projection = -(-n_packed // PANEL), segment.projected_words > 0
    if one_by_one_is_faster(layout, n, n_panels, costs, has_projection=has_projection):
        plan = _plan_few(layout, n_panels, needed_rows, segment, request, machine, costs, reasons)
        if plan.buffer_bytes <= machine.working_memory:
            return plan
        reasons += (
            "the queries are compared as a block, because comparing them one by one would exceed "
            "the working memory",
        )
    # With AMX, searching for a block of queries is not faster with a projection than without one.
    # The reason is that multiplying a tile takes less time than the other steps of a search. We
    # measured searches with many queries among 20,000 to 60,000 rows of 384 to 1,536 columns on
    # Sapphire Rapids. With a projection, the speed of these searches was 0.84 to 1.03 times their
    # speed without one.
    has_registers = INSTRUCTION_SETS[layout.isa].has_tile_registers
    use_projection = has_projection and k <= segment.projection_max_k[1] and not has_registers
    if not use_projection:
        reasons += (_reason_against_projection(segment, request),)
        join = _plan_self_join(layout, n_panels, segment, request, machine, costs, reasons)
        if join is not None:
            return join
    may_share_rows = n <= costs.max_queries_sharing_rows
    # Threads that would have no work in the search get no buffers.
    useful = useful_threads(layout, n, n_panels, costs) if may_share_rows else machine.n_threads
    machine = dataclasses.replace(machine, n_threads=min(machine.n_threads, useful))
    grid, capacity, buffers = plan_query_blocks(
        n, needed_rows, k, layout, segment.n_columns, n_panels, machine, costs
    )
    is_large = buffers > costs.max_unchecked_bytes or capacity < full_capacity(needed_rows, costs)
    sample = guess_in_range(k, needed_rows, grid.panels_per_range, costs)
    if grid.n_ranges > 1:
        reasons += (
            "the rows are divided among the threads, because otherwise each of the "
            f"{machine.n_threads} threads would read the codes of all rows",
        )
    return SearchPlan(
        "packed", kernel="few_blocks" if may_share_rows else "query_blocks", layout=layout,
        grid=grid, sample=sample, capacity=capacity, use_projection=use_projection,
        fits_all_options=may_share_rows and useful == 1 and not is_large, needed_rows=needed_rows,
        buffer_bytes=buffers, reasons=reasons,
    )  # fmt: skip


def _plan_few(
    layout: TileLayout,
    n_panels: int,
    needed_rows: float,
    segment: SegmentSizes,
    request: RequestSizes,
    machine: Machine,
    costs: CostModel,
    reasons: tuple[str, ...],
) -> SearchPlan:
    """Plan a scan for few queries; the rows are divided among the threads."""
    n, k = request.n_queries, request.k
    # ``search_few_queries`` allocates ``of_panel`` bytes for each panel, and ``of_best`` bytes for
    # the best rows.
    of_panel, of_best = 4.0 * (PANEL + 1) * n, 24.0 * (2 * k + 256)
    useful = useful_threads(layout, n, n_panels, costs)
    # The divisor 2 limits the products that all threads store to half of the working memory. The
    # rest of the working memory is for the best rows of every thread and for the results of the
    # ranges.
    fitting = machine.working_memory / (2 * min(machine.n_threads, useful) * of_panel)
    max_panels = max(1, int(min(costs.max_panels_per_range / n, fitting)))
    grid = share_rows(layout, n, n_panels, max_panels, machine, costs)
    per_range = grid.panels_per_range
    first_rank = guess_rank(k, needed_rows, per_range, costs)
    buffers = min(grid.n_threads, grid.n_ranges) * (per_range * of_panel + of_best)
    if grid.n_ranges > 1:
        buffers += 16 * n * k * (grid.n_ranges + 1)
    fits_all_options = useful == 1 and buffers <= costs.max_unchecked_bytes
    plan = SearchPlan(
        "packed", kernel="few_queries", layout=layout, grid=grid, first_rank=first_rank,
        fits_all_options=fits_all_options, needed_rows=needed_rows, buffer_bytes=buffers,
    )  # fmt: skip
    if segment.projected_words == 0 or k > segment.projection_max_k[0]:
        reason = _reason_against_projection(segment, request)
        return dataclasses.replace(plan, reasons=(*reasons, reason))
    sample = guess_in_range(k, needed_rows, per_range, costs, costs.min_sampled_panels // 2)
    if sample.stride <= 1:
        reason = (
            "no projection is used: the search would have to read the codes of all rows to find a "
            "first threshold"
        )
        return dataclasses.replace(plan, reasons=(*reasons, reason))
    return dataclasses.replace(
        plan, kernel="projected_queries", sample=sample, use_projection=True, reasons=reasons
    )


def _plan_self_join(
    layout: TileLayout,
    n_panels: int,
    segment: SegmentSizes,
    request: RequestSizes,
    machine: Machine,
    costs: CostModel,
    reasons: tuple[str, ...],
) -> SearchPlan | None:
    """Plan a self-join that multiplies each pair of rows once, or return None.

    The thresholds and candidates of all rows must be in memory at the same time. With the tile
    registers of AMX, multiplications take so little time that halving their number saves nothing.
    The function is called only for searches without a projection. For clustered rows and k = 10, a
    search with a projection is at least as fast as a self-join (``docs/dev/costs.md``,
    "Self-joins").
    """
    n, k = request.n_queries, request.k
    is_whole = n == segment.n_live == segment.n_rows and segment.n_packed in (0, n)
    has_registers = INSTRUCTION_SETS[layout.isa].has_tile_registers
    if not request.is_self_join or not is_whole or not layout.quantised or has_registers:
        return None
    if segment.n_columns < costs.min_columns_of_join:
        return None
    rate = dict(costs.multiply_adds_per_second)[layout.isa]
    if n * 4 * layout.words / rate < costs.min_seconds_per_joined_neighbor * k:
        return None
    if n_panels < 2 * machine.n_threads * costs.min_panels_of_joined_block:
        return None
    sample = guess_in_range(k, float(k), n_panels, costs)
    if sample.stride < costs.min_sample_stride_of_join:
        return None
    # In each round, every block belongs to one task, and every thread gets the same number of
    # tasks.
    rounded = round(n_panels / (2 * machine.n_threads * costs.panels_of_joined_block))
    n_blocks = 2 * machine.n_threads * max(1, rounded)
    panels_per_block = -(-n_panels // n_blocks)
    capacity = costs.candidates_per_joined_neighbor * k + costs.candidates_besides
    # ``of_state`` is the number of bytes that the state of one row takes.
    has_remainders = INSTRUCTION_SETS[layout.isa].int16_words > 0
    of_codes = 4 * layout.words * (2 if has_remainders else 1)
    of_state = 8 * capacity + 16 * k + of_codes + 80
    # Every thread allocates ``of_scratch`` bytes in every stage (``candidate_buffers.Scratch``).
    # This number includes 2^15 bytes for arrays whose sizes do not depend on the rows. In the first
    # stage, a thread also allocates ``of_first`` bytes for a block. In the last stage, a thread
    # instead allocates ``of_last`` bytes: for each candidate, its query, its row, its score, and
    # its place in the order of the rows. A row has at most ``capacity - 1`` candidates at the end.
    of_scratch = 36 * capacity + 28 * k + 2**15
    of_first = panels_per_block * PANEL * (of_codes + 4 * sample.rank + 80)
    of_last = min(panels_per_block, PANELS_AT_ONCE) * PANEL * 28 * (capacity - 1)
    buffers = n_panels * PANEL * of_state
    buffers += machine.n_threads * (of_scratch + max(of_first, of_last))
    if buffers > machine.working_memory:
        return None
    grid = TaskGrid(panels_per_block * PANEL, n_blocks, n_panels, 1, machine.n_threads)
    reason = "the queries are the items, so each pair of rows needs only one multiplication"
    return SearchPlan(
        "packed", kernel="self_join", layout=layout, grid=grid, sample=sample, capacity=capacity,
        needed_rows=float(k), buffer_bytes=float(buffers), reasons=(*reasons, reason),
    )  # fmt: skip


def _reason_against_projection(segment: SegmentSizes, request: RequestSizes) -> str:
    """Return the reason why a search uses no projection."""
    if segment.projected_words == 0:
        return "no projection is used: the rows are stored without short codes"
    return (
        f"no projection is used: it saves no time for {_queries(request.n_queries)} "
        f"with k = {request.k}"
    )


def plan_pass(
    plan: SearchPlan,
    n_passes: int,
    n_queries: int,
    k: int,
    layout: TileLayout,
    n_columns: int,
    n_panels: int,
    machine: Machine,
) -> tuple[TaskGrid, int, ThresholdSample]:
    """Return the grid, the capacity and the sample of the pass that follows ``n_passes`` passes.

    The first pass follows the plan and may estimate thresholds. Later passes do not estimate
    thresholds. If a query is still unfinished after ``max_sharing_passes`` passes, the tasks must
    have shared a wrong threshold. In all later passes, the rows are not divided into ranges, so
    tasks share no thresholds.
    """
    if n_passes == 0:
        return plan.grid, plan.capacity, plan.sample
    costs = cost_model.COSTS
    grid, capacity, _ = plan_query_blocks(
        n_queries, plan.needed_rows, k, layout, n_columns, n_panels, machine, costs,
        may_share=n_passes < costs.max_sharing_passes,
    )  # fmt: skip
    return grid, capacity, NO_SAMPLE


def may_project(
    n_packed: int, n_columns: int, layout: TileLayout, machine_has_tiles: bool, costs: CostModel
) -> bool:
    """Return whether a projection might save time.

    If the result is True, a sample of the rows decides whether a projection is added.
    """
    if not machine_has_tiles or not layout.quantised or costs.projected_columns == 0:
        return False
    is_small = n_packed < costs.min_rows_to_project or n_columns < costs.min_columns_to_project
    return costs.projected_columns is not None or not is_small


def work_to_project(layout: TileLayout, k: int, costs: CostModel) -> float:
    """Return how many multiply-adds searches for k rows perform before a projection is added."""
    share = 1.0
    if layout.isa == "avx2":
        # With a larger k, a search computes more float64 scores. A projection does not reduce the
        # number of these scores, so it saves a smaller part of the time.
        share = min(1.0, costs.share_of_work_to_project_avx2 * max(1.0, k / costs.usual_k[0]))
    return share * costs.min_work_to_project


def gains_by_projection(n_queries: int, layout: TileLayout) -> bool:
    """Return whether a projection could make a search with ``n_queries`` queries faster."""
    return n_queries == 1 or not INSTRUCTION_SETS[layout.isa].has_tile_registers


def _queries(n: int) -> str:
    return "one query" if n == 1 else f"{n:,} queries"

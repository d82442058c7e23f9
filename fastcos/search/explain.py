"""Explain a search before it runs: its plan in words, the bytes that it reads, and its time.

``SimilarityIndex.explain`` and ``explain_top_k`` call the same planner as searches do, so they
describe the search that would really run. Times are estimated from the rates of
``cost_model.CostModel``; the section "estimates" of ``docs/dev/costs.md`` compares estimated with
measured times.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import config, validation
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.parallel import readiness
from fastcos.search import cost_model, scan
from fastcos.search.batches import plan_batch
from fastcos.search.estimate import Estimate, estimate_plan
from fastcos.search.filters import no_exclusions
from fastcos.search.group_search import plan_groups_of_segments, plan_panel_tasks
from fastcos.search.item_groups import ItemGroups
from fastcos.search.layout import tile_layout
from fastcos.search.options import ExecutionOptions, as_options
from fastcos.search.plan import (
    RequestSizes,
    SearchPlan,
    SegmentSizes,
    n_candidates,
    plan_search,
)
from fastcos.search.prepared import can_be_prepared
from fastcos.search.request import SearchRequest
from fastcos.search.sources import ItemSource, block_sizes
from fastcos.search.task_grid import Machine, TaskGrid, plan_exhaustive
from fastcos.similarity.base import get_measure, is_upper_bounded
from fastcos.validation import Integers

# A planned search: the sizes of the segment, the sizes of the request, the machine, and the plan.
_Planned = tuple[SegmentSizes, RequestSizes, Machine, SearchPlan]

_METHODS = {
    "numpy": "matrix products of NumPy",
    "score_all": "the float64 score of every pair",
    "unpacked": "float32 tiles of unpacked rows",
    "distinct": "one row of each group of duplicates",
    "repack": "the allowed rows, packed for this search alone",
}


@dataclass(frozen=True)
class SearchExplanation:
    """The plan and the estimated time of a search. ``print`` shows the explanation as text.

    Attributes
    ----------
    n_queries, n_items, n_columns, k, n_threads : int
        The sizes of the search.
    plans : tuple of SearchPlan
        The plans for one batch of queries. Segments that are searched in the same way share a plan.
    batch_queries, n_batches : int
        The number of queries of a batch, and the number of batches.
    n_segments : int
        The number of segments that are searched for each batch of queries.
    estimate : Estimate
        The estimate of the whole search.
    buffer_bytes : float
        The memory of the buffers in bytes, at most ``working_memory``.
    working_memory : float
        The number of bytes that the search may use besides its inputs and outputs.
    code : str
        A phrase that says which code runs the search: for example, NumPy or compiled code.
    reasons : tuple of str
        The reasons for the plan, and the reasons against other plans.

    Examples
    --------
    >>> from fastcos.search import explain_top_k
    >>> explanation = explain_top_k(1000, 1_000_000, 384, n_threads=16, isa="vnni")
    >>> explanation.plans[0].method, explanation.n_batches
    ('packed', 1)
    """

    n_queries: int
    n_items: int
    n_columns: int
    k: int
    n_threads: int
    plans: tuple[SearchPlan, ...]
    batch_queries: int
    n_batches: int
    n_segments: int
    estimate: Estimate
    buffer_bytes: float
    working_memory: float
    code: str
    reasons: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The estimated time of the search in seconds."""
        return self.estimate.seconds

    @property
    def method(self) -> str:
        """The method by which the first segment is searched; see SearchPlan.

        If ``SimilarityIndex.explain`` was called with ``groups``, the method is that of the first
        group, and other groups may be searched by other methods. Groups that are searched one at a
        time come first, then groups that are searched by tiles, and then all other groups.
        """
        return self.plans[0].method if self.plans else "nothing"

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as numbers and texts, for JSON."""
        estimate = self.estimate
        grid = self.plans[0].grid if self.plans else TaskGrid(0, 0, 0, 0, 0)
        return {
            "n_queries": self.n_queries,
            "n_items": self.n_items,
            "n_columns": self.n_columns,
            "k": self.k,
            "n_threads": self.n_threads,
            "method": self.method,
            "n_batches": self.n_batches,
            "n_segments": self.n_segments,
            "n_query_blocks": grid.n_query_blocks,
            "n_ranges": grid.n_ranges,
            "bytes_read": estimate.bytes_read,
            "multiply_adds": estimate.multiply_adds,
            "seconds": estimate.seconds,
            "buffer_bytes": self.buffer_bytes,
            "working_memory": self.working_memory,
            "code": self.code,
            "reasons": list(self.reasons),
        }

    def __str__(self) -> str:
        """Return the explanation as text, with one line per subject."""
        queries = "1 query" if self.n_queries == 1 else f"{self.n_queries:,} queries"
        threads = "1 thread" if self.n_threads == 1 else f"{self.n_threads} threads"
        lines = [
            f"{queries} x {self.n_items:,} items x {self.n_columns:,} columns, k = {self.k:,}, "
            f"{threads}"
        ]
        if not self.plans:
            return f"{lines[0]}\n  no item can be found, so nothing is searched"
        lines.append(f"  method      {describe_method(self.plans[0])}")
        lines += [f"  schedule    {line}" for line in self._schedule()]
        estimate = self.estimate
        parts = [
            f"{name} {_seconds(value)}"
            for name, value in (
                ("memory", estimate.memory), ("compute", estimate.multiply),
                ("exact scores", estimate.scores), ("encoding and packing", estimate.packing),
                ("overhead", estimate.overhead),
            )
            if value >= 0.05 * estimate.seconds
        ]  # fmt: skip
        lines.append(f"  estimated   {_seconds(estimate.seconds)}: {', '.join(parts)}")
        lines.append(
            f"  memory      {self.buffer_bytes / 2**20:,.1f} MiB of buffers (working_memory "
            f"{self.working_memory / 2**20:,.0f} MiB)"
        )
        lines.append(f"  code        {self.code}")
        lines += [f"  because     {reason}" for reason in self.reasons]
        return "\n".join(lines)

    __repr__ = __str__

    def _schedule(self) -> list[str]:
        lines = []
        if self.n_batches > 1:
            lines.append(f"{self.n_batches:,} batches of {self.batch_queries:,} queries")
        if self.n_segments > 1:
            lines.append(f"{self.n_segments:,} segments of the items, one after the other")
        return [*lines, describe_grid(self.plans[0], self.estimate)]


def describe_method(plan: SearchPlan) -> str:
    """Describe in words which method a plan uses."""
    if plan.method != "packed" or plan.layout is None:
        text = _METHODS[plan.method]
        if plan.inner is not None and plan.method != "unpacked":
            text += f": {describe_method(plan.inner)}"
        return text
    kind = "int8" if plan.layout.quantised else "float32"
    columns = (
        "first with the columns of the projection, then with all columns"
        if plan.use_projection
        else "all columns"
    )
    return f"{kind} tiles ({plan.layout.isa}), {columns}"


def describe_grid(plan: SearchPlan, estimate: Estimate) -> str:
    """Describe in words how a search is divided among threads, and how many bytes it reads."""
    grid = plan.grid
    threads = "1 thread" if grid.n_threads == 1 else f"{grid.n_threads} threads"
    bytes_text = f"{_bytes(estimate.bytes_read)} are read"
    if plan.method == "numpy":
        return f"batches of {grid.queries_per_block:,} queries; {bytes_text}"
    if plan.method == "score_all":
        tasks = "1 task" if grid.n_query_blocks == 1 else f"{grid.n_query_blocks:,} tasks"
        return f"{tasks} on {threads}; {bytes_text}"
    if grid.is_one_task:
        return f"one task, in the calling thread; {bytes_text}"
    blocks, ranges = grid.n_query_blocks, grid.n_ranges
    if plan.kernel == "self_join":
        return (
            f"{blocks:,} blocks of {grid.queries_per_block:,} rows, on {threads}; each pair of "
            f"blocks is compared once; {bytes_text}"
        )
    text = f"{blocks:,} blocks of {grid.queries_per_block:,} queries"
    if blocks == 1:
        text = "all queries"
    text += " x all rows" if ranges == 1 else f" x {ranges:,} ranges of rows"
    return f"{text}, on {threads}; {bytes_text}"


def explain_source(
    items: ItemSource,
    n_queries: int,
    k: int,
    options: ExecutionOptions,
    allowed_positions: Integers | None = None,
) -> SearchExplanation:
    """Explain a search of the items at ``allowed_positions``; None stands for all items."""
    n_columns = items.rows.shape[1] if items.n_live else 0
    n_allowed = items.n_live if allowed_positions is None else len(allowed_positions)
    k = min(k, n_allowed)
    if not k or not n_queries:
        return SearchExplanation(
            n_queries, items.n_live, n_columns, k, options.n_threads, (), n_queries, 1, 0,
            Estimate(), 0.0, options.working_memory, "",
        )  # fmt: skip
    # The plan of a search does not depend on the values of the queries. Only the number of queries
    # and the number of their columns matter, so the search is planned for an array of zeros.
    queries = np.broadcast_to(np.float32(0), (n_queries, n_columns))
    request = SearchRequest(k, allowed_positions)
    batch = min(n_queries, items.batch_size(queries, k, options))
    reasons: tuple[str, ...] = ()
    is_bounded = is_upper_bounded(items.measure)
    if is_bounded:
        reasons = (
            f"inner products give only upper bounds on {items.measure.name}. Therefore, the search "
            f"first finds {n_candidates(k, n_allowed)} candidates per query by their inner "
            "products, and then computes the measure for these candidates. The estimate does not "
            "include the computation of the measure",
        )
    planned: list[_Planned] = []
    if items.segments:
        for segment, allowed, _, memory in items.tasks(queries, request, options, None):
            segment_options = options._replace(working_memory=memory)
            segment_request = scan.SegmentRequest(k, no_exclusions(1), allowed, None, items.n_live)
            if is_bounded:
                n_items = len(segment.live_row_numbers) if allowed is None else allowed.count
                width = n_candidates(k, n_items)
                segment_request = scan.SegmentRequest(width, no_exclusions(1), allowed)
            plan = scan.plan_segment(segment, batch, segment_request, segment_options)
            request_sizes = scan.request_sizes(segment, batch, segment_request)
            machine = scan.machine_of(segment_options, config.isa())
            planned.append((segment.sizes(items.n_live), request_sizes, machine, plan))
    else:
        blocks = block_sizes(items.rows, queries, k, items.measure, options)
        machine = scan.machine_of(options._replace(working_memory=blocks.memory), config.isa())
        for first in range(0, items.n_items, blocks.items):
            n = min(blocks.items, items.n_items - first)
            request_sizes = RequestSizes(batch, n_candidates(k, n) if is_bounded else k)
            sizes = SegmentSizes(n, n_columns, n, n_distinct=n, has_moderate_norms=True)
            planned.append(
                (sizes, request_sizes, machine, plan_search(sizes, request_sizes, machine))
            )
        reasons += (
            "every batch reads all rows again. Rows on disk and rows of low precision are "
            "converted block by block, and the converted blocks are not kept",
        )
    plans = [plan for *_, plan in planned]
    is_prepared = bool(items.segments) and can_be_prepared(items.measure, plans)
    costs = cost_model.COSTS
    overhead = costs.seconds_per_prepared_call if is_prepared else costs.seconds_per_call
    if allowed_positions is not None:
        overhead += costs.seconds_per_masked_row * items.n_items
    code = readiness.explain()
    if items.segments and all(plan.method != "numpy" for plan in plans):
        code = readiness.explain(may_use_numpy=False)
    return _explain(planned, overhead, n_queries, items.n_live, options, code, reasons)


def explain_groups(
    items: ItemSource,
    k: int,
    options: ExecutionOptions,
    groups: ItemGroups,
    codes: Integers,
    allowed_positions: Integers | None = None,
) -> SearchExplanation:
    """Explain a search in which each query finds only items of its group.

    ``codes`` (n,) contains the code of each query's group, as ``groups.find`` returns it. The
    result depends on earlier searches, because they have counted queries and packed groups.
    """
    n_allowed = items.n_live if allowed_positions is None else len(allowed_positions)
    k, costs, isa = min(k, n_allowed), cost_model.COSTS, config.isa()
    n_columns = items.rows.shape[1] if items.n_live else 0
    orders = [groups.order_of(segment, allowed_positions) for segment in items.segments]
    n_queries = np.bincount(codes[codes >= 0], minlength=len(groups.labels))
    group_plans = plan_groups_of_segments(items, orders, n_queries, k)
    is_tiled, is_small = np.zeros((2, len(n_queries)), np.bool_)
    is_bounded = is_upper_bounded(items.measure)
    machine = scan.machine_of(options, isa)
    # The rows of an index were encoded when they were added, so no group is encoded again.
    estimate_of = functools.partial(estimate_plan, costs=costs, is_encoded=True)
    total, plans = Estimate(overhead=costs.seconds_per_call), list[SearchPlan]()
    for segment, order, group_plan in zip(
        items.segments, orders, group_plans.of_segments, strict=True
    ):
        n_items = np.diff(order.starts)
        for group in np.flatnonzero(group_plans.is_segment & (n_items > 0)).tolist():
            n_of_group = int(group_plans.n_items[group])
            # ``filter_refine`` searches a segment without the number of rows in other segments.
            sizes = order.sizes_of(segment, group, None if is_bounded else n_of_group)
            width = min(k, n_of_group)
            if is_bounded:
                width = n_candidates(width, sizes.n_live)
            request = RequestSizes(int(n_queries[group]), width)
            is_compiled = bool(sizes.packed_for) or not segment.uses_numpy()
            of_segment = dataclasses.replace(machine, is_compiled=is_compiled)
            plans.append(plan_search(sizes, request, of_segment))
            total = total.plus(estimate_of(plans[-1], sizes, request, of_segment))
        tiled_groups = np.flatnonzero(group_plan.is_tiled)
        if len(tiled_groups):
            first_sizes = order.sizes_of(segment, int(tiled_groups[0]))
            layout = tile_layout(first_sizes.packed_for or isa, n_columns)
            group_of = np.repeat(tiled_groups, n_queries[tiled_groups])
            _, blocks, plan = plan_panel_tasks(group_of, n_items, k, layout, n_columns, options)
            plans.append(plan)
            # Each task has one thread, and several tasks run at the same time.
            n_at_once = min(plan.grid.n_threads, len(blocks) - 1)
            one_thread = dataclasses.replace(machine, n_threads=1)
        for group in tiled_groups.tolist():
            sizes, n = order.sizes_of(segment, group), int(n_queries[group])
            n_blocks = -(-n // plan.grid.queries_per_block)
            grid = dataclasses.replace(plan.grid, n_query_blocks=n_blocks, n_threads=1)
            of_group = dataclasses.replace(plan, grid=grid)
            estimate = estimate_of(of_group, sizes, RequestSizes(n, k), one_thread)
            total = total.plus(estimate, 1 / n_at_once)
        n_small = int(n_queries[group_plan.is_small].sum())
        if n_small:
            n_pairs = int((n_queries * n_items)[group_plan.is_small].sum())
            # The estimate assumes that every query is compared with the same number of items.
            m = -(-n_pairs // n_small)
            grid = plan_exhaustive(n_small, m, n_columns, k, options.n_threads, costs)
            plans.append(SearchPlan("score_all", grid=grid))
            sizes = dataclasses.replace(segment.sizes(), n_live=m)
            request = RequestSizes(n_small, min(k, m))
            total = total.plus(estimate_of(plans[-1], sizes, request, machine))
        is_tiled |= group_plan.is_tiled
        is_small |= group_plan.is_small
    # A group that has many items in one segment and few in another is counted only as tiled.
    is_small &= ~is_tiled
    reasons = tuple(
        f"{count:,} {'group is' if count == 1 else 'groups are'} {text}"
        for count, text in (
            (
                int(group_plans.is_segment.sum()),
                "searched by all threads together, one group at a time",
            ),
            (
                int(is_tiled.sum()),
                "searched by one thread per group, several groups at the same time",
            ),
            (
                int(is_small.sum()),
                "searched by one call, which scores every query with all items of its group",
            ),
        )
        if count
    )
    different_plans = _different_plans(plans)
    reasons += tuple(dict.fromkeys(text for plan in different_plans for text in plan.reasons))
    return SearchExplanation(
        len(codes), items.n_live, n_columns, k, options.n_threads, different_plans, len(codes), 1,
        len(orders), total,
        max((plan.buffer_bytes for plan in plans), default=0.0), options.working_memory,
        readiness.explain() if plans else "", reasons,
    )  # fmt: skip


def explain_top_k(
    n_queries: int,
    n_items: int,
    n_columns: int,
    *,
    k: int = 10,
    dtype: str = "float32",
    is_packed: bool = False,
    is_self_join: bool = False,
    n_threads: int | None = None,
    working_memory: float | None = None,
    isa: str | None = None,
) -> SearchExplanation:
    """Explain a search from its sizes alone, without data; you can also choose another machine.

    Parameters
    ----------
    n_queries, n_items, n_columns : int
        Sizes of the queries and of the items. The items are assumed to have no duplicates.
    k : int
        Number of neighbours per query.
    dtype : str
        Type of the items.
    is_packed : bool
        Whether the items are already packed, as in an index. If False, the search packs the items,
        as :func:`fastcos.top_k` does.
    is_self_join : bool
        Whether the queries are the items, as in :func:`fastcos.top_k` without ``items``.
    n_threads : int, optional
        Number of threads. Default: the setting ``n_threads``.
    working_memory : float, optional
        The memory for buffers in MiB. Default: the setting ``working_memory``.
    isa : {"amx", "vnni", "avxvnni", "avx2", "avx512", "generic"}, optional
        Instruction set of the machine. Default: the instruction set of this machine.

    Returns
    -------
    SearchExplanation
        The plan, the bytes that the search reads, and its estimated time. ``print`` shows the
        explanation as text.

    Raises
    ------
    ValueError
        A size is below 1, k is above the number of items, the instruction set is unknown, or a
        self-join has more or fewer queries than items.

    Examples
    --------
    >>> import fastcos
    >>> explanation = fastcos.explain_top_k(
    ...     1000, 1_000_000, 384, is_packed=True, n_threads=2, isa="vnni", working_memory=1024
    ... )
    >>> print(str(explanation).partition("  estimated")[0].rstrip())
    1,000 queries x 1,000,000 items x 384 columns, k = 10, 2 threads
      method      int8 tiles (vnni), all columns
      schedule    4 blocks of 256 queries x all rows, on 2 threads; 1.5 GB are read
    """
    n = validation.as_count("n_queries", n_queries)
    m, d = validation.as_count("n_items", n_items), validation.as_count("n_columns", n_columns)
    k = validation.as_count("k", k, high=m)
    if is_self_join and n != m:
        raise ValueError(f"n_queries must equal n_items in a self-join, got {n} and {m}")
    row_type = _row_type(dtype)
    if isa is not None:
        isa = validation.as_choice("isa", isa, tuple(INSTRUCTION_SETS))
    options = as_options(n_threads, working_memory)
    isa = config.isa() if isa is None else isa
    sizes = SegmentSizes(
        m, d, m, row_type, packed_for=isa if is_packed else "", n_packed=m if is_packed else 0,
        n_distinct=m, has_moderate_norms=True,
    )  # fmt: skip
    batch = min(n, plan_batch(k, 0 if is_self_join else d, options.working_memory))
    request = RequestSizes(batch, k, is_self_join=is_self_join and batch == n)
    machine = scan.machine_of(options, isa)
    plan = plan_search(sizes, request, machine)
    costs = cost_model.COSTS
    is_prepared = is_packed and can_be_prepared(get_measure("cosine"), [plan])
    overhead = costs.seconds_per_prepared_call if is_prepared else costs.seconds_per_call
    code = readiness.explain()
    return _explain([(sizes, request, machine, plan)], overhead, n, m, options, code)


def _row_type(dtype: Any) -> str:
    """Return the name of a numeric type; refuse None, which NumPy would read as float64."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        return dtype
    if isinstance(dtype, str | type | np.dtype):
        with contextlib.suppress(TypeError):
            row_type = np.dtype(dtype)
            if row_type.kind in "fiu":
                return str(row_type.name)
    value_text = validation.format_value(dtype)
    raise ValueError(f'dtype must be a type of numbers such as "float32", got {value_text}')


def _explain(
    planned: list[_Planned],
    overhead: float,
    n_queries: int,
    n_items: int,
    options: ExecutionOptions,
    code: str,
    reasons: tuple[str, ...] = (),
) -> SearchExplanation:
    """Combine the plans of all segments into the explanation of a search.

    Each plan is for one batch of queries. ``overhead`` is added to the time of each batch.
    """
    costs, total = cost_model.COSTS, Estimate()
    sizes, request, *_ = planned[0]
    for segment, segment_request, machine, plan in planned:
        total = total.plus(estimate_plan(plan, segment, segment_request, machine, costs))
    batch = request.n_queries
    n_batches = -(-n_queries // batch)
    estimate = Estimate(overhead=overhead * n_batches).plus(total, n_queries / batch)
    different_plans = _different_plans(plan for *_, plan in planned)
    reasons += tuple(dict.fromkeys(text for plan in different_plans for text in plan.reasons))
    reasons += _alternative(*planned[0])
    return SearchExplanation(
        n_queries, n_items, sizes.n_columns, request.k, options.n_threads, different_plans, batch,
        n_batches, len(planned), estimate,
        max(plan.buffer_bytes for *_, plan in planned), options.working_memory,
        code, reasons,
    )  # fmt: skip


def _different_plans(plans: Iterable[SearchPlan]) -> tuple[SearchPlan, ...]:
    """Return the plans, but only one plan per combination of a method and a task grid."""
    by_shape: dict[tuple[str, TaskGrid], SearchPlan] = {}
    for plan in plans:
        by_shape.setdefault((plan.method, plan.grid), plan)
    return tuple(by_shape.values())


def _alternative(
    segment: SegmentSizes, request: RequestSizes, machine: Machine, plan: SearchPlan
) -> tuple[str, ...]:
    """Describe in words how long it would take to score all pairs in float64.

    The result is empty if the plan already scores all pairs.
    """
    if plan.method in ("score_all", "numpy"):
        return ()
    m = segment.n_live if request.n_allowed is None else request.n_allowed
    grid = plan_exhaustive(
        request.n_queries, m, segment.n_columns, request.k, machine.n_threads, cost_model.COSTS
    )
    exhaustive = estimate_plan(
        SearchPlan("score_all", grid=grid), segment, request, machine, cost_model.COSTS
    )
    return (f"the float64 score of every pair would take about {_seconds(exhaustive.seconds)}",)


def _seconds(value: float) -> str:
    """Return a duration as text in seconds, milliseconds or microseconds, such as "1.5 ms"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{_rounded(value / size)} {unit}"
    return f"{_rounded(value * 1e6)} us"


def _bytes(value: float) -> str:
    """Return a number of bytes as text in decimal units, such as "1.5 GB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{_rounded(value / size)} {unit}"
    return f"{value:.0f} bytes"


def _rounded(value: float) -> str:
    """Return a number as text, with two significant digits below 10 and no decimals from 10 on."""
    if value <= 0:
        return "0"
    digits = max(0, 1 - math.floor(math.log10(value)))
    return f"{value:,.{digits}f}"

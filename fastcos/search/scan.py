"""Search one segment by its plan, with one function for each method.

``search_segment`` requests a plan, looks up the facts that the plan depends on, and runs the
method. Most plans scan packed rows: tiles drop pairs by bounds of quantised products, and the other
pairs are scored in float64. Every method returns bit-for-bit the same row numbers and raw scores,
best first, equal scores by lower row number, padded by -1 and -inf.

A self-join computes both halves of its symmetric score matrix. We built and measured a self-join
that computes only half of the tiles. In such a self-join, the candidates of all rows must wait
until the last block, and the thresholds rise more slowly, so it took 1.1 to 1.3 times as much
processor time as computing both halves (``docs/dev/costs.md``, "half a self-join").
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, validation
from fastcos.kernels import (
    exhaustive_top_k,
    packing,
    records,
    tile_top_k,
    tiles,
)
from fastcos.parallel import memmap, readiness
from fastcos.search import duplicates, numpy_search
from fastcos.search.filters import AllowedRows, ExcludedItems, kernel_filters, no_exclusions
from fastcos.search.launch import launch_of
from fastcos.search.options import ExecutionOptions
from fastcos.search.packing import (
    Floats,
    Integers,
    PackedItems,
    norms_repeat,
    pack_queries,
    pair_scoring,
    unpacked_items,
)
from fastcos.search.plan import RequestSizes, SearchPlan, SegmentSizes, plan_pass, plan_search
from fastcos.search.rankings import Ranking, best_of_parts, unfilled
from fastcos.search.segments import Segment
from fastcos.search.task_grid import Machine, TaskGrid
from fastcos.similarity import kernel_records
from fastcos.similarity.encoded_rows import EncodedRows

# The initial threshold of a query if no lower bound on the k-th best score of the query is known.
_NO_THRESHOLD = np.float32(-3e38)


class SegmentRequest(NamedTuple):
    """The request for a search of a segment, apart from the queries.

    Attributes
    ----------
    k : int
    exclusions : ExcludedItems
        The row numbers that each query must not find.
    allowed : AllowedRows or None
        The rows that are allowed in the results; None if all live rows are allowed.
    thresholds : ndarray (n,) or None
        For each query, a raw score. Rows with lower raw scores may be skipped, because earlier
        segments contain k better rows.
    n_live_of_index : int or None
        The number of live rows in all segments that are searched together, as in plan.SegmentSizes.
    """

    k: int
    exclusions: ExcludedItems
    allowed: AllowedRows | None = None
    thresholds: Floats | None = None
    n_live_of_index: int | None = None


def search_segment(
    segment: Segment, queries: EncodedRows, request: SegmentRequest, options: ExecutionOptions
) -> Ranking:
    """Return row numbers and raw scores (n, k) of a segment's best rows for every query."""
    n_queries = len(queries.rows)
    plan = plan_segment(segment, n_queries, request, options)
    if plan.method == "packed" and segment.count_work(n_queries, request.k):
        # The search has added a projection to the packed rows, and may use it.
        plan = plan_segment(segment, n_queries, request, options)
    return _METHODS[plan.method](plan, segment, queries, request, options)


def plan_segment(
    segment: Segment, n_queries: int, request: SegmentRequest, options: ExecutionOptions
) -> SearchPlan:
    """Plan a search of a segment, and look up the facts that the plan depends on."""
    sizes = request_sizes(segment, n_queries, request)
    # Only LLVM can tell the instruction set of this CPU. Importing LLVM takes 0.4 s, and a search
    # in NumPy does not depend on the instruction set.
    is_compiled = bool(segment.packed_forms) or not segment.uses_numpy()
    isa = config.isa() if is_compiled else "generic"
    machine = machine_of(options, isa, is_compiled=is_compiled)
    while True:
        plan = plan_search(segment.sizes(request.n_live_of_index), sizes, machine)
        if plan.needs is not None:
            segment.look_up(plan.needs)
        elif is_compiled or plan.method == "numpy":
            return plan
        else:  # the kernels run although they must be compiled first
            is_compiled, machine = True, machine_of(options, config.isa(), is_compiled=False)


def request_sizes(segment: Segment, n_queries: int, request: SegmentRequest) -> RequestSizes:
    """Return the facts about a request for a segment that a plan depends on."""
    n_allowed = None
    if request.allowed is not None and request.allowed is not segment.live:
        n_allowed = request.allowed.count
    return RequestSizes(n_queries, request.k, n_allowed, len(request.exclusions.indices) > 0)


def machine_of(options: ExecutionOptions, isa: str, *, is_compiled: bool = True) -> Machine:
    """Return the facts about this machine and the options of a call that a plan depends on."""
    return Machine(isa, options.n_threads, options.working_memory, is_compiled, tiles.AVAILABLE)


def nearest(
    queries: EncodedRows,
    items: Segment,
    k: int,
    options: ExecutionOptions,
    *,
    exclude_self: bool = False,
) -> Ranking:
    """Return row numbers and raw scores (n, k) of the nearest rows; measures call this function."""
    exclusions = no_exclusions(len(queries.rows), exclude_self=exclude_self)
    return search_segment(items, queries, SegmentRequest(k, exclusions), options)


def _numpy(
    plan: SearchPlan,
    segment: Segment,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Search in NumPy, batch by batch, until the kernels are compiled; then run the kernels."""
    allowed, k = request.allowed, request.k
    findable = segment.numbers if allowed is None else allowed.numbers
    items = segment.encoded._replace(rows=memmap.from_bits(segment.encoded.rows))
    n, size = len(queries.rows), plan.grid.queries_per_block
    row_numbers, scores = np.empty((n, k), np.int64), np.empty((n, k))
    for lo in range(0, n, size):
        if lo and not segment.uses_numpy():
            remaining_queries = slice(lo, n)
            bounds = None if request.thresholds is None else request.thresholds[remaining_queries]
            remaining_request = request._replace(
                exclusions=request.exclusions.of_range(lo, n), thresholds=bounds
            )
            row_numbers[remaining_queries], scores[remaining_queries] = search_segment(
                segment, queries.take(remaining_queries), remaining_request, options
            )
            break
        hi = min(n, lo + size)
        with readiness.seconds_in_numpy():
            row_numbers[lo:hi], scores[lo:hi] = numpy_search.search(
                segment.metric_type, items, findable, queries.take(slice(lo, hi)),
                request.exclusions.of_range(lo, hi), k,
            )  # fmt: skip
        if options.progress is not None:
            options.progress(hi, n)
    return row_numbers, scores


def _score_all(
    plan: SearchPlan,
    segment: Segment,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Score every pair of a query and an allowed row in float64."""
    row_numbers = segment.numbers if request.allowed is None else request.allowed.numbers
    return score_all(
        segment.metric_type, segment.encoded, row_numbers, queries, request.exclusions, request.k,
        options, plan.grid,
    )  # fmt: skip


def _rows_as_given(
    plan: SearchPlan,
    segment: Segment,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Search the complete panels of unpacked rows by tiles, and score the last few rows exactly."""
    unpacked = unpacked_items(segment.metric_type, segment.encoded)
    # Every row is allowed in the results, so no mask is needed.
    request = request._replace(allowed=None)
    row_numbers, scores = _scan_query_blocks(plan, unpacked, queries, request, options)
    if plan.inner is None:
        return row_numbers, scores
    best_of_remaining = score_all(
        segment.metric_type, segment.encoded,
        np.arange(len(unpacked.arrays.order), len(segment.encoded.rows)), queries,
        request.exclusions, request.k, options, plan.inner.grid,
    )  # fmt: skip
    parts = zip((row_numbers, scores), best_of_remaining, strict=True)
    return best_of_parts(*(np.stack(pair, axis=1) for pair in parts))


def _packed(
    plan: SearchPlan,
    segment: Segment,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Scan the packed rows of the segment."""
    return scan(plan, segment.packed, queries, request, options)


def _distinct(
    plan: SearchPlan,
    segment: Segment,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Search one row and one query of each group of duplicates, and then add the copies."""
    groups = cast(duplicates.DuplicateGroups, segment.duplicates)
    n, progress = len(queries.rows), options.progress
    segment.count_work(n, request.k, "packed_distinct")
    if progress is not None:
        options = options._replace(progress=lambda done, total: progress(done * n // total, n))
    query_groups = duplicates.find_duplicates(queries) if norms_repeat(queries.norms) else None
    distinct_queries, group_of_query = queries, validation.read_only(np.arange(n, dtype=np.int64))
    if query_groups is not None:
        distinct_queries, group_of_query = queries.take(query_groups.first), query_groups.group_of
    k = min(request.k + 1, len(groups.first))
    exclusions = no_exclusions(len(distinct_queries.rows))
    # The search is planned again, because several queries may be equal and are then searched once.
    best = scan_packed(segment.packed_distinct, distinct_queries, exclusions, k, options)
    return duplicates.expand(
        groups, request.exclusions, group_of_query, best, request.k, options.n_threads
    )


def _repack(
    plan: SearchPlan,
    segment: Segment,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Pack the allowed rows only for this search, and search the packed rows."""
    allowed = segment.restricted_to(cast(AllowedRows, request.allowed).numbers)
    return search_segment(allowed, queries, request._replace(allowed=None), options)


_METHODS: dict[str, Callable[..., Ranking]] = {
    "numpy": _numpy, "score_all": _score_all, "rows_as_given": _rows_as_given,
    "packed": _packed, "distinct": _distinct, "repack": _repack,
}  # fmt: skip


def scan_packed(
    packed: PackedItems,
    queries: EncodedRows,
    exclusions: ExcludedItems,
    k: int,
    options: ExecutionOptions,
) -> Ranking:
    """Plan and run a search of packed rows, all of which are allowed in the results."""
    n_slots = len(packed.arrays.order)
    projected_words, max_k = packed.projection_sizes
    sizes = SegmentSizes(
        n_slots, packed.arrays.rows.shape[1], n_slots, packed_for=packed.layout.isa,
        n_packed=n_slots, projected_words=projected_words, projection_max_k=max_k,
        n_distinct=n_slots,
    )  # fmt: skip
    sizes_of_request = RequestSizes(
        len(queries.rows), k, excludes_pairs=len(exclusions.indices) > 0
    )
    plan = plan_search(sizes, sizes_of_request, machine_of(options, config.isa()))
    return scan(plan, packed, queries, SegmentRequest(k, exclusions), options)


def scan(
    plan: SearchPlan,
    packed: PackedItems,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Run a plan of packed rows, which scores all pairs or lets tiles drop most pairs."""
    items, allowed, exclusions, k = packed.arrays, request.allowed, request.exclusions, request.k
    if plan.method == "score_all":
        row_numbers = packed.numbers if allowed is None else allowed.numbers
        rows = EncodedRows(items.rows, items.norms, items.offsets)
        return score_all(
            packed.metric_type, rows, row_numbers, queries, exclusions, k, options, plan.grid
        )
    if plan.is_one_launch:
        filters = kernel_filters(exclusions, allowed)
        launch = launch_of(plan, packed, filters, k, must_check=False)
        return launch.run(queries.rows, options.progress)
    return _scan_query_blocks(plan, packed, queries, request, options)


def _scan_query_blocks(
    plan: SearchPlan,
    packed: PackedItems,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Scan packed rows for blocks of queries; every thread takes one block after the other."""
    items, k = packed.arrays, request.k
    scaled_queries = pack_queries(packed, queries, request.exclusions, request.allowed)
    n, n_panels = len(scaled_queries.norms), len(items.statistics)
    row_numbers, scores = unfilled(n, k)
    unfinished = _answer_zero_queries(packed, scaled_queries, request, (row_numbers, scores))
    initial_thresholds, machine = np.full(n, _NO_THRESHOLD), machine_of(options, packed.layout.isa)
    if request.thresholds is not None and np.isfinite(request.thresholds).all():
        initial_thresholds = _filter_thresholds(scaled_queries, request.thresholds)
    thresholds, n_passes = initial_thresholds.copy(), 0
    while len(unfinished):
        grid, capacity, sample = plan_pass(
            plan, n_passes, len(unfinished), k, packed.layout, items.rows.shape[1], n_panels,
            machine,
        )  # fmt: skip
        parts = (row_numbers[np.newaxis], scores[np.newaxis])
        if grid.n_ranges > 1:
            shape = grid.n_ranges, n, k
            parts = parallel.unfilled(shape, np.int64), parallel.unfilled(shape, np.float64)
        unproved = np.full((grid.n_ranges, n), _NO_THRESHOLD)
        tasks = records.BlockSearch(
            grid.queries_per_block, grid.panels_per_range, grid.n_ranges, capacity, sample.stride,
            sample.rank, plan.use_projection, is_whole_search=False, must_check=False,
        )  # fmt: skip
        results = records.SearchResults(thresholds, parts[1], parts[0], unproved)
        arguments = (packed.addresses, scaled_queries, unfinished, tasks, results)
        n_tasks = -(-len(unfinished) // grid.queries_per_block) * grid.n_ranges
        if n_tasks == 1 and options.progress is None:
            kinds = (packed.kind, scaled_queries.rows.dtype.char)
            parallel.call(tile_top_k.search_grid, kinds, 0, 1, *arguments)
        else:
            parallel.run(
                tile_top_k.search_grid, parallel.row_blocks(n_tasks, 1), *arguments,
                n_threads=grid.n_threads, progress=options.progress,
            )  # fmt: skip
        unproved_thresholds = unproved[:, unfinished].max(axis=0)
        if grid.n_ranges > 1:
            row_numbers[unfinished], scores[unfinished] = best_of_parts(
                parts[0][:, unfinished].swapaxes(0, 1), parts[1][:, unfinished].swapaxes(0, 1)
            )
            proved = _proved_thresholds(
                scaled_queries, unfinished, scores[unfinished, -1], initial_thresholds
            )
            unproved_thresholds[unproved_thresholds <= proved] = _NO_THRESHOLD
        unfinished = unfinished[unproved_thresholds > _NO_THRESHOLD]
        if grid.n_ranges > 1:
            # Thresholds that are shared between tasks are not used here (kernels.tile_top_k says
            # why); the scores of the neighbours that were found so far are exact.
            of_scores = _filter_thresholds(scaled_queries, scores[unfinished, -1], unfinished)
            thresholds[unfinished] = np.maximum(initial_thresholds[unfinished], of_scores)
        n_passes += 1
    return row_numbers, scores


def _answer_zero_queries(
    packed: PackedItems, scaled_queries: Any, request: SegmentRequest, results: Ranking
) -> Integers:
    """Write the results of the queries that are rows of zeros; return the other queries' numbers.

    All scores of a zero query are 0, so the tiles would drop no row. If scores are distances, or if
    the items have a bias, the scores of a zero query differ, and it is searched like other queries.
    """
    other_queries = np.arange(len(scaled_queries.norms), dtype=np.int64)
    zero_queries = np.flatnonzero(scaled_queries.norms == 0)
    if not len(zero_queries) or packed.metric_type == "euclidean" or packed.arrays.offsets.any():
        return other_queries
    # The norm of a tiny row may be 0 although the row is not zero.
    zero_queries = zero_queries[~scaled_queries.rows[zero_queries].any(axis=1)]
    if not len(zero_queries):
        return other_queries
    row_numbers, scores = results
    candidates = packed.numbers if request.allowed is None else request.allowed.numbers
    for query in zero_queries.tolist():
        row_numbers[query], scores[query] = _lowest(
            candidates, request.exclusions, query, request.k
        )
    return np.delete(other_queries, zero_queries)


def _proved_thresholds(
    scaled_queries: Any, queries: Integers, kth_scores: Floats, initial_thresholds: Any
) -> Floats:
    """Return the largest thresholds (m,) of the filter that drop none of the k best rows.

    queries (m,) are numbers of queries, and kth_scores (m,) holds the k-th best score of each of
    them among all panels. initial_thresholds (n,) holds one threshold per query; rows that score
    lower may be skipped. An unproved threshold is rounded up by a quarter of SLACK.
    """
    scaling = scaled_queries.scaling
    slopes, intercepts = scaling.slopes[queries], scaling.intercepts[queries]
    bounds: Floats = slopes * kth_scores + intercepts
    bounds -= 1e-12 * np.abs(intercepts) + slopes * 1e-300 + scaled_queries.shift_error
    floor = initial_thresholds[queries].astype(np.float64)
    return np.maximum(bounds, floor + 0.5 * (np.abs(floor) * packing.SLACK + 1e-30))


def score_all(
    metric_type: str,
    items: EncodedRows,
    numbers: Integers,
    queries: EncodedRows,
    exclusions: ExcludedItems,
    k: int,
    options: ExecutionOptions,
    grid: TaskGrid,
) -> Ranking:
    """Score all pairs of queries and rows with these numbers in float64, in O(n m d) time."""
    n, parts = len(queries.rows), grid.n_ranges
    row_numbers, scores = unfilled(n * parts, k)
    parallel.run(
        exhaustive_top_k.score_all_rows,
        parallel.row_blocks(n * parts, grid.queries_per_block),
        pair_scoring(metric_type, queries, items),
        kernel_records.candidate_ranges(
            numbers, np.zeros(n, np.int64), np.full(n, len(numbers), np.int64)
        ),
        parts, kernel_filters(exclusions), scores, row_numbers,
        n_threads=options.n_threads, progress=options.progress,
    )  # fmt: skip
    if parts == 1:
        return row_numbers, scores
    return best_of_parts(row_numbers.reshape(n, parts, k), scores.reshape(n, parts, k))


def _filter_thresholds(
    scaled_queries: Any, thresholds: Floats, queries: Integers | slice = slice(None)
) -> npt.NDArray[np.float32]:
    """Return raw scores of these queries in units of the filter, rounded down, as thresholds."""
    scaling = scaled_queries.scaling
    slopes, intercepts = scaling.slopes[queries], scaling.intercepts[queries]
    bounds: Floats = slopes * thresholds + intercepts
    rounding = packing.SLACK * (np.abs(bounds) + np.abs(intercepts))
    bounds -= rounding + scaled_queries.shift_error + 1e-30
    return bounds.astype(np.float32)


def _lowest(numbers: Integers, exclusions: ExcludedItems, query: int, k: int) -> Ranking:
    """Return the k lowest numbers that a zero query may find, with scores of 0, and padding."""
    excluded = exclusions.indices[exclusions.indptr[query] : exclusions.indptr[query + 1]]
    candidates = numbers[: k + len(excluded) + 1]
    candidates = candidates[
        (candidates != exclusions.self_rows[query]) & ~np.isin(candidates, excluded)
    ][:k]
    row_numbers, scores = np.full(k, -1, np.int64), np.full(k, -np.inf)
    row_numbers[: len(candidates)], scores[: len(candidates)] = candidates, 0.0
    return row_numbers, scores

"""Execute the plan for one segment; there is one function for each search method.

``search_segment`` looks up the facts on which the plan of a search depends, makes the plan, and
runs the method that the plan chooses. Three of the six methods ("packed", "distinct" and "repack")
usually scan packed rows: tiles multiply int8 codes, and the products give bounds on the scores. The
bounds rule out most pairs of a query and a row; the remaining pairs are scored in float64. All
methods return bit-for-bit the same row numbers and raw scores, apart from rows whose scores are
below ``SegmentRequest.thresholds``; some methods skip such rows. The best row comes first, rows
with equal scores are ordered by row number, and the results are padded by -1 and -inf.

If the queries are the rows of the segment, the matrix of scores is symmetric, and tiles may compute
only one half of it (``self_join``).
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
from fastcos.kernels.candidate_filter import NEVER
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
from fastcos.search.plan import RequestSizes, SearchPlan, plan_pass, plan_search
from fastcos.search.rankings import Ranking, best_of_parts, unfilled
from fastcos.search.segments import Segment
from fastcos.search.self_join import norms_are_similar, search_own_rows
from fastcos.search.task_grid import Machine, TaskGrid
from fastcos.similarity import kernel_records
from fastcos.similarity.encoded_rows import EncodedRows


class SegmentRequest(NamedTuple):
    """The arguments of a search of one segment, apart from the queries.

    Attributes
    ----------
    k : int
        The number of neighbours per query.
    exclusions : ExcludedItems
        The row numbers that each query must not find.
    allowed : AllowedRows or None
        The rows that are allowed in the results; None if all live rows are allowed.
    thresholds : ndarray (n,) or None
        For each query, the k-th best raw score in earlier segments. Rows with lower raw scores may
        be skipped, because earlier segments contain k better rows.
    n_live_of_index : int or None
        The number of live rows in all segments of the search, as in ``plan.SegmentSizes``.
    is_self_join : bool
        Whether the queries are the encoded rows of the segment.
    """

    k: int
    exclusions: ExcludedItems
    allowed: AllowedRows | None = None
    thresholds: Floats | None = None
    n_live_of_index: int | None = None
    is_self_join: bool = False


def search_segment(
    segment: Segment, queries: EncodedRows, request: SegmentRequest, options: ExecutionOptions
) -> Ranking:
    """Return, for each query, the row numbers and raw scores (n, k) of the segment's best rows."""
    n_queries = len(queries.rows)
    request = request._replace(is_self_join=queries is segment.encoded)
    plan = plan_segment(segment, n_queries, request, options)
    if plan.method == "packed" and segment.count_work(n_queries, request.k):
        # If count_work has added a projection to the packed rows, a new plan can use this
        # projection.
        plan = plan_segment(segment, n_queries, request, options)
    return _METHODS[plan.method](plan, segment, queries, request, options)


def plan_segment(
    segment: Segment, n_queries: int, request: SegmentRequest, options: ExecutionOptions
) -> SearchPlan:
    """Plan the search of a segment, and look up the facts on which the plan depends."""
    sizes = request_sizes(segment, n_queries, request)
    # To find the instruction set of this CPU, config.isa() may import LLVM, which takes 0.4 s. A
    # search in NumPy does not depend on the instruction set, so config.isa() is called only for
    # searches that run kernels.
    is_compiled = bool(segment.packed_forms) or not segment.uses_numpy()
    isa = config.isa() if is_compiled else "generic"
    machine = machine_of(options, isa, is_compiled=is_compiled)
    while True:
        plan = plan_search(segment.sizes(request.n_live_of_index), sizes, machine)
        if plan.needs is not None:
            segment.look_up(plan.needs)
        elif is_compiled or plan.method == "numpy":
            return plan
        # The plan says that the search runs kernels, but the plan was made for the instruction set
        # "generic". The search is therefore planned again, for the instruction set of this CPU.
        else:
            is_compiled, machine = True, machine_of(options, config.isa(), is_compiled=False)


def request_sizes(segment: Segment, n_queries: int, request: SegmentRequest) -> RequestSizes:
    """Return the facts about a request that the planner needs."""
    n_allowed = None
    if request.allowed is not None and request.allowed is not segment.live:
        n_allowed = request.allowed.count
    excludes_pairs = len(request.exclusions.indices) > 0
    return RequestSizes(n_queries, request.k, n_allowed, excludes_pairs, request.is_self_join)


def machine_of(options: ExecutionOptions, isa: str, *, is_compiled: bool = True) -> Machine:
    """Return what the planner must know about this machine and about the options of the call."""
    return Machine(isa, options.n_threads, options.working_memory, is_compiled, tiles.AVAILABLE)


def nearest(
    queries: EncodedRows,
    items: Segment,
    k: int,
    options: ExecutionOptions,
    *,
    exclude_self: bool = False,
) -> Ranking:
    """Return row numbers and raw scores (n, k) of the nearest rows of each query.

    Measures that learn from the neighbours of rows call this function.
    """
    exclusions = no_exclusions(len(queries.rows), exclude_self=exclude_self)
    return search_segment(items, queries, SegmentRequest(k, exclusions), options)


def _numpy(
    plan: SearchPlan,
    segment: Segment,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Search in NumPy until the kernels are compiled, and with the kernels afterwards.

    The search proceeds in batches of queries. As soon as the kernels are compiled, they answer the
    remaining queries.
    """
    allowed, k = request.allowed, request.k
    findable = segment.live_row_numbers if allowed is None else allowed.row_numbers
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
                segment, queries.take(remaining_queries), remaining_request,
                options.for_part(lo, n, n),
            )  # fmt: skip
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
    """Score every pair of a query and an allowed row in float64 (the method "score_all")."""
    row_numbers = (
        segment.live_row_numbers if request.allowed is None else request.allowed.row_numbers
    )
    return score_all(
        segment.metric_type, segment.encoded, row_numbers, queries, request.exclusions, request.k,
        options, plan.grid,
    )  # fmt: skip


def _unpacked(
    plan: SearchPlan,
    segment: Segment,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Search rows by tiles without packing them (the method "unpacked").

    The last rows, which do not fill a panel, are scored in float64.
    """
    unpacked = unpacked_items(segment.metric_type, segment.encoded)
    # No mask is needed, because this method is planned only if every row is allowed in the results.
    request = request._replace(allowed=None)
    row_numbers, scores = _scan_query_blocks(plan, unpacked, queries, request, options)
    if plan.inner is None:
        return row_numbers, scores
    best_of_remaining = score_all(
        segment.metric_type, segment.encoded,
        np.arange(len(unpacked.arrays.row_of_slot), len(segment.encoded.rows)), queries,
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
    """Search the packed rows of the segment (the method "packed")."""
    packed, exclusions, allowed = segment.packed, request.exclusions, request.allowed
    if plan.launch_is_whole_search:
        filters = kernel_filters(exclusions, allowed)
        launch = launch_of(plan, packed, filters, request.k, check_norms=False)
        # The queries are validated, so the kernel does not check their norms.
        return cast(Ranking, launch.run(queries.rows, options.progress))
    return _scan_query_blocks(plan, packed, queries, request, options)


def _distinct(
    plan: SearchPlan,
    segment: Segment,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Search only one row of each group of equal rows (the method "distinct").

    Afterwards, all rows that equal a row in the results are added to the results. Equal queries are
    searched only once.
    """
    groups = cast(duplicates.DuplicateGroups, segment.duplicates)
    n = len(queries.rows)
    # The search of the distinct queries reports its progress in terms of all queries.
    options = options.for_part(0, n, n)
    query_groups = duplicates.find_duplicates(queries) if norms_repeat(queries.norms) else None
    distinct_queries, group_of_query = queries, validation.read_only(np.arange(n, dtype=np.int64))
    if query_groups is not None:
        distinct_queries, group_of_query = queries.take(query_groups.first), query_groups.group_of
    k = min(request.k + 1, len(groups.first))
    distinct_request = SegmentRequest(k, no_exclusions(len(distinct_queries.rows)))
    segment.distinct.count_work(n, request.k)
    # The search of the distinct rows needs a new plan for two reasons: this search has fewer
    # queries, and the distinct rows have been packed.
    plan = plan_segment(segment.distinct, len(distinct_queries.rows), distinct_request, options)
    best = _METHODS[plan.method](
        plan, segment.distinct, distinct_queries, distinct_request, options
    )
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
    """Search only the allowed rows, packed for this one search (the method "repack")."""
    allowed = segment.restricted_to(cast(AllowedRows, request.allowed).row_numbers)
    return search_segment(allowed, queries, request._replace(allowed=None), options)


_METHODS: dict[str, Callable[..., Ranking]] = {
    "numpy": _numpy, "score_all": _score_all, "unpacked": _unpacked,
    "packed": _packed, "distinct": _distinct, "repack": _repack,
}  # fmt: skip


def _scan_query_blocks(
    plan: SearchPlan,
    packed: PackedItems,
    queries: EncodedRows,
    request: SegmentRequest,
    options: ExecutionOptions,
) -> Ranking:
    """Search packed rows by tiles; each thread takes one block of queries after another."""
    k = request.k
    scaled_queries = pack_queries(packed, queries, request.exclusions, request.allowed)
    n, n_panels = len(scaled_queries.norms), packed.n_panels
    row_numbers, scores = unfilled(n, k)
    zero_queries = _zero_queries(packed, queries)
    unfinished = np.delete(np.arange(n, dtype=np.int64), zero_queries)
    initial_thresholds, machine = np.full(n, -NEVER), machine_of(options, packed.layout.isa)
    if request.thresholds is not None and np.isfinite(request.thresholds).all():
        initial_thresholds = _filter_thresholds(scaled_queries, request.thresholds)
    thresholds, n_passes = initial_thresholds.copy(), 0
    if plan.kernel == "self_join":
        n_passes = 1
        if norms_are_similar(packed, scaled_queries):
            thresholds[zero_queries] = NEVER
            unfinished = search_own_rows(
                plan, packed, scaled_queries, thresholds, (row_numbers, scores), options
            )
    while len(unfinished):
        grid, capacity, sample = plan_pass(
            plan, n_passes, len(unfinished), k, packed.layout, packed.rows.shape[1], n_panels,
            machine,
        )  # fmt: skip
        parts = (row_numbers[np.newaxis], scores[np.newaxis])
        if grid.n_ranges > 1:
            shape = grid.n_ranges, n, k
            parts = parallel.unfilled(shape, np.int64), parallel.unfilled(shape, np.float64)
        unproved = np.full((grid.n_ranges, n), -NEVER)
        settings = records.BlockSettings(
            grid.queries_per_block, grid.panels_per_range, grid.n_ranges, capacity, sample.stride,
            sample.rank, plan.use_projection, is_whole_search=False, check_norms=False,
        )  # fmt: skip
        results = records.SearchResults(thresholds, parts[1], parts[0], unproved)
        arguments = (packed.addresses, scaled_queries, unfinished, settings, results)
        n_tasks = -(-len(unfinished) // grid.queries_per_block) * grid.n_ranges
        if n_tasks == 1 and options.progress is None:
            tile_top_k.search_grid.call(packed.layout.isa, 0, 1, *arguments)
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
            unproved_thresholds[unproved_thresholds <= proved] = -NEVER
        unfinished = unfinished[unproved_thresholds > -NEVER]
        if grid.n_ranges > 1:
            # The next pass starts with thresholds from the exact scores of the neighbours found so
            # far. During this pass, the tasks have also shared thresholds with each other. A shared
            # threshold may be too high (see kernels.tile_top_k), so the next pass does not start
            # with shared thresholds.
            of_scores = _filter_thresholds(scaled_queries, scores[unfinished, -1], unfinished)
            thresholds[unfinished] = np.maximum(initial_thresholds[unfinished], of_scores)
        n_passes += 1
    if len(zero_queries):
        candidates = packed.row_numbers if request.allowed is None else request.allowed.row_numbers
        for query in zero_queries.tolist():
            row_numbers[query], scores[query] = _lowest(candidates, request.exclusions, query, k)
    return row_numbers, scores


def _zero_queries(packed: PackedItems, queries: EncodedRows) -> Integers:
    """Return the indices of the queries that have the score 0 with every item.

    If the scores are cosines or inner products, a query of zeros has the score 0 with every item.
    Bounds therefore cannot rule out any row for this query. If the scores are distances or the
    items have biases, a zero query has different scores with different items, so it needs the same
    search as other queries.
    """
    zero_queries = np.flatnonzero(queries.norms == 0)
    if packed.metric_type == "euclidean" or packed.arrays.bias.any():
        return zero_queries[:0]
    # The norm of a row of tiny numbers may be 0 although the row is not zero.
    return zero_queries[~queries.rows[zero_queries].any(axis=1)]


def _proved_thresholds(
    scaled_queries: Any, queries: Integers, kth_scores: Floats, initial_thresholds: Any
) -> Floats:
    """For each of m queries, return the largest threshold that its k best rows provably reach.

    The thresholds are in the units of the tiles. ``queries`` (m,) contains the indices of m
    queries, and ``kth_scores`` (m,) contains the k-th best score of each of these queries among all
    panels. ``initial_thresholds`` (n,) contains one threshold for every query of the search; a row
    may be skipped for a query if its score is below the threshold of the query. ``SLACK`` is a
    bound on relative rounding errors. A task rounds an unproved threshold up by a quarter of
    ``SLACK`` before the task reports this threshold.
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
    """Score every pair in float64, and return row numbers and raw scores (n, k) of the best rows.

    ``numbers`` (m,) contains the numbers of the rows to score, and ``grid`` divides the
    (query, row) pairs into tasks. The function takes O(n m d) time.
    """
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
    """Convert raw scores of queries to thresholds in the units of the tiles, and round down."""
    scaling = scaled_queries.scaling
    slopes, intercepts = scaling.slopes[queries], scaling.intercepts[queries]
    bounds: Floats = slopes * thresholds + intercepts
    rounding = packing.SLACK * (np.abs(bounds) + np.abs(intercepts))
    bounds -= rounding + scaled_queries.shift_error + 1e-30
    return bounds.astype(np.float32)


def _lowest(numbers: Integers, exclusions: ExcludedItems, query: int, k: int) -> Ranking:
    """Return the k lowest row numbers that a query of zeros is allowed to find, with scores of 0.

    Every query is allowed to find the rows in ``numbers``, which are in ascending order.
    """
    excluded = exclusions.indices[exclusions.indptr[query] : exclusions.indptr[query + 1]]
    candidates = numbers[: k + len(excluded) + 1]
    candidates = candidates[
        (candidates != exclusions.self_rows[query]) & ~np.isin(candidates, excluded)
    ][:k]
    row_numbers, scores = np.full(k, -1, np.int64), np.full(k, -np.inf)
    row_numbers[: len(candidates)], scores[: len(candidates)] = candidates, 0.0
    return row_numbers, scores

"""Search within groups: a query finds only items of its group, and no other items are read.

Queries are answered in the order of their groups, so that the rows of a group stay in the cache of
one thread. ``plan.plan_groups`` chooses one of three methods for each group::

    is_small          one kernel call scores every pair in all of these groups in float64
    is_tiled          one thread searches the group by tiles, while others search other groups
    is_segment        all threads together search the group as a segment of its own

A group is packed for tiles and searched by tiles only if four conditions hold. The group has enough
items; k is a small share of the number of items; comparing the items with the queries of this
search takes enough multiply-adds; and enough queries have searched the group, in this search and in
all earlier searches together. If the request allows only some items, earlier searches do not count.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel
from fastcos.kernels import exhaustive_top_k, records, tile_top_k, tiles
from fastcos.kernels.candidate_filter import NEVER
from fastcos.kernels.simd.panel import PANEL
from fastcos.search import plan, scan, task_grid
from fastcos.search.filters import ExcludedItems, kernel_filters
from fastcos.search.item_groups import QueryGroups, SegmentOrder
from fastcos.search.layout import TileLayout
from fastcos.search.options import ExecutionOptions
from fastcos.search.packing import pack_queries, pair_scoring
from fastcos.search.rankings import Ranking, padding, select_best, unfilled
from fastcos.search.request import QueryBatch, SearchRequest
from fastcos.search.segment_search import search_segments
from fastcos.search.segments import Segment, exclusions_within
from fastcos.search.sources import FittedItems, ItemSource
from fastcos.similarity import kernel_records
from fastcos.similarity.base import is_upper_bounded
from fastcos.similarity.encoded_rows import EncodedRows
from fastcos.validation import Integers

# The largest number of queries of one group that a thread searches at once.
_QUERIES_PER_TASK = 512
# The number of (query, item) pairs per block, if every pair of the block is scored in float64.
_PAIRS_PER_BLOCK = 20_000
# The number of (query, item) pairs per block, if the pairs are compared by tiles.
_TILED_PAIRS_PER_BLOCK = 200_000


class GroupSearch:
    """The search of a request in which each query finds only items of its group.

    The constructor chooses how each group is searched, once for all queries of the search. The
    method ``best_of`` searches one batch of queries. The batches contain the queries in the order
    of their groups.
    """

    def __init__(
        self, items: ItemSource, request: SearchRequest, options: ExecutionOptions
    ) -> None:
        # ``execute`` uses this class only if the request has groups.
        groups: QueryGroups = request.groups  # type: ignore[assignment]
        self._items, self._request, self._options = items, request, options
        self._codes = groups.codes[groups.order]
        self._orders = [
            groups.items.order_of(segment, request.allowed_positions) for segment in items.segments
        ]
        n_queries = np.bincount(self._codes[self._codes >= 0], minlength=len(groups.items.labels))
        plans = plan_groups_of_segments(items, self._orders, n_queries, request.k)
        self._tiled_groups = [group_plan.is_tiled for group_plan in plans.of_segments]
        for order in self._orders:
            order.count_queries(np.where(plans.is_segment, 0, n_queries))
        # A query whose group has no items has the group code -1. NumPy reads the index -1 as the
        # last entry of an array. The last entries of _n_items and _is_segment are therefore the
        # values for such a query: 0 and False.
        self._n_items = np.append(plans.n_items, 0)
        self._is_segment = np.append(plans.is_segment, False)

    def best_of(self, queries: QueryBatch) -> Ranking:
        """Return positions and raw scores (n, k) of the best items in the group of each query."""
        n = len(queries.rows)
        codes = self._codes[queries.first_query : queries.first_query + n]
        is_segment = self._is_segment[codes]
        places = np.flatnonzero((self._n_items[codes] > 0) & ~is_segment)
        if len(places) == n:
            ranking = self._search_together(queries, codes)
        else:
            ranking = self._search_apart(queries, codes, places, is_segment)
        if self._options.progress is not None:
            self._options.progress(queries.first_query + n, queries.total)
        return ranking

    def _search_apart(
        self, queries: QueryBatch, codes: Integers, places: Integers,
        is_segment: npt.NDArray[np.bool_],
    ) -> Ranking:  # fmt: skip
        """Search the groups of some queries one by one, and the remaining groups together.

        If ``is_segment`` is True for a query, its group is searched on its own. ``places`` contains
        the indices of the queries whose groups are searched together. The result of a query whose
        group has no items is padding.
        """
        positions, raw_scores = padding(len(codes), self._request.k)
        if len(places):
            positions[places], raw_scores[places] = self._search_together(
                queries.take(places), codes[places]
            )
        for group in np.unique(codes[is_segment]).tolist():
            lo, hi = np.searchsorted(codes, [group, group + 1])
            best = self._search_alone(queries.take(np.arange(lo, hi)), group)
            k = best[0].shape[1]  # a group may have fewer than k items
            positions[lo:hi, :k], raw_scores[lo:hi, :k] = best
        return positions, raw_scores

    def _search_alone(self, queries: QueryBatch, group: int) -> Ranking:
        """Search the items of one group, to which all of the queries belong."""
        segments = [
            order.restrict(segment, group)
            for segment, order in zip(self._items.segments, self._orders, strict=True)
        ]
        items = FittedItems(
            self._items.measure, self._items.n_items,
            tuple(segment for segment in segments if segment is not None),
        )  # fmt: skip
        k = min(self._request.k, int(self._n_items[group]))
        # The segments contain only items that the request allows.
        request = self._request._replace(k=k, allowed_positions=None)
        return search_segments(items, queries, request, self._options._replace(progress=None))

    def _search_together(self, queries: QueryBatch, codes: Integers) -> Ranking:
        """Search the groups of these queries together, without a separate segment for any group."""
        k, options, rankings = self._request.k, self._options, list[Ranking]()
        for segment, order, tiled_groups in zip(
            self._items.segments, self._orders, self._tiled_groups, strict=True
        ):
            encoded, exclusions = queries.encoded, queries.exclusions
            if len(segment.encoded.rows) < self._items.n_items:
                exclusions = exclusions_within(exclusions, segment)
            # If the scores are cosines or inner products without biases, a zero query has the score
            # 0 with every item, so tiles would not rule out any item. With all other scores, zero
            # queries are not searched by tiles, either.
            is_tiled = tiled_groups[codes] & (encoded.norms > 0)
            row_numbers, raw_scores = _score_pairs(
                segment, order, encoded, exclusions, codes, ~is_tiled, k, options
            )
            if is_tiled.any():
                _search_panels(
                    order, encoded, exclusions, codes, np.flatnonzero(is_tiled),
                    (row_numbers, raw_scores), options,
                )  # fmt: skip
            rankings.append((segment.positions_of(row_numbers), raw_scores))
        if len(rankings) == 1:
            return rankings[0]
        return select_best(
            np.concatenate([positions for positions, _ in rankings], axis=1),
            np.concatenate([raw_scores for _, raw_scores in rankings], axis=1), k,
            options.n_threads,
        )  # fmt: skip


class GroupPlans(NamedTuple):
    """How each of g groups is searched, in all segments of the items.

    Attributes
    ----------
    n_items : ndarray (g,), int64
        The number of items of each group in all segments.
    is_segment : ndarray (g,), bool
        The groups that are searched one at a time, as segments of their own.
    of_segments : tuple of GroupPlan
        For each segment, how the items of the other groups in this segment are searched.
    """

    n_items: Integers
    is_segment: npt.NDArray[np.bool_]
    of_segments: tuple[plan.GroupPlan, ...]


def plan_groups_of_segments(
    items: ItemSource, orders: Sequence[SegmentOrder], n_queries: Integers, k: int
) -> GroupPlans:
    """Plan a search within groups that has ``n_queries`` (g,) queries in each of g groups.

    ``orders`` contains the order of each segment. Each order has counted the queries of all earlier
    searches. This function does not add the queries of this search to the counts.
    """
    n_columns = items.rows.shape[1] if items.segments else 0
    n_items: Integers = sum(
        (np.diff(order.starts) for order in orders), np.zeros(len(n_queries), np.int64)
    )
    is_segment = plan.plan_groups(
        n_queries, n_items, n_columns, k, needs_segments=_needs_segments(items)
    ).is_segment
    n_in_launches = np.where(is_segment, 0, n_queries)
    of_segments = tuple(
        plan.plan_groups(
            n_in_launches, np.diff(order.starts), n_columns, k, has_tiles=tiles.AVAILABLE,
            n_queries_so_far=order.n_queries + n_in_launches,
        )
        for order in orders
    )  # fmt: skip
    return GroupPlans(n_items, is_segment, of_segments)


class PanelTasks(NamedTuple):
    """The tasks of a search that compares n queries with the panels of their groups.

    Attributes
    ----------
    tasks : ndarray (t + 1,), int64
        The queries of task i are ``range(tasks[i], tasks[i + 1])``. All of them belong to the same
        group.
    blocks : ndarray (b + 1,), int64
        A thread performs the tasks in ``range(blocks[j], blocks[j + 1])`` one after the other.
    plan : SearchPlan
        The plan of the search, which is made for the largest task and the largest group.
    """

    tasks: Integers
    blocks: Integers
    plan: plan.SearchPlan


def plan_panel_tasks(
    group_of: Integers,
    n_items: Integers,
    k: int,
    layout: TileLayout,
    n_columns: int,
    options: ExecutionOptions,
) -> PanelTasks:
    """Divide a search of groups by tiles into tasks, and plan the search.

    ``group_of`` (n,) contains the group of each query; the queries of a group are consecutive.
    ``n_items`` (g,) contains the number of items of each group.
    """
    group_starts = np.flatnonzero(np.diff(group_of, prepend=-1))
    tasks = np.union1d(group_starts, np.arange(0, len(group_of), _QUERIES_PER_TASK))
    n_items = n_items[group_of[tasks]]
    tasks = np.append(tasks, len(group_of))
    work = np.concatenate([[0], np.cumsum(np.diff(tasks) * n_items)])
    panel_plan = plan.plan_group_panels(
        int(np.diff(tasks).max()), k, layout, n_columns, -(-int(n_items.max()) // PANEL),
        scan.machine_of(options, layout.isa),
    )  # fmt: skip
    return PanelTasks(tasks, parallel.work_blocks(work, _TILED_PAIRS_PER_BLOCK), panel_plan)


def _needs_segments(items: ItemSource) -> bool:
    """Return whether every group must be searched as a segment.

    Groups must be searched as segments in two cases: the measure is ``UpperBounded``, or the
    kernels are not compiled, so that NumPy performs the search.
    """
    return is_upper_bounded(items.measure) or any(
        segment.uses_numpy() for segment in items.segments
    )


def _score_pairs(
    segment: Segment,
    order: SegmentOrder,
    queries: EncodedRows,
    exclusions: ExcludedItems,
    codes: Integers,
    is_scored: npt.NDArray[np.bool_],
    k: int,
    options: ExecutionOptions,
) -> Ranking:
    """Return row numbers and raw scores (n, k) of the best items in the group of each query.

    If ``is_scored`` is True for a query, every item of its group is scored in float64. Otherwise,
    the result of the query is padding.
    """
    firsts, lasts = order.starts[codes], order.starts[codes + 1]
    lasts = np.where(is_scored, lasts, firsts)
    row_numbers, raw_scores = unfilled(len(codes), k)
    work = np.concatenate([[0], np.cumsum(lasts - firsts)])
    parallel.run(
        exhaustive_top_k.score_all_rows, parallel.work_blocks(work, _PAIRS_PER_BLOCK),
        pair_scoring(segment.metric_type, queries, segment.encoded),
        kernel_records.candidate_ranges(order.row_numbers, firsts, lasts),
        1, kernel_filters(exclusions), raw_scores, row_numbers,
        n_threads=options.n_threads,
    )  # fmt: skip
    return row_numbers, raw_scores


def _search_panels(
    order: SegmentOrder,
    queries: EncodedRows,
    exclusions: ExcludedItems,
    codes: Integers,
    numbers: Integers,
    results: Ranking,
    options: ExecutionOptions,
) -> None:
    """Search the groups of some queries by tiles, and write the best items to ``results``.

    ``numbers`` contains the indices of these queries in ascending order. Each task searches the
    panels of only one group. In all other respects, the search works like the search of all items
    by tiles in ``scan``.
    """
    group_of = codes[numbers]
    # All groups are packed with the same scaling, so the queries are scaled only once, for the
    # first group.
    panels = order.packed(int(group_of[0]))
    scaled_queries = pack_queries(panels, queries, exclusions)
    n_queries, k = results[0].shape
    tasks, blocks, group_plan = plan_panel_tasks(
        group_of, np.diff(order.starts), k, panels.layout, queries.rows.shape[1], options
    )
    thresholds = np.full(n_queries, -NEVER)
    unproved = np.full((1, n_queries), -NEVER)
    outputs = records.SearchResults(
        thresholds, results[1][np.newaxis], results[0][np.newaxis], unproved
    )
    queries_per_block = group_plan.grid.queries_per_block

    def search_tasks(lo: int, hi: int) -> None:
        for start, end in itertools.pairwise(tasks[lo : hi + 1].tolist()):
            packed = order.packed(int(group_of[start]))
            n_panels = packed.n_panels
            sample = task_grid.sample_of_group(k, n_panels)
            remaining = numbers[start:end]
            while len(remaining):
                tile_top_k.search_grid.call(
                    ("groups", panels.layout.isa), 0, -(-len(remaining) // queries_per_block),
                    packed.addresses, scaled_queries, remaining,
                    records.BlockSettings(
                        queries_per_block, n_panels, 1,
                        min(group_plan.capacity, n_panels * PANEL + 1),
                        sample.stride, sample.rank, use_projection=False, is_whole_search=False,
                        check_norms=False,
                    ),
                    outputs,
                )  # fmt: skip
                # If the estimated threshold of a query was too high, the query is searched again
                # without an estimate.
                remaining = remaining[unproved[0, remaining] > -NEVER]
                sample = task_grid.NO_SAMPLE

    parallel.run(search_tasks, blocks, n_threads=group_plan.grid.n_threads)

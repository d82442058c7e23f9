"""Search within groups: a query finds items of its own group only, at the cost of that group.

The numbers of a segment's items are sorted by group once, and queries are answered in the order of
their groups, so that the rows of a group stay in the cache of one thread::

    plan.GroupPlan    how a group is searched
    is_small          one launch searches all such groups, and scores every pair in float64
    is_tiled          tiles search the panels of the group; each thread searches another group
    is_segment        the group is a segment of its own; all threads search one group at a time

The panels of a group are packed once the group has had enough queries, including the queries of
earlier searches.
"""

import dataclasses
import itertools
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import exhaustive_top_k, records, tile_top_k, tiles
from fastcos.kernels.simd.panel import PANEL
from fastcos.search import cost_model, plan, scan
from fastcos.search.execute import finish, run_search
from fastcos.search.filters import ExcludedItems, no_exclusions
from fastcos.search.ids import Ids, are_strings, as_ids, concatenated_ids, format_id
from fastcos.search.options import ExecutionOptions
from fastcos.search.packing import (
    ItemScaling,
    PackedItems,
    match_type,
    pack_items,
    pack_queries,
    scale_items,
)
from fastcos.search.rankings import Ranking, select_best
from fastcos.search.request import SearchRequest
from fastcos.search.results import Neighbors
from fastcos.search.segments import Segment, exclusions_within
from fastcos.search.sources import FittedItems, ItemSource
from fastcos.similarity import kernel_records
from fastcos.similarity.base import is_upper_bounded
from fastcos.similarity.encoded_rows import EncodedRows, encode_rows
from fastcos.validation import Integers

# The number of queries of one group that a thread searches at once.
_QUERIES_PER_TASK = 512
# The number of pairs that a thread scores at once in float64, and by tiles.
_PAIRS_PER_BLOCK = 20_000
_TILED_PAIRS_PER_BLOCK = 200_000
# The threshold of a query for which no bound is known.
_NO_THRESHOLD = np.float32(-3e38)


class SegmentOrder:
    """The numbers of a segment's items by group, and the packed panels of each group.

    numbers (m,) ascends within a group, and starts (g + 1,) holds the place at which each of g
    groups starts. The object must not refer to the segment, because it is a value of a dictionary
    whose weak key is the segment.
    """

    def __init__(self, segment: Segment, numbers: Integers, codes: Integers, n_groups: int) -> None:
        order = np.argsort(_short_codes(codes, n_groups), kind="stable")
        self.numbers = validation.read_only(numbers[order])
        self.starts = np.searchsorted(codes[order], np.arange(n_groups + 1))
        self._metric_type, self._encoded = segment.metric_type, segment.encoded
        self._segments, self._packed = dict[int, Segment](), dict[int, PackedItems]()
        self._n_queries = np.zeros(n_groups, np.int64)

    @parallel.lazy_attribute
    def scaling(self) -> ItemScaling:
        """How the rows of all groups are packed."""
        return scale_items(self._metric_type, self._encoded, self.numbers, None)

    def count_queries(self, n_queries: Integers) -> Integers:
        """Add the numbers of queries (g,) of a search, and return the totals of the groups."""
        self._n_queries += n_queries
        return self._n_queries

    def sizes_of(self, segment: Segment, group: int) -> plan.SegmentSizes:
        """Return the facts about the items of a group that a plan depends on."""
        restricted = self._segments.get(group)
        if restricted is not None:
            return restricted.sizes()
        n_items = int(self.starts[group + 1] - self.starts[group])
        return dataclasses.replace(
            segment.sizes(), n_live=n_items, packed_for="", n_packed=0, projected_words=0,
            n_distinct=n_items, has_moderate_norms=True,
        )  # fmt: skip

    def packed(self, group: int) -> PackedItems:
        """Return the items of a group as panels, which are packed at first use."""
        with parallel.attribute_lock(self, f"packed {group}"):
            panels = self._packed.get(group)
            if panels is None:
                numbers = self.numbers[self.starts[group] : self.starts[group + 1]]
                panels = self._packed[group] = pack_items(
                    self._metric_type, self._encoded, numbers, 1, self.scaling
                )
            return panels

    def restrict(self, segment: Segment, group: int) -> Segment | None:
        """Return the segment with only the items of one group, or None if the group is empty."""
        first, last = self.starts[group], self.starts[group + 1]
        if first == last:
            return None
        restricted = self._segments.get(group)
        if restricted is None:
            restricted = segment.restricted_to(self.numbers[first:last])
            if not restricted.uses_numpy():
                restricted.scaling = self.scaling
            self._segments[group] = restricted
        else:  # few queries alone do not pay for packing a segment, but more queries will follow
            restricted.pack()
        return restricted


def _short_codes(codes: Integers, n_groups: int) -> Integers:
    """Return the codes of groups in a type that NumPy sorts ten times as fast as int64."""
    return codes.astype(np.int16) if n_groups <= 2**15 else codes


class ItemGroups:
    """The group of the item at every position; an object of this class never changes.

    labels (g,) holds the distinct groups, ascending, and codes (p,) the place in labels of the
    group of each position.
    """

    def __init__(
        self,
        labels: Ids,
        codes: Integers,
        orders: "weakref.WeakKeyDictionary[Segment, SegmentOrder] | None" = None,
    ) -> None:
        self.labels, self.codes = validation.read_only(labels), validation.read_only(codes)
        self._orders = weakref.WeakKeyDictionary() if orders is None else orders

    @classmethod
    def of(cls, groups: Any, n_items: int, name: str = "groups") -> "ItemGroups":
        """Return checked groups of n items: whole numbers or strings, not -1 or ""."""
        labels, codes = np.unique(
            as_ids(name, groups, n_items, distinct=False), return_inverse=True
        )
        return cls(labels, codes)

    def find(self, groups: Any, n_queries: int, name: str = "groups") -> Integers:
        """Return the code (n,) of the group of each query, or -1 for a group without items.

        groups holds one group for each query, or is one group for all queries.
        """
        if np.ndim(groups) == 0:
            groups = [groups] * n_queries
        asked = as_ids(name, groups, n_queries, distinct=False)
        if not len(self.labels):
            return np.full(len(asked), -1, np.int64)
        if len(asked) and are_strings(asked) != are_strings(self.labels):
            rule = "strings" if are_strings(self.labels) else "whole numbers"
            got = format_id(asked[0])
            raise TypeError(f"{name} must be {rule} as those of the items, got {got}")
        places = np.minimum(np.searchsorted(self.labels, asked), len(self.labels) - 1)
        return np.where(self.labels[places] == asked, places, -1)

    def replaced(self, positions: Integers, groups: Ids, n_items: int) -> "ItemGroups":
        """Return the groups of n items, of which the items at these positions have new groups."""
        codes = np.append(self.codes, np.zeros(n_items - len(self.codes), np.int64))
        new_codes = self.find(groups, len(groups))
        if (new_codes >= 0).all():
            codes[positions] = new_codes
            # Rows of existing segments keep their groups, because a replaced item is in a new
            # segment.
            return ItemGroups(self.labels, codes, self._orders)
        if not len(self.labels):
            return ItemGroups.of(groups, n_items)
        labels = np.unique(concatenated_ids([self.labels, groups]))
        codes = np.searchsorted(labels, self.labels)[codes]
        codes[positions] = np.searchsorted(labels, groups)
        return ItemGroups(labels, codes)

    def to_arrays(self) -> dict[str, Any]:
        """Return the arrays that a saved index holds, by name."""
        labels = self.labels.astype(str) if are_strings(self.labels) else self.labels
        return {"group_labels": labels, "group_codes": self.codes.astype(np.int32)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], n_positions: int) -> "ItemGroups | None":
        """Return the groups that to_arrays wrote, after checks, or None without groups."""
        labels, codes = arrays.get("group_labels"), arrays.get("group_codes")
        if labels is None or codes is None:
            return None
        labels = np.asarray(labels)
        is_right = labels.ndim == 1 and labels.dtype.kind in "iU" and codes.dtype.kind == "i"
        is_right = is_right and codes.shape == (n_positions,)
        is_right = is_right and bool((labels[1:] > labels[:-1]).all())
        in_range = is_right and codes.min(initial=0) >= 0
        if not in_range or codes.max(initial=0) >= max(1, len(labels)):
            raise ValueError("group_labels and group_codes must hold a group of each position")
        return cls(labels, codes.astype(np.int64))

    def order_of(self, segment: Segment, allowed_positions: Integers | None = None) -> SegmentOrder:
        """Return the items of a segment by group; only those at allowed positions, if given.

        The order of all items is kept as long as the segment exists.
        """
        order = None if allowed_positions is not None else self._orders.get(segment)
        if order is None:
            numbers = segment.numbers
            if allowed_positions is not None:
                allowed_rows = segment.allow(allowed_positions)
                numbers = numbers if allowed_rows is None else allowed_rows.numbers
            codes = self.codes[segment.positions_of(numbers)]
            order = SegmentOrder(segment, numbers, codes, len(self.labels))
            if allowed_positions is None:
                self._orders[segment] = order
        return order


def search_groups(
    items: ItemSource,
    request: SearchRequest,
    groups: ItemGroups,
    codes: Integers,
    options: ExecutionOptions,
) -> Neighbors:
    """Answer a request by the items of each query's group; a group of fewer than k items is padded.

    codes (n,) holds the groups of the queries, from ``groups.find``. The queries are rows in
    memory, because the queries of a group may lie anywhere among them.
    """
    if request.lists is not None:
        raise ValueError("allowed must be a mask or positions with groups, got lists of each query")
    (n, width), k = request.queries.shape, request.k
    indices = np.full((n, k), -1, np.int64)
    scores = np.full((n, k), -np.inf, np.float32)
    orders = [groups.order_of(segment, request.allowed_positions) for segment in items.segments]
    n_groups = len(groups.labels)
    n_items: Integers = sum(
        (np.diff(order.starts) for order in orders), np.zeros(n_groups, np.int64)
    )
    by_group = np.argsort(_short_codes(codes, n_groups), kind="stable")
    starts = np.searchsorted(codes[by_group], np.arange(n_groups + 1))
    n_queries = np.diff(starts)
    is_searched = (n_queries > 0) & (n_items > 0)
    # Scores that are not inner products, and NumPy while kernels are not compiled, cannot use the
    # launches below.
    needs_segments = is_upper_bounded(items.measure) or any(
        segment.uses_numpy() for segment in items.segments
    )
    is_segment = plan.plan_groups(
        n_queries, n_items, width, k, needs_segments=needs_segments
    ).is_segment
    n_answered = n - int(n_queries[is_searched].sum())

    def write(queries: Integers, results: tuple[Any, Any]) -> None:
        nonlocal n_answered
        for output, part in zip((indices, scores), results, strict=True):
            output[queries, : part.shape[1]] = part
        n_answered += len(queries)
        if options.progress is not None:
            options.progress(n_answered, n)

    for group in np.flatnonzero(is_segment).tolist():
        queries = by_group[starts[group] : starts[group + 1]]
        restricted = [
            order.restrict(segment, group)
            for segment, order in zip(items.segments, orders, strict=True)
        ]
        segments = tuple(segment for segment in restricted if segment is not None)
        items_of_group = FittedItems(items.measure, items.n_items, segments)
        of_group = _restricted_request(request, queries, min(k, int(n_items[group])))
        write(queries, run_search(items_of_group, of_group, options._replace(progress=None)))
    n_queries = np.where(is_segment, 0, n_queries)
    use_tiles = [
        plan.plan_groups(
            n_queries,
            np.diff(order.starts),
            width,
            k,
            has_tiles=tiles.AVAILABLE,
            n_queries_so_far=order.count_queries(n_queries),
        ).is_tiled
        for order in orders
    ]
    queries = by_group[starts[0] :]
    queries = queries[(is_searched & ~is_segment)[codes[queries]]]
    size = items.batch_size(request, options)
    for lo in range(0, len(queries), size):
        batch = queries[lo : lo + size]
        write(batch, _search_batch(items, orders, use_tiles, request, batch, codes[batch], options))
    return Neighbors(indices, scores)


def _restricted_request(request: SearchRequest, queries: Integers, k: int) -> SearchRequest:
    """Return the request of these queries for k of all items of the segments that are searched."""
    exclusions = request.exclusions
    return request._replace(
        queries=validation.read_only(request.queries[queries]),
        k=k,
        allowed_positions=None,
        exclusions=None if exclusions is None else exclusions.take(queries),
    )


def _search_batch(
    items: ItemSource,
    orders: list[SegmentOrder],
    use_tiles: list[npt.NDArray[np.bool_]],
    request: SearchRequest,
    queries: Integers,
    codes: Integers,
    options: ExecutionOptions,
) -> tuple[Integers, Any]:
    """Answer queries, sorted by group, from the groups of these codes in every segment."""
    measure, k = items.measure, request.k
    Q = validation.read_only(request.queries[queries])
    validation.check_scorable("queries", Q, Q)
    exclusions = no_exclusions(len(Q))
    if request.exclusions is not None:
        exclusions = request.exclusions.take(queries)
    encoded = encode_rows(measure.encode_queries(Q), None, options.n_threads, measure.metric_type)
    results: list[Ranking] = []
    for segment, order, tiled_groups in zip(items.segments, orders, use_tiles, strict=True):
        wide_queries = match_type(encoded, segment.encoded.rows)
        excluded_rows = exclusions
        if len(segment.encoded.rows) < items.n_items:
            excluded_rows = exclusions_within(exclusions, segment)
        # Every item has the score 0 with a zero query, so tiles would drop no item.
        is_tiled = tiled_groups[codes] & (wide_queries.norms > 0)
        rows, raw = _score_pairs(
            segment, order, wide_queries, excluded_rows, codes, ~is_tiled, k, options
        )
        if is_tiled.any():
            _search_panels(
                order, wide_queries, excluded_rows, codes, np.flatnonzero(is_tiled), (rows, raw),
                options,
            )  # fmt: skip
        results.append((segment.positions_of(rows), raw))
    if len(results) == 1:
        positions, raw = results[0]
    else:
        positions, raw = select_best(
            np.concatenate([columns for columns, _ in results], axis=1),
            np.concatenate([scores for _, scores in results], axis=1), k, options.n_threads,
        )  # fmt: skip
    return finish(measure, Q, positions, raw, request.min_score)


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
    """Return rows and raw scores (n, k) of the best of each query's group, if is_scored is true.

    The lists of the other queries contain only padding.
    """
    firsts, lasts = order.starts[codes], order.starts[codes + 1]
    lasts = np.where(is_scored, lasts, firsts)
    rows = parallel.unfilled((len(codes), k), np.int64)
    raw = parallel.unfilled((len(codes), k), np.float64)
    work = np.concatenate([[0], np.cumsum(lasts - firsts)])
    parallel.run(
        exhaustive_top_k.score_all_rows, parallel.work_blocks(work, _PAIRS_PER_BLOCK),
        kernel_records.pair_scoring(segment.metric_type, queries, segment.encoded),
        records.CandidateRanges(
            order.numbers, validation.read_only(firsts), validation.read_only(lasts)
        ),
        1, scan.filters_of(exclusions), raw, rows,
        n_threads=options.n_threads,
    )  # fmt: skip
    return rows, raw


def _search_panels(
    order: SegmentOrder,
    queries: EncodedRows,
    exclusions: ExcludedItems,
    codes: Integers,
    numbers: Integers,
    results: Ranking,
    options: ExecutionOptions,
) -> None:
    """Write the best items of the groups of the queries of these ascending numbers to results.

    The function does what scan does with the panels of all items, but every task has the panels of
    one group.
    """
    group_of = codes[numbers]
    group_starts = np.flatnonzero(np.diff(group_of, prepend=-1))
    # All queries of a task belong to one group.
    tasks = np.union1d(group_starts, np.arange(0, len(numbers), _QUERIES_PER_TASK))
    tasks = np.append(tasks, len(numbers))
    n_items = np.diff(order.starts)[group_of[tasks[:-1]]]
    first = order.packed(int(group_of[0]))  # all groups are packed in the same units
    scaled = pack_queries(first, queries, exclusions, kernel_records.ALL_ALLOWED)
    n_queries, k = results[0].shape
    n_panels = -(-int(n_items.max()) // PANEL)
    grid, capacity, buffer_bytes = plan.plan_query_blocks(
        int(np.diff(tasks).max()), float(k), k, first.layout, queries.rows.shape[1], n_panels,
        scan.machine_of(options._replace(n_threads=1), first.layout.isa), cost_model.COSTS,
        may_share=False,
    )  # fmt: skip
    n_threads = max(1, min(options.n_threads, int(options.working_memory / buffer_bytes)))
    thresholds = np.full(n_queries, _NO_THRESHOLD)
    unproved = np.full((1, n_queries), _NO_THRESHOLD)
    outputs = records.SearchResults(
        thresholds, results[1][np.newaxis], results[0][np.newaxis], unproved
    )
    kinds = ("groups", *first.kind, queries.rows.dtype.char)

    def search_tasks(lo: int, hi: int) -> None:
        for start, end in itertools.pairwise(tasks[lo : hi + 1].tolist()):
            packed = order.packed(int(group_of[start]))
            n_panels = len(packed.arrays.statistics)
            # Half of the usual sample is enough, because it is a large part of so few panels.
            min_sample = cost_model.COSTS.min_sampled_panels // 2
            sample = plan.guess_in_range(k, k, n_panels, cost_model.COSTS, min_sample)
            remaining = numbers[start:end]
            while len(remaining):
                parallel.call(
                    tile_top_k.search_grid, kinds, 0, -(-len(remaining) // grid.queries_per_block),
                    packed.arrays, scaled, remaining,
                    records.TaskGrid(
                        grid.queries_per_block, n_panels, 1, min(capacity, n_panels * PANEL + 1),
                        sample.stride, sample.rank,
                    ),
                    outputs,
                )  # fmt: skip
                # Queries whose estimated threshold was too high are searched without a threshold.
                remaining = remaining[unproved[0, remaining] > _NO_THRESHOLD]
                sample = plan.ThresholdSample()

    work = np.concatenate([[0], np.cumsum(np.diff(tasks) * n_items)])
    blocks = parallel.work_blocks(work, _TILED_PAIRS_PER_BLOCK)
    parallel.run(search_tasks, blocks, n_threads=n_threads)

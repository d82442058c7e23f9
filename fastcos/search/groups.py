"""Search within groups: a query finds items of its own group only, at the cost of that group.

The numbers of a segment's items are sorted by group once. The queries of small groups are scored
against their range of these numbers by one launch of a kernel, in the order of their groups, so
that the rows of a group stay in the cache of one thread. A group for which there is much to do is
searched as a segment of its own, which is packed like any other::

    plan.GroupPlan        how a group is searched
    is_small              all such groups by one launch, every pair in float64
    is_segment            as a segment by one thread, several groups at a time
    is_shared             as a segment by all threads
"""

import dataclasses
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import exhaustive_top_k, records
from fastcos.parallel import memmap
from fastcos.search import scan
from fastcos.search.execute import batch_size, finish, run_search
from fastcos.search.ids import Ids, are_strings, as_ids, concatenated_ids, format_id
from fastcos.search.packing import ExecutionOptions, Ranking, no_exclusions
from fastcos.search.plan import SegmentSizes, plan_groups
from fastcos.search.request import SearchRequest
from fastcos.search.results import Neighbors
from fastcos.search.segments import Segment, exclusions_within, select_best
from fastcos.search.sources import FittedItems, ItemSource
from fastcos.similarity import kernel_records
from fastcos.similarity.base import is_upper_bounded
from fastcos.similarity.encoded_rows import encode_rows
from fastcos.validation import Integers

# Multiply-adds that a thread takes at once.
_WORK_PER_BLOCK = 2**26
# pairs that a thread scores at once
_PAIRS_PER_BLOCK = 20_000


class SegmentOrder:
    """The numbers of a segment's items by group, and the segments of its large groups.

    numbers (m,): ascending within a group; starts (g + 1,): where each of g groups starts.
    """

    def __init__(self, segment: Segment, numbers: Integers, codes: Integers, n_groups: int) -> None:
        # NumPy sorts 16 bits by digits, ten times as fast
        sorted_by = codes.astype(np.uint16) if n_groups <= 2**16 else codes
        order = np.argsort(sorted_by, kind="stable")
        self.numbers = validation.read_only(numbers[order])
        self.starts = np.searchsorted(codes[order], np.arange(n_groups + 1))
        self._segment, self._of_groups = segment, dict[int, Segment]()

    def segment_of(self, group: int) -> Segment | None:
        """Return the items of a group as a segment, None if it has none here."""
        first, last = self.starts[group], self.starts[group + 1]
        if first == last:
            return None
        segment = self._of_groups.get(group)
        if segment is None:
            segment = self._of_groups[group] = self._segment.restricted_to(self.numbers[first:last])
        else:  # few queries alone do not pack a segment, but there will be more
            segment.pack()
        return segment

    def sizes_of(self, group: int) -> SegmentSizes:
        """Return the facts about the items of a group that a plan depends on."""
        segment = self._of_groups.get(group)
        if segment is not None:
            return segment.sizes()
        n_items = int(self.starts[group + 1] - self.starts[group])
        return dataclasses.replace(
            self._segment.sizes(), n_live=n_items, packed_for="", n_packed=0, projected_words=0,
            n_distinct=n_items, has_moderate_norms=True,
        )  # fmt: skip


class ItemGroups:
    """The group of the item at every position; never changed, only replaced as a whole.

    labels (g,): the distinct groups, ascending; codes (p,): the place in labels of the group of
    each position.
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
        """Return the code (n,) of the group of each query, -1 of a group without items.

        groups: one for each query, or one for all of them.
        """
        if np.ndim(groups) == 0:
            groups = [groups] * n_queries
        query_groups = as_ids(name, groups, n_queries, distinct=False)
        if not len(self.labels):
            return np.full(len(query_groups), -1, np.int64)
        if len(query_groups) and are_strings(query_groups) != are_strings(self.labels):
            rule = "strings" if are_strings(self.labels) else "whole numbers"
            got = format_id(query_groups[0])
            raise TypeError(f"{name} must be {rule} as those of the items, got {got}")
        places = np.minimum(np.searchsorted(self.labels, query_groups), len(self.labels) - 1)
        return np.where(self.labels[places] == query_groups, places, -1)

    def replaced(self, positions: Integers, groups: Ids, n_items: int) -> "ItemGroups":
        """Return the groups of n items, those at positions new."""
        codes = np.append(self.codes, np.zeros(n_items - len(self.codes), np.int64))
        new_codes = self.find(groups, len(groups))
        if (new_codes >= 0).all():
            codes[positions] = new_codes
            # rows of segments that exist keep their groups: a replaced item is in a new segment
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
        """Return what to_arrays returned, checked; None for an index without groups."""
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
        """Return the items of a segment by group, at allowed positions only if these are given.

        The order of all items is kept as long as the segment lives.
        """
        order = None if allowed_positions is not None else self._orders.get(segment)
        if order is None:
            numbers = segment.numbers
            if (allowed_rows := segment.allow(allowed_positions)) is not None:
                numbers = allowed_rows.numbers
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
    """Answer a request by the items of each query's group; padded where it has fewer than k.

    codes (n,): the groups of the queries, as ``groups.find`` returns them.
    """
    if request.lists is not None:
        raise ValueError("allowed must be a mask or positions with groups, got lists of each query")
    n, k = request.queries.shape[0], request.k
    indices = np.full((n, k), -1, np.int64)
    scores = np.full((n, k), -np.inf, np.float32)
    orders = [groups.order_of(segment, request.allowed_positions) for segment in items.segments]
    sizes: Integers = sum(
        (np.diff(order.starts) for order in orders), np.zeros(len(groups.labels), np.int64)
    )
    by_group = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[by_group], np.arange(len(sizes) + 1))
    counts = np.diff(starts)
    n_columns = request.queries.shape[1]
    is_inner_product = not is_upper_bounded(items.measure)
    plan = plan_groups(counts, sizes, n_columns, is_inner_product=is_inner_product)
    n_done = n - int(counts[plan.is_small | plan.is_segment | plan.is_shared].sum())

    def write(queries: Integers, best: tuple[Any, Any]) -> None:
        for results, part in zip((indices, scores), best, strict=True):
            results[queries, : part.shape[1]] = part

    def search_segments(lo: int, hi: int, large_groups: Integers, n_threads: int) -> None:
        memory = options.working_memory * n_threads / options.n_threads
        within = ExecutionOptions(n_threads, memory, None)
        for group in large_groups[lo:hi].tolist():
            queries = by_group[starts[group] : starts[group + 1]]
            segments = [
                segment for order in orders if (segment := order.segment_of(group)) is not None
            ]
            of_group = FittedItems(items.measure, items.n_items, tuple(segments))
            group_request = _some_queries(request, queries, min(k, int(sizes[group])))
            write(queries, run_search(of_group, group_request, within))

    def report(n_answered: int) -> None:
        nonlocal n_done
        n_done += n_answered
        if options.progress is not None:
            options.progress(n_done, n)

    for group in np.flatnonzero(plan.is_shared):
        search_segments(0, 1, np.array([group]), options.n_threads)
        report(int(counts[group]))
    large_groups = np.flatnonzero(plan.is_segment)
    if len(large_groups):
        work = counts[large_groups] * sizes[large_groups] * n_columns
        blocks = parallel.work_blocks(np.concatenate([[0], np.cumsum(work)]), _WORK_PER_BLOCK)
        parallel.run(search_segments, blocks, large_groups, 1, n_threads=options.n_threads)
        report(int(counts[large_groups].sum()))
    queries = by_group[(codes[by_group] >= 0) & plan.is_small[codes[by_group]]]
    size = batch_size(items, request, options)
    for lo in range(0, len(queries), size):
        batch = queries[lo : lo + size]
        write(batch, _score_small_groups(items, orders, request, batch, codes[batch], options))
        report(len(batch))
    return Neighbors(indices, scores)


def _some_queries(request: SearchRequest, queries: Integers, k: int) -> SearchRequest:
    """Return the request of some queries for k items, of all items of the segments searched."""
    exclusions = request.exclusions
    return request._replace(
        queries=memmap.take_rows("queries", request.queries, queries),
        k=k,
        allowed_positions=None,
        exclusions=None if exclusions is None else exclusions.take(queries),
    )


def _score_small_groups(
    items: ItemSource,
    orders: list[SegmentOrder],
    request: SearchRequest,
    queries: Integers,
    codes: Integers,
    options: ExecutionOptions,
) -> tuple[Integers, Any]:
    """Score queries, sorted by group, with all items of their groups in float64."""
    measure, k = items.measure, request.k
    Q = memmap.take_rows("queries", request.queries, queries)
    validation.check_scorable("queries", Q, Q)
    exclusions = no_exclusions(len(Q))
    if request.exclusions is not None:
        exclusions = request.exclusions.take(queries)
    encoded = encode_rows(measure.encode_queries(Q), None, options.n_threads, measure.metric_type)
    bests: list[Ranking] = []
    for segment, order in zip(items.segments, orders, strict=True):
        queries_as_searched = scan.as_wide(encoded, segment.encoded.rows)
        segment_exclusions = exclusions
        if len(segment.encoded.rows) < items.n_items:
            segment_exclusions = exclusions_within(exclusions, segment)
        firsts, lasts = order.starts[codes], order.starts[codes + 1]
        columns = parallel.unfilled((len(Q), k), np.int64)
        raw = parallel.unfilled((len(Q), k), np.float64)
        work = np.concatenate([[0], np.cumsum(lasts - firsts)])
        parallel.run(
            exhaustive_top_k.score_all_rows, parallel.work_blocks(work, _PAIRS_PER_BLOCK),
            kernel_records.pair_scoring(segment.metric_type, queries_as_searched, segment.encoded),
            records.CandidateRanges(
                order.numbers, validation.read_only(firsts), validation.read_only(lasts)
            ),
            1, scan.filters_of(segment_exclusions), raw, columns,
            n_threads=options.n_threads,
        )  # fmt: skip
        bests.append((segment.positions_of(columns), raw))
    if len(bests) == 1:
        columns, raw = bests[0]
    else:
        columns, raw = select_best(
            np.concatenate([part for part, _ in bests], axis=1),
            np.concatenate([part for _, part in bests], axis=1), k, options.n_threads,
        )  # fmt: skip
    return finish(measure, Q, columns, raw, request.min_score)

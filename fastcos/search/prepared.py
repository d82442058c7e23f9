"""Prepared searches: an index stores kernel calls, like the prepared statements of a database.

A prepared search of one query takes a few microseconds in addition to the time of its kernel. In a
small index, searching takes less time than validating and encoding the queries and planning the
search. An index therefore stores the kernel calls of a search, with all of their arguments except
the queries (``launch.Launch``). The stored calls are found by a key, which consists of k and the
number of queries. If the plan depends on the number of threads or on the working memory, as in a
large index, the key contains these options as well. The next search with the same number of queries
and the same k passes its queries to the kernel without validating them. Queries are converted only
if their number type differs from the number type of the items. The kernel computes the norms of the
queries, and reports queries with unusual norms.

A search can be prepared under three conditions. If a search does not meet all three conditions,
``PreparedSearches.search`` returns None, and ``execute.execute`` runs the search, with the same
results.

1. Only k and a mask of the items limit the results. Of the options, the caller may set only the
   number of threads. ``SimilarityIndex.search`` checks condition 1 before it calls
   ``PreparedSearches.search``. A prepared search may have ``allowed_ids`` or ``exclude_ids`` if
   they are the same for all queries: the ids are converted to a mask, or to a few items that are
   dropped from the results.
2. The plan for each part of the index says that a single launch searches the whole part. The
   measure compares original rows (``can_be_prepared``). ``explain`` calls ``can_be_prepared``, too.
3. k is an int, a launch can read the queries (``_can_be_read``), and no query has a norm that is
   zero, very small or very large. No plan mentions the condition on the norms, because plans do not
   depend on the values of the queries.

A search whose launches are stored needs only the methods ``search``, ``_can_be_read`` and
``_merge`` of ``PreparedSearches``. These methods check the form of the queries, find and run the
stored launches, and convert the results of the launches. ``_find_or_plan`` is called in four cases:
no launches are stored, the stored launches are outdated, the key of the stored launches contains
the options, or the call passes a mask or a number of threads.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.search.filters import no_exclusions
from fastcos.search.index_parts import IndexPart, ids_at
from fastcos.search.launch import Launch, launch_of
from fastcos.search.options import ExecutionOptions, as_options
from fastcos.search.plan import SearchPlan
from fastcos.search.rankings import Ranking, select_best
from fastcos.search.results import IndexNeighbors, rounded_scores
from fastcos.search.scan import SegmentRequest, plan_segment
from fastcos.search.sources import FittedItems
from fastcos.similarity import kernel_records
from fastcos.similarity.base import BaseMeasure, Measure, capabilities

# An index remembers at most this many searches. For each of them, the index stores either launches
# or the value _NOT_PREPARABLE.
_MAX_STORED = 256
# The launches of one search: each part of the index has one launch.
_Launches = tuple[Launch, ...]
# This value is stored for a search that cannot be prepared, so that _find_or_plan does not plan the
# search again.
_NOT_PREPARABLE: _Launches = ()


class PreparedSearches:
    """The prepared searches of an index, which are found by k and the number of queries."""

    def __init__(self, items: FittedItems, parts: Sequence[IndexPart]) -> None:
        self._measure, self._parts = items.measure, tuple(parts)
        self._n_positions, self._n_live = items.n_items, items.n_live
        self._width = items.rows.shape[1]
        # Nearly every index has only one part. In this part, the position of an item is the number
        # of its row, so ids can be read by row number.
        segment = self._parts[0].segment
        has_one_part = (
            len(self._parts) == 1 and segment.first_position == 0 and segment.positions is None
        )
        self._ids_of_rows = self._parts[0].ids.values if has_one_part else None
        # The launches of each search. The key contains the number of queries and the number of
        # neighbours. If the plans depend on the options, the key also contains the options.
        self._launches: dict[tuple[Any, ...], _Launches] = {}
        # Most measures that compute cosines return them as scores without conversion. Cosines
        # cannot exceed the range of float32, so scores that are cosines need no check for overflow.
        self._scores_are_cosines = (
            type(self._measure).to_score is BaseMeasure.to_score
            and self._measure.metric_type == "cosine"
        )

    # --- The path of every search; a search with stored launches needs only these methods ---

    def search(
        self, queries: Any, k: Any, n_threads: int | None = None, allowed: Any = None
    ) -> IndexNeighbors | None:
        """Return the k nearest items of each query, or None for a search that cannot be prepared.

        The arguments are those of ``SimilarityIndex.search``; ``allowed=None`` allows all items.
        """
        if not (self._can_be_read(queries) and type(k) is int and k > 0):
            return None
        query_rows = validation.read_only(queries if queries.ndim == 2 else queries[np.newaxis])
        launches = self._launches.get((len(query_rows), k))
        if launches is None or n_threads is not None or allowed is not None:
            # In a search of many items, the launches depend on the number of threads or on the
            # working memory. Such launches are stored under a key that contains the options. Only
            # _find_or_plan looks up a key of this kind.
            launches = self._find_or_plan(len(query_rows), k, as_options(n_threads, None), allowed)
        if launches is _NOT_PREPARABLE:
            return None
        rankings = []
        for launch, part in zip(launches, self._parts, strict=True):
            if launch.packed is not part.segment.packed:
                # A projection has been added to the part, and the packed rows of the part have been
                # replaced. The stored launches still refer to the old packed rows, so they are
                # deleted.
                self._launches.clear()
                return self.search(queries, k, n_threads, allowed)
            ranking = launch.run(query_rows)
            if ranking is None:  # the norm of a query is NaN, tiny or huge
                return None
            rankings.append(ranking)
        # The positions contain no padding (-1). The reason is that the parts together contain at
        # least k rows that are allowed in the results (SearchPlan.launch_is_whole_search).
        if self._ids_of_rows is not None:
            positions, raw_scores = rankings[0]
            ids = self._ids_of_rows[positions]
        else:
            positions, raw_scores = self._merge(rankings, k)
            ids = ids_at(self._parts, positions)
        if self._scores_are_cosines:
            return IndexNeighbors(positions, raw_scores.astype(np.float32), ids)
        scores = rounded_scores(self._measure.to_score(raw_scores, query_rows))
        return IndexNeighbors(positions, scores, ids)

    def _can_be_read(self, queries: Any) -> bool:
        """Return whether the queries are C-contiguous rows of native float32 or float64.

        The rows must have as many columns as the items. Queries of any other form must be validated
        and converted, so no prepared search can answer them.
        """
        return (
            type(queries) is np.ndarray
            and queries.dtype.char in "fd"
            and queries.dtype.isnative
            and queries.ndim in (1, 2)
            and queries.shape[-1] == self._width
            and len(queries) > 0
            and queries.flags.c_contiguous
            and queries.flags.aligned
        )

    def _merge(self, rankings: list[Ranking], k: int) -> Ranking:
        """Return positions and raw scores (n, k) of the best items of all parts."""
        positions = [
            part.segment.positions_of(row_numbers)
            for part, (row_numbers, _) in zip(self._parts, rankings, strict=True)
        ]
        raw_scores = [scores for _, scores in rankings]
        if len(rankings) == 1:
            return positions[0], raw_scores[0]
        return select_best(
            np.concatenate(positions, axis=1), np.concatenate(raw_scores, axis=1), k, 1
        )

    # --- Planning a search for which no launches are stored ---

    def _find_or_plan(self, n: int, k: int, options: ExecutionOptions, allowed: Any) -> _Launches:
        """Return stored launches, or plan the search and store its launches.

        If ``allowed`` restricts the search, its launches are always new and are not stored.
        """
        if any(not part.segment.packed_forms for part in self._parts):
            for part in self._parts:
                part.segment.pack()
            if any(not part.segment.packed_forms for part in self._parts):
                return _NOT_PREPARABLE  # the kernels are not compiled yet
        if allowed is not None:
            if type(allowed) is not np.ndarray:
                return _NOT_PREPARABLE
            mask = validation.as_item_mask("allowed", allowed, self._n_positions)
            return self._plan(n, k, options, mask)
        for key in ((n, k), (n, k, options)):
            stored_launches = self._launches.get(key)
            if stored_launches is not None:
                return stored_launches
        launches = self._plan(n, k, options, None)
        if len(self._launches) >= _MAX_STORED:
            self._launches.clear()
        # If a search cannot be prepared with some options, it cannot be prepared with any options.
        # _NOT_PREPARABLE is therefore stored under a key without options.
        fits_all_options = all(launch.fits_all_options for launch in launches)
        self._launches[(n, k) if fits_all_options else (n, k, options)] = launches
        return launches

    def _plan(
        self, n: int, k: int, options: ExecutionOptions, mask: npt.NDArray[np.bool_] | None
    ) -> _Launches:
        """Plan the search of every part, and return the launches, or ``_NOT_PREPARABLE``.

        ``mask`` says which positions are allowed in the results; None allows all positions.
        """
        launches = []
        for part in self._parts:
            segment = part.segment
            allowed_rows = segment.live if mask is None else segment.allow_mask(mask)
            # The packed rows are read before the plan is made. If a projection is added after this
            # line, the segment gets new packed rows, but the launch still refers to the old ones.
            # By this difference, ``search`` recognises that the launch is outdated.
            packed = segment.packed_rows
            request = SegmentRequest(k, no_exclusions(n), allowed_rows, None, self._n_live)
            plan = plan_segment(segment, n, request, options)
            if not can_be_prepared(self._measure, [plan]):
                return _NOT_PREPARABLE
            if packed is None:
                # Only one row of each group of duplicates has been packed so far. The mask may
                # exclude the packed row of a group and allow another row of the group.
                packed = segment.packed
            filters = kernel_records.NO_FILTERS
            if allowed_rows is not None:
                filters = kernel_records.masked(allowed_rows.mask)
            launches.append(launch_of(plan, packed, filters, k, must_check=True))
        return tuple(launches)


def can_be_prepared(measure: Measure, plans: Iterable[SearchPlan]) -> bool:
    """Return whether an index prepares a search, given the plan for each part of the index.

    Each part must be searched by a single launch. The measure must compare original rows, because a
    prepared search does not encode its queries.
    """
    encode_queries = getattr(type(measure), "encode_queries", None)
    is_original = capabilities(measure).append and encode_queries is BaseMeasure.encode_queries
    return is_original and all(plan.launch_is_whole_search for plan in plans)

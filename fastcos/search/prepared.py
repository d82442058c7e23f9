"""Prepared searches: an index stores kernel calls, like the prepared statements of a database.

A prepared search of one query takes a few microseconds in addition to the time of its kernel. In a
small index, searching takes less time than validating and encoding the queries and planning the
search. An index therefore stores the kernel calls of a search, with all of their arguments except
the queries (``launch.Launch``). The stored calls are found by a key, which consists of k and of the
shape and the number type of the queries. If the plan depends on the number of threads or on the
working memory, as in a large index, the key contains these options as well. The next search with
the same key passes its queries to the kernel, which validates them by their norms. Queries are
converted only if their number type differs from the number type of the items. The kernel computes
the norms of the queries, and reports queries with unusual norms.

A search can be prepared under three conditions. If a search does not meet all three conditions,
``PreparedSearches.search`` returns None, and ``execute.execute`` runs the search, with the same
results.

1. Only k and a mask of the items limit the results. The only option that the caller may set is the
   number of threads. ``SimilarityIndex.search`` checks condition 1 before it calls
   ``PreparedSearches.search``. ``allowed_ids`` and ``exclude_ids`` are permitted if they are the
   same for all queries. The ids are then converted to a mask; if only a few ids are excluded, they
   are dropped from the results instead.
2. According to the plans, each segment of the index is searched completely by a single launch. The
   measure compares original rows (``can_be_prepared``). ``explain`` calls ``can_be_prepared``, too.
3. k is an int, the queries are an aligned array in C order that a launch can read
   (``_can_be_read``), and no query has a norm that is zero, very small or very large. No plan
   mentions the condition on the norms, because plans do not depend on the values of the queries.

The method ``PreparedSearches.search`` finds and runs the stored launches, and converts their
results. If the index has several segments, it also calls ``_merge``. Launches are stored only for
shapes and number types that a launch can read. If a search finds stored launches, the shape and the
number type of its queries are therefore not checked again. ``_find_or_plan`` is called in four
cases: no launches are stored, the stored launches are outdated, the key of the stored launches
contains the options, or the call passes a mask or a number of threads.
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
from fastcos.search.segments import Segment
from fastcos.search.sources import FittedItems
from fastcos.similarity import kernel_records
from fastcos.similarity.base import BaseMeasure, Measure, capabilities

# An index remembers at most this many searches.
_MAX_STORED = 256
# The launches of one search. Each segment of the index has one launch, which is stored together
# with the segment. For a search that cannot be prepared, the tuple is empty. The empty tuple
# is stored, too, so that the search is not planned again.
_Launches = tuple[tuple[Launch, Segment], ...]


class PreparedSearches:
    """The prepared searches of an index, which are found by k and the form of the queries."""

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
        # The launches of each search. The key consists of the shape and the number type of the
        # queries and of k. If the plans depend on the options, the key also contains the options.
        self._launches: dict[tuple[Any, ...], _Launches] = {}
        # Most measures that compute cosines return them as scores without conversion. Cosines
        # cannot exceed the range of float32, so scores that are cosines need no check for overflow.
        self._scores_are_cosines = (
            type(self._measure).to_score is BaseMeasure.to_score
            and self._measure.metric_type == "cosine"
        )

    # --- Every search ---

    def search(
        self, queries: Any, k: Any, n_threads: int | None = None, allowed: Any = None
    ) -> IndexNeighbors | None:
        """Return the k nearest items of each query, or None for a search that cannot be prepared.

        The arguments are those of ``SimilarityIndex.search``; ``allowed=None`` allows all items.
        """
        if type(queries) is not np.ndarray or type(k) is not int:
            return None
        flags = queries.flags
        if not (flags.c_contiguous and flags.aligned):
            return None
        launches = self._launches.get((queries.shape, queries.dtype, k))
        if launches is None or n_threads is not None or allowed is not None:
            # If the index has many items, its launches depend on the number of threads or on the
            # working memory. Such launches are stored under a key that contains the options.
            # _find_or_plan looks up a key of this kind, and plans the search only if it finds no
            # launches.
            options = as_options(n_threads, None)
            launches = self._find_or_plan(queries.shape, queries.dtype, k, options, allowed)
        if not launches:  # the search cannot be prepared
            return None
        query_matrix = queries if queries.ndim == 2 else queries[np.newaxis]
        rankings = []
        for launch, segment in launches:
            # The segment has already been packed, so reading ``packed``, a lazy attribute, takes no
            # lock.
            if launch.packed is not segment.packed:
                # A projection has been added to the segment, and its packed rows have been
                # replaced. The stored launches still refer to the old packed rows, so they are
                # deleted.
                self._launches.clear()
                return self.search(queries, k, n_threads, allowed)
            ranking = launch.run(query_matrix)
            if ranking is None:  # the norm of a query is zero, NaN, tiny or huge
                return None
            rankings.append(ranking)
        # All segments together contain at least k allowed rows (SearchPlan.launch_is_whole_search),
        # so the positions contain no padding (-1).
        if self._ids_of_rows is not None:
            positions, raw_scores = rankings[0]
            ids = self._ids_of_rows[positions]
        else:
            positions, raw_scores = self._merge(rankings, k)
            ids = ids_at(self._parts, positions)
        if self._scores_are_cosines:
            return IndexNeighbors(positions, raw_scores.astype(np.float32), ids)
        scores = rounded_scores(self._measure.to_score(raw_scores, query_matrix))
        return IndexNeighbors(positions, scores, ids)

    def _merge(self, rankings: list[Ranking], k: int) -> Ranking:
        """Return positions and raw scores (n, k) of the best items of all segments."""
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

    # --- Looking up launches by the options, and planning a search without stored launches ---

    def _find_or_plan(
        self,
        shape: tuple[int, ...],
        number_type: np.dtype[Any],
        k: int,
        options: ExecutionOptions,
        allowed: Any,
    ) -> _Launches:
        """Return stored launches, or plan the search and store its launches.

        If the search cannot be prepared, the method returns an empty tuple. If ``allowed``
        restricts the search, the method always makes new launches and does not store them.
        """
        if not (self._can_be_read(shape, number_type) and k > 0):
            return ()
        if any(not part.segment.packed_forms for part in self._parts):
            for part in self._parts:
                part.segment.pack()
            if any(not part.segment.packed_forms for part in self._parts):
                return ()  # the kernels are not compiled yet
        n = 1 if len(shape) == 1 else shape[0]
        if allowed is not None:
            if type(allowed) is not np.ndarray:
                return ()
            mask = validation.as_item_mask("allowed", allowed, self._n_positions)
            return self._plan(n, k, options, mask)
        key = shape, number_type, k
        for stored_key in (key, (*key, options)):
            stored_launches = self._launches.get(stored_key)
            if stored_launches is not None:
                return stored_launches
        launches = self._plan(n, k, options, None)
        if len(self._launches) >= _MAX_STORED:
            self._launches.clear()
        # If a search cannot be prepared with one set of options, it cannot be prepared with any
        # other set. The empty tuple is therefore stored under a key without options.
        fits_all_options = all(launch.fits_all_options for launch, _ in launches)
        self._launches[key if fits_all_options else (*key, options)] = launches
        return launches

    def _can_be_read(self, shape: tuple[int, ...], number_type: np.dtype[Any]) -> bool:
        """Return whether a launch can read queries of this shape and type.

        The rows must be native float32 or float64 numbers, and must have as many columns as the
        items. Queries of any other form must be validated, so no prepared search can answer them.
        """
        return (
            number_type.char in "fd"
            and number_type.isnative
            and len(shape) in (1, 2)
            and shape[-1] == self._width
            and shape[0] > 0
        )

    def _plan(
        self, n: int, k: int, options: ExecutionOptions, mask: npt.NDArray[np.bool_] | None
    ) -> _Launches:
        """Plan the search of every segment, and return its launches.

        If the search cannot be prepared, the method returns an empty tuple. ``mask`` says which
        positions are allowed in the results; None allows all positions.
        """
        launches = []
        for part in self._parts:
            segment = part.segment
            allowed_rows = segment.live if mask is None else segment.allow_mask(mask)
            # The packed rows are read before the plan is made. If a projection is added after this
            # line, the segment gets new packed rows, but the launch still refers to the old ones.
            # ``search`` recognises that the launch is outdated, because it compares the packed rows
            # of the launch with those of the segment.
            packed = segment.packed_rows
            request = SegmentRequest(k, no_exclusions(n), allowed_rows, None, self._n_live)
            plan = plan_segment(segment, n, request, options)
            if not can_be_prepared(self._measure, [plan]):
                return ()
            if packed is None:
                # Only one row of each group of duplicates has been packed so far. The mask may
                # exclude the packed row of a group but allow one of its duplicates, so all rows of
                # the group must be packed.
                packed = segment.packed
            filters = kernel_records.NO_FILTERS
            if allowed_rows is not None:
                filters = kernel_records.masked(allowed_rows.mask)
            launches.append((launch_of(plan, packed, filters, k, check_norms=True), segment))
        return tuple(launches)


def can_be_prepared(measure: Measure, plans: Iterable[SearchPlan]) -> bool:
    """Return whether an index prepares a search; ``plans`` contains one plan per segment.

    Each segment must be searched by a single launch. The measure must compare original rows and not
    encoded rows, because a prepared search does not encode its queries.
    """
    encode_queries = getattr(type(measure), "encode_queries", None)
    is_original = capabilities(measure).append and encode_queries is BaseMeasure.encode_queries
    return is_original and all(plan.launch_is_whole_search for plan in plans)

"""Prepared searches: an index keeps the plans of searches of few queries, as a database does.

A warm search of one query takes ten microseconds. To check and encode the queries and to plan the
search would take longer than that. Where ``plan_search`` says that a search is a single launch of
one kernel for each part of the index (``SearchPlan.can_be_prepared``), the index therefore
prepares the search: it keeps the plan and all arguments of the kernel except the queries, by the
numbers of queries and neighbours. A prepared search takes the queries as they are. The kernel
measures their norms, and it reports queries that need more care.

``PreparedSearches.search`` returns None for every call that has to be checked, converted or planned
in another way. ``execute.run_search`` then gives the same answer.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.kernels import few_queries
from fastcos.search.filters import no_exclusions
from fastcos.search.index_parts import IndexPart, ids_at
from fastcos.search.options import ExecutionOptions, as_options
from fastcos.search.packing import PackedItems
from fastcos.search.plan import SearchPlan
from fastcos.search.rankings import Ranking, select_best
from fastcos.search.request import rounded_scores
from fastcos.search.results import IndexNeighbors
from fastcos.search.scan import (
    SegmentRequest,
    as_searched,
    few_query_settings,
    plan_segment,
    scan_few_queries,
)
from fastcos.search.sources import FittedItems
from fastcos.similarity import kernel_records
from fastcos.similarity.base import BaseMeasure, Measure, capabilities
from fastcos.validation import Rows

# The number of searches that an index keeps prepared.
_MAX_PREPARED = 256


class Launch(NamedTuple):
    """A planned search of one part of an index, with all arguments of its kernel but the queries.

    Attributes
    ----------
    part : IndexPart
    plan : SearchPlan
    settings : kernels.records.FewQuerySearch
        The plan as the kernel takes it.
    filters : kernels.records.QueryFilters
        Which rows may be found.
    packed : PackedItems
        The packed rows for which the search was planned.
    """

    part: IndexPart
    plan: SearchPlan
    settings: Any
    filters: Any
    packed: PackedItems

    @property
    def is_outdated(self) -> bool:
        """Whether the rows have been given a projection since the search was planned."""
        return self.part.segment.packed is not self.packed

    def run(self, queries: Rows, k: int) -> Ranking:
        """Return row numbers and raw scores (n, k) of the best rows of the part."""
        segment = self.part.segment
        queries = as_searched(queries, segment.encoded.rows.dtype)
        return scan_few_queries(segment.packed, self.plan, self.settings, queries, self.filters, k)


class PreparedSearches:
    """The searches that an index has prepared, by their numbers of queries and neighbours."""

    def __init__(self, items: FittedItems, parts: Sequence[IndexPart]) -> None:
        self._measure, self._parts = items.measure, tuple(parts)
        self._n_positions, self._n_live = items.n_items, items.n_live
        self._width = items.rows.shape[1]
        first = self._parts[0].segment
        # Nearly every index has one part, in which the positions are the numbers of the rows.
        self._positions_are_rows = (
            len(self._parts) == 1 and first.first == 0 and first.positions is None
        )
        # The launches for all parts by the numbers of queries and neighbours, and by the options,
        # too, where the plans depend on them. Empty for a search that cannot be prepared.
        self._launches: dict[tuple[Any, ...], tuple[Launch, ...]] = {}
        # Cosines are in the range of float32, and most measures return them as they are.
        self._scores_are_cosines = (
            type(self._measure).to_score is BaseMeasure.to_score
            and self._measure.metric_type == "cosine"
        )

    def search(
        self, queries: Any, k: Any, n_threads: int | None = None, allowed: Any = None
    ) -> IndexNeighbors | None:
        """Return the k nearest items of each query, or None for a search that cannot be prepared.

        The arguments are those of ``SimilarityIndex.search``; allowed: None for all items.
        """
        if not (_can_be_read(queries, self._width) and type(k) is int and k > 0):
            return None
        rows = validation.read_only(queries if queries.ndim == 2 else queries[np.newaxis])
        launches = self._kept((len(rows), k))
        if launches is None or n_threads is not None or allowed is not None:
            launches = self._prepare(len(rows), k, as_options(n_threads, None), allowed)
        if not launches:
            return None
        rankings = []
        for launch in launches:
            row_numbers, raw_scores = launch.run(rows, k)
            # The kernel compares the norms with limits, and NaN fails every comparison.
            if row_numbers[0, 0] == few_queries.NOT_ORDINARY:
                return None
            rankings.append((row_numbers, raw_scores))
        # No row number is -1: only a plan that finds k rows for every query is prepared.
        if self._positions_are_rows:
            positions, ids = row_numbers, launch.part.ids.values.take(row_numbers)
        else:
            positions, raw_scores = self._merge(rankings, k)
            ids = ids_at(self._parts, positions)
        if self._scores_are_cosines:
            return IndexNeighbors(positions, raw_scores.astype(np.float32), ids)
        scores = rounded_scores(self._measure.to_score(raw_scores, rows))
        return IndexNeighbors(positions, scores, ids)

    def _merge(self, rankings: list[Ranking], k: int) -> Ranking:
        """Return positions and raw scores (n, k) of the best of all parts."""
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

    def _prepare(
        self, n: int, k: int, options: ExecutionOptions, allowed: Any
    ) -> tuple[Launch, ...]:
        """Return the launches for all parts, planned now unless they are kept."""
        if any(not part.segment.packed_forms for part in self._parts):
            for part in self._parts:
                part.segment.pack()
            if any(not part.segment.packed_forms for part in self._parts):
                return ()  # the kernels are not compiled yet
        if allowed is not None:
            if type(allowed) is not np.ndarray:
                return ()
            mask = validation.as_item_mask("allowed", allowed, self._n_positions)
            return self._plan(n, k, options, mask)
        launches = self._kept((n, k))
        if launches is None:
            launches = self._kept((n, k, options))
        if launches is None:
            launches = self._plan(n, k, options, None)
            fits_all_options = all(launch.plan.fits_all_options for launch in launches)
            if len(self._launches) >= _MAX_PREPARED:
                self._launches.clear()
            self._launches[(n, k) if fits_all_options else (n, k, options)] = launches
        return launches

    def _kept(self, key: tuple[Any, ...]) -> tuple[Launch, ...] | None:
        """Return the launches that are kept under a key, unless one of them is outdated."""
        launches = self._launches.get(key)
        if launches and any(launch.is_outdated for launch in launches):
            return None
        return launches

    def _plan(
        self, n: int, k: int, options: ExecutionOptions, mask: npt.NDArray[np.bool_] | None
    ) -> tuple[Launch, ...]:
        """Plan a search of every part; return no launches unless each plan is a single launch.

        mask: the positions that may be found, None for all.
        """
        launches = []
        for part in self._parts:
            segment = part.segment
            rows = segment.live if mask is None else segment.allow_mask(mask)
            # before the plan: a projection that is added meanwhile makes the launch outdated
            packed = segment.packed_forms[0]
            request = SegmentRequest(k, no_exclusions(n), rows, None, self._n_live)
            plan = plan_segment(segment, n, request, options)
            if not plan.can_be_prepared:
                return ()
            filters = kernel_records.NO_FILTERS
            if rows is not None:
                filters = kernel_records.masked(rows.mask)
            settings = few_query_settings(plan, must_check=True)
            launches.append(Launch(part, plan, settings, filters, packed))
        return tuple(launches)


def compares_rows_as_given(measure: Measure) -> bool:
    """Whether a measure compares rows as they are, so that searches by it can be prepared."""
    encode_queries = getattr(type(measure), "encode_queries", None)
    return capabilities(measure).append and encode_queries is BaseMeasure.encode_queries


def _can_be_read(queries: Any, width: int) -> bool:
    """Whether kernels can read the queries as they are.

    This is validation and not planning: other queries have the same neighbours once they have been
    converted to C-contiguous rows of native float32 or float64.
    """
    return (
        type(queries) is np.ndarray
        and queries.dtype.char in "fd"
        and queries.dtype.isnative
        and queries.ndim in (1, 2)
        and queries.shape[-1] == width
        and len(queries) > 0
        and queries.flags.c_contiguous
        and queries.flags.aligned
    )

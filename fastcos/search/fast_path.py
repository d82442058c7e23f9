"""The fast path of an index: few ordinary queries, with one launch of one kernel for each part.

A warm search of one query takes ten microseconds, and conversions and checks would take longer than
that. ``FastPath`` follows the same plans as every other search (``fastcos.search.plan``). It keeps
the plans by the number of queries and neighbours, and it skips these steps:

======================= ==========================================================================
skipped step            why it is not needed
======================= ==========================================================================
conversion of rows      queries are C-contiguous float32 or float64 arrays
checks of numbers       the kernel measures the queries' norms and reports what is not ordinary
encoding                the measure compares rows as they are given
batches                 few queries are one batch
filters, exclusions     there is no filter except a mask of the allowed items
padding                 at least k items can be found
======================= ==========================================================================

For every other call it returns None, and ``execute.run_search`` answers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import config, validation
from fastcos.kernels import tile_top_k
from fastcos.search import cost_model, plan, scan, segments
from fastcos.search.ids import Ids
from fastcos.search.index_parts import IndexPart
from fastcos.search.packing import ExecutionOptions
from fastcos.search.segments import Segment
from fastcos.search.sources import ItemSource
from fastcos.similarity import kernel_records
from fastcos.similarity.base import BaseMeasure, capabilities
from fastcos.validation import Integers

PositionsScoresIds = tuple[Integers, npt.NDArray[np.float32], Ids]

# A plan, and the record by which the kernel is told about it.
_Launch = tuple[plan.SearchPlan, Any]
# Plans that an index keeps.
_MAX_PLANS = 256


class _Part(NamedTuple):
    """A part of an index as the scan takes it, and how many of its items can be found."""

    segment: Segment
    filters: Any
    n_allowed: int | None


class FastPath:
    """Answers few ordinary queries from the packed parts of an index; returns None otherwise."""

    def __init__(self, fitted: ItemSource, parts: Sequence[IndexPart]) -> None:
        self._measure, self._parts = fitted.measure, parts
        self._n_live, self._width = fitted.n_live, fitted.rows.shape[1]
        # cosines are in the range of float32, and the measure returns them as they are
        self._scores_are_cosines = (
            type(fitted.measure).to_score is BaseMeasure.to_score
            and fitted.measure.metric_type == "cosine"
        )
        self._packed: list[_Part] = []
        # The launches of all parts, by the numbers of queries, neighbours and threads; an empty
        # tuple where such a search does not take the fast path.
        self._launches: dict[tuple[int, int, int | None], tuple[_Launch, ...]] = {}
        first = fitted.segments[0]
        self._positions_are_rows = first.first == 0 and first.positions is None

    @staticmethod
    def serves(fitted: ItemSource) -> bool:
        """Whether the items are searched by a measure that compares rows as they are."""
        measure = fitted.measure
        return (
            bool(fitted.segments)
            and capabilities(measure).append
            and type(measure).encode_queries is BaseMeasure.encode_queries
        )

    def search(
        self,
        queries: Any,
        k: Any,
        n_threads: int | None,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> PositionsScoresIds | None:
        """Positions, scores and ids (n, k); None if a step is needed that this leaves out.

        allowed: a mask of the positions that may be found, None for all.
        """
        parts = self._packed or self._find_packed()
        if not parts or type(queries) is not np.ndarray or type(k) is not int:
            return None
        if queries.ndim == 1:
            queries = queries[np.newaxis]
        n, width = queries.shape if queries.ndim == 2 else (0, 0)
        flags, dtype = queries.flags, queries.dtype
        if n == 0 or k <= 0 or width != self._width or dtype.char not in "fd":
            return None
        if not (flags.c_contiguous and flags.aligned and dtype.isnative):
            return None
        if n_threads is not None and type(n_threads) is not int:
            # True == 1 and 1.0 == 1: only a checked int may be a key of the plans
            n_threads = validation.as_thread_count("n_threads", n_threads)
        if allowed is None:
            launches = self._launches.get((n, k, n_threads))
            if launches is None:
                launches = self._plan(parts, n, k, n_threads)
        else:
            parts = [_masked(part, allowed) for part in parts]
            launches = self._plan(parts, n, k, n_threads)
        if not launches:
            return None
        query_rows, results = validation.read_only(queries), []
        for (segment, filters, _), (search_plan, settings) in zip(parts, launches, strict=True):
            packed = segment.packed  # a projection may have been added
            rows, item_type = query_rows, segment.encoded.rows.dtype
            if dtype != item_type:
                rows = scan.as_searched(query_rows, item_type)
            columns, raw = scan.scan_few_queries(
                packed, search_plan, rows, filters, k, settings=settings
            )
            if columns[0, 0] == tile_top_k.NOT_ORDINARY:
                return None
            results.append((columns, raw))
        if len(parts) == 1:
            ids = self._parts[0].ids.values.take(columns)
            if not self._positions_are_rows:
                columns = parts[0].segment.positions_of(columns)
        else:
            positions = [
                part.segment.positions_of(columns)
                for part, (columns, _) in zip(parts, results, strict=True)
            ]
            columns, raw = segments.best_of_lists(
                np.concatenate(positions, axis=1),
                np.concatenate([scores for _, scores in results], axis=1), k, 1,
            )  # fmt: skip
            ids = self._ids_at(columns)
        if self._scores_are_cosines:
            scores = raw.astype(np.float32)
        else:
            # scores beyond float32 become infinite; the order is that of the float64 scores
            with np.errstate(over="ignore"):
                scores = self._measure.to_score(raw, queries).astype(np.float32)
        return columns, scores, ids

    def _plan(
        self, parts: Sequence[_Part], n: int, k: int, n_threads: int | None
    ) -> tuple[_Launch, ...]:
        """Return a launch for each part; none where a plan asks for anything but a small scan.

        Plans for all items are kept. Those for the number of threads that is set are kept only
        where more than one thread would not pay: the setting may change.
        """
        follows_setting = n_threads is None
        size = config.n_threads()
        if n_threads is not None:
            size = validation.as_thread_count("n_threads", n_threads)
        options = ExecutionOptions(size, config.working_memory() * 2**20)
        plans: list[plan.SearchPlan] = []
        for segment, _, n_allowed in parts:
            sizes = segment.sizes(None if n_allowed is not None else self._n_live)
            request = plan.RequestSizes(n, k, n_allowed)
            part_plan = plan.plan_search(
                sizes, request, scan.machine_of(options, segment.packed.layout.isa)
            )
            # the results of this path are not padded
            n_findable = self._n_live if n_allowed is None else n_allowed
            if not (part_plan.method == "tiles" and part_plan.shares_rows and k <= n_findable // 8):
                plans = []
                break
            plans.append(part_plan)
        launches = tuple(
            (part_plan, scan.few_query_settings(part_plan, must_check=True)) for part_plan in plans
        )
        # the settings of threads and memory may change: plans that depend on them are not kept
        max_bytes = cost_model.COSTS.max_unchecked_bytes
        is_small = all(part_plan.buffer_bytes <= max_bytes for part_plan in plans)
        is_fixed = not follows_setting or all(part_plan.max_threads == 1 for part_plan in plans)
        if parts is self._packed and is_small and is_fixed:
            if len(self._launches) >= _MAX_PLANS:
                self._launches.clear()
            self._launches[n, k, n_threads] = launches
        return launches

    def _find_packed(self) -> list[_Part]:
        """Return the packed parts; none while kernels are not compiled, or where rows repeat."""
        packed_parts = []
        for part in self._parts:
            segment = part.segment
            if not segment.packed_forms:
                segment.pack()
            if not segment.packed_forms or segment.duplicates is not None:
                return []
            filters = kernel_records.NO_FILTERS
            if segment.live is not None:
                filters = kernel_records.masked(segment.live.mask)
            packed_parts.append(_Part(segment, filters, None))
        self._packed = packed_parts
        return packed_parts

    def _ids_at(self, positions: Integers) -> Ids:
        """Return the ids at positions that a search has found."""
        values = [part.ids.values for part in self._parts]
        ids: Ids = np.empty(positions.shape, np.result_type(*values))
        for part, part_ids in zip(self._parts, values, strict=True):
            rows, is_in_part = part.segment.locate(positions)
            ids[is_in_part] = part_ids[rows[is_in_part]]
        return ids


def _masked(part: _Part, allowed: npt.NDArray[np.bool_]) -> _Part:
    """Return a part of which only the allowed positions can be found."""
    segment = part.segment
    if segment.positions is None:
        mask = allowed[segment.first : segment.first + len(segment.encoded.rows)]
    else:
        mask = allowed[segment.positions]
    if segment.live is not None:
        mask = mask & segment.live.mask.view(np.bool_)
    # a copy that can be written, like all masks here: kernels are compiled for each kind of array
    filters = kernel_records.masked(np.array(mask, np.bool_).view(np.uint8))
    return _Part(segment, filters, int(np.count_nonzero(mask)))

"""The short way of a plain search: few ordinary queries of an index, in one launch of one kernel.

A warm search of one query takes ten microseconds, of which conversions and checks would be the
larger part. ``PlainSearch`` follows the same plans as every other search (``plan``), but it keeps
them by the number of queries and neighbours, and it leaves out what the kernel can tell by itself:

======================= ==========================================================================
step left out           why it is not needed
======================= ==========================================================================
conversion of rows      queries are C-contiguous float32 or float64 arrays
checks of numbers       the kernel measures the queries' norms and reports what is not ordinary
encoding                the measure compares rows as they are given
batches                 the plan is one launch for each part of the index
filters, exclusions     there are none but a mask of the items that may be found
padding                 at least k items can be found
======================= ==========================================================================

For every other call it returns None, and ``execute.search`` answers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import config, validation
from fastcos.kernels import tile_top_k
from fastcos.search import plan, scan, segments
from fastcos.search.ids import Ids
from fastcos.search.index_parts import IndexPart
from fastcos.search.packing import ExecutionOptions
from fastcos.search.segments import Segment
from fastcos.search.sources import ItemSource
from fastcos.similarity import kernel_records
from fastcos.similarity.base import BaseMeasure, capabilities
from fastcos.validation import Integers

Found = tuple[Integers, npt.NDArray[np.float32], Ids]

# a plan, and what the kernel is given of it
_Launch = tuple[plan.SearchPlan, Any]
# plans that an index keeps, by the number of queries and neighbours
_MAX_PLANS = 256


class _Part(NamedTuple):
    """A part of an index as the scan takes it, and how many of its items can be found."""

    segment: Segment
    filters: Any
    n_allowed: int | None


class PlainSearch:
    """Searches of the parts of an index; None is returned for other calls."""

    def __init__(self, fitted: ItemSource, parts: Sequence[IndexPart]) -> None:
        self._measure, self._parts = fitted.measure, parts
        self._n_live, self._width = fitted.n_live, fitted.rows.shape[1]
        has_raw_scores = type(fitted.measure).to_score is BaseMeasure.to_score
        self._is_cosine = has_raw_scores and fitted.measure.metric_type == "cosine"
        self._packed: list[_Part] = []
        # plans of all parts by queries, neighbours and threads; () where this is not the way
        self._plans: dict[tuple[int, int, int | None], tuple[_Launch, ...]] = {}
        # whether positions are not the row numbers of the only part
        first = fitted.segments[0]
        self._is_moved = first.first > 0 or first.positions is not None

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
    ) -> Found | None:
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
            # no number that only equals a whole one may find a plan
            n_threads = validation.as_thread_count("n_threads", n_threads)
        if allowed is None:
            plans = self._plans.get((n, k, n_threads))
            if plans is None:
                plans = self._plan(parts, n, k, n_threads)
        else:
            parts = [_masked(part, allowed) for part in parts]
            plans = self._plan(parts, n, k, n_threads)
        if not plans:
            return None
        given, found = validation.read_only(queries), []
        for (segment, filters, _), (made, search) in zip(parts, plans, strict=True):
            packed = segment.packed  # a projection may have been added
            rows, item_type = given, segment.encoded.rows.dtype
            if dtype != item_type:
                rows = scan.as_searched(given, item_type)
            columns, raw = scan.scan_panels(packed, made, rows, filters, k, search=search)
            if columns[0, 0] == tile_top_k.NOT_ORDINARY:
                return None
            found.append((columns, raw))
        if len(parts) == 1:
            ids = self._parts[0].ids.values.take(columns)
            if self._is_moved:
                columns = parts[0].segment.positions_of(columns)
        else:
            positions = [
                part.segment.positions_of(columns)
                for part, (columns, _) in zip(parts, found, strict=True)
            ]
            columns, raw = segments.best_of_lists(
                np.concatenate(positions, axis=1),
                np.concatenate([scores for _, scores in found], axis=1), k, 1,
            )  # fmt: skip
            ids = self._ids_at(columns)
        if self._is_cosine:
            scores = raw.astype(np.float32)
        else:
            with np.errstate(over="ignore"):  # infinite beyond float32; the order is of float64
                scores = self._measure.to_score(raw, queries).astype(np.float32)
        return columns, scores, ids

    def _plan(
        self, parts: Sequence[_Part], n: int, k: int, n_threads: int | None
    ) -> tuple[_Launch, ...]:
        """Return a plan for each part, none where another way is planned for one of them.

        Plans for all items are kept. Those for the number of threads that is set are kept only
        where more than one thread would not pay: the setting may change.
        """
        is_set = n_threads is None
        size = config.n_threads()
        if n_threads is not None:
            size = validation.as_thread_count("n_threads", n_threads)
        options = ExecutionOptions(size, config.working_memory() * 2**20)
        made: list[plan.SearchPlan] = []
        for segment, _, n_allowed in parts:
            sizes = segment.sizes(None if n_allowed is not None else self._n_live)
            request = plan.RequestSizes(n, k, n_allowed)
            one = plan.plan_search(
                sizes, request, scan.machine_of(options, segment.packed.layout.isa)
            )
            enough = self._n_live if n_allowed is None else n_allowed
            if not (one.method == "tiles" and one.shares_rows and k <= enough // 8):
                made = []
                break
            made.append(one)
        plans = tuple((one, scan.small_search(one, must_check=True)) for one in made)
        # the settings of threads and memory may change: plans that depend on them are not kept
        is_small = all(one.buffer_bytes <= plan.COSTS.max_unchecked_bytes for one in made)
        is_fixed = not is_set or all(one.max_threads == 1 for one in made)
        if parts is self._packed and is_small and is_fixed:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[n, k, n_threads] = plans
        return plans

    def _find_packed(self) -> list[_Part]:
        """Return the packed parts; none while kernels are not compiled, or where rows repeat."""
        found = []
        for part in self._parts:
            segment = part.segment
            if not segment.packed_forms:
                segment.pack()
            if not segment.packed_forms or segment.duplicates is not None:
                return []
            left = segment.live
            filters = kernel_records.NO_FILTERS
            if left is not None:
                filters = kernel_records.masked(left.mask)
            found.append(_Part(segment, filters, None))
        self._packed = found
        return found

    def _ids_at(self, positions: Integers) -> Ids:
        """Return the ids at positions that a search has found."""
        values = [part.ids.values for part in self._parts]
        ids: Ids = np.empty(positions.shape, np.result_type(*values))
        for part, own in zip(self._parts, values, strict=True):
            numbers, is_here = part.segment.locate(positions)
            ids[is_here] = own[numbers[is_here]]
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

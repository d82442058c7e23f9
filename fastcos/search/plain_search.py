"""A plain search of an index: few queries, at most a mask of items.

What depends on the index is decided once.

``PlainSearch`` is made when an index is fitted, opened or changed. It answers what needs none of
these steps of ``search.search``, and returns None for the rest:

======================= ==========================================================================
step                    not needed because
======================= ==========================================================================
conversion of rows      queries are C-contiguous float32 or float64 arrays
checks of numbers       the kernel measures the queries' norms and reports what is not ordinary
encoding                the measure compares rows as they are given
batches, blocks         up to 64 queries and their candidates fit any working memory
filters, exclusions     there are none but a mask of the items that may be found
plan                    every part of the index is packed, and has no groups of duplicates
padding                 at least k items can be found
======================= ==========================================================================

What is left: outputs, one launch of ``kernels.tile_top_k.scan_panels`` for each part, which is the
whole index until something is added, the scores, the ids.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import config, validation
from fastcos.kernels import tile_top_k, tiles
from fastcos.search import scan, segments
from fastcos.search.ids import Ids
from fastcos.search.index_parts import IndexPart
from fastcos.search.packing import NO_FILTERS
from fastcos.search.request import FittedItems
from fastcos.search.segments import Segment
from fastcos.similarity.base import Plain, capabilities
from fastcos.validation import Integers

Found = tuple[Integers, npt.NDArray[np.float32], Ids]


class _Part(NamedTuple):
    """A part of an index as the scan takes it. n: items that can be found."""

    segment: Segment
    filters: tuple[Any, ...]
    n: int


class PlainSearch:
    """Searches of the parts of an index; None is returned for other calls."""

    def __init__(self, fitted: FittedItems, parts: Sequence[IndexPart]) -> None:
        self._measure, self._parts = fitted.measure, parts
        self._n, self._width = fitted.n_live, fitted.rows.shape[1]
        has_raw_scores = type(fitted.measure).to_score is Plain.to_score
        self._is_cosine = has_raw_scores and fitted.measure.metric_type == "cosine"
        self._packed: list[_Part] = []
        # whether positions are not the numbers of the rows of the only part
        first = fitted.segments[0]
        self._is_moved = first.first > 0 or first.positions is not None

    @staticmethod
    def serves(fitted: FittedItems) -> bool:
        """Whether the items are searched by a measure that compares rows as they are."""
        measure = fitted.measure
        return (
            tiles.AVAILABLE
            and bool(fitted.segments)
            and max(len(segment.encoded.rows) for segment in fitted.segments) < scan.MAX_ITEMS
            and capabilities(measure).append
            and type(measure).encode_queries is Plain.encode_queries
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
        if not (0 < n <= scan.FEW_QUERIES and 0 < k <= self._n // 8 and width == self._width):
            return None
        flags, dtype = queries.flags, queries.dtype
        if not (flags.c_contiguous and flags.aligned and dtype.isnative):
            return None
        if dtype.char not in "fd":
            return None
        if n_threads is not None:
            n_threads = validation.as_thread_count("n_threads", n_threads)
        if allowed is not None:
            parts = [_masked(part, allowed) for part in parts]
            if any(n_items < 8 * k for _, _, n_items in parts):
                return None
            if segments.scores_are_faster(n, sum(part.n for part in parts), self._n):
                return None
        given, found = validation.read_only(queries), []
        for segment, filters, n_items in parts:
            packed = segment.packed  # prefixes may have been added
            rows, item_type = given, segment.encoded.rows.dtype
            if dtype != item_type:
                rows = scan.as_searched(given, item_type)
            n_runs = n_threads
            if n_runs is None:
                n_runs = config.n_threads() if scan.threads_pay(packed, n) else 1
            # the items that may be found are a share of the packed ones
            wanted = k if filters is NO_FILTERS else k * len(packed.arrays.order) / n_items
            columns, raw = scan.scan_few(
                packed, rows, filters, k, wanted, n_runs, must_check=True,
                has_guess=8 * k <= n_items,
            )  # fmt: skip
            if columns[0, 0] == tile_top_k.NOT_ORDINARY:
                return None
            found.append((columns, raw))
        if len(parts) == 1:
            ids = self._parts[0].ids.values.take(columns)
            if self._is_moved:
                columns = parts[0].segment.positions_of(columns)
        else:
            positions = [
                part.segment.positions_of(numbers)
                for part, (numbers, _) in zip(parts, found, strict=True)
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

    def _find_packed(self) -> list[_Part]:
        """Return the packed parts; none while kernels are not compiled, or where rows repeat."""
        found = []
        for part in self._parts:
            segment = part.segment
            if not segment.packed_forms:
                segment.pack()
            if not segment.packed_forms or segment.duplicates is not None:
                return []
            left = segment.left
            filters = NO_FILTERS if left is None else (*NO_FILTERS[:3], left.mask)
            found.append(_Part(segment, filters, len(segment.numbers)))
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
    if segment.left is not None:
        mask = mask & segment.left.mask.view(np.bool_)
    # a copy that can be written, like all masks here: kernels are compiled for each kind of array
    filters = (*NO_FILTERS[:3], np.array(mask, np.bool_).view(np.uint8))
    return _Part(segment, filters, int(np.count_nonzero(mask)))

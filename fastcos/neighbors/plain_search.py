"""A plain search of an index: few queries, no filter. What depends on the index is decided once.

``PlainSearch`` is made when an index is fitted, opened or changed. It answers what needs none of
these steps of ``search.search``, and returns None for the rest:

======================= ==========================================================================
step                    not needed because
======================= ==========================================================================
conversion of rows      queries are C-contiguous float32 or float64 arrays
checks of numbers       the kernel measures the queries' norms and reports what is not ordinary
encoding                the measure compares rows as they are given
batches, blocks         up to 64 queries and their candidates fit any working memory
filters, exclusions     there are none, and no item was removed
plan, merging           all items are one packed segment without groups of duplicates
positions               positions are numbers of rows
padding                 at least k items can be found, eight times as many or more
======================= ==========================================================================

What is left: outputs, one launch of ``kernels.tile_top_k.scan_panels``, the scores, the ids.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import config, validation
from fastcos.engine import scan
from fastcos.engine.packing import NO_FILTERS, PackedItems
from fastcos.engine.segments import Segment
from fastcos.kernels import tile_top_k, tiles
from fastcos.measures.base import Plain, UpperBounded, capabilities
from fastcos.neighbors.ids import Ids
from fastcos.neighbors.types import FittedItems

Found = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], Ids]


class PlainSearch:
    """Searches of one segment that holds all items of an index; None is returned for other calls.

    ids (p,): of the items, in their order.
    """

    def __init__(self, fitted: FittedItems, ids: Ids) -> None:
        self._segment: Segment = fitted.segments[0]
        self._measure, self._ids = fitted.measure, ids
        rows = self._segment.encoded.rows
        self._most_neighbors, self._width = len(rows) // 8, rows.shape[1]
        # float32 queries of other items are widened, see scan.as_wide
        self._types = "fd" if rows.dtype == np.float32 else "d"
        self._has_raw_scores = type(fitted.measure).to_score is Plain.to_score
        self._packed: PackedItems | None = None

    @staticmethod
    def serves(fitted: FittedItems) -> bool:
        """Whether all items can be found in one segment, by a measure of rows as they are."""
        if len(fitted.segments) != 1 or not tiles.AVAILABLE:
            return False
        segment, measure = fitted.segments[0], fitted.measure
        is_whole = segment.first == 0 and segment.positions is None and segment.left is None
        return (
            is_whole
            and fitted.n_items == len(segment.numbers) == len(segment.encoded.rows)
            and scan.LEAST_ITEMS <= fitted.n_items < scan.MAX_ITEMS
            and capabilities(measure).append
            and type(measure).encode_queries is Plain.encode_queries
            and not isinstance(measure, UpperBounded)
        )

    def search(self, queries: Any, k: Any, n_threads: int | None) -> Found | None:
        """Positions, scores and ids (n, k); None if a step is needed that this leaves out."""
        packed = self._packed or self._find_packed()
        if packed is None or type(queries) is not np.ndarray or type(k) is not int:
            return None
        if queries.ndim == 1:
            queries = queries[np.newaxis]
        n, width = queries.shape if queries.ndim == 2 else (0, 0)
        if not (0 < n <= scan.FEW_QUERIES and 0 < k <= self._most_neighbors):
            return None
        flags = queries.flags
        if width != self._width or not (flags.c_contiguous and flags.aligned):
            return None
        if queries.dtype.char not in self._types or not queries.dtype.isnative:
            return None
        if n_threads is not None:
            n_threads = validation.as_thread_count("n_threads", n_threads)
        elif scan.threads_pay(packed, n):
            n_threads = config.num_threads()
        columns, raw = scan.scan_few(
            packed, validation.read_only(queries), NO_FILTERS, k, k, n_threads or 1,
            must_check=True,
        )  # fmt: skip
        if columns[0, 0] == tile_top_k.NOT_ORDINARY:
            return None
        if self._has_raw_scores and packed.metric_type == "cosine":
            scores = raw.astype(np.float32)
        else:
            with np.errstate(over="ignore"):  # infinite beyond float32; the order is of float64
                scores = self._measure.to_score(raw, queries).astype(np.float32)
        return columns, scores, self._ids.take(columns)

    def _find_packed(self) -> PackedItems | None:
        """Return the packed items, unless the kernel is not compiled yet or copies are grouped."""
        segment = self._segment
        if not segment.packed_forms:
            segment.pack()
        if segment.packed_forms and segment.duplicates is None:
            self._packed = segment.packed
        return self._packed

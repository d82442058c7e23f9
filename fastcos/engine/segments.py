"""Segments: blocks of items that are searched one after the other, and what each one plans.

A segment never changes. It packs its rows when a search first needs that, so that a call with few
queries packs nothing. Items in memory are one segment; memory-mapped items are read as many.
"""

import functools
from collections.abc import Callable

import numpy as np

from fastcos import parallel, validation
from fastcos.engine import duplicates, scan, uncompiled
from fastcos.engine.packing import (
    EncodedRows,
    ExcludedItems,
    ExecutionOptions,
    Floats,
    Integers,
    PackedItems,
    no_exclusions,
    pack_items,
)
from fastcos.kernels.exhaustive_top_k import merge_rows, score_all_rows
from fastcos.kernels.tile_top_k import search_rows

# find(queries, exclusions, k, options) returns columns and raw scores (n, k), best first
Search = Callable[[EncodedRows, ExcludedItems, int, ExecutionOptions], scan.Found]

# packing a row costs as much as this many float64 scores of it (bench.search_plan)
QUERIES_TO_PACK = 20
# segments of memory-mapped items begin at multiples: a transform that multiplies so many rows at a
# time has the same bits in a segment as in the whole
SEGMENT_MULTIPLE = 4096
# queries whose neighbours from two segments are put side by side at once
_MERGED_ROWS = 4096


class Segment:
    """Encoded items with what searches need of them, made at first use.

    Attributes
    ----------
    metric_type : {"dot", "cosine", "euclidean"}
        How a pair of encoded rows is scored.
    encoded : EncodedRows
        Of all items, removed ones included.
    numbers : ndarray (m,), int64
        Ascending numbers of the items that can be found.
    first : int
        Number of the segment's item 0 among all items.
    """

    def __init__(
        self,
        metric_type: str,
        encoded: EncodedRows,
        numbers: Integers,
        n_threads: int | None = None,
        *,
        first: int = 0,
        packed: PackedItems | None = None,
    ) -> None:
        self.metric_type, self.encoded, self.first = metric_type, encoded, first
        self.numbers = validation.read_only(numbers)
        self._n_threads = n_threads
        if packed is not None:
            self.packed = packed

    @functools.cached_property
    def packed(self) -> PackedItems:
        """All items that can be found, packed."""
        return pack_items(self.metric_type, self.encoded, self.numbers, self._n_threads)

    @functools.cached_property
    def duplicates(self) -> duplicates.DuplicateGroups | None:
        """Groups of duplicates among the items that can be found, None where copies are few."""
        return duplicates.find_duplicates_among(self.encoded, self.numbers)

    @functools.cached_property
    def packed_distinct(self) -> PackedItems:
        """One item of every group of equal ones, packed."""
        groups = self.duplicates
        first = self.numbers if groups is None else groups.first
        return pack_items(self.metric_type, self.encoded, first, self._n_threads)

    def only(self, numbers: Integers) -> "Segment":
        """Return a segment in which only the items of these ascending numbers can be found."""
        return Segment(self.metric_type, self.encoded, numbers, self._n_threads, first=self.first)

    @property
    def packed_forms(self) -> list[PackedItems]:
        """What is packed by now: all items, one of every group of duplicates, both or neither."""
        return [vars(self)[name] for name in ("packed", "packed_distinct") if name in vars(self)]

    def pack(self) -> None:
        """Pack now what an unrestricted search will need, unless its kernels are not compiled."""
        if uncompiled.takes(search_rows, 0, 0, 0):
            return
        _ = self.packed if self.duplicates is None else self.packed_distinct

    def plan(
        self,
        n_queries: int,
        exclusions: ExcludedItems,
        permitted: Integers | None = None,
        thresholds: Floats | None = None,
    ) -> Search:
        """Choose how this many queries search the segment; call it as Search says.

        Few queries score all pairs, unless the items are packed already. Where items repeat and no
        filter separates copies, one of each is searched. Otherwise the tiles filter. Small searches
        do without kernels while these are not compiled.
        """
        is_unpacked, few = not self.packed_forms, n_queries <= QUERIES_TO_PACK
        numbers = self.numbers if permitted is None else permitted
        kernel = score_all_rows if few else search_rows
        size = n_queries, len(numbers), self.encoded.rows.shape[1]
        if is_unpacked and uncompiled.takes(kernel, *size) and self.duplicates is None:
            return functools.partial(uncompiled.search, self.metric_type, self.encoded, numbers)
        if is_unpacked and few:
            return functools.partial(scan.score_all, self.metric_type, self.encoded, numbers)
        if permitted is None and not len(exclusions.indices) and self.duplicates is not None:
            return functools.partial(duplicates.search, self.packed_distinct, self.duplicates)
        return functools.partial(
            scan.search, self.packed, permitted=permitted, thresholds=thresholds
        )


def nearest(
    queries: EncodedRows,
    items: Segment,
    k: int,
    options: ExecutionOptions,
    *,
    exclude_self: bool = False,
) -> scan.Found:
    """Columns and raw scores (n, k) of the nearest items: for measures that need neighbours."""
    exclusions = no_exclusions(len(queries.rows), own=exclude_self)
    find = items.plan(len(queries.rows), exclusions)
    return find(queries, exclusions, k, options)


def exclusions_within(exclusions: ExcludedItems, first: int, last: int) -> ExcludedItems:
    """Return the exclusions that lie in the items [first, last), as numbers within them."""
    inside = (exclusions.own >= first) & (exclusions.own < last)
    own = np.where(inside, exclusions.own - first, -1)
    start, end = exclusions.indptr[0], exclusions.indptr[-1]
    indices = exclusions.indices[start:end]
    kept = (indices >= first) & (indices < last)
    counts = np.concatenate([[0], np.cumsum(kept)])
    indptr = counts[exclusions.indptr - start].astype(np.int64)
    parts = (own, indptr, indices[kept] - first)
    return ExcludedItems(*map(validation.read_only, parts))


def merge(some: scan.Found, others: scan.Found, n_threads: int) -> scan.Found:
    """Columns and raw scores (n, k) of the k best of both."""
    columns = parallel.unfilled(some[0].shape, np.int64)
    scores = parallel.unfilled(some[0].shape, np.float64)
    blocks = parallel.row_blocks(len(columns), _MERGED_ROWS)
    parallel.run(_merge_rows, blocks, some, others, columns, scores, n_threads=n_threads)
    return columns, scores


def _merge_rows(
    lo: int, hi: int, some: scan.Found, others: scan.Found, columns: Integers, scores: Floats
) -> None:
    both_columns, both_scores = (
        validation.read_only(np.concatenate([one[lo:hi], other[lo:hi]], axis=1))
        for one, other in zip(some, others, strict=True)
    )
    block = parallel.row_blocks(hi - lo, hi - lo)
    parallel.run(merge_rows, block, both_scores, both_columns, scores[lo:hi], columns[lo:hi])

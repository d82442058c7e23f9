"""Segments: blocks of items that are searched one after the other, and what each one plans.

A segment never changes. It packs its rows once, when a search first needs that, so that a call with
few queries packs nothing. Items in memory are one segment, or as many as an index that grows has;
memory-mapped items are read as many. Numbers count the rows of a segment, positions those of all.
"""

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import tiles
from fastcos.kernels.exhaustive_top_k import merge_rows
from fastcos.parallel import memmap, readiness
from fastcos.search import duplicates, numpy_search, projection, scan
from fastcos.search.packing import (
    ExcludedItems,
    ExecutionOptions,
    PackedItems,
    PermittedItems,
    no_exclusions,
    norms_repeat,
    pack_items,
    permit,
    unpacked_items,
)
from fastcos.similarity.base import Measure, encode_items
from fastcos.similarity.encoded_rows import EncodedRows
from fastcos.validation import Floats, Integers, Rows

# find(queries, exclusions, k, options) returns columns and raw scores (n, k), best first
Search = Callable[[EncodedRows, ExcludedItems, int, ExecutionOptions], scan.Found]

# One thread of a Xeon with VNNI, 12,800,000 float32 numbers, ms of CPU (bench.lab.search_plan):
#                    score all pairs   rows as given   pack and search
#     64 columns, 2 queries    17             18              69
#                 4            31             17              67
#                10            84             18              69
#               150          1158             83              80
#    128 columns, 80            495            43              47
#               150            910            70              54
#  1,536 columns, 2             16             13              56
#               150           1181             65              79
# packing a row costs as much as this many float64 scores of it
QUERIES_TO_PACK = 7
# queries for which float32 tiles multiply rows as given: fewer wait for the rows in any case, and
# more pay for packing
_QUERIES_AS_GIVEN = range(4, 129)
# multiply-adds from which they do: fewer take 10 ms, without kernels of their own
WORK_AS_GIVEN = 2**28
# multiply-adds of one call, or of more, from which prefixes are added where an index did not: joins
# of 2^38.4 to 2^38.6 break even with k = 10 (384 to 1,536 columns), and of 2^40.3 take 0.73 of the
# time with k = 10, 1.05 with k = 100 (60,000 x 384), of 2^41.4 0.61 and 0.85 (60,000 x 768; vnni)
WORK_TO_PREFIX = 2**40
# a search of a part of the items. A float64 score takes as long as the tiles need to read this many
# items for one query: 7 for float32 rows of 384 columns that lie in a cache, 16 where they do not
_SCORE_TIME = 16
# queries that the tiles compare in the time in which they read the items for the first
_QUERIES_OF_SWEEP = 4
# norm, order, bias and factors of an item that is packed, in bytes
_BYTES_BESIDE_CODES = 160
# segments of memory-mapped items begin at multiples: a transform that multiplies so many rows at a
# time has the same bits in a segment as in the whole
SEGMENT_MULTIPLE = 4096
# pairs that a thread ranks at once
_PAIRS_PER_BLOCK = 20_000
# queries whose neighbours from two segments are put side by side at once
_MERGED_ROWS = 4096


class Segment:
    """Encoded items with what searches need of them, made at first use.

    encoded and rows (p, d), as given, are of all items, removed ones included; numbers (m,) of
    those that can be found, ascending. first: position of the segment's item 0 among all items;
    positions (p,): of all, ascending, None where they are first, first + 1, ... left: the items
    that can be found, where packed ones were removed; None where all packed ones can.
    """

    def __init__(
        self,
        metric_type: str,
        encoded: EncodedRows,
        numbers: Integers,
        n_threads: int | None = None,
        *,
        rows: Rows | None = None,
        first: int = 0,
        positions: Integers | None = None,
    ) -> None:
        self.metric_type, self.encoded, self.first = metric_type, encoded, first
        self.rows = encoded.rows if rows is None else rows
        self.numbers = validation.read_only(numbers)
        self.positions = validation.read_only(positions)
        self.left: PermittedItems | None = None
        self._n_threads = n_threads
        self._pending: projection.Pending | None = None
        self._work = 0  # multiply-adds until prefixes were thought of; -1 from then on

    @parallel.lazy_attribute
    def packed(self) -> PackedItems:
        """All items that can be found, packed."""
        return pack_items(self.metric_type, self.encoded, self.numbers, self._n_threads)

    @parallel.lazy_attribute
    def duplicates(self) -> duplicates.DuplicateGroups | None:
        """Groups of duplicates among the items that can be found, None where copies are few."""
        if not norms_repeat(self.encoded.norms[self.numbers]):
            return None
        return duplicates.find_duplicates_among(self.encoded, self.numbers)

    @parallel.lazy_attribute
    def packed_distinct(self) -> PackedItems:
        """One item of every group of equal ones, packed."""
        groups = self.duplicates
        first = self.numbers if groups is None else groups.first
        return pack_items(self.metric_type, self.encoded, first, self._n_threads)

    def only(self, numbers: Integers) -> "Segment":
        """Return a segment in which only the items of these ascending numbers can be found."""
        return Segment(
            self.metric_type, self.encoded, numbers, self._n_threads, rows=self.rows,
            first=self.first, positions=self.positions,
        )  # fmt: skip

    def without(self, gone: Integers) -> "Segment":
        """Return a segment in which the items of these numbers cannot be found.

        What is packed is shared, and searches skip the removed items: O(p) bytes. Where one item of
        every group of duplicates is packed, the result packs anew.
        """
        self.settle()
        mask = np.zeros(len(self.encoded.rows), np.uint8)
        mask[self.numbers] = 1
        mask[gone] = 0
        fewer = self.only(np.flatnonzero(mask))
        if "packed" in vars(self):
            fewer.packed, fewer.duplicates = self.packed, None
            fewer.left = PermittedItems(fewer.numbers, mask)
        return fewer

    def locate(self, positions: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the numbers of positions among all items, and whether each is of this segment."""
        n = len(self.encoded.rows)
        if self.positions is None:
            numbers = positions - self.first if self.first else positions
            return numbers, (numbers >= 0) & (numbers < n)
        numbers = np.minimum(np.searchsorted(self.positions, positions), n - 1)
        return numbers, self.positions[numbers] == positions

    def positions_of(self, numbers: Integers) -> Integers:
        """Return the positions of numbers; -1 stands for no item."""
        if self.positions is None:
            return numbers + self.first * (numbers >= 0) if self.first else numbers
        return np.where(numbers < 0, -1, self.positions[numbers])

    def permit(self, positions: Integers | None) -> PermittedItems | None:
        """Return which items may be found of those at ascending positions, None for all packed."""
        if positions is None:
            return self.left
        if self.positions is None:
            first, last = np.searchsorted(
                positions, [self.first, self.first + len(self.encoded.rows)]
            )
            numbers = positions[first:last] - self.first
        else:
            numbers, is_here = self.locate(positions)
            numbers = numbers[is_here]
        if len(self.numbers) < len(self.encoded.rows):
            numbers = np.intersect1d(numbers, self.numbers, assume_unique=True)
        return permit(numbers, len(self.encoded.rows))

    @property
    def packed_forms(self) -> list[PackedItems]:
        """What is packed by now: all items, one of every group of duplicates, both or neither."""
        return [vars(self)[name] for name in ("packed", "packed_distinct") if name in vars(self)]

    def pack(self) -> None:
        """Pack now what an unrestricted search will need, unless its kernels are not compiled.

        Then another process compiles them: who packs beforehand is going to search.
        """
        dtype = memmap.from_bits(self.encoded.rows).dtype
        if readiness.use_numpy(dtype):
            if len(self.numbers) >= scan.LEAST_ITEMS:  # fewer are all scored
                readiness.request(dtype)
            return
        with parallel.attribute_lock(self, "pack"):  # of several threads one packs
            name = "packed" if self.duplicates is None else "packed_distinct"
            if name not in vars(self):
                self._work = -1
                self._pending = projection.add_later(
                    getattr(self, name), self.encoded, self._n_threads,
                    functools.partial(setattr, self, name),
                )  # fmt: skip

    def settle(self) -> None:
        """Wait until prefixes, which a thread may be adding to what is packed, are there."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None

    def plan(
        self,
        n_queries: int,
        exclusions: ExcludedItems,
        permitted: PermittedItems | None = None,
        thresholds: Floats | None = None,
    ) -> Search:
        """Choose how this many queries search the segment; call it as Search says.

        Few queries score all pairs, or multiply float32 rows as they are given, unless the items
        are packed already. Where items repeat and no filter separates copies, one of each is
        searched. Otherwise the tiles filter. Small searches do without kernels while these are not
        compiled.
        """
        is_unpacked, few = not self.packed_forms, n_queries <= QUERIES_TO_PACK
        numbers = self.numbers if permitted is None else permitted.numbers
        n, depth = self.encoded.rows.shape
        if is_unpacked and self._uses_numpy() and self.duplicates is None:
            return functools.partial(self._search_until_compiled, permitted, thresholds)
        is_much = n_queries in _QUERIES_AS_GIVEN and n_queries * n * depth >= WORK_AS_GIVEN
        if is_unpacked and is_much and len(numbers) == n and tiles.AVAILABLE:
            unpacked = unpacked_items(self.metric_type, self.encoded)
            if unpacked is not None:
                return functools.partial(scan.search_unpacked, unpacked)
        if is_unpacked and few:
            return functools.partial(scan.score_all, self.metric_type, self.encoded, numbers)
        if permitted is None and not len(exclusions.indices) and self.duplicates is not None:
            packed = self._packed_for(n_queries, "packed_distinct")
            return functools.partial(duplicates.search, packed, self.duplicates)
        if permitted is not None and permitted is not self.left:
            return functools.partial(self._search_permitted, permitted, thresholds)
        packed = self._packed_for(n_queries, "packed")
        return functools.partial(scan.search, packed, permitted=permitted, thresholds=thresholds)

    def _search_permitted(
        self,
        permitted: PermittedItems,
        thresholds: Floats | None,
        queries: EncodedRows,
        exclusions: ExcludedItems,
        k: int,
        options: ExecutionOptions,
    ) -> scan.Found:
        """Search a part of the items in the cheapest of three ways, which give the same bits.

        All permitted items are scored in float64, or they are packed for this search alone, or the
        tiles read all packed items and a mask drops those that are not permitted. Times are
        compared in units of the time in which the tiles read one item for the first query.
        """
        n, m = len(queries.rows), len(permitted.numbers)
        sweep = 1 + n / _QUERIES_OF_SWEEP
        if scores_are_faster(n, m, len(self.numbers)):
            return scan.score_all(
                self.metric_type, self.encoded, permitted.numbers, queries, exclusions, k, options
            )
        packed = self._packed_for(n, "packed")
        codes = m * (4 * packed.layout.words + _BYTES_BESIDE_CODES)
        pack = QUERIES_TO_PACK * _SCORE_TIME
        if m * (pack + sweep) < len(self.numbers) * sweep and codes <= options.working_memory:
            find = self.only(permitted.numbers).plan(n, exclusions, thresholds=thresholds)
            return find(queries, exclusions, k, options)
        return scan.search(packed, queries, exclusions, k, options, permitted, thresholds)

    def _uses_numpy(self) -> bool:
        """Whether searches of rows of this type run in NumPy for now."""
        return readiness.use_numpy(memmap.from_bits(self.encoded.rows).dtype)

    def _search_until_compiled(
        self,
        permitted: PermittedItems | None,
        thresholds: Floats | None,
        queries: EncodedRows,
        exclusions: ExcludedItems,
        k: int,
        options: ExecutionOptions,
    ) -> scan.Found:
        """Search in NumPy, batch by batch; the batches after the kernels are compiled run those."""
        numbers = self.numbers if permitted is None else permitted.numbers
        items = self.encoded._replace(rows=memmap.from_bits(self.encoded.rows))
        n = len(queries.rows)
        size = numpy_search.batch_size(k, options.working_memory)
        columns, scores = np.empty((n, k), np.int64), np.empty((n, k))
        for lo in range(0, n, size):
            if lo and not self._uses_numpy():
                rest = slice(lo, n)
                bounds = None if thresholds is None else thresholds[rest]
                within = exclusions.of_range(lo, n)
                find = self.plan(n - lo, within, permitted, bounds)
                columns[rest], scores[rest] = find(queries.take(rest), within, k, options)
                break
            hi = min(n, lo + size)
            with readiness.seconds_in_numpy():
                columns[lo:hi], scores[lo:hi] = numpy_search.search(
                    self.metric_type, items, numbers, queries.take(slice(lo, hi)),
                    exclusions.of_range(lo, hi), k,
                )  # fmt: skip
            if options.progress is not None:
                options.progress(hi, n)
        return columns, scores

    def _packed_for(self, n_queries: int, name: str) -> PackedItems:
        """Return what is packed, with prefixes once queries that use them were work enough."""
        packed: PackedItems = getattr(self, name)
        if self._work >= 0 and (n_queries == 1 or packed.layout.isa != "amx"):
            with parallel.attribute_lock(self, "work"):
                if self._work >= 0:
                    self._work += n_queries * self.encoded.rows.size
                is_due = self._work >= WORK_TO_PREFIX
                if is_due:  # of several threads one adds them
                    self._work = -1
            if is_due:
                packed = projection.add_or_warn(packed, self.encoded, self._n_threads)
                setattr(self, name, packed)
        return packed


def scores_are_faster(n_queries: int, n_permitted: int, n_items: int) -> bool:
    """Whether float64 scores of the permitted items take less time than tiles of all items."""
    sweep = 1 + n_queries / _QUERIES_OF_SWEEP
    return n_queries * n_permitted * _SCORE_TIME <= n_items * sweep


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


def exclusions_within(exclusions: ExcludedItems, segment: Segment) -> ExcludedItems:
    """Return the exclusions that lie in a segment, as numbers within it."""
    own, is_own = segment.locate(exclusions.own)
    start, end = exclusions.indptr[0], exclusions.indptr[-1]
    indices, kept = segment.locate(exclusions.indices[start:end])
    counts = np.concatenate([[0], np.cumsum(kept)])
    indptr = counts[exclusions.indptr - start].astype(np.int64)
    parts = (np.where(is_own, own, -1), indptr, indices[kept])
    return ExcludedItems(*map(validation.read_only, parts))


def best_of_lists(columns: Integers, scores: Floats, k: int, n_threads: int) -> scan.Found:
    """Columns and raw scores (n, k) of the best of every list (n, c); -1 stands for no item."""
    n, c = columns.shape
    best, best_scores = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    parallel.run(
        merge_rows, parallel.row_blocks(n, max(1, _PAIRS_PER_BLOCK // c)),
        validation.read_only(scores), validation.read_only(columns), best_scores, best,
        n_threads=n_threads,
    )  # fmt: skip
    return best, best_scores


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


def encode_segment(
    measure: Measure,
    B: Rows,
    n_threads: int | None,
    *,
    numbers: npt.NDArray[np.int64] | None = None,
    first: int = 0,
    positions: npt.NDArray[np.int64] | None = None,
) -> Segment:
    """Encode items by a fitted measure as one segment; only those of numbers can be found."""
    encoded = encode_items(measure, B, n_threads)
    if numbers is None:
        numbers = np.arange(len(B), dtype=np.int64)
    return Segment(
        measure.metric_type, encoded, numbers, n_threads, rows=B, first=first, positions=positions
    )

"""A segment: a block of rows that is searched as a unit, together with its packed rows.

The rows of a segment never change. ``SimilarityIndex.fit`` packs the rows (``Segment.pack``) if the
kernels are compiled. If ``fit`` has not packed the rows, the first search that needs packed rows
packs them. A call to ``top_k`` with few queries does not need packed rows. Rows in memory usually
form one segment; an index to which items were added may have several segments. Memory-mapped rows
are read as several segments. A row number identifies a row within its segment, and a position
identifies an item among all segments. ``plan`` decides how a segment is searched, and ``scan``
searches it.
"""

import functools

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.parallel import memmap, readiness
from fastcos.search import cost_model, duplicates, plan, projection
from fastcos.search.filters import AllowedRows, ExcludedItems, allow_rows
from fastcos.search.packing import (
    ItemScaling,
    PackedItems,
    have_moderate_norms,
    norms_repeat,
    pack_items,
)
from fastcos.similarity.base import Measure
from fastcos.similarity.encoded_rows import EncodedRows, encode_items
from fastcos.validation import Integers, Rows


class Segment:
    """Encoded rows that are searched as a unit; they are packed at first use.

    Attributes
    ----------
    metric_type : {"cosine", "dot", "euclidean"}
        The operation that computes the raw score of two encoded rows.
    encoded : EncodedRows
        All rows (p, d) in encoded form, including the rows of removed items.
    rows : array (p, d)
        The original rows.
    live_row_numbers : ndarray (m,), int64
        The ascending row numbers of the items that searches can return.
    first_position : int
        The position of the item in row 0.
    positions : ndarray (p,), int64, or None
        The ascending positions of all rows; None if the positions are ``first_position``,
        ``first_position + 1``, ...
    live : AllowedRows or None
        None if searches can return every packed row. If the items of some packed rows were removed,
        ``live`` contains the other rows.
    scaling : ItemScaling or None
        The scaling with which the rows must be packed, or None if it is computed from the rows.
    """

    def __init__(
        self,
        metric_type: str,
        encoded: EncodedRows,
        live_row_numbers: Integers,
        n_threads: int | None = None,
        *,
        rows: Rows | None = None,
        first_position: int = 0,
        positions: Integers | None = None,
    ) -> None:
        self.metric_type, self.encoded = metric_type, encoded
        self.rows = encoded.rows if rows is None else rows
        self.live_row_numbers = validation.read_only(live_row_numbers)
        self.first_position, self.positions = first_position, validation.read_only(positions)
        self.live: AllowedRows | None = None
        self.scaling: ItemScaling | None = None
        self._n_threads = n_threads
        self._pending: projection.Pending | None = None
        # The multiply-adds of all searches so far, or -1 once a projection has been considered.
        self._work = 0

    @parallel.lazy_attribute
    def packed(self) -> PackedItems:
        """The packed rows of all items that searches can return."""
        return pack_items(
            self.metric_type, self.encoded, self.live_row_numbers, self._n_threads, self.scaling
        )

    @parallel.lazy_attribute
    def duplicates(self) -> duplicates.DuplicateGroups | None:
        """The groups of equal rows among the live rows; None if only few rows are equal."""
        if not norms_repeat(self.encoded.norms[self.live_row_numbers]):
            return None
        return duplicates.find_duplicates_among(self.encoded, self.live_row_numbers)

    @parallel.lazy_attribute
    def distinct(self) -> "Segment":
        """A segment with the same rows, whose searches find only one of several equal rows."""
        groups = self.duplicates
        segment = self.restricted_to(self.live_row_numbers if groups is None else groups.first)
        segment.duplicates, segment.scaling = None, self.scaling
        return segment

    def restricted_to(self, numbers: Integers) -> "Segment":
        """Return a segment that has all rows of this segment, but finds only rows in ``numbers``.

        ``numbers`` contains row numbers in ascending order.
        """
        return Segment(
            self.metric_type, self.encoded, numbers, self._n_threads, rows=self.rows,
            first_position=self.first_position, positions=self.positions,
        )  # fmt: skip

    def without(self, removed: Integers) -> "Segment":
        """Return a segment that has all rows of this segment, but skips the rows in ``removed``.

        ``removed`` contains row numbers. If this segment has packed all of its rows, the new
        segment shares the packed rows with this segment. Searches of the new segment then skip the
        removed items by means of a mask, which takes O(p) bytes. The new segment starts without
        packed rows if this segment has packed no rows, or only one row of each group of equal rows.
        """
        self.wait_for_projection()
        mask = np.zeros(len(self.encoded.rows), np.uint8)
        mask[self.live_row_numbers] = 1
        mask[removed] = 0
        remaining_segment = self.restricted_to(np.flatnonzero(mask))
        if "packed" in vars(self):
            remaining_segment.packed, remaining_segment.duplicates = self.packed, None
            remaining_segment.live = AllowedRows(mask, remaining_segment.live_row_numbers)
        return remaining_segment

    def locate(self, positions: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """For each position, return its row number and whether the position is in this segment.

        If a position is not in this segment, its row number is arbitrary.
        """
        n = len(self.encoded.rows)
        if self.positions is None:
            numbers = positions - self.first_position if self.first_position else positions
            return numbers, (numbers >= 0) & (numbers < n)
        numbers = np.minimum(np.searchsorted(self.positions, positions), n - 1)
        return numbers, self.positions[numbers] == positions

    def positions_of(self, numbers: Integers) -> Integers:
        """Return the position of each row number; -1, which stands for no item, stays -1."""
        if self.positions is None:
            return (
                numbers + self.first_position * (numbers >= 0) if self.first_position else numbers
            )
        return np.where(numbers < 0, -1, self.positions[numbers])

    def allow(self, positions: Integers | None) -> AllowedRows | None:
        """Return the live rows of this segment whose positions are in ``positions``.

        ``positions`` is in ascending order. None allows all positions; the function then returns
        ``live``, which is None if searches can return every packed row.
        """
        if positions is None:
            return self.live
        if self.positions is None:
            first, last = np.searchsorted(
                positions, [self.first_position, self.first_position + len(self.encoded.rows)]
            )
            numbers = positions[first:last] - self.first_position
        else:
            numbers, is_here = self.locate(positions)
            numbers = numbers[is_here]
        if len(self.live_row_numbers) < len(self.encoded.rows):
            numbers = np.intersect1d(numbers, self.live_row_numbers, assume_unique=True)
        return allow_rows(numbers, len(self.encoded.rows))

    def allow_mask(self, mask: npt.NDArray[np.bool_]) -> AllowedRows:
        """Return the live rows of this segment whose positions are allowed by ``mask``."""
        n = len(self.encoded.rows)
        is_allowed = mask[self.first_position : self.first_position + n]
        if self.positions is not None:
            is_allowed = mask[self.positions]
        if self.live is not None:
            is_allowed = is_allowed & self.live.mask.view(np.bool_)
        elif len(self.live_row_numbers) < n:
            is_live = np.zeros(n, np.bool_)
            is_live[self.live_row_numbers] = True
            is_allowed = is_allowed & is_live
        # A kernel is compiled separately for read-only and for writeable arrays. All other masks
        # are writeable, so the mask of the allowed rows is copied to a writeable array.
        return AllowedRows(np.array(is_allowed, np.bool_).view(np.uint8))

    @property
    def packed_forms(self) -> list[PackedItems]:
        """The existing packed items of this segment and of its segment ``distinct``."""
        forms = [self.packed_rows]
        if "distinct" in vars(self):
            forms.append(self.distinct.packed_rows)
        return [packed for packed in forms if packed is not None]

    @property
    def packed_rows(self) -> PackedItems | None:
        """The packed rows of all items, or None if they have not been packed yet."""
        return vars(self).get("packed")

    def pack(self) -> None:
        """If the kernels are compiled, pack the rows that searches without filters need.

        If the kernels are not compiled, and the segment has enough rows for tiles, this method
        starts another process that compiles the kernels. Rows are packed only for searches, and
        these searches will need the kernels.
        """
        if self.uses_numpy():
            # If there are fewer than min_rows_for_tiles rows, searches do not use packed rows, so
            # the kernels for packed rows are not needed.
            if len(self.live_row_numbers) >= cost_model.COSTS.min_rows_for_tiles:
                readiness.request()
            return
        with parallel.attribute_lock(self, "pack"):  # only one thread packs; other threads wait
            if self.duplicates is not None:
                self._work = -1
                self.distinct.pack()
            elif "packed" not in vars(self):
                self._work = -1
                self._pending = projection.add_later(
                    self.packed, self.encoded, self._n_threads,
                    functools.partial(setattr, self, "packed"),
                )  # fmt: skip

    def wait_for_projection(self) -> None:
        """If a thread is adding a projection to the packed rows, wait until it has finished."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
        if "distinct" in vars(self):
            self.distinct.wait_for_projection()

    def uses_numpy(self) -> bool:
        """Return whether searches run in NumPy because no kernels are compiled."""
        return readiness.use_numpy()

    def sizes(self, n_live_of_index: int | None = None) -> plan.SegmentSizes:
        """Return the facts about the segment that are known so far, for ``plan.plan_search``."""
        fields = vars(self)
        n_live, n_distinct, projected_form = len(self.live_row_numbers), None, self.packed_rows
        if "duplicates" in fields:
            groups = fields["duplicates"]
            n_distinct = n_live if groups is None else len(groups.first)
        if n_distinct is not None and n_distinct < n_live:
            # If there are duplicates, only the packed form of the distinct rows can have a
            # projection.
            projected_form = self.distinct.packed_rows
        packed = projected_form if self.packed_rows is None else self.packed_rows
        n_rows, n_columns = self.encoded.rows.shape
        row_type = memmap.from_bits(self.encoded.rows).dtype.name
        moderate = fields.get("has_moderate_norms")
        if packed is None:
            return plan.SegmentSizes(
                n_rows, n_columns, n_live, row_type, n_distinct=n_distinct,
                has_moderate_norms=moderate, n_live_of_index=n_live_of_index,
            )  # fmt: skip
        projected_words, max_k = 0, (0.0, 0.0)
        if projected_form is not None:
            projected_words, max_k = projected_form.projection_sizes
        n_packed = len(packed.arrays.row_of_slot) if "packed" in fields else n_live
        return plan.SegmentSizes(
            n_rows, n_columns, n_live, row_type, packed.layout.isa, n_packed, projected_words,
            max_k, n_distinct, moderate, n_live_of_index,
        )  # fmt: skip

    def look_up(self, fact: plan.Fact) -> None:
        """Compute a fact on which a plan depends; ``sizes`` then includes this fact."""
        getattr(self, "duplicates" if fact == "distinct_rows" else "has_moderate_norms")

    @parallel.lazy_attribute
    def has_moderate_norms(self) -> bool:
        """Whether float32 products of the rows neither overflow nor underflow."""
        return have_moderate_norms(self.encoded.norms)

    def count_work(self, n_queries: int, k: int) -> bool:
        """Pack the rows if necessary, and add the work of a search to the total of all searches.

        The work of a search is its number of multiply-adds. Once the total work is large enough, a
        projection is added to the packed rows if it saves time. The method returns whether the
        packed rows may have changed.
        """
        packed = self.packed
        if self._work < 0 or not plan.gains_by_projection(n_queries, packed.layout):
            return False
        with parallel.attribute_lock(self, "work"):
            if self._work >= 0:
                self._work += n_queries * self.encoded.rows.size
            is_due = self._work >= plan.work_to_project(packed.layout, k, cost_model.COSTS)
            if is_due:  # only one of several threads adds the projection
                self._work = -1
        if is_due:
            self.packed = projection.add_or_warn(packed, self.encoded, self._n_threads)
        return is_due


def exclusions_within(exclusions: ExcludedItems, segment: Segment) -> ExcludedItems:
    """Return the excluded items that are in a segment, as row numbers instead of positions."""
    self_rows, has_self_row = segment.locate(exclusions.self_rows)
    start, end = exclusions.indptr[0], exclusions.indptr[-1]
    indices, is_in_segment = segment.locate(exclusions.indices[start:end])
    counts = np.concatenate([[0], np.cumsum(is_in_segment)])
    indptr = counts[exclusions.indptr - start].astype(np.int64)
    return ExcludedItems(np.where(has_self_row, self_rows, -1), indptr, indices[is_in_segment])


def encode_segment(
    measure: Measure,
    B: Rows,
    n_threads: int | None,
    *,
    live_row_numbers: Integers | None = None,
    first_position: int = 0,
    positions: npt.NDArray[np.int64] | None = None,
) -> Segment:
    """Return a segment of the rows B, encoded by a fitted measure.

    Searches return only rows whose numbers are in ``live_row_numbers``; None stands for all rows.
    """
    encoded = encode_items(measure, B, n_threads)
    if live_row_numbers is None:
        live_row_numbers = np.arange(len(B), dtype=np.int64)
    return Segment(
        measure.metric_type, encoded, live_row_numbers, n_threads, rows=B,
        first_position=first_position, positions=positions,
    )  # fmt: skip

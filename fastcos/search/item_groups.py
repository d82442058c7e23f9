"""The group of each item, and the row numbers of a segment, sorted by group.

``ItemGroups`` contains the group of each item, such as a tenant, a language or a category.
``SegmentOrder`` contains the row numbers of a segment, sorted by group; it is computed once, and
kept as long as the segment exists.
"""

import dataclasses
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastcos import parallel, validation
from fastcos.search import plan
from fastcos.search.ids import concatenated_ids
from fastcos.search.packing import ItemScaling, PackedItems, pack_items, scale_items
from fastcos.search.segments import Segment
from fastcos.validation import Integers
from fastcos.validation.ids import Ids, are_strings, as_ids, format_id


class SegmentOrder:
    """The row numbers of a segment, sorted by group, and the packed rows of each group.

    ``row_numbers`` (m,) contains the row numbers of all items, one group after the other, in
    ascending order within each group. The rows of group g are ``row_numbers[starts[g] : starts[g +
    1]]``. A ``SegmentOrder`` is stored in a WeakKeyDictionary whose key is the segment. It must not
    refer to the segment, because such a reference would keep the segment alive for ever.
    """

    def __init__(
        self, segment: Segment, row_numbers: Integers, codes: Integers, n_groups: int
    ) -> None:
        order = np.argsort(_short_codes(codes, n_groups), kind="stable")
        self.row_numbers = row_numbers[order]
        self.starts = np.searchsorted(codes[order], np.arange(n_groups + 1))
        self._metric_type, self._encoded = segment.metric_type, segment.encoded
        self._segments, self._packed = dict[int, Segment](), dict[int, PackedItems]()
        self._n_queries = np.zeros(n_groups, np.int64)

    @parallel.lazy_attribute
    def scaling(self) -> ItemScaling:
        """The scaling with which the rows of all groups are packed."""
        return scale_items(self._metric_type, self._encoded, self.row_numbers, None)

    @property
    def n_queries(self) -> Integers:
        """The number of queries (g,) that all searches so far had in each group."""
        return self._n_queries

    def count_queries(self, n_queries: Integers) -> None:
        """Add the number of queries (g,) that a search has in each group to ``n_queries``."""
        self._n_queries += n_queries

    def sizes_of(
        self, segment: Segment, group: int, n_live_of_index: int | None = None
    ) -> plan.SegmentSizes:
        """Return the sizes of a segment with only this group, to plan a search of the group.

        ``n_live_of_index`` is described in ``SegmentSizes``. If it is not known yet whether the
        group contains duplicates or extreme norms, the function assumes that it contains neither.
        """
        group_segment = self._segments.get(group)
        if group_segment is not None:
            sizes = group_segment.sizes(n_live_of_index)
            return dataclasses.replace(
                sizes,
                n_distinct=sizes.n_live if sizes.n_distinct is None else sizes.n_distinct,
                has_moderate_norms=sizes.has_moderate_norms is not False,
            )
        n_items, panels = int(self.starts[group + 1] - self.starts[group]), self._packed.get(group)
        return dataclasses.replace(
            segment.sizes(), n_live=n_items, packed_for="" if panels is None else panels.layout.isa,
            n_packed=0 if panels is None else n_items, projected_words=0, n_distinct=n_items,
            has_moderate_norms=True, n_live_of_index=n_live_of_index,
        )  # fmt: skip

    def packed(self, group: int) -> PackedItems:
        """Return the packed items of a group, and pack them at first use."""
        with parallel.attribute_lock(self, f"packed {group}"):
            panels = self._packed.get(group)
            if panels is None:
                numbers = self.row_numbers[self.starts[group] : self.starts[group + 1]]
                panels = self._packed[group] = pack_items(
                    self._metric_type, self._encoded, numbers, 1, self.scaling
                )
            return panels

    def restrict(self, segment: Segment, group: int) -> Segment | None:
        """Return a segment with only the items of one group, or None if the group is empty."""
        first, last = self.starts[group], self.starts[group + 1]
        if first == last:
            return None
        group_segment = self._segments.get(group)
        if group_segment is None:
            group_segment = segment.restricted_to(self.row_numbers[first:last])
            if not group_segment.uses_numpy():
                group_segment.scaling = self.scaling
            self._segments[group] = group_segment
        # The group is packed when it is searched for the second time. In a single search with few
        # queries, packing would take more time than it saves.
        else:
            group_segment.pack()
        return group_segment


def _short_codes(codes: Integers, n_groups: int) -> Integers:
    """Return group codes as int16 if they fit: NumPy sorts int16 ten times as fast as int64."""
    return codes.astype(np.int16) if n_groups <= 2**15 else codes


class ItemGroups:
    """The group of the item at each position; an object of this class never changes.

    ``labels`` (g,) contains the distinct groups in ascending order. ``codes`` (p,) contains one
    number for each position: the place in ``labels`` where the group of the item is.
    """

    def __init__(
        self,
        labels: Ids,
        codes: Integers,
        orders: "weakref.WeakKeyDictionary[Segment, SegmentOrder] | None" = None,
    ) -> None:
        self.labels, self.codes = validation.read_only(labels), validation.read_only(codes)
        self._orders = weakref.WeakKeyDictionary() if orders is None else orders

    @classmethod
    def of(cls, groups: Any, n_items: int, name: str = "groups") -> "ItemGroups":
        """Validate the groups of ``n_items`` items, and return them as ItemGroups.

        ValueError is raised if a group is -1 or "".
        """
        labels, codes = np.unique(
            as_ids(name, groups, n_items, distinct=False), return_inverse=True
        )
        return cls(labels, codes)

    def find(self, groups: Any, n_queries: int, name: str = "groups") -> Integers:
        """Return the code (n,) of the group of each query, or -1 if the group contains no item.

        ``groups`` contains one group per query, or is a single group for all queries.
        """
        if np.ndim(groups) == 0:
            groups = [groups] * n_queries
        query_groups = as_ids(name, groups, n_queries, distinct=False)
        if not len(self.labels):
            return np.full(len(query_groups), -1, np.int64)
        if len(query_groups) and are_strings(query_groups) != are_strings(self.labels):
            rule = "strings" if are_strings(self.labels) else "whole numbers"
            value = format_id(query_groups[0])
            raise TypeError(
                f"{name} must be {rule}, because the groups of the items are {rule}, got {value}"
            )
        places = np.minimum(np.searchsorted(self.labels, query_groups), len(self.labels) - 1)
        return np.where(self.labels[places] == query_groups, places, -1)

    def with_groups(self, positions: Integers, groups: Ids, n_items: int) -> "ItemGroups":
        """Return ItemGroups in which the items at these positions have the given groups.

        The groups of all other items stay the same.
        """
        codes = np.append(self.codes, np.zeros(n_items - len(self.codes), np.int64))
        new_codes = self.find(groups, len(groups))
        if (new_codes >= 0).all():
            codes[positions] = new_codes
            # The orders of existing segments stay valid. The new row of a replaced item is in a new
            # segment, and the old row is never returned.
            return ItemGroups(self.labels, codes, self._orders)
        if not len(self.labels):
            return ItemGroups.of(groups, n_items)
        labels = np.unique(concatenated_ids([self.labels, groups]))
        codes = np.searchsorted(labels, self.labels)[codes]
        codes[positions] = np.searchsorted(labels, groups)
        return ItemGroups(labels, codes)

    def to_arrays(self) -> dict[str, Any]:
        """Return the groups as a dictionary of arrays, which are stored in a saved index."""
        labels = self.labels.astype(str) if are_strings(self.labels) else self.labels
        return {"group_labels": labels, "group_codes": self.codes.astype(np.int32)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], n_positions: int) -> "ItemGroups | None":
        """Check and return the groups that ``to_arrays`` stored, or None if there are no groups."""
        labels, codes = arrays.get("group_labels"), arrays.get("group_codes")
        if labels is None or codes is None:
            return None
        labels = np.asarray(labels)
        is_right = labels.ndim == 1 and labels.dtype.kind in "iU" and codes.dtype.kind == "i"
        is_right = is_right and codes.shape == (n_positions,)
        is_right = is_right and bool((labels[1:] > labels[:-1]).all())
        in_range = is_right and codes.min(initial=0) >= 0
        if not in_range or codes.max(initial=0) >= max(1, len(labels)):
            raise ValueError("group_labels and group_codes must hold one group for each position")
        return cls(labels, codes.astype(np.int64))

    def order_of(self, segment: Segment, allowed_positions: Integers | None = None) -> SegmentOrder:
        """Return the row numbers of the items of a segment, sorted by group.

        If ``allowed_positions`` is not None, only the items at these positions are included. The
        order of all items is kept as long as the segment exists.
        """
        order = None if allowed_positions is not None else self._orders.get(segment)
        if order is None:
            numbers = segment.live_row_numbers
            if allowed_positions is not None:
                allowed_rows = segment.allow(allowed_positions)
                numbers = numbers if allowed_rows is None else allowed_rows.row_numbers
            codes = self.codes[segment.positions_of(numbers)]
            order = SegmentOrder(segment, numbers, codes, len(self.labels))
            if allowed_positions is None:
                self._orders[segment] = order
        return order


@dataclasses.dataclass(frozen=True, eq=False)
class QueryGroups:
    """The group of each query of a request.

    Attributes
    ----------
    items : ItemGroups
        The groups of the items.
    codes : ndarray (n,), int64
        For each query, the index of its group in ``items.labels``, or -1 if no item is in the
        group.
    order : ndarray (n,), int64
        The indices of the queries, ordered so that the queries of a group are consecutive.
    """

    items: ItemGroups
    codes: Integers

    @parallel.lazy_attribute
    def order(self) -> Integers:
        """The indices of the queries, ordered so that the queries of a group are consecutive."""
        return np.argsort(_short_codes(self.codes, len(self.items.labels)), kind="stable")

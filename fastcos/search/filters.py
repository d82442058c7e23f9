"""Restrict what queries can find: excluded pairs of a query and an item, and allowed rows.

``kernel_filters`` converts excluded pairs and allowed rows to the record that kernels read.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.similarity import kernel_records
from fastcos.validation import Integers


class ExcludedItems(NamedTuple):
    """The items that each query must not find.

    Items are identified by their positions in an index, or by their row numbers in a segment.

    Attributes
    ----------
    self_rows : ndarray (n,), int64
        For each query, the number of the item that is the query itself and must not be found; -1 if
        there is no such item.
    indptr, indices : ndarray (n + 1,) and (e,), int64
        Besides itself, query i must not find the items ``indices[indptr[i] : indptr[i + 1]]``.
    """

    self_rows: Integers
    indptr: Integers
    indices: Integers

    def of_range(self, first: int, last: int) -> "ExcludedItems":
        """Return the excluded items of queries first to last - 1."""
        return ExcludedItems(
            self.self_rows[first:last], self.indptr[first : last + 1], self.indices
        )

    def take(self, queries: slice | Integers) -> "ExcludedItems":
        """Return the excluded items of only these queries, in the order of ``queries``."""
        if isinstance(queries, slice):
            return self.of_range(queries.start, queries.stop)
        starts, ends = self.indptr[queries], self.indptr[queries + 1]
        indptr = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
        entries = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], ends - starts)
        return ExcludedItems(self.self_rows[queries], indptr, self.indices[entries])


def no_exclusions(n: int, *, exclude_self: bool = False) -> ExcludedItems:
    """Return ExcludedItems by which each of n queries excludes nothing, or query i only item i.

    exclude_self says whether query i excludes item i.
    """
    self_rows = np.arange(n, dtype=np.int64) if exclude_self else np.full(n, -1, np.int64)
    return ExcludedItems(self_rows, np.zeros(n + 1, np.int64), np.zeros(0, np.int64))


class AllowedRows:
    """The rows of a segment that are allowed in the results.

    Attributes
    ----------
    mask : ndarray (p,), uint8
        1 for each allowed row, and 0 for every other row.
    count : int
        The number of allowed rows.
    row_numbers : ndarray (count,), int64
        The row numbers of the allowed rows in ascending order, computed at first use.
    """

    def __init__(self, mask: npt.NDArray[np.uint8], row_numbers: Integers | None = None) -> None:
        self.mask = mask
        if row_numbers is not None:
            self.row_numbers = validation.read_only(row_numbers)
        self.count = int(np.count_nonzero(mask)) if row_numbers is None else len(row_numbers)

    @parallel.lazy_attribute
    def row_numbers(self) -> Integers:
        """The row numbers of the allowed rows in ascending order."""
        return validation.read_only(np.flatnonzero(self.mask))


def allow_rows(row_numbers: Integers, n_rows: int) -> AllowedRows:
    """Return AllowedRows that allow the rows with these ascending numbers, out of n_rows rows."""
    mask = np.zeros(n_rows, np.uint8)
    mask[row_numbers] = 1
    return AllowedRows(mask, row_numbers)


def kernel_filters(exclusions: ExcludedItems, allowed: AllowedRows | None = None) -> Any:
    """Return the record that kernels read: the excluded items of each query, and the allowed rows.

    ``allowed=None`` allows all rows.
    """
    mask = kernel_records.ALL_ALLOWED if allowed is None else allowed.mask
    return kernel_records.query_filters(
        exclusions.self_rows, exclusions.indptr, exclusions.indices, mask
    )

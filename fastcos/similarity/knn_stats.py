"""The items as a population: finding rows among them, and each row's nearest items."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel
from fastcos.similarity.base import MetricType
from fastcos.similarity.encoded_rows import encode_rows
from fastcos.similarity.moments import blocks_of, mean_of
from fastcos.similarity.row_maps import fingerprints, first_copies
from fastcos.validation import Floats, Integers, Rows

# rows whose moments are taken at once: their block of products stays in the cache
_ROWS_PER_BLOCK = 2048


class RowLookup:
    """A hash index of rows: which of them equals a given one."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def find(self, rows: Rows) -> Integers:
        """Return the number of a row that equals each given one, -1 where none does, (n,)."""
        if _place(rows) == _place(self._rows):
            return np.arange(len(rows))
        ordered, numbers = self._ordered
        own = fingerprints(rows)
        at = np.minimum(np.searchsorted(ordered, own), len(ordered) - 1)
        return np.where(ordered[at] == own, numbers[at], -1)

    @parallel.lazy_attribute
    def _ordered(self) -> tuple[npt.NDArray[np.uint64], Integers]:
        """Sorted fingerprints, and the row that each is of."""
        own = fingerprints(self._rows)
        order = np.argsort(own, kind="stable")
        return own[order], order


def _place(rows: Rows) -> tuple[object, ...]:
    """Return where rows lie in memory: a view of the same rows is at the same place."""
    return rows.ctypes.data, rows.shape, rows.strides, rows.dtype


def nearest_rows(
    queries: Rows, items: Rows | None, k: int, metric_type: MetricType
) -> tuple[Integers, Floats]:
    """Return columns and raw scores (n, k) of the nearest items; None: the other queries."""
    # A measure that learns from neighbours asks the search, which is built on measures.
    from fastcos.search.packing import ExecutionOptions
    from fastcos.search.scan import nearest
    from fastcos.search.segments import Segment

    options = ExecutionOptions(config.n_threads(), config.working_memory() * 2**20)
    encoded = encode_rows(queries, None, None, metric_type)
    others = encoded if items is None else encode_rows(items, None, None, metric_type)
    segment = Segment(metric_type, others, np.arange(len(others.rows), dtype=np.int64))
    return nearest(encoded, segment, k, options, exclude_self=items is None)


class CosineMoments(NamedTuple):
    """First two moments of cosines with a population of unit rows; n of them are not zero."""

    mean: Floats
    gram: Floats
    n: int

    def of(self, units: Floats, inside: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of every row's cosines, itself left out where inside.

        From d x d sums: no pass over pairs. 0 for both where there is no other row.
        """
        mean, square = np.empty(len(units)), np.empty(len(units))
        for lo in range(0, len(units), _ROWS_PER_BLOCK):
            block = units[lo : lo + _ROWS_PER_BLOCK]
            with parallel.blas_lock():
                mean[lo : lo + len(block)] = block @ self.mean
                weighted = block @ self.gram
            square[lo : lo + len(block)] = np.einsum("ij,ij->i", weighted, block)
        alone = inside & units.any(axis=1)
        others = np.maximum(self.n - 1, 1)
        mean = np.where(alone, (self.n * mean - 1) / others, mean)
        square = np.where(alone, (self.n * square - 1) / others, square)
        if self.n < 2:
            mean, square = np.where(alone, 0.0, mean), np.where(alone, 0.0, square)
        variance = square - mean * mean
        first = first_copies(units)
        if first is not None:  # the products round equal rows differently
            mean, variance = mean[first], variance[first]
        # below this it is what rounding leaves of equal cosines
        return mean, np.sqrt(np.where(variance > 1e-14, variance, 0))


def cosine_moments(units: Floats) -> CosineMoments:
    """Return the moments over the rows of unit norm; the others are zero."""
    there = units.any(axis=1)
    present = units if there.all() else units[there]
    if not len(present):
        d = units.shape[1]
        return CosineMoments(np.zeros(d), np.zeros((d, d)), 0)
    gram = np.zeros((units.shape[1], units.shape[1]))
    for _, block in blocks_of(present):
        with parallel.blas_lock():
            gram += block.T @ block  # BLAS makes one half
    return CosineMoments(mean_of(present), gram / len(present), len(present))

"""Statistics of rows for measures that reduce hubness: nearest items, and moments of cosines."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel
from fastcos.similarity.base import MetricType
from fastcos.similarity.encoded_rows import encode_rows
from fastcos.similarity.moments import blocks_of, mean_of
from fastcos.similarity.row_maps import fingerprints, first_copies
from fastcos.validation import Floats, Integers, Rows

# The means and deviations are computed for this number of rows at a time. The number is so small
# that the products of the rows fit into the cache.
_ROWS_PER_BLOCK = 2048


class RowLookup:
    """A hash index of rows, which finds the row that equals a query."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def find(self, rows: Rows) -> Integers:
        """For each of n queries, return the number of a row that equals the query, or -1."""
        if _memory_layout(rows) == _memory_layout(self._rows):
            return np.arange(len(rows))
        sorted_hashes, numbers = self._sorted_hashes
        hashes = fingerprints(rows)
        positions = np.minimum(np.searchsorted(sorted_hashes, hashes), len(sorted_hashes) - 1)
        return np.where(sorted_hashes[positions] == hashes, numbers[positions], -1)

    @parallel.lazy_attribute
    def _sorted_hashes(self) -> tuple[npt.NDArray[np.uint64], Integers]:
        """The fingerprints of the rows in ascending order, and the row number of each."""
        hashes = fingerprints(self._rows)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order


def _memory_layout(rows: Rows) -> tuple[object, ...]:
    """Return a key that is equal for two views of the same rows in memory."""
    return rows.ctypes.data, rows.shape, rows.strides, rows.dtype


def nearest_rows(
    queries: Rows, items: Rows | None, k: int, metric_type: MetricType
) -> tuple[Integers, Floats]:
    """Return the item numbers and raw scores (n, k) of the nearest items of each query.

    If ``items`` is None, each query is compared with the other queries.
    """
    # The search imports the measures, so importing the search at the top of the file would create
    # an import cycle.
    from fastcos.search.options import ExecutionOptions
    from fastcos.search.scan import nearest
    from fastcos.search.segments import Segment

    options = ExecutionOptions(config.n_threads(), config.working_memory() * 2**20)
    encoded = encode_rows(queries, None, None, metric_type)
    population = encoded if items is None else encode_rows(items, None, None, metric_type)
    segment = Segment(metric_type, population, np.arange(len(population.rows), dtype=np.int64))
    return nearest(encoded, segment, k, options, exclude_self=items is None)


class CosineMoments(NamedTuple):
    """The mean and the mean outer product of a population of unit rows.

    The two moments determine the mean and the variance of the cosines of any row with all rows of
    the population.

    - ``mean`` (d,): The mean of the nonzero rows.
    - ``gram`` (d, d): The mean of xx' over the nonzero rows x.
    - ``n``: The number of nonzero rows.
    """

    mean: Floats
    gram: Floats
    n: int

    def of(self, units: Floats, is_inside: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return the mean and the deviation (n,) of each row's cosines with the population's rows.

        ``is_inside`` (n,) says for each row whether the row belongs to the population. If a row
        belongs to the population, the cosine of the row with itself is left out. If the row itself
        is the only row of the population, the mean and the deviation are 0. The mean and the
        deviation are computed from d x d sums, without the cosines of all pairs.
        """
        mean, square = np.empty(len(units)), np.empty(len(units))
        for lo in range(0, len(units), _ROWS_PER_BLOCK):
            block = units[lo : lo + _ROWS_PER_BLOCK]
            with parallel.blas_lock():
                mean[lo : lo + len(block)] = block @ self.mean
                weighted = block @ self.gram
            square[lo : lo + len(block)] = np.einsum("ij,ij->i", weighted, block)
        counts_itself = is_inside & units.any(axis=1)
        n_others = np.maximum(self.n - 1, 1)
        mean = np.where(counts_itself, (self.n * mean - 1) / n_others, mean)
        square = np.where(counts_itself, (self.n * square - 1) / n_others, square)
        if self.n < 2:
            mean, square = np.where(counts_itself, 0.0, mean), np.where(counts_itself, 0.0, square)
        variance = square - mean * mean
        first = first_copies(units)
        # The products of equal rows may differ by rounding errors, so all copies get the results of
        # the first copy.
        if first is not None:
            mean, variance = mean[first], variance[first]
        # If all cosines are equal, the computed variance is a rounding error, which is below 1e-14.
        return mean, np.sqrt(np.where(variance > 1e-14, variance, 0))


def cosine_moments(units: Floats) -> CosineMoments:
    """Return the moments of a population of unit rows; rows that are zero are left out."""
    is_nonzero = units.any(axis=1)
    nonzero = units if is_nonzero.all() else units[is_nonzero]
    if not len(nonzero):
        d = units.shape[1]
        return CosineMoments(np.zeros(d), np.zeros((d, d)), 0)
    gram = np.zeros((units.shape[1], units.shape[1]))
    for _, block in blocks_of(nonzero):
        with parallel.blas_lock():
            # Because the product is symmetric, NumPy computes only one triangle and copies it to
            # the other.
            gram += block.T @ block
    return CosineMoments(mean_of(nonzero), gram / len(nonzero), len(nonzero))

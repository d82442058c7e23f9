"""The items as a population: which rows are its members, and each row's nearest members."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.measures.base import Form, Rows
from fastcos.measures.row_transforms import Floats, Integers, blocks_of, fingerprints, mean_of

_ROWS_PER_BLOCK = 2048


class Census(NamedTuple):
    """Which rows there are: sorted fingerprints, and the row that each is of."""

    sorted: npt.NDArray[np.uint64]
    numbers: Integers

    def find(self, rows: Rows) -> Integers:
        """The number of a row that equals each given one, -1 where none does, (n,)."""
        own = fingerprints(rows)
        at = np.minimum(np.searchsorted(self.sorted, own), len(self.sorted) - 1)
        return np.where(self.sorted[at] == own, self.numbers[at], -1)


def census(rows: Rows) -> Census:
    """Count the rows."""
    own = fingerprints(rows)
    order = np.argsort(own, kind="stable")
    return Census(own[order], order)


class Members:
    """The rows that a measure was fitted to, found again among others."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def find(self, rows: Rows) -> Integers:
        """The number of a row that equals each given one, -1 where none does, (n,)."""
        if _place(rows) == _place(self._rows):
            return np.arange(len(rows))
        return self._census.find(rows)

    @functools.cached_property
    def _census(self) -> Census:
        return census(self._rows)


def _place(rows: Rows) -> tuple[object, ...]:
    """Where rows lie in memory: a view of the same rows is at the same place."""
    return rows.ctypes.data, rows.shape, rows.strides, rows.dtype


class Neighborhoods(NamedTuple):
    """The nearest c of every row: item numbers and the metric's keys, both (n, c)."""

    columns: Integers
    keys: Floats

    def first(self, k: int) -> "Neighborhoods":
        """The nearest k."""
        return Neighborhoods(
            np.ascontiguousarray(self.columns[:, :k]), np.ascontiguousarray(self.keys[:, :k])
        )


def mutual_ceilings(
    nearest: Floats, worth: Floats, key: Callable[[Floats, Floats], Floats]
) -> Floats:
    """What key(metric's key, worth) can be at most for every row and any item, (p,).

    The metric's key of two rows is at most the nearest (p,) of either; key never falls where one of
    its arguments rises. O(p log p).
    """
    order = np.argsort(nearest)
    near, worth = nearest[order], worth[order]
    of_nearer = np.maximum.accumulate(key(near, worth))
    largest = np.maximum.accumulate(worth[::-1])[::-1]
    ceilings = np.empty(len(order))
    ceilings[order] = np.maximum(of_nearer, key(near, largest))
    return ceilings


def nearest(
    queries: Rows,
    items: Rows | None,
    k: int,
    form: Form,
    depth: Callable[[Callable[[Integers, int], "Neighborhoods"]], int] | None = None,
) -> Neighborhoods:
    """The k nearest items of every query by cosine or Euclidean distance; of itself others only.

    depth: says how many instead of k, given what finds as many as it wants of some queries.
    """
    from fastcos.neighbors.search import (
        nearest_by,  # the engine knows measures: only while searching
    )

    if depth is None:
        return Neighborhoods(*nearest_by(form, queries, items, k))
    return Neighborhoods(
        *nearest_by(
            form, queries, items, k, lambda find: depth(lambda *some: Neighborhoods(*find(*some)))
        )
    )


class CosineMoments(NamedTuple):
    """First two moments of cosines with a population of unit rows; n of them are not zero."""

    mean: Floats
    gram: Floats
    n: int

    def of(self, units: Floats, inside: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of every row's cosines, itself left out where inside.

        From d x d sums: no pass over pairs. 0 for both where there is nobody else.
        """
        mean, square = np.empty(len(units)), np.empty(len(units))
        for lo in range(0, len(units), _ROWS_PER_BLOCK):
            block = units[lo : lo + _ROWS_PER_BLOCK]
            mean[lo : lo + len(block)] = block @ self.mean
            square[lo : lo + len(block)] = np.einsum("ij,ij->i", block @ self.gram, block)
        alone = inside & units.any(axis=1)
        others = np.maximum(self.n - 1, 1)
        mean = np.where(alone, (self.n * mean - 1) / others, mean)
        square = np.where(alone, (self.n * square - 1) / others, square)
        if self.n < 2:
            mean, square = np.where(alone, 0.0, mean), np.where(alone, 0.0, square)
        variance = square - mean * mean
        # below this it is what rounding leaves of equal cosines
        return mean, np.sqrt(np.where(variance > 1e-14, variance, 0))


def cosine_moments(units: Floats) -> CosineMoments:
    """Moments over the rows of unit norm; the others are zero."""
    there = units.any(axis=1)
    present = units if there.all() else units[there]
    if not len(present):
        d = units.shape[1]
        return CosineMoments(np.zeros(d), np.zeros((d, d)), 0)
    gram = np.zeros((units.shape[1], units.shape[1]))
    for _, block in blocks_of(present):
        gram += block.T @ block  # BLAS makes one half
    return CosineMoments(mean_of(present), gram / len(present), len(present))

"""The items as a population: which rows are its members, and each row's nearest members."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.measure.base import Rows
from fastcos.measure.rows import (
    Floats,
    Integers,
    fingerprints,
    gram_of,
    list_keys,
    mean_of,
    unit_rows,
)


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


class Lists(NamedTuple):
    """The nearest K of every row: item numbers (n, K), keys (n, K) falling."""

    columns: Integers
    keys: Floats


class Neighborhoods(NamedTuple):
    """The nearest c of every row: item numbers (n, c), and keys (n,) that no others exceed."""

    columns: Integers
    ceilings: Floats


def neighborhoods(items: Rows, width: int, form: str) -> Neighborhoods:
    """The nearest other items of every item, by cosine or by Euclidean distance."""
    found = _top_k(items, None, width, form)
    if width >= len(items) - 1:
        return Neighborhoods(found.indices, np.full(len(items), -np.inf))
    last = found.scores[:, -1].astype(np.float64)
    # scores are rounded to float32
    if form == "cosine":
        return Neighborhoods(found.indices, last + 1e-7)
    return Neighborhoods(found.indices, -np.square(last * (1 - 1e-7)))


def nearest(queries: Rows, items: Rows, k: int, form: str) -> Lists:
    """The k nearest items of every query."""
    columns = _top_k(queries, items, k, form).indices
    return Lists(columns, list_keys(form, queries, items, columns))


def _top_k(queries: Rows, items: Rows | None, k: int, form: str) -> Any:
    from fastcos.neighbors import top_k  # the engine knows measures: only at the time of a search

    return top_k(queries, items, k, measure="cosine" if form == "cosine" else "neg_euclidean")


class CosineMoments(NamedTuple):
    """First two moments of cosines with a population of unit rows; n of them are not zero."""

    mean: Floats
    gram: Floats
    n: int

    def of(self, units: Floats, inside: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of every row's cosines, itself left out where inside.

        From d x d sums: no pass over pairs. 0 for both where there is nobody else.
        """
        mean = units @ self.mean
        square = np.einsum("ij,ij->i", units @ self.gram, units)
        alone = inside & units.any(axis=1)
        others = np.maximum(self.n - 1, 1)
        mean = np.where(alone, (self.n * mean - 1) / others, mean)
        square = np.where(alone, (self.n * square - 1) / others, square)
        if self.n < 2:
            mean, square = np.where(alone, 0.0, mean), np.where(alone, 0.0, square)
        variance = square - mean * mean
        # below this it is what rounding leaves of equal cosines
        return mean, np.sqrt(np.where(variance > 1e-14, variance, 0))


def cosine_moments(items: Rows) -> CosineMoments:
    """Moments over the items that are not zero rows."""
    units = unit_rows(items)
    there = units.any(axis=1)
    present = units if there.all() else units[there]
    if not len(present):
        d = items.shape[1]
        return CosineMoments(np.zeros(d), np.zeros((d, d)), 0)
    return CosineMoments(mean_of(present), gram_of(present, np.zeros(items.shape[1])), len(present))

"""Measures against hubs: a score is judged by what else its two rows are near to."""

import copy
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from fastcos import validation
from fastcos.measures import checks
from fastcos.measures.base import (
    Candidates,
    Form,
    Invariances,
    Keys,
    Plain,
    Rows,
    invariances,
    register,
)
from fastcos.measures.knn_stats import (
    Members,
    Neighborhoods,
    cosine_moments,
    mutual_ceilings,
    nearest,
)
from fastcos.measures.row_transforms import (
    Floats,
    Integers,
    centroid_distances,
    norms_of,
    origin_of,
    unit_rows,
)

# neighbours kept by fit: with these most of 40,000 Gaussian rows need no second pass for 10; more
# cost the first pass more than they save
_MET = 23
# with fewer rows a search is short, whatever is kept; how many are usually asked for; rows that are
# probed, more than the engine scans one by one, and how many of them there are for a seed
_MANY, _USUAL, _PROBED, _ROWS_PER_SEED = 8192, 10, 72, 3
# what rounding may add to a ceiling, and how far a key of unit rows may be from another way's
_SLACK = 1e-9


@register
class QueryNormalized(Plain):
    """(cosine - μ_q) / σ_q, with the mean and deviation of the query's cosines with all items.

    A query that is itself an item, and zero rows, are left out of the moments; σ_q = 0 gives 0.
    No pass over pairs: the moments come from d x d sums. Pitfall: affine per query, so it never
    changes a query's own ranking; it changes thresholds and pooled scores, and is not symmetric.
    Source: You arXiv:2504.16318.
    """

    name: ClassVar[str] = "query_normalized"

    def learn(self, items: Rows, users: Rows | None) -> None:
        """Take the moments of the items' directions."""
        self._moments = cosine_moments(unit_rows(items))
        self._members = Members(items)

    def finish(self, keys: Keys, Q: Rows) -> Keys:
        """Return the standardised keys."""
        mean, deviation = self._moments.of(unit_rows(Q), self._members.find(Q) >= 0)
        deviation = deviation[:, None]
        scale = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        found = np.isfinite(keys)
        scores: Keys = np.where(found, (np.where(found, keys, 0) - mean[:, None]) * scale, keys)
        return scores


class _Local(Plain):
    """What every row's K nearest are, on the other side or among the items themselves.

    The neighbours of an item are sought among the rows of the other side where those are given,
    else among the other items. Those of a query are sought among the items, itself left out where
    it is one of them (and no other side is given).
    """

    form: ClassVar[Form] = "dot"
    metric: ClassVar[Form] = "cosine"
    met: ClassVar[int] = _MET

    def __init__(self, n_neighbors: int = 10, *, other: Any = None) -> None:
        self.n_neighbors = validation.as_count("n_neighbors", n_neighbors)
        self.other = None if other is None else validation.as_rows("other", other)

    def learn(self, items: Rows, users: Rows | None) -> None:
        """Search for the neighbours of every item: one more pass of the engine."""
        other = self.other if users is None else users
        self._rows = self._prepared(items)
        self._apart = other is not None
        others = len(items) - 1 if other is None else len(other)
        k = checks.as_local_count("n_neighbors", self.n_neighbors, others)
        self._members = Members(items)
        self._near: Neighborhoods | None = None
        if other is None:
            self._there = self._rows
            most = min(others, max(k, self.met))
            depth = None
            if max(k, _USUAL) < most and len(items) >= _MANY:
                depth = functools.partial(self._depth, k, most)
            self._near = nearest(self._rows, None, most, self.metric, depth)
            found = self._near.first(k)
        else:
            validation.check_same_width("other", other, "items", items)
            self._there = self._prepared(other)
            found = nearest(self._rows, self._there, k, self.metric)
        self._locals = self._local(self._rows, found, self._there)

    def _depth(self, k: int, most: int, find: Callable[[Integers, int], Neighborhoods]) -> int:
        """Neighbours to keep: most where they settle the search of at least half of some seeds.

        A seed is settled where the key of its 10th is above the ceiling, as far as the seeds, their
        neighbours and some other rows tell. Those k of all of them are what the keys need.
        """
        p = len(self._rows)
        some = np.arange(0, p, -(-p // _PROBED))
        around = np.union1d(some, find(some, most).columns[::_ROWS_PER_SEED])
        near = find(around, most)
        probe = copy.copy(self)
        probe._locals = self._local(self._rows[around], near.first(k), self._there)
        # others than the seeds have neighbours elsewhere: their keys are not used
        columns = np.minimum(np.searchsorted(around, near.columns), len(around) - 1)
        seeds = np.searchsorted(around, some[::_ROWS_PER_SEED])
        keys = probe._keys(columns, near.keys)[0][seeds]
        floors = -np.partition(-keys, _USUAL - 1, axis=1)[:, _USUAL - 1]
        settled = floors > probe._ceilings(near.keys[:, -1])[seeds]
        return most if 2 * settled.sum() >= len(seeds) else max(k, _USUAL)

    def item_offsets(self, B: Rows) -> Keys | None:
        """Return what the neighbours of the items are worth."""
        return self._offsets(self._of_items(B))

    def _of_items(self, B: Rows) -> Floats:
        """The local statistic of items; known for the rows that were fitted."""
        checks.check_fitted(self, "_rows")
        return self._of(B, self._members.find(B), self._there)

    def _of_queries(self, Q: Rows) -> Floats:
        """The local statistic of queries; known where a query is an item itself."""
        checks.check_fitted(self, "_rows")
        unknown = np.full(len(Q), -1)
        return self._of(Q, unknown if self._apart else self._members.find(Q), self._rows)

    def _of(self, rows: Rows, number: Integers, there: Rows) -> Floats:
        local = np.empty(len(rows))
        local[number >= 0] = self._locals[number[number >= 0]]
        new = np.flatnonzero(number < 0)
        if len(new):
            given, k = self._prepared(rows[new]), min(self.n_neighbors, len(there))
            local[new] = self._local(given, nearest(given, there, k, self.metric), there)
        return local

    def candidates(self) -> Candidates | None:
        """Return the nearest others of every item, unless of another side."""
        checks.check_fitted(self, "_rows")
        if self._near is None:
            return None
        columns, keys = self._near
        ceilings = np.full(len(keys), -np.inf)
        if keys.shape[1] < len(keys) - 1:
            ceilings = self._ceilings(keys[:, -1])
        return Candidates(columns, *self._keys(columns, keys), ceilings)

    def _keys(self, columns: Integers, keys: Floats) -> tuple[Floats, Floats, Floats]:
        """The engine's keys of rows with their columns, the other way round, and their errors."""
        raise NotImplementedError

    def _ceilings(self, nearest: Floats) -> Floats:
        """What a key can be at most, (p,), where the metric's is at most the nearest of both."""
        raise NotImplementedError

    def _prepared(self, rows: Rows) -> Rows:
        return rows

    def _local(self, rows: Rows, found: Neighborhoods, there: Rows) -> Floats:
        raise NotImplementedError

    def _offsets(self, local: Floats) -> Keys | None:
        return None


@register
class CSLS(_Local):
    """2 cosine - r(x) - r(y), with r the mean cosine to the K nearest of the other side.

    Hubs, near to everything, lose. Pitfall: fitting searches too; most items end there, new queries
    need two more passes.
    Source: Conneau et al. arXiv:1710.04087.

    Parameters
    ----------
    n_neighbors : int, default 10
        K, at most the number of other items.
    other : array_like (m, d), optional
        Rows of the other side, such as another language's: r of an item is over them, r of a query
        over the items. Default: over the (other) items for both.
    """

    name: ClassVar[str] = "csls"

    def items(self, B: Rows) -> Rows:
        """Return unit rows, float64."""
        return unit_rows(B)

    def finish(self, keys: Keys, Q: Rows) -> Keys:
        """Return 2 key - r(q)."""
        return 2 * keys - self._of_queries(Q)[:, None]

    def _local(self, rows: Rows, found: Neighborhoods, there: Rows) -> Floats:
        mean: Floats = found.keys.mean(axis=1)
        return mean

    def _offsets(self, local: Floats) -> Keys:
        return -0.5 * local

    def _keys(self, columns: Integers, keys: Floats) -> tuple[Floats, Floats, Floats]:
        halves = 0.5 * self._locals
        errors = np.full(len(keys), _SLACK)
        return keys - halves[columns], keys - halves[:, None], errors

    def _ceilings(self, nearest: Floats) -> Floats:
        return mutual_ceilings(nearest + _SLACK, -0.5 * self._locals, np.add)


@register
class LocalScaling(_Local):
    """exp(-d² / (s_x s_y)), d on the unit sphere and s the distance to the K-th neighbour.

    s = 0 (K duplicates) counts as the smallest positive s, or 1. Pitfall: two passes of the engine,
    three for new queries. Source: Zelnik-Manor and Perona, NIPS 2004.

    Parameters
    ----------
    n_neighbors : int, default 7
        K, at most the number of other items.
    other : array_like (m, d), optional
        Rows of the other side, among which the neighbours of items are sought.
    """

    name: ClassVar[str] = "local_scaling"

    def __init__(self, n_neighbors: int = 7, *, other: Any = None) -> None:
        super().__init__(n_neighbors, other=other)

    def queries(self, Q: Rows) -> Rows:
        """Return unit rows, float64."""
        return unit_rows(Q)

    def items(self, B: Rows) -> Rows:
        """Return unit rows / s, float64."""
        return unit_rows(B, 1 / self._positive(self._of_items(B)))

    def finish(self, keys: Keys, Q: Rows) -> Keys:
        """Return exp(2 key / s)."""
        scores: Keys = np.exp(2 * keys / self._positive(self._of_queries(Q))[:, None])
        return scores

    def _local(self, rows: Rows, found: Neighborhoods, there: Rows) -> Floats:
        distances: Floats = np.sqrt(np.maximum(0, 2 - 2 * found.keys[:, -1]))
        return distances

    def _offsets(self, local: Floats) -> Keys:
        return -1 / self._positive(local)

    def _keys(self, columns: Integers, keys: Floats) -> tuple[Floats, Floats, Floats]:
        inverses = 1 / self._positive(self._locals)
        below, keys = keys - 1, inverses[columns]
        keys *= below
        below *= inverses[:, None]
        return keys, below, _SLACK * inverses

    def _ceilings(self, nearest: Floats) -> Floats:
        scales, below = self._positive(self._locals), nearest - 1 + _SLACK
        ceilings = mutual_ceilings(np.minimum(below, 0), scales, np.divide)
        return np.where(below < 0, ceilings, np.inf)

    def _positive(self, scales: Floats) -> Floats:
        positive = self._locals[self._locals > 0]
        return np.where(scales > 0, scales, positive.min() if len(positive) else 1.0)


@register
class DisSimLocal(_Local):
    """-(|x - y|² - |x - c_x|² - |y - c_y|²), c the centroid of the K nearest: nearer is larger.

    Pitfalls: two passes of the engine, three for new queries. Rows that lie far from 0 are moved
    there first, which changes nothing but the rounding. Source: Hara et al., AAAI 2016.

    Parameters
    ----------
    n_neighbors : int, default 10
        K, at most the number of other items.
    other : array_like (m, d), optional
        Rows of the other side, among which the neighbours of items are sought.
    """

    name: ClassVar[str] = "dis_sim_local"
    metric: ClassVar[Form] = "euclidean"
    # |y - c|² differs more between items than the distances of a query's nearest: no ceilings
    met: ClassVar[int] = 0
    invariances: ClassVar[Invariances] = invariances("s=rank r=- R=y D=- G=- t=y")

    def learn(self, items: Rows, users: Rows | None) -> None:
        """Settle from where to measure, and search."""
        self._origin = origin_of(items)
        self._moved = bool(self._origin.any())
        super().learn(items, users)

    def items(self, B: Rows) -> Rows:
        """Return the rows, less their middle where they lie far from 0."""
        return self._prepared(B)

    def item_offsets(self, B: Rows) -> Keys:
        """Return (|b - c|² - |b|²) / 2."""
        norms = norms_of(self._prepared(B))
        return 0.5 * (self._of_items(B) - norms * norms)

    def finish(self, keys: Keys, Q: Rows) -> Keys:
        """Return 2 key - |q|² + |q - c|²."""
        norms = norms_of(self._prepared(Q))
        return 2 * keys + (self._of_queries(Q) - norms * norms)[:, None]

    def _prepared(self, rows: Rows) -> Rows:
        return rows - self._origin if self._moved else rows

    def _local(self, rows: Rows, found: Neighborhoods, there: Rows) -> Floats:
        """Squared distance to the centroid of the list."""
        return centroid_distances(rows, there, found.columns)

    def _keys(self, columns: Integers, keys: Floats) -> tuple[Floats, Floats, Floats]:
        squares = np.square(norms_of(self._rows))
        largest = max(squares.max(), self._locals.max())
        of_rows, of_locals = 0.5 * squares, 0.5 * self._locals
        halves, keys, named = 0.5 * keys, of_locals[columns], of_rows[columns]
        keys += halves
        keys += of_rows[:, None]
        named += halves
        named += of_locals[:, None]
        return keys, named, np.full(len(keys), _SLACK * largest)

    def _ceilings(self, nearest: Floats) -> Floats:
        return np.full(len(nearest), np.inf)

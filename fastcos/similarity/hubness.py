"""Hubness-reduced similarities: query normalisation, CSLS, local scaling and DisSim Local.

Hubs are items that are near to everything. Each measure corrects a score by statistics of its two
rows. All but the first search for the nearest neighbours of the items in ``fit``: a search costs
two passes of the engine, and three for queries that are not items.
"""

from typing import Any, ClassVar

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import row_transforms
from fastcos.similarity.base import BaseMeasure, Invariances, MetricType, register
from fastcos.similarity.knn_stats import RowLookup, cosine_moments, nearest_rows
from fastcos.similarity.row_maps import as_contiguous
from fastcos.similarity.row_transforms import inverses, norms_of, same_type, unit_rows
from fastcos.validation import Floats, Integers, Rows

# dis_sim_local: rows from which the origin is computed, and steps towards their median
_SAMPLE = 256
_WEISZFELD_STEPS = 16
# dis_sim_local: distance from 0 to the median, in median distances, from which rows are far from 0
_NEAR_ORIGIN = 2.0
# dis_sim_local: neighbours that a thread averages at once
_PAIRS_PER_BLOCK = 20_000


@register
class QueryNormalized(BaseMeasure):
    """(cosine - μ_q) / σ_q, with the mean and deviation of the query's cosines with all items.

    A query that is itself an item, and zero rows, are left out of the moments; σ_q = 0 gives 0.
    No pass over pairs: the moments come from d x d sums. Pitfall: affine per query, so it never
    changes a query's own ranking; it changes thresholds and pooled scores, and is not symmetric.
    Source: You arXiv:2504.16318.
    """

    name = "query_normalized"

    def _fit(self, items: Rows, users: Rows | None) -> None:
        self._moments = cosine_moments(unit_rows(items))
        self._lookup = RowLookup(items)

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return the standardised raw."""
        mean, deviation = self._moments.of(unit_rows(Q), self._lookup.find(Q) >= 0)
        scale = inverses(deviation)[:, None]
        known = np.isfinite(raw)
        return np.where(known, (np.where(known, raw, 0) - mean[:, None]) * scale, raw)


class _Local(BaseMeasure):
    """A measure with a statistic of every row's K nearest neighbours.

    An item's neighbours are rows of the other side if it is given, else other items. A query's are
    items, without itself if it is one of them and no other side is given.
    """

    metric_type = "dot"
    neighbor_metric: ClassVar[MetricType] = "cosine"

    def __init__(self, n_neighbors: int = 10, *, other: Any = None) -> None:
        self.n_neighbors = validation.as_count("n_neighbors", n_neighbors)
        self.other = None if other is None else validation.as_rows("other", other)

    def _fit(self, items: Rows, users: Rows | None) -> None:
        """Search for the neighbours of every item: one more pass of the engine."""
        other = self.other if users is None else users
        self._rows = self._prepared(items)
        self._two_sides = other is not None
        available = len(items) - 1 if other is None else len(other)
        if self.n_neighbors > available:
            rule = f"at most the number of rows searched ({available})"
            raise ValueError(f"n_neighbors must be {rule}, got {self.n_neighbors}")
        self._lookup = RowLookup(items)
        self._population, others = self._rows, None
        if other is not None:
            validation.check_same_width("other", other, "items", items)
            self._population = others = self._prepared(other)
        lists = nearest_rows(self._rows, others, self.n_neighbors, self.neighbor_metric)
        self._statistics = self._statistic(self._rows, *lists, self._population)

    def _of(self, rows: Rows, *, items: bool) -> Floats:
        """Return the statistic of items, or of queries; known for the rows that were fitted."""
        lookup = validation.check_fitted(self.name, getattr(self, "_lookup", None))
        known = items or not self._two_sides
        number = lookup.find(rows) if known else np.full(len(rows), -1)
        statistics = np.empty(len(rows))
        statistics[number >= 0] = self._statistics[number[number >= 0]]
        new = np.flatnonzero(number < 0)
        if len(new):
            population = self._population if items else self._rows
            given, k = self._prepared(rows[new]), min(self.n_neighbors, len(population))
            lists = nearest_rows(given, population, k, self.neighbor_metric)
            statistics[new] = self._statistic(given, *lists, population)
        return statistics

    def _prepared(self, rows: Rows) -> Rows:
        return rows

    def _statistic(self, rows: Rows, columns: Integers, scores: Floats, population: Rows) -> Floats:
        raise NotImplementedError


@register
class CSLS(_Local):
    """2 cosine - r(x) - r(y), with r the mean cosine to the K nearest.

    Scores of hubs decrease. Between two sides, as in the source, r of an item is over the queries:
    give ``other=queries``. Without it r of an item is over the other items, whatever the queries
    are, so that a result does not depend on which queries are searched together.
    Pitfall: two passes of the engine, three for new queries. Source: Conneau et al.
    arXiv:1710.04087.

    Parameters
    ----------
    n_neighbors : int, default 10
        K, at most the number of other items.
    other : array_like (m, d), optional
        Rows of the other side, such as another language's: neighbours of items are among them.
        Default: among the other items.
    """

    name = "csls"

    def encode_items(self, B: Rows) -> Rows:
        """Return unit rows, float64."""
        return unit_rows(B)

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return 2 raw - r(q)."""
        return 2 * raw - self._of(Q, items=False)[:, None]

    def _statistic(self, rows: Rows, columns: Integers, scores: Floats, population: Rows) -> Floats:
        return scores.mean(axis=1)

    def item_bias(self, B: Rows) -> Floats:
        """Return -r(b) / 2."""
        return -0.5 * self._of(B, items=True)


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
        As in ``csls``.
    """

    name = "local_scaling"

    def __init__(self, n_neighbors: int = 7, *, other: Any = None) -> None:
        super().__init__(n_neighbors, other=other)

    def encode_queries(self, Q: Rows) -> Rows:
        """Return unit rows, float64."""
        return unit_rows(Q)

    def encode_items(self, B: Rows) -> Rows:
        """Return unit rows / s, float64."""
        return unit_rows(B, 1 / self._positive(self._of(B, items=True)))

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return exp(2 raw / s)."""
        return np.exp(2 * raw / self._positive(self._of(Q, items=False))[:, None])

    def _statistic(self, rows: Rows, columns: Integers, scores: Floats, population: Rows) -> Floats:
        return np.sqrt(np.maximum(0, 2 - 2 * scores[:, -1]))

    def item_bias(self, B: Rows) -> Floats:
        """Return -1 / s."""
        return -1 / self._positive(self._of(B, items=True))

    def _positive(self, scales: Floats) -> Floats:
        positive = self._statistics[self._statistics > 0]
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
        As in ``csls``.
    """

    name = "dis_sim_local"
    neighbor_metric = "euclidean"
    invariances = Invariances(s="rank", r="-", R="y", D="-", G="-", t="y")

    def _fit(self, items: Rows, users: Rows | None) -> None:
        self._origin = _origin_of(items)
        self._moved = bool(self._origin.any())
        super()._fit(items, users)

    def encode_items(self, B: Rows) -> Rows:
        """Return the rows, minus their median if they lie far from 0."""
        return self._prepared(B)

    def item_bias(self, B: Rows) -> Floats:
        """Return (|b - c|² - |b|²) / 2."""
        norms = norms_of(self._prepared(B))
        return 0.5 * (self._of(B, items=True) - norms * norms)

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return 2 raw - |q|² + |q - c|²."""
        norms = norms_of(self._prepared(Q))
        return 2 * raw + (self._of(Q, items=False) - norms * norms)[:, None]

    def _prepared(self, rows: Rows) -> Rows:
        return rows - self._origin if self._moved else rows

    def _statistic(self, rows: Rows, columns: Integers, scores: Floats, population: Rows) -> Floats:
        """Return the squared distance to the centroid of the list."""
        rows, population = same_type(rows, population)
        distances = parallel.unfilled(len(rows), np.float64)
        blocks = parallel.row_blocks(len(rows), max(1, _PAIRS_PER_BLOCK // self.n_neighbors))
        given = map(as_contiguous, (rows, population, columns))
        parallel.run(row_transforms.centroid_distances, blocks, *given, distances)
        return distances


def _origin_of(rows: Rows) -> Floats:
    """Return 0, or the geometric median of some rows where they lie far from 0.

    Products of rows that share a large part lose the digits in which they differ. The mean would
    not help: where few rows are large and most are nearly 0, most lie far from it. Weiszfeld's
    algorithm.
    """
    sample = rows[:: -(-len(rows) // _SAMPLE)].astype(np.float64)
    centre: Floats = np.median(sample, axis=0)
    distances = np.linalg.norm(sample - centre, axis=1)
    for _ in range(_WEISZFELD_STEPS):
        least = 1e-9 * distances.max()
        if least == 0:
            break
        weights = least / np.maximum(distances, least)
        centre = np.einsum("i,ij->j", weights, sample) / weights.sum()
        distances = np.linalg.norm(sample - centre, axis=1)
    around = np.linalg.norm(centre) <= _NEAR_ORIGIN * np.median(distances)
    return np.zeros_like(centre) if around else centre

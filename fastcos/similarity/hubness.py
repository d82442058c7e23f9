"""Similarities that reduce hubness: query normalisation, CSLS, local scaling and DisSim Local.

Hubs are items that are near to very many other items. Query normalisation corrects a score by
statistics of the query. CSLS, local scaling and DisSim Local correct a score by statistics of the
query and of the item. For these three measures, ``fit`` searches for the nearest neighbours of the
items. With one of these three measures, ``fit`` and a search together make two passes over all
pairs. If the queries are not items, they make three passes.
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

# DisSimLocal computes a point from at most this number of sampled rows, and subtracts the point
# from all rows.
_SAMPLE = 256
# Number of steps of Weiszfeld's algorithm, which approaches the geometric median of the sampled
# rows.
_WEISZFELD_STEPS = 16
# Let m be the geometric median of the sampled rows, and let s be the median of the distances
# between the sampled rows and m. The rows count as far from 0 if the norm of m is more than
# _NEAR_ORIGIN times s.
_NEAR_ORIGIN = 2.0
# Number of neighbours that DisSimLocal averages in one task of a thread.
_PAIRS_PER_BLOCK = 20_000


@register
class QueryNormalized(BaseMeasure):
    """(cosine - μ_q) / σ_q, where μ_q and σ_q are the mean and deviation of the query's cosines.

    μ_q and σ_q are the mean and the standard deviation of the cosines of the query with the items.
    Cosines with zero rows are left out. If the query is an item, its cosine with itself is also
    left out. The score is 0 if σ_q = 0. The mean and the standard deviation are computed from d x d
    sums, without the cosines of all pairs. Pitfall: for one query, the cosines with all items get
    the same correction, so the correction never changes the order of the query's results. The
    correction matters only if the scores of different queries are compared, for example with one
    threshold. The measure is not symmetric in query and item. Source: You arXiv:2504.16318.
    """

    name = "query_normalized"

    def _fit(self, items: Rows, users: Rows | None) -> None:
        self._moments = cosine_moments(unit_rows(items))
        self._lookup = RowLookup(items)

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return the cosines, standardised by the mean and the deviation of the query's cosines."""
        mean, deviation = self._moments.of(unit_rows(Q), self._lookup.find(Q) >= 0)
        scale = inverses(deviation)[:, None]
        is_finite = np.isfinite(raw)
        return np.where(is_finite, (np.where(is_finite, raw, 0) - mean[:, None]) * scale, raw)


class _Local(BaseMeasure):
    """Base class of measures that use a statistic of the K nearest neighbours of every row.

    If ``other`` is given, the neighbours of an item are rows of ``other``; otherwise, its
    neighbours are other items. The neighbours of a query are items. If ``other`` is None and the
    query is one of the items, the query is not its own neighbour.
    """

    metric_type = "dot"
    neighbor_metric: ClassVar[MetricType] = "cosine"

    def __init__(self, n_neighbors: int = 10, *, other: Any = None) -> None:
        self.n_neighbors = validation.as_count("n_neighbors", n_neighbors)
        self.other = None if other is None else validation.as_rows("other", other)

    def _fit(self, items: Rows, users: Rows | None) -> None:
        """Find the neighbours of every item in one pass over all pairs; store the statistics."""
        other = self.other if users is None else users
        self._rows = self._moved_rows(items)
        self._two_sides = other is not None
        available = len(items) - 1 if other is None else len(other)
        if self.n_neighbors > available:
            rule = f"at most the number of rows searched ({available})"
            raise ValueError(f"n_neighbors must be {rule}, got {self.n_neighbors}")
        self._lookup = RowLookup(items)
        self._population, other_rows = self._rows, None
        if other is not None:
            validation.check_same_width("other", other, "items", items)
            self._population = other_rows = self._moved_rows(other)
        lists = nearest_rows(self._rows, other_rows, self.n_neighbors, self.neighbor_metric)
        self._statistics = self._statistic(self._rows, *lists, self._population)

    def _statistics_of(self, rows: Rows, *, are_items: bool) -> Floats:
        """Return the statistic (n,) of each row; `are_items` says whether the rows are items.

        The statistics of the fitted items are not computed again, because ``fit`` has stored them.
        """
        lookup = validation.check_fitted(self.name, getattr(self, "_lookup", None))
        is_looked_up = are_items or not self._two_sides
        item_numbers = lookup.find(rows) if is_looked_up else np.full(len(rows), -1)
        statistics = np.empty(len(rows))
        statistics[item_numbers >= 0] = self._statistics[item_numbers[item_numbers >= 0]]
        new_rows = np.flatnonzero(item_numbers < 0)
        if len(new_rows):
            population = self._population if are_items else self._rows
            moved_rows, k = self._moved_rows(rows[new_rows]), min(self.n_neighbors, len(population))
            lists = nearest_rows(moved_rows, population, k, self.neighbor_metric)
            statistics[new_rows] = self._statistic(moved_rows, *lists, population)
        return statistics

    def _moved_rows(self, rows: Rows) -> Rows:
        """Return the rows in the coordinates that the search for neighbours uses."""
        return rows

    def _statistic(self, rows: Rows, columns: Integers, scores: Floats, population: Rows) -> Floats:
        """Return the statistic (n,) of each row.

        The neighbours of each row are rows of ``population``. ``columns`` (n, k) contains the row
        numbers of the neighbours, and ``scores`` (n, k) contains their raw scores.
        """
        raise NotImplementedError


@register
class CSLS(_Local):
    """2 cosine - r(x) - r(y), where r is the mean cosine of a row with its K nearest rows.

    The measure lowers the scores of hubs. Conneau et al. compare the words of two languages. In
    their paper, r(y) is the mean of the cosines of an item y with the K nearest queries. To compute
    r as Conneau et al. do, pass ``other=queries``. If ``other`` is None, r(y) is the mean of the
    cosines of y with the K nearest of the remaining items. The result for a query then does not
    depend on the other queries of a call. Pitfall: a search makes two passes over all pairs of
    rows, or three passes if the queries are not items. Source: Conneau et al. arXiv:1710.04087.

    Parameters
    ----------
    n_neighbors : int, default 10
        The number K of neighbours, at most the number of other items.
    other : array_like (m, d), optional
        The rows among which the neighbours of an item are found, for example the words of another
        language. Default: the remaining items.
    """

    name = "csls"

    def encode_items(self, B: Rows) -> Rows:
        """Return the rows scaled to unit norm, float64."""
        return unit_rows(B)

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return 2 raw - r(q), where r(q) is the mean cosine of a query with its neighbours."""
        return 2 * raw - self._statistics_of(Q, are_items=False)[:, None]

    def _statistic(self, rows: Rows, columns: Integers, scores: Floats, population: Rows) -> Floats:
        return scores.mean(axis=1)

    def item_bias(self, B: Rows) -> Floats:
        """Return -r(b) / 2, where r(b) is the mean cosine of an item with its neighbours."""
        return -0.5 * self._statistics_of(B, are_items=True)


@register
class LocalScaling(_Local):
    """exp(-d² / (s_x s_y)), where d is the distance between the unit rows of x and y.

    s_x is the distance from the unit row of x to its K-th nearest neighbour, and s_y is the same
    distance for y.

    If a row has K duplicates, the distance to its K-th nearest neighbour is 0. For this row, the
    measure then uses the smallest positive s of all items instead. If no item has a positive s, the
    measure uses s = 1. Pitfall: a search makes two passes over all pairs of rows, or three passes
    if the queries are not items. Source: Zelnik-Manor and Perona, NIPS 2004.

    Parameters
    ----------
    n_neighbors : int, default 7
        The number K of neighbours, at most the number of other items.
    other : array_like (m, d), optional
        As in ``csls``.
    """

    name = "local_scaling"

    def __init__(self, n_neighbors: int = 7, *, other: Any = None) -> None:
        super().__init__(n_neighbors, other=other)

    def encode_queries(self, Q: Rows) -> Rows:
        """Return the rows scaled to unit norm, float64."""
        return unit_rows(Q)

    def encode_items(self, B: Rows) -> Rows:
        """Return the unit row of each item, divided by the scale s of the item, in float64."""
        return unit_rows(B, 1 / self._positive(self._statistics_of(B, are_items=True)))

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return exp(2 raw / s), where s is the scale of the query."""
        return np.exp(2 * raw / self._positive(self._statistics_of(Q, are_items=False))[:, None])

    def _statistic(self, rows: Rows, columns: Integers, scores: Floats, population: Rows) -> Floats:
        return np.sqrt(np.maximum(0, 2 - 2 * scores[:, -1]))

    def item_bias(self, B: Rows) -> Floats:
        """Return -1 / s, where s is the scale of each item."""
        return -1 / self._positive(self._statistics_of(B, are_items=True))

    def _positive(self, scales: Floats) -> Floats:
        positive = self._statistics[self._statistics > 0]
        return np.where(scales > 0, scales, positive.min() if len(positive) else 1.0)


@register
class DisSimLocal(_Local):
    """-(|x - y|² - |x - c_x|² - |y - c_y|²), where c is the centroid of a row's K nearest rows.

    Pitfall: a search makes two passes over all pairs of rows, or three passes if the queries are
    not items. If the rows lie far from 0, the same vector is subtracted from all rows, which makes
    rounding errors smaller. Source: Hara et al., AAAI 2016.

    Parameters
    ----------
    n_neighbors : int, default 10
        The number K of neighbours, at most the number of other items.
    other : array_like (m, d), optional
        As in ``csls``.
    """

    name = "dis_sim_local"
    neighbor_metric = "euclidean"
    invariances = Invariances(s="rank", r="-", R="y", D="-", G="-", t="y")

    def _fit(self, items: Rows, users: Rows | None) -> None:
        self._origin = _origin_of(items)
        self._is_moved = bool(self._origin.any())
        super()._fit(items, users)

    def encode_items(self, B: Rows) -> Rows:
        """Return the rows; if the items lie far from 0, subtract their geometric median."""
        return self._moved_rows(B)

    def item_bias(self, B: Rows) -> Floats:
        """Return (|b - c|² - |b|²) / 2 for each item b; c is the centroid of its neighbours."""
        norms = norms_of(self._moved_rows(B))
        return 0.5 * (self._statistics_of(B, are_items=True) - norms * norms)

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return ``2 * raw - |q|² + |q - c|²`` for each query q.

        The vector c is the centroid of the neighbours of q.
        """
        norms = norms_of(self._moved_rows(Q))
        return 2 * raw + (self._statistics_of(Q, are_items=False) - norms * norms)[:, None]

    def _moved_rows(self, rows: Rows) -> Rows:
        return rows - self._origin if self._is_moved else rows

    def _statistic(self, rows: Rows, columns: Integers, scores: Floats, population: Rows) -> Floats:
        """Return the squared distance (n,) of each row to the centroid of its K neighbours."""
        rows, population = same_type(rows, population)
        distances = parallel.unfilled(len(rows), np.float64)
        blocks = parallel.row_blocks(len(rows), max(1, _PAIRS_PER_BLOCK // self.n_neighbors))
        arrays = map(as_contiguous, (rows, population, columns))
        parallel.run(row_transforms.centroid_distances, blocks, *arrays, distances)
        return distances


def _origin_of(rows: Rows) -> Floats:
    """Return 0 or, if the rows lie far from 0, the geometric median of a sample of the rows.

    The result is subtracted from the rows before the rows are multiplied. If the rows shared a
    large component, their products would lose the digits in which the rows differ. Subtracting the
    mean of the rows would not suffice: if a few rows are large and all others are nearly 0, the
    mean lies far from most rows. The geometric median is computed by Weiszfeld's algorithm.
    """
    sample = rows[:: -(-len(rows) // _SAMPLE)].astype(np.float64)
    centre: Floats = np.median(sample, axis=0)
    distances = np.linalg.norm(sample - centre, axis=1)
    for _ in range(_WEISZFELD_STEPS):
        min_distance = 1e-9 * distances.max()
        if min_distance == 0:
            break
        weights = min_distance / np.maximum(distances, min_distance)
        centre = np.einsum("i,ij->j", weights, sample) / weights.sum()
        distances = np.linalg.norm(sample - centre, axis=1)
    is_near_origin = np.linalg.norm(centre) <= _NEAR_ORIGIN * np.median(distances)
    return np.zeros_like(centre) if is_near_origin else centre

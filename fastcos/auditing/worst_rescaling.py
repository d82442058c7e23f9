"""The one map of bounded condition, found by search, under which most neighbours are replaced.

Certificates and attacks treat each edge by itself: every edge may have a D of its own. Here one map
acts on all items at once, as another parametrisation of the model would.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import parallel, validation
from fastcos.auditing.attacks import N_LISTED, nearest_and_competing
from fastcos.auditing.edges import ItemRows, as_edges, gather_items, standard_error
from fastcos.kernels import worst_rescaling as kernels
from fastcos.reports import as_table
from fastcos.similarity.cosine_bounds import CONDITION
from fastcos.validation import Floats, Integers

FAMILIES = ("rescaling", "linear")
# up to this number of items, all are searched and counted; else a sample, and others counted
_ALL_ROWS, _SEARCHED_ROWS = 1000, 500
# numbers of the rows of all lists in memory, and the fewest items that are sampled in any case
_ENTRIES, _LEAST_ROWS = 2**24, 100
# searches from different starts; the first follow gradients, the others are random
N_STARTS, _MOST_STARTS = 16, 1000
# starts in an audit: the fewest on a sample, where more replace no more of other items' neighbours;
# else this over rows times dimensions: 4 of 1,000 x 50 replace 13.2 to 13.5 %, 2 13.0 to 13.3 %
_FEWEST_STARTS, _WORK = 2, 200_000
# counts of a search for each dimension; half of them on a sample, which finds as much of other
# items, and for linear maps (15.7 to 16.1 % of 1,000 x 50, not 16.0 to 16.3 %)
_COUNTS = 12
# weights that are turned over where no single turn helps
_TURNED = 3
# an item can pass an edge only if its z = artanh(cosine) is less by at most this times the log of
# the condition (Theorem 6); a search takes fewer items: with 0.6 it misses edges of small models
_PROVEN_GAP, _GAP = 2.0, 1.0
# widths of the score differences that a gradient counts, over the largest change by a map
_WIDTHS = (0.03, 0.1, 0.3, 1.0)
# of the bases of the linear family: each is that of the gradient at the map found in the one before
_LINEAR_WIDTHS = (0.1, 0.3, 0.1)
# the same for each condition of a curve: the search starts from what another condition found, so
# that 1, 2 and 4 counts find the same within a point
_COUNTS_OF_CURVE = 2
# rescalings drawn at random for comparison
_RANDOM_MAPS = 5


@as_table
class WorstRescaling(NamedTuple):
    """The map, of those tried, that replaces most neighbours.

    Attributes
    ----------
    condition : float
        Of the map, at most.
    replaced : float
        Share of the k nearest neighbours that leave the k nearest under this map: a lower bound of
        the worst map, since a search may miss it.
    error : float
        Standard error of it, over items; 0 if all items were counted.
    n_items : int
        Items whose neighbours were counted. The search did not use a sample; for linear maps, the
        sample chose the best of its four.
    map : ndarray (d,) or (d, d), float64
        Of items: the diagonal of 1 / D, for ``items * map``, or G, for ``items @ map``.
    """

    condition: float
    replaced: float
    error: float
    n_items: int
    map: Floats


def worst_rescaling(
    items: Any,
    k: int = 10,
    condition: float = CONDITION,
    *,
    family: str = "rescaling",
    n_starts: int = N_STARTS,
    n_threads: int | None = None,
    random_state: int | np.random.Generator = 0,
) -> WorstRescaling:
    """Search the single map of bounded condition that replaces most neighbours.

    The share of neighbours that survive all maps at once (:func:`certified_neighbors`) may lose
    each neighbour to another map. A model has one parametrisation at a time: this is how bad one
    can be. A lower bound: more starts may find more.

    Parameters
    ----------
    items, k, condition, n_threads
        As in :func:`fastcos.certified_neighbors`.
    family : {"rescaling", "linear"}
        Diagonal maps, or all invertible ones.
    n_starts : int
        Starts of the search, each a vertex of the box of rescalings; up to 1,000.
    random_state : int or Generator
        Seed of the samples and the starts. The same seed gives the same bits.

    Returns
    -------
    WorstRescaling

    Notes
    -----
    Iterated local search: one weight of D at a time is switched between the ends of its range, if
    more neighbours are lost; where none helps, three random weights of the best D are switched, and
    the search goes on. Starts: the signs of a gradient of the number lost, and random ones. For
    linear maps it runs in the eigenvectors of the gradient by the metric GG'. Maps are searched and
    counted on all of up to 1,000 items; of more, on 500 and on 1,000 others.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import worst_rescaling
    >>> items = np.random.default_rng(0).standard_normal((200, 8))
    >>> worst = worst_rescaling(items, k=5, condition=1.2)
    >>> bool(0.1 < worst.replaced < 0.3), float(worst.map.max() / worst.map.min())
    (True, 1.2)
    """
    sample, k, condition = as_edges(items, k, condition, n_threads=n_threads)
    family = validation.as_choice("family", family, FAMILIES)
    n_starts = validation.as_count("n_starts", n_starts, high=_MOST_STARTS)
    generator = validation.as_generator("random_state", random_state)
    n_directed = int((sample.norms > 0).sum())
    validation.check_enough("items", n_directed, k + 1, "rows that are not zero")
    search = MapSearch(sample, k, generator, n_starts)
    worst = search.worst(condition)
    return worst if family == "rescaling" else search.worst_linear(worst)


class MapSearch:
    """Edges of sampled items, on which maps are searched, and edges of others, which are counted.

    n_starts None: as many as the number of items allows.
    """

    def __init__(
        self, sample: ItemRows, k: int, generator: np.random.Generator, n_starts: int | None = None
    ) -> None:
        self._k, self._generator = k, generator
        directed = generator.permutation(np.flatnonzero(sample.norms > 0))
        searched = counted = directed
        if len(directed) > _ALL_ROWS:
            most = _ENTRIES // (sample.items.shape[1] * (k + N_LISTED + 1))
            n_searched = min(_SEARCHED_ROWS, max(_LEAST_ROWS, most // 2))
            searched, counted = np.split(directed, [n_searched])
            counted = counted[: min(_ALL_ROWS, max(_LEAST_ROWS, most))]
        self._searched = _Edges(sample.subset(np.sort(searched)), k)
        self._counted, self._counts = self._searched, _COUNTS
        fitting = _WORK // (len(searched) * self._searched.units.shape[1])
        if counted is not searched:
            self._counted = _Edges(sample.subset(np.sort(counted)), k)
            fitting, self._counts = _FEWEST_STARTS, _COUNTS // 2
        self._n_starts = n_starts or min(N_STARTS, max(_FEWEST_STARTS, fitting))
        self._population = len(sample.items)

    @parallel.one_blas_thread()
    def worst(self, condition: float) -> WorstRescaling:
        """The rescaling of this condition that loses most edges."""
        units, n = self._searched.units, self._n_starts
        one, starts = np.eye(units.shape[1]), self._generator.random((n, units.shape[1])) < 0.5
        for number, width in enumerate(_WIDTHS[:n]):
            starts[number] = np.diag(self._gradient(one, condition, width)) > 0
        weights, counts = self._climb(units, [condition] * n, starts, self._counts)
        return self.count(np.sqrt(weights[counts.argmax()]), condition)

    @parallel.one_blas_thread()
    def worst_linear(self, rescaling: WorstRescaling) -> WorstRescaling:
        """The linear map of a rescaling's condition that loses most edges: it starts there."""
        units, condition = self._searched.units, rescaling.condition
        tried = [rescaling._replace(map=np.diag(rescaling.map))]
        for width in _LINEAR_WIDTHS:
            metric = tried[-1].map @ tried[-1].map.T
            values, basis = np.linalg.eigh(self._gradient(metric, condition, width))
            weights, _ = self._climb(units @ basis, [condition], values[None] > 0, _COUNTS // 2)
            tried.append(self.count(basis * np.sqrt(weights[0]), condition))
        return max(tried, key=lambda worst: worst.replaced)

    @parallel.one_blas_thread()
    def along(self, conditions: Sequence[float], known: WorstRescaling) -> list[WorstRescaling]:
        """Maps of other conditions that start from a known one, in its basis."""
        if known.map.ndim == 1:
            basis, sizes = np.eye(len(known.map)), known.map
        else:
            basis, sizes, _ = np.linalg.svd(known.map)
        starts = np.tile(sizes > np.sqrt(sizes.min() * sizes.max()), (len(conditions), 1))
        units = self._searched.units @ basis
        weights, _ = self._climb(units, conditions, starts, _COUNTS_OF_CURVE)
        maps = np.sqrt(weights)
        if known.map.ndim == 2:
            maps = basis * maps[:, None, :]
        return list(map(self.count, maps, conditions))

    def random(self, condition: float) -> float:
        """Mean share lost by random rescalings, their logarithms uniform up to the condition's."""
        d = self._counted.units.shape[1]
        logs = self._generator.uniform(0, np.log(condition), (_RANDOM_MAPS, d))
        return float(np.mean([self.count(map_, condition).replaced for map_ in np.exp(logs)]))

    def count(self, map_: Floats, condition: float) -> WorstRescaling:
        """What one map of this condition, (d,) or (d, d), replaces."""
        shares = self._counted.lost(map_, condition) / self._k
        error = standard_error(shares, self._population)
        return WorstRescaling(condition, float(shares.mean()), error, len(shares), map_)

    def _climb(
        self,
        units: Floats,
        conditions: Sequence[float],
        high: npt.NDArray[np.bool_],
        counts_per_dimension: int,
    ) -> tuple[Floats, Integers]:
        """Weights (s, d) of searches for each condition from where they are high; edges lost."""
        edges, (n, d) = self._searched, high.shape
        ends = np.square(conditions)[:, None]
        n_rounds = counts_per_dimension + 1
        orders = self._generator.permuted(np.tile(np.arange(d), (n, n_rounds, 1)), axis=2)
        turned = self._generator.integers(0, d, (n, n_rounds, _TURNED))
        weights, counts = np.where(high, ends, 1).astype(np.float32), parallel.unfilled(n, np.int64)
        lengths = np.stack([edges.lengths(_GAP, condition) for condition in conditions])
        kept = (lengths > self._k).any(axis=0)
        parallel.run(
            kernels.climb, parallel.row_blocks(n, 1),
            validation.read_only(np.ascontiguousarray(units.T, dtype=np.float32)),
            validation.read_only(edges.rows[kept]),
            # the narrowest numbers: a search reads nothing else as often
            validation.read_only(edges.neighbors[kept].astype(np.int32)),
            validation.read_only(np.ascontiguousarray(lengths[:, kept])),
            self._k, validation.read_only(ends[:, 0].astype(np.float32)), counts_per_dimension * d,
            validation.read_only(orders), validation.read_only(turned), weights, counts,
            n_threads=edges.n_threads,
        )  # fmt: skip
        return np.where(weights > 1, ends, 1.0), counts

    def _gradient(self, metric: Floats, condition: float, width: float) -> Floats:
        """Derivative (d, d), by the metric, of a smooth number of lost edges.

        A list's edges count where they are near the threshold between place k and k + 1: by a
        bump as wide as width times the largest change of a score by this condition.
        """
        edges, k = self._searched, self._k
        units, x, y = edges.units, edges.rows, edges.neighbors
        images = units @ metric
        inverse = _inverse(np.einsum("ij,ij->i", images, units))
        products = np.empty(y.shape)
        for r in range(y.shape[1]):
            products[:, r] = np.einsum("ij,ij->i", images[x], units[y[:, r]])
        scores = products * inverse[x][:, None] * inverse[y]
        if y.shape[1] <= k:
            return np.zeros(metric.shape)
        ranked = -np.sort(-scores, axis=1)
        middle = (ranked[:, k - 1] + ranked[:, k])[:, None] / 2
        scale = width * np.log(condition) * np.maximum(1 - middle**2, 1e-12) + 1e-300
        slopes = 1 / np.cosh(np.clip((scores - middle) / scale, -50, 50)) ** 2 / scale
        slopes[:, :k] *= -1
        # sum of slopes times the derivative of x'My / sqrt(x'Mx y'My)
        pairs = slopes * inverse[x][:, None] * inverse[y]
        n, m = y.shape
        table = sp.csr_array((pairs.ravel(), y.ravel(), m * np.arange(n + 1)), (n, len(units)))
        others = table @ units
        halves = -0.5 * slopes * scores
        weights = np.bincount(y.ravel(), (halves * inverse[y] ** 2).ravel(), len(units))
        weights += np.bincount(x, halves.sum(axis=1) * inverse[x] ** 2, len(units))
        crossed = units[x].T @ others
        return (crossed + crossed.T) / 2 + (units * weights[:, None]).T @ units


def _inverse(squares: Floats) -> Floats:
    """1 over the lengths of these squares, 0 for zero rows."""
    lengths = np.sqrt(squares)
    return np.divide(1, lengths, out=np.zeros(len(lengths)), where=lengths > 0)


class _Edges:
    """Unit rows of some items and of those in their lists; the lists by descending cosine."""

    def __init__(self, sample: ItemRows, k: int) -> None:
        lists = validation.read_only(nearest_and_competing(sample, k))
        gathered, self.neighbors = gather_items(sample, lists)
        norms = np.where(gathered.norms > 0, gathered.norms, 1.0)
        self.units: Floats = gathered.items.astype(np.float64) / norms[:, None]
        self.rows, self.n_threads, self._k = gathered.rows, sample.n_threads, k
        cosines = np.einsum("id,imd->im", self.units[self.rows], self.units[self.neighbors])
        self._fisher_z = np.arctanh(np.clip(cosines, -1 + 1e-12, 1 - 1e-12))

    def lengths(self, gap: float, condition: float) -> Integers:
        """How many items of each list have a z at most gap ln condition below the last edge's."""
        gaps = self._fisher_z[:, self._k - 1 : self._k] - self._fisher_z
        return (gaps <= gap * np.log(condition)).sum(axis=1)

    def lost(self, map_: Floats, condition: float) -> Integers:
        """Edges of each row that listed items pass under a map of this condition.

        From the images: products by the metric GG' err by the square of the condition.
        """
        mapped = self.units * map_ if map_.ndim == 1 else self.units @ map_
        inverse = _inverse(np.einsum("ij,ij->i", mapped, mapped))
        own = mapped[self.rows] * inverse[self.rows, None]
        counts = parallel.unfilled(len(self.rows), np.int64)
        parallel.run(
            kernels.count_lost_by_row, parallel.row_blocks(len(self.rows), 64),
            validation.read_only(own), validation.read_only(mapped),
            validation.read_only(inverse), self.neighbors,
            validation.read_only(self.lengths(_PROVEN_GAP, condition)), self._k, counts,
            n_threads=self.n_threads,
        )  # fmt: skip
        return counts

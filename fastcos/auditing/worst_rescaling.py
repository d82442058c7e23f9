"""The one map of bounded condition, found by search, under which most neighbours are replaced.

Certificates and attacks treat each edge by itself: every edge may have a D of its own. Here one map
acts on all items at once, as another parametrisation of the model would.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastcos import parallel, validation
from fastcos.auditing.attacks import N_LISTED
from fastcos.auditing.edges import ItemRows, as_edges, gather_items, nearest
from fastcos.auditing.sampling import standard_error
from fastcos.kernels import worst_rescaling as kernels
from fastcos.neighbors.index import SimilarityIndex
from fastcos.reports.table import as_table
from fastcos.rescaling.cosine_bounds import CONDITION
from fastcos.validation import Floats, Integers

FAMILIES = ("rescaling", "linear")
# up to so many items, all are searched and counted; else a sample is searched, others counted
_ALL_ROWS, _SEARCHED_ROWS = 1000, 500
# numbers of the rows of all lists in memory, and the fewest items that are sampled in any case
_ENTRIES, _LEAST_ROWS = 2**24, 100
# starts of a search; half of them follow gradients, the others are random
N_STARTS = 16
# passes over the dimensions from one start; most searches stop after fewer
_SWEEPS = 6
# widths of the score differences that a gradient counts, over the largest change by a map
_WIDTHS = (0.03, 0.1, 0.3, 1.0)
# share of the weights that a start near the best has at the other end
_TURNED = 0.1
# bases of the linear family: each is that of the gradient at the map found in the one before
_BASES = 2
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
        Items whose neighbours were counted. A sample was not used by the search.
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
    items : array_like (p, d), float32 or float64
        Item embeddings. Zero rows have no neighbours.
    k : int
        Neighbours per item.
    condition : float
        Largest singular value of the map over its smallest (for D: largest entry over smallest).
    family : {"rescaling", "linear"}
        Diagonal maps, or all invertible ones.
    n_starts : int
        Starts of the search, each a vertex of the box of rescalings.
    n_threads : int, optional
        As in :func:`fastcos.top_k`.
    random_state : int or Generator
        Seed of the samples and the starts. The same seed gives the same bits.

    Returns
    -------
    WorstRescaling
        condition, replaced, error, n_items, map.

    Raises
    ------
    ValueError
        NaN or infinity; k, condition, family or n_starts out of range; fewer than k + 1 rows that
        are not zero.

    Notes
    -----
    Coordinate ascent: one weight of D at a time is switched between the ends of its range, if more
    neighbours are lost. Starts: the signs of a gradient of the number lost, random ones, and some
    near the best found so far. For linear maps it runs in the eigenvectors of the gradient by the
    metric GG'. Maps are searched and counted on all of up to 1,000 items; of more, on 500 and on
    1,000 others.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import worst_rescaling
    >>> items = np.random.default_rng(0).standard_normal((200, 8))
    >>> found = worst_rescaling(items, k=5, condition=1.2)
    >>> bool(0.1 < found.replaced < 0.3), float(found.map.max() / found.map.min())
    (True, 1.2)
    """
    sample, k, condition = as_edges(items, k, condition, None)
    family = validation.as_choice("family", family, FAMILIES)
    n_starts = validation.as_count("n_starts", n_starts)
    generator = validation.as_generator("random_state", random_state)
    if (sample.norms > 0).sum() < k + 1:
        raise ValueError(f"items must have {k + 1} rows that are not zero, got fewer")
    index = SimilarityIndex(n_threads=n_threads).fit(sample.items)
    search = MapSearch(sample, index, k, generator, n_starts, n_threads)
    found = search.worst(condition)
    return found if family == "rescaling" else search.worst_linear(found)


class MapSearch:
    """Edges of sampled items, on which maps are searched, and edges of others, which are counted.

    index: of the items.
    """

    def __init__(
        self,
        sample: ItemRows,
        index: SimilarityIndex,
        k: int,
        generator: np.random.Generator,
        n_starts: int = N_STARTS,
        n_threads: int | None = None,
        n_searched: int = _ALL_ROWS,
        n_counted: int = _ALL_ROWS,
    ) -> None:
        self._k, self._n_threads, self._n_starts = k, n_threads, n_starts
        self._generator = generator
        directed = generator.permutation(np.flatnonzero(sample.norms > 0))
        searched, counted = directed[:n_searched], directed
        if len(directed) > n_counted:
            most = _ENTRIES // (sample.items.shape[1] * (k + N_LISTED + 1))
            n_searched = min(_SEARCHED_ROWS, n_searched, max(_LEAST_ROWS, most // 2))
            searched, counted = np.split(directed, [n_searched])
            counted = counted[: min(n_counted, max(_LEAST_ROWS, most))]
        self._searched = _Edges(sample, index, np.sort(searched), k, n_threads)
        self._counted = self._searched
        if len(searched) != len(counted):
            self._counted = _Edges(sample, index, np.sort(counted), k, n_threads)
        self._population = len(sample.items)
        # bests of earlier conditions are starts of later ones
        self._known: list[Any] = []

    @parallel.one_blas_thread()
    def worst(self, condition: float) -> WorstRescaling:
        """The rescaling of this condition that loses most edges."""
        edges, d = self._searched, self._searched.units.shape[1]
        one = np.eye(d)
        starts: list[Any] = [
            np.diag(self._gradient(one, condition, width)) > 0 for width in _WIDTHS
        ]
        starts += self._known
        weights = self._climb(edges.units, condition, starts)
        near = self._generator.random((self._n_starts, d)) < _TURNED
        near[0] = False
        weights = self._climb(edges.units, condition, [*((weights > 1) ^ near)])
        self._known = [weights > 1]
        return self._result(condition, np.sqrt(weights))

    @parallel.one_blas_thread()
    def worst_linear(self, rescaling: WorstRescaling) -> WorstRescaling:
        """The linear map of a rescaling's condition that loses most edges: it starts there."""
        edges, condition = self._searched, rescaling.condition
        best = rescaling
        metric = np.diag(rescaling.map**2)
        for _ in range(_BASES):
            vertices = []
            for width in _WIDTHS[1:3]:
                values, basis = np.linalg.eigh(self._gradient(metric, condition, width))
                weights = np.where(values > 0, condition**2, 1.0)
                images = edges.units @ (basis * np.sqrt(weights))
                lost = edges.lost(images, self._k, self._n_threads).sum()
                vertices.append((lost, basis, weights))
            _, basis, weights = max(vertices, key=lambda one: one[0])
            weights = self._climb(edges.units @ basis, condition, [weights > 1], n_starts=1)
            G = basis * np.sqrt(weights)
            metric = G @ G.T
            result = self._result(condition, G)
            best = max(best, result, key=lambda one: one.replaced)
        if best is rescaling:
            return rescaling._replace(map=np.diag(rescaling.map))
        return best

    def random(self, condition: float) -> float:
        """Mean share that rescalings lose whose logarithms are uniform up to the condition's."""
        d = self._counted.units.shape[1]
        logs = self._generator.uniform(0, np.log(condition), (_RANDOM_MAPS, d))
        return float(np.mean([self._result(condition, one).replaced for one in np.exp(logs)]))

    def _result(self, condition: float, map_: Floats) -> WorstRescaling:
        edges = self._counted
        rows = edges.units * map_ if map_.ndim == 1 else edges.units @ map_
        shares = edges.lost(rows, self._k, self._n_threads) / self._k
        error = standard_error(shares, self._population)
        return WorstRescaling(condition, float(shares.mean()), error, len(shares), map_)

    def _climb(
        self, units: Floats, condition: float, starts: list[Any], n_starts: int | None = None
    ) -> Floats:
        """The best weights (d,) from the given starts, and random ones up to n_starts."""
        edges, d, K = self._searched, units.shape[1], condition**2
        n = max(len(starts), n_starts or self._n_starts)
        high = self._generator.random((n, d)) < 0.5
        high[: len(starts)] = starts
        orders = self._generator.permuted(np.tile(np.arange(d), (n, _SWEEPS, 1)), axis=2)
        weights, counts = np.where(high, K, 1.0), parallel.unfilled(n, np.int64)
        parallel.run(
            kernels.climb, parallel.row_blocks(n, 1),
            validation.read_only(np.ascontiguousarray(units.T)), edges.rows, edges.neighbors,
            self._k, K, _SWEEPS, validation.read_only(orders), weights, counts,
            n_threads=self._n_threads,
        )  # fmt: skip
        best: Floats = weights[counts.argmax()]
        return best

    def _gradient(self, metric: Floats, condition: float, width: float) -> Floats:
        """Derivative (d, d), by the metric, of a smooth number of lost edges.

        A list's edges count where they are near the threshold between place k and k + 1: by a
        bump as wide as width times the largest change of a score by this condition.
        """
        edges, k = self._searched, self._k
        units = edges.units
        images = units @ metric
        squares = np.einsum("ij,ij->i", images, units)
        inverse = 1 / np.sqrt(np.where(squares > 0, squares, 1.0))
        x, y = edges.rows, edges.neighbors
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
        found: Floats = (crossed + crossed.T) / 2 + (units * weights[:, None]).T @ units
        return found


class _Edges:
    """Unit rows of some items and of those in their lists; the lists by descending cosine."""

    def __init__(
        self,
        sample: ItemRows,
        index: SimilarityIndex,
        rows: Integers,
        k: int,
        n_threads: int | None,
    ) -> None:
        part = sample.subset(rows)
        length = min(len(sample.items) - 1, k + N_LISTED)
        lists = nearest(part, length, n_threads, index=index).indices
        gathered, neighbors = gather_items(part, validation.read_only(lists))
        norms = np.where(gathered.norms > 0, gathered.norms, 1.0)
        self.units: Floats = gathered.items.astype(np.float64) / norms[:, None]
        self.rows, self.neighbors = gathered.rows, neighbors

    def lost(self, images: Floats, k: int, n_threads: int | None) -> Integers:
        """Edges of each row with at least k listed items nearer, among images of the units."""
        counts = parallel.unfilled(len(self.rows), np.int64)
        parallel.run(
            kernels.count_lost_by_row, parallel.row_blocks(len(self.rows), 64),
            validation.read_only(np.ascontiguousarray(images)), self.rows, self.neighbors, k,
            counts, n_threads=n_threads,
        )  # fmt: skip
        return counts

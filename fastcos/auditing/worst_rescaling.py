"""A search for the map that replaces the most neighbours, with a limited condition number.

Certificates and attacks treat each edge (a pair of an item and a neighbour) separately, so each
edge may be removed by a different rescaling D. The search of this module looks for a single map of
all items, because a change to another parametrisation of the model is also a single map of all
items.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import parallel, validation
from fastcos.auditing.attacks import N_LISTED, nearest_and_competing
from fastcos.auditing.neighbor_edges import ItemRows, as_edges, gather_items, standard_error
from fastcos.kernels import worst_rescaling as kernels
from fastcos.reports import as_table
from fastcos.similarity.cosine_bounds import CONDITION
from fastcos.validation import Floats, Integers

FAMILIES = ("rescaling", "linear")
# If there are at most _ALL_ROWS items, the search uses all of them, and also counts the replaced
# neighbours of all of them. If there are more than _ALL_ROWS items, the search uses a sample of
# _SEARCHED_ROWS items. In this case, replaced neighbours are counted for at most _ALL_ROWS items
# that are not in the sample.
_ALL_ROWS, _SEARCHED_ROWS = 1000, 500
# The embeddings of all listed items may contain at most _MAX_ENTRIES numbers. If the limit would be
# exceeded, the search samples fewer items, but at least _MIN_ROWS.
_MAX_ENTRIES, _MIN_ROWS = 2**24, 100
# Default and largest number of starting points of a search. The first starting points are computed
# from gradients, and the remaining starting points are random.
N_STARTS, _MAX_STARTS = 16, 1000
# If the search uses a sample, an audit uses only _MIN_STARTS starting points. With more starting
# points, the search would find a map that replaces more neighbours of the sampled items. However,
# this map would not replace more neighbours of other items. If the search uses all items, it has
# _START_BUDGET / (rows * dimensions) starting points, but at least _MIN_STARTS and at most
# N_STARTS. For 1,000 items with 50 dimensions, an audit uses 4 starting points. The share of
# replaced neighbours is 0.2 percentage points higher with 4 starting points than with 2.
_MIN_STARTS, _START_BUDGET = 2, 200_000
# One search tries _FLIPS_PER_DIMENSION flips of weights per dimension. A search on a sample tries
# only half as many flips. With more flips, the search would find a map that replaces more
# neighbours of the sampled items. However, this map would not replace more neighbours of other
# items. A search for a linear map always tries half of _FLIPS_PER_DIMENSION flips per dimension,
# even if the search uses all items. For 1,000 items with 50 dimensions, a search uses all items. If
# such a search tried twice as many flips, the share of replaced neighbours would increase by only
# 0.3 percentage points.
_FLIPS_PER_DIMENSION = 12
# If no flip of a single weight increases the number of replaced neighbours, the search flips this
# many weights together, and continues.
_FLIPPED_TOGETHER = 3
# A map replaces a neighbour of a sampled item by a competing item if, under the map, the competing
# item is nearer to the sampled item than the neighbour. Let z be the artanh of the cosine between
# an item and the sampled item. The gap between a competing item and a neighbour is the z of the
# neighbour minus the z of the competing item. Let κ be the condition number. If the gap exceeds
# _PROVEN_GAP * log(κ), the competing item cannot replace the neighbour under any map (Theorem 6).
# To save time, the search leaves out all competing items whose gap exceeds _SEARCH_GAP * log(κ).
# With a _SEARCH_GAP of 0.6, the search in a small model would miss some of the edges that a map can
# remove.
_PROVEN_GAP, _SEARCH_GAP = 2.0, 1.0
# The number of removed edges is a step function without a useful gradient. The first starting
# points are therefore computed from the gradient of a smoothed count of removed edges. For each of
# these starting points, _WIDTHS contains one width of the smoothing. The unit of a width is the
# largest change that a map can cause in a score.
_WIDTHS = (0.03, 0.1, 0.3, 1.0)
# The widths of the smoothing in the search for a linear map. Each step of the search uses the next
# width. A step starts from the map that the previous step found, and computes the gradient at this
# map.
_LINEAR_WIDTHS = (0.1, 0.3, 0.1)
# For a robustness curve, most searches start from the map that was found for another condition
# number. Such a search tries _CURVE_FLIPS_PER_DIMENSION flips of weights per dimension. With 1, 2
# or 4 flips per dimension, the shares of replaced neighbours differ by at most 1 %.
_CURVE_FLIPS_PER_DIMENSION = 2
# Number of random rescalings. For comparison, a robustness curve shows the mean effect of these
# rescalings.
_RANDOM_MAPS = 5


@as_table
class WorstRescaling(NamedTuple):
    """The map that replaces the most neighbours, among all maps that a search evaluated.

    Attributes
    ----------
    condition : float
        Upper limit on the condition number of the map.
    replaced : float
        Share of the k nearest neighbours that the map replaces: after the map, these neighbours are
        no longer among the k nearest items. The search may miss the true worst map, so ``replaced``
        is a lower bound on the share that the true worst map replaces.
    error : float
        Standard error of ``replaced`` that is due to the sample of items; 0 if the neighbours of
        all items were counted.
    n_items : int
        Number of items whose neighbours were counted. If there are more than 1,000 items, only the
        neighbours of a sample are counted. The search for a rescaling does not use this sample. The
        search for a linear map uses this sample only at the end, to choose the best of four maps.
    map : ndarray (d,) or (d, d), float64
        The map of the items. For a rescaling D, ``map`` is the diagonal of D^-1, and the mapped
        items are ``items * map``. For a linear map, ``map`` is the matrix G, and the mapped items
        are ``items @ map``.
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
    """Search for the map of limited condition number that replaces the most neighbours.

    :func:`certified_neighbors` returns neighbours that provably survive every map. A neighbour that
    is not certified may be removed by some map, but different neighbours may require different
    maps. A model uses only one parametrisation at a time, so ``worst_rescaling`` searches for the
    worst single map. The search may miss the worst map. The worst map therefore replaces at least
    as large a share of neighbours as the returned map.

    Parameters
    ----------
    items, k, condition, n_threads
        As in :func:`fastcos.certified_neighbors`.
    family : {"rescaling", "linear"}
        The maps to search: diagonal maps ("rescaling") or all invertible linear maps ("linear").
    n_starts : int
        Number of starting points of the search, from 1 to 1,000. Each entry of a starting point is
        either the smallest or the largest allowed value.
    random_state : int or Generator
        Seed of the samples and of the starting points. Results with the same seed are bit-for-bit
        identical.

    Returns
    -------
    WorstRescaling

    Notes
    -----
    The algorithm is an iterated local search for the weights w = D^-2 of the dimensions. Each
    weight has either its smallest or its largest allowed value. The search flips one weight at a
    time to its other value. If a flip reduces the number of removed neighbours, the search undoes
    the flip. If no flip of a single weight removes more neighbours, the search goes back to the
    best D so far, flips three random weights, and continues. The first starting points are computed
    from the gradient of a smoothed count of removed neighbours; the remaining starting points are
    random. To find a linear map, each step of the search starts from the map G that the previous
    step found, and computes a gradient with respect to the metric GG'. The step then uses the
    eigenvectors of this gradient as its basis.

    If there are at most 1,000 items, the search uses all items, and the replaced neighbours of all
    items are counted. If there are more than 1,000 items, the search uses a sample of at most 500
    items. In this case, the replaced neighbours are counted for up to 1,000 items outside the
    sample.

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
    n_starts = validation.as_count("n_starts", n_starts, high=_MAX_STARTS)
    generator = validation.as_generator("random_state", random_state)
    n_directed = int((sample.norms > 0).sum())
    validation.check_enough("items", n_directed, k + 1, "rows that are not zero")
    search = MapSearch(sample, k, generator, n_starts)
    worst = search.worst(condition)
    return worst if family == "rescaling" else search.worst_linear(worst)


class MapSearch:
    """A search for maps that remove as many edges of sampled items as possible.

    If there are more than _ALL_ROWS (1,000) items, the search uses a sample of the items, and
    removed edges are counted only for the items outside the sample. If ``n_starts`` is None, the
    number of starting points depends on the numbers of items and dimensions.
    """

    def __init__(
        self, sample: ItemRows, k: int, generator: np.random.Generator, n_starts: int | None = None
    ) -> None:
        self._k, self._generator = k, generator
        directed = generator.permutation(np.flatnonzero(sample.norms > 0))
        searched = counted = directed
        if len(directed) > _ALL_ROWS:
            max_rows = _MAX_ENTRIES // (sample.items.shape[1] * (k + N_LISTED + 1))
            n_searched = min(_SEARCHED_ROWS, max(_MIN_ROWS, max_rows // 2))
            searched, counted = np.split(directed, [n_searched])
            counted = counted[: min(_ALL_ROWS, max(_MIN_ROWS, max_rows))]
        self._searched = _Edges(sample.subset(np.sort(searched)), k)
        self._counted, self._flips = self._searched, _FLIPS_PER_DIMENSION
        affordable_starts = _START_BUDGET // (len(searched) * self._searched.units.shape[1])
        if counted is not searched:
            self._counted = _Edges(sample.subset(np.sort(counted)), k)
            affordable_starts, self._flips = _MIN_STARTS, _FLIPS_PER_DIMENSION // 2
        self._n_starts = n_starts or min(N_STARTS, max(_MIN_STARTS, affordable_starts))
        self._population = len(sample.items)

    @parallel.one_blas_thread()
    def worst(self, condition: float) -> WorstRescaling:
        """Search for the worst rescaling with a given condition number, and return the result."""
        units, n = self._searched.units, self._n_starts
        identity = np.eye(units.shape[1])
        starts = self._generator.random((n, units.shape[1])) < 0.5
        for number, width in enumerate(_WIDTHS[:n]):
            starts[number] = np.diag(self._gradient(identity, condition, width)) > 0
        weights, counts = self._climb(units, [condition] * n, starts, self._flips)
        return self.count(np.sqrt(weights[counts.argmax()]), condition)

    @parallel.one_blas_thread()
    def worst_linear(self, rescaling: WorstRescaling) -> WorstRescaling:
        """Return the worst linear map that a search finds.

        The search starts from ``rescaling`` and returns a linear map with the same condition
        number.
        """
        units, condition = self._searched.units, rescaling.condition
        candidates = [rescaling._replace(map=np.diag(rescaling.map))]
        for width in _LINEAR_WIDTHS:
            metric = candidates[-1].map @ candidates[-1].map.T
            values, basis = np.linalg.eigh(self._gradient(metric, condition, width))
            weights, _ = self._climb(
                units @ basis, [condition], values[None] > 0, _FLIPS_PER_DIMENSION // 2
            )
            candidates.append(self.count(basis * np.sqrt(weights[0]), condition))
        return max(candidates, key=lambda candidate: candidate.replaced)

    @parallel.one_blas_thread()
    def along(self, conditions: Sequence[float], start: WorstRescaling) -> list[WorstRescaling]:
        """Return the worst map that a search finds for each of the condition numbers.

        Every search starts from the map ``start``. If ``start`` is a matrix, the search runs in the
        basis of its left singular vectors.
        """
        if start.map.ndim == 1:
            basis, sizes = np.eye(len(start.map)), start.map
        else:
            basis, sizes, _ = np.linalg.svd(start.map)
        starts = np.tile(sizes > np.sqrt(sizes.min() * sizes.max()), (len(conditions), 1))
        units = self._searched.units @ basis
        weights, _ = self._climb(units, conditions, starts, _CURVE_FLIPS_PER_DIMENSION)
        maps = np.sqrt(weights)
        if start.map.ndim == 2:
            maps = basis * maps[:, None, :]
        return list(map(self.count, maps, conditions))

    def random(self, condition: float) -> float:
        """Return the mean share of neighbours that random rescalings replace.

        In a random rescaling, the logarithms of the diagonal entries are uniformly distributed.
        """
        d = self._counted.units.shape[1]
        logs = self._generator.uniform(0, np.log(condition), (_RANDOM_MAPS, d))
        return float(np.mean([self.count(map_, condition).replaced for map_ in np.exp(logs)]))

    def count(self, map_: Floats, condition: float) -> WorstRescaling:
        """Return a WorstRescaling, which contains the share of neighbours that a map replaces.

        ``condition`` is the condition number of the map.
        """
        shares = self._counted.count_lost(map_, condition) / self._k
        error = standard_error(shares, self._population)
        return WorstRescaling(condition, float(shares.mean()), error, len(shares), map_)

    def _climb(
        self,
        units: Floats,
        conditions: Sequence[float],
        is_high: npt.NDArray[np.bool_],
        flips_per_dimension: int,
    ) -> tuple[Floats, Integers]:
        """Run a local search per condition; return its final weights and its number of lost edges.

        Each of the s searches starts with the largest weight in the dimensions where ``is_high``
        (s, d) is true, and with the smallest weight in the other dimensions. The result contains
        the weights (s, d) of the dimensions at the end of each search, and the number (s,) of edges
        that these weights remove.
        """
        edges, (n, d) = self._searched, is_high.shape
        high_weights = np.square(conditions)[:, None]
        n_rounds = flips_per_dimension + 1
        orders = self._generator.permuted(np.tile(np.arange(d), (n, n_rounds, 1)), axis=2)
        joint_flips = self._generator.integers(0, d, (n, n_rounds, _FLIPPED_TOGETHER))
        weights = np.where(is_high, high_weights, 1).astype(np.float32)
        counts = parallel.unfilled(n, np.int64)
        lengths = np.stack([edges.lengths(_SEARCH_GAP, condition) for condition in conditions])
        has_competitor = (lengths > self._k).any(axis=0)
        parallel.run(
            kernels.climb, parallel.row_blocks(n, 1),
            validation.read_only(np.ascontiguousarray(units.T, dtype=np.float32)),
            kernels.EdgeLists(
                validation.read_only(edges.rows[has_competitor]),
                # Most of the data that the search reads are row numbers of neighbours. Storing the
                # row numbers as int32 instead of int64 therefore halves the memory traffic of the
                # search.
                validation.read_only(edges.neighbors[has_competitor].astype(np.int32)),
                validation.read_only(np.ascontiguousarray(lengths[:, has_competitor])), self._k,
            ),
            kernels.LocalSearch(
                validation.read_only(high_weights[:, 0].astype(np.float32)),
                flips_per_dimension * d, validation.read_only(orders),
                validation.read_only(joint_flips),
            ),
            weights, counts,
            n_threads=edges.n_threads,
        )  # fmt: skip
        return np.where(weights > 1, high_weights, 1.0), counts

    def _gradient(self, metric: Floats, condition: float, width: float) -> Floats:
        """Return the gradient of a smoothed count of lost edges with respect to the metric (d, d).

        The threshold of a list lies between the scores of neighbours k and k + 1. Each item of the
        list contributes a smooth step: a function of the item's score minus the threshold. Let s be
        the largest change of a score, to first order, under maps with the condition number
        ``condition``. The width of the smooth step is ``width`` times s.
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
        # The derivative with respect to the metric M is a sum over all pairs of rows x and y. Each
        # term is a product of two derivatives. The first is the derivative of the smoothed count
        # with respect to the cosine of x and y. The second is the derivative of this cosine,
        # x'My / sqrt(x'Mx y'My), with respect to M.
        pairs = slopes * inverse[x][:, None] * inverse[y]
        n, m = y.shape
        table = sp.csr_array((pairs.ravel(), y.ravel(), m * np.arange(n + 1)), (n, len(units)))
        weighted_neighbors = table @ units
        halves = -0.5 * slopes * scores
        weights = np.bincount(y.ravel(), (halves * inverse[y] ** 2).ravel(), len(units))
        weights += np.bincount(x, halves.sum(axis=1) * inverse[x] ** 2, len(units))
        products_with_neighbors = units[x].T @ weighted_neighbors
        return (products_with_neighbors + products_with_neighbors.T) / 2 + (
            units * weights[:, None]
        ).T @ units


def _inverse(squares: Floats) -> Floats:
    """Return 1 / norm for each squared norm, or 0 for a zero row."""
    lengths = np.sqrt(squares)
    return np.divide(1, lengths, out=np.zeros(len(lengths)), where=lengths > 0)


class _Edges:
    """The neighbour lists of sampled items, with the unit rows of all sampled and listed items.

    The items of each list are in descending order of their cosine with the sampled item.
    """

    def __init__(self, sample: ItemRows, k: int) -> None:
        lists = validation.read_only(nearest_and_competing(sample, k))
        gathered, self.neighbors = gather_items(sample, lists)
        norms = np.where(gathered.norms > 0, gathered.norms, 1.0)
        self.units: Floats = gathered.items.astype(np.float64) / norms[:, None]
        self.rows, self.n_threads, self._k = gathered.rows, sample.n_threads, k
        cosines = np.einsum("id,imd->im", self.units[self.rows], self.units[self.neighbors])
        self._fisher_z = np.arctanh(np.clip(cosines, -1 + 1e-12, 1 - 1e-12))

    def lengths(self, gap: float, condition: float) -> Integers:
        """Return how many leading items of each list may be among the k nearest items after a map.

        Let z be the artanh of the cosine between a listed item and the sampled item. The function
        counts the items whose z is at least z_k - ``gap`` ln(condition), where z_k is the z of the
        k-th neighbour. If ``gap`` is _PROVEN_GAP, the items that are not counted provably remain
        farther away than the k neighbours under every map with the condition number ``condition``.
        """
        gaps = self._fisher_z[:, self._k - 1 : self._k] - self._fisher_z
        return (gaps <= gap * np.log(condition)).sum(axis=1)

    def count_lost(self, map_: Floats, condition: float) -> Integers:
        """Return, for each row, how many edges a map with condition number ``condition`` removes.

        The inner products are computed from the mapped rows. If the inner products were computed
        from the metric GG' of the map G, their rounding errors would grow with the square of the
        condition number of G.
        """
        mapped_rows = self.units * map_ if map_.ndim == 1 else self.units @ map_
        inverse = _inverse(np.einsum("ij,ij->i", mapped_rows, mapped_rows))
        row_images = mapped_rows[self.rows] * inverse[self.rows, None]
        counts = parallel.unfilled(len(self.rows), np.int64)
        parallel.run(
            kernels.count_lost_by_row, parallel.row_blocks(len(self.rows), 64),
            validation.read_only(row_images), validation.read_only(mapped_rows),
            validation.read_only(inverse),
            kernels.EdgeLists(
                self.rows, self.neighbors,
                validation.read_only(self.lengths(_PROVEN_GAP, condition)), self._k,
            ),
            counts,
            n_threads=self.n_threads,
        )  # fmt: skip
        return counts

"""Measures that are no inner product: exact by a bound and a second score of the candidates."""

import functools
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse as sp
from scipy.special import log_ndtr, ndtri_exp

from fastcos import validation
from fastcos.measures import checks
from fastcos.measures.base import (
    Form,
    Invariances,
    Keys,
    Plain,
    Rows,
    SharpQueries,
    SharpRows,
    invariances,
    register,
)
from fastcos.measures.knn_stats import Members, cosine_moments
from fastcos.measures.row_transforms import (
    Floats,
    Integers,
    lengthened_rows,
    list_keys,
    list_recos,
    mutual_proximities,
    narrow_recos_lists,
    norms_of,
    rising_rows,
    scaled_rows,
    sharp_recos_queries,
    sharp_recos_rows,
    unit_rows,
)

# rows of weights, dense or sparse; and of one of them which there are, and their shares
Bags: TypeAlias = Rows | sp.csr_array
Bag = tuple[Integers, Floats]

# what rounding may add to a bound
_SLACK = 1e-9
_LEAST_DEVIATION = 1e-12
# of mutual proximity: what rounding may take from a standardised cosine, and from where on
# logarithms vanish
_Z_SLACK, _LARGEST_Z = 1e-6, 37.0
# of recos: what float32 may add to an angle and to a key, and the least weight
_ANGLE_SLACK, _KEY_SLACK, _LEAST_WEIGHT = 1e-3, 1e-5, 0.1
# rows that tell the space of sorted rows; its least dimension; columns that tiles take at a time
_SAMPLED, _LEAST_DIRECTIONS, _STEP = 4096, 16, 64
# of two sorted unit rows that are near by recos
_USUAL_PRODUCT = 0.9
# the largest of many rising lines is convex: a chord between two places is never below it
_GRID = np.linspace(-1, 1, 65)


@register
class Recos(Plain):
    """x·y over the largest it could be if the entries of both were put in order.

    |x·y| / |sort(x)·sort(y)|, the second sorted falling where x·y < 0: 1 for rows that rise and
    fall together. Never below the cosine in magnitude; 0 where undefined. Candidates of few queries
    by x·y / (x·a y·a), a the mean direction of the sorted items: sorted rows are within an angle of
    it, which bounds what they differ by. For many, with floors t, all whose
    x·y - t sort(x)·sort(y) may not be negative: sorted rows lie near a space of few dimensions,
    which bounds their product. Pitfall: depends on the basis.
    Source: Ai arXiv:2602.05266.
    """

    name: ClassVar[str] = "recos"
    form: ClassVar[Form] = "dot"
    invariances: ClassVar[Invariances] = invariances("s=y r=y R=- D=- G=- t=-")

    def learn(self, items: Rows, users: Rows | None) -> None:
        """Take the mean direction of some sorted items, and their space."""
        self._rows, d = lengthened_rows(items), items.shape[1]
        some = rising_rows(scaled_rows(items[:: -(-len(items) // _SAMPLED)]))
        self._axis = unit_rows(some.sum(axis=0)[None])[0].astype(items.dtype)
        width = -(-(d + _LEAST_DIRECTIONS + 1) // _STEP) * _STEP
        _, directions = np.linalg.eigh(some.T @ some)
        directions = directions[:, ::-1][:, : width - d]
        if directions[:, 0] @ self._axis < 0:
            directions = -directions
        self._directions = np.ascontiguousarray(directions, dtype=np.float32)
        self._slack = 4 * d * 2.0**-24 * float(np.sqrt(self._directions.shape[1]))

    @functools.cached_property
    def _angle(self) -> float:
        """Largest angle of a sorted item to the mean direction."""
        rising = rising_rows(self._rows)
        norms = norms_of(rising)
        least = self._cosines(rising, norms)[norms > 0].min(initial=1)
        return float(np.arccos(np.clip(least, -1, 1))) + _ANGLE_SLACK

    def items(self, B: Rows) -> Rows:
        """Return unit rows over the cosine of the sorted row and the axis: only candidates."""
        B = lengthened_rows(B)
        rising, norms = rising_rows(B), norms_of(B)
        weights = np.maximum(self._cosines(rising, norms), _LEAST_WEIGHT)
        factors = np.divide(1, norms * weights, out=np.zeros(len(norms)), where=norms > 0)
        scaled: Rows = np.multiply(B, factors[:, None], dtype=B.dtype, casting="same_kind")
        return scaled

    def facts(self, B: Rows) -> tuple[Rows, Rows]:
        """Return the rows, and their entries rising."""
        B = lengthened_rows(B)
        return B, rising_rows(B)

    def rescore(self, Q: Rows, facts: tuple[Rows, Rows], columns: Integers) -> Keys:
        """Return recos."""
        Q = lengthened_rows(Q)
        return list_recos(Q, rising_rows(Q), *facts, columns)

    def bound(self, Q: Rows, keys: Keys) -> Keys:
        """Return the key by the least cosine of the sorted rows; by 1 where it is negative."""
        rising = rising_rows(lengthened_rows(Q))
        own = np.maximum(self._cosines(rising, norms_of(rising)), _LEAST_WEIGHT)
        angles = np.arccos(np.clip(own, -1, 1)) + _ANGLE_SLACK + self._angle
        least = np.where((angles < np.pi / 2) & (own > _LEAST_WEIGHT), np.cos(angles), 0)
        furthest = max(np.cos(self._angle), _LEAST_WEIGHT)
        keys = keys + _KEY_SLACK / own
        largest = np.full(len(keys), np.inf)
        np.divide(keys * own * furthest, least, out=largest, where=least > 0)
        negative = keys * own * _LEAST_WEIGHT
        bounds: Keys = np.where(keys < 0, negative, np.minimum(largest, 1)) + _SLACK
        return bounds

    def sharp_rows(self, rows: Rows) -> SharpRows:
        """Return unit rows, the sorted ones in their space, and how far they are out of it.

        Apart from these, as offsets: minus the sorted rows' first coordinate in their space, which
        is larger than all others and would cost the tiles' codes their precision.
        """
        units = scaled_rows(rows)
        return SharpRows(
            *sharp_recos_rows(units, rising_rows(units) @ self._directions, self._slack)
        )

    def sharp_queries(self, rows: SharpRows, floors: Keys) -> SharpQueries:
        """Return the sorted part times -floor, what is out of the space times floor, if positive.

        sort(x)·sort(y) is at least the product inside less the product of the distances to it.
        """
        weights = np.maximum(floors, 0)
        queries = sharp_recos_queries(rows.rows, len(self._directions), weights)
        weights = weights * -rows.offsets
        least = np.minimum(floors, 0) + np.minimum(weights, 0) * 1.01 - 2 * self._slack
        return SharpQueries(queries, np.clip(weights, 0, 1), least)

    def likely(self, floors: Keys, keys: Keys) -> Keys:
        """Return what has this x·y - floor sort(x)·sort(y), were the last product a usual one."""
        likely: Keys = np.maximum(floors, 0) + np.where(keys < 0, keys / _USUAL_PRODUCT, keys)
        return np.clip(likely, -1, 1 - 1e-6)

    def narrow(
        self, queries: SharpRows, items: SharpRows, k: int, counts: Integers, columns: Integers
    ) -> None:
        """Keep what has a quotient in float32 that is not surely below those of k others."""
        narrow_recos_lists(k, len(self._directions), self._slack, *queries, *items, counts, columns)

    def _cosines(self, rising: Rows, norms: Floats) -> Floats:
        cosines: Floats = np.zeros(len(rising))
        np.divide(rising @ self._axis, norms, out=cosines, where=norms > 0)
        return cosines


@register
class MutualProximity(Plain):
    """P(N(μ_x, s_x²) > d) P(N(μ_y, s_y²) > d), d = 1 - cosine: how far inside both rows' crowds.

    μ and s are the mean and deviation of a row's distances to all (other) items, from d x d sums.
    Ranked by the logarithm, so that values near 1 are told apart; s = 0 counts as 1e-12. Candidates
    by cosine. Pitfall: a normal law for the distances. Source: Schnitzer et al., JMLR 13 (2012).
    """

    name: ClassVar[str] = "mutual_proximity"

    def learn(self, items: Rows, users: Rows | None) -> None:
        """Take the moments, and the largest standardised cosine of any item on a grid."""
        units = unit_rows(items)
        self._members = Members(items)
        self._moments = cosine_moments(units)
        mean, deviation = self._crowds = self._moments_of(units, np.full(len(items), True))
        self._largest = np.full(len(_GRID), -np.inf)
        for lo in range(0, len(items), 1024):
            part = (_GRID[:, None] - mean[lo : lo + 1024]) / deviation[lo : lo + 1024]
            np.maximum(self._largest, part.max(axis=1), out=self._largest)

    def facts(self, B: Rows) -> tuple[Any, ...]:
        """Return the rows, their norms, and the mean and deviation of their cosines."""
        longer = lengthened_rows(B)
        return longer, norms_of(longer), *self._crowd(B)

    def rescore(self, Q: Rows, facts: tuple[Any, ...], columns: Integers) -> Keys:
        """Return the logarithm of the product."""
        return self.rescore_above(Q, facts, columns, np.full(len(Q), -np.inf))

    def rescore_above(
        self, Q: Rows, facts: tuple[Any, ...], columns: Integers, floors: Keys
    ) -> Keys:
        """Return the logarithm of the product where neither factor is below the floor."""
        B, norms, means, deviations = facts
        cosines = list_keys("cosine", lengthened_rows(Q), B, columns, norms)
        least = ndtri_exp(np.minimum(floors, 0))
        # where the logarithm is -0 in float64 all are equal
        least = np.minimum(least - _Z_SLACK * (1 + np.abs(least)), _LARGEST_Z)
        crowd = self._crowd(Q)
        return mutual_proximities(cosines, columns, *crowd, means, deviations, least)

    def bound(self, Q: Rows, keys: Keys) -> Keys:
        """Return the logarithm for the item to which the cosine says most."""
        mean, deviation = self._crowd(Q)
        own = log_ndtr((keys - mean) / deviation)
        best = np.interp(keys, _GRID, self._largest)
        best += _SLACK * (1 + np.abs(best))
        bounds: Keys = (own + log_ndtr(best)) * (1 - _SLACK)
        return bounds

    def finish(self, keys: Keys, Q: Rows) -> Keys:
        """Return the product."""
        scores: Keys = np.exp(keys)
        return scores

    def _crowd(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and deviation of every row's cosines; known for the items."""
        number = self._members.find(rows)
        mean, deviation = (known[number] for known in self._crowds)
        new = np.flatnonzero(number < 0)
        if len(new):
            inside = np.full(len(new), False)
            mean[new], deviation[new] = self._moments_of(unit_rows(rows[new]), inside)
        return mean, deviation

    def _moments_of(self, units: Floats, inside: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        mean, deviation = self._moments.of(units, inside)
        return mean, np.maximum(deviation, _LEAST_DEVIATION)


@register
class WordRotatorsDistance(Plain):
    """-(optimal transport between two bags of vectors, masses |w| / sum |w|, cost 1 - cosine).

    A row holds the weights (counts) of the vectors in a bag: of a user's items, a text's words.
    Rows are dense or sparse, (n, w). Candidates by the distance of the bags' mean directions, which
    bounds it from below; then all bags near enough. Between bags of one vector it is 1 - cosine; an
    empty bag is at distance 1 from all. Pitfall: a linear programme per candidate, O(m³ log m) for
    bags of m: milliseconds, some 25 of them a query. Source: Yokoi et al. arXiv:2004.15003.

    Parameters
    ----------
    vectors : array_like (w, d), optional
        The vectors; required. Bags have w columns.
    """

    name: ClassVar[str] = "word_rotators_distance"
    form: ClassVar[Form] = "euclidean"
    needs: ClassVar[str] = "vectors"
    of_bags: ClassVar[bool] = True
    invariances: ClassVar[Invariances] = invariances("s=y r=- R=y D=- G=- t=-")

    def __init__(self, vectors: Any = None) -> None:
        given = checks.as_given("vectors", vectors, self.name)
        self.vectors = validation.as_rows("vectors", given, dtype=np.float64)
        self._units, self._norms = unit_rows(self.vectors), norms_of(self.vectors)

    def fit(self, items: Bags, users: Bags | None = None) -> Self:
        """Return itself: nothing is learned from the bags."""
        return self

    def items(self, B: Bags) -> Floats:
        """Return the bags' mean directions, (p, d) float64."""
        directions: Floats = self._masses(B) @ self._units
        return directions

    def facts(self, B: Bags) -> sp.csr_array:
        """Return the masses of the bags."""
        return self._masses(B)

    def rescore(self, Q: Bags, facts: sp.csr_array, columns: Integers) -> Keys:
        """Return minus the cost of transport."""
        keys = np.empty(columns.shape)
        masses = self._masses(Q)
        for i, listed in enumerate(columns.tolist()):
            own = _bag(masses, i)
            for entry, column in enumerate(listed):
                keys[i, entry] = -self._cost(own, _bag(facts, column))
        return keys

    def bound(self, Q: Bags, keys: Keys) -> Keys:
        """Return minus half the squared distance of the mean directions, by Jensen."""
        return keys / 2 + _SLACK

    def _masses(self, bags: Bags) -> sp.csr_array:
        """Shares of the vectors in every bag, (n, w), without zeros."""
        validation.check_same_width("bags", bags, "vectors.T", self.vectors.T)
        weights = sp.csr_array(bags, dtype=np.float64, copy=True)
        checks.as_nonnegative("the weights of bags", weights.data)
        weights.data *= self._norms[weights.indices]
        weights.eliminate_zeros()
        totals = np.repeat(weights.sum(axis=1), np.diff(weights.indptr))
        weights.data /= totals
        return weights

    def _cost(self, first: Bag, second: Bag) -> float:
        (rows, a), (columns, b) = first, second
        if not len(rows) or not len(columns):
            return 1.0
        if np.array_equal(rows, columns) and np.array_equal(a, b):
            return 0.0
        costs = np.maximum(0, 1 - self._units[rows] @ self._units[columns].T)
        if len(rows) == 1 or len(columns) == 1:
            return float(a @ costs @ b)
        n, m = costs.shape
        # each row gives its mass, each column but the last takes its own: the last one follows
        gives = np.kron(np.eye(n), np.ones(m))
        takes = np.kron(np.ones(n), np.eye(m))[:-1]
        done = scipy.optimize.linprog(
            costs.ravel(),
            A_eq=np.vstack([gives, takes]),
            b_eq=np.concatenate([a, b[:-1]]),
            method="highs-ds",
        )
        return float(done.fun)


def _bag(masses: sp.csr_array, row: int) -> Bag:
    """Vectors of a bag, and their shares."""
    part = slice(masses.indptr[row], masses.indptr[row + 1])
    return masses.indices[part], masses.data[part]

"""Measures that are no inner product: exact by a bound and a second score of the candidates."""

from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse as sp
from scipy.special import log_ndtr

from fastcos import validate, validate_measures
from fastcos.measure.base import Form, Invariances, Keys, Plain, Rows, invariances, register
from fastcos.measure.population import Members, cosine_moments
from fastcos.measure.rows import (
    Floats,
    Integers,
    list_keys,
    mutual_proximities,
    norms_of,
    unit_rows,
)

# rows of weights, dense or sparse; and of one of them which there are, and their shares
Bags: TypeAlias = Rows | sp.csr_array
Bag = tuple[Integers, Floats]

# what rounding may add to a bound
_SLACK = 1e-9
_LEAST_DEVIATION = 1e-12
# of recos: what float32 may add to an angle, to a difference and to a key, and the least weight
_ANGLE_SLACK, _SHARP_SLACK, _KEY_SLACK, _LEAST_WEIGHT = 1e-3, 3e-6, 1e-5, 0.1
# the largest of many rising lines is convex: a chord between two places is never below it
_GRID = np.linspace(-1, 1, 65)


@register
class Recos(Plain):
    """x·y over the largest it could be if the entries of both were put in order.

    |x·y| / |sort(x)·sort(y)|, the second sorted falling where x·y < 0: 1 for rows that rise and
    fall together. Never below the cosine in magnitude; 0 where undefined. Candidates by
    x·y / (x·a y·a), a the mean direction of the sorted items: sorted rows are within an angle of
    it, which bounds what they differ by. Then, with floors t known, all whose
    x·y - t sort(x)·sort(y) is not negative. Pitfall: depends on the basis.
    Source: Ai arXiv:2602.05266.
    """

    name: ClassVar[str] = "recos"
    form: ClassVar[Form] = "dot"
    sharp_form: ClassVar[Form] = "dot"
    invariances: ClassVar[Invariances] = invariances("s=y r=y R=- D=- G=- t=-")

    def learn(self, items: Rows, users: Rows | None) -> None:
        """Take the mean direction of the sorted items, and the largest angle to it."""
        rising = _rising(items)
        norms = norms_of(rising)
        there = norms > 0
        shares = np.divide(1, norms, out=np.zeros(len(norms)), where=there)
        axis = np.einsum("i,ij->j", shares, rising)
        self._axis = unit_rows(axis[None])[0].astype(rising.dtype)
        cosines = self._cosines(rising, norms)[there]
        self._angle = float(np.arccos(np.clip(cosines.min(initial=1), -1, 1))) + _ANGLE_SLACK

    def items(self, B: Rows) -> Rows:
        """Return unit rows over the cosine of the sorted row and the axis: only candidates."""
        rising, norms = _rising(B), norms_of(B)
        weights = np.maximum(self._cosines(rising, norms), _LEAST_WEIGHT)
        factors = np.divide(1, norms * weights, out=np.zeros(len(norms)), where=norms > 0)
        scaled: Rows = np.multiply(B, factors[:, None], dtype=B.dtype, casting="same_kind")
        return scaled

    def facts(self, B: Rows) -> tuple[Rows, Rows]:
        """Return the rows, and their entries rising."""
        return B, _rising(B)

    def rescore(self, Q: Rows, facts: tuple[Rows, Rows], columns: Integers) -> Keys:
        """Return recos."""
        B, rising = facts
        ordered = _rising(Q)
        top = list_keys("dot", Q, B, columns)
        bottom = np.abs(list_keys("dot", ordered, rising, columns))
        rows = np.flatnonzero(top.min(axis=1) < 0)
        if len(rows):
            falling = np.abs(list_keys("dot", _rising(Q[rows])[:, ::-1], rising, columns[rows]))
            bottom[rows] = np.where(top[rows] < 0, falling, bottom[rows])
        ratio: Keys = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
        return np.clip(ratio, -1, 1, out=ratio)

    def bound(self, Q: Rows, keys: Keys) -> Keys:
        """Return the key by the least cosine of the sorted rows; by 1 where it is negative."""
        own = self._weights(Q)
        angles = np.arccos(np.clip(own, -1, 1)) + _ANGLE_SLACK + self._angle
        least = np.where((angles < np.pi / 2) & (own > _LEAST_WEIGHT), np.cos(angles), 0)
        furthest = max(np.cos(self._angle), _LEAST_WEIGHT)
        keys = keys + _KEY_SLACK / own
        largest = np.full(len(keys), np.inf)
        np.divide(keys * own * furthest, least, out=largest, where=least > 0)
        negative = keys * own * _LEAST_WEIGHT
        bounds: Keys = np.where(keys < 0, negative, np.minimum(largest, 1)) + _SLACK
        return bounds

    def sharp_items(self, B: Rows) -> Rows:
        """Return unit rows and their entries rising, (p, 2 d) float32; zero rows reach no floor."""
        rows = self._doubled(B)
        rows[norms_of(B) == 0, B.shape[1] :] = self._axis
        return rows

    def sharp_queries(self, Q: Rows, floors: Keys) -> tuple[Rows, Keys]:
        """Return unit rows and -floor times the entries rising; below a floor of 0, the first."""
        rows = self._doubled(Q)
        rows[:, Q.shape[1] :] *= -np.maximum(floors, 0)[:, None].astype(np.float32)
        return rows, np.minimum(floors, 0) - _SHARP_SLACK

    def _doubled(self, rows: Rows) -> npt.NDArray[np.float32]:
        units = unit_rows(rows).astype(np.float32)
        return np.hstack([units, _rising(units)])

    def _weights(self, rows: Rows) -> Floats:
        """Cosine of every sorted row and the axis, not too small to divide by."""
        rising = _rising(rows)
        return np.maximum(self._cosines(rising, norms_of(rising)), _LEAST_WEIGHT)

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

    def facts(self, B: Rows) -> tuple[Rows, Floats, Floats]:
        """Return the rows, and the mean and deviation of their cosines."""
        return B, *self._crowd(B)

    def rescore(self, Q: Rows, facts: tuple[Rows, Floats, Floats], columns: Integers) -> Keys:
        """Return the logarithm of the product."""
        B, means, deviations = facts
        cosines = list_keys("cosine", Q, B, columns)
        return mutual_proximities(cosines, columns, *self._crowd(Q), means, deviations)

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
        given = validate_measures.as_given("vectors", vectors, self.name)
        self.vectors = validate.as_rows("vectors", given, dtype=np.float64)
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
        validate.as_same_width("bags", bags, "vectors.T", self.vectors.T)
        weights = sp.csr_array(bags, dtype=np.float64, copy=True)
        validate_measures.as_nonnegative("the weights of bags", weights.data)
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


def _rising(rows: Rows) -> Rows:
    """Rows with their entries in rising order."""
    out = rows.copy()
    out.sort(axis=1)
    return out

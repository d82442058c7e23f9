"""Similarities that are not inner products, searched exactly by means of an upper bound."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import normal_cdf, records, row_transforms
from fastcos.parallel import buffer_pool
from fastcos.similarity.base import BaseMeasure, Invariances, register
from fastcos.similarity.knn_stats import RowLookup, cosine_moments
from fastcos.similarity.moments import blocks_of
from fastcos.similarity.row_transforms import (
    inverses,
    list_scores,
    norms_of,
    over_lists,
    same_type,
    scaled_up_rows,
    unit_rows,
)
from fastcos.validation import Floats, Integers, Rows

# Rounding errors of upper bounds are smaller than this number.
_SLACK = 1e-9
# If a standard deviation of cosines is below this value, MutualProximity replaces it by this value.
_MIN_DEVIATION = 1e-12
# In Recos, the rounding error of an angle between float32 rows with 1,024 columns is below this
# limit.
_ANGLE_SLACK = 1e-3
# In Recos, the rounding error of a raw score in float32 is below this limit.
_RAW_SLACK = 1e-5
# Recos divides by the cosine between a sorted row and the axis. If this cosine is below
# _MIN_WEIGHT, Recos divides by _MIN_WEIGHT instead. As a result, the division makes a number at
# most 10 times as large.
_MIN_WEIGHT = 0.1
# Recos sorts the entries of a sample of at most this number of items, and computes its axis from
# the sorted rows.
_AXIS_SAMPLE = 4096
# To standardise a cosine for an item, MutualProximity subtracts the mean of the item's cosines, and
# divides the difference by their standard deviation. MutualProximity standardises each cosine of
# this grid for every item, and stores the largest of the standardised values. For each item, the
# standardised value is an increasing linear function of the cosine. The largest of these values is
# therefore a convex function of the cosine, and linear interpolation between two grid points gives
# an upper bound.
_GRID = np.linspace(-1, 1, 65)
# This number is the weight w of the encoded norm in NormAngleDistance. The docstring of the class
# describes one curve for each distance s. With w = 2/π, the sum t = g / λ + θ is π at both ends of
# the curve for s = 2.
_NORM_SHARE = 2 / np.pi
# The relative rounding error of a squared distance in NormAngleDistance, per coordinate.
_ROUNDING = 4 * 2.0**-52
# The number of pairs that a thread scores in one task of Recos.
_RECOS_PER_BLOCK = 4_000
# The number of rows that a thread sorts in one task of Recos.
_SORTED_ROWS = 1024


def sorted_rows(rows: Rows) -> Rows:
    """Return the rows with their entries in ascending order."""
    result: Rows = buffer_pool.empty(rows.shape, rows.dtype)
    parallel.run(_sort, parallel.row_blocks(len(rows), _SORTED_ROWS), rows, result)
    return result


def _sort(lo: int, hi: int, rows: Rows, result: Rows) -> None:
    """Write the rows in [lo, hi) to the result, with the entries of each row in ascending order."""
    result[lo:hi] = rows[lo:hi]
    result[lo:hi].sort(axis=1)


@register
class Recos(BaseMeasure):
    """x·y / max |x·z|, where z is any reordering of y such that x·z has the sign of x·y.

    The value is x·y / |sort(x)·sort(y)|. The entries of sort(x) ascend. The entries of sort(y)
    ascend if x·y is at least 0, and descend otherwise. The value is 1 if x·y > 0 and the same
    permutation sorts the entries of x and of y. The magnitude of the value is never below the
    magnitude of the cosine. If the denominator is 0, the value is 0. Let x↑ be the row x with
    sorted entries. Sort the entries of each item, and let the axis a be the mean direction of the
    sorted items. A search selects candidates by the candidate score x·y / ((x↑·a) (y↑·a)). If some
    sorted item has a large angle to the axis, the value of the measure may differ much from the
    candidate score. Pitfalls: the value depends on the basis, and a search computes many exact
    scores per query. Source: Ai arXiv:2602.05266.
    """

    name = "recos"
    metric_type = "dot"
    invariances = Invariances(s="y", r="y", R="-", D="-", G="-", t="-")

    def _fit(self, items: Rows, users: Rows | None) -> None:
        """Sort the entries of each sampled item, and set the axis to the mean direction."""
        self._rows = scaled_up_rows(items)
        sample = sorted_rows(unit_rows(items[:: -(-len(items) // _AXIS_SAMPLE)]))
        self._axis = unit_rows(sample.sum(axis=0)[None])[0].astype(items.dtype)

    @parallel.lazy_attribute
    def _angle(self) -> float:
        """The largest angle between a sorted item and the axis."""
        ordered = sorted_rows(self._rows)
        norms = norms_of(ordered)
        smallest = self._cosines(ordered, norms)[norms > 0].min(initial=1)
        return float(np.arccos(np.clip(smallest, -1, 1))) + _ANGLE_SLACK

    def encode_items(self, B: Rows) -> Rows:
        """Return the unit rows, each divided by the cosine between its sorted entries and the axis.

        The inner products of the encoded rows select the candidates.
        """
        B = scaled_up_rows(B)
        ordered, norms = sorted_rows(B), norms_of(B)
        weights = np.maximum(self._cosines(ordered, norms), _MIN_WEIGHT)
        factors = inverses(norms * weights)
        return np.multiply(B, factors[:, None], dtype=B.dtype, casting="same_kind")

    def precompute(self, B: Rows) -> tuple[Rows, Rows]:
        """Return the rows, and a copy in which each row is sorted in ascending order."""
        B = scaled_up_rows(B)
        return B, sorted_rows(B)

    def rescore(self, Q: Rows, precomputed: tuple[Rows, Rows], columns: Integers) -> Floats:
        """Return the exact scores (n, k) of each query with its candidates."""
        Q = scaled_up_rows(Q)
        sides = same_type(Q, sorted_rows(Q), *precomputed)
        return over_lists(
            row_transforms.recos_rows, columns, *sides, columns, pairs_per_task=_RECOS_PER_BLOCK
        )

    def upper_bound(self, Q: Rows, raw: Floats) -> Floats:
        """Return the largest possible score, given the raw score and the angles to the axis.

        Sort the entries of the query and of the item. The angles of the two sorted rows to the axis
        imply a lower bound on the cosine of the two sorted rows. If the raw score is positive, the
        score is largest when the cosine of the two sorted rows is smallest.
        """
        ordered = sorted_rows(scaled_up_rows(Q))
        weights = np.maximum(self._cosines(ordered, norms_of(ordered)), _MIN_WEIGHT)
        angles = np.arccos(np.clip(weights, -1, 1)) + _ANGLE_SLACK + self._angle
        is_usable = (angles < np.pi / 2) & (weights > _MIN_WEIGHT)
        min_cosines = np.where(is_usable, np.cos(angles), 0)
        min_item_weight = max(np.cos(self._angle), _MIN_WEIGHT)
        raw = raw + _RAW_SLACK / weights
        largest = np.full(len(raw), np.inf)
        np.divide(raw * weights * min_item_weight, min_cosines, out=largest, where=min_cosines > 0)
        negative = raw * weights * _MIN_WEIGHT
        return np.where(raw < 0, negative, np.minimum(largest, 1)) + _SLACK

    def _cosines(self, ordered: Rows, norms: Floats) -> Floats:
        """Return the cosine between each sorted row and the axis; 0 for zero rows."""
        cosines: Floats = np.zeros(len(ordered))
        with parallel.blas_lock():
            products = ordered @ self._axis
        np.divide(products, norms, out=cosines, where=norms > 0)
        return cosines


@register
class MutualProximity(BaseMeasure):
    """P(N(μ_x, s_x²) > d) P(N(μ_y, s_y²) > d), where d is the cosine distance 1 - cos(x, y).

    The numbers μ and s of a row are the mean and the standard deviation of its distances to all
    other items; they are computed from d x d sums. Pairs are ranked by the logarithm of the
    product, because different products near 1 may be rounded to the same number. A standard
    deviation of 0 is replaced by 1e-12. Candidates are selected by the cosine. Pitfall: the measure
    assumes normally distributed distances. Source: Schnitzer et al., JMLR 13 (2012).
    """

    name = "mutual_proximity"

    def _fit(self, items: Rows, users: Rows | None) -> None:
        """Compute the moments of the items' cosines, and the largest item value at each grid point.

        At a grid point g, the value of an item is (g - mean) / deviation, where the mean and the
        deviation are those of the item's cosines.
        """
        units = unit_rows(items)
        self._lookup = RowLookup(items)
        self._moments = cosine_moments(units)
        mean, deviation = self._item_moments = self._moments_of(units, np.full(len(items), True))
        self._largest = np.full(len(_GRID), -np.inf)
        for lo in range(0, len(items), 1024):
            part = (_GRID[:, None] - mean[lo : lo + 1024]) / deviation[lo : lo + 1024]
            np.maximum(self._largest, part.max(axis=1), out=self._largest)

    def precompute(self, B: Rows) -> tuple[Any, ...]:
        """Return the rows, their norms, and the mean and deviation of the cosines of each row."""
        scaled = scaled_up_rows(B)
        return scaled, norms_of(scaled), *self._row_moments(B)

    def rescore(self, Q: Rows, precomputed: tuple[Any, ...], columns: Integers) -> Floats:
        """Return, for each pair, the logarithm of the product of its two probabilities."""
        B, norms, means, deviations = precomputed
        cosines = list_scores("cosine", scaled_up_rows(Q), B, columns, norms)
        return over_lists(
            normal_cdf.mutual_proximity_rows, columns, cosines, columns,
            records.ScoreMoments(*map(validation.read_only, self._row_moments(Q))),
            records.ScoreMoments(*map(validation.read_only, (means, deviations))),
        )  # fmt: skip

    def upper_bound(self, Q: Rows, raw: Floats) -> Floats:
        """Return upper bounds (n,) on the log of the product if the cosines are at most ``raw``."""
        from scipy.special import log_ndtr

        mean, deviation = self._row_moments(Q)
        query_term = log_ndtr((raw - mean) / deviation)
        best = np.interp(raw, _GRID, self._largest)
        # The rounding error of an interpolated value is proportional to the magnitudes of the two
        # neighbouring values. These magnitudes are large if all cosines are nearly equal.
        right = np.clip(np.searchsorted(_GRID, raw), 1, len(_GRID) - 1)
        largest_magnitude = np.maximum(*np.abs(self._largest[[right - 1, right]]))
        best += _SLACK * (1 + np.abs(best)) + _ROUNDING * largest_magnitude
        return (query_term + log_ndtr(best)) * (1 - _SLACK)

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return exp(raw), which is the product of the two probabilities of each pair."""
        return np.exp(raw)

    def _row_moments(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return the mean and the deviation of the cosines of every row with the items.

        For rows that are items, the function returns the values that ``fit`` has stored.
        """
        item_numbers = self._lookup.find(rows)
        mean, deviation = (moments[item_numbers] for moments in self._item_moments)
        new_rows = np.flatnonzero(item_numbers < 0)
        if len(new_rows):
            is_inside = np.full(len(new_rows), False)
            mean[new_rows], deviation[new_rows] = self._moments_of(
                unit_rows(rows[new_rows]), is_inside
            )
        return mean, deviation

    def _moments_of(self, units: Floats, is_inside: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return the means and the deviations of the cosines of unit rows with the items.

        Deviations below 1e-12 are replaced by 1e-12.
        """
        mean, deviation = self._moments.of(units, is_inside)
        return mean, np.maximum(deviation, _MIN_DEVIATION)


@register
class NormAngleDistance(BaseMeasure):
    """-(||x| - |y|| + λ arccos(cosine)), where λ weighs the angle against the difference in norm.

    This measure is not Word Rotator's Distance, although some slides call it "WRD" (and omit the
    absolute value around the difference of the norms). Candidates are selected by the squared
    Euclidean distance s² of the rows [unit x, w |x| / λ] with w = 2/π. If the norms of two rows
    differ by g and their angle is θ, then s² = (2 sin(θ/2))² + w² g² / λ², and the measure is -λ t
    with t = g / λ + θ. For every value of s up to 2, all pairs (g, θ) with this value of s form a
    curve. On this curve, t is smallest at one of the two ends. At one end of the curve, t is
    2 arcsin(s/2). At the other end, t is s / w, which is at least 2 arcsin(s/2). If s exceeds 2, t
    is at least π. In this case, t is also at least sqrt(s² - 4) / w, which is the value of g / λ at
    θ = π. Pitfall: a suitable λ depends on the units of the rows. Source: You (arXiv:2504.16318),
    corrected.

    Parameters
    ----------
    weight : float, default 1
        The weight λ of the angle, greater than 0.
    """

    name = "norm_angle_distance"
    metric_type = "euclidean"
    invariances = Invariances(s="-", r="-", R="y", D="-", G="-", t="-")
    fits_in_blocks = True

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = validation.as_real("weight", weight, above=0)

    def _fit(self, items: Rows, users: Rows | None) -> None:
        norms = np.concatenate([norms_of(block) for _, block in blocks_of(items)])
        self._median_norm = float(np.median(norms))

    def encode_items(self, B: Rows) -> Rows:
        """Return [unit b, w (|b| - m) / λ], (p, d + 1) float64; m is the median norm of the items.

        Subtracting m keeps the norms of the encoded rows small, so that the rounding errors of
        their distances are small, too. Without subtracting m, a search of Gaussian rows would take
        17 times as long.
        """
        norms = norms_of(B) - self._median_norm
        return np.column_stack([unit_rows(B), _NORM_SHARE / self.weight * norms])

    def precompute(self, B: Rows) -> tuple[Rows, Floats, Floats]:
        """Return the scaled rows, their norms, and the norms of the rows before scaling."""
        scaled = scaled_up_rows(B)
        return scaled, norms_of(scaled), norms_of(B)

    def rescore(self, Q: Rows, precomputed: tuple[Any, ...], columns: Integers) -> Floats:
        """Return the negative distance; a zero row counts as orthogonal to every row."""
        B, scaled_norms, norms = precomputed
        cosines = list_scores("cosine", scaled_up_rows(Q), B, columns, scaled_norms)
        gaps = np.abs(norms_of(Q)[:, None] - norms[columns])
        return -(gaps + self.weight * np.arccos(cosines))

    def upper_bound(self, Q: Rows, raw: Floats) -> Floats:
        """Return the largest score that a pair of rows with this raw score can have.

        A raw score is minus the squared distance of the encoded rows of a pair.
        """
        # The squared distance is computed as a difference of terms, and `size` is the magnitude of
        # these terms. The rounding errors of the squared distance and of the encoded rows are
        # proportional to `size`.
        norms = np.hypot(norms_of(Q), self._median_norm)
        size = 1 + np.square(_NORM_SHARE / self.weight * norms) - raw
        squares = np.maximum(0, -raw - _ROUNDING * (Q.shape[1] + 16) * size)
        angles = 2 * np.arcsin(np.minimum(1, np.sqrt(squares) / 2))
        gaps = np.sqrt(np.maximum(0, squares - 4)) / _NORM_SHARE
        bounds: Floats = -self.weight * np.maximum(angles, gaps) * (1 - _SLACK)
        return bounds + _SLACK * self.weight

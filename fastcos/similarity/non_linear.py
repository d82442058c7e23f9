"""Similarities that are no inner product, exact by filter and refine with an upper bound."""

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

# what rounding may add to an upper bound
_SLACK = 1e-9
# mutual proximity: a deviation of cosines that counts as zero
_LEAST_DEVIATION = 1e-12
# recos: what float32 may add to an angle, 1,024 columns of rounding
_ANGLE_SLACK = 1e-3
# recos: what float32 may add to a raw score
_RAW_SLACK = 1e-5
# recos: least cosine to the axis that counts, so that no weight exceeds 10
_LEAST_WEIGHT = 0.1
# recos: items from which the mean direction of sorted rows is taken
_AXIS_SAMPLE = 4096
# mutual proximity: cosines at which the largest standardised one is kept. The largest of many
# ascending lines is convex, so that a chord between two places is never below it
_GRID = np.linspace(-1, 1, 65)
# norm-angle: w of the encoded norm. With 2/π both ends of the curve meet at s = 2
_NORM_SHARE = 2 / np.pi
# norm-angle: relative rounding of a squared distance, a coordinate
_ROUNDING = 4 * 2.0**-52
# recos: pairs that a thread scores at once, and rows that it sorts
_RECOS_PER_BLOCK = 4_000
_SORTED_ROWS = 1024


def sorted_rows(rows: Rows) -> Rows:
    """Return the rows with their entries in ascending order."""
    out: Rows = buffer_pool.empty(rows.shape, rows.dtype)
    parallel.run(_sort, parallel.row_blocks(len(rows), _SORTED_ROWS), rows, out)
    return out


def _sort(lo: int, hi: int, rows: Rows, out: Rows) -> None:
    out[lo:hi] = rows[lo:hi]
    out[lo:hi].sort(axis=1)


@register
class Recos(BaseMeasure):
    """x·y over the largest it could be if the entries of both were put in order.

    |x·y| / |sort(x)·sort(y)|, the second sorted in descending order where x·y < 0: 1 for rows whose
    entries have one order. Never below the cosine in magnitude; 0 where undefined. Candidates by
    x·y / (x·a y·a), a the mean direction of the sorted items: sorted rows are within an angle of
    it, which bounds what they differ by. Pitfalls: depends on the basis; many exact scores a query.
    Source: Ai arXiv:2602.05266.
    """

    name = "recos"
    metric_type = "dot"
    invariances = Invariances(s="y", r="y", R="-", D="-", G="-", t="-")

    def _fit(self, items: Rows, users: Rows | None) -> None:
        """Take the mean direction of some sorted items."""
        self._rows = scaled_up_rows(items)
        sample = sorted_rows(unit_rows(items[:: -(-len(items) // _AXIS_SAMPLE)]))
        self._axis = unit_rows(sample.sum(axis=0)[None])[0].astype(items.dtype)

    @parallel.lazy_attribute
    def _angle(self) -> float:
        """Largest angle of a sorted item to the mean direction."""
        ordered = sorted_rows(self._rows)
        norms = norms_of(ordered)
        least = self._cosines(ordered, norms)[norms > 0].min(initial=1)
        return float(np.arccos(np.clip(least, -1, 1))) + _ANGLE_SLACK

    def encode_items(self, B: Rows) -> Rows:
        """Return unit rows over the cosine of the sorted row and the axis: only candidates."""
        B = scaled_up_rows(B)
        ordered, norms = sorted_rows(B), norms_of(B)
        weights = np.maximum(self._cosines(ordered, norms), _LEAST_WEIGHT)
        factors = inverses(norms * weights)
        return np.multiply(B, factors[:, None], dtype=B.dtype, casting="same_kind")

    def precompute(self, B: Rows) -> tuple[Rows, Rows]:
        """Return the rows, and their entries in ascending order."""
        B = scaled_up_rows(B)
        return B, sorted_rows(B)

    def rescore(self, Q: Rows, precomputed: tuple[Rows, Rows], columns: Integers) -> Floats:
        """Return recos."""
        Q = scaled_up_rows(Q)
        sides = same_type(Q, sorted_rows(Q), *precomputed)
        return over_lists(
            row_transforms.recos_rows, columns, *sides, columns, pairs=_RECOS_PER_BLOCK
        )

    def upper_bound(self, Q: Rows, raw: Floats) -> Floats:
        """Return the raw score by the least cosine of the sorted rows, by 1 if it is negative."""
        ordered = sorted_rows(scaled_up_rows(Q))
        own = np.maximum(self._cosines(ordered, norms_of(ordered)), _LEAST_WEIGHT)
        angles = np.arccos(np.clip(own, -1, 1)) + _ANGLE_SLACK + self._angle
        least = np.where((angles < np.pi / 2) & (own > _LEAST_WEIGHT), np.cos(angles), 0)
        furthest = max(np.cos(self._angle), _LEAST_WEIGHT)
        raw = raw + _RAW_SLACK / own
        largest = np.full(len(raw), np.inf)
        np.divide(raw * own * furthest, least, out=largest, where=least > 0)
        negative = raw * own * _LEAST_WEIGHT
        return np.where(raw < 0, negative, np.minimum(largest, 1)) + _SLACK

    def _cosines(self, ordered: Rows, norms: Floats) -> Floats:
        cosines: Floats = np.zeros(len(ordered))
        with parallel.blas_lock():
            products = ordered @ self._axis
        np.divide(products, norms, out=cosines, where=norms > 0)
        return cosines


@register
class MutualProximity(BaseMeasure):
    """P(N(μ_x, s_x²) > d) P(N(μ_y, s_y²) > d), d = 1 - cosine: how near for both rows.

    μ and s are the mean and deviation of a row's distances to all (other) items, from d x d sums.
    Ranked by the logarithm, which keeps values near 1 distinct; s = 0 counts as 1e-12. Candidates
    by cosine. Pitfall: assumes normal distances. Source: Schnitzer et al., JMLR 13 (2012).
    """

    name = "mutual_proximity"

    def _fit(self, items: Rows, users: Rows | None) -> None:
        """Take the moments, and the largest standardised cosine of any item on a grid."""
        units = unit_rows(items)
        self._lookup = RowLookup(items)
        self._moments = cosine_moments(units)
        mean, deviation = self._item_moments = self._moments_of(units, np.full(len(items), True))
        self._largest = np.full(len(_GRID), -np.inf)
        for lo in range(0, len(items), 1024):
            part = (_GRID[:, None] - mean[lo : lo + 1024]) / deviation[lo : lo + 1024]
            np.maximum(self._largest, part.max(axis=1), out=self._largest)

    def precompute(self, B: Rows) -> tuple[Any, ...]:
        """Return the rows, their norms, and the mean and deviation of their cosines."""
        scaled = scaled_up_rows(B)
        return scaled, norms_of(scaled), *self._of(B)

    def rescore(self, Q: Rows, precomputed: tuple[Any, ...], columns: Integers) -> Floats:
        """Return the logarithm of the product."""
        B, norms, means, deviations = precomputed
        cosines = list_scores("cosine", scaled_up_rows(Q), B, columns, norms)
        return over_lists(
            normal_cdf.mutual_proximity_rows, columns, cosines, columns,
            records.ScoreMoments(*map(validation.read_only, self._of(Q))),
            records.ScoreMoments(*map(validation.read_only, (means, deviations))),
        )  # fmt: skip

    def upper_bound(self, Q: Rows, raw: Floats) -> Floats:
        """Return the logarithm for the item to which the cosine says most."""
        from scipy.special import log_ndtr

        mean, deviation = self._of(Q)
        own = log_ndtr((raw - mean) / deviation)
        best = np.interp(raw, _GRID, self._largest)
        # a chord rounds like its ends, which are large where all cosines are nearly equal
        right = np.clip(np.searchsorted(_GRID, raw), 1, len(_GRID) - 1)
        ends = np.maximum(*np.abs(self._largest[[right - 1, right]]))
        best += _SLACK * (1 + np.abs(best)) + _ROUNDING * ends
        return (own + log_ndtr(best)) * (1 - _SLACK)

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return the product."""
        return np.exp(raw)

    def _of(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and deviation of every row's cosines; known for the items."""
        number = self._lookup.find(rows)
        mean, deviation = (known[number] for known in self._item_moments)
        new = np.flatnonzero(number < 0)
        if len(new):
            inside = np.full(len(new), False)
            mean[new], deviation[new] = self._moments_of(unit_rows(rows[new]), inside)
        return mean, deviation

    def _moments_of(self, units: Floats, inside: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        mean, deviation = self._moments.of(units, inside)
        return mean, np.maximum(deviation, _LEAST_DEVIATION)


@register
class NormAngleDistance(BaseMeasure):
    """-(||x| - |y|| + λ arccos(cosine)): nearer is larger.

    What some slides print as "WRD" without the bars; it is not Word Rotator's Distance. Candidates
    by the squared distance s² of [unit x, w |x| / λ], w = 2/π: a norm gap g and an angle θ have
    s² = (2 sin(θ/2))² + w² g² / λ². Up to s = 2, g / λ + θ is least on that curve at one of its
    ends, 2 arcsin(s/2) <= s / w. Beyond, it is at least π, and at least the g / λ that is left when
    the chord is 2. Pitfall: norms are in the units of the rows, so λ depends on them.
    Source: repaired from You arXiv:2504.16318.

    Parameters
    ----------
    weight : float, default 1
        λ > 0.
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
        """Return [unit b, w (|b| - m) / λ], (p, d + 1) float64, m the median norm of the items.

        Less m, rows are short, and so is the filter's error: 17 times as fast for Gaussian rows.
        """
        norms = norms_of(B) - self._median_norm
        return np.column_stack([unit_rows(B), _NORM_SHARE / self.weight * norms])

    def precompute(self, B: Rows) -> tuple[Rows, Floats, Floats]:
        """Return the rows, scaled up where they would underflow, their norms and the rows' own."""
        scaled = scaled_up_rows(B)
        return scaled, norms_of(scaled), norms_of(B)

    def rescore(self, Q: Rows, precomputed: tuple[Any, ...], columns: Integers) -> Floats:
        """Return the negative distance; a zero row is at a right angle to all."""
        B, scaled_norms, norms = precomputed
        cosines = list_scores("cosine", scaled_up_rows(Q), B, columns, scaled_norms)
        gaps = np.abs(norms_of(Q)[:, None] - norms[columns])
        return -(gaps + self.weight * np.arccos(cosines))

    def upper_bound(self, Q: Rows, raw: Floats) -> Floats:
        """Return minus the least distance of this s²."""
        # rounding of encoded rows and of their squared distance, by the size of what is subtracted
        norms = np.hypot(norms_of(Q), self._median_norm)
        size = 1 + np.square(_NORM_SHARE / self.weight * norms) - raw
        squares = np.maximum(0, -raw - _ROUNDING * (Q.shape[1] + 16) * size)
        angles = 2 * np.arcsin(np.minimum(1, np.sqrt(squares) / 2))
        gaps = np.sqrt(np.maximum(0, squares - 4)) / _NORM_SHARE
        bounds: Floats = -self.weight * np.maximum(angles, gaps) * (1 - _SLACK)
        return bounds + _SLACK * self.weight

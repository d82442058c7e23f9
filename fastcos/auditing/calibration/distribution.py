"""The distribution of the scores of random pairs: thresholds, p-values, false discovery rates."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.auditing.calibration.histogram import COSINE_BINS, Bins
from fastcos.auditing.calibration.tail import Tail
from fastcos.reports import Record
from fastcos.validation import Floats, Integers

# A calibration determines a threshold for each false-positive rate in RATES. For each query, the
# calibration stores how many scores reach each threshold.
RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# If at least OBSERVED pairs are above a score, the p-value of the score is the observed share of
# pairs above it. Otherwise, the tail model determines the p-value. If 100 independent pairs are
# above a score, the relative standard error of their share is 10 %. If the queries are the items,
# each pair is counted twice, so the relative standard error is 14 %.
OBSERVED = 100
# The tail model is used only for false-positive rates of at least EXTRAPOLATED / n, where n is the
# number of pairs.
EXTRAPOLATED = 0.01


def as_scores(scores: Any) -> Floats:
    """Return scores of any shape as float64; raise ValueError if a score is NaN."""
    values: Floats = np.asarray(scores, np.float64)
    if np.isnan(values).any():
        raise ValueError("scores must not be NaN, got one")
    return values


@dataclass(frozen=True)
class PairDistribution(Record):
    """Histogram of the scores of random pairs, with a model of the highest scores.

    The attributes are described in the subclass :class:`fastcos.auditing.Calibration`.
    """

    measure: str
    fpr: float
    low: float
    width: float
    counts: Integers
    n_queries: int
    n_items: int
    self_join: bool
    tail: Tail | None

    @property
    def n_pairs(self) -> int:
        """Number of pairs in the distribution."""
        return self.n_queries * (self.n_items - self.self_join)

    @property
    def edges(self) -> Floats:
        """Edges of the bins, (65537,) float64."""
        return Bins(self.low, self.width).edges

    @property
    def pairs_above(self) -> Integers:
        """Number of pairs at or above each edge, (65537,) int64."""
        return np.append(np.cumsum(self.counts[::-1])[::-1], 0)

    @property
    def smallest_fpr(self) -> float:
        """The smallest rate that ``threshold`` accepts: 0.01 divided by the number of pairs."""
        return EXTRAPOLATED / self.n_pairs

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates from the list 1e-1, 1e-2, ..., 1e-6 that are at least ``smallest_fpr``."""
        return tuple(rate for rate in RATES if rate >= self.smallest_fpr)

    def threshold(self, fpr: float | None = None) -> float:
        """Return the lowest score that a random pair reaches with a probability of at most ``fpr``.

        Parameters
        ----------
        fpr : float, optional
            False-positive rate, from ``smallest_fpr`` to 1. Default: the attribute ``fpr``.

        Returns
        -------
        float
            If at least 100 pairs are above the threshold, the threshold is the edge of a bin;
            otherwise the tail model determines the threshold. Suppose that several pairs tie for
            the largest score, and that their share of all pairs exceeds the rate. Then the
            threshold is the next float above the largest score.
        """
        fpr = self.fpr if fpr is None else fpr
        fpr = validation.as_real("fpr", fpr, low=self.smallest_fpr, high=1)
        above, edges = self.pairs_above, self.edges
        # The factor 1 + 1e-9 compensates for the rounding error of the product fpr * n_pairs.
        max_pairs = fpr * self.n_pairs * (1 + 1e-9)
        # The last bin includes its upper edge, so a score may equal the last edge. The scores of a
        # search are float32. The lowest threshold above all scores is therefore the next float32
        # above the last edge.
        with np.errstate(over="ignore"):
            next_float = float(np.nextafter(np.float32(edges[-1]), np.float32(np.inf)))
        edges[-1] = next_float if np.isfinite(next_float) else np.nextafter(edges[-1], np.inf)
        if self.tail is None:
            return float(edges[np.argmax(above <= max_pairs)])
        first = int(np.argmax(above <= max(max_pairs, OBSERVED)))
        if max_pairs >= OBSERVED <= above[first]:
            return float(edges[first])
        score = max(self.tail.threshold(fpr), float(edges[first]))
        return min(score, float(edges[-1])) if self._is_bounded else score

    @property
    def _is_bounded(self) -> bool:
        """Whether the last edge is an upper bound on all possible scores, as for cosines."""
        return Bins(self.low, self.width) == COSINE_BINS

    def p_value(self, scores: Any) -> Floats:
        """Return, for each score, the probability that a random pair has at least this score.

        Parameters
        ----------
        scores : float or array_like, any shape
            Scores, such as ``top_k(...).scores``. For a score of -inf, which pads short lists, the
            returned probability is 1.

        Returns
        -------
        ndarray, float64
            One probability for each score. Every probability is at least ``smallest_fpr``. For each
            score, consider the pairs whose scores are in the same bin or in a higher bin. If there
            are at least 100 such pairs, the probability is their share of all pairs; otherwise the
            tail model determines the probability.
        """
        values = as_scores(scores)
        above = self.pairs_above
        counts = above[Bins(self.low, self.width).of(values)]
        counts = np.where(values > self.edges[-1], 0, counts)
        p = counts / self.n_pairs
        is_rare = counts < OBSERVED
        if self.tail is None:
            p = (counts + 1) / (self.n_pairs + 1)
        elif is_rare.any():
            upper_bounds = above[above >= OBSERVED].min(initial=self.n_pairs) / self.n_pairs
            start = np.maximum(values, self.tail.start)
            # The probability that a further score exceeds the highest of N scores is 1 / (N + 1).
            upper_bounds = np.where(
                counts == 0, min(upper_bounds, 1 / (self.n_pairs + 1)), upper_bounds
            )
            p = np.where(is_rare, np.minimum(self.tail.p_value(start), upper_bounds), p)
        if self._is_bounded:
            p = np.where(values > self.edges[-1], 0.0, p)
        return np.maximum(p, self.smallest_fpr)

    def expected_false(self, scores: Any, *, n_items: int, n_queries: int = 1) -> Floats:
        """Return how many random pairs are expected to reach each score in one search.

        For a search of n_items items by n_queries queries, the expected number of random pairs that
        reach a score is n_queries x n_items x p_value(score). In sequence search, the expected
        number of random pairs above a score is called the E-value (Karlin and Altschul 1990).
        """
        n_items = validation.as_count("n_items", n_items)
        n_queries = validation.as_count("n_queries", n_queries)
        return n_queries * n_items * self.p_value(scores)

    def false_discovery_rate(self, scores: Any, *, n_items: int) -> Floats:
        """Return the p-values of neighbours, adjusted by the method of Benjamini and Hochberg.

        Suppose that you accept all neighbours with an adjusted p-value of at most q. On average,
        the share of random pairs among the accepted neighbours is then at most q. The procedure
        counts all pairs of a query and an item as tests, because the pairs that are not in the
        lists were tested, too. Calibrate with unrelated pairs, for example with queries to which no
        item is relevant. Related pairs in the calibration count as random pairs, and thus increase
        the p-values.

        Source: Benjamini and Hochberg 1995. The function calls
        ``scipy.stats.false_discovery_control``.

        Parameters
        ----------
        scores : array_like (n, k)
            Scores of the neighbours of n queries, such as ``top_k(...).scores``.
        n_items : int
            Number of items that were searched for each query.

        Returns
        -------
        ndarray (n, k), float64
            Adjusted p-values from 0 to 1. For a score of -inf, which pads short lists, the adjusted
            p-value is 1.
        """
        from scipy.stats import false_discovery_control

        values = np.asarray(scores, np.float64)
        if values.ndim != 2 or not values.size:
            raise ValueError(f"scores must be of shape (n, k), got {values.shape}")
        n_items = validation.as_count("n_items", n_items, low=values.shape[1])
        # SciPy multiplies each p-value by the number of listed pairs, and divides the product by
        # the rank of the p-value. To control the false discovery rate, the p-values must be
        # multiplied by the number of tests instead of the number of listed pairs. Therefore, each
        # p-value is first multiplied by a factor, which is the number of tests divided by the
        # number of listed pairs. The products are passed to SciPy.
        p = np.minimum(self.p_value(values) * (n_items / values.shape[1]), 1.0)
        return false_discovery_control(p.ravel()).reshape(values.shape)

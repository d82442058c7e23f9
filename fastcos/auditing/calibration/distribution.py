"""The distribution of the scores of random pairs: thresholds, p-values, false discovery rates."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.auditing.calibration.histogram import COSINE_BINS, Bins
from fastcos.auditing.calibration.tail import Tail
from fastcos.reports import Record
from fastcos.validation import Floats, Integers

# rates at which the counts of each row are kept
RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# pairs above a score from which their share is used as it is; with fewer, the tail model: a share
# of 100 independent pairs has a standard error of 10 %; a self-join counts each pair twice: 14 %
OBSERVED = 100
# how far below one pair the tail model is used: two powers of ten
EXTRAPOLATED = 0.01


def as_scores(scores: Any) -> Floats:
    """Return scores of any shape as float64; refuse NaN."""
    values: Floats = np.asarray(scores, np.float64)
    if np.isnan(values).any():
        raise ValueError("scores must not be NaN, got one")
    return values


@dataclass(frozen=True)
class PairDistribution(Record):
    """Counts of the scores of random pairs, continued by a model of their tail.

    The attributes are those of :class:`fastcos.auditing.Calibration`.
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
        """The smallest false-positive rate for which a threshold is given: 0.01 over the pairs."""
        return EXTRAPOLATED / self.n_pairs

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates of ``RATES`` for which a threshold is given."""
        return tuple(rate for rate in RATES if rate >= self.smallest_fpr)

    def threshold(self, fpr: float | None = None) -> float:
        """The least score that a random pair reaches with at most this probability.

        Parameters
        ----------
        fpr : float, optional
            False-positive rate, from ``smallest_fpr`` to 1. Default: the attribute fpr.

        Returns
        -------
        float
            An edge of a bin where at least 100 pairs are above it, else a score of the tail model.
            If more pairs than that have the largest score: the next larger float.
        """
        fpr = self.fpr if fpr is None else fpr
        fpr = validation.as_real("fpr", fpr, low=self.smallest_fpr, high=1)
        above, edges = self.pairs_above, self.edges
        # 1e-9 forgives the rounding of fpr times the pairs
        allowed = fpr * self.n_pairs * (1 + 1e-9)
        # The last bin holds its upper edge. Thresholds are compared with float32 scores, so the
        # next larger float32 is the smallest threshold that no score reaches.
        with np.errstate(over="ignore"):
            beyond = float(np.nextafter(np.float32(edges[-1]), np.float32(np.inf)))
        edges[-1] = beyond if np.isfinite(beyond) else np.nextafter(edges[-1], np.inf)
        if self.tail is None:
            return float(edges[np.argmax(above <= allowed)])
        first = int(np.argmax(above <= max(allowed, OBSERVED)))
        if allowed >= OBSERVED <= above[first]:
            return float(edges[first])
        score = max(self.tail.threshold(fpr), float(edges[first]))
        return min(score, float(edges[-1])) if self._is_bounded else score

    @property
    def _is_bounded(self) -> bool:
        """Whether no score can be beyond the last edge."""
        return Bins(self.low, self.width) == COSINE_BINS

    def p_value(self, scores: Any) -> Floats:
        """The probability that a random pair has a score at least as high.

        Parameters
        ----------
        scores : float or array_like, any shape
            Such as ``top_k(...).scores``. -inf, the padding of a search, has probability 1.

        Returns
        -------
        ndarray, float64
            Of the shape of scores, at least ``smallest_fpr``. Of the lower edge of the score's
            bin while at least 100 pairs are above it, then of the tail model.
        """
        values = as_scores(scores)
        above = self.pairs_above
        counts = above[Bins(self.low, self.width).of(values)]
        counts = np.where(values > self.edges[-1], 0, counts)
        p = counts / self.n_pairs
        rare = counts < OBSERVED
        if self.tail is None:
            p = (counts + 1) / (self.n_pairs + 1)
        elif rare.any():
            least = above[above >= OBSERVED].min(initial=self.n_pairs) / self.n_pairs
            start = np.maximum(values, self.tail.start)
            # beyond the highest of N scores a further one is with probability 1 / (N + 1)
            least = np.where(counts == 0, min(least, 1 / (self.n_pairs + 1)), least)
            p = np.where(rare, np.minimum(self.tail.p_value(start), least), p)
        if self._is_bounded:
            p = np.where(values > self.edges[-1], 0.0, p)
        return np.maximum(p, self.smallest_fpr)

    def expected_false(self, scores: Any, *, n_items: int, n_queries: int = 1) -> Floats:
        """The number of random pairs expected at or above a score: the E-value of a search.

        n_queries n_items p_value(scores), of the shape of scores, for n_items that n_queries
        search. Source: the E-value of sequence search, Karlin and Altschul 1990.
        """
        n_items = validation.as_count("n_items", n_items)
        n_queries = validation.as_count("n_queries", n_queries)
        return n_queries * n_items * self.p_value(scores)

    def false_discovery_rate(self, scores: Any, *, n_items: int) -> Floats:
        """Benjamini-Hochberg adjusted p-values of the neighbours of a set of queries.

        Accept neighbours of at most q: then the share of random pairs among those accepted is at
        most q on average. The tests are all pairs of a query and an item, also those that the
        lists leave out, which are the lower scores. The calibration must be of pairs that are not
        related, such as other queries of which nothing is relevant: a pair that is part of the
        calibration adds itself to the expected number.

        Source: Benjamini and Hochberg 1995, by ``scipy.stats.false_discovery_control``.

        Parameters
        ----------
        scores : array_like (n, k)
            Scores of n queries' neighbours, such as ``top_k(...).scores``.
        n_items : int
            Items that each query could find.

        Returns
        -------
        ndarray (n, k), float64
            From 0 to 1; 1 for padding.
        """
        from scipy.stats import false_discovery_control

        values = np.asarray(scores, np.float64)
        if values.ndim != 2 or not values.size:
            raise ValueError(f"scores must be of shape (n, k), got {values.shape}")
        n_items = validation.as_count("n_items", n_items, low=values.shape[1])
        # p times the tests over the listed: what SciPy then multiplies by listed over rank. 1 for
        # more, which any rank leaves at 1
        p = np.minimum(self.p_value(values) * (n_items / values.shape[1]), 1.0)
        return false_discovery_control(p.ravel()).reshape(values.shape)

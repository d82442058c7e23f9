"""A model of the highest scores of random pairs: the generalised Pareto distribution."""

from dataclasses import dataclass

import numpy as np

from fastcos.reports import Record
from fastcos.validation import Floats, Integers

# The tail contains the pairs with the highest scores. The number of these pairs is SHARE times the
# number of all pairs, but at least MIN_PAIRS. MIN_PAIRS pairs are enough to fit two parameters.
# With so few pairs, only the highest scores determine the fit.
# `tests.robustness.calibrated_rates tail` compares other values of SHARE and MIN_PAIRS.
SHARE = 1e-4
MIN_PAIRS = 1000
# If there are few pairs, a tail of MIN_PAIRS pairs would be too large, so the tail is limited to
# MAX_SHARE of all pairs. The tail starts at the edge of a bin, so it may exceed this limit if many
# scores lie in one bin. If the tail model were fitted to all pairs, the false-positive rate of a
# threshold would be only half of the requested rate.
MAX_SHARE = 0.2
# The tail model is fitted to at most _FITTED quantiles of the tail.
_FITTED = 5000


@dataclass(frozen=True)
class Tail(Record):
    """Generalised Pareto distribution of the scores above a start value.

    The model predicts which share of all pairs has a score of at least ``start`` + x. This share is
    ``share`` (1 + ``shape`` x / ``scale``)^(-1 / ``shape``).

    Attributes
    ----------
    start : float
        Lowest score of the tail.
    share : float
        Share of all pairs that are in the tail.
    n_pairs : int
        Number of pairs in the tail.
    shape, scale : float
        Parameters of the distribution. If the shape is negative, the largest possible score is
        start - scale / shape.
    distance : float
        Largest difference between the fitted and the observed distribution function of the tail
        (the Kolmogorov-Smirnov statistic), from 0 to 1.
    """

    start: float
    share: float
    n_pairs: int
    shape: float
    scale: float
    distance: float

    def p_value(self, scores: Floats) -> Floats:
        """For each score, return the share of pairs that reach the score according to the model.

        The scores must be at least ``start``.
        """
        from scipy.stats import genpareto

        return self.share * genpareto.sf((scores - self.start) / self.scale, self.shape)

    def threshold(self, share: float) -> float:
        """Return the score that a given share of all pairs reaches, according to the model."""
        from scipy.stats import genpareto

        excess = genpareto.isf(min(share / self.share, 1.0), self.shape)
        return self.start + float(excess) * self.scale


def fit_tail(edges: Floats, counts: Integers) -> Tail | None:
    """Fit a model to the tail of a histogram by maximum likelihood, and return it.

    The result is None if the scores of the tail lie in so few bins that no model can be fitted.
    """
    from scipy.stats import genpareto, kstest

    n_pairs = int(counts.sum())
    above = np.append(np.cumsum(counts[::-1])[::-1], 0)
    min_in_tail = max(1, min(MAX_SHARE * n_pairs, max(MIN_PAIRS, SHARE * n_pairs)))
    first = int(np.flatnonzero(above >= min_in_tail)[-1])
    in_tail = int(above[first])
    # Quantiles of the tail are computed for equally spaced ranks, by linear interpolation within
    # each bin.
    steps = (np.arange(min(_FITTED, in_tail)) + 0.5) * in_tail / min(_FITTED, in_tail)
    cumulative = np.cumsum(counts[first:])
    bins = np.searchsorted(cumulative, steps, side="right")
    n_before = cumulative[bins] - counts[first + bins]
    # The excess of a score is its distance from the start of the tail. The excess is measured in
    # bins, because squares of very large scores would overflow.
    excess = bins + (steps - n_before) / counts[first + bins]
    if not excess[-1] > 2:
        return None
    shape, _, scale = genpareto.fit(excess, floc=0)
    fitted = genpareto(shape, scale=scale)
    return Tail(
        start=float(edges[first]),
        share=in_tail / n_pairs,
        n_pairs=in_tail,
        shape=float(shape),
        scale=float(scale * (edges[1] - edges[0])),
        distance=float(kstest(excess, fitted.cdf).statistic),
    )

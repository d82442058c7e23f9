"""A model of the scores beyond those observed: the generalised Pareto distribution."""

from dataclasses import dataclass

import numpy as np

from fastcos.reports import Record
from fastcos.validation import Floats, Integers

# The tail consists of this share of the pairs, but of at least MIN_PAIRS pairs: enough to fit two
# parameters, and few enough that only the tail decides. `tests.robustness.calibrated_rates tail`
# compares choices.
SHARE = 1e-4
MIN_PAIRS = 1000
# The tail never exceeds this share of the pairs. A fit to all pairs would yield thresholds at which
# the true rate is only half of the requested one.
MAX_SHARE = 0.2
# Number of scores, at equal steps of the distribution of the tail, to which the model is fitted.
_FITTED = 5000


@dataclass(frozen=True)
class Tail(Record):
    """Generalised Pareto distribution of the scores above a start value.

    P(score >= start + x) = share (1 + shape x / scale)^(-1 / shape).

    Attributes
    ----------
    start : float
        Lowest score of the tail.
    share : float
        Share of all pairs that are in the tail.
    n_pairs : int
        Number of pairs in the tail.
    shape, scale : float
        Parameters of the distribution. With a negative shape, it ends at start - scale / shape.
    distance : float
        Largest difference between the fitted and the observed distribution of the tail
        (Kolmogorov-Smirnov), from 0 to 1.
    """

    start: float
    share: float
    n_pairs: int
    shape: float
    scale: float
    distance: float

    def p_value(self, scores: Floats) -> Floats:
        """Return the share of pairs at or above these scores by the model, for scores >= start."""
        from scipy.stats import genpareto

        return self.share * genpareto.sf((scores - self.start) / self.scale, self.shape)

    def threshold(self, share: float) -> float:
        """Return the score that, by the model, this share of all pairs reaches."""
        from scipy.stats import genpareto

        excess = genpareto.isf(min(share / self.share, 1.0), self.shape)
        return self.start + float(excess) * self.scale


def fit_tail(edges: Floats, counts: Integers) -> Tail | None:
    """Fit the tail of a histogram by maximum likelihood; None if its scores have no spread."""
    from scipy.stats import genpareto, kstest

    n_pairs = int(counts.sum())
    above = np.append(np.cumsum(counts[::-1])[::-1], 0)
    min_in_tail = max(1, min(MAX_SHARE * n_pairs, max(MIN_PAIRS, SHARE * n_pairs)))
    first = int(np.flatnonzero(above >= min_in_tail)[-1])
    in_tail = int(above[first])
    # Scores at equal steps of the distribution of the tail, interpolated within each bin.
    steps = (np.arange(min(_FITTED, in_tail)) + 0.5) * in_tail / min(_FITTED, in_tail)
    cumulative = np.cumsum(counts[first:])
    bins = np.searchsorted(cumulative, steps, side="right")
    before = cumulative[bins] - counts[first + bins]
    # The unit is one bin, because squares of very large or small scores would overflow.
    excess = bins + (steps - before) / counts[first + bins]
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

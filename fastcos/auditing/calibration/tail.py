"""A model of the scores beyond those observed: the generalised Pareto distribution."""

from dataclasses import dataclass

import numpy as np

from fastcos.reports import Record
from fastcos.validation import Floats, Integers

# share of the pairs that the tail holds, and the least number of them: enough to fit two
# parameters, and few enough that only the tail counts (tests.robustness.calibrated_rates tail)
SHARE = 1e-4
LEAST_PAIRS = 1000
# but at most this share of few pairs: a fit to all of them puts thresholds where rates are half
MOST_SHARE = 0.2
# scores that stand for the tail in the fit, at equal steps of its distribution: 50 ms
_FITTED = 5000


@dataclass(frozen=True)
class Tail(Record):
    """Generalised Pareto distribution of the scores above a start.

    P(score >= start + x) = share (1 + shape x / scale)^(-1 / shape).

    Attributes
    ----------
    start : float
        Least score of the tail.
    share : float
        Share of all pairs in the tail.
    n_pairs : int
        Their number.
    shape, scale : float
        Of the distribution; a negative shape ends at start - scale / shape.
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
        """Return the modelled share of pairs at or above scores of at least start."""
        from scipy.stats import genpareto

        return self.share * genpareto.sf((scores - self.start) / self.scale, self.shape)

    def threshold(self, share: float) -> float:
        """Return the score that this share of all pairs reaches by the model."""
        from scipy.stats import genpareto

        excess = genpareto.isf(min(share / self.share, 1.0), self.shape)
        return self.start + float(excess) * self.scale


def fit_tail(edges: Floats, counts: Integers) -> Tail | None:
    """Fit the tail of a histogram by maximum likelihood; None where it has no spread."""
    from scipy.stats import genpareto, kstest

    n_pairs = int(counts.sum())
    above = np.append(np.cumsum(counts[::-1])[::-1], 0)
    wanted = max(1, min(MOST_SHARE * n_pairs, max(LEAST_PAIRS, SHARE * n_pairs)))
    first = int(np.flatnonzero(above >= wanted)[-1])
    in_tail = int(above[first])
    # scores at equal steps of the tail's distribution, each at its place within its bin
    steps = (np.arange(min(_FITTED, in_tail)) + 0.5) * in_tail / min(_FITTED, in_tail)
    cumulative = np.cumsum(counts[first:])
    bins = np.searchsorted(cumulative, steps, side="right")
    before = cumulative[bins] - counts[first + bins]
    # in bins: scores may be so large or small that their squares are not numbers
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

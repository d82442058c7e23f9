"""Ratio of the times of two sides with a bootstrap interval, from pairs of processes."""

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.99
# bootstrap samples: the ends of a 99 % interval then rest on 100 of them on either side
RESAMPLES = 19_999
# without a fifth of the pairs at either end: disturbed pairs
trimmed_mean = partial(stats.trim_mean, proportiontocut=0.2)


class Ratio(NamedTuple):
    """Time of one benchmark in head over its time in base.

    base and head are median seconds. The ratio is the geometric mean of the pairs' ratios without
    the outer fifths, above 1 if head is slower; low and high are its bootstrap interval.
    """

    name: str
    base: float
    head: float
    ratio: float
    low: float
    high: float
    pairs: int

    def exceeds(self, limit):
        """Return whether the ratio is above the limit; None if its interval contains the limit."""
        return None if self.low <= limit < self.high else self.low > limit


def log_ratios(pairs):
    """Return the logarithm of every pair's ratio: of head / base, the median over the turns."""
    return np.array([np.median(np.log(head) - np.log(base)) for base, head in pairs])


def estimate_ratio(name, pairs):
    """Return the ratio of one benchmark; a pair holds the seconds of base and of head by turn."""
    sides = list(zip(*pairs, strict=True))
    for label, turns in zip(("base", "head"), sides, strict=True):
        least = min(map(min, turns))
        if not 0 < least < np.inf:
            raise ValueError(f"seconds of {name} in {label} must be positive, got {least}")
    base, head = (float(np.median(np.concatenate(turns))) for turns in sides)
    low, middle, high = bootstrap_interval(log_ratios(pairs))
    return Ratio(name, base, head, middle, low, high, len(pairs))


def bootstrap_interval(logs, confidence=CONFIDENCE):
    """Return low end, trimmed mean and high end of ratios given by their logarithms.

    The percentile bootstrap of few values is too narrow: for 10 normal values its 99% interval
    covers 95%. It is widened to the coverage of the mean of normal values (the expanded percentile
    interval of Hesterberg, What Teachers Should Know about the Bootstrap, 2014, arXiv 1411.5279).
    """
    n = len(logs)
    tail = stats.norm.cdf(np.sqrt(n / (n - 1)) * stats.t.ppf((1 - confidence) / 2, n - 1))
    low, high = stats.bootstrap(
        (logs,),
        trimmed_mean,
        confidence_level=1 - 2 * tail,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return tuple(float(end) for end in np.exp([low, trimmed_mean(logs), high]))

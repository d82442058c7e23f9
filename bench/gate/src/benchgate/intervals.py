"""The ratio of the times of two commits, estimated from pairs of processes, with a bootstrap interval."""

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.99
# The number of bootstrap samples. 100 of these samples lie below a 99 % interval, and 100 lie above it.
RESAMPLES = 19_999
# This mean leaves out two fifths of the values: the lowest fifth and the highest fifth. Each value is the
# ratio of one pair. Other work on the machine disturbs some pairs. Most ratios of the disturbed pairs are
# among the lowest fifth or the highest fifth of all ratios.
trimmed_mean = partial(stats.trim_mean, proportiontocut=0.2)


class Ratio(NamedTuple):
    """The ratio of the times of one benchmark: its time in head, divided by its time in base.

    ``base`` and ``head`` are median seconds. ``ratio`` is the trimmed geometric mean of the ratios of
    all pairs and is above 1 if head is slower. ``low`` and ``high`` are the ends of the confidence
    interval of the ratio.
    """

    name: str
    base: float
    head: float
    ratio: float
    low: float
    high: float
    pairs: int

    def exceeds(self, limit):
        """Return whether the ratio is above the limit, or None if the interval contains the limit."""
        return None if self.low <= limit < self.high else self.low > limit


def log_ratios(pairs):
    """Return the log-ratio of each pair, which is the median log-ratio of the turns of the pair.

    Each pair holds the seconds of base and the seconds of head, in the order of their turns.
    """
    return np.array([np.median(np.log(head) - np.log(base)) for base, head in pairs])


def estimate_ratio(name, pairs):
    """Return the :class:`Ratio` of one benchmark from its pairs, see :func:`log_ratios`."""
    sides = list(zip(*pairs, strict=True))
    for label, turns in zip(("base", "head"), sides, strict=True):
        shortest = min(map(min, turns))
        if not 0 < shortest < np.inf:
            raise ValueError(f"seconds of {name} in {label} must be positive, got {shortest}")
    base, head = (float(np.median(np.concatenate(turns))) for turns in sides)
    low, middle, high = bootstrap_interval(log_ratios(pairs))
    return Ratio(name, base, head, middle, low, high, len(pairs))


def bootstrap_interval(logs, confidence=CONFIDENCE):
    """Return the low end of the interval, the trimmed mean and the high end, for ratios given as logarithms.

    For few values, the interval of the percentile bootstrap is too narrow. For example, an interval for 99 %
    that is computed from 10 normal values contains the mean in only 95 % of the cases. This function
    therefore widens the interval to the coverage of Student's interval (the expanded percentile interval of
    Hesterberg, "What Teachers Should Know about the Bootstrap", 2014, arXiv 1411.5279).
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

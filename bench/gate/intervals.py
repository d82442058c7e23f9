"""Ratio of two commands' times with a bootstrap interval, from pairs of processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# bootstrap samples: the ends of a 99 % interval then rest on 100 of them on either side
_RESAMPLES = 19_999
# share of the pairs that is ignored at either end: disturbed pairs
_TRIMMED = 0.2


@dataclass(frozen=True)
class Ratio:
    """Time of one benchmark in head over its time in base.

    Attributes
    ----------
    name : str
    base, head : float
        Median seconds.
    ratio : float
        Geometric mean of the pairs' ratios without the outer fifths; above 1 is slower.
    low, high : float
        Its bootstrap interval.
    pairs : int
    """

    name: str
    base: float
    head: float
    ratio: float
    low: float
    high: float
    pairs: int

    def exceeds(self, limit: float) -> bool | None:
        """Return whether the ratio is above the limit; None if its interval contains the limit."""
        return None if self.low <= limit < self.high else self.low > limit


def estimate_ratio(
    name: str,
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]],
    confidence: float,
    random_state: int,
) -> Ratio:
    """Return the ratio of one benchmark and its interval.

    A pair holds the seconds of base and of head in every turn; its ratio is the median over them.
    """
    sides = list(zip(*pairs, strict=True))
    for label, turns in zip(("base", "head"), sides, strict=True):
        least = min(min(seconds) for seconds in turns)
        if not 0 < least < np.inf:
            raise ValueError(f"seconds of {name} in {label} must be positive, got {least}")
    logs = [np.median(np.log(head) - np.log(base)) for base, head in pairs]
    low, middle, high = bootstrap_interval(np.array(logs), confidence, random_state)
    base, head = (float(np.median(np.concatenate(turns))) for turns in sides)
    return Ratio(name, base, head, middle, low, high, len(pairs))


def bootstrap_interval(
    logs: npt.NDArray[np.float64], confidence: float, random_state: int
) -> tuple[float, float, float]:
    """Return low end, trimmed mean and high end of ratios given by their logarithms.

    The percentile bootstrap of few values is too narrow: for 10 normal values its 99% interval
    covers 95%. It is widened to the coverage of the mean of normal values (the expanded percentile
    interval of Hesterberg, What Teachers Should Know about the Bootstrap, 2014, arXiv 1411.5279).
    """
    from scipy import stats  # imported here: it takes a second

    def trimmed(values: npt.NDArray[np.float64], axis: int = -1) -> Any:
        return stats.trim_mean(values, _TRIMMED, axis=axis)

    n = len(logs)
    tail = stats.norm.cdf(np.sqrt(n / (n - 1)) * stats.t.ppf((1 - confidence) / 2, n - 1))
    ends: Any = stats.bootstrap(
        (logs,),
        trimmed,
        confidence_level=1 - 2 * tail,
        n_resamples=_RESAMPLES,
        method="percentile",
        random_state=np.random.default_rng(random_state),
    ).confidence_interval
    low, middle, high = np.exp([ends.low, trimmed(logs), ends.high])
    return float(low), float(middle), float(high)

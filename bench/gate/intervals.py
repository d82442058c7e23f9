"""How sure is a ratio? From the times of pairs of processes to an interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation

_RESAMPLES = 19_999
# of the pairs, at either end: those that were disturbed do not count
_TRIMMED = 0.2


@dataclass(frozen=True)
class Ratio:
    """How many times the time of base one benchmark takes in head.

    Attributes
    ----------
    name : str
    base, head : float
        Median seconds.
    ratio : float
        Mean of the pairs' ratios on the scale of logarithms, without the outer fifths; above 1 is
        slower.
    low, high : float
        Bootstrap interval of it.
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
        """Whether the ratio lies above the limit; None where its interval holds the limit."""
        return None if self.low <= limit < self.high else self.low > limit


def judged(
    name: str,
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]],
    confidence: float,
    seed: int,
) -> Ratio:
    """Return the ratio and its interval of one benchmark.

    Parameters
    ----------
    name : str
    pairs : sequence of two sequences of float
        Seconds of base and of head at every turn. A pair's ratio is the median of its turns'.
    confidence : float
    seed : int

    Returns
    -------
    Ratio
    """
    sides = list(zip(*pairs, strict=True))
    for label, turns in zip(("base", "head"), sides, strict=True):
        least = min(min(seconds) for seconds in turns)
        validation.as_real(f"seconds of {name} in {label}", least, above=0)
    logs = [np.median(np.log(head) - np.log(base)) for base, head in pairs]
    low, middle, high = interval(np.array(logs), confidence, seed)
    base, head = (float(np.median(np.concatenate(turns))) for turns in sides)
    return Ratio(name, base, head, middle, low, high, len(pairs))


def interval(
    logs: npt.NDArray[np.float64], confidence: float, seed: int
) -> tuple[float, float, float]:
    """Return low end, trimmed mean and high end of ratios given by their logarithms.

    The percentile bootstrap of few values is too narrow: of 10 normal ones its 99% interval covers
    95%. It is widened as far as the mean of normal ones needs (the expanded percentile interval of
    Hesterberg, What Teachers Should Know about the Bootstrap, 2014, arXiv 1411.5279).

    Parameters
    ----------
    logs : ndarray (pairs,), float64
    confidence : float
    seed : int

    Returns
    -------
    tuple of float
    """
    from scipy import stats  # here, for it takes long to import

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
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    low, middle, high = np.exp([ends.low, trimmed(logs), ends.high])
    return float(low), float(middle), float(high)

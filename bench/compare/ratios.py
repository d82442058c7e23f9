"""Functions that turn the times in a results file into ratios, intervals and sentences."""

import math
import statistics

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
# If other programs use more cores than this, the comparison gives no verdicts.
BUSY_CORES = 0.15


def time_of(processes):
    """Return the time of a library: the geometric mean of the median times of its processes."""
    return statistics.geometric_mean([statistics.median(turns) for turns in processes])


def ratio_of(theirs, ours):
    """Return the ratio of the times of two libraries, and the interval of this ratio.

    Parameters
    ----------
    theirs, ours : list of list of float
        The seconds of the two libraries: one list per process, with one number per turn. Two
        turns with the same number were measured at about the same time. The lists of a slow library
        are shorter, because it took part only in the first turns of each process.

    Returns
    -------
    ratio, low, high : float
        ratio is the time of the other library divided by the time of fastcos. A second run is
        expected to yield a ratio between low and high. This interval is infinite if there is only
        one process.
    """
    logs = np.array([
        statistics.median(math.log(a / b) for a, b in zip(their_turns, our_turns, strict=False))
        for their_turns, our_turns in zip(theirs, ours, strict=True)
    ])  # fmt: skip
    n, mean, half = len(logs), logs.mean(), np.inf
    if n > 1:
        # Each of two runs yields a mean over n processes. Let s be the standard deviation of one
        # process. If the speed of the machine does not change, the difference between the two means
        # has the standard deviation s sqrt(1/n + 1/n).
        half = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * logs.std(ddof=1) * math.sqrt(2 / n)
    return tuple(float(value) for value in np.exp([mean, mean - half, mean + half]))


def is_disturbed(result):
    """Return whether other programs are known to have disturbed the measurement of a row."""
    return result["busy"] is not None and result["busy"] > BUSY_CORES


def verdict(low, high, busy):
    """Return "busy" if other programs used the machine, else "faster", "slower" or "undecided"."""
    if busy is None or busy > BUSY_CORES:
        return "busy"
    return "faster" if low > 1 else "slower" if high < 1 else "undecided"


def sentence(name, theirs, ours, busy):
    """Return a sentence that compares the speed of fastcos with the speed of another library."""
    ratio, low, high = ratio_of(theirs, ours)
    # With only one process, the interval is infinite, because one process does not show how much
    # processes differ.
    interval = f" [{low:.2f}, {high:.2f}]" if math.isfinite(high) else ""
    if verdict(low, high, busy) == "busy":
        cores = "an unknown number of" if busy is None else f"{busy:.1f}"
        return (
            f"no verdict on {name}, because other programs used {cores} cores meanwhile; it took "
            f"{ratio:.2f} times as long as fastcos{interval}"
        )
    text = f"fastcos is {ratio:.2f} times as fast as {name}{interval}"
    if verdict(low, high, busy) == "undecided":
        text += "; this interval contains 1, so neither is shown to be faster"
    return text


def duration(seconds):
    """Return a time with its unit, such as "15.1 µs"."""
    for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * scale >= 1 or unit == "µs":
            return f"{float(f'{seconds * scale:.3g}'):,g} {unit}"
    raise AssertionError

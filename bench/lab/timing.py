"""Seconds of calls, for the scripts; the views of the workloads measure limits in turns too."""

import time

import numpy as np

# turns of calls whose seconds are compared
TURNS = 5


def seconds(call):
    """Return the seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def in_turns(*calls, turns=TURNS):
    """Return the seconds (turns, calls) of calls made alternately, after one that compiles."""
    for call in calls:
        call()
    return np.array([[seconds(call) for call in calls] for _ in range(turns)])


def milliseconds(call):
    """Return the median of some calls."""
    return float(1e3 * np.median(in_turns(call)))

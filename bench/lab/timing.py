"""Functions that measure the time and the memory of calls, for the scripts of this folder."""

import contextlib
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from bench.compare.worker import resident_mib

# The number of times that each call is timed.
TURNS = 5


def seconds(call):
    """Return the seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def in_turns(*calls, turns=TURNS):
    """Return the seconds of calls that alternate with each other, as an array (turns, calls).

    Each call is first made once without being timed.
    """
    for call in calls:
        call()
    return np.array([[seconds(call) for call in calls] for _ in range(turns)])


def milliseconds(call):
    """Return the median milliseconds of five calls."""
    return float(1e3 * np.median(in_turns(call)))


def in_new_process(function, *arguments):
    """Return function(*arguments), called in a new process with its own memory."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(function, *arguments).result()


def added_mib(call):
    """Return the peak memory in MiB that a call adds to the process."""
    before = resident_mib("VmRSS")
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak of the resident memory
    call()
    return max(0.0, resident_mib("VmHWM") - before)

"""Seconds and memory of calls, for the scripts of this folder."""

import contextlib
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from bench.compare.worker import resident_mib

# Turns of calls whose seconds are compared.
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


def in_new_process(function, *arguments):
    """Return function(*arguments) from a process of its own, with new placement and memory."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(function, *arguments).result()


def added_mib(call):
    """Return the peak memory that a call adds, in MiB."""
    before = resident_mib("VmRSS")
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak of the resident memory
    call()
    return max(0.0, resident_mib("VmHWM") - before)

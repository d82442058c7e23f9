"""Benchmarks of a project that is not fastcos, of 20 us to 20 ms: bench.calibrate runs the gate on
them. BENCH_SLOWDOWN makes every call take a share longer, by counting.
"""

import functools
import os
import time
import timeit
from functools import partial

import numpy as np
import pytest

SHARE = float(os.environ.get("BENCH_SLOWDOWN", "0"))
VALUES = np.random.default_rng(0).standard_normal(300_000)
WORDS = [f"word {number % 977}" for number in range(20_000)]
CALLS = {
    "list": partial(sorted, WORDS[:500]),
    "words": partial(sorted, WORDS),
    "set": partial(set, WORDS),
    "join": partial(" ".join, WORDS),
    "sum": partial(sum, range(2_000)),
    "sort": partial(np.sort, VALUES),
    "small sort": partial(np.sort, VALUES[:2_000]),
    "cumulative": partial(np.cumsum, VALUES),
    "exponential": partial(np.exp, VALUES[:20_000]),
    "unique": partial(np.unique, VALUES[:50_000]),
    "histogram": partial(np.histogram, VALUES[:50_000], 50),
    "outer": partial(np.outer, VALUES[:300], VALUES[:300]),
}


def spin(count):
    for _ in range(count):
        pass


def seconds(call):
    return min(timeit.repeat(call, timer=time.process_time, number=3, repeat=7)) / 3


@functools.cache
def slowed(call, share):
    """Return a call that takes a share longer; reading a clock would slow short ones by more."""
    count = int(share * seconds(call) / seconds(partial(spin, 20_000)) * 20_000)
    return (lambda: (call(), spin(count))) if share else call


@pytest.mark.parametrize("name", CALLS)
def test_toy(name, benchmark):
    benchmark(slowed(CALLS[name], SHARE))

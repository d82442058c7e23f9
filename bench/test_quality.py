"""Thresholds of what asv tracks, and one loose ratio: `pytest bench/test_quality.py`."""

import statistics
import time

import numpy as np
import pytest

import fastcos
from bench import inputs, libraries
from bench.asv_suite import quality

CASES = [
    (kind, name, values)
    for kind in quality.SERIES
    for name in dir(kind)
    if name.startswith("track_")
    for values in quality.cases(kind)
]


@pytest.mark.parametrize(
    ("kind", "name", "values"), CASES, ids=[f"{k.__name__}-{n}-{v}" for k, n, v in CASES]
)
def test_quality_reaches_its_threshold(kind, name, values):
    value = quality.value(kind, name, values)
    low, high = kind.threshold(name, *values)
    assert low <= value <= high


def test_top_k_quality_of_time():
    """A search takes at most as long as sgemm and argpartition in this process."""
    rows, ratios = inputs.gaussian(4_000, 128), []
    theirs = libraries.prepare(
        "search", "numpy", {"items": rows}, {"k": 10, "measure": "cosine"}
    ).call
    for _ in range(7):
        seconds = []
        for call in (lambda: fastcos.top_k(rows, k=10), theirs):
            started = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - started)
        ratios.append(np.divide(*seconds))
    assert statistics.median(ratios[2:]) <= 1

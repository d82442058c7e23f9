"""Thresholds of what asv tracks, and one loose ratio: `pytest bench/test_quality.py`."""

import functools
import itertools

import numpy as np
import pytest

import fastcos
from bench import clock, inputs, libraries
from bench.asv_suite import quality

CASES = [
    pytest.param(kind, name, values, id=f"{kind.__name__}-{name}-{values}")
    for kind in vars(quality).values()
    if hasattr(kind, "param_names")
    for name in dir(kind)
    if name.startswith("track_")
    for values in itertools.product(*kind.params)
]


@functools.cache
def cache_of(kind):
    """Return what asv passes to the methods of a class before their parameters."""
    return (kind().setup_cache(),) if hasattr(kind, "setup_cache") else ()


@pytest.mark.parametrize(("kind", "name", "values"), CASES)
def test_quality_reaches_its_threshold(kind, name, values):
    low, high = quality.threshold(name, values[0])
    assert low <= getattr(kind(), name)(*cache_of(kind), *values) <= high


def test_top_k_quality_of_time():
    """A search takes at most as long as sgemm and argpartition in this process."""
    rows = inputs.gaussian(4_000, 128)
    job = {"items": rows}, {"k": 10, "measure": "cosine"}
    theirs = libraries.TASKS["search"]["numpy"](*job).call
    ours, others = clock.in_turns(lambda: fastcos.top_k(rows, k=10), theirs).T
    assert np.median(ours / others) <= 1

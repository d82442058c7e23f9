"""Public operations work correctly with threads, forks, servers and signal handlers."""

import importlib.util
import os

import pytest

from tests.robustness.guard_matrix import BACKENDS, LAYERS, SITUATIONS, cells, fault

NEEDS = {"gunicorn": "gunicorn", "dask": "distributed"}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")


def assert_no_fault(backend, layer, situation, handlers, calls):
    result = cells(backend, layer, situation, handlers, calls)
    assert not fault(result, backend, layer)
    assert result["calls"] >= calls


@pytest.mark.slow
def test_public_operations_in_threads_and_forks():
    assert_no_fault("pool", "omp", "8-threads double-fork", True, 2)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_public_operations_in_every_situation(backend, layer, situation):
    if importlib.util.find_spec(NEEDS.get(situation, "fastcos")) is None:
        pytest.skip(f"{NEEDS[situation]} is not installed")
    for handlers in (True,) if situation == "gunicorn" else (False, True):
        assert_no_fault(backend, layer, situation, handlers, 200)

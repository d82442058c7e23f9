"""Skips tests of vector IR without compilation (NUMBA_DISABLE_JIT)."""

import numba
import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except NotImplementedError:
        if not numba.config.DISABLE_JIT:
            raise
        pytest.skip("vector IR")

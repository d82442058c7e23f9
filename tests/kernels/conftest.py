"""Without compilation, kernels in vector IR cannot run; their portable twins can."""

import numba
import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except NotImplementedError:
        if not numba.config.DISABLE_JIT:
            raise
        pytest.skip("vector IR is only there compiled")

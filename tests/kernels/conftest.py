"""A fixture for a small separate package, and a hook that skips tests.

The hook skips tests of vector IR if Numba does not compile anything.
"""

import numba
import pytest

from tests.kernels.processes import written_package


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except NotImplementedError:
        if not numba.config.DISABLE_JIT:
            raise
        pytest.skip("vector IR")


@pytest.fixture
def package(tmp_path):
    """Write a separate package fastcos with two kernels; return its folder."""
    return written_package(tmp_path)

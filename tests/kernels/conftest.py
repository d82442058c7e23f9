"""A separate package of two kernels; tests of vector IR are skipped without compilation."""

import shutil

import numba
import pytest

from tests.kernels.processes import CALLEE, CALLER, ROOT


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
    """A separate package fastcos with two kernels; returns its folder."""
    kernels = tmp_path / "site" / "fastcos" / "kernels"
    kernels.mkdir(parents=True)
    (kernels.parent / "__init__.py").touch()
    machinery = (
        "jit", "native", "cpu", "code_cache", "compiler", "numba_internals", "fingerprint",
    )  # fmt: skip
    for name in ("__init__.py", *(f"{module}.py" for module in machinery)):
        shutil.copy(ROOT / "kernels" / name, kernels)
    (kernels / "caller.py").write_text(CALLER)
    (kernels / "callee.py").write_text(CALLEE.replace("STEP", "1"))
    return tmp_path / "site"

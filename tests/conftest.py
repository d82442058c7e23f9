"""For all tests: one BLAS thread, Ctrl-C as in a terminal, and settings restored afterwards."""

import os
import signal
import sys
from pathlib import Path

import pytest

# before NumPy is imported. The workers share the cores, and waiting threads of OpenBLAS spin:
# tests/linalg/test_svd.py took 436 s on busy cores, now 40 s
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# a shell without job control starts its background jobs with SIGINT ignored, children inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def restored_settings(monkeypatch):
    from fastcos import config
    from fastcos.engine import uncompiled

    monkeypatch.setattr(uncompiled, "work_left", 0)  # the kernels are tested
    monkeypatch.setattr(config, "overrides", dict(config.overrides))


@pytest.fixture(scope="session")
def without_numba(tmp_path_factory):
    """A folder of all installed packages but Numba, for PYTHONPATH and python -S."""
    folder = tmp_path_factory.mktemp("packages")
    for place in (one for one in sys.path if one.endswith("site-packages")):
        for package in Path(place).iterdir():
            is_known = (folder / package.name).is_symlink()
            if not is_known and not package.name.startswith(("numba", "llvmlite")):
                (folder / package.name).symlink_to(package)
    return folder

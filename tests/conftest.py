"""For all tests: one BLAS thread, Ctrl-C as in a terminal, and settings restored afterwards."""

import functools
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

# before NumPy is imported. The workers share the cores, and waiting threads of OpenBLAS and of the
# OpenMP of scikit-learn spin: tests/linalg/test_svd.py took 436 s on busy cores, now 40 s
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Garbage is collected less often: pytest makes 14,000 tests, and tests make many objects.
gc.set_threshold(50_000)
# a shell without job control starts its background jobs with SIGINT ignored, children inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)


# many tests start a Python, which would compile every module of fastcos again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What runs first: one worker compiles the search, the other what needs no search, and then finds it
# compiled. A worker waits for what the other one compiles: 150 s of a run in another order.
FIRST = ["tests/test_docs.py", "tests/kernels", "tests/linalg", "tests/models"]


def pytest_collection_modifyitems(config, items):
    places = [config.rootpath / name for name in FIRST]

    @functools.cache  # 14,000 tests are in 190 files
    def place(file):
        return next((n for n, path in enumerate(places) if file.is_relative_to(path)), len(FIRST))

    items.sort(key=lambda item: place(item.path))
    gc.freeze()  # collections do not look at 6,000 tests


@pytest.fixture(autouse=True)
def restored_settings(monkeypatch):
    from fastcos import config
    from fastcos.kernels import code_cache
    from fastcos.parallel import readiness

    monkeypatch.setattr(readiness.state, "compile_at_once", True)  # the kernels are tested
    monkeypatch.setattr(config, "overrides", dict(config.overrides))
    yield
    code_cache.set_cache_directory(None)  # A test may have set it by set_config.


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

"""All tests use one BLAS thread, react to Ctrl-C as in a terminal, and restore the settings."""

import functools
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

# These variables must be set before NumPy is imported. The test processes share the cores. Idle
# threads of OpenBLAS and of scikit-learn's OpenMP would spin and take cores from other tests. On
# busy cores, tests/linalg/test_svd.py took 436 s with these threads; without them, it takes 40 s.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Garbage is collected less often, because thousands of tests and the compiler of Numba create many
# objects. With a threshold of 50,000, each test process spent 3 s in collections.
gc.set_threshold(500_000)
# A shell without job control starts background jobs with SIGINT ignored, and the children of these
# jobs inherit this setting.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Many tests start a Python process, which would otherwise compile every module of fastcos again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# These tests run first, so that one worker compiles the search while another worker compiles the
# remaining kernels. In another order, workers waited 150 s for code that another worker was
# compiling.
FIRST = ["tests/test_docs.py", "tests/kernels", "tests/linalg", "tests/models"]


class _ReversedFolder(pytest.Dir):
    """A folder of tests whose files are read in reverse order."""

    def collect(self):
        return reversed(list(super().collect()))


def pytest_collect_directory(path, parent):
    """Let the second test process read the files of each folder in reverse order.

    In a fresh clone, each of the two processes then compiles one half of the test files, and loads
    the half that the other process has compiled.
    """
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
        return _ReversedFolder.from_parent(parent, path=path)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    gc.disable()  # Importing and collecting the tests leaves no garbage behind.
    try:
        return (yield)
    finally:
        gc.freeze()  # Garbage collections then skip the objects of all collected tests.
        gc.enable()


def pytest_sessionfinish():
    gc.freeze()  # pytest and Python collect garbage at their end, which took 3 s without this line


def pytest_collection_modifyitems(config, items):
    places = [config.rootpath / name for name in FIRST]

    @functools.cache  # the cache helps, because thousands of tests are in only 190 files
    def place(file):
        number = next((n for n, path in enumerate(places) if file.is_relative_to(path)), len(FIRST))
        return number, file.parts

    items.sort(key=lambda item: place(item.path))


@pytest.fixture(autouse=True)
def restored_settings(monkeypatch):
    from fastcos import config
    from fastcos.kernels import code_cache
    from fastcos.parallel import readiness

    monkeypatch.setattr(readiness.state, "compile_at_once", True)  # the kernels are tested
    monkeypatch.setattr(config, "overrides", dict(config.overrides))
    yield
    code_cache.set_cache_directory(None)  # A test may have set this directory by set_config.


@pytest.fixture(scope="session")
def without_numba(tmp_path_factory):
    """Make a folder that contains all installed packages except Numba; return the folder.

    A test names this folder in PYTHONPATH, and starts `python -S`.
    """
    folder = tmp_path_factory.mktemp("packages")
    for place in (one for one in sys.path if one.endswith("site-packages")):
        for package in Path(place).iterdir():
            is_known = (folder / package.name).is_symlink()
            if not is_known and not package.name.startswith(("numba", "llvmlite")):
                (folder / package.name).symlink_to(package)
    return folder

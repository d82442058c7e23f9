"""A package of two kernels, and processes that call them, for tests of the cache on disk."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A process that compiles writes this line to stderr; tests/kernels/test_native.py tests it.
ANNOUNCED = "fastcos: compiling kernels once, for up to 2 minutes; later processes load them\n"

# The code that the processes run: a kernel that calls a kernel in another file.
CALLER = """
from .callee import leaf
from .jit import kernel

@kernel
def twice(lo, hi, out):
    for i in range(lo, hi):
        out[i] = leaf(out[i]) * 2
"""
CALLEE = """
from .jit import kernel

@kernel
def leaf(x):
    return x + STEP
"""
USE = """
import warnings
warnings.simplefilter("always")
import numpy as np
from fastcos.kernels.caller import twice
out = np.array([9.0])
twice(0, 1, out)
print(out[0], sum(twice._cache_hits.values()))
"""


def written_package(folder):
    """Write a package fastcos with the two kernels into a folder; return the package's path."""
    kernels = folder / "site" / "fastcos" / "kernels"
    kernels.mkdir(parents=True)
    (kernels.parent / "__init__.py").touch()
    machinery = (
        "jit", "native", "cpu", "code_cache", "compiler", "numba_internals", "fingerprint",
    )  # fmt: skip
    for name in ("__init__.py", *(f"{module}.py" for module in machinery)):
        shutil.copy(ROOT / "kernels" / name, kernels)
    (kernels / "caller.py").write_text(CALLER)
    (kernels / "callee.py").write_text(CALLEE.replace("STEP", "1"))
    return folder / "site"


def process(site, cache, code=USE, **environment):
    return subprocess.Popen(
        [sys.executable, "-B", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=site,
        env={**os.environ, "PYTHONPATH": str(site), "FASTCOS_CACHE_DIR": str(cache), **environment},
    )


def use(site, cache, code=USE, **environment):
    """Run code in a new process; return the words that it printed, and its warnings."""
    with process(site, cache, code, **environment) as running:
        printed, warned = running.communicate(timeout=60)
    assert running.returncode == 0, warned
    return printed.split(), warned.replace(ANNOUNCED, "")


def entries(cache):
    return sorted(p for p in Path(cache).rglob("*") if p.is_file() and p.name != "lock")

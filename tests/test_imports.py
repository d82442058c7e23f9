"""What the first call of the array functions imports: NumPy, Numba, and what the caller passed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# the calls in this order, in one process that interprets the kernels: compiling imports SciPy's
# BLAS. Kernels of sparse search cannot be interpreted. Prints what each call has imported
CALLS = """
import json, sys
own = {"fastcos", "__main__", *sys.stdlib_module_names}
def imported():
    return {name for name in sys.modules if name.split(".")[0] not in own}

before = imported()
import fastcos

steps = {"import fastcos": sorted(imported() - before)}
import numpy as np, numpy.random, numba, numba.core.types
import numba.extending
known = imported()
def step(name, call):
    global known
    result = call()
    now = imported()
    steps[name] = sorted(
        module for module in now - known
        if module.split(".")[0] not in ("numpy", "numba", "llvmlite")
    )
    known = now
    return result

rows = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
step("top_k", lambda: fastcos.top_k(rows, k=2))
index = step("fit", lambda: fastcos.SimilarityIndex().fit(rows))
step("search", lambda: index.search(rows[:1], 2))
step("similarity_blocks", lambda: list(fastcos.similarity_blocks(rows)))
step("matmul", lambda: fastcos.matmul(rows, np.eye(4)))
import scipy.linalg, scipy.sparse as sp  # what the calls below are given, or need
known = imported()
step("sparse matmul", lambda: fastcos.matmul(sp.csr_array(rows), np.eye(4)))
step("randomized_svd", lambda: fastcos.randomized_svd(sp.csr_array(rows), 1))
print(json.dumps(steps))
"""


@pytest.fixture(scope="module")
def imported_by():
    done = subprocess.run(
        [sys.executable, "-c", CALLS],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "call",
    [
        "top_k",
        "fit",
        "search",
        "similarity_blocks",
        "matmul",
        "sparse matmul",
        "randomized_svd",
    ],
)
def test_first_call_imports_no_other_package(imported_by, call):
    assert imported_by[call] == []


def test_import_fastcos_imports_no_package(imported_by):
    assert imported_by["import fastcos"] == []

"""The first call of a function imports only NumPy and the packages of the caller's arrays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The program prints what each call imports.
STEPS = """
import json, sys
own = {"fastcos", "__main__", *sys.stdlib_module_names}
def imported():
    return {name for name in sys.modules if name.split(".")[0] not in own}

before = imported()
import fastcos

steps = {"import fastcos": sorted(imported() - before)}
import numpy as np, numpy.random
known = imported()
def step(name, call):
    global known
    result = call()
    now = imported()
    steps[name] = sorted(name for name in now - known if name.split(".")[0] not in IGNORED)
    known = now
    return result

rows = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
CALLS
print(json.dumps(steps))
"""
# These calls run before any kernel is compiled.
UNCOMPILED = """
step("top_k", lambda: fastcos.top_k(rows, k=2))
index = step("fit", lambda: fastcos.SimilarityIndex().fit(rows))
step("search", lambda: index.search(rows[:1], 2))
"""
# These calls run with interpreted kernels, because compiling imports SciPy's BLAS.
INTERPRETED = """
import numba, numba.core.types, numba.extending
known = imported()
step("similarity_blocks", lambda: list(fastcos.similarity_blocks(rows)))
step("matmul", lambda: fastcos.matmul(rows, np.eye(4)))
import scipy.linalg, scipy.sparse as sp  # what the calls below are given, or need
known = imported()
step("sparse matmul", lambda: fastcos.matmul(sp.csr_array(rows), np.eye(4)))
step("randomized_svd", lambda: fastcos.randomized_svd(sp.csr_array(rows), 1))
"""


def imports(calls, ignored, folder, *, interpreted):
    done = subprocess.run(
        [sys.executable, "-c", f"IGNORED = {ignored}\n" + STEPS.replace("CALLS", calls)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NUMBA_DISABLE_JIT": str(int(interpreted)),
            "FASTCOS_CACHE_DIR": str(folder),
            "FASTCOS_NATIVE": "0",
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def imported_by(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    return {
        **imports(
            INTERPRETED, ["numpy", "numba", "llvmlite", "threadpoolctl"], folder, interpreted=True
        ),
        **imports(UNCOMPILED, ["numpy", "llvmlite", "threadpoolctl"], folder, interpreted=False),
    }


@pytest.mark.parametrize(
    "call",
    [
        "import fastcos",
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


# This code acts as if these packages were not installed.
WITHOUT = "import sys; sys.modules.update(dict.fromkeys(['matplotlib', 'PIL', 'rich']))\n"


@pytest.mark.slow
def test_search_and_commands_need_neither_matplotlib_nor_rich(tmp_path):
    code = """
import fastcos, numpy as np
from fastcos.cli.main import main

rows = np.eye(12, dtype=np.float32)
rows[1] += rows[0]
np.save("rows.npy", rows)
print(fastcos.top_k(rows[:1], rows, 2).indices, fastcos.SimilarityIndex().fit(rows))
print(main(["neighbors", "rows.npy", "--k", "2", "--out", "neighbors.npz"]))
print(sorted({"scipy.stats", "sklearn"} & set(sys.modules)))
print(main(["doctor"]))
print(main(["audit", "rows.npy", "--k", "2", "--out", "audit"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    index = "[[0 1]] SimilarityIndex of 12 items x 12, by cosine"
    assert lines[:3] == [index, "0", "[]"], done.stderr
    assert any(line.startswith("working memory MiB") for line in lines)
    assert not [line for line in lines if line.endswith("...")]  # no cell is cut
    assert lines[-1] == "2"
    assert "fastcos.plots needs matplotlib: pip install 'fastcos[plots]'" in done.stderr


@pytest.mark.slow
def test_numba_is_not_needed_until_a_kernel_is_compiled(without_numba, tmp_path):
    code = """
import fastcos, numpy as np, scipy.sparse as sp
from fastcos.cli.main import main

rows = np.eye(40, dtype=np.float32)
print(fastcos.top_k(rows[:1] + rows[1:2], rows, 2).indices)
try:
    fastcos.matmul(sp.csr_array(rows), rows)
except ImportError as error:
    print(error)
print(main(["doctor"]), main(["warmup"]))
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=60, check=False,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}{os.pathsep}{without_numba}",
            "FASTCOS_CACHE_DIR": str(tmp_path),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second, *of_doctor, last = done.stdout.splitlines()
    assert first == "[[0 1]]"
    assert second.endswith("by Numba, which is missing: pip install 'fastcos[compile]'")
    assert "Numba is not installed" in " ".join(of_doctor)
    assert last == "0 2"
    assert done.stderr.endswith("which is missing: pip install 'fastcos[compile]'\n")

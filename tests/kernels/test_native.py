"""Native libraries give the same results as Numba; outdated or unsuitable ones are never used."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from fastcos.kernels import cpu

ROOT = Path(__file__).parents[2]
INFRASTRUCTURE = (
    "__init__",
    "build",
    "code_cache",
    "fingerprint",
    "compiler",
    "cpu",
    "jit",
    "native",
    "numba_internals",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="native code calls no plain Python"),
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None or not cpu.supported_tiers(),
        reason="needs Linux, a C compiler and a CPU of some tier",
    ),
]

TIER = next(iter(cpu.supported_tiers()), None)
KERNELS = """
from typing import Any, NamedTuple
import numpy as np
from .jit import kernel

class Weights(NamedTuple):
    rows: Any
    scale: float

@kernel
def weigh(lo, hi, weights, offsets, first, shifted, missing, out):
    (low, high), empty = offsets
    for i in range(lo, hi):
        out[i] = weights.rows[i, 0] * weights.scale + low[i] - high[i] + first + len(empty)
        if shifted:
            out[i] += 0.5
        if missing is not None:
            out[i] = -1.0

@kernel
def reverse(lo, hi, size, values):
    scratch = np.empty(size, np.int64)
    for i in range(lo, hi):
        scratch[i] = values[i]
    for i in range(lo, hi):
        values[i] = scratch[hi - 1 - (i - lo)]

@kernel
def divide(lo, hi, by, values):
    if by == 0:
        raise ValueError("by must not be 0")
    for i in range(lo, hi):
        values[i] = values[i] // by
"""
OPERATIONS = """
import numpy as np
from fastcos.kernels.sample import Weights, divide, reverse, weigh

def run(kernel, lo, hi, *arrays):
    if hasattr(kernel, "bind"):
        function, arguments = kernel.bind(*arrays)
        function(lo, hi, *arguments)
    else:
        kernel(lo, hi, *arrays)

def native_operations(size=5, by=2):
    rows, low = np.arange(10.0).reshape(5, 2), np.arange(5, dtype=np.float32)
    rows.flags.writeable = False
    out, values = np.zeros(5), np.arange(5)
    run(weigh, 1, 5, Weights(rows, 3.0), ((low, low[::-1]), ()), 7, True, None, out)
    run(reverse, 0, 5, size, values)
    run(divide, 0, 5, by, values)
    return [*out.tolist(), *values.tolist()]

def native_jobs():
    return {"one": native_operations, "the same": native_operations}
"""
USE = """
import json, sys
from fastcos.cli.warmup import native_operations
print(json.dumps([native_operations(), "numba" in sys.modules]))
"""
RESULT = [0.0, 11.5, 19.5, 27.5, 35.5, 2, 1, 1, 0, 0]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Write a package fastcos with three kernels, and build their native libraries for one tier."""
    site = tmp_path_factory.mktemp("native")
    kernels = site / "fastcos" / "kernels"
    kernels.mkdir(parents=True)
    (site / "fastcos" / "cli").mkdir()
    for package in ("", "cli"):
        (site / "fastcos" / package / "__init__.py").touch()
    for name in INFRASTRUCTURE:
        shutil.copy(ROOT / "kernels" / f"{name}.py", kernels)
    shutil.copy(ROOT / "kernels" / "native.c", kernels)
    (kernels / "sample.py").write_text(KERNELS)
    (site / "fastcos" / "cli" / "warmup.py").write_text(OPERATIONS)
    code = f"from fastcos.kernels import build; build.main({str(kernels)!r}, {TIER!r})"
    printed, error = process(site, code)
    assert not error, error
    assert "3 signatures of 3 kernels" in printed
    assert "2 of 2, " in printed  # There is one line of progress per job.
    return site


@pytest.fixture
def package(built, tmp_path):
    """Return a copy of the package; a test may change this copy."""
    return Path(shutil.copytree(built, tmp_path / "site"))


def run(site, code, *, folder=None, flags=(), **environment):
    """Run code in a new process; return the finished process."""
    return subprocess.run(
        [sys.executable, "-B", *flags, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder or site,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")},
            "PYTHONPATH": str(site),
            "FASTCOS_CACHE_DIR": str(site.parent / "cache"),
            **environment,
        },
        check=False,
    )


def process(site, code=USE, **settings):
    """Run code in a new process; return what it printed, and the last line of its error."""
    done = run(site, code, **settings)
    return done.stdout, "" if done.returncode == 0 else done.stderr.splitlines()[-1]


def used(site, **environment):
    """Return the results of the operations, and whether Numba was imported."""
    printed, error = process(site, **environment)
    assert not error, error
    return json.loads(printed)


def test_native_code_gives_the_results_of_numba_and_python(built):
    assert used(built, FASTCOS_REQUIRE_NATIVE="1") == [RESULT, False]
    assert used(built, FASTCOS_NATIVE="0") == [RESULT, True]
    assert used(built, NUMBA_DISABLE_JIT="1") == [RESULT, False]


@pytest.mark.parametrize(
    ("name", "value"), [("NUMBA_BOUNDSCHECK", "1"), ("NUMBA_OPT", "1"), ("NUMBA_CPU_NAME", "host")]
)
def test_settings_of_numba_bypass_native_code(built, name, value):
    assert used(built, **{name: value})[1]


def test_configuration_file_of_numba_bypasses_native_code(built, tmp_path):
    (tmp_path / ".numba_config.yaml").write_text("boundscheck: 1")
    assert used(built, folder=tmp_path)[1]


def test_library_of_other_sources_is_not_used(package):
    sample = package / "fastcos" / "kernels" / "sample.py"
    sample.write_text(KERNELS.replace("+= 0.5", "+= 1.5"))
    results, is_compiled = used(package)
    assert is_compiled
    assert results[1] == RESULT[1] + 1


def test_library_for_another_cpu_is_not_used(package):
    library = package / "fastcos" / "kernels" / f"{TIER}.so"
    library.unlink()
    # Only the Xeon Phi of 2017 has these instructions.
    code = f"""
from pathlib import Path
from fastcos.kernels import build, code_cache
texts = {{"fc_sources": code_cache.sources_digest(), "fc_table": "{{}}"}}
scratch = Path("scratch")
scratch.mkdir()
build._link(scratch, texts, ("avx2", "avx5124vnniw"), Path({str(library)!r}))
from fastcos.kernels import native
print(native.tier())
"""
    assert process(package, code) == ("None\n", "")
    assert library.exists()


@pytest.mark.parametrize(
    "change",
    [
        "low = low.astype('>f4')",
        "low = low.astype('f8')",
        "rows = rows.copy()",  # writeable
        "rows = np.asfortranarray(rows)",
        "rows = rows[:, None]",
        "out = out.reshape(1, 5)",
        "values = values.astype(np.int32)",
        "by = 2.0",
        "size = 2**64",
    ],
)
def test_other_types_have_no_native_code(built, change):
    code = (
        OPERATIONS.replace("    run(weigh", f"    {change}\n    run(weigh") + "native_operations()"
    )
    _, error = process(built, code, FASTCOS_REQUIRE_NATIVE="1")
    assert "must be in a native library, got" in error


def test_call_without_native_code_is_refused_if_required(built):
    code = "from fastcos.kernels import sample; sample.divide(0, 0, 1, None)"
    _, error = process(built, code, FASTCOS_REQUIRE_NATIVE="1")
    assert error == "RuntimeError: sample.divide must be in a native library, got []"


def test_native_kernel_raises_memory_error(built):
    code = """
from fastcos.cli.warmup import native_operations
try:
    native_operations(size=2**58)
except MemoryError:
    print(native_operations())
"""
    assert process(built, code, FASTCOS_REQUIRE_NATIVE="1") == (f"{RESULT}\n", "")


def test_error_in_a_native_kernel_raises(built):
    code = "from fastcos.cli.warmup import native_operations; native_operations(by=0)"
    _, error = process(built, code, FASTCOS_REQUIRE_NATIVE="1")
    assert error == "RuntimeError: a native kernel failed; please report it"


def test_native_code_runs_where_numba_is_not_installed(built, without_numba):
    settings = {"flags": ["-S"], "PYTHONPATH": f"{built}{os.pathsep}{without_numba}"}
    assert used(built, **settings) == [RESULT, False]
    _, error = process(built, f"{OPERATIONS}\nnative_operations(by=2.0)", **settings)
    text = "a kernel is compiled by Numba, which is missing: pip install 'fastcos[compile]'"
    assert error == f"ImportError: {text}"


def test_compilation_is_announced_once(package):
    done = run(package, USE, FASTCOS_NATIVE="0", FASTCOS_CACHE_DIR=str(package / "empty"))
    message = "fastcos: compiling kernels once, for up to 2 minutes; later processes load them"
    assert done.stderr.splitlines() == [message]


def test_library_needs_the_c_library_only(built):
    library = built / "fastcos" / "kernels" / f"{TIER}.so"
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1].partition("@")[0] for line in listed.splitlines() if " U " in line}
    assert names <= {"__tls_get_addr", "abort", "free", "malloc", "memcpy", "memset", "syscall"}

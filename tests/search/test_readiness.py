"""Tests of searches whose kernels are not compiled yet.

The tests check whether NumPy answers a search, and which process compiles the kernels.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fastcos import SimilarityIndex
from fastcos.kernels import code_cache, jit
from fastcos.parallel import background, readiness
from fastcos.search import compile_searches
from tests.forking import ForkingProcess

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(jit.DISABLE_JIT, reason="nothing is compiled")


def run(code, cache, *, cwd=ROOT, timeout=280, arguments=(), **environment):
    """Run a program with its own cache and without native code; return the finished process."""
    variables = {"FASTCOS_CACHE_DIR": str(cache), "FASTCOS_NATIVE": "0", "PYTHONPATH": str(ROOT)}
    variables["FASTCOS_REQUIRE_NATIVE"] = ""  # tests/test_native_wheel.py runs these tests, too
    return subprocess.run(
        [sys.executable, *arguments, "-c", code], env={**os.environ, **variables, **environment},
        cwd=cwd, capture_output=True, text=True, check=False, timeout=timeout,
    )  # fmt: skip


# The program repeats a search until its kernels are compiled, and prints how many seconds this
# took. Every repetition must take less than 5 s.
SEARCH_UNTIL_COMPILED = """
import time
import numpy as np
import fastcos
from fastcos.parallel import readiness
X = np.random.default_rng(0).standard_normal((30000, 64)).astype({dtype!r})
index, start = fastcos.SimilarityIndex().fit(X), time.monotonic()
first = index.search(X[:2], 4)
durations = []
while not readiness.is_ready() and time.monotonic() < start + 250:
    before = time.monotonic()
    again = index.search(X[:2], 4)
    durations.append(time.monotonic() - before)
    time.sleep(0.05)
assert readiness.is_ready()
assert max(durations, default=0) < 5, max(durations)
last = index.search(X[:2], 4)
assert all((a == b).all() for a, b in zip(first, last))
print(round(time.monotonic() - start))
"""


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """Reset this process to the state before its first search; return an empty cache folder."""
    monkeypatch.setenv("FASTCOS_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FASTCOS_BACKGROUND", raising=False)
    monkeypatch.setattr(readiness, "state", readiness.State())
    monkeypatch.setattr(background, "state", background.State())
    monkeypatch.setattr(readiness.native, "holds", lambda kernel: False)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.long)])
def test_kernels_compile_in_the_background(tmp_path, dtype):
    done = run(SEARCH_UNTIL_COMPILED.format(dtype=dtype), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("in the background, once on this machine") == 1
    assert "compiling kernels once" not in done.stderr


FIRST_CALLS = """
import hashlib
import numpy as np
import fastcos
X = np.random.default_rng(0).standard_normal((300, 24)).astype(np.float32)
index = fastcos.SimilarityIndex().fit(X)
found = [fastcos.top_k(X, k=3), fastcos.top_k(X[:2], X, 3, measure="dot"), index.search(X, 4)]
index.add(X[:5] + 1)
found.append(index.search(X[:1], 4))
digest = hashlib.sha256()
for result in found:
    digest.update(result.indices.tobytes() + result.scores.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_first_calls_compile_nothing(tmp_path):
    # On a busy machine, searches in NumPy may take long. fastcos would then start a background
    # process that compiles kernels, but FASTCOS_BACKGROUND=0 prevents this.
    in_numpy = run(FIRST_CALLS, tmp_path / "c", FASTCOS_BACKGROUND="0")
    assert in_numpy.returncode == 0, in_numpy.stderr
    assert not (tmp_path / "c").exists()
    compile_at_once = "from fastcos.parallel import readiness; readiness.compile_at_once()\n"
    check = "\nassert fastcos.kernels.tile_top_k.search_grid.overloads"
    compiled = run(compile_at_once + FIRST_CALLS + check, code_cache.cache_directory())
    assert compiled.returncode == 0, compiled.stderr
    assert compiled.stdout == in_numpy.stdout


IMPORTS = """
import sys, numpy as np, fastcos
from fastcos.parallel import readiness
"""
# This program searches once. Its state claims that earlier searches in NumPy took one second in
# total.
LONG_SEARCH = """
{before}
readiness.state.seconds_in_numpy = 1.0
X = np.random.default_rng(0).standard_normal((600, 16)).astype(np.float32)
found = fastcos.top_k(X, k=3)
unit = X / np.linalg.norm(X, axis=1)[:, None]
expected = np.argsort(-unit @ unit.T, axis=1)
assert (np.sort(found.indices) == np.sort(expected[:, 1:4])).all()
{after}
"""


@pytest.fixture(scope="module")
def imported():
    """Yield a process that has imported fastcos; this process forks a child for each program."""
    variables = {"FASTCOS_NATIVE": "0", "PYTHONPATH": str(ROOT)}
    with ForkingProcess(IMPORTS, ROOT, **variables) as process:
        yield process


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("sys.frozen = True", "this program is frozen"),
        pytest.param(
            "sys.executable = '/usr/bin/blender'",
            "sys.executable is no Python interpreter",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "sys.executable = ''",
            "sys.executable is no Python interpreter",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "sys.executable = '/nowhere/python3'",
            "no process could be started",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import os; os.access = lambda *_: False",
            "compiled code cannot be stored",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_programs_that_cannot_start_python_say_so_once(imported, tmp_path, before, reason):
    code = LONG_SEARCH.format(before=before, after="fastcos.top_k(X, k=3)")
    done = imported.run(code, FASTCOS_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(reason) == 1, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "stderr", ["sys.stderr = None", pytest.param("sys.stderr.close()", marks=pytest.mark.slow)]
)
def test_searches_without_an_error_stream_are_answered(imported, tmp_path, stderr):
    code = LONG_SEARCH.format(before=f"sys.frozen = True; {stderr}", after="")
    done = imported.run(code, FASTCOS_CACHE_DIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


HOLD_THE_LOCK = """
import os, signal
from fastcos.kernels import code_cache
from fastcos.parallel import background
with code_cache.sole_process(background.LOCK_NAME) as is_sole:
    print(is_sole, flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped")
def test_a_stopped_process_keeps_no_other_from_compiling(empty_cache, monkeypatch):
    variables = {"FASTCOS_CACHE_DIR": str(empty_cache), "PYTHONPATH": str(ROOT)}
    compiled, now = [], [0.0]
    monkeypatch.setattr(compile_searches, "compile_searches", lambda: compiled.append(now[0]))
    monkeypatch.setattr(os, "nice", lambda _: None)
    command = [sys.executable, "-c", HOLD_THE_LOCK]
    with subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE) as held:
        try:
            assert held.stdout.readline() == b"True\n"
            with monkeypatch.context() as patch:
                patch.setattr(time, "monotonic", lambda: now[0])
                patch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
                compile_searches.main()
        finally:
            held.kill()
    assert len(compiled) == 1
    assert 60 < compiled[0] < 300


# The program searches rows of every number type after kernels were compiled for one type.
OTHER_TYPES = """
import numpy as np, fastcos
from fastcos.kernels import code_cache, jit
from fastcos.parallel import readiness
readiness.compile_at_once()
def search(dtype):
    X = (30 * np.random.default_rng(0).standard_normal((3000, 32))).astype(dtype)
    index = fastcos.SimilarityIndex().fit(X)
    for n in (1, 70):
        assert index.search(X[:n].astype("float64"), 1).indices[:, 0].tolist() == list(range(n))
    fastcos.top_k(X[:3].astype("float32"), X[:500], 2)
    index.radius(X[:3].astype("float32"), 0.9)
search("float32")
before = set(code_cache.signatures())
for dtype in ("float64", "float16", "int8"):
    search(dtype)
assert len(before) > 5
assert set(code_cache.signatures()) == before
"""


@pytest.mark.long
def test_searches_of_another_type_compile_nothing(tmp_path):
    done = run(OTHER_TYPES, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_background_process_runs_no_code_of_the_working_directory(tmp_path):
    (tmp_path / "numba.py").write_text("open('was_run', 'w')")
    (tmp_path / "numpy.py").write_text("open('was_run', 'w')")
    after = """
import time
from fastcos.parallel import background
time.sleep(0.7)
assert background.is_running()
child = background.state.child
child.process.kill()
child.process.wait()
assert not background.is_running()
"""
    code = IMPORTS + LONG_SEARCH.format(before="", after=after)
    done = run(code, tmp_path / "cache", cwd=tmp_path, arguments=["-P"])
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "was_run").exists()
    # One line reports the start, and another line reports the failure.
    assert "the compiling process was ended by signal 9" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2


@pytest.mark.slow
def test_the_background_process_has_the_path_of_its_parent(tmp_path):
    # The program adds entries to its path. The background process can find Numba only through these
    # entries.
    after = """
import time
from pathlib import Path
from fastcos.parallel import background
assert background.is_running()
# a process that does not find Numba ends within a second; one that has loaded LLVM has found it
child = background.state.child
maps, until = Path(f"/proc/{child.process.pid}/maps"), time.monotonic() + 5
while time.monotonic() < until and not (maps.exists() and "llvmlite" in maps.read_text()):
    time.sleep(0.05)
running = background.is_running()
child.process.kill()
child.process.wait()
assert running, "the process ended early"
"""
    path = [entry for entry in sys.path if entry]
    prelude = f"import sys; sys.path[:] = {path!r}\n{IMPORTS}"
    done = run(prelude + LONG_SEARCH.format(before="", after=after), tmp_path, PYTHONPATH="")
    assert done.returncode == 0, done.stderr


def test_a_process_compiles_after_a_while_in_numpy(empty_cache, monkeypatch):
    monkeypatch.setenv("FASTCOS_BACKGROUND", "0")
    assert readiness.use_numpy()
    readiness.state.seconds_in_numpy = 19.0
    assert readiness.use_numpy()
    assert "FASTCOS_BACKGROUND is 0" in readiness.explain()
    readiness.state.seconds_in_numpy = 21.0  # now this process compiles
    assert not readiness.use_numpy()


def test_a_mark_in_the_cache_ends_searches_in_numpy(empty_cache, monkeypatch):
    assert readiness.use_numpy()
    readiness.leave_mark()
    assert not readiness.use_numpy()
    monkeypatch.setattr(readiness, "state", readiness.State())  # another process
    assert readiness.is_ready()


def test_explanations_say_which_code_runs_and_why(empty_cache, monkeypatch):
    index = SimilarityIndex().fit(np.eye(4, dtype=np.float32))
    copies = SimilarityIndex().fit(np.repeat(np.eye(4, dtype=np.float32), 9, axis=0))

    def code():
        return index.explain(1, 2).code

    assert code().startswith("NumPy at first; once searches have taken 0.1 s, another process")
    # NumPy would have to score every copy of a row.
    assert copies.explain(1, 2).code == "code that this process compiles"
    with monkeypatch.context() as patch:
        patch.setattr(background, "is_running", lambda: True)
        assert code() == "NumPy, while another process compiles the kernels"
    monkeypatch.setenv("FASTCOS_BACKGROUND", "0")
    itself = "code that this process compiles (FASTCOS_BACKGROUND is 0)"
    assert code() == f"NumPy at first, then {itself}"
    readiness.state.seconds_in_numpy = 21.0
    assert not readiness.use_numpy()
    assert code() == itself
    readiness.leave_mark()
    assert code() == "code that Numba has compiled, loaded from the cache"
    assert copies.explain(1, 2).code == "code that Numba has compiled, loaded from the cache"
    monkeypatch.setattr(readiness.native, "holds", lambda kernel: True)
    monkeypatch.setattr(readiness.native, "tier", lambda: "x86-64-v4")
    assert code() == "native code of the wheel, for x86-64-v4"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped")
def test_explanations_name_a_compiling_process_of_another_program(empty_cache, monkeypatch):
    variables = {"FASTCOS_CACHE_DIR": str(empty_cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLD_THE_LOCK]
    until = "NumPy at first; once searches have taken 0.1 s, another process"
    assert readiness.explain().startswith(until)
    assert not list(empty_cache.glob("*.lock"))  # explain writes no file
    with subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE) as held:
        try:
            assert held.stdout.readline() == b"True\n"
            in_use = readiness.explain()
        finally:
            held.kill()
    assert in_use == "NumPy, while another process compiles the kernels"
    assert readiness.explain().startswith(until)


WITHOUT_NUMBA = """
import numpy as np, fastcos
from fastcos.parallel import readiness
readiness.state.seconds_in_numpy = 60.0
X = np.random.default_rng(0).standard_normal((600, 16))
index = fastcos.SimilarityIndex().fit(X)
assert (index.search(X, 1).indices[:, 0] == np.arange(600)).all()
assert readiness.use_numpy()
print(index.explain(1, 1).code)
"""


@pytest.mark.slow
def test_without_numba_numpy_answers_however_long(tmp_path, without_numba):
    path = os.pathsep.join([str(ROOT), str(without_numba)])
    done = run(WITHOUT_NUMBA, tmp_path, arguments=["-S"], PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert "NumPy, because no kernels can be compiled (Numba is not installed)" in done.stdout


@pytest.mark.slow
def test_a_search_requests_compiled_code(empty_cache, monkeypatch):
    started = []
    monkeypatch.setattr(background, "start", lambda: started.append(True))
    readiness.state.seconds_in_numpy = 1.0
    items = np.random.default_rng(0).integers(-99, 99, (4000, 16)).astype(np.int8)
    found = SimilarityIndex().fit(items).search(items[:3].astype(np.float32), 1)
    assert found.indices[:, 0].tolist() == [0, 1, 2]
    assert started

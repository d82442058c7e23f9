"""Compiled code on disk is used, is never outdated, causes no fatal error, and is private."""

import compileall
import errno
import importlib.metadata
import os
import shutil
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numba
import numpy as np
import pytest

from fastcos.kernels import code_cache, cpu
from fastcos.kernels.jit import kernel
from tests.kernels.processes import ANNOUNCED, CALLEE, ROOT, USE, entries, process, use

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


def double(lo, hi, x):  # A function without a loop compiles in half the time.
    x[lo] = 2 * x[lo]


@kernel
def three_times(x):
    return 3 * x


@kernel
def triple(lo, hi, x):
    for i in range(lo, hi):
        x[i] = three_times(x[i])


@kernel
def nonuple(lo, hi, x):
    for i in range(lo, hi):
        x[i] = three_times(three_times(x[i]))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return an empty cache directory for this process."""
    monkeypatch.setattr(code_cache, "warned", set())
    code_cache.set_cache_directory(tmp_path / "cache")
    yield tmp_path / "cache"
    code_cache.set_cache_directory(None)


def doubled(value=3.0):
    """Call a newly decorated kernel; return its result, and whether its code was in the cache."""
    fresh = kernel(double)
    x = np.array([value])
    fresh(0, 1, x)
    return x[0], bool(sum(fresh._cache_hits.values()))


def test_numba_uses_our_cache(cache):
    # If a new release of Numba changes its private classes, fastcos may stop storing compiled code
    # without raising an error. This test then fails.
    assert doubled() == (6.0, False)
    assert len(entries(cache)) == 1
    assert doubled() == (6.0, True)
    assert len(entries(cache)) == 1


def names(cache):
    return [file.name.partition("-")[0] for file in entries(cache)]


def test_a_called_kernel_is_part_of_its_callers_code(cache):
    for from_cache in (False, True):
        fresh = kernel(triple.py_func)
        x = np.array([2.0])
        fresh(0, 1, x)
        assert (x[0], bool(sum(fresh._cache_hits.values()))) == (6.0, from_cache)
        assert names(cache) == ["triple", "~three_times"]
    # Only the caller is loaded, because it contains the code of the callee.
    next(file for file in entries(cache) if file.name.startswith("~")).unlink()
    kernel(triple.py_func)(0, 1, x)
    assert x[0] == 18.0


UNKNOWN_STEPS = """
import numba.core.codegen
import numpy as np
numba.core.codegen.JITCodeLibrary = type("JITCodeLibrary", (), {})
from tests.kernels.test_code_cache import triple
x = np.array([2.0])
triple(0, 1, x)
assert x[0] == 6.0
"""


@pytest.mark.slow
def test_a_numba_of_other_steps_compiles_called_kernels_its_way(cache):
    root = Path(__file__).parents[2]
    environment = os.environ | {"FASTCOS_CACHE_DIR": str(cache), "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", UNKNOWN_STEPS], env=environment, check=True, timeout=300)
    assert names(cache) == ["three_times", "triple"]


def test_a_called_kernel_is_kept_for_its_next_caller(cache, monkeypatch):
    hits = []
    for caller, result in ((triple, 6.0), (nonuple, 18.0)):
        fresh, callee = kernel(caller.py_func), kernel(three_times.py_func)
        monkeypatch.setattr(sys.modules[__name__], "three_times", callee)
        x = np.array([2.0])
        fresh(0, 1, x)
        assert x[0] == result
        hits.append(
            [sum(dispatcher._cache_hits.values()) for dispatcher in (fresh, callee.for_kernels)]
        )
    assert hits == [[0, 0], [0, 1]]
    assert names(cache) == ["nonuple", "triple", "~three_times"]


@pytest.mark.slow
def test_second_process_loads_compiled_code(package, tmp_path):
    assert use(package, tmp_path / "c") == (["20.0", "0"], "")
    files = entries(tmp_path / "c")
    assert len(files) == 2
    assert use(package, tmp_path / "c") == (["20.0", "1"], "")
    assert entries(tmp_path / "c") == files


# This kernel calls a kernel that is in the cache.
NEW_CALLER = """
from fastcos.kernels.callee import leaf
from fastcos.kernels.jit import kernel

@kernel
def caller(x):
    return leaf(x) * 3
"""
LOADED_BEFORE = """
from new_caller import caller, leaf
print(leaf(9.0), sum(leaf._cache_hits.values()), caller(9.0))
"""
ALONE = "from new_caller import caller; print(caller(9.0), sum(caller._cache_hits.values()))"


@pytest.mark.slow
def test_loaded_code_is_linked_into_new_callers(package, tmp_path):
    (package / "new_caller.py").write_text(NEW_CALLER)
    use(package, tmp_path / "c", "from fastcos.kernels.callee import leaf; leaf(1.0)")
    assert use(package, tmp_path / "c", LOADED_BEFORE)[0] == ["10.0", "1", "30.0"]
    assert use(package, tmp_path / "c", ALONE) == (["30.0", "1"], "")


# This kernel allocates memory and takes a minimum, so its code calls Numba's runtime and helpers.
ALLOCATES = """
import numpy as np
from .jit import kernel

@kernel
def reverse(lo, hi, values):
    scratch = values[lo:hi].copy()
    if scratch.min() < 0:
        return
    for i in range(lo, hi):
        values[i] = scratch[hi - 1 - i]
"""
REVERSE = """
import sys
import numpy as np
from fastcos.kernels.allocates import reverse
values = np.arange(3.0)
reverse(0, 3, values)
print(values[0], sum(reverse._cache_hits.values()), "numba.np.arraymath" in sys.modules)
"""
# No process has compiled this signature before.
COMPILE_ANOTHER = """
values = np.arange(3, dtype=np.int8)
reverse(0, 3, values)
print(*values, sum(reverse._cache_hits.values()))
"""


@pytest.mark.slow
def test_cached_code_runs_without_numbas_registries(package, tmp_path):
    (package / "fastcos" / "kernels" / "allocates.py").write_text(ALLOCATES)
    assert use(package, tmp_path / "c", REVERSE)[0] == ["2.0", "0", "True"]
    loaded, warned = use(package, tmp_path / "c", REVERSE + COMPILE_ANOTHER)
    assert loaded == ["2.0", "1", "False", "2", "1", "0", "1"], warned


def as_tier(tier):
    """Return the environment variables that make Numba compile for a tier of CPUs."""
    return dict(zip(("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"), cpu.code_name(tier), strict=True))


@pytest.mark.slow
def test_code_of_a_tier_runs_on_every_cpu_of_it(package, tmp_path):
    tiers = cpu.supported_tiers()
    if not tiers:
        pytest.skip("this CPU has no tier")
    assert use(package, tmp_path / "c", **as_tier(tiers[-1])) == (["20.0", "0"], "")
    files = entries(tmp_path / "c")
    assert use(package, tmp_path / "c") == (["20.0", "1"], "")
    assert entries(tmp_path / "c") == files


@pytest.mark.slow
def test_code_of_a_wider_tier_is_not_used(package, tmp_path):
    tiers = cpu.supported_tiers()
    if len(tiers) < 2:
        pytest.skip("this CPU has one tier at most")
    use(package, tmp_path / "c", **as_tier(tiers[0]))
    assert use(package, tmp_path / "c", **as_tier(tiers[-1])) == (["20.0", "0"], "")


@pytest.mark.slow
def test_second_process_adds_no_files(tmp_path):
    # If a kernel were a closure over an object that differs in every process, every process would
    # add an entry to the cache.
    code = """
import numpy as np, scipy.sparse as sp
from fastcos.linalg.csr import as_interactions
from fastcos.linalg.products import gram_matmul, matmul, rmatmul
X = as_interactions("X", sp.csr_array([[1.0, 0, 2], [0, 3, 0]]))
matmul(X, np.eye(3)); rmatmul(X, np.eye(2)); gram_matmul(X, np.eye(3))
"""
    _, warned = use(ROOT, tmp_path / "c", code)
    files = entries(tmp_path / "c")
    assert files
    use(ROOT, tmp_path / "c", code)
    assert entries(tmp_path / "c") == files, warned


@pytest.mark.slow
def test_edited_callee_recompiles_its_caller(package, tmp_path):
    assert use(package, tmp_path / "c")[0] == ["20.0", "0"]
    callee = package / "fastcos/kernels/callee.py"
    callee.write_text(CALLEE.replace("STEP", "5"))
    assert use(package, tmp_path / "c")[0] == ["28.0", "0"]
    callee.write_text(CALLEE.replace("STEP", "1"))
    files = entries(tmp_path / "c")
    assert use(package, tmp_path / "c") == (["20.0", "1"], "")
    assert entries(tmp_path / "c") == files


@pytest.mark.slow
def test_comments_and_docstrings_compile_nothing(package, tmp_path):
    use(package, tmp_path / "c")
    files = entries(tmp_path / "c")
    callee = package / "fastcos/kernels/callee.py"
    text = CALLEE.replace("STEP", "1")
    edited = text.replace("(x):", '(x):\n    """Return the next number."""  # a comment')
    callee.write_text("# a line\n" + edited)
    assert use(package, tmp_path / "c") == (["20.0", "1"], "")
    assert entries(tmp_path / "c") == files


@pytest.mark.slow
@pytest.mark.parametrize("form", ["zip", "bytecode"])
def test_upgrade_without_source_files_runs_the_new_code(package, tmp_path, form):
    def publish(step):
        (package / "fastcos/kernels/callee.py").write_text(CALLEE.replace("STEP", step))
        site = tmp_path / f"published{step}"
        shutil.copytree(package, site)
        if form == "bytecode":
            assert compileall.compile_dir(site, quiet=1, legacy=True)
            for source in site.rglob("*.py"):
                source.unlink()
            return site
        shutil.make_archive(str(site), "zip", site)
        shutil.rmtree(site)
        return site.with_suffix(".zip")

    def run(site):
        running = process(tmp_path, tmp_path / "c", PYTHONPATH=str(site))
        with running:
            printed, warned = running.communicate(timeout=60)
        assert running.returncode == 0, warned
        return printed.split()

    first, second = publish("1"), publish("5")
    assert run(first) == ["20.0", "0"]
    assert run(first) == ["20.0", "1"]
    assert run(second) == ["28.0", "0"]


@pytest.mark.slow
def test_settings_that_change_the_code_have_their_own(package, tmp_path):
    use(package, tmp_path / "c", NUMBA_BOUNDSCHECK="0")
    for name, value in (
        ("NUMBA_OPT", "0"), ("NUMBA_LOOP_VECTORIZE", "0"), ("NUMBA_DEBUGINFO", "1"),
        ("NUMBA_BOUNDSCHECK", "1"),
    ):  # fmt: skip
        assert use(package, tmp_path / "c", **{name: value})[0] == ["20.0", "0"], name


@pytest.mark.slow
def test_code_that_is_not_used_for_long_is_removed(cache, monkeypatch):
    assert doubled() == (6.0, False)
    (old,) = entries(cache)
    sixty_one_days_ago = time.time() - 61 * 86400
    os.utime(old, (sixty_one_days_ago,) * 2)
    assert doubled() == (6.0, True)  # Using a file renews its date.
    assert time.time() - old.stat().st_mtime < 100
    os.utime(old, (sixty_one_days_ago,) * 2)
    code_cache._remove_unused.cache_clear()

    @kernel
    def another(lo, hi, x):
        x[lo] = hi

    another(0, 1, np.zeros(1))
    assert not old.exists()
    assert len(entries(cache)) == 1


# This process stops while it holds the lock of the kernel that it compiles.
STOP_WHILE_COMPILING = USE.replace(
    "out = ",
    """
import os, signal
from numba.core import event
class Stop(event.Listener):
    def on_start(self, event): print("stopped", flush=True); os.kill(os.getpid(), signal.SIGSTOP)
    def on_end(self, event): pass
event.register("numba:compile", Stop())
out = """,
)

FOREIGN_CODE = """
import numba, numpy as np
from fastcos.kernels.caller import twice
twice(0, 1, np.ones(1))

@numba.njit
def user_code(n):
    with numba.objmode(m="int64"):
        m = len(str(n))
    return m
assert user_code(100) == 3

def lifted(n):
    total = {}
    for i in range(n):
        i * 2
    return total
numba.jit(forceobj=True, looplift=True)(lifted)(3)
print("fine")
"""


@pytest.mark.slow
def test_object_mode_of_the_user_is_left_alone(package, tmp_path):
    assert use(package, tmp_path / "c", FOREIGN_CODE)[0] == ["fine"]


WAITING = """
import os, threading, time
import numba, numpy as np
from fastcos.kernels.caller import twice
thread = threading.Thread(target=twice, args=(0, 1, np.ones(1)), daemon=True)
thread.start()
time.sleep(1)  # it waits for the stopped process
assert thread.is_alive()
start = time.monotonic()
assert numba.njit(lambda x: x + 1)(1) == 2
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
assert time.monotonic() - start < 20
assert thread.is_alive()
print("fine", flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_waiting_for_another_process_holds_no_lock(package, tmp_path):
    stopped = process(package, tmp_path / "c", STOP_WHILE_COMPILING)
    with stopped:
        try:
            assert stopped.stdout.readline() == "stopped\n"
            assert use(package, tmp_path / "c", WAITING)[0] == ["fine"]
        finally:
            stopped.kill()


@pytest.mark.slow
def test_upgrade_of_running_process_keeps_old_key(package, tmp_path):
    upgrade = USE.replace(
        "out = ",
        f"""
import pathlib
pathlib.Path("fastcos/kernels/callee.py").write_text({CALLEE.replace("STEP", "5")!r})
out = """,
    )
    assert use(package, tmp_path / "c", upgrade)[0] == ["20.0", "0"]
    assert use(package, tmp_path / "c")[0] == ["28.0", "0"]


@pytest.mark.parametrize(
    ("thing", "name", "other"),
    [
        (importlib.metadata, "version", lambda name: f"another {name}"),
        (np, "__version__", "other"),
        (sys.implementation, "cache_tag", "other"),
    ],
    ids=["numba", "numpy", "python"],
)
def test_every_version_has_its_own_code(monkeypatch, thing, name, other):
    before = code_cache.code_digest.__wrapped__()
    assert code_cache.code_digest.__wrapped__() == before
    monkeypatch.setattr(thing, name, other)
    assert code_cache.code_digest.__wrapped__() != before


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def cut_to_the_digest(path):
    path.write_bytes(path.read_bytes()[:32])


def empty(path):
    path.write_bytes(b"")


def flip_a_bit_of_the_code(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def flip_a_bit_of_the_digest(path):
    content = bytearray(path.read_bytes())
    content[5] ^= 128
    path.write_bytes(bytes(content))


def become_a_directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        *(
            pytest.param(damage, marks=pytest.mark.slow)
            for damage in (
                cut_to_the_digest,
                empty,
                flip_a_bit_of_the_code,
                flip_a_bit_of_the_digest,
            )
        ),
    ],
)
def test_damaged_file_warns_once_and_is_replaced(cache, damage):
    doubled()
    (path,) = entries(cache)
    damage(path)
    with pytest.warns(UserWarning, match=f"fastcos compiles again: {path} is damaged") as warned:
        assert doubled() == (6.0, False)
    assert len(warned) == 1
    assert doubled() == (6.0, True)


def test_flipped_bit_is_always_detected(cache):
    doubled()
    (path,) = entries(cache)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(content), 6):
        broken = bytearray(content)
        broken[at] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(bytes(broken))
        code_cache.warned.clear()
        with pytest.warns(UserWarning, match="is damaged"):
            assert doubled() == (6.0, False)


@pytest.mark.slow
def test_directory_in_place_of_a_file_warns(cache):
    doubled()
    become_a_directory(entries(cache)[0])
    with pytest.warns(UserWarning, match="fastcos c") as warned:
        assert doubled() == (6.0, False)
    assert {str(w.message).split(":")[0] for w in warned} == {
        "fastcos compiles again",
        "fastcos cannot keep compiled code",
    }


@pytest.mark.slow
def test_code_of_another_signature_is_not_used(cache):
    fresh = kernel(double)
    fresh(0, 1, np.array([1]))
    fresh(0, 1, np.array([1.0]))
    first, second = entries(cache)
    first_content, second_content = first.read_bytes(), second.read_bytes()
    first.write_bytes(second_content)
    second.write_bytes(first_content)
    with pytest.warns(UserWarning, match="is damaged"):
        assert doubled() == (6.0, False)


def test_file_of_another_user_is_not_read(cache, monkeypatch):
    doubled()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    if user == 0:  # root trusts its own files
        assert doubled() == (6.0, True)
        os.chown(entries(cache)[0], user + 2, -1)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert doubled() == (6.0, False)


def test_file_that_every_user_may_write_is_not_read(cache):
    doubled()
    assert doubled() == (6.0, True)
    entries(cache)[0].chmod(0o666)
    with pytest.warns(UserWarning, match="may be written by every user"):
        assert doubled() == (6.0, False)


def test_new_directories_are_private(cache):
    cache.parent.chmod(0o755)
    code_cache.set_cache_directory(cache / "deep" / "er")
    old = os.umask(0)
    try:
        doubled()
    finally:
        os.umask(old)
    paths = [cache, *(p for p in cache.rglob("*") if p.is_dir())]
    assert len(paths) == 5
    assert {stat.S_IMODE(p.stat().st_mode) for p in paths} == {0o700}
    assert {stat.S_IMODE(p.stat().st_mode) for p in entries(cache)} == {0o600}
    assert stat.S_IMODE(cache.parent.stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "failing",
    ["replace", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mkstemp", "fdopen"))],
)
def test_full_disk_warns_once_and_leaves_no_file(cache, monkeypatch, failing):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    class FullFile:
        def __init__(self, descriptor, mode):
            os.close(descriptor)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        write = full

    if failing == "replace":
        monkeypatch.setattr(Path, "replace", full)
    elif failing == "fdopen":
        monkeypatch.setattr(code_cache.os, "fdopen", FullFile)
    else:
        monkeypatch.setattr(code_cache.tempfile, "mkstemp", full)
    with pytest.warns(UserWarning, match="cannot keep compiled code: .*No space left") as warned:
        assert [doubled(), doubled()] == [(6.0, False)] * 2
    assert len(warned) == 1
    assert not entries(cache)


@pytest.mark.slow
def test_read_only_directory_is_used(package, tmp_path):
    directory = tmp_path / "c"
    use(package, directory)
    files = entries(directory)
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert use(package, directory) == (["20.0", "1"], "")
    finally:
        for path in [directory, *directory.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)
    assert entries(directory) == files


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    "directory", ["/dev/null/cache", pytest.param("/proc/cache", marks=pytest.mark.slow)]
)
def test_directory_that_cannot_be_created_warns_once(directory):
    code_cache.set_cache_directory(directory)
    with pytest.warns(UserWarning, match="fastcos c") as warned:
        assert [doubled(), doubled()] == [(6.0, False)] * 2
    messages = [str(w.message) for w in warned]
    assert sum("cannot keep compiled code" in message for message in messages) == 1
    assert len(set(messages)) == len(messages) <= 2


@pytest.mark.slow
def test_directory_that_cannot_be_created_leaves_no_traceback(package):
    printed, warned = use(package, "/dev/null/cache")
    assert printed == ["20.0", "0"]
    assert warned.count("cannot keep compiled code") == 1
    assert "Traceback" not in warned


HOMELESS = """
import os, warnings
warnings.simplefilter("always")
import numba, numpy as np
numba.njit(lambda x: x + 1)(np.ones(1))  # the user may not be able to read what compiling imports
from fastcos.kernels import code_cache, compiler
from fastcos.kernels.jit import kernel
code_cache.code_digest()
if os.geteuid() == 0:
    os.setgid(54321)
    os.setuid(54321)  # a number without a name and a home, as in containers
HOME

@kernel
def double(lo, hi, x):
    for i in range(lo, hi):
        x[i] = 2 * x[i]

x = np.array([3.0])
double(0, 1, x)
print(x[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("home", ["os.environ['HOME'] = '/nonexistent'", "del os.environ['HOME']"])
def test_user_without_home_compiles_in_memory(home):
    code = HOMELESS.replace("HOME", home, 1)
    printed, warned = use(ROOT, "", code, XDG_CACHE_HOME="")
    assert printed == ["6.0"]
    assert warned.count("cannot keep compiled code") == 1
    assert "Traceback" not in warned


@pytest.mark.slow
def test_concurrent_processes_share_the_cache(package, tmp_path):
    several = USE.replace(
        "print(",
        "\nfor t in ('f4', 'i8'):\n"
        "    x = np.array([9], t); twice(0, 1, x); assert x[0] == 20, (t, x)\n"
        "print(",
    )
    running = [process(package, tmp_path / "c", several) for _ in range(3)]
    for one in running:
        with one:
            printed, warned = one.communicate(timeout=60)
        assert (one.returncode, warned.replace(ANNOUNCED, "")) == (0, ""), warned
        assert printed.split()[0] == "20.0"
    assert not [path for path in entries(tmp_path / "c") if path.name.startswith(".")]
    printed, _ = use(package, tmp_path / "c", several)
    assert printed == ["20.0", "3"]


@pytest.mark.slow
def test_processes_that_start_together_compile_once(package, tmp_path):
    # Compiling takes four seconds, so all processes start before the first one has compiled.
    slow = USE.replace("import numpy", "import time, numba, numpy", 1).replace(
        "out = ",
        """
from numba.core import event
class Late(event.Listener):
    def on_start(self, event): time.sleep(2)
    def on_end(self, event): pass
event.register("numba:compile", Late())
out = """,
    )
    running = [process(package, tmp_path / "c", slow) for _ in range(3)]
    printed = []
    for one in running:
        with one:
            words, warned = one.communicate(timeout=60)
        assert (one.returncode, warned.replace(ANNOUNCED, "")) == (0, ""), warned
        printed.append(words.split())
    assert sorted(printed) == [["20.0", "0"], ["20.0", "1"], ["20.0", "1"]]


@pytest.mark.slow
def test_stopped_compiler_does_not_stop_others(package, tmp_path):
    stopped = process(package, tmp_path / "c", STOP_WHILE_COMPILING)
    with stopped:
        assert stopped.stdout.readline() == "stopped\n"
        brief = USE.replace(
            "out = ",
            """
from fastcos.kernels import code_cache
code_cache.LONGEST_WAIT = 0.5
out = """,
        )
        assert use(package, tmp_path / "c", brief)[0] == ["20.0", "0"]
        stopped.kill()


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_a_file_system_without_locks_keeps_no_process_from_compiling(monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with code_cache.sole_process("background") as is_sole:
        assert is_sole
    assert doubled() == (6.0, False)


def test_cache_directory_follows_setting_environment_home(monkeypatch):
    monkeypatch.setenv("FASTCOS_CACHE_DIR", "/given")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    code_cache.set_cache_directory("/set")
    assert code_cache.cache_directory() == Path("/set")
    code_cache.set_cache_directory(None)
    assert code_cache.cache_directory() == Path("/given")
    monkeypatch.setenv("FASTCOS_CACHE_DIR", "")
    assert code_cache.cache_directory() == Path("/xdg/fastcos")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert code_cache.cache_directory() == Path("/home/somebody/.cache/fastcos")


def test_directory_set_after_import_is_used(cache, tmp_path):
    fresh = kernel(double)
    code_cache.set_cache_directory(tmp_path / "later")
    fresh(0, 1, np.array([1.0]))
    assert entries(tmp_path / "later")
    assert not entries(cache)


@pytest.mark.slow
def test_import_creates_no_directory(tmp_path):
    use(ROOT, tmp_path / "c", "import fastcos.parallel, fastcos.linalg.products")
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_compiling_without_address_space_raises(package, tmp_path):
    limited = """
import os, resource
import fastcos.kernels.compiler
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 100 * 2**20, resource.RLIM_INFINITY))
"""
    with process(package, tmp_path / "empty", limited + USE) as running:
        _, warned = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "MemoryError: compiling a kernel needs 256 MiB of address space, got" in warned
    use(package, tmp_path / "filled")
    assert use(package, tmp_path / "filled", limited + USE)[0] == ["20.0", "1"]


def searches(tmp_path, before="", **environment):
    """Run `import`, `get_config` and two searches in a new process; return what they print."""
    code = before + (
        "import numpy as np, fastcos\n"
        "X = np.random.default_rng(0).random((300, 8), 'f4')\n"
        "directory = fastcos.get_config().cache_dir\n"
        "found = fastcos.top_k(X[:2], X, k=2, exclude_self=False)\n"
        "index = fastcos.SimilarityIndex().fit(X).search(X[:2], k=2)\n"
        "print(found.indices.tolist() == index.indices.tolist(), directory)\n"
    )
    inherited = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False,
        env={**inherited, "FASTCOS_BACKGROUND": "0", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


# After this code has run, the system seems not to know the current user. This happens in containers
# with an arbitrary user id.
NO_HOME = "import os, pwd; pwd.getpwuid = {}.__getitem__\n"
# For the user root, neither os.access nor the file system refuses any path. This code therefore
# replaces functions of the module os by functions that refuse some paths.
FORBIDDEN = """
import errno, os
def refuse(call):
    def checked(path, *a, **k):
        if "secret" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return call(path, *a, **k)
    return checked
for name in ("stat", "lstat", "scandir", "listdir", "mkdir", "open"):
    setattr(os, name, refuse(getattr(os, name)))
access = os.access
os.access = lambda path, mode: "secret" not in str(path) and access(path, mode)
"""


@pytest.mark.slow
def test_searches_without_a_home_directory_are_answered(tmp_path):
    printed, _ = searches(tmp_path, NO_HOME)
    assert printed == ["True", "None"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "variable",
    ["FASTCOS_CACHE_DIR", "HOME", "XDG_CACHE_HOME"],
)
def test_searches_with_a_forbidden_cache_are_answered(tmp_path, variable):
    printed, _ = searches(tmp_path, FORBIDDEN, **{variable: "/secret/home"})
    assert printed[0] == "True"


@pytest.mark.slow
def test_a_forbidden_working_directory_is_no_error(tmp_path):
    before = FORBIDDEN.replace('"secret" in', '".numba_config" in')
    printed, _ = searches(tmp_path, before, FASTCOS_CACHE_DIR=str(tmp_path / "cache"))
    assert printed == ["True", str(tmp_path / "cache")]


def test_a_relative_cache_stays_when_the_process_moves(monkeypatch, tmp_path):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTCOS_CACHE_DIR", "relative-cache-of-this-test")
    before = code_cache.cache_directory()
    monkeypatch.chdir(tmp_path / "other")
    assert code_cache.cache_directory() == before == tmp_path / "relative-cache-of-this-test"


def test_compiling_without_a_home_directory_warns_once(monkeypatch):
    monkeypatch.setattr(code_cache, "warned", set())
    monkeypatch.setattr(code_cache, "cache_directory", lambda: None)
    with pytest.warns(UserWarning, match="cannot keep compiled code: .* set FASTCOS_CACHE_DIR"):
        assert doubled() == (6.0, False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert doubled() == (6.0, False)
    assert code_cache.signatures() == []
    assert not code_cache.is_writable()


@pytest.mark.slow
def test_importing_all_kernels_requests_no_amx_permission():
    code = (
        "import importlib, pkgutil\n"
        "from fastcos.kernels import cpu\n"
        "import fastcos.kernels\n"
        "def refuse(): raise SystemExit('the import requested a permission')\n"
        "cpu._tile_registers_granted = refuse\n"
        "features = cpu.cpu_features()\n"
        "cpu.cpu_features = lambda: features | {*cpu.ISA_FEATURES['amx']}\n"
        "for info in pkgutil.iter_modules(fastcos.kernels.__path__):\n"
        "    importlib.import_module(f'fastcos.kernels.{info.name}')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


FIELDS = """
from typing import Any, NamedTuple
from .jit import kernel

class Pair(NamedTuple):
    ORDER

@kernel
def difference(lo, hi, pair, out):
    for i in range(lo, hi):
        out[i] = pair.minuend[i] - pair.subtrahend[i]
"""
SUBTRACT = """
import numpy as np
from fastcos.kernels.pairs import Pair, difference
out = np.zeros(1)
difference(0, 1, Pair(minuend=np.array([9.0]), subtrahend=np.array([4.0])), out)
print(out[0])
"""


@pytest.mark.slow
def test_fields_of_a_record_that_change_places_compile_again(package, tmp_path):
    fields = ["minuend: Any", "subtrahend: Any"]
    for order in (fields, fields[::-1]):
        text = FIELDS.replace("ORDER", "\n    ".join(order))
        (package / "fastcos" / "kernels" / "pairs.py").write_text(text)
        assert use(package, tmp_path / "c", SUBTRACT)[0] == ["5.0"]

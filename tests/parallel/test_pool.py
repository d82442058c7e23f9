"""The pool runs each block once, stops after an error, and handles Ctrl-C, forks and prange."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fastcos import config, parallel
from fastcos.kernels import compiler
from fastcos.kernels.jit import Kernel
from fastcos.parallel import pool

ROOT = Path(__file__).parents[2]
POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")


def python(code, *arguments, timeout=60, **environment):
    """Run code in a new process, which must exit with status 0; return what it printed."""
    script = [code] if code.endswith(".py") else ["-c", code]
    done = subprocess.run(
        [sys.executable, *script, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def mark_rows(lo, hi, out):
    time.sleep(0.001)
    out[lo:hi] += 1


def fail_at_10(lo, hi, out):
    if lo == 10:
        raise ArithmeticError("row 10")
    time.sleep(0.002)
    out[lo:hi] = 1


# block boundaries


@given(st.integers(0, 500), st.integers(-1, 600))
def test_row_blocks_cover_every_row_once(n_rows, rows_per_block):
    blocks = parallel.row_blocks(n_rows, rows_per_block)
    assert blocks[0] == 0
    assert blocks[-1] == n_rows
    assert blocks.dtype == np.int64
    assert (np.diff(blocks) > 0).all()
    assert (np.diff(blocks) <= max(1, rows_per_block)).all()
    assert (np.diff(blocks)[:-1] == max(1, rows_per_block)).all()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 200))
def test_work_blocks_cover_every_row_and_balance_the_work(work, work_per_block):
    cumulative = np.concatenate([[0], np.cumsum(work)]).astype(np.int32)
    blocks = parallel.work_blocks(cumulative, work_per_block)
    assert blocks[0] == 0
    assert blocks[-1] == len(work)
    assert blocks.dtype == np.int64
    assert (np.diff(blocks) > 0).all()
    weight = np.array(work) + 1
    for lo, hi in itertools.pairwise(blocks):
        assert weight[lo:hi].sum() <= work_per_block + weight.max()


def test_work_blocks_split_empty_rows():
    assert len(parallel.work_blocks(np.zeros(1001, np.int64), 10)) > 90


def test_work_blocks_do_not_split_a_row():
    blocks = parallel.work_blocks(np.array([0, 0, 1000, 1000]), 10)
    assert {0, 3} <= set(blocks.tolist())
    assert (np.diff(blocks) > 0).all()


@pytest.mark.parametrize(
    ("dtype", "sentinel"), [("f4", np.nan), ("f8", np.nan), ("i8", -7), ("u1", 249)]
)
def test_unfilled_holds_a_sentinel(dtype, sentinel):
    out = parallel.unfilled((2, 3), dtype)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, np.full((2, 3), sentinel, dtype))


# every block once


@pytest.mark.parametrize(
    "n_threads", [1, 2, None, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4, 8, 64))]
)
@pytest.mark.parametrize(
    "rows_per_block", [7, 1000, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 100))]
)
def test_run_calls_every_block_once(n_threads, rows_per_block):
    out = np.zeros(100)
    parallel.run(mark_rows, parallel.row_blocks(100, rows_per_block), out, n_threads=n_threads)
    np.testing.assert_array_equal(out, 1)


def test_run_without_rows_calls_nothing():
    calls = []
    for n_threads in (1, 2):
        parallel.run(
            lambda *block: calls.append(block), parallel.row_blocks(0, 5), n_threads=n_threads
        )
    assert calls == []


def test_run_of_a_range_of_rows():
    out, seen = np.zeros(20), []
    parallel.run(
        mark_rows, np.array([5, 9, 12]), out, n_threads=2, progress=lambda *p: seen.append(p)
    )
    np.testing.assert_array_equal(np.flatnonzero(out), np.arange(5, 12))
    assert seen[-1] == (7, 7)


@pytest.mark.parametrize("n_threads", [0, -1, 2.5, "two", True])
def test_run_refuses_other_numbers_of_threads(n_threads):
    out = np.zeros(4)
    with pytest.raises(ValueError, match="n_threads must be a whole number from 1 to 4096, got"):
        parallel.run(mark_rows, np.array([0, 2, 4]), out, n_threads=n_threads)
    assert not out.any()


def test_run_from_several_threads():
    outs = [np.zeros(60) for _ in range(8)]

    def call(out):
        for _ in range(5):
            parallel.run(mark_rows, parallel.row_blocks(60, 3), out, n_threads=2)

    callers = [threading.Thread(target=call, args=(out,)) for out in outs]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
        assert not caller.is_alive()
    for out in outs:
        np.testing.assert_array_equal(out, 5)


def test_run_inside_a_block_does_not_deadlock():
    parallel.reset()  # Both threads of a pool of two will be inside a block.
    outs, used = np.zeros((8, 20)), set()

    def inner(lo, hi, out):
        used.add((threading.current_thread().name, id(out)))
        out[lo:hi] += 1

    def outer(lo, hi, outs):
        for i in range(lo, hi):
            row = outs[i]
            parallel.run(inner, parallel.row_blocks(20, 2), row, n_threads=2)

    worker = threading.Thread(
        target=lambda: parallel.run(outer, np.arange(9), outs, n_threads=2), daemon=True
    )
    worker.start()
    worker.join(30)
    assert not worker.is_alive(), "deadlock"
    np.testing.assert_array_equal(outs, 1)
    # If `run` is called from inside a block, it uses no other thread. Each row is therefore filled
    # by the single thread that runs the block.
    assert len({out for _, out in used}) == len(used)


def test_run_keeps_to_n_threads():
    together, most, lock = [0], [0], threading.Lock()

    def count(lo, hi):
        with lock:
            together[0] += 1
            most[0] = max(most[0], together[0])
        time.sleep(0.005)
        with lock:
            together[0] -= 1

    for n_threads in (2, 6, 3, 1):
        most[0] = 0
        parallel.run(count, np.arange(25), n_threads=n_threads)
        assert most[0] <= n_threads
        assert most[0] >= min(n_threads, 2)


def test_run_keeps_no_arrays_in_memory():
    parallel.reset()  # The only helping thread will be busy, so that tasks stay in the queue.
    entered, release = threading.Semaphore(0), threading.Event()

    def long_block(lo, hi):
        entered.release()
        release.wait(20)

    def fill_argument():
        array = np.zeros(4)
        parallel.run(mark_rows, np.arange(5), array, n_threads=2)
        return weakref.ref(array)

    def fill_held_array():
        array = np.zeros(4)

        def fill(lo, hi, held=array):  # a function that runs native code also holds its arrays
            held[lo:hi] = 1

        parallel.run(fill, np.arange(5), n_threads=2)
        return weakref.ref(array)

    hog = threading.Thread(
        target=parallel.run, args=(long_block, np.arange(3)), kwargs={"n_threads": 2}
    )
    hog.start()
    try:
        assert all(entered.acquire(timeout=20) for _ in range(2))
        assert fill_argument()() is None
        assert fill_held_array()() is None
    finally:
        release.set()
        hog.join()


def test_run_follows_set_config(monkeypatch):
    monkeypatch.setattr(config, "overrides", {})
    names = set()

    def note(lo, hi):
        names.add(threading.current_thread().name)
        time.sleep(0.01)

    config.set_config(n_threads=3)
    parallel.run(note, np.arange(13))
    assert len(names) == 3
    names.clear()
    config.set_config(n_threads=1)
    parallel.run(note, np.arange(13))
    assert names == {threading.current_thread().name}


def test_run_works_where_no_thread_can_be_started(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    parallel.reset()
    monkeypatch.setattr(pool.threading.Thread, "start", refuse)
    out = np.zeros(40)
    parallel.run(mark_rows, parallel.row_blocks(40, 4), out, n_threads=2)
    np.testing.assert_array_equal(out, 1)
    with pytest.raises(ArithmeticError):
        parallel.run(fail_at_10, np.arange(20), out, n_threads=2)


@pytest.mark.slow
def test_run_works_at_the_end_of_the_interpreter():
    code = """
import atexit, numpy as np
from fastcos import parallel
def late():
    out = np.zeros(40)
    parallel.run(lambda lo, hi, out: out[lo:hi].fill(1), np.arange(0, 41, 4), out, n_threads=2)
    print(out.sum())
atexit.register(late)
"""
    assert python(code).strip() == "40.0"


# errors


@pytest.mark.parametrize(
    "n_threads", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 8))]
)
def test_run_stops_after_an_error_and_writes_no_more(n_threads):
    out = np.zeros(500)
    with pytest.raises(ArithmeticError, match="row 10"):
        parallel.run(fail_at_10, np.arange(501), out, n_threads=n_threads)
    snapshot = out.copy()
    assert snapshot.sum() < 400
    time.sleep(0.05)
    np.testing.assert_array_equal(out, snapshot)


def test_run_raises_after_the_running_blocks_have_ended():
    started, ended = threading.Event(), threading.Event()

    def fail_early_run_long(lo, hi):
        if lo == 0:
            assert started.wait(60)
            raise ArithmeticError("early")
        started.set()
        time.sleep(0.2)
        ended.set()

    with pytest.raises(ArithmeticError):
        parallel.run(fail_early_run_long, np.arange(3), n_threads=2)
    assert ended.is_set()


def test_run_works_after_an_error():
    out = np.zeros(50)
    for _ in range(5):
        with pytest.raises(ArithmeticError):
            parallel.run(fail_at_10, np.arange(51), out, n_threads=2)
    out[:] = 0
    parallel.run(mark_rows, np.arange(51), out, n_threads=2)
    np.testing.assert_array_equal(out, 1)


def test_run_raises_in_the_failing_caller_only():
    out, errors = np.zeros(100), []

    def call():
        try:
            parallel.run(fail_at_10, np.arange(101), np.zeros(100), n_threads=2)
        except ArithmeticError as error:
            errors.append(error)

    other = threading.Thread(target=call)
    other.start()
    parallel.run(mark_rows, np.arange(101), out, n_threads=2)
    other.join(30)
    assert len(errors) == 1
    np.testing.assert_array_equal(out, 1)


@pytest.mark.parametrize("n_threads", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_run_stops_when_progress_raises(n_threads):
    class StopError(Exception):
        pass

    def stop(done, total):
        if done:
            raise StopError

    out = np.zeros(2000)
    with pytest.raises(StopError):
        parallel.run(mark_rows, np.arange(2001), out, n_threads=n_threads, progress=stop)
    snapshot = out.copy()
    assert snapshot.sum() < 2000
    time.sleep(0.05)
    np.testing.assert_array_equal(out, snapshot)


def test_run_does_not_wait_for_blocks_of_other_callers():
    release = threading.Event()

    def long_block(lo, hi):
        release.wait(20)

    class StopError(Exception):
        pass

    def stop(done, total):
        raise StopError

    hog = threading.Thread(
        target=parallel.run, args=(long_block, np.arange(3)), kwargs={"n_threads": 2}
    )
    parallel.reset()  # Both threads of a pool of two will be busy.
    hog.start()
    time.sleep(0.1)
    with pytest.raises(StopError):
        parallel.run(mark_rows, np.arange(11), np.zeros(10), n_threads=2, progress=stop)
    assert not release.is_set()
    assert hog.is_alive()
    release.set()
    hog.join(30)


# progress


@pytest.mark.parametrize(
    "n_threads", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4))]
)
def test_progress_reaches_the_total_in_the_calling_thread(n_threads):
    seen, callers = [], set()

    def note(done, total):
        seen.append((done, total))
        callers.add(threading.get_ident())

    def wait_a_little(lo, hi):
        time.sleep(0.01 * n_threads)  # The waiting caller reports its progress several times.

    parallel.run(wait_a_little, np.arange(0, 201, 10), n_threads=n_threads, progress=note)
    done = [d for d, _ in seen]
    assert done == sorted(done)
    assert seen[-1] == (200, 200)
    assert {total for _, total in seen} == {200}
    assert len(set(done)) > 1
    assert callers == {threading.get_ident()}


def test_progress_may_call_run():
    out = np.zeros(40)

    def call_again(done, total):
        parallel.run(mark_rows, np.arange(0, 41, 10), out, n_threads=2)

    caller = threading.Thread(
        target=parallel.run,
        args=(mark_rows, np.arange(41), np.zeros(40)),
        kwargs={"n_threads": 2, "progress": call_again},
        daemon=True,
    )
    caller.start()
    caller.join(30)
    assert not caller.is_alive()
    assert out.min() >= 1


# processes and signals


@pytest.mark.slow
def test_importing_starts_no_thread():
    code = (
        "import threading, fastcos, fastcos.parallel, fastcos.search, fastcos.linalg.products\n"
        "print(threading.active_count(), fastcos.parallel.pool._state.n_threads)"
    )
    assert python(code).split() == ["1", "0"]


INTERRUPTED = """
import sys, time, numpy as np
from numba import njit
from fastcos import parallel

@njit(nogil=True)
def busy(lo, hi, out):
    for i in range(lo, hi):
        x = 0.5
        for _ in range(20_000_000):
            x = 3.7 * x * (1 - x)
        out[i] = x

out = np.zeros(100_000)
busy(0, 1, out)
out[:] = 0
print("ready", flush=True)
try:
    parallel.run(busy, np.arange(100_001), out, n_threads=int(sys.argv[1]))
except KeyboardInterrupt:
    kept = out.copy()
    print("interrupted", flush=True)
    time.sleep(0.3)
    print("same" if (kept == out).all() and kept.any() else "written afterwards", flush=True)
"""


@pytest.mark.slow
@POSIX
@pytest.mark.parametrize("n_threads", [1, 2])
def test_ctrl_c_stops_a_call_within_half_a_second(n_threads):
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(n_threads)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.4)
            started = time.perf_counter()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            seconds = time.perf_counter() - started
            assert process.stdout.readline() == "same\n"
        finally:
            process.kill()
    assert seconds < 0.5


@POSIX
@pytest.mark.parametrize("is_restarted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_second_ctrl_c_leaves_no_block_running(is_restarted):
    # The first Ctrl-C interrupts the computation, which then waits for the running block. The
    # second Ctrl-C interrupts this wait. If system calls are restarted, both signals are handled
    # only after the block has ended. An import of polars leads to such restarts.
    signal.siginterrupt(signal.SIGINT, not is_restarted)
    release, ended = threading.Event(), threading.Event()

    def block(lo, hi):
        release.wait(5)
        ended.set()

    def interrupt():
        for _ in range(3):
            time.sleep(0.08)
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.08)
        release.set()

    sender = threading.Thread(target=interrupt)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            parallel.run(block, np.arange(3), n_threads=2)
    finally:
        signal.siginterrupt(signal.SIGINT, True)
    assert ended.is_set()
    sender.join(10)


@pytest.mark.slow
@POSIX
def test_ctrl_c_while_a_failed_call_ends_is_raised():
    def block(lo, hi):
        time.sleep(0.3)

    def stop(done, total):
        raise ArithmeticError

    sender = threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT))
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        parallel.run(block, np.arange(3), n_threads=2, progress=stop)
    sender.join(10)


@pytest.mark.slow
@POSIX
def test_child_forked_under_the_lock_makes_its_own_pool():
    code = """
import os, signal, numpy as np
from fastcos import parallel
def mark(lo, hi, out):
    out[lo:hi] += 1
out = np.zeros(40)
parallel.run(mark, np.arange(0, 41, 4), out, n_threads=2)
parallel.pool._state.lock.acquire()
child = os.fork()
if child == 0:
    signal.alarm(20)
    parallel.run(mark, np.arange(0, 41, 4), out, n_threads=2)
    os._exit(0 if (out == 2).all() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert python(code, PYTHONWARNINGS="ignore").strip() == "0"


# prange


@pytest.mark.slow
def test_prange_gives_the_same_bits():
    code = """
import numpy as np, warnings
from numba import njit, threading_layer, get_num_threads, set_num_threads
from fastcos import config, parallel
@njit(nogil=True)
def sums(lo, hi, rows, out):
    for i in range(lo, hi):
        total = np.float32(0)
        for j in range(rows.shape[1]):
            total += rows[i, j]
        out[i] = total
rows = np.random.default_rng(0).random((500, 40), np.float32)
blocks = parallel.row_blocks(500, 7)
answers = []
set_num_threads(2)
for backend in ("pool", "prange"):
    config.set_config(backend=backend)
    out, seen = parallel.unfilled(500, np.float32), []
    parallel.run(sums, blocks, rows, out, n_threads=3, progress=lambda *p: seen.append(p))
    answers.append(out.tobytes())
    assert seen[-1] == (500, 500)
assert answers[0] == answers[1]
print(threading_layer(), get_num_threads())
"""
    environment = {"NUMBA_THREADING_LAYER": "omp", "NUMBA_NUM_THREADS": "4"}
    assert python(code, **environment).split() == ["omp", "2"]


def test_run_raises_if_prange_skips_a_block(monkeypatch):
    def skip(blocks, done, *arrays):
        done[: 1 if len(done) == 1 else -2] = 1  # The trial run has one block.

    parallel.reset()
    monkeypatch.setattr("numba.threading_layer", lambda: "omp")
    monkeypatch.setattr(compiler, "prange_driver", lambda rows_kernel: skip)
    monkeypatch.setattr(config, "overrides", {"backend": "prange"})
    with pytest.raises(RuntimeError, match=r"must run every block, but skipped 2 of 10 blocks"):
        parallel.run(Kernel(mark_rows), np.arange(11), np.zeros(10), n_threads=2)
    parallel.reset()


def test_run_of_a_python_function_uses_the_pool(monkeypatch):
    def mark(lo, hi, marks):
        marks[lo:hi] += 1

    monkeypatch.setattr(compiler, "prange_driver", lambda rows_kernel: pytest.fail("prange ran"))
    monkeypatch.setattr(config, "overrides", {"backend": "prange"})
    marks = np.zeros(10)
    parallel.run(mark, np.arange(11), marks, n_threads=2)
    np.testing.assert_array_equal(marks, 1)


class Lazy:
    made: ClassVar[list[int]] = []

    @parallel.lazy_attribute
    def value(self):
        self.made.append(threading.get_ident())
        time.sleep(0.05)
        if len(self.made) == 1:
            raise KeyError
        return object()


def test_a_lazy_attribute_is_made_once_and_again_after_an_error():
    Lazy.made.clear()
    lazy, values, errors = Lazy(), [], []

    def read():
        try:
            values.append(lazy.value)
        except KeyError as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert (len(lazy.made), len(errors), len(values)) == (2, 1, 7)
    assert len({id(value) for value in values}) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_beside_a_making_thread_makes_its_own():
    lazy, started, go_on = Lazy(), threading.Event(), threading.Event()

    def hold():
        with parallel.attribute_lock(lazy, "value"):
            started.set()
            go_on.wait(20)

    Lazy.made[:] = [0]
    thread = threading.Thread(target=hold)
    thread.start()
    started.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if lazy.value is not None else 1)
    until, ended = time.monotonic() + 20, 0
    while not ended and time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    go_on.set()
    thread.join()
    assert ended
    assert status == 0


@pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="CPUs of a thread on Linux"
)
def test_helping_threads_leave_the_cpu_of_the_caller():
    allowed, caller = os.sched_getaffinity(0), threading.get_ident()
    cpus, meeting = {}, threading.Barrier(2)

    def record(lo, hi):
        meeting.wait(30)
        cpus[threading.get_ident() == caller] = os.sched_getaffinity(0)

    # The pool now has a thread that may run on all CPUs.
    parallel.run(record, np.arange(3), n_threads=2)
    try:
        for cpu in sorted(allowed)[:2]:
            os.sched_setaffinity(0, {cpu})
            parallel.run(record, np.arange(3), n_threads=2)
            assert cpus == {True: {cpu}, False: allowed - {cpu}}
    finally:
        os.sched_setaffinity(0, allowed)

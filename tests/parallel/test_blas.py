"""BLAS has one thread where no other code can notice it, and otherwise the program's number."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import scipy.linalg  # noqa: F401  its BLAS must be limited, too
from threadpoolctl import ThreadpoolController, threadpool_limits

from fastcos import parallel

ROOT = Path(__file__).parents[2]


def libraries():
    """The BLAS of NumPy and of SciPy, without that of FAISS, which another test may import."""
    result = ThreadpoolController().select(user_api="blas")
    paths = [one["filepath"] for one in result.info() if "faiss" not in one["filepath"]]
    return result.select(filepath=paths)


def blas_threads():
    return {one["num_threads"] for one in libraries().info()}


@pytest.fixture(autouse=True)
def two_threads():
    with libraries().limit(limits=2):
        yield


def run_alone(code):
    """Run a program of one thread, in which BLAS has two threads; the test worker has more."""
    prelude = "from tests.parallel.test_blas import *\nlibraries().limit(limits=2)\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + code], env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def another_thread(*steps):
    """Yield a function that lets another thread, which exists all the while, do the next step."""
    turns = [threading.Event() for _ in steps], [threading.Event() for _ in steps]

    def work():
        for step, begin, end in zip(steps, *turns, strict=True):
            assert begin.wait(20)
            step()
            end.set()

    def do_next():
        begin, end = (events.pop(0) for events in waiting)
        begin.set()
        assert end.wait(20)

    waiting = [list(events) for events in turns]
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield do_next
    finally:
        while waiting[0]:
            do_next()
        thread.join()


def test_one_blas_thread_until_the_last_of_nested_calls_ends():
    run_alone("""
assert blas_threads() == {2}
with parallel.one_blas_thread():
    with parallel.one_blas_thread():
        assert blas_threads() == {1}
    assert blas_threads() == {1}
assert blas_threads() == {2}
with contextlib.suppress(KeyError), parallel.one_blas_thread():
    raise KeyError
assert blas_threads() == {2}
""")


def test_threads_of_the_pool_do_not_prevent_the_limit():
    run_alone("""
def sleep(lo, hi):
    time.sleep(0.02)
parallel.run(sleep, parallel.row_blocks(8, 1), n_threads=3)
assert threading.active_count() > 1
with parallel.one_blas_thread():
    assert blas_threads() == {1}
assert blas_threads() == {2}
""")


@pytest.mark.parametrize("starts_first", [True, False])
def test_a_limit_that_another_thread_sets_is_not_undone(starts_first):
    user = contextlib.ExitStack()

    def limit():
        user.enter_context(threadpool_limits(1, user_api="blas"))

    with another_thread(limit, user.close) as do_next:
        if starts_first:
            do_next()
        with parallel.one_blas_thread():
            if not starts_first:
                do_next()
        assert blas_threads() == {1}
        do_next()
        assert blas_threads() == {2}


def test_a_limit_that_another_thread_lifts_stays_lifted():
    user = contextlib.ExitStack()
    user.enter_context(threadpool_limits(1, user_api="blas"))
    with another_thread(user.close) as do_next:
        with parallel.one_blas_thread():
            do_next()
            assert blas_threads() == {2}
        assert blas_threads() == {2}


def test_a_number_that_another_thread_sets_for_good_stays():
    with another_thread(lambda: libraries().limit(limits=1)) as do_next:
        with parallel.one_blas_thread():
            do_next()
        assert blas_threads() == {1}


def test_a_sole_program_limits_beside_other_threads():
    with another_thread(lambda: None) as do_next:
        with parallel.sole_program():
            with parallel.one_blas_thread():
                do_next()
                assert blas_threads() == {1}
            assert blas_threads() == {2}
        with parallel.one_blas_thread():
            assert blas_threads() == {2}


def test_overlapping_calls_of_two_threads_lift_the_limit_once():
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    with parallel.sole_program():
        first.enter_context(parallel.one_blas_thread())
        thread = threading.Thread(target=second.enter_context, args=[parallel.one_blas_thread()])
        thread.start()
        thread.join()
        first.close()
        assert blas_threads() == {1}
        second.close()
    assert blas_threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_the_lock():
    with parallel.blas._state.lock:
        child = os.fork()
        if child == 0:
            with parallel.sole_program(), parallel.one_blas_thread():
                os._exit(0)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


def test_no_thread_of_blas_spins_after_an_svd():
    run_alone("""
import numpy as np
import scipy.sparse as sp
from fastcos import randomized_svd
X = sp.random_array((4_000, 2_000), density=0.01, rng=np.random.default_rng(0), format="csr")
randomized_svd(X, 8)
time.sleep(0.3)  # threads of earlier products come to rest
randomized_svd(X, 8)
started = time.process_time()
time.sleep(0.1)
assert time.process_time() - started < 0.03
""")

"""fastcos limits BLAS to one thread, but only if no other thread can notice the limit."""

import contextlib
import os  # noqa: F401  programs below import all names of this module
import signal  # noqa: F401
import threading
import time  # noqa: F401
from pathlib import Path

import pytest
import scipy.linalg  # noqa: F401  its BLAS must be limited, too
from threadpoolctl import ThreadpoolController, threadpool_limits  # noqa: F401

from fastcos import config, parallel  # noqa: F401
from tests.forking import ForkingProcess

ROOT = Path(__file__).parents[2]


def blas_threads():
    return {one["num_threads"] for one in ThreadpoolController().select(user_api="blas").info()}


@pytest.fixture(scope="module")
def run_alone():
    """Return a function that runs a program in a new process.

    The process has one Python thread, and BLAS has two threads.
    """
    if config.count_cpus() < 2:
        pytest.skip("BLAS has one thread on one core")
    variables = {"OPENBLAS_NUM_THREADS": "2", "PYTHONPATH": str(ROOT)}
    with ForkingProcess("from tests.parallel.test_blas import *", ROOT, **variables) as process:

        def run(code):
            check = "assert blas_threads() == {2}\n"
            done = process.run("signal.alarm(120)\n" + check + code + check)
            assert done.returncode == 0, done.stderr

        yield run


@contextlib.contextmanager
def another_thread(*steps, is_daemon=False):
    """Start a thread that waits before each step; yield a function that starts the next step."""
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
    thread = threading.Thread(target=work, daemon=is_daemon)
    thread.start()
    try:
        yield do_next
    finally:
        while waiting[0]:
            do_next()
        thread.join()


def test_one_blas_thread_until_the_last_of_nested_calls_ends(run_alone):
    run_alone("""
with parallel.one_blas_thread():
    with parallel.one_blas_thread():
        assert blas_threads() == {1}
    assert blas_threads() == {1}
assert blas_threads() == {2}
with contextlib.suppress(KeyError), parallel.one_blas_thread():
    raise KeyError
""")


def test_threads_of_the_pool_do_not_prevent_the_limit(run_alone):
    run_alone("""
def sleep(lo, hi):
    time.sleep(0.02)
parallel.run(sleep, parallel.row_blocks(8, 1), n_threads=3)
assert threading.active_count() > 1
with parallel.one_blas_thread():
    assert blas_threads() == {1}
""")


# In this program, one thread limits BLAS while another thread computes an SVD.
USER = """
user = contextlib.ExitStack()
def limit():
    user.enter_context(threadpool_limits(1, user_api="blas"))
"""


def test_a_limit_that_another_thread_sets_is_not_undone(run_alone):
    run_alone(f"""{USER}
with another_thread(limit, user.close) as do_next:
    with parallel.one_blas_thread():
        do_next()
    assert blas_threads() == {{1}}
    do_next()
""")


def test_a_limit_that_another_thread_lifts_stays_lifted(run_alone):
    run_alone(f"""{USER}
with another_thread(limit, user.close) as do_next:
    do_next()
    with parallel.one_blas_thread():
        assert blas_threads() == {{1}}
        do_next()
        assert blas_threads() == {{2}}
""")


@pytest.mark.slow
def test_threads_may_limit_blas_after_it_was_limited_here(run_alone):
    run_alone(f"""{USER}
with parallel.one_blas_thread():
    pass
with another_thread(limit, user.close) as do_next:
    do_next()
    assert blas_threads() == {{1}}
""")


@pytest.mark.slow
def test_daemon_threads_do_not_prevent_the_limit(run_alone):
    run_alone("""
with another_thread(lambda: None, is_daemon=True) as do_next:
    with parallel.one_blas_thread():
        do_next()
        assert blas_threads() == {1}
    assert blas_threads() == {2}
with another_thread(lambda: None):
    with parallel.one_blas_thread():
        assert blas_threads() == {2}
""")


def test_overlapping_calls_of_two_threads_lift_the_limit_once(run_alone):
    run_alone("""
other = contextlib.ExitStack()
steps = lambda: other.enter_context(parallel.one_blas_thread()), other.close
with another_thread(*steps, is_daemon=True) as do_next:
    with parallel.one_blas_thread():
        do_next()
        assert blas_threads() == {1}
    assert blas_threads() == {2}
    do_next()
""")


FORK = """
with {around}:
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with parallel.one_blas_thread():
            assert blas_threads() == {{1}}
        {check}
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_does_not_wait_for_the_lock(run_alone):
    run_alone(FORK.format(around="parallel.blas._state.lock", check="assert blas_threads() == {2}"))


@pytest.mark.slow
def test_a_child_keeps_the_limit_of_the_thread_that_forks(run_alone):
    check = "assert blas_threads() == {1}"
    run_alone(FORK.format(around="parallel.one_blas_thread()", check=check))


@pytest.mark.slow
def test_a_child_lifts_the_limit_of_a_thread_that_it_lacks(run_alone):
    fork = FORK.format(around="contextlib.nullcontext()", check="assert blas_threads() == {2}")
    lines = "".join(f"    {line}\n" for line in fork.strip().splitlines())
    run_alone(f"""
def fork():
{lines}
with another_thread(fork, is_daemon=True) as do_next, parallel.one_blas_thread():
    do_next()
    assert blas_threads() == {{1}}
""")


@pytest.mark.slow
def test_no_thread_of_blas_spins_after_an_svd(run_alone):
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

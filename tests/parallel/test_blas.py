"""BLAS has one thread while anybody needs that, and its own number of threads afterwards."""

import contextlib
import os
import threading
import time

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  its BLAS must be limited, too
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController

from fastcos import parallel, randomized_svd


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


def test_one_blas_thread_until_the_last_of_overlapping_calls_ends():
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(parallel.one_blas_thread())
    thread = threading.Thread(target=second.enter_context, args=[parallel.one_blas_thread()])
    thread.start()
    thread.join()
    first.close()
    assert blas_threads() == {1}
    second.close()
    assert blas_threads() == {2}


def test_one_blas_thread_ends_with_an_error():
    with pytest.raises(KeyError), parallel.one_blas_thread():
        raise KeyError
    assert blas_threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_the_lock():
    with parallel.blas._state.lock:
        child = os.fork()
        if child == 0:
            with parallel.one_blas_thread():
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
    X = sp.random_array((4_000, 2_000), density=0.01, rng=np.random.default_rng(0), format="csr")
    randomized_svd(X, 8)
    time.sleep(0.3)  # threads of earlier products come to rest
    randomized_svd(X, 8)
    started = time.process_time()
    time.sleep(0.1)
    assert time.process_time() - started < 0.03

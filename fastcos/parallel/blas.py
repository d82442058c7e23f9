"""Locks that make a fork wait for calls of BLAS, and a limit of BLAS to one thread."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from fastcos.parallel.forks import at_fork
from fastcos.parallel.pool import HelpingThread


class _State:
    """The number of calls that limit BLAS to one thread, and the object that lifts the limit."""

    def __init__(self) -> None:
        self.lock, self.calls = threading.Lock(), 0
        self.limit: Any = None


_state = _State()
# The number of blocks of sole_program that are open.
_sole_programs = 0

# OpenBLAS stops its threads at a fork and starts them again at the next product, under a lock that
# a child process inherits. If a process forks while another thread starts the threads of OpenBLAS
# or computes a product, the child hangs, and the parent may hang. Therefore a fork waits for all
# calls of BLAS. A call with several threads holds the first lock: OpenBLAS runs such calls one
# after the other anyway, and two calls that start its threads at once after a fork hang, too. A
# call with one thread holds one of the other locks, so that such calls rarely wait for each other.
_locks = [threading.RLock() for _ in range(64)]


def blas_lock() -> threading.RLock:
    """Return the lock that this thread must hold while it calls BLAS or LAPACK.

    A fork waits for the lock. Only NumPy and SciPy may run while a thread holds it. A fork takes
    the lock before it waits for compilation, so code that compiles a kernel under the lock could
    wait forever.
    """
    if not _state.calls:
        return _locks[0]
    return _locks[1 + threading.get_native_id() % (len(_locks) - 1)]


def _before_fork() -> None:
    for lock in _locks:
        lock.acquire()


def _after_fork() -> None:
    for lock in _locks:
        lock.release()


def _after_fork_in_child() -> None:
    # Threads of the parent that hold its lock, or have set a limit, do not exist in the child: they
    # would never release the lock or lift the limit.
    global _state
    previous, _state = _state, _State()
    if previous.calls:
        previous.limit.restore_original_limits()
    _after_fork()


at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread within the with block, if no other code can notice the limit.

    This is for small matrices between kernels. The threads of OpenBLAS wait for each other at every
    column of a factorisation, and spin for 50 ms after each product; kernels that run meanwhile
    have fewer cores.

    OpenBLAS knows one number of threads for the whole process, also where it is asked for that of
    the calling thread (``openblas_set_num_threads_local``, in builds without OpenMP). If another
    thread of the program set or read that number during the block, for example by
    ``threadpoolctl.threadpool_limits``, one of the two would undo the limit of the other, or would
    restore a limit that had ended. Therefore a process in which other threads run Python code keeps
    its number of BLAS threads, and the block is only slower. Threads of the pool do not count, and
    none counts under :func:`sole_program`.
    """
    if not _is_unnoticed():
        yield
        return
    state, libraries = _state, _libraries()
    with _locks[0], state.lock:
        if state.calls == 0:
            state.limit = libraries.limit(limits=1, user_api="blas")
        state.calls += 1
    try:
        yield
    finally:
        with _locks[0], state.lock:
            state.calls -= 1
            if state.calls == 0:
                state.limit.restore_original_limits()


@contextlib.contextmanager
def sole_program() -> Iterator[None]:
    """Declare that within the with block no code but fastcos sets the number of BLAS threads.

    A command of fastcos declares it, because the other threads of a command only draw progress
    bars.
    """
    global _sole_programs
    with _state.lock:
        _sole_programs += 1
    try:
        yield
    finally:
        with _state.lock:
            _sole_programs -= 1


def _is_unnoticed() -> bool:
    """Return whether no code but the caller's can set or read the number of BLAS threads."""
    if _sole_programs:
        return True
    current = threading.current_thread()
    return all(
        thread is current or isinstance(thread, HelpingThread) for thread in threading.enumerate()
    )


@functools.cache
def _libraries() -> Any:
    """Return the loaded BLAS libraries; the result is cached because the search takes 1 ms."""
    import scipy.linalg  # noqa: F401  SciPy loads a BLAS library of its own beside NumPy's
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

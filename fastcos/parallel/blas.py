"""BLAS: calls that forks wait for, and one thread where small matrices need that."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from fastcos.parallel.forks import at_fork


class _State:
    """How many calls are under the limit, and how it is lifted after the last one."""

    def __init__(self) -> None:
        self.lock, self.calls = threading.Lock(), 0
        self.limit: Any = None


_state = _State()

# OpenBLAS stops its threads at a fork and starts them at the next product, under a lock that a
# child inherits: one forked beside such a start, or beside a product, hangs, and so may the parent.
# A fork therefore waits for all calls. Calls with several threads, which OpenBLAS runs one after
# the other anyway, have the first lock: two that start its threads at once after a fork hang too.
# Calls with one thread have any of the others, so that they do not wait for each other.
_locks = [threading.RLock() for _ in range(64)]


def blas_lock() -> threading.RLock:
    """Return the lock that this thread holds while it calls BLAS or LAPACK; forks wait for it.

    Nothing but NumPy and SciPy may run under it: a fork holds it while it waits for compilation.
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
    # the parent's lock may stay held for ever, and its limit, which other threads set, in force
    global _state
    before, _state = _state, _State()
    if before.calls:
        before.limit.restore_original_limits()
    _after_fork()


at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread, in all threads of the process, until the last such call ends.

    For small matrices between kernels. The threads of OpenBLAS wait for each other at every column
    of a factorisation, and spin for a twentieth of a second after each product: kernels run on the
    cores that are left.
    """
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


@functools.cache
def _libraries() -> Any:
    """The BLAS libraries that are loaded: looking for them takes a millisecond."""
    import scipy.linalg  # noqa: F401  its BLAS is another one than NumPy's
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

"""BLAS: a lock that forks wait for, and one thread where small matrices need that."""

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from typing import Any


class _State:
    """How many calls are under the limit, and how it is lifted after the last one."""

    def __init__(self) -> None:
        self.lock, self.calls = threading.Lock(), 0
        self.limit: Any = None


_state = _State()

# Held while BLAS multiplies on several threads. A fork waits for it: OpenBLAS stops its threads at
# a fork, and one in the middle of a product would hang the parent and the child. Nothing waits that
# did not before, since OpenBLAS itself does one such product after the other.
blas_lock = threading.RLock()


def _after_fork() -> None:
    # the parent's lock may stay held for ever
    global _state
    _state = _State()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
    os.register_at_fork(
        before=blas_lock.acquire,
        after_in_parent=blas_lock.release,
        after_in_child=blas_lock.release,
    )


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread, in all threads of the process, until the last such call ends.

    For small matrices between kernels. The threads of OpenBLAS wait for each other at every column
    of a factorisation, and spin for a twentieth of a second after each product: kernels run on the
    cores that are left.
    """
    state = _state
    with state.lock:
        if state.calls == 0:
            state.limit = _libraries().limit(limits=1, user_api="blas")
        state.calls += 1
    try:
        yield
    finally:
        with state.lock:
            state.calls -= 1
            if state.calls == 0:
                state.limit.restore_original_limits()


@functools.cache
def _libraries() -> Any:
    """The BLAS libraries that are loaded: looking for them takes a millisecond."""
    import scipy.linalg  # noqa: F401  its BLAS is another one than NumPy's
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

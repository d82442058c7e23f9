"""Make forks wait until no thread runs BLAS, and limit BLAS to one thread."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from fastcos.parallel.forks import at_fork


class _State:
    """The limit on BLAS threads, and the thread that set it; both are None if no limit is set."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.limit: Any = None
        self.owner: threading.Thread | None = None


_state = _State()

# OpenBLAS stops its threads when a process forks, and starts its threads again at the next product.
# While OpenBLAS starts its threads, it holds a lock. If the process forks at this moment, the child
# process inherits the locked lock. If a process forks while another thread starts the threads of
# OpenBLAS or computes a product, the child hangs, and the parent may hang. Therefore a fork waits
# until no thread of the process is running BLAS. A call that may use several BLAS threads holds
# _locks[0], so that only one call of this kind runs at a time. Without this rule, two calls that
# start the threads of OpenBLAS at the same time after a fork would hang. Waiting for _locks[0]
# costs hardly any time, because OpenBLAS itself never runs two multi-threaded calls at the same
# time. A call that is limited to one BLAS thread holds one of the other locks instead. This lock is
# chosen by the id of the calling thread, so that two limited calls rarely wait for each other.
_locks = [threading.RLock() for _ in range(64)]


def blas_lock() -> threading.RLock:
    """Return the lock that this thread must hold while it calls BLAS or LAPACK.

    Before the process forks, the forking thread waits until it holds all BLAS locks. While a thread
    holds a BLAS lock, it must call only NumPy and SciPy, and no function that may compile a kernel.
    Before a fork, the forking thread first takes the locks that guard the compilation of kernels,
    and then waits for the BLAS locks. Suppose that a thread holds a BLAS lock, and tries to compile
    during a fork. It would then wait for the forking thread, while the forking thread waits for the
    BLAS lock.
    """
    if _state.limit is None:
        return _locks[0]
    return _locks[1 + threading.get_native_id() % (len(_locks) - 1)]


def _before_fork() -> None:
    for lock in _locks:
        lock.acquire()


def _after_fork() -> None:
    for lock in _locks:
        lock.release()


def _after_fork_in_child() -> None:
    # A forked child has only the thread that called fork. If another thread of the parent held the
    # lock of _state during the fork, no thread of the child would ever release the lock. If another
    # thread of the parent had limited the threads of BLAS, no thread of the child would ever lift
    # this limit.
    global _state
    previous, _state = _state, _State()
    if previous.owner is threading.current_thread():
        _state.limit, _state.owner = previous.limit, previous.owner
    elif previous.limit is not None:
        previous.limit.restore_original_limits()
    _after_fork()


at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread within the ``with`` block, if this limit affects no other thread.

    Between two kernels, use ``one_blas_thread`` for products and factorisations of small matrices.
    If OpenBLAS uses several threads, its threads wait for each other at every column of a
    factorisation. After every product, each OpenBLAS thread also keeps a core busy for 50 ms, so
    fewer cores are free for the next kernel. Without the limit, an SVD and an audit take 1.3 times
    as long on two idle cores. On busy cores, an audit even takes 5 times as long.

    In OpenBLAS, all threads of a process share one setting for the number of threads. The OpenBLAS
    function ``openblas_set_num_threads_local`` is meant for the calling thread. In builds without
    OpenMP, however, even this function sets the number of threads of the whole process. Another
    thread of the program may change the number of BLAS threads during the ``with`` block, for
    example by ``threadpoolctl.threadpool_limits``. The end of the ``with`` block would then undo
    this change. During the ``with`` block, the number of BLAS threads is 1. Another thread could
    save this number during the block, and restore it after the block; BLAS would then stay limited
    to one thread. Therefore BLAS is not limited if the process has another thread that is not a
    daemon, for example a worker of a ``ThreadPoolExecutor``. Daemon threads are ignored, because
    they seldom call BLAS. Examples of daemon threads are the threads of our pool, the threads that
    draw progress bars, and the threads of a notebook's kernel.
    """
    is_limited_here = False
    if _is_unnoticed():
        with _locks[0], _state.lock:
            if _state.limit is None:
                is_limited_here = True
                _state.limit = _libraries().limit(limits=1, user_api="blas")
                _state.owner = threading.current_thread()
                # While this thread is in the `with` block that limits BLAS, threadpoolctl ignores
                # the limits that other threads set.
                _state.limit.__enter__()
    try:
        yield
    finally:
        if is_limited_here:
            with _locks[0], _state.lock:
                _state.limit.__exit__(None, None, None)
                _state.limit = _state.owner = None


def _is_unnoticed() -> bool:
    """Return whether all other threads are daemons; daemon threads rarely call BLAS."""
    current = threading.current_thread()
    return all(thread is current or thread.daemon for thread in threading.enumerate())


@functools.cache
def _libraries() -> Any:
    """Return the loaded BLAS libraries; the result is cached, because finding them takes 1 ms."""
    import scipy.linalg  # noqa: F401  SciPy loads a BLAS library of its own beside NumPy's
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

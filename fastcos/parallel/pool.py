"""The thread pool, which runs serial kernels over blocks of rows.

The thread that calls ``run`` runs blocks itself, and the threads of the pool help it. The threads
of the pool are started at first use and wait for work on a queue. A forked child process starts
threads of its own. Callers should divide their rows into many small blocks. A thread whose blocks
need little work then takes more blocks, so all threads end at about the same time. Progress is
reported between blocks, and Ctrl-C takes effect as soon as the running blocks have ended. When
``run`` raises an error, no block is running any more, so no thread still writes into the caller's
arrays.
"""

import bisect
import contextlib
import ctypes
import itertools
import os
import queue
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from fastcos import config, validation
from fastcos.kernels.jit import Kernel, kernel
from fastcos.parallel.forks import at_fork

Progress = Callable[[int, int], object]
Blocks = npt.NDArray[np.int64]
Owner = TypeVar("Owner")
Value = TypeVar("Value")

# The time in seconds between two reports of progress.
_REPORT_INTERVAL = 0.1

# If a call to `run` has more than this number of blocks, it looks up the compiled code of its
# kernel only once, and uses this code for all blocks. Otherwise, Numba checks the types of the
# arguments for every block, which takes 3 us for each argument that is a record. For about 10
# blocks, these checks take as long as looking up the code.
_MANY_BLOCKS = 10

_inside = threading.local()

# On Linux, the function of the C library that returns the number of the CPU on which the calling
# thread runs; on other systems, None. PyDLL is used instead of CDLL, because CDLL would release the
# interpreter's lock, which would take longer than the call.
_getcpu = getattr(ctypes.PyDLL(None), "sched_getcpu", None) if sys.platform == "linux" else None


class _Places:
    """The CPUs on which helping threads may run: all except the CPU of the last caller.

    If one thread wakes another thread, Linux often runs the woken thread on the CPU of the thread
    that woke it. In a KVM virtual machine, a sleeping CPU does not count as idle. After every pause
    of a few milliseconds, Linux therefore runs the woken thread on the CPU of the thread that woke
    it. If a helping thread wakes on the CPU of the caller, it must wait for the caller. A call on
    two threads then takes as long as the same call on one thread (docs/dev/costs.md, "Threads after
    a pause").
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._caller_cpu = -1
        self._thread_ids: list[int] = []
        # _allowed contains the CPUs on which the system or the user allows the threads to run.
        # _assigned contains the CPUs to which this object has restricted the threads.
        self._allowed: set[int] = set()
        self._assigned: set[int] = set()

    def add(self, thread: threading.Thread) -> None:
        """Add a helping thread."""
        with self._lock:
            if thread.native_id is not None:
                self._thread_ids.append(thread.native_id)
            self._caller_cpu = -1

    def leave_caller_cpu(self) -> None:
        """Keep the helping threads off the CPU on which the calling thread runs.

        If the previous caller ran on the same CPU, this method takes less than a microsecond. If
        not, this method takes about two microseconds per helping thread.
        """
        cpu = -1 if _getcpu is None else int(_getcpu())
        if cpu == self._caller_cpu:
            return
        # An OSError is ignored: it means that the system does not allow this process to choose the
        # CPUs of its threads.
        with self._lock, contextlib.suppress(OSError):
            self._caller_cpu = cpu
            for thread_id in self._thread_ids[:1]:
                cpus = os.sched_getaffinity(thread_id)
                if cpus != self._assigned:  # other code has changed the CPUs of this thread
                    self._allowed = cpus
                self._assigned = self._allowed - {cpu} or self._allowed
            for thread_id in self._thread_ids:
                os.sched_setaffinity(thread_id, self._assigned)


class _State:
    """The locks and the pool of one process, and whether Numba's prange is safe in this process."""

    def __init__(self, *, is_forked: bool = False) -> None:
        self.lock, self.writer_lock = threading.Lock(), threading.RLock()
        # The threads of the pool take tasks from this queue. A thread ends when it takes None from
        # the queue.
        self.tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.n_threads = 0
        self.places = _Places()
        self.is_forked = is_forked
        # ``prange_fault`` is None until prange has been tried in this process. Afterwards, it is an
        # empty string if prange is safe, and otherwise the reason why prange is not safe.
        self.prange_fault: str | None = None
        # The cached attributes that threads are computing now. Each key consists of the id of an
        # object and the name of its attribute. Each value consists of the lock of the attribute and
        # the number of threads that hold this lock or wait for it.
        self.attributes: dict[tuple[int, str], tuple[threading.RLock, int]] = {}


_state = _State()


def reset() -> None:
    """End the threads of the pool; the next call to `run` tests again whether prange is safe."""
    global _state
    previous, _state = _state, _State(is_forked=_state.is_forked)
    for _ in range(previous.n_threads):
        previous.tasks.put(None)


def _after_fork() -> None:
    # A forked child has none of its parent's other threads, so a lock that one of them held during
    # the fork would never be released.
    global _state
    _state = _State(is_forked=True)
    _inside.busy = False


at_fork(after_in_child=_after_fork)


def writer_lock() -> threading.RLock:
    """Return the process-wide lock that a thread holds while it changes a shared object."""
    return _state.writer_lock


@contextlib.contextmanager
def attribute_lock(owner: object, name: str) -> Iterator[None]:
    """Hold the lock of one attribute of one object within the ``with`` block.

    The lock is created when a thread first asks for it, and is deleted when no thread holds it or
    waits for it. If a process forks while one of its threads holds the lock, the lock does not
    exist in the child. If the lock existed in the child, a thread of the child that asks for the
    lock would wait for ever.
    """
    state, key = _state, (id(owner), name)
    with state.lock:
        lock, users = state.attributes.get(key, (None, 0))
        lock = lock or threading.RLock()
        state.attributes[key] = lock, users + 1
    try:
        with lock:
            yield
    finally:
        with state.lock:
            users = state.attributes.pop(key)[1] - 1
            if users:
                state.attributes[key] = lock, users


class lazy_attribute(Generic[Owner, Value]):
    """A decorator for a method that computes an attribute: one thread computes, the others wait.

    The decorator replaces functools.cached_property for two reasons. On Python 3.11,
    cached_property uses one lock for all instances of a class. If a process forked while one of its
    threads held the lock of a cached_property, the child would wait for the lock for ever. Since
    Python 3.12, cached_property has no lock: if eight threads started to search an index at the
    same time, each of them would pack all items.
    """

    def __init__(self, make: Callable[[Owner], Value]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy_attribute[Owner, Value]": ...
    @overload
    def __get__(self, instance: Owner, owner: type) -> Value: ...
    def __get__(self, instance: Owner | None, owner: type) -> Any:
        if instance is None:
            return self
        # A descriptor without __set__ does not override the __dict__ of the instance. As soon as
        # the __dict__ contains the value, Python therefore reads the value from the __dict__ and no
        # longer calls this method.
        with attribute_lock(instance, self._name):
            fields = vars(instance)
            if self._name not in fields:
                fields[self._name] = self._make(instance)
            return fields[self._name]


def unfilled(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an output array that is filled with a value that no kernel writes.

    The array is filled with NaN for floating-point types, with -7 for signed integers, and with 249
    for other types.
    """
    kind = np.dtype(dtype)
    return np.full(shape, np.nan if kind.kind == "f" else (-7 if kind.kind == "i" else 249), kind)


def row_blocks(n_rows: int, rows_per_block: int) -> Blocks:
    """Return the boundaries 0 = c_0 < ... < c_b = ``n_rows`` of blocks of ``rows_per_block`` rows.

    The last block may have fewer rows.
    """
    step = max(1, rows_per_block)
    boundaries = np.arange(0, n_rows + step, step, dtype=np.int64)
    boundaries[-1] = n_rows
    return boundaries


def work_blocks(cumulative: npt.NDArray[np.integer[Any]], work_per_block: int) -> Blocks:
    """Return the boundaries of blocks of consecutive rows; all blocks take about the same work.

    `cumulative[i]` is the total work of the rows before row i, for i from 0 to n. For example, if
    `cumulative` is the indptr of a CSR matrix, the work of a row is its number of stored entries.
    Every row counts as one additional unit of work, so that rows without stored entries are also
    divided among the blocks. The boundaries depend only on the arguments, and not on the number of
    threads.
    """
    n = len(cumulative) - 1
    total = int(cumulative[-1]) + n
    blocks = max(1, -(-total // max(1, work_per_block)))
    targets = np.arange(1, blocks, dtype=np.int64) * total // blocks
    inner = rows_at_work(cumulative, targets)
    return np.unique(np.concatenate([[0], inner, [n]])).astype(np.int64)


def rows_at_work(
    cumulative: npt.NDArray[np.integer[Any]], targets: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """For every target, return the smallest i with `cumulative[i] + i` at or above the target."""
    # The bisection computes cumulative[i] + i for only a few rows, because computing it for all
    # rows would take 2 ms per 400,000 rows.
    value = cumulative.item
    rows = range(len(cumulative) - 1)
    starts = [
        bisect.bisect_left(rows, target, key=lambda i: value(i) + i) for target in targets.tolist()
    ]
    return np.array(starts, np.int64)


def run(
    rows_kernel: Callable[..., None],
    blocks: Blocks,
    *arrays: Any,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Call `rows_kernel(lo, hi, *arrays)` once per pair of consecutive boundaries in `blocks`.

    The result must not depend on the order in which the blocks run. If there is only one block, or
    if `run` is called from inside a block, all blocks run in the calling thread. If `rows_kernel`
    is a plain Python function, the blocks run on the pool, even if the backend is prange. The
    calling thread calls `progress(done, total)` with the number of finished rows and the number of
    all rows. If `progress` raises an error, no further block starts, and `run` raises this error.
    """
    size = None if n_threads is None else validation.as_thread_count("n_threads", n_threads)
    is_alone = len(blocks) <= 2 or getattr(_inside, "busy", False)
    if is_alone:
        size = 1
    elif size is None:
        size = config.n_threads()
    function, arguments = rows_kernel, arrays
    if isinstance(rows_kernel, Kernel):
        if not is_alone and config.backend() == "prange" and _prange_is_safe():
            _run_prange(rows_kernel, blocks, arrays, size, progress)
            return
        # bind_for_blocks looks up the compiled code for the types of the arguments once for the
        # whole call, and not once per block.
        has_many = len(blocks) > _MANY_BLOCKS
        bind = rows_kernel.bind_for_blocks if has_many else rows_kernel.bind
        function, arguments = bind(*arrays)
    if size > 1:
        _Job(function, arguments, blocks).run(size, progress)
    else:
        for lo, hi in itertools.pairwise(blocks.tolist()):
            function(lo, hi, *arguments)
            if progress is not None:
                progress(int(hi - blocks[0]), int(blocks[-1] - blocks[0]))


class _Job:
    """The blocks of one call to `run`.

    The calling thread and the threads of the pool that help it (the helping threads) take the
    blocks one by one.
    """

    def __init__(self, function: Callable[..., None], arguments: Any, blocks: Blocks) -> None:
        self._function, self._arguments = function, arguments
        self._waiting_blocks = list(itertools.pairwise(blocks.tolist()))[::-1]
        self._total = int(blocks[-1] - blocks[0])
        self._done = 0
        self._running = 0  # the number of helping threads that run blocks
        self._error: BaseException | None = None
        # A thread holds _lock while it reads or changes the blocks, _done, _running or _error. The
        # lock _busy is held while at least one helping thread runs blocks.
        self._lock, self._busy = threading.Lock(), threading.Lock()

    def run(self, size: int, progress: Progress | None) -> None:
        was_inside = getattr(_inside, "busy", False)
        try:
            _submit(self._help, min(size, len(self._waiting_blocks)) - 1, size)
            _inside.busy = True
            report_time = time.monotonic()
            while (block := self._take()) is not None:
                self._run_block(*block)
                if progress is not None and time.monotonic() - report_time >= _REPORT_INTERVAL:
                    report_time = time.monotonic()
                    _inside.busy = was_inside
                    self._report(progress)
                    _inside.busy = True
            _inside.busy = was_inside
            while not self._has_ended(_REPORT_INTERVAL if progress is not None else -1):
                self._report(progress)
            self._report(progress)
        finally:  # even after KeyboardInterrupt, this method returns only when no block is running
            _inside.busy = was_inside
            self._stop()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                # The traceback of the error refers to this frame. If this frame also referred to
                # the error, the frame and the error would keep each other in memory, together with
                # the caller's arrays.
                del error

    def _report(self, progress: Progress | None) -> None:
        if progress is not None and self._error is None:
            progress(self._done, self._total)

    def _help(self) -> None:
        """Take and run blocks in a helping thread until no block is left."""
        with self._lock:
            if not self._waiting_blocks:
                return
            if self._running == 0:
                self._busy.acquire()
            self._running += 1
        _inside.busy = True
        while (block := self._take()) is not None:
            self._run_block(*block)
        _inside.busy = False
        with self._lock:
            self._running -= 1
            if self._running == 0:
                self._busy.release()

    def _take(self) -> tuple[int, int] | None:
        with self._lock:
            return self._waiting_blocks.pop() if self._waiting_blocks else None

    def _run_block(self, lo: int, hi: int) -> None:
        """Run one block; if it raises an error, discard the blocks that no thread has taken."""
        try:
            self._function(lo, hi, *self._arguments)
        except BaseException as raised:
            with self._lock:
                self._error = self._error or raised
                self._waiting_blocks.clear()
            return
        with self._lock:
            self._done += hi - lo

    def _has_ended(self, seconds: float) -> bool:
        """Wait until no helping thread is running a block, and return True.

        If helping threads still run blocks after `seconds`, the method returns False. If `seconds`
        is -1, the method waits without a limit.
        """
        # A KeyboardInterrupt between acquire and release leaves _busy locked, although no block is
        # running. Therefore _running is read before _busy is acquired. Some libraries, for example
        # polars, change a setting when they are imported: the operating system then restarts
        # interrupted system calls. With this setting, every KeyboardInterrupt is raised between
        # acquire and release.
        with self._lock:
            if self._running == 0:
                return True
        if not self._busy.acquire(timeout=seconds):
            return False
        self._busy.release()
        return True

    def _stop(self) -> None:
        """Discard the blocks that no thread has taken, and wait until no block is running.

        If a KeyboardInterrupt arrives while the method waits, it is raised after the wait.
        """
        interrupt = None
        ended = False
        while not ended:
            try:
                with self._lock:
                    self._waiting_blocks.clear()
                ended = self._has_ended(-1)
            except KeyboardInterrupt as raised:
                interrupt = raised
        # A task that is still in the queue refers to this job, so the job must not keep the
        # caller's arrays in memory. Functions that run native code also refer to these arrays.
        self._function, self._arguments = _run_nothing, ()
        if interrupt is not None:
            raise interrupt


def _run_nothing(lo: int, hi: int) -> None:
    """Do nothing: this function replaces the function of a job that has ended."""


def _submit(task: Callable[[], None], copies: int, size: int) -> None:
    """Put a task into the queue `copies` times, so that `copies` threads of the pool run the task.

    If the pool has fewer than `size` - 1 threads, the missing threads are started first.
    """
    state = _state
    if state.n_threads < size - 1:
        with state.lock:
            try:
                while state.n_threads < size - 1:
                    name = f"fastcos-{state.n_threads}"
                    thread = threading.Thread(target=_work, args=[state], name=name, daemon=True)
                    thread.start()
                    state.n_threads += 1
                    state.places.add(thread)
            except RuntimeError:  # no thread can be started, for example while the interpreter ends
                pass
    state.places.leave_caller_cpu()
    for _ in range(copies if state.n_threads else 0):
        state.tasks.put(task)


def _work(state: _State) -> None:
    """Run tasks from the queue in a thread of the pool; end the thread when a task is None."""
    while (task := state.tasks.get()) is not None:
        task()
        task = None  # the task refers to the caller's arrays, which would not be freed otherwise


def _prange_is_safe() -> bool:
    """Return whether several threads of this process may run prange loops at the same time.

    Only some of Numba's threading layers allow several threads to run prange loops at the same
    time. The first call that returns False issues a warning.
    """
    state = _state
    # On the workqueue layer, Numba aborts the process if two threads run prange at the same time,
    # so only one thread tests whether prange is safe.
    with state.lock:
        if state.prange_fault is None:
            state.prange_fault = _find_prange_fault()
            if state.prange_fault:
                warnings.warn(
                    f"backend prange is not safe {state.prange_fault}, so the pool is used instead",
                    stacklevel=4,
                )
    return not state.prange_fault


def _find_prange_fault() -> str:
    """Return the reason why prange is not safe in this process, or "" if it is safe."""
    # If prange has run in the parent process, a forked child could hang when it tries prange.
    if _state.is_forked:
        return "in a forked process"
    from numba import threading_layer

    from fastcos.kernels import compiler

    done = np.zeros(1, np.uint8)
    compiler.prange_driver(_nothing)(np.array([0, 1], np.int64), done)
    layer = threading_layer()
    return "" if done.all() and layer in ("omp", "tbb") else f"on the {layer} layer"


@kernel
def _nothing(lo, hi):  # type: ignore[no-untyped-def]
    """A kernel that does nothing; it only serves to test whether prange is safe."""


def _run_prange(
    rows_kernel: Callable[..., None],
    blocks: Blocks,
    arrays: Any,
    size: int,
    progress: Progress | None,
) -> None:
    from numba import config as numba_config, get_num_threads, set_num_threads

    from fastcos.kernels import compiler

    done = np.zeros(len(blocks) - 1, np.uint8)
    callers = get_num_threads()
    set_num_threads(min(size, numba_config.NUMBA_NUM_THREADS))
    try:
        compiler.prange_driver(rows_kernel)(blocks, done, *arrays)
    finally:
        set_num_threads(callers)
    if not done.all():
        raise RuntimeError(
            f"backend prange must run every block, but skipped {int((done == 0).sum())} of "
            f"{len(done)} blocks. Use the backend pool instead"
        )
    if progress is not None:
        progress(int(blocks[-1] - blocks[0]), int(blocks[-1] - blocks[0]))

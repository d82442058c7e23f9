"""The thread pool, which runs serial kernels over blocks of rows.

Kernels run only in threads of this module: the calling thread runs blocks itself, and the threads
of the pool help it. The threads of the pool are started on first use, wait on a queue, and belong
to one process, so that a forked child starts new threads. A call has many small blocks, so that
rows of unequal work are balanced, progress is reported, and Ctrl-C takes effect when the running
blocks end. After a call has raised an error, none of its blocks runs or writes into the caller's
arrays.
"""

import contextlib
import itertools
import queue
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator
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

# If a call has more blocks than this, the entry of its kernel is looked up once for all blocks.
# Numba checks the types of the arguments at every call, which takes 3 us for each record; looking
# up the entry takes as long as about 10 such calls.
_MANY_BLOCKS = 10

_inside = threading.local()


class _State:
    """The locks and threads of one process, and whether Numba's prange is safe in this process."""

    def __init__(self, *, is_forked: bool = False) -> None:
        self.lock, self.writer_lock = threading.Lock(), threading.RLock()
        # Helping threads take tasks from this queue; None ends the thread that takes it.
        self.tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.n_threads = 0
        self.is_forked = is_forked
        # The value is None before prange is tried, "" if prange is safe, otherwise the reason why
        # prange is not safe.
        self.prange_fault: str | None = None
        # For every attribute that is being computed, by object and name: its lock, and the number
        # of threads that hold the lock or wait for it.
        self.attributes: dict[tuple[int, str], tuple[threading.RLock, int]] = {}


_state = _State()


def reset() -> None:
    """End the threads of the pool, and forget whether prange is safe."""
    global _state
    previous, _state = _state, _State(is_forked=_state.is_forked)
    for _ in range(previous.n_threads):
        previous.tasks.put(None)


def _after_fork() -> None:
    # The parent's threads do not exist in the child, so a lock that one of them holds would never
    # be released.
    global _state
    _state = _State(is_forked=True)
    _inside.busy = False


at_fork(after_in_child=_after_fork)


def writer_lock() -> threading.RLock:
    """Return the process-wide lock that a thread holds while it changes a shared object."""
    return _state.writer_lock


@contextlib.contextmanager
def attribute_lock(owner: object, name: str) -> Iterator[None]:
    """Hold the lock of one attribute of one object; the lock exists only while threads use it.

    The lock belongs to the state of this process. A child process that is forked while a thread of
    the parent holds the lock starts without the lock, because the child would otherwise wait for
    ever.
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
    """An attribute that its method computes once, at first use; other threads wait for the value.

    functools.cached_property is not used. On Python 3.11, cached_property holds one lock for all
    instances: a child that is forked while another thread computes an attribute would wait for
    ever. In later versions, cached_property has no lock: eight threads that search an index at once
    would each pack all items.
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
        # Once the value is stored in the instance, Python reads it there and not from this
        # descriptor, which has no __set__.
        with attribute_lock(instance, self._name):
            fields = vars(instance)
            if self._name not in fields:
                fields[self._name] = self._make(instance)
            return fields[self._name]


def unfilled(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an output array that is filled with values that no kernel writes.

    Floating-point numbers are NaN, signed integers are -7, and bytes are 249.
    """
    kind = np.dtype(dtype)
    return np.full(shape, np.nan if kind.kind == "f" else (-7 if kind.kind == "i" else 249), kind)


def row_blocks(n_rows: int, rows_per_block: int) -> Blocks:
    """Return the boundaries 0 = c_0 < ... < c_b = n_rows of blocks of rows_per_block rows."""
    step = max(1, rows_per_block)
    boundaries = np.arange(0, n_rows + step, step, dtype=np.int64)
    boundaries[-1] = n_rows
    return boundaries


def work_blocks(cumulative: npt.NDArray[np.integer[Any]], work_per_block: int) -> Blocks:
    """Return the boundaries of blocks of rows with about equal work.

    cumulative (n + 1,) holds the work of all rows before each row, such as the indptr of a CSR
    matrix. Each row counts as one more unit of work, so that empty rows are also divided among
    blocks. The boundaries depend only on the data, never on the number of threads.
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
    """For every target, return the first row i for which cumulative[i] + i reaches the target."""
    # The rows for all targets are found by bisection at once, which reads few rows. An array of
    # cumulative + i would take 2 ms per 400,000 rows.
    low, high = np.zeros_like(targets), np.full_like(targets, len(cumulative) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        is_below = cumulative[middle] + middle < targets
        low, high = np.where(is_below, middle + 1, low), np.where(is_below, high, middle)
    return low


def run(
    rows_kernel: Callable[..., None],
    blocks: Blocks,
    *arrays: Any,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Call rows_kernel(lo, hi, *arrays) for the rows between consecutive boundaries in blocks.

    The result must not depend on the order of the blocks. A single block runs in the calling
    thread, and so does every call from inside a block. A Python function runs on the pool even if
    the backend is prange. progress(done, total) is called in the calling thread with numbers of
    rows; an error that progress raises stops the call.
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
        # bind looks up the code for these types once for the call, instead of once per block.
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


def call(rows_kernel: Kernel, kinds: Hashable, lo: int, hi: int, *arrays: Any) -> None:
    """Run a kernel on one block of rows in the calling thread, with less overhead than run.

    kinds is a key for the types of the arrays; two calls with equal kinds must pass equal types.
    """
    rows_kernel.call(kinds, lo, hi, *arrays)


class _Job:
    """The blocks of one call, which the calling thread and the helping threads take one by one."""

    def __init__(self, function: Callable[..., None], arguments: Any, blocks: Blocks) -> None:
        self._function, self._arguments = function, arguments
        self._waiting_blocks = list(itertools.pairwise(blocks.tolist()))[::-1]
        self._total = int(blocks[-1] - blocks[0])
        self._done = 0
        self._running = 0  # blocks that helping threads run
        self._error: BaseException | None = None
        # _lock protects the four fields above. _busy is held while a helping thread runs blocks.
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
        finally:  # no block may still run afterwards, not even after KeyboardInterrupt
            _inside.busy = was_inside
            self._stop()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # the traceback of the error holds this frame, and the frame the arrays

    def _report(self, progress: Progress | None) -> None:
        if progress is not None and self._error is None:
            progress(self._done, self._total)

    def _help(self) -> None:
        """Run blocks in a helping thread until all blocks are taken."""
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
        """Run one block; after an error, discard the blocks that no thread has taken."""
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
        """Wait until no helping thread is running a block, at most `seconds` (-1: no limit).

        The method returns whether no helping thread is running a block.
        """
        # This condition is tested before `acquire`, because an interrupt between acquire and
        # release leaves _busy held although no block runs. If signals restart system calls, as they
        # do after an import of polars, every interrupt arrives between the two.
        with self._lock:
            if self._running == 0:
                return True
        if not self._busy.acquire(timeout=seconds):
            return False
        self._busy.release()
        return True

    def _stop(self) -> None:
        """Discard blocks that no thread has taken; wait for running blocks, even after Ctrl-C."""
        interrupt = None
        ended = False
        while not ended:
            try:
                with self._lock:
                    self._waiting_blocks.clear()
                ended = self._has_ended(-1)
            except KeyboardInterrupt as raised:
                interrupt = raised
        self._arguments = ()  # a task in the queue still refers to this job, and so to the arrays
        if interrupt is not None:
            raise interrupt


def _submit(task: Callable[[], None], copies: int, size: int) -> None:
    """Start threads until the pool has size - 1 of them, and queue copies of a task for them."""
    state = _state
    if state.n_threads < size - 1:
        with state.lock:
            try:
                while state.n_threads < size - 1:
                    name = f"fastcos-{state.n_threads}"
                    threading.Thread(target=_work, args=[state], name=name, daemon=True).start()
                    state.n_threads += 1
            except RuntimeError:  # no thread can be started, for example while the interpreter ends
                pass
    for _ in range(copies if state.n_threads else 0):
        state.tasks.put(task)


def _work(state: _State) -> None:
    """Run tasks until the queue returns None, which ends this thread."""
    while (task := state.tasks.get()) is not None:
        task()
        task = None  # the task refers to the caller's arrays, which must be freed


def _prange_is_safe() -> bool:
    """Return whether prange runs in this process on a threading layer that allows many callers."""
    state = _state
    # On the workqueue layer, two callers that try prange at the same time would abort the process.
    with state.lock:
        if state.prange_fault is None:
            state.prange_fault = _find_prange_fault()
            if state.prange_fault:
                warnings.warn(
                    f"backend prange is not safe {state.prange_fault}; using the pool", stacklevel=4
                )
    return not state.prange_fault


def _find_prange_fault() -> str:
    # If prange has run in the parent process, trying prange could hang the forked child.
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
    """Do nothing with rows [lo, hi)."""


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
            f"backend prange must run every block, got {int((done == 0).sum())} of {len(done)} "
            "skipped; use backend pool"
        )
    if progress is not None:
        progress(int(blocks[-1] - blocks[0]), int(blocks[-1] - blocks[0]))

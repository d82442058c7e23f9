"""The threads of this process: they run serial kernels over blocks of rows.

Nothing else in fastcos starts a thread. The caller runs blocks itself, and other threads help it:
they are started on first use, wait on a queue, and belong to one process, so that a forked child
starts its own. A call has many small blocks, so that uneven rows balance, progress is reported, and
Ctrl-C takes effect when the running blocks end. After a call has raised, none of its blocks runs or
writes into the caller's arrays.
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

# seconds between reports of progress while the caller waits
_REPORT_INTERVAL = 0.1

_inside = threading.local()


class _State:
    """Locks, threads and findings of one process."""

    def __init__(self, *, is_forked: bool = False) -> None:
        self.lock, self.writer_lock = threading.Lock(), threading.RLock()
        # what the helping threads take: work, or None for the end of one of them
        self.tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.n_threads = 0
        self.is_forked = is_forked
        self.prange_fault: str | None = None  # None: not tried yet, "": safe
        # kernels that have run
        self.compiled: set[Callable[..., None]] = set()
        # locks of attributes that are being made, by object and name, and how many threads use each
        self.attributes: dict[tuple[int, str], tuple[threading.RLock, int]] = {}


_state = _State()


def reset() -> None:
    """End the threads that wait, and forget all findings."""
    global _state
    before, _state = _state, _State(is_forked=_state.is_forked)
    for _ in range(before.n_threads):
        before.tasks.put(None)


def _after_fork() -> None:
    # the parent's threads do not exist in the child, and its locks may stay held for ever
    global _state
    _state = _State(is_forked=True)
    _inside.busy = False


at_fork(after_in_child=_after_fork)


def writer_lock() -> threading.RLock:
    """Return the lock under which shared objects are changed: one writer per process."""
    return _state.writer_lock


@contextlib.contextmanager
def attribute_lock(owner: object, name: str) -> Iterator[None]:
    """Hold the lock of one attribute of one object, which exists only while threads need it.

    It belongs to the state of this process: a child that is forked beside a thread that holds it
    starts without it, and does not wait for ever for a thread that it does not have.
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
    """An attribute that its method makes at first use, once: other threads wait for the first one.

    functools.cached_property holds one lock for all instances on Python 3.11, so that a child
    forked beside a thread that makes an attribute would wait for ever; later versions have no lock,
    so that eight threads that search an index at once would each pack all items.
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
        # a stored value hides this descriptor, which has no __set__
        with attribute_lock(instance, self._name):
            fields = vars(instance)
            if self._name not in fields:
                fields[self._name] = self._make(instance)
            return fields[self._name]


def unfilled(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an output array filled with a value that no kernel writes: NaN, -7 or 249."""
    kind = np.dtype(dtype)
    return np.full(shape, np.nan if kind.kind == "f" else (-7 if kind.kind == "i" else 249), kind)


def row_blocks(n_rows: int, rows_per_block: int) -> Blocks:
    """Return block boundaries 0 = c_0 < ... < c_b = n_rows, rows_per_block rows apart."""
    step = max(1, rows_per_block)
    boundaries = np.arange(0, n_rows + step, step, dtype=np.int64)
    boundaries[-1] = n_rows
    return boundaries


def work_blocks(cumulative: npt.NDArray[np.integer[Any]], work_per_block: int) -> Blocks:
    """Return boundaries of blocks with about equal work; cumulative (n + 1,) is like CSR indptr.

    A row counts as one unit besides its work, so that empty rows are split too. Boundaries depend
    on the data only, never on the number of threads.
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
    """Return for every target the first row i with cumulative[i] + i at least the target."""
    # bisection for all targets at once: an array of cumulative + i takes 2 ms per 400,000 rows
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

    The result must not depend on the order of the blocks. A single block, and every call from
    inside a block, runs in the calling thread. A Python function runs on the pool with either
    backend. progress(done, total) is called in the calling thread with numbers of rows; an error
    that it raises stops the call.
    """
    size = None if n_threads is None else validation.as_thread_count("n_threads", n_threads)
    is_alone = len(blocks) <= 2 or getattr(_inside, "busy", False)
    if is_alone:
        size = 1
    elif size is None:
        size = config.n_threads()
    function, arguments = rows_kernel, arrays
    if isinstance(rows_kernel, Kernel):
        _state.compiled.add(rows_kernel)
        if not is_alone and config.backend() == "prange" and _prange_is_safe():
            _run_prange(rows_kernel, blocks, arrays, size, progress)
            return
        # looks for the code of these types once, not in every block
        function, arguments = rows_kernel.bind(*arrays)
    if size > 1:
        _Job(function, arguments, blocks).run(size, progress)
    else:
        for lo, hi in itertools.pairwise(blocks.tolist()):
            function(lo, hi, *arguments)
            if progress is not None:
                progress(int(hi - blocks[0]), int(blocks[-1] - blocks[0]))


def call(rows_kernel: Kernel, kinds: Hashable, lo: int, hi: int, *arrays: Any) -> None:
    """Run a kernel on one block of rows in the calling thread, with less overhead than run has.

    kinds: the caller promises that arguments have the same types whenever kinds are equal.
    """
    _state.compiled.add(rows_kernel)
    rows_kernel.call(kinds, lo, hi, *arrays)


def has_run(rows_kernel: Callable[..., None]) -> bool:
    """Whether this process has run a kernel, so that it is compiled."""
    return rows_kernel in _state.compiled


class _Job:
    """The blocks of one call: the caller takes them one by one, and so does every free thread."""

    def __init__(self, function: Callable[..., None], arguments: Any, blocks: Blocks) -> None:
        self._function, self._arguments = function, arguments
        self._left = list(itertools.pairwise(blocks.tolist()))[::-1]
        self._total = int(blocks[-1] - blocks[0])
        self._done = 0
        self._running = 0  # blocks that helping threads run
        self._error: BaseException | None = None
        # of the four fields above; and held while a helping thread runs blocks
        self._lock, self._busy = threading.Lock(), threading.Lock()

    def run(self, size: int, progress: Progress | None) -> None:
        was_inside = getattr(_inside, "busy", False)
        try:
            _submit(self._help, min(size, len(self._left)) - 1, size)
            _inside.busy = True
            reported = time.monotonic()
            while (block := self._take()) is not None:
                self._run_block(*block)
                if progress is not None and time.monotonic() - reported >= _REPORT_INTERVAL:
                    reported = time.monotonic()
                    _inside.busy = was_inside
                    self._report(progress)
                    _inside.busy = True
            _inside.busy = was_inside
            while not self._has_ended(_REPORT_INTERVAL if progress is not None else -1):
                self._report(progress)
            self._report(progress)
        finally:  # also after KeyboardInterrupt
            _inside.busy = was_inside
            self._stop()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame, and this frame the arrays

    def _report(self, progress: Progress | None) -> None:
        if progress is not None and self._error is None:
            progress(self._done, self._total)

    def _help(self) -> None:
        """Run blocks in a helping thread until none is left."""
        with self._lock:
            if not self._left:
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
            return self._left.pop() if self._left else None

    def _run_block(self, lo: int, hi: int) -> None:
        """Run one block; an error removes the other blocks."""
        try:
            self._function(lo, hi, *self._arguments)
        except BaseException as raised:
            with self._lock:
                self._error = self._error or raised
                self._left.clear()
            return
        with self._lock:
            self._done += hi - lo

    def _has_ended(self, seconds: float) -> bool:
        """Whether no helping thread runs a block, after seconds at most; -1 waits for that."""
        # an interrupt between acquire and release leaves the lock held, once no block runs;
        # every one comes there if signals restart system calls, as after an import of polars
        with self._lock:
            if self._running == 0:
                return True
        if not self._busy.acquire(timeout=seconds):
            return False
        self._busy.release()
        return True

    def _stop(self) -> None:
        """Start no further block and wait for those that run, even through another Ctrl-C."""
        interrupt = None
        ended = False
        while not ended:
            try:
                with self._lock:
                    self._left.clear()
                ended = self._has_ended(-1)
            except KeyboardInterrupt as raised:
                interrupt = raised
        self._arguments = ()  # a task that no thread has taken yet holds this job
        if interrupt is not None:
            raise interrupt


def _submit(task: Callable[[], None], copies: int, size: int) -> None:
    """Give copies of task to helping threads, of which there are at least size - 1 if possible."""
    state = _state
    if state.n_threads < size - 1:
        with state.lock:
            try:
                while state.n_threads < size - 1:
                    name = f"fastcos-{state.n_threads}"
                    threading.Thread(target=_work, args=[state], name=name, daemon=True).start()
                    state.n_threads += 1
            except RuntimeError:  # no thread can be started, as when the interpreter ends
                pass
    for _ in range(copies if state.n_threads else 0):
        state.tasks.put(task)


def _work(state: _State) -> None:
    """Run tasks until there is one that ends this thread."""
    while (task := state.tasks.get()) is not None:
        task()
        task = None  # it holds the arrays of the caller


def _prange_is_safe() -> bool:
    """Whether a trial in this process has run prange on a layer that allows several callers."""
    state = _state
    with state.lock:  # two first callers at once would abort the process on the workqueue layer
        if state.prange_fault is None:
            state.prange_fault = _find_prange_fault()
            if state.prange_fault:
                warnings.warn(
                    f"backend prange is not safe {state.prange_fault}; using the pool", stacklevel=4
                )
    return not state.prange_fault


def _find_prange_fault() -> str:
    if _state.is_forked:  # the layer may have run in the parent: a trial could hang the child
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

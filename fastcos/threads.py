"""The threads of this process: one bounded pool that runs serial kernels over blocks of rows.

Nothing else in fastcos starts a thread. The pool is made on first use and belongs to one process:
a forked child makes its own. A caller's blocks are many and small, so skewed rows balance, progress
can be told, and Ctrl-C is answered when the running blocks end. When a call raises, no block of it
runs any more: nothing writes into the caller's arrays later.
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import config as numba_config
from numba import set_num_threads, threading_layer

from fastcos import config
from fastcos.kernels.jit import kernel, prange_driver

Progress = Callable[[int, int], object]
Cuts = npt.NDArray[np.int64]

# how often the waiting caller looks up to tell progress
_TICK = 0.1

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_inside = threading.local()
_prange_pid: int | None = None


def _forget() -> None:
    """Start anew in a forked child: the parent's threads are gone, its lock may stay held."""
    global _lock, _pool, _pool_size
    _lock, _pool, _pool_size = threading.Lock(), None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def poisoned(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an output array filled with a value that no kernel writes: NaN, -7 or 249."""
    kind = np.dtype(dtype)
    return np.full(shape, np.nan if kind.kind == "f" else (-7 if kind.kind == "i" else 249), kind)


def cuts_by_rows(n_rows: int, rows_per_block: int) -> Cuts:
    """Return cuts 0 = c_0 < ... < c_b = n_rows with rows_per_block rows between them."""
    return np.append(np.arange(0, n_rows, max(1, rows_per_block)), n_rows).astype(np.int64)


def cuts_by_work(cumulative: npt.NDArray[np.integer[Any]], work_per_block: int) -> Cuts:
    """Return cuts of rows with about equal work; cumulative (n + 1,) is like a CSR's indptr.

    A row counts as one unit besides its work, so that empty rows are cut too. Depends on the data
    only, never on the number of threads.
    """
    n = len(cumulative) - 1
    total = int(cumulative[-1]) + n
    blocks = max(1, -(-total // max(1, work_per_block)))
    targets = np.arange(1, blocks, dtype=np.int64) * total // blocks
    inner = np.searchsorted(cumulative + np.arange(n + 1), targets)
    return np.unique(np.concatenate([[0], inner, [n]])).astype(np.int64)


def run(
    rows_kernel: Callable[..., None],
    cuts: Cuts,
    *arrays: Any,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Call rows_kernel(lo, hi, *arrays) for every block of rows between consecutive cuts.

    The answer must not depend on the order of the blocks. A single block, and every call from
    inside a block, runs in the calling thread. progress(done, total) is called in the calling
    thread with numbers of rows.
    """
    blocks = list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
    size = config.num_threads() if n_threads is None else n_threads
    if len(blocks) > 1 and config.backend() == "prange" and _prange_is_safe():
        _run_prange(rows_kernel, cuts, arrays, size, progress)
    elif len(blocks) <= 1 or size == 1 or getattr(_inside, "busy", False):
        _Job(rows_kernel, blocks, arrays).work_alone(progress)
    else:
        _Job(rows_kernel, blocks, arrays).work_together(size, progress)


class _Job:
    """The blocks of one call, taken one by one by whoever is free."""

    def __init__(
        self, rows_kernel: Callable[..., None], blocks: list[tuple[int, int]], arrays: Any
    ) -> None:
        self._kernel, self._arrays = rows_kernel, arrays
        self._left: Iterator[tuple[int, int]] = iter(blocks)
        self._taking = threading.Lock()
        self._stopped = False
        self._n_blocks = len(blocks)
        self._total = blocks[-1][1] - blocks[0][0] if blocks else 0
        self._done = 0

    def _take(self) -> tuple[int, int] | None:
        with self._taking:
            return None if self._stopped else next(self._left, None)

    def _drain(self) -> None:
        """Run blocks until none is left; the first error stops everybody."""
        _inside.busy = True
        try:
            while (block := self._take()) is not None:
                self._kernel(block[0], block[1], *self._arrays)
                with self._taking:
                    self._done += block[1] - block[0]
        except BaseException:
            self._stopped = True
            raise
        finally:
            _inside.busy = False

    def work_alone(self, progress: Progress | None) -> None:
        while (block := self._take()) is not None:
            self._kernel(block[0], block[1], *self._arrays)
            self._done += block[1] - block[0]
            if progress is not None:
                progress(self._done, self._total)

    def work_together(self, size: int, progress: Progress | None) -> None:
        workers = _submit(self._drain, min(size, self._n_blocks), size)
        try:
            pending: set[Future[None]] = set(workers)
            while pending:
                _, pending = wait(pending, timeout=_TICK)
                if progress is not None:
                    progress(self._done, self._total)
            for worker in workers:
                worker.result()
        except BaseException:  # KeyboardInterrupt too
            self._stopped = True
            for worker in workers:
                worker.cancel()
            _wait_for_running(workers)
            raise


def _wait_for_running(workers: list[Future[None]]) -> None:
    """Wait until no block of the call runs, even through a second Ctrl-C."""
    while not all(worker.done() for worker in workers):
        try:
            wait(workers)
        except KeyboardInterrupt:
            continue


def _submit(task: Callable[[], None], copies: int, size: int) -> list[Future[None]]:
    """Hand copies of task to the pool, which has at least size threads."""
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < size:
            old, _pool = _pool, ThreadPoolExecutor(size, thread_name_prefix="fastcos")
            _pool_size = size
            if old is not None:
                old.shutdown(wait=False)
        return [_pool.submit(task) for _ in range(copies)]


def _prange_is_safe() -> bool:
    """Whether this very process has seen prange run on a layer that survives several callers."""
    global _prange_pid
    if _prange_pid == os.getpid():
        return True
    if _prange_pid is None:
        done = np.zeros(1, np.uint8)
        prange_driver(_nothing)(np.array([0, 1], np.int64), done)
        layer = threading_layer()
        if done.all() and layer in ("omp", "tbb"):
            _prange_pid = os.getpid()
            return True
        _prange_pid = -1
        warnings.warn(
            f"backend prange is not safe on the {layer} layer; using the pool", stacklevel=4
        )
    return False


@kernel
def _nothing(lo, hi):  # type: ignore[no-untyped-def]
    """Do nothing with rows [lo, hi)."""


def _run_prange(
    rows_kernel: Callable[..., None], cuts: Cuts, arrays: Any, size: int, progress: Progress | None
) -> None:
    done = np.zeros(len(cuts) - 1, np.uint8)
    set_num_threads(min(size, numba_config.NUMBA_NUM_THREADS))
    prange_driver(rows_kernel)(cuts, done, *arrays)
    if not done.all():
        raise RuntimeError(
            f"backend prange must run every block, got {int((done == 0).sum())} of {len(done)} "
            "skipped; use backend pool"
        )
    if progress is not None:
        progress(int(cuts[-1]), int(cuts[-1]))

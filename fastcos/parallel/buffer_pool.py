"""Buffer pool: the memory of a large array is reused once its last view is gone.

The system clears every page that it hands out: two fifths of the time of X A with 64 columns
(bench/lab/curves.py). So the pool holds a few freed blocks, which together fit working_memory,
and the next array of about that size gets one. MADV_FREE lets the system take the pages meanwhile,
as allocators like jemalloc do. Where there is no such call, arrays are NumPy's.
"""

import collections
import ctypes
import math
import mmap
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import config

# bytes
CACHE_LINE = 64
# bytes
_HUGE_PAGE = 2**21
# bytes from which arrays are pooled: NumPy requests huge pages from there on
_LARGE = 2**22
# freed blocks held at most; together they fit working_memory
MAX_HELD = 4
# advice to the system that it may take a block's pages; None where there is no such call
MADV_FREE = getattr(mmap, "MADV_FREE", None)

_held: collections.deque["_Block"] = collections.deque(maxlen=MAX_HELD)


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return uninitialised memory that starts at a cache line, or if it is large at a huge page.

    A vector across two lines costs two accesses: 1.4x in X A with 64 columns
    (bench/lab/curves.py).
    """
    return empty_or_used(shape, dtype)[0]


def empty_or_used(shape: tuple[int, ...], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], bool]:
    """Return what empty returns, and whether the memory was that of an earlier array."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    used = None
    if size < _LARGE or MADV_FREE is None:
        memory = _starting_at(CACHE_LINE, size)
    else:
        used = _take(size)
        block = used or _Block(size)
        # views refer to this array, which is no view of the block's: it is freed with the last one
        memory = np.frombuffer(block.memory.data, np.uint8)
        weakref.finalize(memory, block.release).atexit = False
        memory = memory[:size]
    return memory.view(kind).reshape(shape), used is not None


def release() -> None:
    """Free the held blocks: for measurements of what a call needs."""
    _held.clear()


class _Block:
    """Whole huge pages."""

    def __init__(self, size: int) -> None:
        self.memory = _starting_at(_HUGE_PAGE, -(-size // _HUGE_PAGE) * _HUGE_PAGE)

    def release(self) -> None:
        """Offer the pages to the system, and the block to the next array.

        A finaliser runs in any thread at any time and must not wait for a lock: a deque needs none.
        """
        if self.memory.nbytes * MAX_HELD > config.working_memory() * 2**20:
            return
        start = ctypes.c_void_p(self.memory.ctypes.data)
        size = ctypes.c_size_t(self.memory.nbytes)
        if ctypes.CDLL(None).madvise(start, size, MADV_FREE) == 0:
            _held.append(self)


def _take(size: int) -> _Block | None:
    """Return the first held block of at least size bytes and at most twice that."""
    for _ in range(len(_held)):
        try:
            block = _held.popleft()
        except IndexError:  # another thread was faster
            return None
        if size <= block.memory.nbytes <= 2 * size:
            return block
        _held.append(block)
    return None


def _starting_at(boundary: int, size: int) -> npt.NDArray[np.uint8]:
    memory = np.empty(size + boundary, np.uint8)
    skip = -memory.ctypes.data % boundary
    return memory[skip : skip + size]

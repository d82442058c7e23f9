"""Memory of large arrays, handed out again when nobody holds the array any more.

A system clears every page that it hands out, and gets a freed array's pages back: two fifths of
the time of X A with 64 columns. So the memory of a large result is kept when its last view is gone,
and the next array of about that size gets it: a few blocks, which together fit working_memory.
Meanwhile MADV_FREE lets the system take the pages when it needs them, unasked, as allocators like
jemalloc do. Where there is no such call, memory is NumPy's as always.
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

CACHE_LINE = 64
_HUGE_PAGE = 2**21
# from here on NumPy asks Linux for huge pages
_LARGE = 2**22
_MOST_KEPT = 4
_FREE_FOR_THE_TAKING = getattr(mmap, "MADV_FREE", None)

_kept: collections.deque["_Block"] = collections.deque(maxlen=_MOST_KEPT)


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return uninitialised memory that starts at a cache line, or if it is large at a huge page.

    A vector across two lines costs two accesses: 1.4x in X A with 64 columns.
    """
    return empty_or_used(shape, dtype)[0]


def empty_or_used(shape: tuple[int, ...], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], bool]:
    """Return what empty returns, and whether it was that of an earlier array."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    used = None
    if size < _LARGE or _FREE_FOR_THE_TAKING is None:
        memory = _starting_at(CACHE_LINE, size)
    else:
        used = _taken(size)
        block = used or _Block(size)
        # views refer to this array, which is no view of the block's: it goes when the last one goes
        memory = np.frombuffer(block.memory.data, np.uint8)
        weakref.finalize(memory, block.keep).atexit = False
        memory = memory[:size]
    return memory.view(kind).reshape(shape), used is not None


def release() -> None:
    """Give kept memory back: for measurements of what a call needs."""
    _kept.clear()


class _Block:
    """Whole huge pages."""

    def __init__(self, size: int) -> None:
        self.memory = _starting_at(_HUGE_PAGE, -(-size // _HUGE_PAGE) * _HUGE_PAGE)

    def keep(self) -> None:
        """Leave the pages to the system, and the block to the next array.

        A finaliser runs in any thread at any time and may wait for no lock: a deque needs none.
        """
        if self.memory.nbytes * _MOST_KEPT > config.working_memory() * 2**20:
            return
        start = ctypes.c_void_p(self.memory.ctypes.data)
        size = ctypes.c_size_t(self.memory.nbytes)
        if ctypes.CDLL(None).madvise(start, size, _FREE_FOR_THE_TAKING) == 0:
            _kept.append(self)


def _taken(size: int) -> _Block | None:
    """Return the first kept block that is large enough and not twice as large as that."""
    for _ in range(len(_kept)):
        try:
            block = _kept.popleft()
        except IndexError:  # another thread was faster
            return None
        if size <= block.memory.nbytes <= 2 * size:
            return block
        _kept.append(block)
    return None


def _starting_at(boundary: int, size: int) -> npt.NDArray[np.uint8]:
    memory = np.empty(size + boundary, np.uint8)
    skip = -memory.ctypes.data % boundary
    return memory[skip : skip + size]

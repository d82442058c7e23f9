"""Buffer pool: the memory of a large array is reused after its last view has been freed.

The system clears every new page, which takes about 40% of the time of a product X A with 64
columns (bench/lab/curves.py). Therefore the pool keeps a few freed blocks, which together fit into
working_memory, and the next array of about the same size gets one of them. With MADV_FREE, the
system may take back the pages of a freed block until the block is used again, as in allocators like
jemalloc. On systems without MADV_FREE, every array is a new array of NumPy.
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

# The sizes of a cache line and of a huge page in bytes.
CACHE_LINE = 64
_HUGE_PAGE = 2**21
# Memory is reused for arrays of at least this many bytes, because NumPy requests huge pages for
# arrays of this size.
_LARGE = 2**22
# The largest number of freed blocks that the pool keeps; together they fit into working_memory.
MAX_FREE_BLOCKS = 4
# The advice to madvise that the system may take the pages of a block; None on systems without this
# advice.
MADV_FREE = getattr(mmap, "MADV_FREE", None)

_free_blocks: collections.deque["_Block"] = collections.deque(maxlen=MAX_FREE_BLOCKS)


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an uninitialised array that starts at a cache line, or at a huge page if it is large.

    A vector that crosses a cache line takes two accesses to read. Without alignment, X A with 64
    columns takes 1.4 times as long as with alignment (bench/lab/curves.py).
    """
    return empty_or_used(shape, dtype)[0]


def empty_or_used(shape: tuple[int, ...], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], bool]:
    """Return an array as `empty` does, and whether its memory belonged to an earlier array."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    reused = None
    if size < _LARGE or MADV_FREE is None:
        memory = _starting_at(CACHE_LINE, size)
    else:
        reused = _take(size)
        block = reused or _Block(size)
        # Views refer to this array, which does not refer to the array of the block. Therefore this
        # array is freed with the last view, and its finaliser then releases the block.
        memory = np.frombuffer(block.memory.data, np.uint8)
        weakref.finalize(memory, block.release).atexit = False
        memory = memory[:size]
    return memory.view(kind).reshape(shape), reused is not None


def release() -> None:
    """Free the blocks that the pool keeps, so that the memory of one call can be measured."""
    _free_blocks.clear()


class _Block:
    """A block of memory of whole huge pages."""

    def __init__(self, size: int) -> None:
        self.memory = _starting_at(_HUGE_PAGE, -(-size // _HUGE_PAGE) * _HUGE_PAGE)

    def release(self) -> None:
        """Allow the system to take the pages of this block, and keep the block for the next array.

        A finaliser may run in any thread at any time, so it must not wait for a lock. The pool is a
        deque, which needs no lock.
        """
        if self.memory.nbytes * MAX_FREE_BLOCKS > config.working_memory() * 2**20:
            return
        start = ctypes.c_void_p(self.memory.ctypes.data)
        size = ctypes.c_size_t(self.memory.nbytes)
        if ctypes.CDLL(None).madvise(start, size, MADV_FREE) == 0:
            _free_blocks.append(self)


def _take(size: int) -> _Block | None:
    """Return the first free block of at least size and at most 2 * size bytes, or None."""
    for _ in range(len(_free_blocks)):
        try:
            block = _free_blocks.popleft()
        except IndexError:  # another thread was faster
            return None
        if size <= block.memory.nbytes <= 2 * size:
            return block
        _free_blocks.append(block)
    return None


def _starting_at(boundary: int, size: int) -> npt.NDArray[np.uint8]:
    memory = np.empty(size + boundary, np.uint8)
    skip = -memory.ctypes.data % boundary
    return memory[skip : skip + size]

"""A buffer pool, which reuses the memory of a large array after its last view has been freed.

The operating system fills every new page of memory with zeros before a process can use it. In a
product X A of a sparse matrix X and a matrix A with 64 columns, filling the pages of the result
with zeros takes about 40% of the time (bench/lab/curves.py). Therefore the pool keeps a few freed
blocks of memory, and places the next array of about the same size in one of these blocks. The freed
blocks in the pool together take at most ``working_memory``. The pool marks freed blocks with
``MADV_FREE``, as allocators such as jemalloc do, so that the operating system can take back their
pages.
On systems without ``MADV_FREE``, every array is placed in new memory.
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
# An array of at least this many bytes is placed in a block of the pool, because NumPy requests huge
# pages for arrays of this size.
_LARGE = 2**22
# The pool keeps at most this number of freed blocks, and all of them together must fit into
# working_memory.
MAX_FREE_BLOCKS = 4
# If madvise is called with this argument, the system may take back the pages of a block. MADV_FREE
# is None on systems that do not support this argument.
MADV_FREE = getattr(mmap, "MADV_FREE", None)

_free_blocks: collections.deque["_Block"] = collections.deque(maxlen=MAX_FREE_BLOCKS)


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an uninitialised array that starts at a cache line, or at a huge page if it is large.

    Reading a vector register that crosses the boundary of a cache line takes two accesses. The
    product of a sparse matrix and a dense matrix with 64 columns takes 1.4 times as long if the
    arrays do not start at a cache line (bench/lab/curves.py).
    """
    return empty_or_used(shape, dtype)[0]


def empty_or_used(shape: tuple[int, ...], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], bool]:
    """Return an array like `empty`, and whether an earlier array has already used its memory."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    reused = None
    if size < _LARGE or MADV_FREE is None:
        memory = _starting_at(CACHE_LINE, size)
    else:
        reused = _take(size)
        block = reused or _Block(size)
        # The block must return to the pool when the caller no longer uses its memory. Every view
        # that the caller makes therefore refers to the array `memory`, and not to `block.memory`.
        # When the last view is freed, `memory` is freed, too, and the finaliser of `memory` returns
        # the block to the pool.
        memory = np.frombuffer(block.memory.data, np.uint8)
        weakref.finalize(memory, block.release).atexit = False
        memory = memory[:size]
    return memory.view(kind).reshape(shape), reused is not None


def release() -> None:
    """Free all blocks in the pool, for example before the memory of a call is measured."""
    _free_blocks.clear()


class _Block:
    """A block of memory that consists of whole huge pages."""

    def __init__(self, size: int) -> None:
        self.memory = _starting_at(_HUGE_PAGE, -(-size // _HUGE_PAGE) * _HUGE_PAGE)

    def release(self) -> None:
        """Return this block to the pool; the operating system may then take back its pages.

        A finaliser calls this method, in any thread and at any time, so it must not wait for a
        lock. The pool is a deque, whose methods are thread-safe without a lock.
        """
        if self.memory.nbytes * MAX_FREE_BLOCKS > config.working_memory() * 2**20:
            return
        start = ctypes.c_void_p(self.memory.ctypes.data)
        size = ctypes.c_size_t(self.memory.nbytes)
        if ctypes.CDLL(None).madvise(start, size, MADV_FREE) == 0:
            _free_blocks.append(self)


def _take(size: int) -> _Block | None:
    """Return a free block that has from `size` to 2 * `size` bytes, or None if there is none."""
    for _ in range(len(_free_blocks)):
        try:
            block = _free_blocks.popleft()
        except IndexError:  # another thread has taken the last block
            return None
        if size <= block.memory.nbytes <= 2 * size:
            return block
        _free_blocks.append(block)
    return None


def _starting_at(boundary: int, size: int) -> npt.NDArray[np.uint8]:
    memory = np.empty(size + boundary, np.uint8)
    skip = -memory.ctypes.data % boundary
    return memory[skip : skip + size]

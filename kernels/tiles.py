"""Tiles of 32 items and 32 queries: what their scores have to reach, and the memory they need.

``simd.tile_scores`` computes the scores of a tile, ``simd.hits`` lists those that reach their
query's threshold, and ``simd.panel`` describes the layout of both sides.
"""

import numpy as np

from .jit import DISABLE_JIT, kernel

# vector IR needs the compiler: without it, callers score every pair
AVAILABLE = not DISABLE_JIT
# columns up to which a sum of products of -127 .. 127 and 1 .. 255 fits in int32
MOST_CODES = 65_000


def configuration():
    """Configuration of the 8 tile registers, (64,) uint8: 16 rows of 64 bytes each, palette 1."""
    shape = np.zeros(64, np.uint8)
    shape[0] = 1
    # bytes of a row are uint16 from 16 on, rows are bytes from 48 on
    shape[16:32:2], shape[48:56] = 64, 16
    return shape


@kernel
def aligned_empty(size, like):
    """Uninitialised array (size,) of like's dtype, aligned to a cache line.

    A 64-byte load that crosses a cache line costs two: unaligned, a scan by AMX tiles takes 1.5
    times as long.
    """
    memory = np.empty(size + 64, like.dtype)
    skip = -memory.ctypes.data % 64 // memory.itemsize
    return memory[skip : skip + size]

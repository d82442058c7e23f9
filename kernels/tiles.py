"""Tiles of 32 items and 32 queries: how large their scores may become, and their memory.

``simd.tile_scores`` computes the scores of a tile, ``simd.hits`` lists the scores that reach the
threshold of their query, and ``simd.panel`` describes the layout of packed items and queries.
"""

import numpy as np

from .jit import DISABLE_JIT, kernel

# Tiled kernels consist of vector IR, which must be compiled. If compilation is disabled, callers
# score every pair instead.
AVAILABLE = not DISABLE_JIT
# Up to this many columns, a sum of products of numbers in -127 .. 127 and 1 .. 255 fits in int32.
MOST_CODES = 65_000


def configuration():
    """Return the configuration (64,) uint8, in palette 1, of 8 tile registers of 16 x 64 bytes."""
    shape = np.zeros(64, np.uint8)
    shape[0] = 1
    # In the tile configuration, the numbers of bytes per row of the tiles begin at byte 16 (one
    # uint16 per tile), and the numbers of rows of the tiles begin at byte 48 (one uint8 per tile).
    shape[16:32:2], shape[48:56] = 64, 16
    return shape


@kernel
def aligned_empty(size, like):
    """Return an uninitialised array (size,) of the dtype of `like`, aligned to a cache line.

    A 64-byte load that crosses a cache line takes as long as two loads. A scan by AMX tiles takes
    1.5 times as long with unaligned arrays as with aligned arrays.
    """
    memory = np.empty(size + 64, like.dtype)
    skip = -memory.ctypes.data % 64 // memory.itemsize
    return memory[skip : skip + size]


@kernel
def numbers_below(n):
    """Return the numbers from 0 to n - 1, (n,) int64; Numba takes 0.2 s to compile np.arange."""
    numbers = np.empty(n, np.int64)
    for i in range(n):
        numbers[i] = i
    return numbers

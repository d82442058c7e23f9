"""Limits and memory of the tiles: a tile holds the scores of 32 items with 32 queries.

``simd.tile_scores`` computes the scores of a tile, ``simd.hits`` lists the scores that reach the
threshold of their query, and ``simd.panel`` describes the layout of packed items and queries.
"""

import numpy as np

from .jit import DISABLE_JIT, kernel

# Tiled kernels consist of vector instructions that must be compiled. If the compilation of kernels
# is disabled, callers of this module score every pair instead.
AVAILABLE = not DISABLE_JIT
# Rows with more columns than this are not packed as codes. A query code lies between -127 and 127,
# and an item code plus 128 lies between 1 and 255. With at most this many columns, the sum of the
# products of two rows fits in int32.
MAX_CODED_COLUMNS = 65_000


def configuration():
    """Return the configuration of the 8 AMX tile registers: each has 16 rows of 64 bytes.

    The result is an array (64,) uint8 in the format that the AMX instruction ldtilecfg reads.
    """
    content = np.zeros(64, np.uint8)
    # Byte 0 is the number of the palette; palette 1 has 8 tile registers. An array that starts at
    # byte 16 contains, for each tile, the number of bytes per row (uint16). An array that starts at
    # byte 48 contains, for each tile, the number of rows (uint8).
    content[0] = 1
    content[16:32:2], content[48:56] = 64, 16
    return content


@kernel
def aligned_empty(size, like):
    """Return an uninitialised array (size,) of the dtype of `like`, aligned to a cache line.

    A 64-byte load that crosses a cache line takes as long as two loads. A search with AMX tiles
    takes 1.5 times as long with unaligned arrays as with aligned arrays.
    """
    memory = np.empty(size + 64, like.dtype)
    skip = -memory.ctypes.data % 64 // memory.itemsize
    return memory[skip : skip + size]


@kernel
def numbers_below(n):
    """Return the numbers from 0 to n - 1 as an int64 array.

    The function replaces np.arange, because Numba takes 0.2 s to compile np.arange.
    """
    numbers = np.empty(n, np.int64)
    for i in range(n):
        numbers[i] = i
    return numbers

"""The decorators of every kernel, and the compiled parallel loop over them."""

import functools

import numba
from numba import prange

from .code_cache import CodeCache

SCREEN_FLAGS = {"contract", "reassoc", "nsz"}


def _compiled(function, **flags):
    dispatcher = numba.njit(nogil=True, **flags)(function)
    if not numba.config.DISABLE_JIT:
        dispatcher._cache = CodeCache(function)
    return dispatcher


def kernel(function):
    """Compile with the written order of operations: the bits of the answer are promised."""
    return _compiled(function)


def screen_kernel(function):
    """Compile for speed where only candidates are chosen; NaN keeps its meaning."""
    return _compiled(function, fastmath=SCREEN_FLAGS)


@functools.cache
def prange_driver(rows_kernel):
    """One compiled parallel loop over blocks of rows_kernel: driver(cuts, done, *arrays).

    done (blocks,) uint8 is set to 1 per finished block. The layers under prange can return without
    having run the loop; the caller must look at done. Not kept on disk: it is opt-in and small.
    """

    @numba.njit(parallel=True, nogil=True)
    def driver(cuts, done, *arrays):
        for block in prange(cuts.shape[0] - 1):
            rows_kernel(cuts[block], cuts[block + 1], *arrays)
            done[block] = 1

    return driver

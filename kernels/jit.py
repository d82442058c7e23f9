"""The decorators of every kernel, and the compiled parallel loop over them."""

import functools

import numba
from numba import prange

from .code_cache import CodeCache

SCREEN_FLAGS = {"contract", "reassoc", "nsz"}


def _compiled(function, **flags):
    if function.__name__.startswith("_"):
        # for kernels only: they need no entry from Python
        flags |= {"no_cpython_wrapper": True}
    # nothing enters a kernel from C: a twentieth of the first audit
    dispatcher = numba.njit(nogil=True, no_cfunc_wrapper=True, **flags)(function)
    if not numba.config.DISABLE_JIT:
        dispatcher._cache = CodeCache(function)
    return dispatcher


def kernel(function):
    """Compile with the written order of operations: the bits of the answer are promised."""
    return _compiled(function)


def screen_kernel(function):
    """Compile for speed where only candidates are chosen; NaN keeps its meaning."""
    return _compiled(function, fastmath=SCREEN_FLAGS)


def prange_driver(rows_kernel):
    """One compiled parallel loop over blocks of rows_kernel: driver(cuts, done, *arrays).

    done (blocks,) uint8 is set to 1 per finished block. The layers under prange can return without
    having run the loop; the caller must look at done. Not kept on disk: it is opt-in and small.
    """

    def driver(cuts, done, *arrays):
        _compiled_driver(rows_kernel, _structure(arrays))(cuts, done, *_flattened(arrays))

    return driver


@functools.cache
def _compiled_driver(rows_kernel, structure):
    rebuild, _ = _rebuilder(structure, 0)

    @numba.njit(parallel=True, nogil=True)
    def driver(cuts, done, *flat):
        for block in prange(cuts.shape[0] - 1):
            rows_kernel(cuts[block], cuts[block + 1], *rebuild(flat))
            done[block] = 1

    return driver


def _structure(value):
    """The nesting of tuples in value: a parallel loop takes arrays and numbers only."""
    if isinstance(value, tuple):
        return type(value), *map(_structure, value)
    return None


def _flattened(value):
    leaves, left = [], [value]
    while left:
        value = left.pop()
        if isinstance(value, tuple):
            left.extend(reversed(value))
        else:
            leaves.append(value)
    return leaves


def _rebuilder(structure, first):
    """Compiled function from the flat arguments to the value that starts at `first`; its end."""
    if structure is None:
        return numba.njit(lambda flat: flat[first]), first + 1
    return _tuple_rebuilder(structure, first)


def _tuple_rebuilder(structure, first):
    kind, *parts = structure
    rebuild, end = numba.njit(lambda flat: ()), first
    for part in parts:
        build, end = _rebuilder(part, end)
        rebuild = _appended(rebuild, build)
    if kind is tuple:
        return rebuild, end
    return numba.njit(lambda flat: kind(*rebuild(flat))), end


def _appended(some, one):
    return numba.njit(lambda flat: (*some(flat), one(flat)))

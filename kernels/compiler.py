"""The code of this package that needs Numba: compilation, intrinsics, and the loop over blocks.

This module is imported only when the first kernel is compiled or loaded from the cache, because
importing Numba takes 0.3 s. ``numba_internals`` uses the undocumented parts of Numba, such as its
cache.
"""

import contextlib
import functools
import gc
import os
import sys
import threading
import time
from pathlib import Path

import numba
import numpy.ma  # noqa: F401  Numba imports it at a first call: a fork beside that would hang
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from .numba_internals import (
    address_of,
    code_without_type_checks as code_without_type_checks,
    compiler_lock,
    dispatcher_of,
    emit_call,
    emit_call_at,
    inner_dispatcher_of,
    turn_to_compile,
    type_of_dispatcher as type_of_dispatcher,
    type_of_intrinsic as type_of_intrinsic,
    uncompiled,
)

# The number of bytes of memory that must be free when a compilation starts. If LLVM cannot allocate
# memory, it ends the process. Compiling the search kernel for rows of 64 columns takes 144 MiB.
_COMPILER_BYTES = 2**28
# The number of new objects after which Python collects garbage during a compilation. A compilation
# creates many objects. With this number, a compilation takes 8 % less time and 40 MiB more memory
# than with Python's default. Without any garbage collection, a compilation would take 12 % less
# time and 220 MiB more memory.
_OBJECTS_PER_COLLECTION = 50_000
# The lock under which kernels are created, because several threads may need the same new kernel.
lock = threading.RLock()


def hold():
    """Wait until no thread is compiling a kernel, and keep all threads from starting to compile."""
    compiler_lock.acquire()
    lock.acquire()


def release():
    """Let threads compile kernels again, after hold()."""
    lock.release()
    compiler_lock.release()


def compiled(function, flags):
    """Return Numba's dispatcher of a function; a call of the dispatcher loads or compiles code."""
    return dispatcher_of(function, flags, _compile_in_turn)


def compiled_for_kernels(function, flags):
    """Return the dispatcher of a function that other kernels call."""
    return inner_dispatcher_of(function, flags) or compiled(function, flags)


def _compile_in_turn(dispatcher, compile_here, signature):
    """Load the code of a signature, or compile it; no two processes compile it at once.

    While the process waits for another process, it does not hold Numba's lock, so that other
    threads can fork or compile. A process that holds the lock of one signature never waits for the
    lock of another signature, so two processes never wait for each other.
    """
    with (
        turn_to_compile(dispatcher, signature) as must_compile,
        compiler_lock,
        _fewer_collections(),
    ):
        if not must_compile:
            return compile_here(signature)
        _check_address_space()
        with stopwatch:
            return compile_here(signature)


@contextlib.contextmanager
def _fewer_collections():
    before, *rest = gc.get_threshold()
    gc.set_threshold(max(before, _OBJECTS_PER_COLLECTION) if before else 0, *rest)
    try:
        yield
    finally:
        gc.set_threshold(before, *rest)


def _check_address_space():
    """Raise MemoryError if the address-space limit leaves LLVM too little memory for compiling."""
    # Windows has no module `resource`, and macOS has no /proc. The limit is then not checked.
    with contextlib.suppress(ImportError, OSError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        free_bytes = limit - pages * os.sysconf("SC_PAGESIZE")
        if free_bytes < _COMPILER_BYTES:
            raise MemoryError(
                f"compiling a kernel needs {_COMPILER_BYTES >> 20} MiB of address space, got "
                f"{max(free_bytes, 0) >> 20} MiB (ulimit -v); a native wheel needs no compiler"
            )


class Stopwatch:
    """The time that this process spends compiling; the first compilation is announced on stderr."""

    def __init__(self):
        self.seconds, self.is_announced, self._start = 0.0, False, 0.0

    def __enter__(self):
        if not self.is_announced:
            self.is_announced = True
            _announce()
        self._start = time.perf_counter()

    def __exit__(self, *_):
        self.seconds += time.perf_counter() - self._start


def _announce():
    with contextlib.suppress(OSError, ValueError):  # stderr is full or closed
        if sys.stderr is not None:
            text = "fastcos: compiling kernels once, for up to 2 minutes; later processes load them"
            print(text, file=sys.stderr, flush=True)


# The stopwatch needs no lock, because only the thread that holds Numba's lock uses it.
stopwatch = Stopwatch()


# One parallel loop serves all kernels. The parallel loop calls a kernel by its address, passes a
# pointer to the arguments, and runs the same machine code as the thread pool. Compiling the
# parallel loop takes 2 s in every process. Compiling a separate loop around each kernel would take
# 57 s for the five operations of tests/robustness/guard_calls.py. The loop is not cached on disk.
# Numba names the body of a parallel loop by an address in memory, and loops of two processes may
# have the same address. Two loops on disk could therefore have the same name.

# The types of the arguments of an entry: lo, hi, and a pointer to the arguments of the kernel.
_BLOCK = types.int64, types.int64, types.uintp


@functools.cache
def prange_driver(rows_kernel):
    """Return driver(boundaries, done, *arguments), a parallel loop that runs rows_kernel on blocks.

    `done` (blocks,) uint8 is set to 1 for every finished block. The caller must check `done`,
    because in a forked child the threading layer of Numba can return without running the loop, and
    without an error.
    """

    @intrinsic
    def entry_address(typing_context, arguments):
        address = address_of(_entry(rows_kernel, tuple(arguments.types)), _BLOCK)
        return types.uintp(arguments), _constant(address)

    @numba.njit(nogil=True)
    def driver(boundaries, done, *arguments):
        _loop(entry_address(arguments), _place(arguments), boundaries, done)

    return driver


@numba.njit(parallel=True, nogil=True)
def _loop(entry, place, boundaries, done):
    """Run entry(lo, hi, place) for every block; `lo` and `hi` are consecutive boundaries."""
    for block in prange(boundaries.shape[0] - 1):
        _run_block(entry, boundaries[block], boundaries[block + 1], place)
        done[block] = 1


@functools.cache
def _entry(rows_kernel, kinds):
    """Compile entry(lo, hi, place), which calls rows_kernel with the arguments at `place`."""
    signature = types.int64, types.int64, *kinds
    address = address_of(rows_kernel, signature)

    @intrinsic
    def run_rows(typing_context, lo, hi, place):
        def generate(context, builder, _, values):
            tuple_type = context.get_value_type(types.Tuple(kinds)).as_pointer()
            arguments = builder.load(builder.inttoptr(values[2], tuple_type))
            unpacked = cgutils.unpack_tuple(builder, arguments)
            kernel_address = context.get_constant(types.uintp, address)
            emit_call_at(context, builder, kernel_address, signature, [*values[:2], *unpacked])
            return context.get_dummy_value()

        return types.none(*_BLOCK), generate

    @numba.njit(nogil=True)
    def entry(lo, hi, place):
        run_rows(lo, hi, place)

    return entry


@intrinsic
def _run_block(typing_context, entry, lo, hi, place):
    """Call the code at the address `entry` with the arguments `lo`, `hi` and `place`."""

    def generate(context, builder, _, values):
        emit_call_at(context, builder, values[0], _BLOCK, values[1:])
        return context.get_dummy_value()

    return types.none(types.uintp, *_BLOCK), generate


@intrinsic
def _place(typing_context, arguments):
    """Copy a tuple to the stack of the caller, and return the address of the copy."""

    def generate(context, builder, _, values):
        place = cgutils.alloca_once_value(builder, values[0])
        return builder.ptrtoint(place, context.get_value_type(types.uintp))

    return types.uintp(arguments), generate


def slots_entry(kernel, kinds):
    """Compile entry(lo, hi, place), which reads arguments from 8-byte slots and calls the kernel.

    The 8-byte slots begin at the address `place`. An array occupies one slot for each number and
    each pointer in Numba's array structure. The two slots for the owner of the memory hold 0 (see
    native.c).
    """
    signature = types.int64, types.int64, *kinds
    kernel.compile(signature)
    compiled = kernel.overloads[signature]

    @intrinsic
    def run_rows(typing_context, lo, hi, place):
        def generate(context, builder, _, values):
            slot = builder.inttoptr(values[2], ir.IntType(64).as_pointer())
            arguments = list(values[:2])
            for kind in kinds:
                value, slot = _from_slots(builder, context.get_value_type(kind), slot)
                arguments.append(value)
            emit_call(context, builder, compiled, arguments)
            return context.get_dummy_value()

        return types.none(*_BLOCK), generate

    @uncompiled
    def entry(lo, hi, place):
        run_rows(lo, hi, place)

    entry.compile(_BLOCK)
    return entry.overloads[_BLOCK]


def _from_slots(builder, kind, slot):
    """Emit code that reads an LLVM value from slots; return the value and the slot after it."""
    if isinstance(kind, ir.Aggregate):
        value = ir.Constant(kind, ir.Undefined)
        for position in range(len(kind)):
            member, slot = _from_slots(builder, kind.gep(ir.IntType(32)(position)), slot)
            value = builder.insert_value(value, member, position)
        return value, slot
    following = builder.gep(slot, [ir.IntType(64)(1)])
    if isinstance(kind, ir.PointerType):
        return builder.inttoptr(builder.load(slot), kind), following
    if isinstance(kind, ir.IntType) and kind.width < 64:
        return builder.trunc(builder.load(slot), kind), following
    return builder.load(builder.bitcast(slot, kind.as_pointer())), following


def _constant(address):
    return lambda context, builder, *_: context.get_constant(types.uintp, address)

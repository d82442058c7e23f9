"""All that needs Numba: compilation with cache, intrinsics, and the parallel loop over blocks.

Imported when the first kernel compiles, or is loaded from the cache: Numba takes 0.3 s to import.
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
from llvmlite import binding, ir
from numba import prange, types
from numba.core import caching, cgutils, serialize
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, compile_result
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.extending import intrinsic

from .code_cache import INNER, Files, warn
from .cpu import code_name, supported_tiers

# LLVM ends the process where it gets no memory; the search for 64 columns takes it 144 MiB more
_COMPILER_BYTES = 2**28
# objects made before Python looks for garbage, of which a compilation makes much: 0.92 of its time,
# and 40 MiB more. Without collections 0.88, and 220 MiB more
_OBJECTS_PER_COLLECTION = 50_000
# several threads may be the first to need a kernel
lock = threading.RLock()


def hold():
    """Wait until no thread compiles, and let none start."""
    global_compiler_lock.acquire()
    lock.acquire()


def release():
    """Let threads compile again."""
    lock.release()
    global_compiler_lock.release()


def compiled(function, flags):
    """Return Numba's dispatcher of a function; it compiles or loads at its calls."""
    # kernels are not called from C: without that entry the first audit is 5 % faster
    dispatcher = numba.njit(nogil=True, no_cfunc_wrapper=True, **flags)(function)
    dispatcher._cache = CodeCache(function)
    dispatcher.compile = functools.partial(_compile_in_turn, dispatcher, dispatcher.compile)
    return dispatcher


def _compile_in_turn(dispatcher, compile_here, signature):
    """Load the code of a signature, or compile it while no other process compiles the same.

    A process waits for its turn without Numba's lock, which forks and the compilations of other
    threads need. No kernel is compiled by a turn within another one's, so that no process waits for
    another one while it holds a turn.
    """
    with (
        dispatcher._cache.turn(signature, dispatcher.targetctx) as must_compile,
        global_compiler_lock,
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
    """Raise MemoryError if the limit of the address space is so near that LLVM would abort."""
    with contextlib.suppress(ImportError, OSError):  # Windows has no limits, macOS no /proc
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        left = limit - pages * os.sysconf("SC_PAGESIZE")
        if left < _COMPILER_BYTES:
            raise MemoryError(
                f"compiling a kernel needs {_COMPILER_BYTES >> 20} MiB of address space, got "
                f"{max(left, 0) >> 20} MiB (ulimit -v); a native wheel needs no compiler"
            )


class Stopwatch:
    """Seconds of compiling kernels in this process; the first one is announced on stderr."""

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


# used under Numba's lock
stopwatch = Stopwatch()


def dispatcher_type(dispatcher):
    """Numba's type of a kernel that other kernels call."""
    return types.Dispatcher(dispatcher)


def intrinsic_type(made):
    """Numba's type of an intrinsic that kernels call."""
    context = cpu_target.typing_context
    context.refresh()  # it may be newer than the last one
    return context.resolve_value_type(made)


class _Locator:
    """Stub for Numba, which requests a path at decoration; Files finds it at every use."""

    def ensure_cache_path(self):
        pass

    def get_cache_path(self):
        return ""

    def get_source_stamp(self):
        return None

    def get_disambiguator(self):
        return None

    @classmethod
    def from_function(cls, py_func, py_file):
        return cls()


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  defined by Numba

    def reduce(self, cres):
        # Numba's helpers raise errors by their environments, which no kernel lets happen; loading
        # them imports SciPy: 0.35 s of every process
        *parts, environments = super().reduce(cres)
        kept = (e for e in environments if e.globals["__name__"].startswith(__package__))
        return (*parts, tuple(kept))


class _PickledFiles(Files):
    """Files as Numba uses them."""

    def save(self, key, data):
        super().save(key, serialize.dumps(data))

    def flush(self):
        """Do nothing: stale files have another digest."""


class CodeCache(caching.FunctionCache):
    """Cache of one function; errors become warnings."""

    _impl_class = _Implementation

    def __init__(self, function):
        super().__init__(function)
        self._cache_file = _PickledFiles(function)

    def load_overload(self, sig, target_context):
        """Return compiled code for a signature, or None with a warning if it is not usable."""
        try:
            # Loaded code calls the runtime. Numba refreshes the whole context here, which imports
            # its typing of NumPy, and SciPy: 0.85 s of every process. A compilation does so itself.
            rtsys.initialize(target_context)
            return self._load(sig, target_context)
        except Exception as error:  # a pickle can raise anything
            warn("compiles again", error)
            return None

    def _load(self, sig, target_context):
        for key in self._keys(sig, target_context):
            data = self._cache_file.load(key)
            if data is not None:
                return self._impl.rebuild(target_context, data)
        return None

    def _keys(self, sig, target_context):
        """Yield the key of code for this CPU, then of the tiers it belongs to, widest first.

        Code for another CPU gives the same bits: every tier has fused multiply-add, and what else
        differs is an argument, or within the code of one kernel and all that it calls.
        """
        target = target_context.codegen().magic_tuple()
        sig, _, rest = self._index_key(sig, target_context.codegen())
        for cpu in (target[1:], *map(code_name, supported_tiers())):
            yield sig, (target[0], *cpu), rest

    def turn(self, sig, target_context):
        """Hold the turn to compile a signature; see Files.turn."""
        return self._cache_file.turn(self._keys(sig, target_context))

    def save_overload(self, sig, data):
        """Save compiled code, or warn."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            warn("cannot keep compiled code", error)


# A kernel that another one calls is kept as LLVM's intermediate code, which is optimised as part of
# its callers only. Numba would optimise it by itself, too, give it machine code and an entry from
# Python, and link the optimised code into its callers: the first search took twice the time.


# its private steps that this leaves out; where a version of Numba lacks them, all is done its way
_KNOWN_STEPS = all(
    hasattr(JITCodeLibrary, step) for step in ("_optimize_final_module", "_finalize_final_module")
)


def compiled_for_kernels(function, flags):
    """Return the dispatcher of a function that other kernels call."""
    if not _KNOWN_STEPS:
        return compiled(function, flags)
    dispatcher = _uncompiled(function, **flags)
    dispatcher._cache = _InnerCache(function)
    dispatcher.get_call_template = functools.partial(_call_template, dispatcher.get_call_template)
    return dispatcher


def _uncompiled(function, **flags):
    """Return a dispatcher that ends with intermediate code, without an entry from Python or C."""
    no_entry = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher = numba.njit(pipeline_class=_Inner, nogil=True, **no_entry, **flags)(function)
    dispatcher.add_overload = functools.partial(_add_overload, dispatcher)
    return dispatcher


def _add_overload(dispatcher, result):
    """Let kernels call a result; Numba would let Python call it, too."""
    dispatcher.overloads[result.signature.args] = result


def _call_template(template_of, arguments, keywords):
    """Type a call of a kernel by another one, with constants as numbers of their type.

    Numba would compile a called kernel again for every constant that it is given.
    """
    keywords = {name: types.unliteral(kind) for name, kind in keywords.items()}
    return template_of(tuple(map(types.unliteral, arguments)), keywords)


class _InnerLibrary(JITCodeLibrary):
    """Intermediate code of a kernel and of those that it calls; no machine code."""

    def _optimize_final_module(self):
        """Do nothing: its callers' libraries do it."""

    def _finalize_final_module(self):
        self._finalized = True


class _Inner(Compiler):
    """Numba's compiler up to the intermediate code."""

    def compile_extra(self, func):
        state = self.state
        state.flags.no_compile = True
        state.library = _InnerLibrary(state.targetctx.codegen(), func.__qualname__)
        # calls find the code by its entry, which must be hashable and of one signature
        result = super().compile_extra(func)._replace(entry_point=state.library)
        state.library.finalize()  # links the code of the kernels that it calls
        state.targetctx.insert_user_function(result.entry_point, result.fndesc, [state.library])
        return result


class _InnerImplementation(_Implementation):
    def reduce(self, cres):
        cres.fndesc.typemap = cres.fndesc.calltypes = None  # large, and not used again
        code = cres.library._final_module.as_bitcode()
        return cres.library.name, code, cres.fndesc, cres.signature

    def rebuild(self, target_context, payload):
        name, code, fndesc, signature = payload
        library = _InnerLibrary(target_context.codegen(), name)
        library._final_module = binding.parse_bitcode(code)
        library._finalized = True
        return compile_result(
            typing_context=target_context.typing_context,
            target_context=target_context,
            library=library,
            entry_point=library,
            fndesc=fndesc,
            signature=signature,
            objectmode=False,
        )


class _InnerCache(CodeCache):
    """Cache of the intermediate code of one function, for the next caller."""

    _impl_class = _InnerImplementation

    def __init__(self, function):
        super().__init__(function)
        self._cache_file = _PickledFiles(function, INNER)


# The parallel loop is compiled once. It calls a kernel by address and passes a pointer to the
# arguments. A loop compiled around each kernel took 57 s for the five operations of
# tests/robustness/guard_calls.py in every process; this takes 2 s, and runs the same machine code
# as the pool. The loop is not cached: Numba names the body of a parallel loop by an address in
# memory, so two loops on disk could have one name.

# types of the arguments of an entry: lo, hi, pointer to the kernel's arguments
_BLOCK = types.int64, types.int64, types.uintp


@functools.cache
def prange_driver(rows_kernel):
    """Return driver(boundaries, done, *arguments), a parallel loop over blocks of rows_kernel.

    done (blocks,) uint8 is set to 1 for every finished block. The caller must check it: in a forked
    child the layers below prange can return without running the loop, and they drop exceptions.
    """

    @intrinsic
    def entry_address(typing_context, arguments):
        address = _address(_entry(rows_kernel, tuple(arguments.types)), _BLOCK)
        return types.uintp(arguments), _constant(address)

    @numba.njit(nogil=True)
    def driver(boundaries, done, *arguments):
        _loop(entry_address(arguments), _place(arguments), boundaries, done)

    return driver


@numba.njit(parallel=True, nogil=True)
def _loop(entry, place, boundaries, done):
    """Run entry(lo, hi, place) for every block of rows between consecutive boundaries."""
    for block in prange(boundaries.shape[0] - 1):
        _run_block(entry, boundaries[block], boundaries[block + 1], place)
        done[block] = 1


@functools.cache
def _entry(rows_kernel, kinds):
    """Compile entry(lo, hi, place): rows_kernel with the arguments stored at place."""
    signature = types.int64, types.int64, *kinds
    address = _address(rows_kernel, signature)

    @intrinsic
    def run_rows(typing_context, lo, hi, place):
        def generate(context, builder, _, values):
            tuple_type = context.get_value_type(types.Tuple(kinds)).as_pointer()
            arguments = builder.load(builder.inttoptr(values[2], tuple_type))
            unpacked = cgutils.unpack_tuple(builder, arguments)
            kernel_address = context.get_constant(types.uintp, address)
            _call(context, builder, kernel_address, signature, [*values[:2], *unpacked])
            return context.get_dummy_value()

        return types.none(*_BLOCK), generate

    @numba.njit(nogil=True)
    def entry(lo, hi, place):
        run_rows(lo, hi, place)

    return entry


@intrinsic
def _run_block(typing_context, entry, lo, hi, place):
    """Call entry(lo, hi, place), where entry is an address."""

    def generate(context, builder, _, values):
        _call(context, builder, values[0], _BLOCK, values[1:])
        return context.get_dummy_value()

    return types.none(types.uintp, *_BLOCK), generate


@intrinsic
def _place(typing_context, arguments):
    """Address of a tuple on the stack of the caller."""

    def generate(context, builder, _, values):
        place = cgutils.alloca_once_value(builder, values[0])
        return builder.ptrtoint(place, context.get_value_type(types.uintp))

    return types.uintp(arguments), generate


def slots_entry(kernel, kinds):
    """Compile entry(lo, hi, place): the kernel with arguments in 8-byte slots at place.

    An array takes the fields of Numba's array structure, without owner: see native.c.
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
            context.active_code_library.add_linking_library(compiled.library)
            context.call_internal(builder, compiled.fndesc, compiled.signature, arguments)
            return context.get_dummy_value()

        return types.none(*_BLOCK), generate

    @_uncompiled
    def entry(lo, hi, place):
        run_rows(lo, hi, place)

    entry.compile(_BLOCK)
    return entry.overloads[_BLOCK]


def _from_slots(builder, kind, slot):
    """Emit the value of an LLVM type from slots; return it and the next slot."""
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


def _call(context, builder, address, signature, values):
    """Emit a call of compiled code at an address; an error of a bounds check ends the block."""
    convention = context.call_conv
    function_type = convention.get_function_type(types.none, signature).as_pointer()
    function = builder.inttoptr(address, function_type)
    status, _ = convention.call_function(builder, function, types.none, signature, values)
    with cgutils.if_unlikely(builder, status.is_error):
        convention.return_status_propagate(builder, status)


def _constant(address):
    return lambda context, builder, *_: context.get_constant(types.uintp, address)


def _address(function, signature):
    """Address of the compiled code of a signature; the function must outlive its use."""
    function.compile(signature)
    compiled = function.overloads[signature]
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)

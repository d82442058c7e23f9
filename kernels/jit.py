"""The decorators of every kernel, and the compiled parallel loop over them."""

import functools

import numba
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

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


# the parallel loop: compiled once, it enters a kernel by address, through the place in memory where
# the arguments of a call lie. To compile it around each kernel took 57 s of a processor for the
# five operations of tests/robustness/guard_calls.py in every process; this takes 2 s, and the
# kernels run the very code that the pool runs. Nothing of it is kept on disk: Numba names the
# body of a parallel loop by an address in memory, so two on disk could have one name, and one of
# them run as both

_BLOCK = types.int64, types.int64, types.uintp


@functools.cache
def prange_driver(rows_kernel):
    """One parallel loop over blocks of rows_kernel: driver(cuts, done, *arguments).

    done (blocks,) uint8 is set to 1 per finished block. The layers under prange can return without
    having run the loop, and they drop what a block raises; the caller must look at done.
    """

    @intrinsic
    def entry_address(typing_context, arguments):
        address = _address(_entry(rows_kernel, tuple(arguments.types)), _BLOCK)
        return types.uintp(arguments), _constant(address)

    @numba.njit(nogil=True)
    def driver(cuts, done, *arguments):
        _loop(entry_address(arguments), _place(arguments), cuts, done)

    return driver


@numba.njit(parallel=True, nogil=True)
def _loop(entry, place, cuts, done):
    """Run entry(lo, hi, place) for every block of rows between consecutive cuts."""
    for block in prange(cuts.shape[0] - 1):
        _run_block(entry, cuts[block], cuts[block + 1], place)
        done[block] = 1


@functools.cache
def _entry(rows_kernel, kinds):
    """Compiled entry(lo, hi, place): rows_kernel with the arguments that lie at place."""
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
    """entry(lo, hi, place), where entry is an address."""

    def generate(context, builder, _, values):
        _call(context, builder, values[0], _BLOCK, values[1:])
        return context.get_dummy_value()

    return types.none(types.uintp, *_BLOCK), generate


@intrinsic
def _place(typing_context, arguments):
    """The address of a tuple on the stack of the caller."""

    def generate(context, builder, _, values):
        place = cgutils.alloca_once_value(builder, values[0])
        return builder.ptrtoint(place, context.get_value_type(types.uintp))

    return types.uintp(arguments), generate


def _call(context, builder, address, signature, values):
    """Emit a call of compiled code at an address; what bounds checks raise ends the block."""
    convention = context.call_conv
    function_type = convention.get_function_type(types.none, signature).as_pointer()
    function = builder.inttoptr(address, function_type)
    status, _ = convention.call_function(builder, function, types.none, signature, values)
    with cgutils.if_unlikely(builder, status.is_error):
        convention.return_status_propagate(builder, status)


def _constant(address):
    return lambda context, builder, *_: context.get_constant(types.uintp, address)


def _address(function, signature):
    """Where the compiled code of a signature lies; the function must outlive its use."""
    function.compile(signature)
    compiled = function.overloads[signature]
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)

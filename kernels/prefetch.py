"""Asking for memory before it is read."""

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .vector_ir import BYTES, I32, byte_pointer, function


@intrinsic
def _prefetch_line(typingctx, array, i):
    signature = types.void(array, i)

    def codegen(context, builder, sig, arguments):
        at = byte_pointer(context, builder, sig.args[0], arguments[0], arguments[1])
        fetch = function(builder, "llvm.prefetch.p0", ir.VoidType(), [BYTES, I32, I32, I32])
        # to read, keep in all caches, data
        builder.call(fetch, [at, I32(0), I32(3), I32(1)])
        return context.get_dummy_value()

    return signature, codegen


def _prefetch_nothing(array, i):
    """Ask for the cache line of array[i]; what is not mapped is ignored."""


prefetch = _prefetch_nothing if numba.config.DISABLE_JIT else _prefetch_line

"""a b + c with one rounding, by ``llvm.fma``: no flag, and no choice of LLVM's, changes the bits.

A CPU without an instruction for it would call the C library, thirteen times slower in X A: there,
and as plain Python, the product is rounded too.
"""

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .cpu import multiplies_and_adds_at_once
from .vector_ir import F64, function


def emit(builder, a, b, c):
    """IR of a b + c, for three scalars or three vectors of one type."""
    if not multiplies_and_adds_at_once():
        return builder.fadd(builder.fmul(a, b), c)
    kind = c.type
    lanes = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    bits = 64 if F64 in (kind, getattr(kind, "element", None)) else 32
    fma = function(builder, f"llvm.fma.{lanes}f{bits}", kind, [kind] * 3)
    return builder.call(fma, [a, b, c])


@intrinsic
def _multiply_add_compiled(typingctx, a, b, c):
    if not all(isinstance(kind, types.Float) for kind in (a, b, c)):
        return None

    def codegen(context, builder, signature, arguments):
        wanted = signature.return_type
        values = [
            context.cast(builder, value, kind, wanted)
            for value, kind in zip(arguments, signature.args, strict=True)
        ]
        return emit(builder, *values)

    return c(a, b, c), codegen


def _multiply_add_interpreted(a, b, c):
    """Return a b + c, in the type of c."""
    return a * b + c


multiply_add = _multiply_add_interpreted if numba.config.DISABLE_JIT else _multiply_add_compiled

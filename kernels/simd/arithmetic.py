"""A multiply-add that rounds only once, and the position of the lowest set bit of a word."""

from ..cpu import has_instruction
from ..jit import intrinsic, intrinsic_of, ir, types
from .emit import F64, I64, function


def emit_multiply_add(builder, a, b, c):
    """Emit a multiply-add, a b + c, for scalars or vectors of one type.

    The result is rounded only once if the CPU has a fused multiply-add instruction. ``llvm.fma``
    gives the same bits with all compiler flags and optimisations. On a CPU without this
    instruction, ``llvm.fma`` would call the C library, and a sparse product would take 13 times as
    long. On such a CPU, the emitted code therefore rounds the product before the addition.
    """
    if not has_instruction("fma"):
        return builder.fadd(builder.fmul(a, b), c)
    kind = c.type
    lanes = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    bits = 64 if F64 in (kind, getattr(kind, "element", None)) else 32
    fma = function(builder, f"llvm.fma.{lanes}f{bits}", kind, [kind] * 3)
    return builder.call(fma, [a, b, c])


def _multiply_add_plain(a, b, c):
    return a * b + c


@intrinsic_of(_multiply_add_plain)
def multiply_add(typingctx, a, b, c):
    """Return a * b + c in the type of c; compiled code rounds once, plain Python rounds twice."""
    if not all(isinstance(kind, types.Float) for kind in (a, b, c)):
        return None

    def codegen(context, builder, signature, arguments):
        result = signature.return_type
        values = [
            context.cast(builder, value, kind, result)
            for value, kind in zip(arguments, signature.args, strict=True)
        ]
        return emit_multiply_add(builder, *values)

    return c(a, b, c), codegen


@intrinsic
def lowest_bit(typingctx, word):
    """Return the position of the lowest set bit of a uint64 that is not 0."""

    def codegen(context, builder, signature, arguments):
        count = function(builder, "llvm.cttz.i64", I64, [I64, ir.IntType(1)])
        return builder.call(count, [arguments[0], ir.IntType(1)(1)])

    return types.int64(word), codegen

"""Operations that Numba lacks: fused multiply-add, prefetch, wide loads and bit scans.

Each is an intrinsic in LLVM IR. Where a plain-Python version is given, it serves when
NUMBA_DISABLE_JIT is set, and as the reference of the tests.
"""

from .cpu import has_instruction
from .jit import cgutils, intrinsic, intrinsic_of, ir, types
from .simd.emit import BYTES, F64, I32, I64, byte_pointer, function, pointer


def emit_multiply_add(builder, a, b, c):
    """IR of a b + c with one rounding, for three scalars or three vectors of one type.

    ``llvm.fma`` gives the same bits with all flags and optimisations. A CPU without the
    instruction would call the C library, which makes X A thirteen times slower: there the product
    is rounded separately.
    """
    if not has_instruction("fma"):
        return builder.fadd(builder.fmul(a, b), c)
    kind = c.type
    lanes = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    bits = 64 if F64 in (kind, getattr(kind, "element", None)) else 32
    fma = function(builder, f"llvm.fma.{lanes}f{bits}", kind, [kind] * 3)
    return builder.call(fma, [a, b, c])


def emit_prefetch(builder, at, level=1):
    """Emit the prefetch of the cache line at a pointer to bytes, into the cache of this level."""
    fetch = function(builder, "llvm.prefetch.p0", ir.VoidType(), [BYTES, I32, I32, I32])
    # for reading, the number of caches to keep it in, data
    builder.call(fetch, [at, I32(0), I32(4 - level), I32(1)])


def _multiply_add_plain(a, b, c):
    return a * b + c


@intrinsic_of(_multiply_add_plain)
def multiply_add(typingctx, a, b, c):
    """Return a b + c, in the type of c, by one rounding; the plain function has two."""
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


def _prefetch_plain(array, i):
    """Do nothing."""


@intrinsic_of(_prefetch_plain)
def prefetch(typingctx, array, i):
    """Load the cache line of array[i] in the background; an unmapped address is ignored."""

    def codegen(context, builder, sig, arguments):
        at = byte_pointer(context, builder, sig.args[0], arguments[0], arguments[1])
        emit_prefetch(builder, at)
        return context.get_dummy_value()

    return types.void(array, i), codegen


def _prefetch_row_plain(rows, start, size):
    """Do nothing."""


@intrinsic_of(_prefetch_row_plain)
def prefetch_row(typingctx, rows, start, size):
    """Prefetch the cache lines of rows[start : start + size] into the second cache; rows flat.

    Some wide rows fill the first cache: pairs of 30,000 x 384 in the order of their items took 160
    ns each, and 100 from the second cache; of 30,000 x 1,536 680 and 440; of 40,000 x 128 as much.
    """

    def codegen(context, builder, sig, a):
        first = byte_pointer(context, builder, sig.args[0], a[0], a[1])
        lines = builder.lshr(builder.mul(a[2], I64(sig.args[0].dtype.bitwidth // 8)), I64(6))
        with cgutils.for_range(builder, builder.add(lines, I64(1))) as line:
            at = builder.gep(first, [builder.mul(line.index, I64(64))])
            emit_prefetch(builder, at, level=2)
        return context.get_dummy_value()

    return types.void(rows, start, size), codegen


def _load_64_bits_plain(array, start):
    return array[start : start + 8 // array.itemsize].view("u8")[0]


@intrinsic_of(_load_64_bits_plain)
def load_64_bits(typingctx, array, start):
    """Return the 64 bits of array from element start on."""

    def codegen(context, builder, sig, arguments):
        at = pointer(context, builder, sig.args[0], *arguments)
        size = context.get_abi_sizeof(at.type.pointee)
        return builder.load(builder.bitcast(at, ir.PointerType(I64)), align=size)

    return types.uint64(array, start), codegen


@intrinsic
def lowest_bit(typingctx, word):
    """Position of the lowest set bit of a uint64 that is not 0."""

    def codegen(context, builder, signature, arguments):
        count = function(builder, "llvm.cttz.i64", I64, [I64, ir.IntType(1)])
        return builder.call(count, [arguments[0], ir.IntType(1)(1)])

    return types.int64(word), codegen

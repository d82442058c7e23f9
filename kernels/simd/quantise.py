"""The size of a row of float32, and its int8 codes, in vectors of 16."""

from ..jit import intrinsic, ir, types
from .emit import F32, I8, I32, I64, broadcast, fold, function, load, loop, pointer, store
from .hadamard import FLOATS, INTEGERS, LANES, RELAXED, vector_at

_CODES = ir.VectorType(I8, LANES)


@intrinsic
def measure_row(typingctx, x, out):
    """out[0], out[1] = the largest magnitude and the sum of squares of x (16 m,) float32."""

    def codegen(context, builder, sig, a):
        row, result = (pointer(context, builder, sig.args[i], a[i], I64(0)) for i in (0, 1))
        count = context.make_array(sig.args[0])(context, builder, a[0]).nitems
        magnitude = function(builder, "llvm.fabs.v16f32", FLOATS, [FLOATS])

        def larger(x, y):
            return builder.select(builder.fcmp_ordered(">", x, y), x, y)

        def step(k, carried):
            value = load(builder, vector_at(builder, row, k), FLOATS)
            square = builder.fmul(value, value, flags=RELAXED)
            return [
                larger(builder.call(magnitude, [value]), carried[0]),
                builder.fadd(carried[1], square, flags=RELAXED),
            ]

        zero = broadcast(builder, F32(0.0), FLOATS)
        largest, squares = loop(builder, builder.lshr(count, I64(4)), [zero, zero], step)
        builder.store(fold(builder, largest, larger), result)
        total = fold(builder, squares, builder.fadd)
        builder.store(total, builder.gep(result, [I64(1)]))
        return context.get_dummy_value()

    return types.void(x, out), codegen


@intrinsic
def quantise_row(typingctx, x, scale, inverse, codes, out):
    """codes[j] = x[j] inverse, rounded; out[0] = sum of (x - scale codes)^2; return the codes' sum.

    x (16 m,) float32, codes (16 m,) int8 out; inverse: 1 / scale, such that codes lie in -127..127.
    """

    def codegen(context, builder, sig, a):
        row, target = (pointer(context, builder, sig.args[i], a[i], I64(0)) for i in (0, 3))
        result = pointer(context, builder, sig.args[4], a[4], I64(0))
        count = context.make_array(sig.args[0])(context, builder, a[0]).nitems
        round_to_even = function(builder, "llvm.nearbyint.v16f32", FLOATS, [FLOATS])
        wide_scale, wide_inverse = (broadcast(builder, a[i], FLOATS) for i in (1, 2))

        def step(k, carried):
            value = load(builder, vector_at(builder, row, k), FLOATS)
            code = builder.call(round_to_even, [builder.fmul(value, wide_inverse)])
            back = builder.fmul(code, wide_scale, flags=RELAXED)
            left = builder.fsub(value, back, flags=RELAXED)
            square = builder.fmul(left, left, flags=RELAXED)
            integer = builder.fptosi(code, INTEGERS)
            store(builder, builder.trunc(integer, _CODES), vector_at(builder, target, k))
            return [
                builder.fadd(carried[0], square, flags=RELAXED),
                builder.add(carried[1], integer),
            ]

        zeros = [broadcast(builder, F32(0.0), FLOATS), broadcast(builder, I32(0), INTEGERS)]
        squares, sums = loop(builder, builder.lshr(count, I64(4)), zeros, step)
        builder.store(fold(builder, squares, builder.fadd), result)
        return fold(builder, sums, builder.add)

    return types.int32(x, scale, inverse, codes, out), codegen

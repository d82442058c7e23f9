"""Operations that turn a float32 row into int8 codes, except for the rotation (``hadamard``).

The operations measure the largest magnitude and the sum of squares of a row, and quantise the row.
"""

from ..jit import intrinsic, ir, types
from .emit import (
    F32,
    I8,
    I32,
    I64,
    broadcast,
    fold,
    function,
    load,
    loop,
    pointer,
    store,
)
from .hadamard import FLOATS, INTEGERS, LANES, RELAXED, vector_at

_CODES = ir.VectorType(I8, LANES)


@intrinsic
def measure_row(typingctx, x, out):
    """Set out[0] to the largest magnitude of x, and out[1] to the sum of the squares of x.

    `x` (16 m,) and `out` (2,) are float32.
    """

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
def largest_group_sum(typingctx, x, words):
    """Sum up the numbers of each group of x, and return the largest magnitude of these sums.

    `x` (16 m,) is float32, and `words` is 1, 2 or 4. In each group, the positive numbers and the
    negative numbers are summed separately. When x is multiplied by another row, the products of the
    numbers in one group are summed in int16. A word consists of 4 neighbouring numbers. A run of
    `words` neighbouring words contains two groups. The first group consists of the first two
    numbers of each word, and the second group consists of the last two numbers of each word.
    """

    def codegen(context, builder, sig, a):
        row = pointer(context, builder, sig.args[0], a[0], I64(0))
        count = context.make_array(sig.args[0])(context, builder, a[0]).nitems
        zero = broadcast(builder, F32(0.0), FLOATS)
        # For each distance of a group of `words` words, lane i adds the value of lane i ^ distance.
        # In the end, each lane holds the sum of its group.
        least_words_of_distance = {1: 1, 4: 2, 8: 4}

        def larger(x, y):
            return builder.select(builder.fcmp_ordered(">", x, y), x, y)

        def step(k, carried):
            value, (largest,) = load(builder, vector_at(builder, row, k), FLOATS), carried
            for signed in (value, builder.fsub(zero, value)):
                sums = larger(signed, zero)
                for distance, least_words in least_words_of_distance.items():
                    lanes = [lane ^ distance for lane in range(LANES)]
                    exchanged_lanes = ir.Constant(ir.VectorType(I32, LANES), lanes)
                    exchanged = builder.shuffle_vector(sums, sums, exchanged_lanes)
                    is_added = builder.icmp_signed(">=", a[1], I64(least_words))
                    sums = builder.fadd(sums, builder.select(is_added, exchanged, zero))
                largest = larger(sums, largest)
            return [largest]

        (largest,) = loop(builder, builder.lshr(count, I64(4)), [zero], step)
        return fold(builder, largest, larger)

    return types.float32(x, types.int64), codegen


@intrinsic
def quantise_row(typingctx, x, quantisation_step, inverse_step, codes, out):
    """Set codes[j] to x[j] / quantisation_step, rounded, and return the sum of the codes.

    `x` (16 m,) is float32, and `codes` (16 m,) is int8. `inverse_step` is 1 / quantisation_step,
    and the step must be so large that all codes lie between -127 and 127. The sum of the squared
    residuals, (x - quantisation_step * codes)^2, is written to out[0].
    """

    def codegen(context, builder, sig, a):
        row, target = (pointer(context, builder, sig.args[i], a[i], I64(0)) for i in (0, 3))
        result = pointer(context, builder, sig.args[4], a[4], I64(0))
        count = context.make_array(sig.args[0])(context, builder, a[0]).nitems
        round_to_even = function(builder, "llvm.nearbyint.v16f32", FLOATS, [FLOATS])
        steps, inverse_steps = (broadcast(builder, a[i], FLOATS) for i in (1, 2))

        def step(k, carried):
            value = load(builder, vector_at(builder, row, k), FLOATS)
            code = builder.call(round_to_even, [builder.fmul(value, inverse_steps)])
            rounded = builder.fmul(code, steps, flags=RELAXED)
            residual = builder.fsub(value, rounded, flags=RELAXED)
            square = builder.fmul(residual, residual, flags=RELAXED)
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

    return types.int32(x, quantisation_step, inverse_step, codes, out), codegen

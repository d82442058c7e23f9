"""Butterflies of the fast Hadamard transform, in vectors of 16 float32.

A butterfly replaces two numbers x and y by x + y and x - y. A transform of 2^m numbers consists of
m passes of butterflies; in pass i, the two numbers of a butterfly are 2^i positions apart.
"""

from ..jit import intrinsic, ir, types
from .emit import F32, I32, I64, broadcast, load, loop, pointer, store

# The number of float32 numbers in a vector.
LANES = 16

FLOATS, INTEGERS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)

# Products and sums may be contracted to fused multiply-adds, because the bound on rounding errors
# holds with and without contraction.
RELAXED = ("contract",)


def vector_at(builder, start, vector):
    """Return a pointer to vector number `vector` of an array of float32 numbers."""
    return builder.gep(start, [builder.mul(vector, I64(LANES))])


@intrinsic
def mix_lanes(typingctx, x, first, signs, vectors, scale):
    """Multiply 16 * `vectors` numbers of `x` by `signs` and by `scale`, and transform each vector.

    `x` and `signs` are flat float32 arrays. The first of these numbers is x[first], and x[j] is
    multiplied by signs[j]. Each vector of 16 numbers is transformed separately.
    """

    def codegen(context, builder, sig, a):
        rows, flips = (pointer(context, builder, sig.args[i], a[i], a[1]) for i in (0, 2))
        factor = broadcast(builder, a[4], FLOATS)

        def step(k, _):
            at = vector_at(builder, rows, k)
            flip = load(builder, vector_at(builder, flips, k), FLOATS)
            value = builder.fmul(load(builder, at, FLOATS), builder.fmul(flip, factor))
            for distance in (1, 2, 4, 8):
                order = ir.Constant(INTEGERS, [lane ^ distance for lane in range(LANES)])
                factors = [1.0 if lane & distance == 0 else -1.0 for lane in range(LANES)]
                other = builder.shuffle_vector(value, value, order)
                value = builder.fmul(value, ir.Constant(FLOATS, factors), flags=RELAXED)
                value = builder.fadd(other, value, flags=RELAXED)
            store(builder, value, at)
            return []

        loop(builder, a[3], [], step)
        return context.get_dummy_value()

    return types.void(x, first, signs, vectors, scale), codegen


@intrinsic
def mix_vectors(typingctx, x, first, step, radix):
    """Apply the Hadamard transform to 2 or 4 vectors of x, separately in each lane.

    The first vector begins at x[first], and the vectors are `step` elements apart. The number of
    vectors is the length of the tuple `radix`.
    """

    def codegen(context, builder, sig, a):
        count = len(sig.args[3])
        start = pointer(context, builder, sig.args[0], a[0], a[1])
        starts = [builder.gep(start, [builder.mul(a[2], I64(i))]) for i in range(count)]
        values = [load(builder, at, FLOATS) for at in starts]
        distance = 1
        while distance < count:
            pairs = [
                (values[i & ~distance], values[i | distance], i & distance) for i in range(count)
            ]
            values = [builder.fsub(x, y) if lower else builder.fadd(x, y) for x, y, lower in pairs]
            distance *= 2
        for at, value in zip(starts, values, strict=True):
            store(builder, value, at)
        return context.get_dummy_value()

    return types.void(x, first, step, radix), codegen

"""Tall-skinny products in tiles of 8 x 16 sums; every operation is rounded separately."""

from ..jit import intrinsic, ir, types
from .emit import I64, broadcast, load, loop, store

# The size of a tile. When B'Z is computed, a tile consists of this many columns of the basis B.
# When Z + B C is computed, a tile consists of this many rows of Z.
TILE = 8

# The number of columns of Z in a tile: a 512-bit register holds 16 float32 numbers.
LANES = 16


def _entry_of(context, builder, kinds, arguments):
    """Return a function at(a, row, column) that emits a pointer to an entry of argument number a.

    Argument number a is a matrix in C order.
    """

    def at(a, row, column):
        matrix = context.make_array(kinds[a])(context, builder, arguments[a])
        start = builder.mul(row, builder.extract_value(matrix.shape, 1))
        return builder.gep(matrix.data, [builder.add(start, column)])

    return at


def _plus_products(builder, totals, places, vector):
    """For each i, multiply `vector` by the number at places[i], and add the product to totals[i].

    The function returns the new totals.
    """
    scalars = [broadcast(builder, builder.load(place), vector.type) for place in places]
    products = [builder.fmul(scalar, vector) for scalar in scalars]
    return [builder.fadd(*pair) for pair in zip(totals, products, strict=True)]


def _accumulate(builder, count, targets, vector, step):
    """Emit a loop that updates the vectors to which `targets` point.

    The code first loads the vectors into `totals`. For each k below `count`, it sets totals =
    step(k, totals). At the end, it stores `totals` in the vectors.
    """
    totals = [load(builder, target, vector) for target in targets]
    for total, target in zip(loop(builder, count, totals, step), targets, strict=True):
        store(builder, total, target)


def _cross(lanes):
    """Return the intrinsic (B, first, last, j, Z, c, C) that adds B'Z to C[j:j+8, c:c+lanes].

    In the product B'Z, B stands for B[first:last, j:j+8], and Z stands for Z[first:last,
    c:c+lanes].
    """

    @intrinsic
    def cross(typing, B, first, last, j, Z, c, C):
        def codegen(context, builder, signature, arguments):
            at = _entry_of(context, builder, signature.args, arguments)
            vector = ir.VectorType(context.get_value_type(B.dtype), lanes)
            _, first, last, j, _, c, _ = arguments
            targets = [at(6, builder.add(j, I64(r)), c) for r in range(TILE)]

            def step(i, totals):
                row = builder.add(first, i)
                start = at(0, row, j)
                entries = [builder.gep(start, [I64(r)]) for r in range(TILE)]
                return _plus_products(
                    builder, totals, entries, load(builder, at(4, row, c), vector)
                )

            _accumulate(builder, builder.sub(last, first), targets, vector, step)
            return context.get_dummy_value()

        return types.void(B, first, last, j, Z, c, C), codegen

    return cross


def _add(rows, lanes):
    """Return the intrinsic (B, m, C, i, Z, c) that adds B C to Z[i:i+rows, c:c+lanes].

    In the product B C, B stands for B[i:i+rows, :m], and C stands for C[:m, c:c+lanes].
    """

    @intrinsic
    def add(typing, B, m, C, i, Z, c):
        def codegen(context, builder, signature, arguments):
            at = _entry_of(context, builder, signature.args, arguments)
            vector = ir.VectorType(context.get_value_type(B.dtype), lanes)
            _, m, _, i, _, c = arguments
            lines = [builder.add(i, I64(r)) for r in range(rows)]
            starts = [at(0, line, I64(0)) for line in lines]

            def step(j, totals):
                values = load(builder, at(2, j, c), vector)
                entries = [builder.gep(start, [j]) for start in starts]
                return _plus_products(builder, totals, entries, values)

            _accumulate(builder, m, [at(4, line, c) for line in lines], vector, step)
            return context.get_dummy_value()

        return types.void(B, m, C, i, Z, c), codegen

    return add


cross_16, cross_1 = _cross(LANES), _cross(1)

add_8_16, add_8_1, add_1_16, add_1_1 = _add(8, LANES), _add(8, 1), _add(1, LANES), _add(1, 1)

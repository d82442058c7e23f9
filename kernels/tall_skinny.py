"""Tall-skinny products of a basis with a block of few columns: B'Z and Z + B C.

BLAS is as fast, but its threads busy-wait for milliseconds after a call, on cores that the next
sparse product needs, and its bits depend on the number of threads. Here tiles of 8 x 16 sums stay
in registers, as LLVM vector IR. Every product and every sum is rounded separately: results are
bit-identical to the plain loops, ``*_plain``, on every CPU.
"""

from .jit import intrinsic, ir, kernel, types
from .simd.emit import I64, broadcast, load, loop, store

# basis columns, or rows of Z, in a tile
TILE = 8
# columns of Z in a tile: one 512-bit register of float32
_LANES = 16
# rows of the basis a pass, which stay in the first-level cache; with 256 the product takes twice as
# long, because hardware prefetching fails
_ROWS = 64


def _entry_of(context, builder, kinds, arguments):
    """Return at(a, row, column): pointer to an entry of the C-order matrix that is argument a."""

    def at(a, row, column):
        matrix = context.make_array(kinds[a])(context, builder, arguments[a])
        start = builder.mul(row, builder.extract_value(matrix.shape, 1))
        return builder.gep(matrix.data, [builder.add(start, column)])

    return at


def _plus_products(builder, totals, places, vector):
    """Return totals + (scalars at the places) * vector."""
    scalars = [broadcast(builder, builder.load(place), vector.type) for place in places]
    products = [builder.fmul(scalar, vector) for scalar in scalars]
    return [builder.fadd(*pair) for pair in zip(totals, products, strict=True)]


def _accumulate(builder, count, targets, vector, step):
    """Add to the vectors at the targets: totals = step(k, totals) for each k below count."""
    totals = [load(builder, target, vector) for target in targets]
    for total, target in zip(loop(builder, count, totals, step), targets, strict=True):
        store(builder, total, target)


def _cross(lanes):
    """Intrinsic (B, first, last, j, Z, c, C): C[j:j+8, c:c+lanes] += B[rows, j:j+8]'Z[rows, c:]."""

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
    """Intrinsic (B, m, C, i, Z, c): Z[i:i+rows, c:c+lanes] += B[i:i+rows, :m] C[:m, c:]."""

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


_cross_16, _cross_1 = _cross(_LANES), _cross(1)
_add_8_16, _add_8_1, _add_1_16, _add_1_1 = _add(8, _LANES), _add(8, 1), _add(1, _LANES), _add(1, 1)


@kernel
def cross_parts(lo, hi, boundaries, B, Z, C):
    """C[part] = B[rows]'Z[rows] for the rows of parts lo .. hi.

    boundaries (parts + 1,) int64 rows; B (p, at least m rounded up to 8) and Z (p, w) of one
    float type, C order; C (parts, m, w) of the same type, out. O(rows m w) time.
    """
    width = Z.shape[1]
    for part in range(lo, hi):
        target = C[part]
        target[:] = 0
        for first in range(boundaries[part], boundaries[part + 1], _ROWS):
            last = min(first + _ROWS, boundaries[part + 1])
            for j in range(0, C.shape[1], TILE):
                column = 0
                while column + _LANES <= width:
                    _cross_16(B, first, last, j, Z, column, target)
                    column += _LANES
                while column < width:
                    _cross_1(B, first, last, j, Z, column, target)
                    column += 1


@kernel
def cross_parts_plain(lo, hi, boundaries, B, Z, C):
    """Compute cross_parts without vector IR."""
    for part in range(lo, hi):
        C[part] = 0
        for i in range(boundaries[part], boundaries[part + 1]):
            for j in range(C.shape[1]):
                for c in range(Z.shape[1]):
                    C[part, j, c] += B[i, j] * Z[i, c]


@kernel
def add_product_rows(lo, hi, B, C, Z):
    """Z[i] += B[i, :m] C for rows lo .. hi.

    B (p, at least m), C (m, w) and Z (p, w), in/out, of one float type, C order.
    O((hi - lo) m w) time.
    """
    m, width = C.shape
    tiled = lo + (hi - lo) // TILE * TILE
    column = 0
    while column + _LANES <= width:
        for i in range(lo, tiled, TILE):
            _add_8_16(B, m, C, i, Z, column)
        for i in range(tiled, hi):
            _add_1_16(B, m, C, i, Z, column)
        column += _LANES
    while column < width:
        for i in range(lo, tiled, TILE):
            _add_8_1(B, m, C, i, Z, column)
        for i in range(tiled, hi):
            _add_1_1(B, m, C, i, Z, column)
        column += 1


@kernel
def add_product_rows_plain(lo, hi, B, C, Z):
    """Compute add_product_rows without vector IR."""
    for i in range(lo, hi):
        for j in range(C.shape[0]):
            for c in range(C.shape[1]):
                Z[i, c] += B[i, j] * C[j, c]

"""Tall-skinny products of a basis with a block of few columns: B'Z and Z + B C.

BLAS is as fast, but its threads busy-wait for milliseconds after a call, on cores that the next
sparse product needs, and its bits depend on the number of threads. Here tiles of 8 x 16 sums stay
in registers, as LLVM vector IR. Every product and every sum is rounded separately: results are
bit-identical to the plain loops, ``*_plain``, on every CPU.
"""

from .jit import intrinsic, ir, kernel, types
from .vector_ir import I64, broadcast, loop

# basis columns, or rows of Z, in a tile
TILE = 8
# columns of Z in a tile: one 512-bit register of float32
_LANES = 16
# rows of the basis a pass, which stay in the first-level cache; with 256 the product takes twice as
# long, because hardware prefetching fails
_ROWS = 64


class _Code:
    """Emits loads and stores of vectors that lie in rows of matrices."""

    def __init__(self, context, builder, signature, arguments, lanes):
        self._context, self._builder = context, builder
        self._types, self._arguments = signature.args, arguments
        self.vector = ir.VectorType(context.get_value_type(signature.args[0].dtype), lanes)

    def at(self, argument, row, column):
        """Pointer to an entry of a C-order matrix."""
        array_type = self._types[argument]
        array = self._context.make_array(array_type)(
            self._context, self._builder, self._arguments[argument]
        )
        length = self._builder.extract_value(array.shape, 1)
        start = self._builder.add(self._builder.mul(row, length), column)
        return self._builder.gep(array.data, [start])

    def load(self, pointer):
        return self._builder.load(self._as_vector(pointer), align=4)

    def store(self, value, pointer):
        self._builder.store(value, self._as_vector(pointer), align=4)

    def plus_product(self, total, pointer, vector):
        """Return total + (scalar at the pointer) * vector."""
        scalar = broadcast(self._builder, self._builder.load(pointer), self.vector)
        return self._builder.fadd(total, self._builder.fmul(scalar, vector))

    def _as_vector(self, pointer):
        return self._builder.bitcast(pointer, self.vector.as_pointer())


def _cross(lanes):
    """Intrinsic (B, first, last, j, Z, c, C): C[j:j+8, c:c+lanes] += B[rows, j:j+8]'Z[rows, c:]."""

    @intrinsic
    def cross(typing, B, first, last, j, Z, c, C):
        signature = types.void(B, first, last, j, Z, c, C)

        def codegen(context, builder, signature, arguments):
            code = _Code(context, builder, signature, arguments, lanes)
            _, first, last, j, _, c, _ = arguments
            targets = [code.at(6, builder.add(j, I64(r)), c) for r in range(TILE)]

            def step(i, totals):
                row = builder.add(first, i)
                vector, start = code.load(code.at(4, row, c)), code.at(0, row, j)
                entries = [builder.gep(start, [I64(r)]) for r in range(TILE)]
                return [
                    code.plus_product(total, entry, vector)
                    for total, entry in zip(totals, entries, strict=True)
                ]

            totals = [code.load(target) for target in targets]
            totals = loop(builder, builder.sub(last, first), totals, step)
            for total, target in zip(totals, targets, strict=True):
                code.store(total, target)
            return context.get_dummy_value()

        return signature, codegen

    return cross


def _add(rows, lanes):
    """Intrinsic (B, m, C, i, Z, c): Z[i:i+rows, c:c+lanes] += B[i:i+rows, :m] C[:m, c:]."""

    @intrinsic
    def add(typing, B, m, C, i, Z, c):
        signature = types.void(B, m, C, i, Z, c)

        def codegen(context, builder, signature, arguments):
            code = _Code(context, builder, signature, arguments, lanes)
            _, m, _, i, _, c = arguments
            lines = [builder.add(i, I64(r)) for r in range(rows)]
            starts = [code.at(0, line, I64(0)) for line in lines]
            targets = [code.at(4, line, c) for line in lines]

            def step(j, totals):
                vector = code.load(code.at(2, j, c))
                return [
                    code.plus_product(total, builder.gep(start, [j]), vector)
                    for total, start in zip(totals, starts, strict=True)
                ]

            totals = loop(builder, m, [code.load(target) for target in targets], step)
            for total, target in zip(totals, targets, strict=True):
                code.store(total, target)
            return context.get_dummy_value()

        return signature, codegen

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

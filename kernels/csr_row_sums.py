"""Sums over the non-zeros of one CSR row, accumulated in vector registers, as LLVM vector IR.

The product of a sparse row with a dense matrix is a weighted sum of rows of the matrix. Numba's
vectoriser loads and stores that sum once per non-zero. Here a panel of its columns stays in
registers across the non-zeros of the row and is stored once. Each product is added with one
rounding (``multiply_add``), in the order of the non-zeros: results are bit-identical to the plain
loop, for every vector width.

The IR names no instruction, so it compiles for every CPU. Values are an array, or None where every
value is 1. A float32 value is widened where the matrix is float64.
"""

from .intrinsics import emit_multiply_add
from .jit import intrinsic, ir, types
from .vector_ir import I32, I64, broadcast, while_loop

# numbers in one vector of IR: one 512-bit register of float32
LANES = 16
# bytes; streamed stores must start at one
CACHE_LINE = 64


class _RowCode:
    """Emits the loops over the non-zeros first .. last of one CSR row."""

    def __init__(self, context, builder, signature, arguments, element, width):
        self._context, self._builder = context, builder
        self._types, self._arguments = signature.args, arguments
        self._lanes = min(width, LANES)
        self._parts = range(width // self._lanes)
        self._vector = ir.VectorType(context.get_value_type(element), self._lanes)
        self._values = None if signature.args[0] is types.none else self._from_first(0)
        self._indices = self._from_first(1)
        self._count = builder.sub(arguments[3], arguments[2])

    def _array(self, argument):
        array_type = self._types[argument]
        return self._context.make_array(array_type)(
            self._context, self._builder, self._arguments[argument]
        )

    def _from_first(self, argument):
        return self._builder.gep(self._array(argument).data, [self._arguments[2]])

    def panel(self, argument, column=None):
        """Pointer to row 0 of a matrix, at the column argument if given, and the row length."""
        array = self._array(argument)
        first = I64(0) if column is None else self._arguments[column]
        start = self._builder.gep(array.data, [first])
        return start, self._builder.extract_value(array.shape, 1)

    def row(self, panel, index):
        start, length = panel
        return self._builder.gep(start, [self._builder.mul(index, length)])

    def zeros(self):
        return [ir.Constant(self._vector, [0.0] * self._lanes) for _ in self._parts]

    def load(self, pointer):
        return [self._builder.load(self._lanes_at(pointer, part), align=4) for part in self._parts]

    def store(self, values, pointer):
        for part, value in zip(self._parts, values, strict=True):
            self._builder.store(value, self._lanes_at(pointer, part), align=4)

    def stream(self, values, pointer):
        """Store past the caches; the pointer is aligned to a cache line."""
        hint = self._builder.module.add_metadata([I32(1)])
        for part, value in zip(self._parts, values, strict=True):
            stored = self._builder.store(value, self._lanes_at(pointer, part), align=CACHE_LINE)
            stored.set_metadata("nontemporal", hint)

    def _lanes_at(self, pointer, part):
        first = self._builder.gep(pointer, [I64(part * self._lanes)])
        return self._builder.bitcast(first, self._vector.as_pointer())

    def plus_products(self, sums, entry, vectors):
        """Return sums + (value of the row's entry) * vectors."""
        builder, element = self._builder, self._vector.element
        if self._values is None:
            return [builder.fadd(a, b) for a, b in zip(sums, vectors, strict=True)]
        value = builder.load(builder.gep(self._values, [entry]))
        if value.type != element:
            value = builder.fpext(value, element)
        values = broadcast(builder, value, self._vector)
        return [
            emit_multiply_add(builder, values, vector, total)
            for total, vector in zip(sums, vectors, strict=True)
        ]

    def for_each_entry(self, carried, step, bound=None):
        """Run carried = step(entry, index, carried) for every non-zero; return its end and result.

        With a bound, the loop ends at the first index that is not below it.
        """

        def visit(entry, values):
            return step(entry, self._index(entry), values)

        def is_below_bound(entry):
            return self._builder.icmp_signed("<", self._index(entry), bound)

        condition = None if bound is None else is_below_bound
        return while_loop(self._builder, self._count, carried, visit, condition)

    def _index(self, entry):
        index = self._builder.load(self._builder.gep(self._indices, [entry]))
        if index.type == I64:
            return index
        extend = self._builder.sext if self._types[1].dtype.signed else self._builder.zext
        return extend(index, I64)

    def weighted_sum(self, panel, start=None, bound=None):
        """Return start + sum of value times panel row over the non-zeros, and where it ended."""
        entry, sums = self.for_each_entry(
            self.zeros() if start is None else start,
            lambda entry, index, sums: self.plus_products(
                sums, entry, self.load(self.row(panel, index))
            ),
            bound,
        )
        return sums, entry

    def scatter(self, vectors, panel):
        """Add value times vectors to the panel row of every non-zero."""

        def step(entry, index, _):
            target = self.row(panel, index)
            self.store(self.plus_products(self.load(target), entry, vectors), target)
            return []

        self.for_each_entry([], step)


def row_sum(width, is_streamed=False):
    """Intrinsic (data, indices, first, last, A, a, Y, i, y): Y[i, y:] = sum x_t A[j_t, a:a+w].

    Returns Y[i, y]. A streamed sum is stored past the caches: Y[i, y] must be aligned to a cache
    line, and `fence` must follow the last row.
    """

    @intrinsic
    def sum_row(typing, data, indices, first, last, A, a_column, Y, row, y_column):
        signature = Y.dtype(data, indices, first, last, A, a_column, Y, row, y_column)

        def codegen(context, builder, signature, arguments):
            code = _RowCode(context, builder, signature, arguments, Y.dtype, width)
            sums, _ = code.weighted_sum(code.panel(4, 5))
            write = code.stream if is_streamed else code.store
            write(sums, code.row(code.panel(6, 8), arguments[7]))
            return builder.extract_element(sums[0], I32(0))

        return signature, codegen

    return sum_row


@intrinsic
def fence(typing):
    """Make streamed stores visible to other threads before any later store."""

    def codegen(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


def bounded_row_sum(width):
    """Intrinsic (data, indices, first, last, A, Y, i, bound): Y[i] += sum x_t A[j_t].

    A and Y have width columns. The sum ends at the first index >= bound; returns its position, or
    last.
    """

    @intrinsic
    def add_sum(typing, data, indices, first, last, A, Y, row, bound):
        signature = types.int64(data, indices, first, last, A, Y, row, bound)

        def codegen(context, builder, signature, arguments):
            code = _RowCode(context, builder, signature, arguments, Y.dtype, width)
            target = code.row(code.panel(5), arguments[6])
            sums, entry = code.weighted_sum(code.panel(4), code.load(target), arguments[7])
            code.store(sums, target)
            return builder.add(entry, arguments[2])

        return signature, codegen

    return add_sum


def scatter_row(width):
    """Intrinsic (data, indices, first, last, Y, i, y, Z, z): Z[j_t, z:] += x_t Y[i, y:y+w]."""

    @intrinsic
    def scatter(typing, data, indices, first, last, Y, row, y_column, Z, z_column):
        signature = types.void(data, indices, first, last, Y, row, y_column, Z, z_column)

        def codegen(context, builder, signature, arguments):
            code = _RowCode(context, builder, signature, arguments, Z.dtype, width)
            source = code.row(code.panel(4, 6), arguments[5])
            code.scatter(code.load(source), code.panel(7, 8))
            return context.get_dummy_value()

        return signature, codegen

    return scatter


def gram_row(width):
    """Intrinsic (data, indices, first, last, Q, q, Z, z): the row's sum, scattered into Z."""

    @intrinsic
    def gram(typing, data, indices, first, last, Q, q_column, Z, z_column):
        signature = types.void(data, indices, first, last, Q, q_column, Z, z_column)

        def codegen(context, builder, signature, arguments):
            code = _RowCode(context, builder, signature, arguments, Z.dtype, width)
            sums, _ = code.weighted_sum(code.panel(4, 5))
            code.scatter(sums, code.panel(6, 7))
            return context.get_dummy_value()

        return signature, codegen

    return gram

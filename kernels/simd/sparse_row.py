"""Sums over the non-zeros of one CSR row, accumulated in vector registers.

The product of a sparse row with a dense matrix is a weighted sum of rows of the matrix. In code
that Numba vectorises, this sum is loaded and stored once per non-zero. The LLVM IR in this module
instead keeps a panel of columns of the sum in registers for all non-zeros of the row, and stores
the panel once. A product and its addition are rounded once, together (``multiply_add``), and
products are added in the order of the non-zeros. Results are therefore bit-for-bit identical to the
results of a plain loop, for every vector width.

The IR does not name any machine instruction, so it can be compiled for every CPU. The values of the
row are passed as an array, or as None if every value is 1. A float32 value is widened if the matrix
is float64.
"""

import functools

from ..jit import intrinsic, ir, types
from .arithmetic import emit_multiply_add
from .emit import I32, I64, broadcast, load, pointer, store, while_loop

# The possible numbers of columns of a panel, the widest first.
WIDTHS = (64, 32, 16, 4, 1)
# The number of float32 numbers in one vector of the IR, which is a 512-bit register.
LANES = 16
# The number of bytes of a cache line. Streamed stores must start at a cache line.
CACHE_LINE = 64


class _RowCode:
    """A helper that emits loops over the non-zeros of one row of a CSR matrix.

    The first four arguments of the intrinsic are the values and the indices of the matrix, and the
    positions at which the row begins and ends. A panel is a number of columns of a dense matrix.
    """

    def __init__(self, context, builder, signature, arguments, element, width):
        self._context, self._builder = context, builder
        self._types, self._arguments = signature.args, arguments
        lanes = min(width, LANES)
        self._places = range(0, width, lanes)
        self._vector = ir.VectorType(context.get_value_type(element), lanes)
        values, indices = (
            None if kind is types.none else pointer(context, builder, kind, array, arguments[2])
            for kind, array in zip(signature.args[:2], arguments[:2], strict=True)
        )
        self._values, self._indices = values, indices
        self._count = builder.sub(arguments[3], arguments[2])

    def panel(self, argument, column):
        """Return a pointer to a column of row 0 of a matrix, and the length of a row."""
        make = self._context.make_array(self._types[argument])
        array = make(self._context, self._builder, self._arguments[argument])
        start = self._builder.gep(array.data, [column])
        return start, self._builder.extract_value(array.shape, 1)

    def row(self, panel, index):
        """Return a pointer to row `index` of a panel."""
        start, length = panel
        return self._builder.gep(start, [self._builder.mul(index, length)])

    def zeros(self):
        """Return vectors of zeros that have the shape of a row of a panel."""
        return [ir.Constant(self._vector, [0.0] * self._vector.count) for _ in self._places]

    def read(self, start):
        """Emit loads of the vectors of a row of a panel that begins at a pointer."""
        return [load(self._builder, start, self._vector, at) for at in self._places]

    def write(self, values, start):
        """Emit stores of the vectors of a row of a panel to a pointer."""
        for at, value in zip(self._places, values, strict=True):
            store(self._builder, value, start, at)

    def stream(self, values, start):
        """Emit stores of the vectors of a row to a pointer that do not pass through the caches.

        The pointer must be aligned to a cache line.
        """
        builder, hint = self._builder, self._builder.module.add_metadata([I32(1)])
        for at, value in zip(self._places, values, strict=True):
            place = builder.bitcast(builder.gep(start, [I64(at)]), self._vector.as_pointer())
            stored = builder.store(value, place, align=CACHE_LINE)
            stored.set_metadata("nontemporal", hint)

    def plus_products(self, sums, entry, vectors):
        """Emit the sums plus the products of one non-zero value with vectors.

        entry is the number of the non-zero in the row.
        """
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
        """Emit a loop `carried = step(entry, index, carried)` over the non-zeros of the row.

        entry is the number of the non-zero in the row, and index its column. The method returns the
        number of the non-zero at which the loop ends, and the final carried values. If a bound is
        given, the loop ends at the first index that is not below the bound.
        """

        def is_below(entry):
            return self._builder.icmp_signed("<", self._index(entry), bound)

        return while_loop(
            self._builder, self._count, carried,
            lambda entry, values: step(entry, self._index(entry), values),
            None if bound is None else is_below,
        )  # fmt: skip

    def _index(self, entry):
        """Emit a load of the column of a non-zero, as int64."""
        index = self._builder.load(self._builder.gep(self._indices, [entry]))
        if index.type == I64:
            return index
        extend = self._builder.sext if self._types[1].dtype.signed else self._builder.zext
        return extend(index, I64)

    def weighted_sum(self, panel, start=None, bound=None):
        """Emit start plus a sum over the non-zeros: each value times a row of a panel.

        The number of this row is the index of the non-zero. The method returns the sum and the
        number of the non-zero at which the loop ends.
        """

        def step(entry, index, sums):
            return self.plus_products(sums, entry, self.read(self.row(panel, index)))

        start = self.zeros() if start is None else start
        entry, sums = self.for_each_entry(start, step, bound)
        return sums, entry

    def scatter(self, vectors, panel):
        """Emit a loop that adds, for every non-zero, its value times vectors to a row of a panel.

        The number of this row is the index of the non-zero.
        """

        def step(entry, index, _):
            target = self.row(panel, index)
            self.write(self.plus_products(self.read(target), entry, vectors), target)
            return []

        self.for_each_entry([], step)


def _for_each_panel(context, builder, signature, arguments, matrix, carried, emit):
    """Emit `carried = emit(code, column, carried)` for panels that cover the columns of a matrix.

    The matrix is argument number `matrix`. code is a _RowCode, and column the first column of a
    panel. The widest panels of WIDTHS come first.
    """
    n_columns = builder.extract_value(
        context.make_array(signature.args[matrix])(context, builder, arguments[matrix]).shape, 1
    )
    column = I64(0)
    for width in WIDTHS:
        code = _RowCode(context, builder, signature, arguments, signature.args[matrix].dtype, width)
        end = builder.sub(n_columns, I64(width - 1))
        step = functools.partial(emit, code)
        column, carried = while_loop(builder, end, carried, step, first=column, stride=width)
    return carried


@intrinsic
def sum_row(typing, data, indices, first, last, A, Y, row, is_streamed):
    """Set Y[row] to the sum of data[t] A[indices[t]] over t from first to last.

    The intrinsic returns one entry of Y[row], or 0 if Y has no columns. If is_streamed is true,
    panels of 64 columns are stored without passing through the caches. The panels must then be
    aligned to a cache line, and a call of `fence` must follow the last row.
    """

    def codegen(context, builder, signature, arguments):
        def emit(code, column, _):
            sums, _ = code.weighted_sum(code.panel(4, column))
            target = code.row(code.panel(5, column), arguments[6])
            if len(sums) * LANES == WIDTHS[0]:
                with builder.if_else(arguments[7]) as (past_caches, through):
                    with past_caches:
                        code.stream(sums, target)
                    with through:
                        code.write(sums, target)
            else:
                code.write(sums, target)
            return [builder.extract_element(sums[0], I32(0))]

        zero_entry = [ir.Constant(context.get_value_type(Y.dtype), 0.0)]
        return _for_each_panel(context, builder, signature, arguments, 4, zero_entry, emit)[0]

    arrays = data, indices, first, last, A, Y, row
    return Y.dtype(*arrays, types.boolean), codegen


@intrinsic
def fence(typing):
    """Make stores that did not pass through the caches visible to other threads.

    These stores become visible before any store that follows the fence.
    """

    def codegen(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


def bounded_row_sum(width):
    """Return an intrinsic that adds the sum of data[t] A[indices[t]] to a row of Y.

    The arguments of the intrinsic are data, indices, first, last, A, Y, row and bound; A and Y have
    `width` columns. t runs from `first` up to the first index that is at least bound, or to `last`,
    and the intrinsic returns the t at which it ends. If bound is None, t runs from first to last,
    and Y[row] is set to the sum.
    """

    @intrinsic
    def add_sum(typing, data, indices, first, last, A, Y, row, bound):
        def codegen(context, builder, signature, arguments):
            code = _RowCode(context, builder, signature, arguments, Y.dtype, width)
            target = code.row(code.panel(5, I64(0)), arguments[6])
            start, end = code.read(target), arguments[7]
            if signature.args[7] == types.none:
                start, end = code.zeros(), None
            sums, entry = code.weighted_sum(code.panel(4, I64(0)), start, end)
            code.write(sums, target)
            return builder.add(entry, arguments[2])

        return types.int64(data, indices, first, last, A, Y, row, bound), codegen

    return add_sum


@intrinsic
def scatter_row(typing, data, indices, first, last, Y, row, y_column, Z):
    """Add data[t] Y[row, y_column : y_column + w] to Z[indices[t]], for t from first to last.

    Z has w columns.
    """

    def codegen(context, builder, signature, arguments):
        def emit(code, column, _):
            source = code.panel(4, builder.add(arguments[6], column))
            code.scatter(code.read(code.row(source, arguments[5])), code.panel(7, column))
            return []

        _for_each_panel(context, builder, signature, arguments, 7, [], emit)
        return context.get_dummy_value()

    return types.void(data, indices, first, last, Y, row, y_column, Z), codegen


@intrinsic
def gram_row(typing, data, indices, first, last, Q, q_column, Z):
    """Add data[t] s to Z[indices[t]], for t from first to last.

    s is the sum, over the same t, of data[t] Q[indices[t], q_column : q_column + w], where w is the
    number of columns of Z.
    """

    def codegen(context, builder, signature, arguments):
        def emit(code, column, _):
            sums, _ = code.weighted_sum(code.panel(4, builder.add(arguments[5], column)))
            code.scatter(sums, code.panel(6, column))
            return []

        _for_each_panel(context, builder, signature, arguments, 6, [], emit)
        return context.get_dummy_value()

    return types.void(data, indices, first, last, Q, q_column, Z), codegen

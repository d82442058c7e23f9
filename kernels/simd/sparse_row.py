"""Sums over the non-zeros of one CSR row, accumulated in vector registers.

The product of a sparse row with a dense matrix is a weighted sum of rows of the matrix. If Numba
vectorises the code, the weighted sum is loaded and stored once per non-zero. The LLVM IR in this
module keeps the sums of a panel of columns in registers until all non-zeros of the row have been
added, and stores these sums only once. Products are added in the order of the non-zeros, by fused
multiply-adds that round only once (``multiply_add``). Results are therefore bit-for-bit identical
to the results of a plain loop, for every vector width.

The IR does not name any machine instruction, so it can be compiled for every CPU. The values of the
row are passed as an array, or as None if every value is 1. A float32 value is converted to float64
if the matrix is float64.
"""

import functools

from ..jit import intrinsic, ir, types
from .arithmetic import emit_multiply_add
from .emit import BYTES, I32, I64, broadcast, element_size, load, pointer, store, while_loop
from .memory import emit_prefetch

# The possible numbers of columns of a panel, the widest first.
WIDTHS = (64, 32, 16, 8, 4, 1)
# The number of float32 numbers in one vector of the IR; a vector has 512 bits.
LANES = 16
# The number of bytes of a cache line. Streamed stores must start at a cache line.
CACHE_LINE = 64
# The prefetch distance. Each non-zero number of the sparse matrix is multiplied by a row of the
# dense matrix. If the dense matrix is large, each row is prefetched AHEAD products before the
# product that needs it. With every value of AHEAD from 8 to 24, X'(X Q) takes the same time
# (docs/dev/costs.md, "Sparse products").
AHEAD = 16
# If a kernel only reads a large dense matrix, it prefetches rows of at least this many bytes. The
# CPU takes less time to read shorter rows than to prefetch them. If a kernel changes a large dense
# matrix, it prefetches rows of at least one cache line.
_LONG_ROW_BYTES = 256


class _RowCode:
    """Methods that emit loops over the non-zeros of one row of a CSR matrix.

    The first four arguments of the intrinsic are the values of the matrix, its indices, the
    position at which the row begins, and the position at which the row ends. A panel is a group of
    neighbouring columns of a dense matrix.
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
        """Return a panel: a pointer to its first entry, and the length of the matrix's rows."""
        make = self._context.make_array(self._types[argument])
        array = make(self._context, self._builder, self._arguments[argument])
        start = self._builder.gep(array.data, [column])
        return start, self._builder.extract_value(array.shape, 1)

    def row(self, panel, index):
        """Return a pointer to row `index` of a panel."""
        start, length = panel
        return self._builder.gep(start, [self._builder.mul(index, length)])

    def zeros(self):
        """Return the vectors of zeros that fill one row of a panel."""
        return [ir.Constant(self._vector, [0.0] * self._vector.count) for _ in self._places]

    def read(self, start):
        """Emit instructions that load the vectors of a row of a panel at the address `start`."""
        return [load(self._builder, start, self._vector, at) for at in self._places]

    def write(self, values, start):
        """Emit instructions that store the vectors of a row of a panel at the address `start`."""
        for at, value in zip(self._places, values, strict=True):
            store(self._builder, value, start, at)

    def stream(self, values, start):
        """Emit stores that write the vectors of one row of a panel and bypass the caches.

        The address of the row must be aligned to a cache line.
        """
        builder, hint = self._builder, self._builder.module.add_metadata([I32(1)])
        for at, value in zip(self._places, values, strict=True):
            place = builder.bitcast(builder.gep(start, [I64(at)]), self._vector.as_pointer())
            stored = builder.store(value, place, align=CACHE_LINE)
            stored.set_metadata("nontemporal", hint)

    def plus_products(self, sums, entry, vectors):
        """Emit the sums sums[i] + value * vectors[i], where `value` is the value of a non-zero.

        `entry` is the position of the non-zero in the list of the non-zeros of the row.
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
        """Emit the loop `carried = step(entry, index, carried)` over the non-zeros of the row.

        `entry` is the position of a non-zero in the list of the non-zeros of the row, and `index`
        is the column of this non-zero. The method returns the `entry` at which the loop ends, and
        the final values of `carried`. If a bound is given, the loop ends at the first index that is
        not below the bound.
        """

        def is_below(entry):
            return self._builder.icmp_signed("<", self._index(entry), bound)

        return while_loop(
            self._builder, self._count, carried,
            lambda entry, values: step(entry, self._index(entry), values),
            None if bound is None else is_below,
        )  # fmt: skip

    def for_each_entry_ahead(self, carried, step, panel, is_ahead):
        """Emit the loop of ``for_each_entry``; the loop prefetches rows if is_ahead is true.

        The loop is emitted twice, because is_ahead is known only at run time. One of the two loops
        prefetches rows. In each step, this loop processes one non-zero, and prefetches the row of
        the panel that a later non-zero selects. The later non-zero is AHEAD positions away, and may
        belong to another row of the CSR matrix. The method returns the last carried values.
        """
        builder, outcomes = self._builder, []

        def step_ahead(entry, index, values):
            later = self.row(panel, self._index(builder.add(entry, I64(AHEAD))))
            later = builder.bitcast(later, BYTES)
            for at in range(0, self._row_bytes(panel), CACHE_LINE):
                emit_prefetch(builder, builder.gep(later, [I64(at)]))
            return step(entry, index, values)

        with builder.if_else(is_ahead) as branches:
            for branch, branch_step in zip(branches, (step_ahead, step), strict=True):
                with branch:
                    _, values = self.for_each_entry(carried, branch_step)
                    outcomes.append((values, builder.block))
        results = [builder.phi(value.type) for value in carried]
        for values, block in outcomes:
            for result, value in zip(results, values, strict=True):
                result.add_incoming(value, block)
        return results

    def _row_bytes(self, panel):
        """Return the size, in bytes, of a row of a panel."""
        return self._vector.count * len(self._places) * element_size(panel[0])

    def _index(self, entry):
        """Emit code that loads the column number of a non-zero as int64."""
        index = self._builder.load(self._builder.gep(self._indices, [entry]))
        if index.type == I64:
            return index
        extend = self._builder.sext if self._types[1].dtype.signed else self._builder.zext
        return extend(index, I64)

    def add_product(self, panel):
        """Return a loop step that adds a row of a panel, multiplied by a non-zero, to the sums.

        The number of the row to read is the column index of the non-zero.
        """

        def step(entry, index, sums):
            return self.plus_products(sums, entry, self.read(self.row(panel, index)))

        return step

    def weighted_sum(self, panel, is_ahead):
        """Emit a weighted sum of rows of a panel: each non-zero adds its value times one row.

        If is_ahead is true and a row of the panel has at least _LONG_ROW_BYTES bytes, rows of the
        panel are prefetched.
        """
        step = self.add_product(panel)
        if self._row_bytes(panel) < _LONG_ROW_BYTES:
            return self.for_each_entry(self.zeros(), step)[1]
        return self.for_each_entry_ahead(self.zeros(), step, panel, is_ahead)

    def scatter(self, vectors, panel, is_ahead):
        """Emit a loop that adds the products of the non-zeros and `vectors` to rows of a panel.

        The product of `vectors` and the non-zero in column j is added to row j of the panel. If
        is_ahead is true and a row of the panel has at least CACHE_LINE bytes, rows of the panel are
        prefetched.
        """

        def step(entry, index, _):
            target = self.row(panel, index)
            self.write(self.plus_products(self.read(target), entry, vectors), target)
            return []

        if self._row_bytes(panel) < CACHE_LINE:
            self.for_each_entry([], step)
        else:
            self.for_each_entry_ahead([], step, panel, is_ahead)


def _for_each_panel(context, builder, signature, arguments, element, n_columns, carried, emit):
    """Emit `carried = emit(code, column, carried)` for each panel of a matrix.

    Together, the panels cover n_columns columns. They have the widths in WIDTHS, and the widest
    panels come first. `element` is the type of the sums, `code` is a _RowCode, and `column` is the
    first column of a panel.
    """
    column = I64(0)
    for width in WIDTHS:
        code = _RowCode(context, builder, signature, arguments, element, width)
        end = builder.sub(n_columns, I64(width - 1))
        step = functools.partial(emit, code)
        column, carried = while_loop(builder, end, carried, step, first=column, stride=width)
    return carried


@intrinsic
def sum_row(typing, data, indices, first, last, A, Y, row, is_streamed, is_ahead):
    """Set Y[row] to the sum of data[t] * A[indices[t]] over t from `first` to `last`.

    The intrinsic returns one entry of Y[row], or 0 if Y has no columns. If is_streamed is true,
    stores of panels of 64 columns bypass the caches. If is_streamed is true, the panels must also
    be aligned to a cache line, and a call of `fence` must follow the last row. If is_ahead is true,
    rows of A are prefetched; `last` must then be at most len(indices) - AHEAD.
    """

    def codegen(context, builder, signature, arguments):
        def emit(code, column, _):
            sums = code.weighted_sum(code.panel(4, column), arguments[8])
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

        factor = context.make_array(signature.args[4])(context, builder, arguments[4])
        n_columns = builder.extract_value(factor.shape, 1)
        zero_entry = [ir.Constant(context.get_value_type(Y.dtype), 0.0)]
        return _for_each_panel(
            context, builder, signature, arguments, A.dtype, n_columns, zero_entry, emit
        )[0]

    arrays = data, indices, first, last, A, Y, row
    return Y.dtype(*arrays, types.boolean, types.boolean), codegen


@intrinsic
def fence(typing):
    """Emit a fence, which makes stores that bypassed the caches visible to other threads.

    Stores before the fence become visible before any store after the fence.
    """

    def codegen(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


def bounded_row_sum(width):
    """Return an intrinsic that adds the sum of data[t] * A[indices[t]] to a row of Y.

    The arguments of the intrinsic are `data`, `indices`, `first`, `last`, `A`, `Y`, `row` and
    `bound`; A and Y have `width` columns. The sum is over all t from `first` to `last`, but ends at
    the first t with indices[t] >= bound. The intrinsic returns the value of t at which the sum
    ends. If bound is None, the sum is over all t from `first` to `last`, and Y[row] is set to the
    sum.
    """

    @intrinsic
    def add_sum(typing, data, indices, first, last, A, Y, row, bound):
        def codegen(context, builder, signature, arguments):
            code = _RowCode(context, builder, signature, arguments, Y.dtype, width)
            target = code.row(code.panel(5, I64(0)), arguments[6])
            start, end = code.read(target), arguments[7]
            if signature.args[7] == types.none:
                start, end = code.zeros(), None
            step = code.add_product(code.panel(4, I64(0)))
            entry, sums = code.for_each_entry(start, step, end)
            code.write(sums, target)
            return builder.add(entry, arguments[2])

        return types.int64(data, indices, first, last, A, Y, row, bound), codegen

    return add_sum


@intrinsic
def scatter_row(typing, data, indices, first, last, Y, row, column, Z, width, is_ahead):
    """Add data[t] * Y[row, column + c] to Z[indices[t], c], for first <= t < last and c < width.

    If is_ahead is true, rows of Z are prefetched, which requires last <= len(indices) - AHEAD.
    """

    def codegen(context, builder, signature, arguments):
        *_, n_columns, is_ahead = arguments

        def emit(code, shift, _):
            source = code.panel(4, builder.add(arguments[6], shift))
            vectors = code.read(code.row(source, arguments[5]))
            code.scatter(vectors, code.panel(7, shift), is_ahead)
            return []

        _for_each_panel(context, builder, signature, arguments, Z.dtype, n_columns, [], emit)
        return context.get_dummy_value()

    options = types.int64, types.boolean
    return types.void(data, indices, first, last, Y, row, column, Z, *options), codegen


@intrinsic
def gram_row(typing, data, indices, first, last, Q, column, Z, width, is_ahead):
    """Add data[t] * s[c] to Z[indices[t], c], for t from `first` to `last` and c < width.

    Here, s[c] is the sum of data[t] * Q[indices[t], column + c] over t from `first` to `last`. If
    is_ahead is true, rows of Q and Z are prefetched, which requires last <= len(indices) - AHEAD.
    """

    def codegen(context, builder, signature, arguments):
        *_, n_columns, is_ahead = arguments

        def emit(code, shift, _):
            sums = code.weighted_sum(code.panel(4, builder.add(arguments[5], shift)), is_ahead)
            code.scatter(sums, code.panel(6, shift), is_ahead)
            return []

        _for_each_panel(context, builder, signature, arguments, Z.dtype, n_columns, [], emit)
        return context.get_dummy_value()

    options = types.int64, types.boolean
    return types.void(data, indices, first, last, Q, column, Z, *options), codegen

"""Operations that read rows whose number type is known only when a kernel runs (``records.Rows``).

A search reads rows of five number types. If rows of each number type had their own Numba type,
Numba would compile every function of a search again for each number type. A ``Rows`` is therefore
an array of bytes with a code of the number type, and only the operations of this file interpret the
bytes.

Each operation calls a function of LLVM, which selects the loop for the number types of its rows.
The function is never inlined, so a kernel contains every loop only once. The call takes about 2 ns.
"""

from ..jit import cgutils, intrinsic_of, ir, types
from .emit import F32, F64, I64, broadcast, element_type, load, loop, pointer, store
from .low_precision import (
    ARRAY_TYPES,
    BFLOAT16,
    ELEMENTS,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    N_NUMBER_TYPES,
    dtype_of,
    emit_float,
    numbers_of,
)
from .pair_products import LANES, emit_sums, sum_plain, term_of

# The number types of a query and of an item. Queries are float32 only if the items are float32.
_PAIRS = (
    (FLOAT32, FLOAT32), (FLOAT64, FLOAT64), (FLOAT64, FLOAT32), (FLOAT64, FLOAT16),
    (FLOAT64, BFLOAT16), (FLOAT64, INT8),
)  # fmt: skip
# The type of the results of an operation that returns two numbers.
_TWO = ir.LiteralStructType([F64, F64])


def _numbers_plain(rows, row):
    return numbers_of(rows.data[row].view(ARRAY_TYPES[rows.number_type]))


def _row_product_plain(x, i, y, j):
    pairs = zip(_numbers_plain(x, i), _numbers_plain(y, j), strict=True)
    return sum_plain([x_value * y_value for x_value, y_value in pairs])


def _row_distance_plain(x, i, y, j):
    pairs = zip(_numbers_plain(x, i), _numbers_plain(y, j), strict=True)
    # The difference is multiplied by itself and not raised to the power 2, because the function pow
    # of the C library may round differently.
    differences = [x_value - y_value for x_value, y_value in pairs]
    return sum_plain([difference * difference for difference in differences])


def _two_row_products_plain(x, x_rows, y, y_rows):
    return tuple(_row_product_plain(x, x_rows[pair], y, y_rows[pair]) for pair in range(2))


def _two_row_distances_plain(x, x_rows, y, y_rows):
    return tuple(_row_distance_plain(x, x_rows[pair], y, y_rows[pair]) for pair in range(2))


def _row_square_plain(rows, row):
    return _row_product_plain(rows, row, rows, row)


def _square_and_product_plain(x, i, later, y, j):
    return _row_product_plain(x, i, x, i), _row_product_plain(x, i, y, j)


def _scale_row_plain(rows, row, factor, coefficient, shift, out):
    for j, value in enumerate(_numbers_plain(rows, row)):
        out[j] = factor * value - (coefficient * shift[j] if len(shift) else 0.0)


class _Rows:
    """The fields of an argument of the type Rows, as values of LLVM.

    The method row(i) emits a pointer to the bytes of row i.
    """

    def __init__(self, context, builder, signature, arguments, place):
        kind = signature.args[place]
        values = cgutils.unpack_tuple(builder, arguments[place])
        fields = dict(zip(kind.fields, zip(kind.types, values, strict=True), strict=True))
        self.number_type, self.n_columns = fields["number_type"][1], fields["n_columns"][1]
        array_type, data = fields["data"]
        array = context.make_array(array_type)(context, builder, data)
        row_size = builder.extract_value(array.shape, 1)
        self.row = lambda row: pointer(
            context, builder, array_type, data, builder.mul(row, row_size)
        )


def _call(builder, name, result, arguments, emit_body):
    """Emit a call of the function `name`, which is defined by emit_body(builder, arguments).

    A module defines the function once. If several modules that define the function are linked, one
    of the definitions remains.
    """
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = ir.Function(builder.module, kind, name)
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        # This attribute keeps LLVM from unrolling the loops. Unrolled loops are not faster, because
        # they wait for memory or for previous additions, and they take longer to compile.
        function.attributes.add("optsize")
        emit_body(ir.IRBuilder(function.append_basic_block("entry")), function.args)
    return builder.call(function, arguments)


def _emit_cases(builder, code, cases, emit_case):
    """Emit a block for each case; `cases` maps values of `code` to arguments of emit_case.

    The call emit_case(argument) emits the code of a block, which must end with a return. No other
    value of `code` may occur.
    """
    otherwise = builder.append_basic_block("otherwise")
    switch = builder.switch(code, otherwise)
    for value, argument in cases.items():
        block = builder.append_basic_block("case")
        switch.add_case(I64(value), block)
        builder.position_at_end(block)
        emit_case(argument)
    builder.position_at_end(otherwise)
    builder.unreachable()


def _typed(builder, row, number_type):
    """Return a pointer to the numbers of a row, from a pointer to its bytes."""
    return builder.bitcast(row, ELEMENTS[number_type].as_pointer())


def _code_of(builder, x, y):
    """Return the number that stands for a pair of number types in the cases of _emit_cases."""
    return builder.add(builder.mul(x.number_type, I64(N_NUMBER_TYPES)), y.number_type)


def _cases_of(pairs):
    """Return the argument `cases` of _emit_cases for these pairs of number types."""
    return {x * N_NUMBER_TYPES + y: (x, y) for x, y in pairs}


def _return_two(builder, sums):
    """Emit the end of a function that returns two numbers."""
    result = ir.Constant(_TWO, ir.Undefined)
    for place, total in enumerate(sums):
        result = builder.insert_value(result, total, place)
    builder.ret(result)


def _tuple_of_two(context, builder, signature, result):
    """Return, as a Numba tuple, the two numbers that an LLVM function has returned."""
    sums = [builder.extract_value(result, place) for place in range(2)]
    return context.make_tuple(builder, signature.return_type, sums)


def _emit_pairs(name, count, difference):
    """Return a generator of code that computes the sums of `count` pairs of rows at the same time.

    The sums are squared distances if `difference` is true, and otherwise inner products.
    """

    def emit_body(builder, arguments):
        code, depth, *rows = arguments

        def emit_case(number_types):
            dtypes = [dtype_of(number_type) for number_type in number_types]
            add_pair = term_of(dtypes, difference)

            def add(builder, sums, elements):
                pairs = (elements[2 * pair : 2 * pair + 2] for pair in range(count))
                return [
                    add_pair(builder, [total], pair)[0]
                    for total, pair in zip(sums, pairs, strict=True)
                ]

            typed = [
                _typed(builder, row, number_types[place % 2])
                for place, row in enumerate(rows[: 2 * count])
            ]
            later = [(_typed(builder, row, number_types[1]), 1) for row in rows[2 * count :]]
            sums = emit_sums(builder, typed, dtypes * count, depth, count, add, later)
            builder.ret(sums[0]) if count == 1 else _return_two(builder, sums)

        _emit_cases(builder, code, _cases_of(_PAIRS), emit_case)

    def codegen(context, builder, signature, arguments):
        x, y = (_Rows(context, builder, signature, arguments, place) for place in (0, 2))
        x_rows, y_rows = [arguments[1]], [arguments[3]]
        if count == 2:
            x_rows = cgutils.unpack_tuple(builder, arguments[1], 2)
            y_rows = cgutils.unpack_tuple(builder, arguments[3], 4)
        rows = [y.row(row) for row in y_rows]
        for pair, row in enumerate(x_rows):
            rows.insert(2 * pair, x.row(row))
        inputs = [_code_of(builder, x, y), y.n_columns, *rows]
        sums = _call(builder, name, F64 if count == 1 else _TWO, inputs, emit_body)
        return sums if count == 1 else _tuple_of_two(context, builder, signature, sums)

    return codegen


@intrinsic_of(_row_product_plain)
def row_product(typingctx, x, i, y, j):
    """Return the float64 inner product of row i of x and row j of y.

    `x` and `y` are Rows. If y is not float32, x must be float64.
    """
    return types.float64(x, i, y, j), _emit_pairs("fastcos_row_product", 1, False)


@intrinsic_of(_row_distance_plain)
def row_distance(typingctx, x, i, y, j):
    """Return the float64 squared distance of row i of x and row j of y (see row_product)."""
    return types.float64(x, i, y, j), _emit_pairs("fastcos_row_distance", 1, True)


@intrinsic_of(_two_row_products_plain)
def two_row_products(typingctx, x, x_rows, y, y_rows):
    """Return the float64 inner products of two pairs of rows (see row_product).

    `x_rows` (2,) and `y_rows` (4,) hold row numbers. The first pair consists of row x_rows[0] of x
    and row y_rows[0] of y, and the second pair consists of row x_rows[1] of x and row y_rows[1] of
    y. The rows y_rows[2] and y_rows[3] of y belong to the next two pairs, and are prefetched.

    Each addition to a sum waits for the previous addition to this sum, so it is faster to compute
    two sums at the same time. For 30,000 rows of 384 columns, a pair takes 75 ns if two pairs are
    computed at a time, and 100 ns if pairs are computed one by one (Xeon).
    """
    two = types.UniTuple(types.float64, 2)
    return two(x, x_rows, y, y_rows), _emit_pairs("fastcos_two_row_products", 2, False)


@intrinsic_of(_two_row_distances_plain)
def two_row_distances(typingctx, x, x_rows, y, y_rows):
    """Return the float64 squared distances of two pairs of rows (see two_row_products)."""
    two = types.UniTuple(types.float64, 2)
    return two(x, x_rows, y, y_rows), _emit_pairs("fastcos_two_row_distances", 2, True)


@intrinsic_of(_row_square_plain)
def row_square(typingctx, rows, row):
    """Return the float64 inner product of a row of a Rows with itself."""

    def emit_body(builder, arguments):
        number_type, depth, start = arguments

        def emit_case(number_type):
            typed, dtype = _typed(builder, start, number_type), dtype_of(number_type)
            add_pair = term_of([dtype] * 2, False)

            def add(builder, sums, elements):
                return add_pair(builder, sums, elements * 2)

            (total,) = emit_sums(builder, [typed], [dtype], depth, 1, add)
            builder.ret(total)

        _emit_cases(builder, number_type, {code: code for code in range(N_NUMBER_TYPES)}, emit_case)

    def codegen(context, builder, signature, arguments):
        x = _Rows(context, builder, signature, arguments, 0)
        inputs = [x.number_type, x.n_columns, x.row(arguments[1])]
        return _call(builder, "fastcos_row_square", F64, inputs, emit_body)

    return types.float64(rows, row), codegen


@intrinsic_of(_square_and_product_plain)
def square_and_product(typingctx, x, i, later, y, j):
    """Return the inner products of row i of x with itself and with row j of y.

    `x` and `y` are Rows of the same number type, float32 or float64. Row `later` of x is
    prefetched.
    """

    def emit_body(builder, arguments):
        code, depth, *rows = arguments

        def emit_case(number_types):
            row, other, next_row = (_typed(builder, row, number_types[0]) for row in rows)
            dtypes = [dtype_of(number_type) for number_type in number_types]
            add_pair = term_of(dtypes, False)

            def add(builder, sums, elements):
                x, y = elements
                return [
                    *add_pair(builder, sums[:1], (x, x)),
                    *add_pair(builder, sums[1:], (x, y)),
                ]

            later = [(next_row, 2)]
            _return_two(builder, emit_sums(builder, [row, other], dtypes, depth, 2, add, later))

        _emit_cases(builder, code, _cases_of(((FLOAT32, FLOAT32), (FLOAT64, FLOAT64))), emit_case)

    def codegen(context, builder, signature, arguments):
        x, y = (_Rows(context, builder, signature, arguments, place) for place in (0, 3))
        rows = [x.row(arguments[1]), y.row(arguments[4]), x.row(arguments[2])]
        inputs = [_code_of(builder, x, y), x.n_columns, *rows]
        sums = _call(builder, "fastcos_square_and_product", _TWO, inputs, emit_body)
        return _tuple_of_two(context, builder, signature, sums)

    two = types.UniTuple(types.float64, 2)
    return two(x, i, later, y, j), codegen


@intrinsic_of(_scale_row_plain)
def scale_row(typingctx, rows, row, factor, coefficient, shift, out):
    """Set out[j] to factor * x[j] - coefficient * shift[j], where x is a row of a Rows.

    `shift` (d,) is float64; if it is empty, nothing is subtracted. The entries are computed in
    float64. If `out` (>= d,) is float32, they are rounded once when they are written to `out`; it
    may also be float64.
    """

    def emit_body(builder, arguments):
        number_type, depth, source, factor, coefficient, shift, n_shifts, target = arguments

        def emit_case(case):
            number_type, has_shift = case
            row, dtype = _typed(builder, source, number_type), dtype_of(number_type)

            def store_scaled(at, lanes):
                def read(array):
                    vector = ir.VectorType(element_type(array), lanes)
                    return load(builder, builder.gep(array, [at]), vector)

                def scaled(number, value):
                    return builder.fmul(broadcast(builder, number, value.type), value)

                value = scaled(factor, emit_float(builder, read(row), dtype, F64))
                if has_shift:
                    value = builder.fsub(value, scaled(coefficient, read(shift)))
                if element_type(target) == F32:
                    value = builder.fptrunc(value, ir.VectorType(F32, lanes))
                store(builder, value, builder.gep(target, [at]))
                return []

            # Whole vectors are processed first, and then the remaining numbers one by one.
            end = builder.and_(depth, I64(-LANES))
            n_vectors = builder.lshr(depth, I64(4))
            n_singles = builder.and_(depth, I64(LANES - 1))
            loop(
                builder, n_vectors, [], lambda k, _: store_scaled(builder.mul(k, I64(LANES)), LANES)
            )
            loop(builder, n_singles, [], lambda k, _: store_scaled(builder.add(end, k), 1))
            builder.ret_void()

        # The number `case` combines two values: its lowest bit is 1 if there is a shift, and its
        # other bits are the code of the number type.
        has_shift = builder.zext(builder.icmp_unsigned("!=", n_shifts, I64(0)), I64)
        case = builder.or_(builder.shl(number_type, I64(1)), has_shift)
        cases = {2 * code + bit: (code, bit) for code in range(N_NUMBER_TYPES) for bit in (0, 1)}
        _emit_cases(builder, case, cases, emit_case)

    def codegen(context, builder, signature, a):
        x = _Rows(context, builder, signature, a, 0)
        shift = context.make_array(signature.args[4])(context, builder, a[4])
        target = pointer(context, builder, signature.args[5], a[5], I64(0))
        inputs = [
            x.number_type,
            x.n_columns,
            x.row(a[1]),
            a[2],
            a[3],
            shift.data,
            shift.nitems,
            target,
        ]
        name = f"fastcos_scale_row_to_{signature.args[5].dtype}"
        _call(builder, name, ir.VoidType(), inputs, emit_body)
        return context.get_dummy_value()

    return types.void(rows, row, factor, coefficient, shift, out), codegen

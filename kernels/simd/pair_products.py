"""Inner products and squared distances of rows in float64, which define exact scores."""

from ..jit import cgutils, intrinsic_of, ir, types
from .arithmetic import emit_multiply_add
from .emit import (
    BYTES,
    F32,
    F64,
    I64,
    broadcast,
    element_size,
    element_type,
    fold,
    load,
    loop,
    pointers,
)  # fmt: skip
from .low_precision import emit_float, numbers_of
from .memory import emit_prefetch

# The number of partial sums of an inner product.
LANES = 16


def _sum_plain(terms):
    """Return the sum of terms, added in the order in which the code of _emit_sums adds them."""
    whole = len(terms) - len(terms) % LANES
    lanes = [0.0] * LANES
    for j in range(whole):
        lanes[j % LANES] += terms[j]
    while len(lanes) > 1:
        n_sums = len(lanes) // 2
        lanes = [lanes[lane] + lanes[lane + n_sums] for lane in range(n_sums)]
    total = lanes[0]
    for term in terms[whole:]:
        total += term
    return total


def _product_plain(x, x0, y, y0, depth):
    pairs = zip(numbers_of(x[x0 : x0 + depth]), numbers_of(y[y0 : y0 + depth]), strict=True)
    return _sum_plain([x_value * y_value for x_value, y_value in pairs])


def _squared_distance_plain(x, x0, y, y0, depth):
    # The difference is multiplied by itself, because the function pow of the C library may round
    # differently.
    pairs = zip(numbers_of(x[x0 : x0 + depth]), numbers_of(y[y0 : y0 + depth]), strict=True)
    differences = [x_value - y_value for x_value, y_value in pairs]
    return _sum_plain([difference * difference for difference in differences])


def _two_products_plain(x, x_starts, y, y_starts, depth):
    return tuple(_product_plain(x, x_starts[i], y, y_starts[i], depth) for i in range(2))


def _two_squared_distances_plain(x, x_starts, y, y_starts, depth):
    return tuple(_squared_distance_plain(x, x_starts[i], y, y_starts[i], depth) for i in range(2))


def _square_and_product_plain(x, x0, later, y, depth):
    return _product_plain(x, x0, x, x0, depth), _product_plain(x, x0, y, 0, depth)


def _emit_sums(builder, rows, dtypes, depth, count, add, later=()):
    """Emit `count` sums over the columns of rows, in the order that exact scores require.

    `rows` holds a pointer to each row, and `dtypes` holds the NumPy types of the rows. The function
    add(builder, sums, elements) adds the terms of one column to `sums`; if the sums are vectors of
    16 lanes, it adds the terms of 16 columns. The argument `elements` of `add` holds one number or
    one vector per row. Each entry of `later` consists of a pointer to a row and the level of the
    cache into which this row is prefetched.
    """

    def block(k, sums):
        at = builder.mul(k, I64(LANES))
        for row, level in later:
            start = builder.bitcast(builder.gep(row, [at]), BYTES)
            for offset in range(0, LANES * element_size(row), 64):
                emit_prefetch(builder, builder.gep(start, [I64(offset)]), level)
        elements = []
        for row, dtype in zip(rows, dtypes, strict=True):
            loaded = load(builder, builder.gep(row, [at]), ir.VectorType(element_type(row), LANES))
            elements.append(emit_float(builder, loaded, dtype, F64))
        return add(builder, sums, elements)

    def single(k, sums):
        at = builder.add(k, builder.mul(blocks, I64(LANES)))
        loaded = [builder.load(builder.gep(row, [at])) for row in rows]
        pairs = zip(loaded, dtypes, strict=True)
        elements = [emit_float(builder, value, dtype, F64) for value, dtype in pairs]
        return add(builder, sums, elements)

    kind = ir.VectorType(F64, LANES)
    blocks = builder.lshr(depth, I64(4))
    lanes = loop(builder, blocks, [broadcast(builder, F64(0.0), kind)] * count, block)
    n_singles = builder.and_(depth, I64(LANES - 1))
    sums = [fold(builder, lane_sums, builder.fadd) for lane_sums in lanes]
    return loop(builder, n_singles, sums, single)


def _multiply_add(builder, x, y, total, is_exact):
    """Emit total + x y, as one fused operation if is_exact is true.

    `is_exact` is true if the product is exact, so that fusing does not change the result. The
    product of two float32 numbers, for example, is exact in float64.
    """
    if is_exact:
        return emit_multiply_add(builder, x, y, total)
    return builder.fadd(total, builder.fmul(x, y))


def _emit(difference):
    """Return the code generator of `product` or, if `difference` is true, of `squared_distance`."""

    def codegen(context, builder, signature, arguments):
        places = (0, arguments[1]), (2, arguments[3])
        rows = pointers(context, builder, signature, arguments, *places)
        dtypes = [signature.args[a].dtype for a in (0, 2)]
        return _emit_sums(builder, rows, dtypes, arguments[4], 1, _term(dtypes, difference))[0]

    return codegen


def _emit_two(difference):
    """Return a code generator for the inner products or the squared distances of two pairs.

    The code generator is that of two_squared_distances if `difference` is true, and otherwise that
    of two_products.

    Each addition to a sum waits for the previous addition to this sum, so it is faster to compute
    two sums at the same time. For 30,000 rows of 384 columns, a pair takes 75 ns if two pairs are
    computed at a time, and 100 ns if pairs are computed one by one (Xeon).
    """

    def codegen(context, builder, signature, arguments):
        x_starts = cgutils.unpack_tuple(builder, arguments[1], 2)
        y_starts = cgutils.unpack_tuple(builder, arguments[3], 4)
        starts = [*((0, at) for at in x_starts), *((2, at) for at in y_starts)]
        x0, x1, y0, y1, *later = pointers(context, builder, signature, arguments, *starts)
        dtypes = [signature.args[a].dtype for a in (0, 2)]
        add_pair = _term(dtypes, difference)

        def add(builder, sums, elements):
            return [
                *add_pair(builder, sums[:1], elements[:2]),
                *add_pair(builder, sums[1:], elements[2:]),
            ]

        rows, soon = (x0, y0, x1, y1), [(row, 1) for row in later]
        sums = _emit_sums(builder, rows, dtypes * 2, arguments[4], 2, add, soon)
        return context.make_tuple(builder, signature.return_type, sums)

    return codegen


def _term(dtypes, difference):
    """Return the function `add` of _emit_sums; it adds (x - y)^2 if `difference`, else x y."""
    is_exact = not difference and all(dtype.bitwidth <= 32 for dtype in dtypes)

    def add(builder, sums, elements):
        x, y = elements
        if difference:
            x = y = builder.fsub(x, y)
        return [_multiply_add(builder, x, y, sums[0], is_exact)]

    return add


@intrinsic_of(_product_plain)
def product(typingctx, x, x0, y, y0, depth):
    """Return the float64 inner product of x[x0 : x0 + depth] and y[y0 : y0 + depth].

    `x` and `y` are flat arrays of float32 or float64, or of a type that ``low_precision`` converts.
    """
    return types.float64(x, x0, y, y0, depth), _emit(difference=False)


@intrinsic_of(_squared_distance_plain)
def squared_distance(typingctx, x, x0, y, y0, depth):
    """Return the float64 squared distance of x[x0 : x0 + depth] and y[y0 : y0 + depth].

    The arrays x and y have the types that ``product`` describes.
    """
    return types.float64(x, x0, y, y0, depth), _emit(difference=True)


@intrinsic_of(_two_products_plain)
def two_products(typingctx, x, x_starts, y, y_starts, depth):
    """Return the float64 inner products of two pairs of rows, which are stored in flat arrays.

    `x_starts` (2,) and `y_starts` (4,) hold the positions at which the rows begin in x and in y.
    The last two entries of y_starts are the positions of the rows of y in the next two pairs; these
    rows are prefetched.
    """
    two = types.UniTuple(types.float64, 2)
    return two(x, x_starts, y, y_starts, depth), _emit_two(difference=False)


@intrinsic_of(_two_squared_distances_plain)
def two_squared_distances(typingctx, x, x_starts, y, y_starts, depth):
    """Return the float64 squared distances of two pairs of rows, which are stored in flat arrays.

    The arguments are described in two_products.
    """
    two = types.UniTuple(types.float64, 2)
    return two(x, x_starts, y, y_starts, depth), _emit_two(difference=True)


@intrinsic_of(_square_and_product_plain)
def square_and_product(typingctx, x, x0, later, y, depth):
    """Return the inner product of a row of x with itself, and the inner product of the row with y.

    The row is x[x0 : x0 + depth], and the row of x that starts at `later` is prefetched. `y`
    (depth,) is float64; if x is float32, y must hold float32 numbers that the caller has widened.
    """

    def codegen(context, builder, signature, arguments):
        places = (0, arguments[1]), (0, arguments[2]), (3, I64(0))
        row, next_row, other = pointers(context, builder, signature, arguments, *places)
        dtypes = signature.args[0].dtype, signature.args[3].dtype
        is_exact = element_type(row) == F32

        def add(builder, sums, elements):
            x, y = elements
            pairs = zip((x, y), sums, strict=True)
            return [_multiply_add(builder, x, factor, total, is_exact) for factor, total in pairs]

        sums = _emit_sums(builder, (row, other), dtypes, arguments[4], 2, add, [(next_row, 2)])
        return context.make_tuple(builder, signature.return_type, sums)

    two = types.UniTuple(types.float64, 2)
    return two(x, x0, later, y, depth), codegen

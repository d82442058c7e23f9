"""Exact scores: float64 sums over the columns of two rows, with a fixed order of the terms.

``product`` reads arrays whose number type is known when a kernel is compiled. ``row_products``
computes the same sums from rows, such as the rows of a search, whose number type is known only when
a kernel runs.
"""

from ..jit import intrinsic_of, ir, types
from .arithmetic import emit_multiply_add
from .emit import (
    BYTES,
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


def sum_plain(terms):
    """Return the sum of `terms`, which are added in the same order as in the code of emit_sums."""
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
    return sum_plain([x_value * y_value for x_value, y_value in pairs])


def emit_sums(builder, rows, dtypes, depth, count, add, later=()):
    """Emit code for `count` sums over columns; the terms are added in the order of exact scores.

    `rows` holds a pointer to each row, and `dtypes` holds the NumPy types of the rows. The function
    add(builder, sums, elements) adds terms to `sums`. If the sums are vectors of 16 lanes, one call
    of `add` adds the terms of 16 columns. Otherwise, one call of `add` adds the terms of one
    column. The argument `elements` of `add` holds one number or one vector per row. Each entry of
    `later` is a pair: a pointer to a row that is prefetched, and the level of the cache that
    receives the row.
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


def term_of(dtypes, difference):
    """Return the function `add` of emit_sums.

    The function adds (x - y)^2 if `difference` is true, and otherwise x y.
    """
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

    def codegen(context, builder, signature, arguments):
        places = (0, arguments[1]), (2, arguments[3])
        rows = pointers(context, builder, signature, arguments, *places)
        dtypes = [signature.args[a].dtype for a in (0, 2)]
        add = term_of(dtypes, difference=False)
        return emit_sums(builder, rows, dtypes, arguments[4], 1, add)[0]

    return types.float64(x, x0, y, y0, depth), codegen

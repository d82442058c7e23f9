"""The float64 score of a pair of rows, which defines "exact" in every dense search.

Sums have 16 lanes: element j is added to lane j mod 16. The lanes are then added by halves, and the
last d mod 16 elements one by one. No operation is reassociated, or fused where that would round
differently, so the bits are the same on every CPU.

Rows of one or two bytes are widened in registers. Numba has neither of the two types of two bytes:
arrays of uint16 hold the bits of float16, those of int16 the bits of bfloat16.
"""

import math

import numpy as np

from .cpu import has_instruction
from .intrinsics import emit_multiply_add, emit_prefetch
from .jit import borrowing_kernel, cgutils, intrinsic_of, ir, kernel, types
from .simd.emit import (
    BYTES,
    F16,
    F32,
    F64,
    I32,
    I64,
    broadcast,
    element_size,
    fold,
    load,
    loop,
    pointers,
)

# partial sums of an inner product
LANES = 16
# buckets by which pairs are brought into the order of the items: their counts fit the first cache
_BUCKETS = 2048
# pairs up to which they are scored in the order they came: to sort them takes longer
_FEW_PAIRS = 256
# columns below which pairs are scored one by one: their rows need no prefetch, and a self-join of
# 2,000 x 64 takes 1.08 times as long by twos
_NARROW = 128
# metric types
DOT = 0
COSINE = 1
EUCLIDEAN = 2


def _sum_plain(terms):
    """Sum in the order of the emitted code."""
    whole = len(terms) - len(terms) % LANES
    lanes = [0.0] * LANES
    for j in range(whole):
        lanes[j % LANES] += terms[j]
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[lane] + lanes[lane + half] for lane in range(half)]
    total = lanes[0]
    for term in terms[whole:]:
        total += term
    return total


def _numbers(row):
    """Return the numbers that a row stands for."""
    if row.dtype == np.uint16:
        row = row.view(np.float16)
    elif row.dtype == np.int16:
        row = (row.astype(np.int32) << 16).view(np.float32)
    return row.astype(np.float64).tolist()


def _product_plain(x, x0, y, y0, depth):
    pairs = zip(_numbers(x[x0 : x0 + depth]), _numbers(y[y0 : y0 + depth]), strict=True)
    return _sum_plain([one * other for one, other in pairs])


def _squared_distance_plain(x, x0, y, y0, depth):
    # not ** 2: the power of the C library may round differently
    pairs = zip(_numbers(x[x0 : x0 + depth]), _numbers(y[y0 : y0 + depth]), strict=True)
    differences = [one - other for one, other in pairs]
    return _sum_plain([one * one for one in differences])


def _two_products_plain(x, x_starts, y, y_starts, depth):
    return tuple(_product_plain(x, x_starts[i], y, y_starts[i], depth) for i in range(2))


def _two_squared_distances_plain(x, x_starts, y, y_starts, depth):
    return tuple(_squared_distance_plain(x, x_starts[i], y, y_starts[i], depth) for i in range(2))


def _square_and_product_plain(x, x0, later, y, depth):
    return _product_plain(x, x0, x, x0, depth), _product_plain(x, x0, y, 0, depth)


def emit_float(builder, value, dtype, element):
    """Emit numbers of rows of this dtype, a scalar or a vector, as floats of a type of elements."""

    def like(kind):
        return ir.VectorType(kind, value.type.count) if is_vector else kind

    def constant(kind, number):
        return ir.Constant(like(kind), [number] * value.type.count if is_vector else number)

    is_vector = isinstance(value.type, ir.VectorType)
    if dtype.bitwidth == 8:
        return (builder.sitofp if dtype.signed else builder.uitofp)(value, like(element))
    if isinstance(dtype, types.Integer) and not dtype.signed and has_instruction("f16c"):
        value = builder.fpext(builder.bitcast(value, like(F16)), like(F32))
    elif isinstance(dtype, types.Integer):
        bits = builder.zext(value, like(I32))
        if dtype.signed:
            bits = builder.shl(bits, constant(I32, 16))
        else:
            sign = builder.shl(builder.and_(bits, constant(I32, 0x8000)), constant(I32, 16))
            bits = builder.shl(builder.and_(bits, constant(I32, 0x7FFF)), constant(I32, 13))
            # exponents of float16 are counted from 15, those of float32 from 127
            size = builder.fmul(builder.bitcast(bits, like(F32)), constant(F32, 2.0**112))
            is_number = builder.fcmp_ordered("<", size, constant(F32, 2.0**16))
            size = builder.select(is_number, size, constant(F32, math.inf))
            bits = builder.or_(builder.bitcast(size, like(I32)), sign)
        value = builder.bitcast(bits, like(F32))
    if value.type == like(element):
        return value
    return (builder.fpext if element == F64 else builder.fptrunc)(value, like(element))


def _emit_sums(builder, rows, dtypes, depth, count, add, later=()):
    """Emit sums of terms over rows, which are pointers: add adds one of each to the sums.

    later: pairs of a pointer to a row that is prefetched, and the level of its cache.
    """

    def block(k, sums):
        at = builder.mul(k, I64(LANES))
        for row, level in later:
            start = builder.bitcast(builder.gep(row, [at]), BYTES)
            for offset in range(0, LANES * element_size(row), 64):
                emit_prefetch(builder, builder.gep(start, [I64(offset)]), level)
        elements = []
        for row, dtype in zip(rows, dtypes, strict=True):
            loaded = load(builder, builder.gep(row, [at]), ir.VectorType(row.type.pointee, LANES))
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
    rest = builder.and_(depth, I64(LANES - 1))
    sums = [fold(builder, one, builder.fadd) for one in lanes]
    return loop(builder, rest, sums, single)


def _multiply_add(builder, x, y, total, is_exact):
    """Emit total + x y. The product of two float32 numbers is exact: fused, the bits are these."""
    if is_exact:
        return emit_multiply_add(builder, x, y, total)
    return builder.fadd(total, builder.fmul(x, y))


def _emit(difference):
    """Emit sum x*y or sum (x - y)^2 over two rows of flat arrays, in float64."""

    def codegen(context, builder, signature, arguments):
        places = (0, arguments[1]), (2, arguments[3])
        rows = pointers(context, builder, signature, arguments, *places)
        dtypes = [signature.args[a].dtype for a in (0, 2)]
        return _emit_sums(builder, rows, dtypes, arguments[4], 1, _term(dtypes, difference))[0]

    return codegen


def _emit_two(difference):
    """Emit the sums of two pairs of rows, and prefetch the rows of y of the next two.

    A sum waits for its last term: two at a time take 75 ns a pair of 30,000 x 384, one 100 (Xeon).
    """

    def codegen(context, builder, signature, arguments):
        x_starts = cgutils.unpack_tuple(builder, arguments[1], 2)
        y_starts = cgutils.unpack_tuple(builder, arguments[3], 4)
        starts = [*((0, at) for at in x_starts), *((2, at) for at in y_starts)]
        x0, x1, y0, y1, *later = pointers(context, builder, signature, arguments, *starts)
        dtypes = [signature.args[a].dtype for a in (0, 2)]
        one = _term(dtypes, difference)

        def add(builder, sums, elements):
            return [*one(builder, sums[:1], elements[:2]), *one(builder, sums[1:], elements[2:])]

        rows, soon = (x0, y0, x1, y1), [(row, 1) for row in later]
        sums = _emit_sums(builder, rows, dtypes * 2, arguments[4], 2, add, soon)
        return context.make_tuple(builder, signature.return_type, sums)

    return codegen


def _term(dtypes, difference):
    """Return what adds x y, or (x - y)^2, to a sum. Products of float32 numbers are exact."""
    is_exact = not difference and all(dtype.bitwidth <= 32 for dtype in dtypes)

    def add(builder, sums, elements):
        x, y = elements
        if difference:
            x = y = builder.fsub(x, y)
        return [_multiply_add(builder, x, y, sums[0], is_exact)]

    return add


@intrinsic_of(_product_plain)
def product(typingctx, x, x0, y, y0, depth):
    """Inner product of two rows of flat arrays, float64."""
    return types.float64(x, x0, y, y0, depth), _emit(difference=False)


@intrinsic_of(_squared_distance_plain)
def squared_distance(typingctx, x, x0, y, y0, depth):
    """Squared distance of two rows of flat arrays, float64."""
    return types.float64(x, x0, y, y0, depth), _emit(difference=True)


@intrinsic_of(_two_products_plain)
def two_products(typingctx, x, x_starts, y, y_starts, depth):
    """Inner products of two pairs of rows of flat arrays, float64.

    x_starts (2,), y_starts (4,): where the rows start, and those of y of the next two pairs, which
    are prefetched.
    """
    two = types.UniTuple(types.float64, 2)
    return two(x, x_starts, y, y_starts, depth), _emit_two(difference=False)


@intrinsic_of(_two_squared_distances_plain)
def two_squared_distances(typingctx, x, x_starts, y, y_starts, depth):
    """Squared distances of two pairs of rows, as two_products takes them."""
    two = types.UniTuple(types.float64, 2)
    return two(x, x_starts, y, y_starts, depth), _emit_two(difference=True)


@intrinsic_of(_square_and_product_plain)
def square_and_product(typingctx, x, x0, later, y, depth):
    """Return <x, x> and <x, y>, and prefetch the row of x that is ``later``.

    y (d,) float64; where x is float32, so are the numbers of y, which is widened only once.
    """

    def codegen(context, builder, signature, arguments):
        places = (0, arguments[1]), (0, arguments[2]), (3, I64(0))
        row, soon, other = pointers(context, builder, signature, arguments, *places)
        dtypes = signature.args[0].dtype, signature.args[3].dtype
        is_exact = row.type.pointee == F32

        def add(builder, sums, elements):
            x, y = elements
            pairs = zip((x, y), sums, strict=True)
            return [_multiply_add(builder, x, one, total, is_exact) for one, total in pairs]

        sums = _emit_sums(builder, (row, other), dtypes, arguments[4], 2, add, [(soon, 2)])
        return context.make_tuple(builder, signature.return_type, sums)

    two = types.UniTuple(types.float64, 2)
    return two(x, x0, later, y, depth), codegen


@borrowing_kernel
def score_pairs(
    metric_type, queries, query, query_norm, items, norms, offsets, columns, count, scores
):
    """Scores of the first count columns for one query, float64.

    queries (n, d), items (p, d); norms (p,); offsets (p,), or empty where all are 0; columns
    (>= count,) item numbers; scores (>= count,) out. DOT: <x, y> + offset. COSINE: <x, y> / (|x|
    |y|) clipped to [-1, 1], 0 where a norm is 0. EUCLIDEAN: -|x - y|^2, by differences,
    because |x|^2 + |y|^2 - 2 <x, y> cancels for near-duplicates.
    """
    depth = items.shape[1]
    start = query * depth
    starts = start, start
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    last = count - 1
    for entry in range(0, count, 2):
        other = min(entry + 1, last)
        next_one, next_other = min(entry + 2, last), min(entry + 3, last)
        item_starts = (
            columns[entry] * depth, columns[other] * depth, columns[next_one] * depth,
            columns[next_other] * depth,
        )  # fmt: skip
        scores[entry], scores[other] = _two_scores(
            metric_type, flat_queries, starts, flat_items, item_starts, depth
        )
    if metric_type == DOT:
        for entry in range(count if offsets.shape[0] > 0 else 0):
            scores[entry] += offsets[columns[entry]]
    elif metric_type != EUCLIDEAN:
        for entry in range(count):
            scores[entry] = cosine(scores[entry], query_norm * norms[columns[entry]])


@borrowing_kernel
def _two_scores(metric_type, queries, query_starts, items, item_starts, depth):
    """Return products, or negative squared distances, of two pairs of rows of flat arrays."""
    if metric_type == EUCLIDEAN:
        one, other = two_squared_distances(queries, query_starts, items, item_starts, depth)
        return -one, -other
    return two_products(queries, query_starts, items, item_starts, depth)


@kernel
def cosine(product, norm):
    """Cosine of two rows from their product and the product of their norms; 0 where that is 0."""
    return min(max(product / norm, -1.0), 1.0) if norm > 0.0 else 0.0


@kernel
def order_by_item(columns, n_items):
    """Return the numbers of the pairs, (m,) int32, those of near items together."""
    order = np.empty(columns.shape[0], np.int32)
    if columns.shape[0] <= _FEW_PAIRS:
        for entry in range(columns.shape[0]):
            order[entry] = entry
        return order
    shift = 0
    while n_items >> shift > _BUCKETS:
        shift += 1
    starts = np.zeros((n_items >> shift) + 2, np.int64)
    for entry in range(columns.shape[0]):
        starts[(columns[entry] >> shift) + 1] += 1
    for bucket in range(starts.shape[0] - 1):
        starts[bucket + 1] += starts[bucket]
    for entry in range(columns.shape[0]):
        bucket = columns[entry] >> shift
        order[starts[bucket]] = entry
        starts[bucket] += 1
    return order


@borrowing_kernel
def _score_by_twos(metric_type, numbers, columns, order, queries, items, depth, scores):
    """Write products, or negative squared distances, of pairs of rows of flat arrays."""
    if columns.shape[0] == 0:
        return
    # the next two items become those that are multiplied: indices are read once
    last = columns.shape[0] - 1
    one, other = order[0], order[min(1, last)]
    x0, x1 = columns[one] * depth, columns[other] * depth
    for place in range(0, last + 1, 2):
        next_one, next_other = order[min(place + 2, last)], order[min(place + 3, last)]
        x2, x3 = columns[next_one] * depth, columns[next_other] * depth
        starts = numbers[one] * depth, numbers[other] * depth
        scores[one], scores[other] = _two_scores(
            metric_type, queries, starts, items, (x0, x1, x2, x3), depth
        )
        one, other, x0, x1 = next_one, next_other, x2, x3


@borrowing_kernel
def score_pairs_by_item(
    metric_type, numbers, columns, order, queries, query_norms, items, norms, offsets, scores
):
    """scores[e] = score of query numbers[e] and item columns[e], read in the order of the items.

    numbers, columns (m,) int64; order (m,): as order_by_item returns; scores (m,) float64 out; the
    others and the scores as in score_pairs. Rows that lie together are read together.
    """
    depth, count = items.shape[1], columns.shape[0]
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    if depth < _NARROW:
        for place in range(count):
            entry = order[place]
            query_start, item_start = numbers[entry] * depth, columns[entry] * depth
            if metric_type == EUCLIDEAN:
                scores[entry] = -squared_distance(
                    flat_queries, query_start, flat_items, item_start, depth
                )
            else:
                scores[entry] = product(flat_queries, query_start, flat_items, item_start, depth)
    else:
        _score_by_twos(
            metric_type, numbers, columns, order, flat_queries, flat_items, depth, scores
        )
    for entry in range(count):
        column = columns[entry]
        if metric_type == COSINE:
            scores[entry] = cosine(scores[entry], query_norms[numbers[entry]] * norms[column])
        elif metric_type == DOT and offsets.shape[0] > 0:
            scores[entry] += offsets[column]


@kernel
def row_norms(lo, hi, rows, norms):
    """norms[i] = |rows[i]| for rows lo .. hi. rows (n, d) float, norms (n,) float64 out."""
    depth = rows.shape[1]
    flat = rows.reshape(-1)
    for i in range(lo, hi):
        norms[i] = math.sqrt(product(flat, i * depth, flat, i * depth, depth))

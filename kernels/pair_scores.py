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
from .intrinsics import emit_multiply_add, emit_prefetch, prefetch_row
from .jit import borrowing_kernel, intrinsic, intrinsic_of, ir, kernel, types
from .vector_ir import BYTES, F16, F32, F64, I32, I64, broadcast, fold, load, loop, pointers

# partial sums of an inner product
LANES = 16
# rows that are prefetched ahead: 100 ns a pair of 30,000 x 384; 4 rows 160 ns, 32 as 16
AHEAD = 16
# buckets by which pairs are brought into the order of the items: their counts fit the first cache
_BUCKETS = 2048
# pairs up to which they are scored in the order they came: to sort them takes longer
_FEW_PAIRS = 256
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


def _emit_sums(builder, rows, dtypes, depth, count, add, before=None):
    """Emit sums of terms over rows, which are pointers: add(sums, elements) adds one of each.

    before(at) is called for every 16 elements.
    """

    def block(k, sums):
        at = builder.mul(k, I64(LANES))
        if before is not None:
            before(at)
        elements = []
        for row, dtype in zip(rows, dtypes, strict=True):
            loaded = load(builder, builder.gep(row, [at]), ir.VectorType(row.type.pointee, LANES))
            elements.append(emit_float(builder, loaded, dtype, F64))
        return add(sums, elements)

    def single(k, sums):
        at = builder.add(k, builder.mul(blocks, I64(LANES)))
        loaded = [builder.load(builder.gep(row, [at])) for row in rows]
        pairs = zip(loaded, dtypes, strict=True)
        return add(sums, [emit_float(builder, value, dtype, F64) for value, dtype in pairs])

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
        is_exact = not difference and all(dtype.bitwidth <= 32 for dtype in dtypes)

        def add(sums, elements):
            x, y = elements
            if difference:
                x = y = builder.fsub(x, y)
            return [_multiply_add(builder, x, y, sums[0], is_exact)]

        return _emit_sums(builder, rows, dtypes, arguments[4], 1, add)[0]

    return codegen


@intrinsic_of(_product_plain)
def product(typingctx, x, x0, y, y0, depth):
    """Inner product of two rows of flat arrays, float64."""
    return types.float64(x, x0, y, y0, depth), _emit(difference=False)


@intrinsic_of(_squared_distance_plain)
def squared_distance(typingctx, x, x0, y, y0, depth):
    """Squared distance of two rows of flat arrays, float64."""
    return types.float64(x, x0, y, y0, depth), _emit(difference=True)


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

        def add(sums, elements):
            x, y = elements
            pairs = zip((x, y), sums, strict=True)
            return [_multiply_add(builder, x, one, total, is_exact) for one, total in pairs]

        def before(at):
            emit_prefetch(builder, builder.bitcast(builder.gep(soon, [at]), BYTES), level=2)

        sums = _emit_sums(builder, (row, other), dtypes, arguments[4], 2, add, before)
        return context.make_tuple(builder, signature.return_type, sums)

    pair = types.UniTuple(types.float64, 2)
    return pair(x, x0, later, y, depth), codegen


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
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    for entry in range(min(AHEAD, count)):
        prefetch_row(flat_items, columns[entry] * depth, depth)
    for entry in range(count):
        if entry + AHEAD < count:
            prefetch_row(flat_items, columns[entry + AHEAD] * depth, depth)
        start = columns[entry] * depth
        if metric_type == EUCLIDEAN:
            scores[entry] = -squared_distance(flat_queries, query * depth, flat_items, start, depth)
        else:
            scores[entry] = product(flat_queries, query * depth, flat_items, start, depth)
    if metric_type == DOT:
        for entry in range(count if offsets.shape[0] > 0 else 0):
            scores[entry] += offsets[columns[entry]]
    elif metric_type != EUCLIDEAN:
        for entry in range(count):
            scores[entry] = cosine(scores[entry], query_norm * norms[columns[entry]])


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
def score_pairs_by_item(
    metric_type, numbers, columns, order, queries, query_norms, items, norms, offsets, scores
):
    """scores[e] = score of query numbers[e] and item columns[e], read in the order of the items.

    numbers, columns (m,) int64; order (m,): as order_by_item returns; scores (m,) float64 out; the
    others and the scores as in score_pairs. Rows that lie together are read together.
    """
    depth, count = items.shape[1], columns.shape[0]
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    for place in range(count):
        if place + AHEAD < count:
            prefetch_row(flat_items, columns[order[place + AHEAD]] * depth, depth)
        entry = order[place]
        query, column = numbers[entry], columns[entry]
        if metric_type == EUCLIDEAN:
            scores[entry] = -squared_distance(
                flat_queries, query * depth, flat_items, column * depth, depth
            )
            continue
        score = product(flat_queries, query * depth, flat_items, column * depth, depth)
        if metric_type == DOT:
            scores[entry] = score + offsets[column] if offsets.shape[0] > 0 else score
        else:
            scores[entry] = cosine(score, query_norms[query] * norms[column])


# Inner products in float32 take a quarter of the time of float64. They decide about nearly all
# candidates that the int8 codes leave open: their error is 10^-3 of that of the codes. With 4 x 16
# sums, and rows of float64 rounded, it is at most (d / 64 + 27) 2^-24 |x| |y|.

# norms between which no product overflows, and underflow is less than a tenth of that bound
_SMALLEST, _LARGEST = 1e-10, 1e15


@intrinsic
def _product_float32(typingctx, x, x0, y, y0, depth):
    """Inner product of two rows of flat arrays in float32, contracted, in 64 sums."""

    def codegen(context, builder, sig, a):
        starts = pointers(context, builder, sig, a, (0, a[1]), (2, a[3]))
        rows = [*zip(starts, (sig.args[0].dtype, sig.args[2].dtype), strict=True)]
        kind = ir.VectorType(F32, LANES)

        def numbers(row, dtype, at, lanes):
            start = builder.gep(row, [at])
            if lanes is None:
                value = builder.load(start)
            else:
                value = load(builder, start, ir.VectorType(row.type.pointee, lanes))
            return emit_float(builder, value, dtype, F32)

        def vectors(k, sums):
            first = builder.mul(k, I64(LANES * len(sums)))
            results = []
            for part, total in enumerate(sums):
                at = builder.add(first, I64(LANES * part))
                one, other = (numbers(*row, at, LANES) for row in rows)
                term = builder.fmul(one, other, flags=("contract",))
                results.append(builder.fadd(total, term, flags=("contract",)))
            return results

        def single(k, sums):
            at = builder.add(k, builder.shl(blocks, I64(6)))
            one, other = (numbers(*row, at, None) for row in rows)
            term = builder.fmul(one, other, flags=("contract",))
            return [builder.fadd(sums[0], term, flags=("contract",))]

        blocks = builder.lshr(a[4], I64(6))
        a0, a1, a2, a3 = loop(builder, blocks, [broadcast(builder, F32(0.0), kind)] * 4, vectors)
        total = builder.fadd(builder.fadd(a0, a1), builder.fadd(a2, a3))
        total = fold(builder, total, builder.fadd)
        return loop(builder, builder.and_(a[4], I64(63)), [total], single)[0]

    return types.float32(x, x0, y, y0, depth), codegen


@borrowing_kernel
def may_reach_by_item(
    metric_type, numbers, columns, order, queries, query_norms, items, norms, offsets, least, reach
):
    """reach[e] (m,) uint8 out: whether query numbers[e] and item columns[e] may score least[e].

    By products of float32, with their rounding; 1 where that cannot be said. The other arguments as
    in score_pairs_by_item.
    """
    depth, count = items.shape[1], columns.shape[0]
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    # single elements behind the last block of 64 are added one by one
    rounding = 1.1 * (depth // 64 + 27 + (depth & 63)) * 2.0**-24
    for place in range(count):
        if place + AHEAD < count:
            prefetch_row(flat_items, columns[order[place + AHEAD]] * depth, depth)
        entry = order[place]
        query, column = numbers[entry], columns[entry]
        query_norm, item_norm = query_norms[query], norms[column]
        if not (_SMALLEST < min(query_norm, item_norm) <= max(query_norm, item_norm) < _LARGEST):
            reach[entry] = 1
            continue
        score = np.float64(
            _product_float32(flat_queries, query * depth, flat_items, column * depth, depth)
        )
        size = query_norm * item_norm
        error = rounding * size
        if metric_type == EUCLIDEAN:
            squares = query_norm * query_norm + item_norm * item_norm
            score, error = 2.0 * score - squares, 2.0 * error + 1e-13 * squares
        elif metric_type == DOT:
            offset = offsets[column] if offsets.shape[0] > 0 else 0.0
            score, error = score + offset, error + 1e-13 * abs(offset)
        else:
            score, error = score / size, rounding
        reach[entry] = score + error >= least[entry]


@kernel
def row_norms(lo, hi, rows, norms):
    """norms[i] = |rows[i]| for rows lo .. hi. rows (n, d) float, norms (n,) float64 out."""
    depth = rows.shape[1]
    flat = rows.reshape(-1)
    for i in range(lo, hi):
        norms[i] = math.sqrt(product(flat, i * depth, flat, i * depth, depth))

"""The float64 score of one pair of rows: the definition of exact in every dense search.

Sums run in 16 lanes (element j goes to lane j mod 16), the lanes are added by halves, and the last
d mod 16 elements follow one by one. No operation is contracted or reassociated, so the bits are the
same on every CPU.
"""

import math

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .jit import kernel
from .vector_ir import F64, I64, broadcast, load, loop, pointer, sum_lanes

LANES = 16
DOT, COSINE, EUCLIDEAN = 0, 1, 2


def _emit(difference):
    """Code of sum x*y or sum (x - y)^2 over two rows of flat arrays."""

    def codegen(context, builder, signature, arguments):
        rows = [
            pointer(context, builder, signature.args[a], arguments[a], arguments[a + 1])
            for a in (0, 2)
        ]
        depth = arguments[4]

        def term(x, y):
            if difference:
                x = y = builder.fsub(x, y)
            return builder.fmul(x, y)

        def widened(value, kind):
            return value if value.type == kind else builder.fpext(value, kind)

        def block(k, sums):
            kind = ir.VectorType(F64, LANES)
            at = builder.mul(k, I64(LANES))
            x, y = (
                widened(
                    load(builder, builder.gep(row, [at]), ir.VectorType(row.type.pointee, LANES)),
                    kind,
                )
                for row in rows
            )
            return [builder.fadd(sums[0], term(x, y))]

        def single(k, sums):
            at = builder.add(k, builder.mul(blocks, I64(LANES)))
            x, y = (widened(builder.load(builder.gep(row, [at])), F64) for row in rows)
            return [builder.fadd(sums[0], term(x, y))]

        blocks = builder.lshr(depth, I64(4))
        zero = broadcast(builder, F64(0.0), ir.VectorType(F64, LANES))
        (lanes,) = loop(builder, blocks, [zero], block)
        rest = builder.and_(depth, I64(LANES - 1))
        return loop(builder, rest, [sum_lanes(builder, lanes)], single)[0]

    return codegen


@intrinsic
def _product(typingctx, x, x0, y, y0, depth):
    return types.float64(x, x0, y, y0, depth), _emit(difference=False)


@intrinsic
def _squared_distance(typingctx, x, x0, y, y0, depth):
    return types.float64(x, x0, y, y0, depth), _emit(difference=True)


def _slow_product(x, x0, y, y0, depth):
    """The same sum in plain Python: the truth of the emitted code, and its stand-in without JIT."""
    lanes = [0.0] * LANES
    whole = depth - depth % LANES
    for j in range(whole):
        lanes[j % LANES] += float(x[x0 + j]) * float(y[y0 + j])
    return _slow_end(lanes, [float(x[x0 + j]) * float(y[y0 + j]) for j in range(whole, depth)])


def _slow_squared_distance(x, x0, y, y0, depth):
    lanes = [0.0] * LANES
    whole = depth - depth % LANES
    for j in range(depth):
        difference = float(x[x0 + j]) - float(y[y0 + j])
        if j < whole:
            lanes[j % LANES] += difference * difference
    rest = [(float(x[x0 + j]) - float(y[y0 + j])) ** 2 for j in range(whole, depth)]
    return _slow_end(lanes, rest)


def _slow_end(lanes, rest):
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[lane] + lanes[lane + half] for lane in range(half)]
    total = lanes[0]
    for term in rest:
        total += term
    return total


if numba.config.DISABLE_JIT:
    product, squared_distance = _slow_product, _slow_squared_distance
else:
    product, squared_distance = _product, _squared_distance


@kernel
def pair_key(form, queries, i, query_norm, items, j, item_norm, item_offset, depth):
    """Key by which item j is ranked for query i. queries, items flat; float64 result.

    DOT: <x, y> + offset. COSINE: <x, y> / (|x| |y|) clipped to [-1, 1], 0 where a norm is 0.
    EUCLIDEAN: -|x - y|^2, by differences, so near-duplicates do not cancel.
    """
    if form == EUCLIDEAN:
        return -squared_distance(queries, i * depth, items, j * depth, depth)
    key = product(queries, i * depth, items, j * depth, depth)
    if form == DOT:
        return key + item_offset
    if query_norm == 0.0 or item_norm == 0.0:
        return 0.0
    return min(max(key / (query_norm * item_norm), -1.0), 1.0)


@kernel
def row_norms(lo, hi, rows, norms):
    """norms[i] = |rows[i]| for rows lo .. hi. rows (n, d) float, norms (n,) float64 out."""
    depth = rows.shape[1]
    flat = rows.reshape(-1)
    for i in range(lo, hi):
        norms[i] = math.sqrt(product(flat, i * depth, flat, i * depth, depth))

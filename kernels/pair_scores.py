"""The float64 score of one pair of rows: the definition of exact in every dense search.

Sums run in 16 lanes (element j goes to lane j mod 16), the lanes are added by halves, and the last
d mod 16 elements follow one by one. No operation is contracted or reassociated, so the bits are the
same on every CPU.
"""

import math

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .jit import kernel
from .vector_ir import (
    BYTES,
    F64,
    I32,
    I64,
    broadcast,
    byte_pointer,
    function,
    load,
    loop,
    pointer,
    sum_lanes,
)

LANES = 16
# rows asked for ahead of their scoring: 49 to 35 ns a row of 128 in a list of 40,000
_AHEAD = 4
DOT, COSINE, EUCLIDEAN = 0, 1, 2


def _emit(difference):
    """Code of sum x*y or sum (x - y)^2 over two rows of flat arrays, in float64."""

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


@intrinsic
def _prefetch_row(typingctx, rows, start, size):
    """Ask for the cache lines of rows[start : start + size] (flat) ahead of their use."""

    def codegen(context, builder, sig, a):
        first = byte_pointer(context, builder, sig.args[0], a[0], a[1])
        ask = function(builder, "llvm.prefetch.p0", ir.VoidType(), [BYTES, I32, I32, I32])
        lines = builder.lshr(builder.mul(a[2], I64(sig.args[0].dtype.bitwidth // 8)), I64(6))
        with cgutils.for_range(builder, builder.add(lines, I64(1))) as line:
            at = builder.gep(first, [builder.mul(line.index, I64(64))])
            builder.call(ask, [at, I32(0), I32(3), I32(1)])
        return context.get_dummy_value()

    return types.void(rows, start, size), codegen


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


def _no_prefetch(rows, start, size):
    pass


if numba.config.DISABLE_JIT:
    product, squared_distance = _slow_product, _slow_squared_distance
    prefetch_row = _no_prefetch
else:
    product, squared_distance, prefetch_row = _product, _squared_distance, _prefetch_row


@kernel
def pair_keys(form, queries, query, query_norm, items, norms, offsets, columns, count, keys):
    """Keys by which the first count columns are ranked for one query, float64.

    queries (n, d), items (p, d) of one dtype; norms, offsets (p,); columns (>= count,) item
    numbers; keys (>= count,) out. DOT: <x, y> + offset. COSINE: <x, y> / (|x| |y|) clipped to
    [-1, 1], 0 where a norm is 0. EUCLIDEAN: -|x - y|^2, by differences, so that near-duplicates do
    not cancel.
    """
    depth = items.shape[1]
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    for entry in range(min(_AHEAD, count)):
        prefetch_row(flat_items, columns[entry] * depth, depth)
    for entry in range(count):
        if entry + _AHEAD < count:
            prefetch_row(flat_items, columns[entry + _AHEAD] * depth, depth)
        start = columns[entry] * depth
        if form == EUCLIDEAN:
            keys[entry] = -squared_distance(flat_queries, query * depth, flat_items, start, depth)
        else:
            keys[entry] = product(flat_queries, query * depth, flat_items, start, depth)
    if form == DOT:
        for entry in range(count):
            keys[entry] += offsets[columns[entry]]
    elif form != EUCLIDEAN:
        for entry in range(count):
            norm = query_norm * norms[columns[entry]]
            keys[entry] = min(max(keys[entry] / norm, -1.0), 1.0) if norm > 0.0 else 0.0


@kernel
def row_norms(lo, hi, rows, norms):
    """norms[i] = |rows[i]| for rows lo .. hi. rows (n, d) float, norms (n,) float64 out."""
    depth = rows.shape[1]
    flat = rows.reshape(-1)
    for i in range(lo, hi):
        norms[i] = math.sqrt(product(flat, i * depth, flat, i * depth, depth))

"""The float64 score of a pair of rows, which defines "exact" in every dense search.

Sums have 16 lanes: element j is added to lane j mod 16. The lanes are then added by halves, and the
last d mod 16 elements one by one. No operation is contracted or reassociated, so the bits are the
same on every CPU.
"""

import math

from llvmlite import ir

from .intrinsics import prefetch_row
from .jit import DISABLE_JIT, intrinsic, kernel, types
from .vector_ir import F64, I64, broadcast, load, loop, pointer, sum_lanes

# partial sums of an inner product
LANES = 16
# rows that are prefetched ahead: 35 instead of 49 ns a row of 128 dimensions in a list of 40,000
AHEAD = 4
# metric types
DOT = 0
COSINE = 1
EUCLIDEAN = 2


def _emit(difference):
    """Emit sum x*y or sum (x - y)^2 over two rows of flat arrays, in float64."""

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
def _product_compiled(typingctx, x, x0, y, y0, depth):
    return types.float64(x, x0, y, y0, depth), _emit(difference=False)


@intrinsic
def _squared_distance_compiled(typingctx, x, x0, y, y0, depth):
    return types.float64(x, x0, y, y0, depth), _emit(difference=True)


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


def _product_plain(x, x0, y, y0, depth):
    return _sum_plain([float(x[x0 + j]) * float(y[y0 + j]) for j in range(depth)])


def _squared_distance_plain(x, x0, y, y0, depth):
    return _sum_plain([(float(x[x0 + j]) - float(y[y0 + j])) ** 2 for j in range(depth)])


if DISABLE_JIT:
    product, squared_distance = _product_plain, _squared_distance_plain
else:
    product, squared_distance = _product_compiled, _squared_distance_compiled


@kernel
def score_pairs(
    metric_type, queries, query, query_norm, items, norms, offsets, columns, count, scores
):
    """Scores of the first count columns for one query, float64.

    queries (n, d), items (p, d) of one dtype; norms, offsets (p,); columns (>= count,) item
    numbers; scores (>= count,) out. DOT: <x, y> + offset. COSINE: <x, y> / (|x| |y|) clipped to
    [-1, 1], 0 where a norm is 0. EUCLIDEAN: -|x - y|^2, by differences, because |x|^2 + |y|^2 - 2
    <x, y> cancels for near-duplicates.
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
        for entry in range(count):
            scores[entry] += offsets[columns[entry]]
    elif metric_type != EUCLIDEAN:
        for entry in range(count):
            norm = query_norm * norms[columns[entry]]
            scores[entry] = min(max(scores[entry] / norm, -1.0), 1.0) if norm > 0.0 else 0.0


@kernel
def row_norms(lo, hi, rows, norms):
    """norms[i] = |rows[i]| for rows lo .. hi. rows (n, d) float, norms (n,) float64 out."""
    depth = rows.shape[1]
    flat = rows.reshape(-1)
    for i in range(lo, hi):
        norms[i] = math.sqrt(product(flat, i * depth, flat, i * depth, depth))

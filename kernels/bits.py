"""Exact top-k of packed bits: Hamming distances and cosines by counting bits, 8 items at a time.

Items of a block are laid out word by word: word j of eight items is one vector. So a word of a
query meets eight items in three instructions, and no sum crosses lanes.
"""

import numpy as np

from .exhaustive_top_k import write_run
from .jit import intrinsic_of, ir, kernel, types
from .select import keep_best
from .simd.emit import F64, I8, I64, broadcast, function, load, loop, pointers, store

# items of a vector
LANES = 8
# items that are laid out together: 32 KiB for 1,024 bits, which the first or second cache holds
_ITEMS = 256
# factor of a threshold that exceeds the rounding of the few operations of a cosine
_BELOW = 1.0 - 1e-12


def _count_plain(words, start, query, first, length, both, norms, item, slope, base, counts):
    """counts[l] (8,) int64 out: bits that item l and the query both have, or in which they differ.

    words: flat uint64, word j of item l at start + 8 j + l; query: flat, its words from first on.
    Return the lanes, as bits, where the count, or minus the differing bits, exceeds slope
    norms[item + l] + base.
    """
    mask = 0
    for lane in range(LANES):
        counts[lane] = 0
        for j in range(length):
            x, y = int(words[start + LANES * j + lane]), int(query[first + j])
            counts[lane] += (x & y if both else x ^ y).bit_count()
        value = counts[lane] if both else -counts[lane]
        mask |= int(value > slope * norms[item + lane] + base) << lane
    return mask


@intrinsic_of(_count_plain)
def _count(typingctx, words, start, query, first, length, both, norms, item, slope, base, counts):
    def codegen(context, builder, signature, arguments):
        places = (0, arguments[1]), (2, arguments[3]), (6, arguments[7]), (10, I64(0))
        items, row, sizes, out = pointers(context, builder, signature, arguments, *places)
        kind, floats = ir.VectorType(I64, LANES), ir.VectorType(F64, LANES)
        ones = function(builder, f"llvm.ctpop.v{LANES}i64", kind, [kind])
        is_both = builder.icmp_signed("!=", arguments[5], I64(0))

        def step(k, sums):
            word = broadcast(builder, builder.load(builder.gep(row, [k])), kind)
            eight = load(builder, builder.gep(items, [builder.mul(k, I64(LANES))]), kind)
            bits = builder.select(is_both, builder.and_(word, eight), builder.xor(word, eight))
            return [builder.add(sums[0], builder.call(ones, [bits]))]

        (total,) = loop(builder, arguments[4], [broadcast(builder, I64(0), kind)], step)
        store(builder, total, out)
        found = builder.sitofp(total, floats)
        found = builder.select(is_both, found, builder.fsub(ir.Constant(floats, [0.0] * 8), found))
        slopes, bases = (broadcast(builder, arguments[a], floats) for a in (8, 9))
        limit = builder.fadd(builder.fmul(load(builder, sizes, floats), slopes), bases)
        passing = builder.fcmp_ordered(">", found, limit)
        return builder.zext(builder.bitcast(passing, I8), I64)

    arguments = (words, start, query, first, length, both, norms, item, slope, base, counts)
    return types.int64(*arguments), codegen


@kernel
def nearest_bits(lo, hi, is_cosine, queries, query_norms, items, norms, own, scores, columns):
    """Best k of all items for queries lo .. hi, equal scores by lower number. O((hi - lo) m w).

    is_cosine 0 or 1; queries (n, w), items (m, w) uint64; query_norms (n,), norms (m + 8,):
    square roots of their numbers of bits that are 1, float64; own (n,): the item that is the query
    itself, or -1. scores (n, k) float64 out: minus the bits that differ, or the cosine of rows of 0
    and 1, 0 where a norm is 0; columns (n, k) int64 out. Allocates O((hi - lo) k).
    """
    k, w, m = columns.shape[1], items.shape[1], items.shape[0]
    capacity = 4 * k + 64
    run_scores, run_columns = np.empty((hi - lo, capacity)), np.empty((hi - lo, capacity), np.int64)
    held, bounds = np.zeros(hi - lo, np.int64), np.full(hi - lo, -np.inf)
    scratch, counts = np.empty(capacity), np.empty(LANES, np.int64)
    words, flat = np.zeros(_ITEMS * w, np.uint64), queries.reshape(-1)
    for first in range(0, m, _ITEMS):
        last = min(m, first + _ITEMS)
        for item in range(first, last):
            start = (item - first) // LANES * LANES * w + (item - first) % LANES
            for j in range(w):
                words[start + LANES * j] = items[item, j]
        for i in range(lo, hi):
            at = i - lo
            for group in range(first, last, LANES):
                slope, base = 0.0, bounds[at]
                if is_cosine and base >= 0.0:
                    slope, base = base * query_norms[i] * _BELOW, 0.0
                passing = _count(
                    words, (group - first) * w, flat, i * w, w, is_cosine, norms, group, slope,
                    base, counts,
                )  # fmt: skip
                if passing == 0:
                    continue
                for lane in range(min(LANES, last - group)):
                    item = group + lane
                    score = -float(counts[lane])
                    if is_cosine:
                        size = query_norms[i] * norms[item]
                        score = min(1.0, counts[lane] / size) if size > 0.0 else 0.0
                    # items ascend: a later one with the k-th best score is not better
                    if score <= bounds[at] or item == own[i]:
                        continue
                    run_scores[at, held[at]], run_columns[at, held[at]] = score, item
                    held[at] += 1
                    if held[at] == capacity:
                        held[at] = keep_best(run_scores[at], run_columns[at], capacity, k, scratch)
                        bounds[at] = run_scores[at, k - 1]
    for i in range(lo, hi):
        at = i - lo
        count = keep_best(run_scores[at], run_columns[at], held[at], k, scratch)
        write_run(run_scores[at], run_columns[at], count, scores[i], columns[i])

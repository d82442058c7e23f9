"""For sparse searches: each group's largest scaled sum, and the scaled sums that reach a bound.

A scaled sum is a sum times the factor of its item.
"""

import numpy as np

from ..jit import intrinsic_of, ir, types
from .emit import F64, I32, I64, broadcast, element_type, load, pointers, store

# The number of sums that are compared with a bound at once. Each comparison gives one bit of a
# uint64.
CHUNK = 64
# The number of sums in a group. The first threshold is estimated from the largest sum of each
# group.
GROUP = 16


def _scores(builder, sums_at, factors_at, kind, offset):
    """Emit a vector of the type `kind` that holds the scaled sums from position `offset` on."""
    values = load(builder, sums_at, ir.VectorType(element_type(sums_at), kind.count), offset)
    if element_type(sums_at) == I32:
        values = builder.sitofp(values, kind)
    return builder.fmul(values, load(builder, factors_at, kind, offset))


def _kind(factors_at):
    """Return the type of a 512-bit vector of factors: 16 float32 or 8 float64 numbers."""
    element = element_type(factors_at)
    return ir.VectorType(element, 8 if element == F64 else 16)


def _largest_of_groups_plain(sums, factors, start, maxima, at):
    """Write the largest scaled sum of each of 16 groups (8 groups with float64) to `maxima[at:]`.

    Group g contains sums[start + g] and the 15 sums that follow it at intervals of 16 (at intervals
    of 8 with float64).
    """
    lanes = 64 // factors.itemsize
    scores = sums[start : start + GROUP * lanes] * factors[start : start + GROUP * lanes]
    largest = scores.reshape(GROUP, lanes).max(axis=0)
    for lane in range(lanes):
        maxima[at + lane] = largest[lane]


@intrinsic_of(_largest_of_groups_plain)
def largest_of_groups(typingctx, sums, factors, start, maxima, at):
    """Write the largest scaled sum of each group to `maxima`, as _largest_of_groups_plain does."""

    def codegen(context, builder, sig, arguments):
        places = (0, arguments[2]), (1, arguments[2]), (3, arguments[4])
        sums_at, factors_at, out = pointers(context, builder, sig, arguments, *places)
        kind = _kind(factors_at)
        best = _scores(builder, sums_at, factors_at, kind, 0)
        for member in range(1, GROUP):
            scores = _scores(builder, sums_at, factors_at, kind, member * kind.count)
            best = builder.select(builder.fcmp_ordered(">", scores, best), scores, best)
        store(builder, best, out)
        return context.get_dummy_value()

    return types.void(sums, factors, start, maxima, at), codegen


def _sums_reaching_plain(sums, start, factors, bound):
    """Return a word whose bit j is 1 if sums[start + j] * factors[start + j] >= bound."""
    word = 0
    for j in range(CHUNK):
        if factors.dtype.type(sums[start + j]) * factors[start + j] >= bound:
            word |= 1 << j
    return np.uint64(word)


@intrinsic_of(_sums_reaching_plain)
def sums_reaching(typingctx, sums, start, factors, bound):
    """Return a word whose bits mark the sums that reach a bound; see _sums_reaching_plain."""

    def codegen(context, builder, sig, arguments):
        places = (0, arguments[1]), (2, arguments[1])
        sums_at, factors_at = pointers(context, builder, sig, arguments, *places)
        kind = _kind(factors_at)
        limit = broadcast(builder, arguments[3], kind)
        word = I64(0)
        for first in range(0, CHUNK, kind.count):
            scores = _scores(builder, sums_at, factors_at, kind, first)
            passed = builder.fcmp_ordered(">=", scores, limit)
            bits = builder.zext(builder.bitcast(passed, ir.IntType(kind.count)), I64)
            word = builder.or_(word, builder.shl(bits, I64(first)))
        return word

    return types.uint64(sums, start, factors, bound), codegen

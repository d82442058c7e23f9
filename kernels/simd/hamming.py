"""Counts of bits for a query and each of eight items: common 1 bits, or bits that differ."""

from ..jit import intrinsic_of, ir, types
from .emit import F64, I8, I64, broadcast, function, load, loop, pointers, store

# The number of items in a vector.
LANES = 8


def _count_bits_plain(words, start, query, first, length, both, norms, item, slope, base, counts):
    """Set counts[l] to the number of common 1 bits of item l and the query, or of differing bits.

    If `both` is true, the bits that are 1 in both rows are counted; otherwise, the bits that differ
    are counted. `counts` (8,) is int64. `words` is a flat array of uint64, in which word j of item
    l is words[start + 8 j + l]. The words of the query are query[first : first + length]. The
    function returns a word of 8 bits. Bit l of this word is 1 if the value of item l exceeds
    slope * norms[item + l] + base. The value of item l is counts[l] if `both` is true, and
    otherwise -counts[l].
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


@intrinsic_of(_count_bits_plain)
def count_bits(
    typingctx, words, start, query, first, length, both, norms, item, slope, base, counts
):
    """Count the common or the different bits of eight items and a query, like _count_bits_plain."""

    def codegen(context, builder, signature, arguments):
        places = (0, arguments[1]), (2, arguments[3]), (6, arguments[7]), (10, I64(0))
        items, row, sizes, out = pointers(context, builder, signature, arguments, *places)
        kind, floats = ir.VectorType(I64, LANES), ir.VectorType(F64, LANES)
        ones = function(builder, f"llvm.ctpop.v{LANES}i64", kind, [kind])
        is_both = builder.icmp_signed("!=", arguments[5], I64(0))

        def step(k, sums):
            word = broadcast(builder, builder.load(builder.gep(row, [k])), kind)
            eight_words = load(builder, builder.gep(items, [builder.mul(k, I64(LANES))]), kind)
            bits = builder.select(
                is_both, builder.and_(word, eight_words), builder.xor(word, eight_words)
            )
            return [builder.add(sums[0], builder.call(ones, [bits]))]

        (total,) = loop(builder, arguments[4], [broadcast(builder, I64(0), kind)], step)
        store(builder, total, out)
        counted = builder.sitofp(total, floats)
        counted = builder.select(
            is_both, counted, builder.fsub(ir.Constant(floats, [0.0] * 8), counted)
        )
        slopes, bases = (broadcast(builder, arguments[a], floats) for a in (8, 9))
        limit = builder.fadd(builder.fmul(load(builder, sizes, floats), slopes), bases)
        passing = builder.fcmp_ordered(">", counted, limit)
        return builder.zext(builder.bitcast(passing, I8), I64)

    arguments = (words, start, query, first, length, both, norms, item, slope, base, counts)
    return types.int64(*arguments), codegen

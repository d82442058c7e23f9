"""The scores of a tile that reach the thresholds of their queries, and the largest scores."""

from ..jit import cgutils, intrinsic, ir, types
from . import instruction_sets
from .emit import (
    F32,
    I8,
    I16,
    I32,
    I64,
    broadcast,
    element_type,
    function,
    load,
    loop,
    pointer,
    pointers,
    store,
)  # fmt: skip
from .panel import CODE_NORM, GROUP, OFFSET_WEIGHT, PANEL, RESIDUAL_NORM, REST_NORM, THRESHOLD
from .tile_scores import emit_scores_for_one

_V_I32, _V_F32 = ir.VectorType(I32, 16), ir.VectorType(F32, 16)


@intrinsic
def passing(typingctx, scores, lanes, lane0, statistics, panel, n_items, hits):
    """Write the pairs of a tile whose scores reach their thresholds to hits; return their number.

    scores (32, 32) is int32 or float32. From position lane0 on, lanes holds rows of 32 float32:
    threshold, query residual, coded norm and offset weight, in units of the query's scale.
    statistics (n_panels, 5) holds 1 / scale, largest norm, largest residual norm, largest offset
    and smallest offset of each panel. If the score of item i reaches the threshold of query q, the
    number 32 i + q is written to hits (1024,) int32, ordered by q and then i. Items from n_items on
    are ignored.
    """

    def codegen(context, builder, sig, a):
        places = (0, I64(0)), (1, a[2]), (3, builder.mul(a[4], I64(5))), (6, I64(0))
        values, queries, panel, out = pointers(context, builder, sig, a, *places)
        thresholds = _thresholds(builder, values, queries, panel)
        reached = [_reached(builder, values, half, thresholds[half]) for half in (0, 1)]
        return _emit_hits(builder, reached, _valid(builder, a[5]), out)

    return types.int64(scores, lanes, lane0, statistics, panel, n_items, hits), codegen


@intrinsic
def passing_by_projection(
    typingctx,
    scores,
    lanes,
    lane0,
    projected_lanes,
    projected_lane0,
    statistics,
    panel,
    n_items,
    rests,
    hits,
):
    """List hits as `passing` does, for scores of projected codes plus a bound of the remainders.

    The remainder of a row is the row minus its projection. lanes describes the full codes of the
    queries, and holds the thresholds. From position projected_lane0 on, projected_lanes holds five
    rows of 32 float32: the scale of the full codes, query residual, coded norm, offset weight and
    length of the query's remainder, in units of the scale of the projected codes. rests (32
    panels,) float32 holds the lengths of the remainders of the items.
    """
    signature = types.int64(
        scores,
        lanes,
        lane0,
        projected_lanes,
        projected_lane0,
        statistics,
        panel,
        n_items,
        rests,
        hits,
    )

    def codegen(context, builder, sig, a):
        starts = (1, a[2]), (3, a[4]), (5, I64(0)), (8, I64(0))
        projection_bound = _ProjectionBound(
            builder, a[6], *pointers(context, builder, sig, a, *starts)
        )
        values, out = pointers(context, builder, sig, a, (0, I64(0)), (9, I64(0)))
        reached = [projection_bound.reached(builder, values, half) for half in (0, 1)]
        return _emit_hits(builder, reached, _valid(builder, a[7]), out)

    return signature, codegen


@intrinsic
def find_by_projection(
    typingctx, isa, items, item0, words, codes, code0, start, query, lanes, projected_lanes,
    statistics, panel, n_items, rests, hits, hit0,
):  # fmt: skip
    """Write the items of a panel that passing_by_projection would list for one query to hits.

    The intrinsic returns the number of these items. For the arguments from `items` to `start`, see
    score_run. For the arguments from `lanes` to `rests`, see passing_by_projection; here they
    describe the first panel of queries. The numbers of the items in the panel are written to hits
    from hit0 on. The intrinsic works only for instruction sets that have codes.
    """
    signature = types.int64(
        isa, items, item0, words, codes, code0, start, query, lanes, projected_lanes, statistics,
        panel, n_items, rests, hits, hit0,
    )  # fmt: skip

    def codegen(context, builder, sig, a):
        isa = instruction_sets.of(sig)
        if not isa.has_codes:
            return I64(0)
        left, right = pointers(context, builder, sig, a, (1, a[2]), (4, a[5]))
        starts = (pointer(context, builder, sig.args[i], a[i], I64(0)) for i in (8, 9, 10, 13))
        projection_bound = _ProjectionBound(builder, a[11], *starts)
        out = pointer(context, builder, sig.args[14], a[14], a[15])
        totals = emit_scores_for_one(builder, isa, left, right, a[3], a[6])
        word = builder.and_(
            projection_bound.reached_by(builder, totals, a[7]), _valid(builder, a[12])
        )
        return _list_bits(builder, word, I32(0), out)

    return signature, codegen


@intrinsic
def list_reaching(typingctx, scores, score0, minimum, n_items, hits, hit0):
    """Write the places of scores[score0 : score0 + 32] that are at least `minimum` to hits.

    The intrinsic returns the number of these places. scores is flat and int32; for float32 scores
    nothing is written. minimum is float32. Items from n_items on are ignored. The ascending places
    in scores are written to hits, int32, from hit0 on.
    """

    def codegen(context, builder, sig, a):
        if sig.args[0].dtype != types.int32:
            return I64(0)
        start, out = pointers(context, builder, sig, a, (0, a[1]), (4, a[5]))
        minimum, word = broadcast(builder, a[2], ir.VectorType(F32, GROUP)), I32(0)
        for first in range(0, PANEL, GROUP):
            value = load(builder, start, ir.VectorType(I32, GROUP), first)
            reaches = builder.fcmp_ordered(">=", builder.sitofp(value, minimum.type), minimum)
            bits = builder.zext(builder.bitcast(reaches, I8), I32)
            word = builder.or_(word, builder.shl(bits, I32(first)))
        word = builder.and_(word, _valid(builder, a[3]))
        return _list_bits(builder, word, builder.trunc(a[1], I32), out)

    signature = types.int64(scores, types.int64, minimum, types.int64, hits, types.int64)
    return signature, codegen


def _list_bits(builder, word, base, out):
    """Emit a loop that writes base + i for every set bit i of a word; return the number of bits."""
    lowest_bit = function(builder, "llvm.cttz.i32", I32, [I32, ir.IntType(1)])
    count_bits = function(builder, "llvm.ctpop.i32", I32, [I32])

    def list_bit(at, carried):
        (bits,) = carried
        place = builder.add(base, builder.call(lowest_bit, [bits, ir.IntType(1)(1)]))
        builder.store(place, builder.gep(out, [at]))
        return [builder.and_(bits, builder.sub(bits, I32(1)))]

    count = builder.zext(builder.call(count_bits, [word]), I64)
    loop(builder, count, [word], list_bit)
    return count


class _ProjectionBound:
    """The terms that decide whether the score of projected codes is a hit.

    The score v of an item and a query is a hit if v + t r >= threshold - 1, where t and r are the
    lengths of the remainders of the query and of the item. float32 represents the scores of up to
    1,024 columns exactly.
    """

    def __init__(self, builder, panel, lanes, projected_lanes, statistics, rests):
        self._lanes, self._projected_lanes = lanes, projected_lanes
        self._panel = builder.gep(statistics, [builder.mul(panel, I64(5))])
        self._rests = builder.gep(rests, [builder.mul(panel, I64(PANEL))])

    def _bounds(self, builder, first, kind):
        """Emit the thresholds and the remainder lengths of the queries from `first` on."""
        inverse, norm, residual, max_offset, min_offset = (
            broadcast(builder, builder.load(builder.gep(self._panel, [I64(at)])), kind)
            for at in range(5)
        )

        def read(start, row):
            at = builder.add(first, I64(row * PANEL))
            return load(builder, builder.gep(start, [at]), kind)

        bound = builder.fmul(read(self._lanes, THRESHOLD), read(self._projected_lanes, THRESHOLD))
        rows = (RESIDUAL_NORM, CODE_NORM, OFFSET_WEIGHT, REST_NORM)
        query_residual, coded_norm, weight, rest = (
            read(self._projected_lanes, row) for row in rows
        )
        bound = _less_errors(
            builder,
            bound,
            query_residual,
            norm,
            coded_norm,
            residual,
            weight,
            max_offset,
            min_offset,
        )
        bound = builder.fsub(builder.fmul(bound, inverse), broadcast(builder, F32(1.0), kind))
        return bound, builder.fmul(rest, inverse)

    def reached(self, builder, values, half):
        """Emit the words that `_reached` would emit, for queries 16 half to 16 half + 15."""
        funnel = function(builder, "llvm.fshl.v16i32", _V_I32, [_V_I32] * 3)
        one = broadcast(builder, I32(1), _V_I32)
        bound, rest = self._bounds(builder, I64(half * 16), _V_F32)
        missed = _V_I32(None)
        for row in range(PANEL):
            value = load(builder, values, _V_I32, row * PANEL + half * 16)
            of_item = builder.load(builder.gep(self._rests, [I64(row)]))
            difference = self._difference(
                builder, value, bound, rest, broadcast(builder, of_item, _V_F32)
            )
            missed = builder.call(funnel, [missed, difference, one])
        return builder.not_(missed)

    def reached_by(self, builder, totals, query):
        """Emit a word whose bit i is 1 if the score of item i is a hit for the query."""
        bound, rest = self._bounds(builder, query, ir.VectorType(F32, 1))
        kind, word = ir.VectorType(F32, GROUP), I32(0)
        bound, rest = (
            broadcast(builder, builder.extract_element(one, I32(0)), kind) for one in (bound, rest)
        )
        for group, value in enumerate(totals):
            of_items = load(builder, self._rests, kind, group * GROUP)
            difference = self._difference(builder, value, bound, rest, of_items)
            passes = builder.icmp_signed(">=", difference, ir.Constant(value.type, [0] * GROUP))
            bits = builder.zext(builder.bitcast(passes, I8), I32)
            word = builder.or_(word, builder.shl(bits, I32(group * GROUP)))
        return word

    @staticmethod
    def _difference(builder, value, bound, rest, of_items):
        """Emit integers that are negative exactly where a score is not a hit."""
        relaxed = {"flags": ("contract",)}
        score = builder.fsub(builder.sitofp(value, bound.type), bound)
        score = builder.fadd(score, builder.fmul(rest, of_items, **relaxed), **relaxed)
        return builder.bitcast(score, value.type)


def _valid(builder, n_items):
    """Emit a word whose bit i is 1 if i is below the number of the panel's items."""
    count = builder.select(builder.icmp_signed("<", n_items, I64(PANEL)), n_items, I64(PANEL))
    return builder.trunc(builder.sub(builder.shl(I64(1), count), I64(1)), I32)


def _emit_hits(builder, reached, valid, out):
    """Emit a list of the hits, from the words that `_reached` emits for all 32 queries."""
    reverse = function(builder, "llvm.bitreverse.i32", I32, [I32])
    valid = broadcast(builder, builder.call(reverse, [valid]), _V_I32)
    reached = [builder.and_(words, valid) for words in reached]
    # Bit q is 1 if at least one item is a hit for query q.
    queries_with_hits = [
        builder.zext(builder.bitcast(builder.icmp_signed("!=", one, _V_I32(None)), I16), I32)
        for one in reached
    ]
    queries_with_hits = builder.or_(
        queries_with_hits[0], builder.shl(queries_with_hits[1], I32(16))
    )
    n_hits = cgutils.alloca_once_value(builder, I64(0))
    words = cgutils.alloca_once(builder, I32, PANEL)
    with builder.if_then(builder.icmp_unsigned("!=", queries_with_hits, I32(0))):
        for half in (0, 1):
            store(builder, reached[half], words, 16 * half)
        builder.store(_list_hits(builder, queries_with_hits, words, out), n_hits)
    return builder.load(n_hits)


def _thresholds(builder, values, queries, panel):
    """Emit the smallest tile score that may reach the threshold, for each of the 32 queries."""
    inverse, norm, residual, max_offset, min_offset = (
        broadcast(builder, builder.load(builder.gep(panel, [I64(s)])), _V_F32) for s in range(5)
    )
    thresholds = []
    for half in (0, 1):
        bound, query_residual, coded_norm, weight = (
            load(builder, queries, _V_F32, row * PANEL + half * 16) for row in range(4)
        )
        bound = _less_errors(
            builder,
            bound,
            query_residual,
            norm,
            coded_norm,
            residual,
            weight,
            max_offset,
            min_offset,
        )
        bound = builder.fmul(bound, inverse)
        thresholds.append(_round_down(builder, bound) if element_type(values) == I32 else bound)
    return thresholds


def _less_errors(
    builder, bound, query_residual, norm, coded_norm, residual, weight, max_offset, min_offset
):
    """Emit a bound on inner products minus the errors of codes and the largest offset."""
    for factor, term in ((query_residual, norm), (coded_norm, residual)):
        bound = builder.fsub(bound, builder.fmul(factor, term))
    offset, other = builder.fmul(weight, max_offset), builder.fmul(weight, min_offset)
    larger = builder.select(builder.fcmp_ordered(">", offset, other), offset, other)
    return builder.fsub(bound, larger)


def _reached(builder, values, half, threshold):
    """Emit one 32-bit word for each query in one half of the tile.

    Bit 31 - i of the word is 1 if the score of item i reaches the threshold of the query.

    The sign of a difference is shifted into the word. Shifting needs no branch and no mask
    register; CPUs write at most one mask register per cycle. Differences fit in int32, because
    scores are at most 127^2 MOST_CODES, and thresholds at most 1.05e9 (_round_down).
    """
    funnel = function(builder, "llvm.fshl.v16i32", _V_I32, [_V_I32] * 3)
    one = broadcast(builder, I32(1), _V_I32)
    missed = _V_I32(None)
    for row in range(PANEL):
        value = load(builder, values, threshold.type, row * PANEL + half * 16)
        if threshold.type == _V_I32:
            difference = builder.sub(value, threshold)
        else:
            passes = builder.fcmp_ordered(">=", value, threshold)
            difference = builder.sext(builder.not_(passes), _V_I32)
        missed = builder.call(funnel, [missed, difference, one])
    return builder.not_(missed)


def _list_hits(builder, queries_with_hits, words, out):
    """Emit a loop that writes the positions of hits, query by query; return the number of hits."""
    count_bits = function(builder, "llvm.ctpop.i32", I32, [I32])
    lowest_bit = function(builder, "llvm.cttz.i32", I32, [I32, ir.IntType(1)])
    highest_bit = function(builder, "llvm.ctlz.i32", I32, [I32, ir.IntType(1)])
    is_set = ir.IntType(1)(1)

    def bits_of(word):
        return builder.zext(builder.call(count_bits, [word]), I64)

    def list_query(_, carried):
        queries, count = carried
        query = builder.call(lowest_bit, [queries, is_set])

        def list_item(_, carried):
            items, count = carried
            item = builder.call(highest_bit, [items, is_set])
            hit = builder.or_(builder.shl(item, I32(5)), query)
            builder.store(hit, builder.gep(out, [count]))
            remaining_items = builder.xor(items, builder.lshr(I32(1 << 31), item))
            return [remaining_items, builder.add(count, I64(1))]

        items = builder.load(builder.gep(words, [builder.zext(query, I64)]))
        _, count = loop(builder, bits_of(items), [items, count], list_item)
        return [builder.and_(queries, builder.sub(queries, I32(1))), count]

    return loop(builder, bits_of(queries_with_hits), [queries_with_hits, I64(0)], list_query)[1]


def _largest(builder, values, half):
    """Emit the largest score among the 32 items, for each query from 16 half to 16 half + 15."""
    integer = element_type(values) == I32
    compare = builder.icmp_signed if integer else builder.fcmp_ordered
    kind = _V_I32 if integer else _V_F32

    def larger(x, y):
        return builder.select(compare(">", x, y), x, y)

    # Four independent chains hide the latency of the comparison.
    best = [load(builder, values, kind, row * PANEL + half * 16) for row in range(4)]
    for row in range(4, PANEL):
        value = load(builder, values, kind, row * PANEL + half * 16)
        best[row % 4] = larger(value, best[row % 4])
    return larger(larger(best[0], best[1]), larger(best[2], best[3]))


@intrinsic
def largest_scores(typingctx, scores, largest):
    """Write each query's largest score in the tile scores (32, 32), which is flat, to largest."""

    def codegen(context, builder, sig, a):
        values, out = pointers(context, builder, sig, a, (0, I64(0)), (1, I64(0)))
        for half in (0, 1):
            top = _largest(builder, values, half)
            if element_type(values) == I32:
                top = builder.sitofp(top, _V_F32)
            store(builder, top, out, half * 16)
        return context.get_dummy_value()

    return types.void(scores, largest), codegen


def _round_down(builder, bound):
    """Round a float32 threshold down to int32, clipped to ±1.05e9, which exceeds every score."""
    for limit, sign in ((1.05e9, "<"), (-1.05e9, ">")):
        edge = broadcast(builder, F32(limit), _V_F32)
        bound = builder.select(builder.fcmp_ordered(sign, bound, edge), bound, edge)
    below = broadcast(builder, I32(1), _V_I32)
    return builder.sub(builder.fptosi(bound, _V_I32), below)

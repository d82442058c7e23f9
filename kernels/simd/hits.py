"""Operations that list the hits of a tile.

A *hit* is a pair of a query and an item whose score reaches the threshold of the query. A tile is
stored as 32 rows, one row per item. A row consists of 32 scores, one score per query, and fills two
vectors of 16 scores.
"""

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
from .panel import (
    CODE_NORM,
    GROUP,
    N_STATISTICS,
    OFFSET_WEIGHT,
    PANEL,
    REMAINDER_NORM,
    RESIDUAL_NORM,
    STEP_RATIO,
    THRESHOLD,
    UNREFINED_RESIDUAL_NORM,
)
from .tile_scores import emit_products

_V_I32, _V_F32 = ir.VectorType(I32, 16), ir.VectorType(F32, 16)
# Two vectors hold the 32 queries of a panel: one begins with query 0, and the other with query 16.
_FIRST_QUERIES = (0, 16)


@intrinsic
def list_tile_hits(typingctx, scores, bound_terms, terms0, statistics, panel, n_items, hits):
    """Write the hits of a tile to `hits`, and return the number of hits.

    `scores` (32, 32) is int32 or float32. The bound terms (5, 32) of the queries begin at position
    terms0 of the flat array bound_terms. The array `statistics` (n_panels, 5) holds the statistics
    of each panel of items. Module ``simd.panel`` describes the rows of the bound terms and the
    columns of the statistics. If the score of item i reaches the threshold of query q, the number
    32 i + q is written to `hits` (1024,) int32. The numbers in `hits` are ordered by q, and numbers
    with the same q are ordered by i. The first n_items items are examined, and the others are
    ignored.
    """

    def codegen(context, builder, sig, a):
        first_statistic = builder.mul(a[4], I64(N_STATISTICS))
        places = (0, I64(0)), (1, a[2]), (3, first_statistic), (6, I64(0))
        values, terms, panel, out = pointers(context, builder, sig, a, *places)
        reached = [
            _reached(builder, values, first, threshold)
            for first, threshold in zip(
                _FIRST_QUERIES, _thresholds(builder, values, terms, panel), strict=True
            )
        ]
        return _emit_hits(builder, reached, _valid(builder, a[5]), out)

    return types.int64(scores, bound_terms, terms0, statistics, panel, n_items, hits), codegen


@intrinsic
def list_hits_of_both(typingctx, scores, minima, slopes, errors, thresholds, n_items, hits):
    """List those pairs of a tile that are hits for the query, for the item, or for both.

    The hits are written as list_tile_hits writes them. `scores` (32, 32) is int32. Let v be the
    score of query j and item i. The pair is a hit for the query if v is at least minima[j]. The
    pair is a hit for the item if v is at least thresholds[i] * slopes[j] - errors[j]. The arrays
    `minima`, `thresholds`, `slopes` and `errors` (32,) are float32. No entry of `slopes` may be 0
    or infinite. If scores are float32, nothing is listed, because ``self_join`` works only with
    int8 codes.
    """

    def codegen(context, builder, sig, a):
        if sig.args[0].dtype != types.int32:
            return I64(0)
        places = tuple((argument, I64(0)) for argument in (0, 1, 2, 3, 4, 6))
        values, *terms, of_items, out = pointers(context, builder, sig, a, *places)
        funnel = function(builder, "llvm.fshl.v16i32", _V_I32, [_V_I32] * 3)
        one, reached = broadcast(builder, I32(1), _V_I32), []
        for first in _FIRST_QUERIES:
            minimum, slope, error = (load(builder, start, _V_F32, first) for start in terms)
            missed = _V_I32(None)
            for row in range(PANEL):
                threshold = builder.load(builder.gep(of_items, [I64(row)]))
                for_item = builder.fmul(
                    broadcast(builder, threshold, _V_F32), slope, flags=("contract",)
                )
                for_item = builder.fsub(for_item, error, flags=("contract",))
                is_lower = builder.fcmp_ordered("<", for_item, minimum)
                lower = builder.select(is_lower, for_item, minimum)
                value = load(builder, values, _V_I32, row * PANEL + first)
                difference = builder.fsub(builder.sitofp(value, _V_F32), lower)
                missed = builder.call(funnel, [missed, builder.bitcast(difference, _V_I32), one])
            reached.append(builder.not_(missed))
        return _emit_hits(builder, reached, _valid(builder, a[5]), out)

    signature = types.int64(scores, minima, slopes, errors, thresholds, n_items, hits)
    return signature, codegen


@intrinsic
def list_tile_hits_by_projection(
    typingctx, scores, bound_terms, terms0, projected_terms, projected_terms0, statistics, panel,
    n_items, remainder_norms, hits,
):  # fmt: skip
    """Do what list_tile_hits does, but with scores that are computed from projected codes.

    Before the score of a pair is compared with the threshold, a product is added to the score: the
    norm of the item's remainder times the norm of the query's remainder. This product is an upper
    bound on the part of the score that the projection omits. The remainder of a row is the row
    minus its projection. The bound terms (5, 32) of the full codes begin at bound_terms[terms0],
    and the first row of these terms holds the thresholds. The bound terms (5, 32) of the projected
    codes begin at projected_terms[projected_terms0]. `remainder_norms` (32 panels,) float32 holds
    an upper bound on the norm of each item's remainder.
    """
    signature = types.int64(
        scores, bound_terms, terms0, projected_terms, projected_terms0, statistics, panel, n_items,
        remainder_norms, hits,
    )  # fmt: skip

    def codegen(context, builder, sig, a):
        starts = (1, a[2]), (3, a[4]), (5, I64(0)), (8, I64(0))
        projection_bound = _ProjectionBound(
            builder, a[6], *pointers(context, builder, sig, a, *starts)
        )
        values, out = pointers(context, builder, sig, a, (0, I64(0)), (9, I64(0)))
        reached = [projection_bound.reached(builder, values, first) for first in _FIRST_QUERIES]
        return _emit_hits(builder, reached, _valid(builder, a[7]), out)

    return signature, codegen


@intrinsic
def list_panel_hits_by_projection(
    typingctx, isa, items, item0, words, codes, code0, correction, query, bound_terms,
    projected_terms, statistics, panel, n_items, remainder_norms, hits, hit0,
):  # fmt: skip
    """List the hits of one query in a panel, by the same test as list_tile_hits_by_projection.

    The positions of the listed items in the panel are written to hits[hit0:]. The intrinsic returns
    the number of listed items. For the arguments from `items` to `correction`, see multiply_run.
    The arguments from `bound_terms` to `remainder_norms` are described in
    list_tile_hits_by_projection; here, the bound terms begin at position 0 of their arrays. The
    intrinsic works only for instruction sets with which rows are packed as int8 codes.
    """
    signature = types.int64(
        isa, items, item0, words, codes, code0, correction, query, bound_terms, projected_terms,
        statistics, panel, n_items, remainder_norms, hits, hit0,
    )  # fmt: skip

    def codegen(context, builder, sig, a):
        isa = instruction_sets.of(sig)
        if not isa.has_codes:
            return I64(0)
        item_start, code_start = pointers(context, builder, sig, a, (1, a[2]), (4, a[5]))
        starts = (pointer(context, builder, sig.args[i], a[i], I64(0)) for i in (8, 9, 10, 13))
        projection_bound = _ProjectionBound(builder, a[11], *starts)
        out = pointer(context, builder, sig.args[14], a[14], a[15])
        totals = emit_products(builder, isa, item_start, code_start, a[3], a[6])
        word = builder.and_(
            projection_bound.reached_by(builder, totals, a[7]), _valid(builder, a[12])
        )
        return _list_bits(builder, word, I32(0), out)

    return signature, codegen


@intrinsic
def list_reaching(typingctx, scores, score0, minimum, n_items, hits, hit0):
    """Among the 32 scores from position score0 on, list the scores that are at least `minimum`.

    The positions of these scores are written to hits[hit0:] (int32) in ascending order. The
    intrinsic returns the number of positions. `scores` is a flat array of int32 or float32; float32
    scores are not listed. `minimum` is float32. Scores from position score0 + n_items on are
    ignored.
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
    """The bounds and norms that are used to test whether a score of projected codes is a hit.

    Let v be the score of an item and a query, r the norm of the remainder of the item, and t the
    norm of the remainder of the query. The score is a hit if v + t * r >= bound. The norms are
    scaled such that t * r can be added to v. The item can reach the threshold of the query only if
    v + t * r is at least bound + 1. The scores of rows of up to 1,024 columns are represented
    exactly in float32.
    """

    def __init__(self, builder, panel, bound_terms, projected_terms, statistics, remainder_norms):
        self._bound_terms, self._projected_terms = bound_terms, projected_terms
        self._statistics = builder.gep(statistics, [builder.mul(panel, I64(N_STATISTICS))])
        self._remainder_norms = builder.gep(remainder_norms, [builder.mul(panel, I64(PANEL))])

    def _bounds(self, builder, first, kind):
        """For the queries from `first` on, emit the bounds and the norms of the remainders."""
        inverse_step, *statistics = _statistics(builder, self._statistics, kind)

        def read(start, row):
            at = builder.add(first, I64(row * PANEL))
            return load(builder, builder.gep(start, [at]), kind)

        threshold = read(self._bound_terms, THRESHOLD)
        ratio = read(self._projected_terms, STEP_RATIO)
        rows = (RESIDUAL_NORM, CODE_NORM, OFFSET_WEIGHT, REMAINDER_NORM)
        *query_terms, remainder_norm = (read(self._projected_terms, row) for row in rows)
        bound = _less_errors(builder, builder.fmul(threshold, ratio), query_terms, statistics)
        bound = builder.fmul(bound, inverse_step)
        bound = builder.fsub(bound, broadcast(builder, F32(1.0), kind))
        return bound, builder.fmul(remainder_norm, inverse_step)

    def reached(self, builder, values, first):
        """Like `_reached`, emit one word of hits for each query from `first` to first + 15."""
        funnel = function(builder, "llvm.fshl.v16i32", _V_I32, [_V_I32] * 3)
        one = broadcast(builder, I32(1), _V_I32)
        bound, remainder_norm = self._bounds(builder, I64(first), _V_F32)
        missed = _V_I32(None)
        for row in range(PANEL):
            value = load(builder, values, _V_I32, row * PANEL + first)
            of_item = builder.load(builder.gep(self._remainder_norms, [I64(row)]))
            difference = self._difference(
                builder, value, bound, remainder_norm, broadcast(builder, of_item, _V_F32)
            )
            missed = builder.call(funnel, [missed, difference, one])
        return builder.not_(missed)

    def reached_by(self, builder, totals, query):
        """Emit a word whose bit i is 1 if the score of item i is a hit for the query."""
        bounds = self._bounds(builder, query, ir.VectorType(F32, 1))
        kind, word = ir.VectorType(F32, GROUP), I32(0)
        bound, remainder_norm = (
            broadcast(builder, builder.extract_element(vector, I32(0)), kind) for vector in bounds
        )
        for group, value in enumerate(totals):
            of_items = load(builder, self._remainder_norms, kind, group * GROUP)
            difference = self._difference(builder, value, bound, remainder_norm, of_items)
            passes = builder.icmp_signed(">=", difference, ir.Constant(value.type, [0] * GROUP))
            bits = builder.zext(builder.bitcast(passes, I8), I32)
            word = builder.or_(word, builder.shl(bits, I32(group * GROUP)))
        return word

    @staticmethod
    def _difference(builder, value, bound, remainder_norm, of_items):
        """Emit one integer per score; the integer is negative unless the score is a hit."""
        relaxed = {"flags": ("contract",)}
        score = builder.fsub(builder.sitofp(value, bound.type), bound)
        score = builder.fadd(score, builder.fmul(remainder_norm, of_items, **relaxed), **relaxed)
        return builder.bitcast(score, value.type)


def _statistics(builder, start, kind):
    """Emit a vector of type `kind` for each statistic of a panel; all lanes hold the statistic."""
    return [
        broadcast(builder, builder.load(builder.gep(start, [I64(column)])), kind)
        for column in range(N_STATISTICS)
    ]


def _valid(builder, n_items):
    """Emit a word whose bit i is 1 if item i exists, that is, if i is below n_items."""
    count = builder.select(builder.icmp_signed("<", n_items, I64(PANEL)), n_items, I64(PANEL))
    return builder.trunc(builder.sub(builder.shl(I64(1), count), I64(1)), I32)


def _emit_hits(builder, reached, valid, out):
    """Emit code that lists the hits of all 32 queries.

    Each set bit in the words of `reached` is a hit if its item is also marked in `valid`.
    """
    reverse = function(builder, "llvm.bitreverse.i32", I32, [I32])
    valid = broadcast(builder, builder.call(reverse, [valid]), _V_I32)
    reached = [builder.and_(words, valid) for words in reached]
    # Bit q is 1 if at least one item is a hit for query q.
    queries_with_hits = [
        builder.zext(builder.bitcast(builder.icmp_signed("!=", words, _V_I32(None)), I16), I32)
        for words in reached
    ]
    queries_with_hits = builder.or_(
        queries_with_hits[0], builder.shl(queries_with_hits[1], I32(16))
    )
    n_hits = cgutils.alloca_once_value(builder, I64(0))
    words_of_queries = cgutils.alloca_once(builder, I32, PANEL)
    with builder.if_then(builder.icmp_unsigned("!=", queries_with_hits, I32(0))):
        for first, words in zip(_FIRST_QUERIES, reached, strict=True):
            store(builder, words, words_of_queries, first)
        builder.store(_list_hits(builder, queries_with_hits, words_of_queries, out), n_hits)
    return builder.load(n_hits)


def _thresholds(builder, values, terms, panel):
    """Emit the smallest tile score that may reach the threshold, for each of the 32 queries."""
    inverse_step, *statistics = _statistics(builder, panel, _V_F32)
    thresholds = []
    for first in _FIRST_QUERIES:
        threshold, *query_terms = (
            load(builder, terms, _V_F32, row * PANEL + first)
            for row in (THRESHOLD, UNREFINED_RESIDUAL_NORM, CODE_NORM, OFFSET_WEIGHT)
        )
        bound = _less_errors(builder, threshold, query_terms, statistics)
        bound = builder.fmul(bound, inverse_step)
        thresholds.append(_round_down(builder, bound) if element_type(values) == I32 else bound)
    return thresholds


def _less_errors(builder, bound, query_terms, statistics):
    """Subtract the largest error of the codes and the largest weighted offset from `bound`.

    `query_terms` holds all bound terms of the queries except the threshold, and `statistics` holds
    all statistics of a panel except the inverse step.
    """
    residual_norm, code_norm, weight = query_terms
    max_norm, max_residual, max_offset, min_offset = statistics
    for factor, term in ((residual_norm, max_norm), (code_norm, max_residual)):
        bound = builder.fsub(bound, builder.fmul(factor, term))
    offset, other = builder.fmul(weight, max_offset), builder.fmul(weight, min_offset)
    larger = builder.select(builder.fcmp_ordered(">", offset, other), offset, other)
    return builder.fsub(bound, larger)


def _reached(builder, values, first, threshold):
    """Emit one 32-bit word for each query from `first` to first + 15.

    Bit 31 - i of the word is 1 if the score of item i reaches the threshold of the query. The sign
    bit of the difference between a score and the threshold is shifted into the word, and all bits
    of the word are inverted at the end. Shifting needs neither a branch nor a mask register. A CPU
    can write at most one mask register per cycle. The difference between a score and the threshold
    fits in int32, because neither of them exceeds 1.05e9 in magnitude. A score is at most 127^2
    MAX_CODED_COLUMNS, and _round_down limits the threshold to 1.05e9.
    """
    funnel = function(builder, "llvm.fshl.v16i32", _V_I32, [_V_I32] * 3)
    one = broadcast(builder, I32(1), _V_I32)
    missed = _V_I32(None)
    for row in range(PANEL):
        value = load(builder, values, threshold.type, row * PANEL + first)
        if threshold.type == _V_I32:
            difference = builder.sub(value, threshold)
        else:
            passes = builder.fcmp_ordered(">=", value, threshold)
            difference = builder.sext(builder.not_(passes), _V_I32)
        missed = builder.call(funnel, [missed, difference, one])
    return builder.not_(missed)


def _list_hits(builder, queries_with_hits, words, out):
    """Emit a loop that writes the hits, query by query; return the number of hits.

    The hit of item i and query q is written as the number 32 i + q. `queries_with_hits` is a word
    whose bit q is 1 if query q has a hit. `words` holds the word that `_reached` emits for each
    query.
    """
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


def _largest(builder, values, first):
    """For each query from `first` to first + 15, emit the largest score of the 32 items."""
    integer = element_type(values) == I32
    compare = builder.icmp_signed if integer else builder.fcmp_ordered
    kind = _V_I32 if integer else _V_F32

    def larger(x, y):
        return builder.select(compare(">", x, y), x, y)

    # The maxima are computed in four independent chains, which hide the latency of the comparisons.
    best = [load(builder, values, kind, row * PANEL + first) for row in range(4)]
    for row in range(4, PANEL):
        value = load(builder, values, kind, row * PANEL + first)
        best[row % 4] = larger(value, best[row % 4])
    return larger(larger(best[0], best[1]), larger(best[2], best[3]))


@intrinsic
def largest_scores(typingctx, scores, largest):
    """Write the largest score of each query of a tile to `largest` (32,) float32.

    `scores` (32, 32) is a flat array of int32 or float32.
    """

    def codegen(context, builder, sig, a):
        values, out = pointers(context, builder, sig, a, (0, I64(0)), (1, I64(0)))
        for first in _FIRST_QUERIES:
            best = _largest(builder, values, first)
            if element_type(values) == I32:
                best = builder.sitofp(best, _V_F32)
            store(builder, best, out, first)
        return context.get_dummy_value()

    return types.void(scores, largest), codegen


def _round_down(builder, bound):
    """Emit the conversion of float32 thresholds to int32, rounded down and clipped to ±1.05e9.

    The limit 1.05e9 exceeds every score.
    """
    for limit, sign in ((1.05e9, "<"), (-1.05e9, ">")):
        edge = broadcast(builder, F32(limit), _V_F32)
        bound = builder.select(builder.fcmp_ordered(sign, bound, edge), bound, edge)
    below = broadcast(builder, I32(1), _V_I32)
    return builder.sub(builder.fptosi(bound, _V_I32), below)

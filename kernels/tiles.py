"""Register tiles: approximate scores of 32 items with 32 queries, compared with thresholds.

The scores of one panel, (32 items, 32 queries), stay in the first-level cache: int32 from int8
codes, or float32. The instruction depends on the CPU:

======== ===================================================================== =================
isa      instruction                                                           scratch
======== ===================================================================== =================
amx      tdpbssd: 16 x 16 x 64 signed bytes at once; queries signed            int32
vnni     vpdpbusd: 4 multiply-adds a lane; items offset by 128 to unsigned     int32
avxvnni  the same in registers of 8 lanes instead of 16                        int32
avx2     vpmaddubsw, vpmaddwd: the same with query codes up to 64, not 127     int32
avx512   float32, 8 items x 32 queries in 16 registers of 16 lanes             float32
generic  float32, 4 items x 8 queries in 8 registers of 4 lanes; any CPU       float32
======== ===================================================================== =================

The first argument ``isa`` is an instruction set of ``simd.instruction_sets``: one source is compiled
once for each of them that is in use.

Layouts. Rows are packed in panels of 32, each of 32 ``words`` words of 4 bytes: 4 codes, or one
float32. A panel is read from its beginning to its end, so that the CPU fetches it ahead:

======== ================ ================================================== =====================
isa      words of a row   items                                              queries
======== ================ ================================================== =====================
amx      16 (d / 64)      step of 16 words, item, word                       step, half, word, query
others   2 (d / 8)        group of 8 items, word, item                       word, query
float32  d                item, word                                         word, query
======== ================ ================================================== =====================

Sums of int8 codes are exact up to ``MOST_CODES`` columns. Items have the same codes for all.
"""

import numpy as np

from .intrinsics import emit_prefetch
from .jit import DISABLE_JIT, cgutils, inlined_kernel, intrinsic, ir, kernel, types
from .simd import instruction_sets
from .simd.emit import (
    BYTES,
    F32,
    I8,
    I16,
    I32,
    I64,
    broadcast,
    byte_pointer,
    function,
    load,
    loop,
    pointer,
    pointers,
    store,
)
from .simd.instruction_sets import most_single_queries

# items, and queries, of a panel
PANEL = 32
# vector IR needs the compiler: without it, callers score every pair
AVAILABLE = not DISABLE_JIT
# bytes of 64 dimensions of 32 packed rows
_STEP_BYTES = 2048
# rows of a query panel's lanes: threshold, residual, norm of the codes, weight of the offset; of
# prefixes also the length of what is left of the query
TAU, RESIDUAL, CODED, WEIGHT, REST = range(5)
# items of a group: their words lie together
GROUP = 8
# columns up to which a sum of products of -127 .. 127 and 1 .. 255 fits in int32
MOST_CODES = 65_000
_V_I32, _V_F32 = ir.VectorType(I32, 16), ir.VectorType(F32, 16)
_VOID = ir.VoidType()


@inlined_kernel
def are_few(isa, used):
    """Whether so many queries take less time one by one: by score_run, not score_panel."""
    return used <= most_single_queries(isa)


def configuration():
    """Configuration of the 8 tile registers, (64,) uint8: 16 rows of 64 bytes each, palette 1."""
    shape = np.zeros(64, np.uint8)
    shape[0] = 1
    # bytes of a row are uint16 from 16 on, rows are bytes from 48 on
    shape[16:32:2], shape[48:56] = 64, 16
    return shape


@kernel
def aligned_empty(size, like):
    """Uninitialised array (size,) of like's dtype, aligned to a cache line.

    A 64-byte load that crosses a cache line costs two: unaligned, a scan by AMX tiles takes 1.5
    times as long.
    """
    memory = np.empty(size + 64, like.dtype)
    skip = -memory.ctypes.data % 64 // memory.itemsize
    return memory[skip : skip + size]


@intrinsic
def start_tiles(typingctx, isa, configuration):
    """Configure the tile registers, with isa amx. configuration (64,) uint8."""

    def codegen(context, builder, signature, arguments):
        if instruction_sets.of(signature).has_tile_registers:
            shape = byte_pointer(context, builder, signature.args[1], arguments[1], I64(0))
            builder.call(function(builder, "llvm.x86.ldtilecfg", _VOID, [BYTES]), [shape])
        return context.get_dummy_value()

    return types.void(isa, configuration), codegen


@intrinsic
def end_tiles(typingctx, isa):
    """Release the tile registers, so that a context switch does not save them."""

    def codegen(context, builder, signature, arguments):
        if instruction_sets.of(signature).has_tile_registers:
            builder.call(function(builder, "llvm.x86.tilerelease", _VOID, []), [])
        return context.get_dummy_value()

    return types.void(isa), codegen


def _panel_scorer(by_item):
    """Intrinsic of the scores (32, 32) of one panel of items with one panel of queries.

    items, queries, starts, scores are flat; item0, query0 and start0 count elements. starts: -128
    times the sum of each query's codes, for int8 without amx. used: queries that are no padding;
    scores of others may be left out, so that few queries take less time. by_item: for panels in
    which the words of each item lie together, as of prefixes, which float32 has not.
    """

    @intrinsic
    def score(typingctx, isa, items, item0, queries, query0, words, starts, start0, used, scores):
        def codegen(context, builder, sig, a):
            isa = instruction_sets.of(sig)
            places = (1, a[2]), (3, a[4]), (6, a[7]), (9, I64(0))
            left, right, offsets, out = pointers(context, builder, sig, a, *places)
            if not isa.has_codes:
                if not by_item:
                    _emit_float(builder, isa, left, a[5], right, a[5], out)
                return context.get_dummy_value()
            half = PANEL // 2
            is_full = builder.icmp_signed(">", a[8], I64(half))
            with builder.if_else(is_full) as (all_queries, some):
                for branch, halves in ((all_queries, (0, 1)), (some, (0,))):
                    with branch:
                        if isa.has_tile_registers:
                            steps = builder.lshr(a[5], I64(4))
                            _emit_amx(builder, left, right, steps, halves, out)
                            continue
                        n = half * len(halves)
                        _emit_int8(builder, isa, left, right, a[5], offsets, n, out, by_item)
            return context.get_dummy_value()

        arrays = items, item0, queries, query0, words, starts, start0, used, scores
        return types.void(isa, *arrays), codegen

    return score


score_panel, score_panel_by_item = _panel_scorer(by_item=False), _panel_scorer(by_item=True)


@intrinsic
def score_item(typingctx, isa, items, item0, item, words, codes, code0, start):
    """Score of one item of a panel with one query, int32, as score_panel gives it.

    items as of score_panel_by_item; items, codes flat; item0 and code0 count words. codes: from
    code0 on the query's words, one behind the other; start: as in score_panel.
    """

    def codegen(context, builder, sig, a):
        isa = instruction_sets.of(sig)
        if not isa.has_codes:  # nor prefixes
            return I32(0)
        panel, query = pointers(context, builder, sig, a, (1, a[2]), (5, a[6]))
        if isa.has_tile_registers:
            return _emit_item_of_steps(builder, panel, a[3], a[4], query)
        row = builder.gep(panel, [builder.mul(a[3], a[4])])
        (products,) = _emit_items(builder, isa, [row], a[4], query)
        return builder.add(_reduced(builder, "add", products), a[7])

    return types.int32(isa, items, item0, item, words, codes, code0, start), codegen


@intrinsic
def score_run(
    typingctx, isa, items, item0, step, count, words, codes, code0, start, scores, largest
):
    """Scores of one query with the items of `count` panels, and the largest of each panel.

    items, codes, scores, largest are flat; panels begin at item0, `step` words apart. codes: from
    code0 on the query's words, each 8 times but with amx, one behind the other; start: -128 times
    the sum of its codes. Out: scores (32 count,) and largest (count,) int32. Where are_few may be
    true.
    """
    signature = types.void(
        isa, items, item0, step, count, words, codes, code0, start, scores, largest
    )

    def codegen(context, builder, sig, a):
        _emit_run(context, builder, sig.args, a, _score_panel_for_one)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def score_run_by_item(
    typingctx, isa, items, item0, step, count, words, codes, code0, start, scores, largest
):
    """Do as score_run, for panels in which the words of each item lie together (by_item).

    codes: from code0 on the query's words, one behind the other.
    """
    signature = types.void(
        isa, items, item0, step, count, words, codes, code0, start, scores, largest
    )

    def codegen(context, builder, sig, a):
        isa = instruction_sets.of(sig)
        if isa.has_tile_registers:
            _emit_run(context, builder, sig.args, a, _score_panel_for_one)
            return context.get_dummy_value()
        kind, lanes = ir.VectorType(I32, GROUP), isa.int8_lanes or GROUP

        def score_panel(builder, isa, panel, codes, words, start, out):
            totals = cgutils.alloca_once(builder, ir.VectorType(I32, lanes), PANEL)
            # an item of each group at once, so that memory is read as by score_run: neighbouring
            # items take 1.3 times as long (60,000 x 768)
            with cgutils.for_range(builder, I64(GROUP)) as item:
                places = [builder.add(item.index, I64(first)) for first in range(0, PANEL, GROUP)]
                rows = [builder.gep(panel, [builder.mul(place, words)]) for place in places]
                sums = _emit_items(builder, isa, rows, words, codes)
                for place, total in zip(places, sums, strict=True):
                    builder.store(total, builder.gep(totals, [place]))

            def add_lanes(group, carried):
                first = builder.mul(group, I64(GROUP))
                places = [builder.add(first, I64(item)) for item in range(GROUP)]
                sums = [builder.load(builder.gep(totals, [place])) for place in places]
                scores = builder.add(_sum_of_each(builder, sums), broadcast(builder, start, kind))
                store(builder, scores, builder.gep(out, [first]))
                return [_larger(builder, scores, carried[0])]

            least = ir.Constant(kind, [-(2**31)] * GROUP)
            (largest,) = loop(builder, I64(PANEL // GROUP), [least], add_lanes)
            return _reduced(builder, "smax", largest)

        _emit_run(context, builder, sig.args, a, score_panel)
        return context.get_dummy_value()

    return signature, codegen


def _emit_run(context, builder, kinds, a, score_panel):
    """Emit score_run of its arguments: score_panel writes a panel's scores, returns the largest."""
    isa = kinds[0].instance_class
    if not isa.has_codes:
        return
    first, codes, out, top = (
        pointer(context, builder, kinds[i], a[i], at)
        for i, at in ((1, a[2]), (6, a[7]), (9, I64(0)), (10, I64(0)))
    )
    with cgutils.for_range(builder, a[4]) as run:
        panel = builder.gep(first, [builder.mul(run.index, a[3])])
        scores = builder.gep(out, [builder.mul(run.index, I64(PANEL))])
        largest = score_panel(builder, isa, panel, codes, a[5], a[8], scores)
        builder.store(largest, builder.gep(top, [run.index]))


def _score_panel_for_one(builder, isa, panel, codes, words, start, out):
    """Emit the scores of a panel with one query, and return the largest."""
    totals = _emit_for_one(builder, isa, panel, codes, words, start)
    largest = totals[0]
    for group, value in enumerate(totals):
        store(builder, value, out, group * GROUP)
        largest = _larger(builder, value, largest)
    return _reduced(builder, "smax", largest)


@intrinsic
def multiply_floats(typingctx, isa, rows, row0, stride, n_rows, others, other0, depth, out):
    """Products (32, 32) of up to 32 rows of float32 with a panel of 32 columns, float32.

    rows, others, out are flat; rows start at row0, `stride` elements apart; others: from other0 on
    32 columns for each of `depth` elements. Up to 7 rows behind the last are read, too. isa: of the
    tiles that read int8 codes.
    """

    def codegen(context, builder, sig, a):
        places = (1, a[2]), (5, a[6]), (8, I64(0))
        left, right, out = pointers(context, builder, sig, a, *places)
        # Beside codes; without them the products are those of any CPU.
        isa = instruction_sets.of(sig)
        shape = isa if isa.has_codes else instruction_sets.GENERIC
        _emit_float(builder, shape, left, a[3], right, a[7], out, n_items=a[4])
        return context.get_dummy_value()

    return types.void(isa, rows, row0, stride, n_rows, others, other0, depth, out), codegen


@intrinsic
def multiply_registers(typingctx, isa, count, factors, sums):
    """Multiply and add as score_panel does, count times, but registers only: the CPU's peak.

    factors (1024,) and sums (1024,) flat, of the type of packed rows and scores. The sums are the
    tile's, and each product has one side that changes, so that none can be left out.
    """

    def codegen(context, builder, sig, a):
        isa = instruction_sets.of(sig)
        source, out = (pointer(context, builder, sig.args[i], a[i], I64(0)) for i in (2, 3))
        if isa.has_tile_registers:
            _emit_amx_peak(builder, source, a[1], out)
            return context.get_dummy_value()
        is_float = not isa.has_codes
        rows, lanes = isa.int8_sums // 2, isa.int8_lanes
        if is_float:
            rows, lanes = isa.float_rows, isa.float_lanes
        kind = ir.VectorType(F32 if is_float else I32, lanes)
        items = [load(builder, source, kind, row * lanes) for row in range(rows)]

        def step(k, sums):
            at = builder.gep(source, [builder.mul(builder.and_(k, I64(15)), I64(2 * lanes))])
            queries = [load(builder, at, kind, part * lanes) for part in (0, 1)]
            pairs = [(item, query) for item in items for query in queries]
            if not is_float:
                return [
                    _add_products(builder, isa, total, *pair)
                    for total, pair in zip(sums, pairs, strict=True)
                ]
            return [
                builder.fadd(total, builder.fmul(*pair, flags=("contract",)), flags=("contract",))
                for total, pair in zip(sums, pairs, strict=True)
            ]

        zero = ir.Constant(kind, [0] * lanes)
        for place, value in enumerate(loop(builder, a[1], [zero] * (2 * rows), step)):
            store(builder, value, out, place * lanes)
        return context.get_dummy_value()

    return types.void(isa, count, factors, sums), codegen


def _emit_amx_peak(builder, source, count, out):
    """Four tiles of sums, as in _emit_amx: they hide the latency of an instruction."""
    read = function(builder, "llvm.x86.tileloadd64", _VOID, [I8, BYTES, I64])
    write = function(builder, "llvm.x86.tilestored64", _VOID, [I8, BYTES, I64])
    clear = function(builder, "llvm.x86.tilezero", _VOID, [I8])
    multiply = function(builder, "llvm.x86.tdpbssd", _VOID, [I8, I8, I8])
    for tile in range(4):
        builder.call(clear, [I8(tile)])
        builder.call(read, [I8(4 + tile), builder.bitcast(source, BYTES), I64(64)])
    with cgutils.for_range(builder, count):
        for tile in range(4):
            builder.call(multiply, [I8(tile), I8(4 + tile // 2), I8(6 + tile % 2)])
    for tile in range(4):
        at = builder.bitcast(builder.gep(out, [I64(256 * tile)]), BYTES)
        builder.call(write, [I8(tile), at, I64(64)])


def _emit_amx(builder, items, queries, steps, halves, out):
    """Tiles 0..3 are 2 x 2 blocks of 16 x 16 sums; 4, 5 hold items and 6, 7 queries.

    Queries are loaded with the hint that they are not needed soon: one panel of items after the
    other meets all of them, and stays in the first cache. A tile of 768 columns takes 0.80 of the
    time, of 384 and 1,536 columns 0.98 and 0.90 (Xeon with AMX).
    """
    sums = [tile for tile in range(4) if tile % 2 in halves]
    read = function(builder, "llvm.x86.tileloadd64", _VOID, [I8, BYTES, I64])
    read_once = function(builder, "llvm.x86.tileloaddt164", _VOID, [I8, BYTES, I64])
    write = function(builder, "llvm.x86.tilestored64", _VOID, [I8, BYTES, I64])
    clear = function(builder, "llvm.x86.tilezero", _VOID, [I8])
    multiply = function(builder, "llvm.x86.tdpbssd", _VOID, [I8, I8, I8])
    items, queries, out = (builder.bitcast(p, BYTES) for p in (items, queries, out))
    for tile in sums:
        builder.call(clear, [I8(tile)])
    with cgutils.for_range(builder, steps) as step:
        at = builder.mul(step.index, I64(_STEP_BYTES))
        for tile, start in ((4, items), (6, queries), (5, items), (7, queries)):
            if tile == 7 and 1 not in halves:
                continue
            offset = builder.add(at, I64(1024 * (tile % 2)))
            load_tile = read_once if start is queries else read
            builder.call(load_tile, [I8(tile), builder.gep(start, [offset]), I64(64)])
        for tile in sums:
            builder.call(multiply, [I8(tile), I8(4 + tile // 2), I8(6 + tile % 2)])
    for tile in sums:
        at = tile // 2 * 16 * PANEL * 4 + tile % 2 * 64
        builder.call(write, [I8(tile), builder.gep(out, [I64(at)]), I64(PANEL * 4)])


def _emit_int8(builder, isa, items, queries, words, starts, n_queries, out, by_item):
    """Blocks of items x all queries, with as many items as have registers; two words a step.

    by_item: the words of an item lie together, not those of its group.
    """
    lanes = isa.int8_lanes
    kind, columns = ir.VectorType(I32, lanes), range(0, n_queries, lanes)
    rows = min(GROUP, isa.int8_sums // len(columns))
    item_starts = _emit_item_starts(builder, items, words) if by_item else None
    with cgutils.for_range(builder, I64(PANEL // rows)) as part:
        first = builder.mul(part.index, I64(rows))
        group = builder.mul(builder.udiv(first, I64(GROUP)), builder.mul(words, I64(GROUP)))
        block = builder.gep(items, [builder.add(group, builder.urem(first, I64(GROUP)))])
        item_rows = []
        if by_item:
            places = [builder.add(first, I64(row)) for row in range(rows)]
            item_rows = [builder.load(builder.gep(item_starts, [place])) for place in places]

        def step(k, sums, block=block, item_rows=item_rows):
            item_at = builder.gep(block, [builder.mul(k, I64(2 * GROUP))])
            word_at = builder.mul(k, I64(2))
            query_at = builder.gep(queries, [builder.mul(k, I64(2 * PANEL))])
            _prefetch_next_panel(builder, item_at, words)
            for word in (0, 1):
                codes = [load(builder, query_at, kind, word * PANEL + at) for at in columns]
                results = []
                for row in range(rows):
                    at = builder.gep(item_at, [I64(word * GROUP + row)])
                    if by_item:
                        at = builder.gep(item_rows[row], [builder.add(word_at, I64(word))])
                    item = broadcast(builder, builder.load(at), kind)
                    results += [
                        _add_products(builder, isa, sums[len(codes) * row + v], item, query)
                        for v, query in enumerate(codes)
                    ]
                sums = results
            return sums

        zero = [load(builder, starts, kind, at) for at in columns]
        sums = loop(builder, builder.lshr(words, I64(1)), zero * rows, step)
        target = builder.gep(out, [builder.mul(first, I64(PANEL))])
        for t, value in enumerate(sums):
            row, vector = divmod(t, len(columns))
            store(builder, value, target, row * PANEL + columns[vector])


def _emit_item_starts(builder, items, words):
    """Emit a table of pointers to the items of a panel whose words lie together; return it.

    Compiled code would else compute each pointer from the one before, at every step, on the ports
    of the products: 0.98 of the speed of searches by all codes where there are prefixes.
    """
    table = cgutils.alloca_once(builder, items.type, PANEL)
    with cgutils.for_range(builder, I64(PANEL)) as item:
        start = builder.gep(items, [builder.mul(item.index, words)])
        builder.store(start, builder.gep(table, [item.index]))
    return table


def _larger(builder, value, other):
    return builder.select(builder.icmp_signed(">", value, other), value, other)


def _reduced(builder, operation, vector):
    """Emit the combination of all lanes of integers."""
    name = f"llvm.vector.reduce.{operation}.v{vector.type.count}i32"
    return builder.call(function(builder, name, I32, [vector.type]), [vector])


def _emit_for_one(builder, isa, items, codes, words, start):
    """Emit the scores of all items of a panel with one query, 8 items a vector: see score_run."""
    emit = _emit_steps if isa.has_tile_registers else _emit_groups
    start = broadcast(builder, start, ir.VectorType(I32, GROUP))
    return [builder.add(sums, start) for sums in emit(builder, isa, items, codes, words)]


def _emit_steps(builder, isa, items, codes, words):
    """Emit the sums of products of all items, whose signed codes lie in steps of 16 words.

    A CPU with tile registers has vpdpbusd, too, which wants unsigned codes on one side.
    """
    kind, count = ir.VectorType(I32, 16), PANEL // 2
    flip, totals = broadcast(builder, I32(-0x7F7F7F80), kind), []
    for first in range(0, PANEL, count):  # half of the items have a register each

        def step(k, sums, first=first):
            at = builder.add(builder.mul(k, I64(16 * PANEL)), I64(16 * first))
            place = builder.gep(items, [at])
            query = load(builder, builder.gep(codes, [builder.mul(k, I64(16))]), kind)
            added = []
            # item by item: LLVM moves no load across a prefetch, and would keep all in memory
            for item, total in enumerate(sums):
                row = builder.xor(load(builder, place, kind, 16 * item), flip)
                added.append(_add_products(builder, instruction_sets.AVX512_VNNI, total, row, query))
                _prefetch_next_panel(builder, builder.gep(place, [I64(16 * item)]), words)
            return added

        zero = ir.Constant(kind, [0] * 16)
        sums = loop(builder, builder.lshr(words, I64(4)), [zero] * count, step)
        totals += [_sum_of_each(builder, sums[i : i + GROUP]) for i in range(0, count, GROUP)]
    return totals


def _emit_groups(builder, isa, items, codes, words):
    """Emit the sums of products of all items, of which the words of a group lie together."""
    lanes = isa.int8_lanes
    kind, wide = ir.VectorType(I32, lanes), lanes // GROUP
    groups = [builder.gep(items, [builder.mul(words, I64(i))]) for i in range(0, PANEL, GROUP)]
    parts = [
        ir.Constant(ir.VectorType(I32, GROUP), list(range(first, first + GROUP)))
        for first in range(0, lanes, GROUP)
    ]

    def step(k, sums):
        place = builder.mul(k, I64(lanes))
        query = load(builder, builder.gep(codes, [place]), kind)
        rows = [load(builder, builder.gep(group, [place]), kind) for group in groups]
        for group in groups:
            _prefetch_next_panel(builder, builder.gep(group, [place]), words)
        return [
            _add_products(builder, isa, total, row, query)
            for total, row in zip(sums, rows, strict=True)
        ]

    zero = broadcast(builder, I32(0), kind)
    sums = loop(builder, builder.udiv(words, I64(wide)), [zero] * len(groups), step)
    totals = []
    for value in sums:
        pieces = [builder.shuffle_vector(value, value, part) for part in parts]
        totals.append(pieces[0] if wide == 1 else builder.add(*pieces))
    return totals


def _emit_items(builder, isa, rows, words, query):
    """Emit products of items' codes, whose words lie together, with a query's: a vector each."""
    lanes = isa.int8_lanes
    kind = ir.VectorType(I32, lanes)
    nothing, bits = ir.Constant(kind, [0] * lanes), ir.VectorType(ir.IntType(1), lanes)
    read_masked = function(
        builder, f"llvm.masked.load.v{lanes}i32.p0", kind, [kind.as_pointer(), I32, bits, kind]
    )

    def products(sums, at, read):
        # item by item: LLVM moves no load across a prefetch, and would keep all in memory
        codes, totals = read(builder.gep(query, [at])), []
        for total, row in zip(sums, rows, strict=True):
            place = builder.gep(row, [at])
            totals.append(_add_products(builder, isa, total, read(place), codes))
            if len(rows) > 1:
                _prefetch_next_panel(builder, place, words)
        return totals

    def whole_register(place):
        return load(builder, place, kind)

    def step(k, sums):
        # two chains hide the latency of an instruction
        first = builder.mul(k, I64(2 * lanes))
        second, half = builder.add(first, I64(lanes)), len(rows)
        return products(sums[:half], first, whole_register) + products(
            sums[half:], second, whole_register
        )

    def rest(k, sums):
        # nothing is read behind the last word, where the memory may end
        at = builder.add(whole, builder.mul(k, I64(lanes)))
        left = broadcast(builder, builder.trunc(builder.sub(words, at), I32), kind)
        places = ir.Constant(kind, list(range(lanes)))
        mask = builder.icmp_signed("<", places, left)

        def masked(place):
            return builder.call(
                read_masked, [builder.bitcast(place, kind.as_pointer()), I32(4), mask, nothing]
            )

        return products(sums, at, masked)

    blocks = builder.udiv(words, I64(2 * lanes))
    whole = builder.mul(blocks, I64(2 * lanes))
    sums = loop(builder, blocks, [nothing] * (2 * len(rows)), step)
    totals = [builder.add(*pair) for pair in zip(sums[: len(rows)], sums[len(rows) :], strict=True)]
    left = builder.udiv(builder.add(builder.sub(words, whole), I64(lanes - 1)), I64(lanes))
    return loop(builder, left, totals, rest)


def _emit_item_of_steps(builder, panel, item, words, query):
    """Emit the sum of products of an item's signed codes, which lie in steps of 16 words.

    A CPU with tile registers has vpdpbusd, too; it wants unsigned codes on one side: codes + 128
    of the query, less 128 times the sum of the item's.
    """
    kind = ir.VectorType(I32, 16)
    flip = broadcast(builder, I32(-0x7F7F7F80), kind)
    first = builder.gep(panel, [builder.mul(item, I64(16))])

    def step(k, sums):
        row = load(builder, builder.gep(first, [builder.mul(k, I64(16 * PANEL))]), kind)
        codes = load(builder, builder.gep(query, [builder.mul(k, I64(16))]), kind)
        codes = builder.xor(codes, flip)
        return [
            _add_products(builder, instruction_sets.AVX512_VNNI, sums[0], codes, row),
            _add_products(builder, instruction_sets.AVX512_VNNI, sums[1], flip, row),
        ]

    zero = ir.Constant(kind, [0] * 16)
    total, shifted = loop(builder, builder.lshr(words, I64(4)), [zero, zero], step)
    return _reduced(builder, "add", builder.sub(total, shifted))


def _sum_of_each(builder, vectors):
    """Emit the sums of the lanes of 8 vectors, one vector.

    By quarters of 128 bits, in which CPUs interleave two vectors at once.
    """
    lanes = vectors[0].type.count
    kind = ir.VectorType(I32, lanes)

    def added(pairs, low, high):
        """Emit the sums of two interleavings of each pair; low and high: of its first quarters."""

        def interleaved(pair, lane):
            places = [
                quarter + (place if place < 4 else lanes + place - 4)
                for quarter in range(0, lanes, 4)
                for place in lane
            ]
            return builder.shuffle_vector(*pair, ir.Constant(kind, places))

        return [builder.add(interleaved(pair, low), interleaved(pair, high)) for pair in pairs]

    for low, high in (((0, 4, 1, 5), (2, 6, 3, 7)), ((0, 1, 4, 5), (2, 3, 6, 7))):
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = added(pairs, low, high)
    total = None
    for quarter in range(0, lanes, 4):
        places = [*range(quarter, quarter + 4), *range(lanes + quarter, lanes + quarter + 4)]
        mask = ir.Constant(ir.VectorType(I32, GROUP), places)
        part = builder.shuffle_vector(*vectors, mask)
        total = part if total is None else builder.add(total, part)
    return total


def _prefetch_next_panel(builder, at, words):
    """Emit the prefetch of what lies at the same place of the next panel of items.

    The hardware does not foresee it: few queries read the groups of a panel side by side. One query
    of 1,000,000 x 128 takes 0.8 of the time, 256 of 100,000 x 768 0.9 (Zen 4).
    """
    line = builder.gep(at, [builder.mul(words, I64(PANEL))])
    emit_prefetch(builder, builder.bitcast(line, BYTES), level=2)


def _add_products(builder, isa, sums, item, query):
    """Emit sums + products of 4 unsigned and 4 signed bytes of each lane."""
    kind = sums.type
    if isa is not instruction_sets.AVX2:
        # the i32 spelling is accepted by LLVM before and after 22
        name = f"llvm.x86.avx512.vpdpbusd.{32 * kind.count}"
        return builder.call(function(builder, name, kind, [kind] * 3), (sums, item, query))
    # |query code| <= 64: two products of 255 and 64 fit in int16
    codes, pairs = ir.VectorType(I8, 32), ir.VectorType(I16, 16)
    multiply = function(builder, "llvm.x86.avx2.pmadd.ub.sw", pairs, [codes] * 2)
    add_pairs = function(builder, "llvm.x86.avx2.pmadd.wd", kind, [pairs] * 2)
    products = builder.call(multiply, [builder.bitcast(side, codes) for side in (item, query)])
    return builder.add(sums, builder.call(add_pairs, [products, ir.Constant(pairs, [1] * 16)]))


def _emit_float(builder, isa, items, stride, queries, depth, out, n_items=None):
    """Blocks of items x two registers of queries; mul and add may be contracted."""
    rows, lanes = isa.float_rows, isa.float_lanes
    kind = ir.VectorType(F32, lanes)
    width = 2 * lanes
    parts = I64(PANEL // rows)
    if n_items is not None:
        parts = builder.udiv(builder.add(n_items, I64(rows - 1)), I64(rows))
    with cgutils.for_range(builder, parts) as part:
        first = builder.mul(part.index, I64(rows))
        block = builder.gep(items, [builder.mul(first, stride)])
        row_starts = [builder.gep(block, [builder.mul(stride, I64(r))]) for r in range(rows)]
        with cgutils.for_range(builder, I64(PANEL // width)) as slice_:
            column = builder.mul(slice_.index, I64(width))
            panel = builder.gep(queries, [column])

            def step(k, sums, row_starts=row_starts, panel=panel):
                at = builder.gep(panel, [builder.mul(k, I64(PANEL))])
                columns = [load(builder, at, kind, v * lanes) for v in (0, 1)]
                results = []
                for row, start in enumerate(row_starts):
                    item = broadcast(builder, builder.load(builder.gep(start, [k])), kind)
                    for v in (0, 1):
                        product = builder.fmul(item, columns[v], flags=("contract",))
                        total = sums[2 * row + v]
                        results.append(builder.fadd(total, product, flags=("contract",)))
                return results

            zero = broadcast(builder, F32(0.0), kind)
            sums = loop(builder, depth, [zero] * (2 * rows), step)
            target = builder.gep(out, [builder.add(builder.mul(first, I64(PANEL)), column)])
            for t, value in enumerate(sums):
                store(builder, value, target, t // 2 * PANEL + t % 2 * lanes)


@inlined_kernel
def least_score(lanes, i, statistics, panel):
    """The least score of a tile that may reach the threshold of query i of a panel, less 1.

    lanes (4, 32), statistics (n_panels, 5): as in `passing`. float32 holds scores of up to 1,024
    columns; the rounding of larger ones is within packing.SLACK.
    """
    weight = lanes[WEIGHT, i]
    bound = lanes[TAU, i] - lanes[RESIDUAL, i] * statistics[panel, 1]
    bound -= lanes[CODED, i] * statistics[panel, 2]
    bound -= max(weight * statistics[panel, 3], weight * statistics[panel, 4])
    return bound * statistics[panel, 0] - np.float32(1.0)


@intrinsic
def passing(typingctx, scores, lanes, lane0, statistics, panel, n_items, hits):
    """Write the scores that reach their query's threshold to hits; return how many there are.

    scores (32, 32), int32 or float32; lanes: from position lane0 on, rows of 32 float32: threshold,
    query residual, coded norm and offset weight, in units of the query's scale; statistics
    (n_panels, 5): 1 / scale, largest norm, residual norm and offset, and least offset. hits (1024,)
    int32 out: 32 i + q if item i passes for query q, by q and then i; items from n_items on are
    ignored.
    """

    def codegen(context, builder, sig, a):
        places = (0, I64(0)), (1, a[2]), (3, builder.mul(a[4], I64(5))), (6, I64(0))
        values, queries, panel, out = pointers(context, builder, sig, a, *places)
        thresholds = _thresholds(builder, values, queries, panel)
        reached = [_reached(builder, values, half, thresholds[half]) for half in (0, 1)]
        return _emit_hits(builder, reached, _valid(builder, a[5]), out)

    return types.int64(scores, lanes, lane0, statistics, panel, n_items, hits), codegen


@intrinsic
def passing_by_prefix(
    typingctx, scores, lanes, lane0, own, own0, statistics, panel, n_items, rests, hits
):
    """Do as `passing` for scores of prefixes: what is left of both sides is added as a bound.

    lanes: of all codes, for their thresholds; own: from position own0 on five rows of 32 float32:
    scale of all codes, query residual, coded norm, offset weight and what is left of the query, in
    units of the prefix's scale; rests (32 panels,) float32: what is left of every item.
    """
    signature = types.int64(
        scores, lanes, lane0, own, own0, statistics, panel, n_items, rests, hits
    )

    def codegen(context, builder, sig, a):
        starts = (1, a[2]), (3, a[4]), (5, I64(0)), (8, I64(0))
        prefix = _Prefix(builder, a[6], *pointers(context, builder, sig, a, *starts))
        values, out = pointers(context, builder, sig, a, (0, I64(0)), (9, I64(0)))
        reached = [prefix.reached(builder, values, half) for half in (0, 1)]
        return _emit_hits(builder, reached, _valid(builder, a[7]), out)

    return signature, codegen


@intrinsic
def find_by_prefix(
    typingctx, isa, items, item0, words, codes, code0, start, query, lanes, own, statistics, panel,
    n_items, rests, hits, hit0,
):  # fmt: skip
    """Write the items of a panel that passing_by_prefix passes for one query; return how many.

    items to start: as in score_run; lanes to rests: as in passing_by_prefix, of the first panel of
    queries. hits: from hit0 on the items' numbers in the panel. Where are_few may be true.
    """
    signature = types.int64(
        isa, items, item0, words, codes, code0, start, query, lanes, own, statistics, panel,
        n_items, rests, hits, hit0,
    )  # fmt: skip

    def codegen(context, builder, sig, a):
        isa = instruction_sets.of(sig)
        if not isa.has_codes:
            return I64(0)
        left, right = pointers(context, builder, sig, a, (1, a[2]), (4, a[5]))
        starts = (pointer(context, builder, sig.args[i], a[i], I64(0)) for i in (8, 9, 10, 13))
        prefix = _Prefix(builder, a[11], *starts)
        out = pointer(context, builder, sig.args[14], a[14], a[15])
        totals = _emit_for_one(builder, isa, left, right, a[3], a[6])
        word = builder.and_(prefix.reached_by(builder, totals, a[7]), _valid(builder, a[12]))
        return _list_bits(builder, word, I32(0), out)

    return signature, codegen


@intrinsic
def list_reaching(typingctx, scores, score0, least, n_items, hits, hit0):
    """Write the places of scores[score0 : score0 + 32] that are at least `least`; return how many.

    scores flat int32 (of float32 nothing is written); least float32; items from n_items on are
    ignored; hits int32 out, from hit0 on: places in scores, ascending.
    """

    def codegen(context, builder, sig, a):
        if sig.args[0].dtype != types.int32:
            return I64(0)
        start, out = pointers(context, builder, sig, a, (0, a[1]), (4, a[5]))
        least, word = broadcast(builder, a[2], ir.VectorType(F32, GROUP)), I32(0)
        for first in range(0, PANEL, GROUP):
            value = load(builder, start, ir.VectorType(I32, GROUP), first)
            reaches = builder.fcmp_ordered(">=", builder.sitofp(value, least.type), least)
            bits = builder.zext(builder.bitcast(reaches, I8), I32)
            word = builder.or_(word, builder.shl(bits, I32(first)))
        word = builder.and_(word, _valid(builder, a[3]))
        return _list_bits(builder, word, builder.trunc(a[1], I32), out)

    signature = types.int64(scores, types.int64, least, types.int64, hits, types.int64)
    return signature, codegen


def _list_bits(builder, word, base, out):
    """Emit a loop that writes base + i for every bit i of the word, ascending; return how many."""
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


class _Prefix:
    """What decides whether scores of prefixes pass.

    A score v passes if v + t r >= threshold - 1. float32 holds the scores of up to 1,024 columns.
    """

    def __init__(self, builder, panel, lanes, own, statistics, rests):
        self._lanes, self._own = lanes, own
        self._panel = builder.gep(statistics, [builder.mul(panel, I64(5))])
        self._rests = builder.gep(rests, [builder.mul(panel, I64(PANEL))])

    def _bounds(self, builder, first, kind):
        """Emit thresholds and rests of queries from `first` on, as many as kind has lanes."""
        inverse, norm, residual, most, least = (
            broadcast(builder, builder.load(builder.gep(self._panel, [I64(at)])), kind)
            for at in range(5)
        )

        def read(start, row):
            at = builder.add(first, I64(row * PANEL))
            return load(builder, builder.gep(start, [at]), kind)

        bound = builder.fmul(read(self._lanes, TAU), read(self._own, TAU))
        rows = (RESIDUAL, CODED, WEIGHT, REST)
        query_residual, coded_norm, weight, rest = (read(self._own, row) for row in rows)
        bound = _less_errors(
            builder, bound, query_residual, norm, coded_norm, residual, weight, most, least
        )
        bound = builder.fsub(builder.fmul(bound, inverse), broadcast(builder, F32(1.0), kind))
        return bound, builder.fmul(rest, inverse)

    def reached(self, builder, values, half):
        """Emit the words of _reached for the scores of a half of the queries."""
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
        """Emit a word, bit i of which is 1 if the score of item i passes for the query."""
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
        """Emit integers that are negative where a score does not pass."""
        relaxed = {"flags": ("contract",)}
        score = builder.fsub(builder.sitofp(value, bound.type), bound)
        score = builder.fadd(score, builder.fmul(rest, of_items, **relaxed), **relaxed)
        return builder.bitcast(score, value.type)


def _valid(builder, n_items):
    """Emit a word with bit i for each of the panel's items."""
    count = builder.select(builder.icmp_signed("<", n_items, I64(PANEL)), n_items, I64(PANEL))
    return builder.trunc(builder.sub(builder.shl(I64(1), count), I64(1)), I32)


def _emit_hits(builder, reached, valid, out):
    """Emit a list of what passes; reached: words of _reached, for both halves of the queries."""
    reverse = function(builder, "llvm.bitreverse.i32", I32, [I32])
    valid = broadcast(builder, builder.call(reverse, [valid]), _V_I32)
    reached = [builder.and_(words, valid) for words in reached]
    # bit q is 1 if some item passes for query q
    some = [
        builder.zext(builder.bitcast(builder.icmp_signed("!=", one, _V_I32(None)), I16), I32)
        for one in reached
    ]
    some = builder.or_(some[0], builder.shl(some[1], I32(16)))
    found = cgutils.alloca_once_value(builder, I64(0))
    words = cgutils.alloca_once(builder, I32, PANEL)
    with builder.if_then(builder.icmp_unsigned("!=", some, I32(0))):
        for half in (0, 1):
            store(builder, reached[half], words, 16 * half)
        builder.store(_list_hits(builder, some, words, out), found)
    return builder.load(found)


def _thresholds(builder, values, queries, panel):
    """Emit the least tile scores that may reach the thresholds, for both halves of the queries."""
    inverse, norm, residual, most, least = (
        broadcast(builder, builder.load(builder.gep(panel, [I64(s)])), _V_F32) for s in range(5)
    )
    thresholds = []
    for half in (0, 1):
        bound, query_residual, coded_norm, weight = (
            load(builder, queries, _V_F32, row * PANEL + half * 16) for row in range(4)
        )
        bound = _less_errors(
            builder, bound, query_residual, norm, coded_norm, residual, weight, most, least
        )
        bound = builder.fmul(bound, inverse)
        thresholds.append(_round_down(builder, bound) if values.type.pointee == I32 else bound)
    return thresholds


def _less_errors(builder, bound, query_residual, norm, coded_norm, residual, weight, most, least):
    """Emit a threshold less the errors of codes and the largest offset: for inner products."""
    for factor, term in ((query_residual, norm), (coded_norm, residual)):
        bound = builder.fsub(bound, builder.fmul(factor, term))
    offset, other = builder.fmul(weight, most), builder.fmul(weight, least)
    larger = builder.select(builder.fcmp_ordered(">", offset, other), offset, other)
    return builder.fsub(bound, larger)


def _reached(builder, values, half, threshold):
    """Emit words of the queries of a half: bit 31 - i is 1 if the score of item i reaches them.

    The sign of a difference is shifted into the word: no mask register, of which CPUs fill one a
    cycle at most, and no branch. Differences fit in int32: scores have at most 127^2 MOST_CODES,
    and thresholds 1.05e9 (_round_down).
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


def _list_hits(builder, some, words, out):
    """Emit a loop that writes the positions of hits, query by query; return their number."""
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
            left = builder.xor(items, builder.lshr(I32(1 << 31), item))
            return [left, builder.add(count, I64(1))]

        items = builder.load(builder.gep(words, [builder.zext(query, I64)]))
        _, count = loop(builder, bits_of(items), [items, count], list_item)
        return [builder.and_(queries, builder.sub(queries, I32(1))), count]

    return loop(builder, bits_of(some), [some, I64(0)], list_query)[1]


def _largest(builder, values, half):
    """Largest of the 32 items' scores for each of the queries of a half."""
    integer = values.type.pointee == I32
    compare = builder.icmp_signed if integer else builder.fcmp_ordered
    kind = _V_I32 if integer else _V_F32

    def larger(x, y):
        return builder.select(compare(">", x, y), x, y)

    # four independent chains hide the latency of the comparison
    best = [load(builder, values, kind, row * PANEL + half * 16) for row in range(4)]
    for row in range(4, PANEL):
        value = load(builder, values, kind, row * PANEL + half * 16)
        best[row % 4] = larger(value, best[row % 4])
    return larger(larger(best[0], best[1]), larger(best[2], best[3]))


@intrinsic
def largest_scores(typingctx, scores, largest):
    """Largest score of each query in the panel. scores (32, 32) flat; largest (32,) float32 out."""

    def codegen(context, builder, sig, a):
        values, out = pointers(context, builder, sig, a, (0, I64(0)), (1, I64(0)))
        for half in (0, 1):
            top = _largest(builder, values, half)
            if values.type.pointee == I32:
                top = builder.sitofp(top, _V_F32)
            store(builder, top, out, half * 16)
        return context.get_dummy_value()

    return types.void(scores, largest), codegen


def _round_down(builder, bound):
    """Round a float32 threshold down to int32, clipped to +-1.05e9: above 127^2 MOST_CODES."""
    for limit, sign in ((1.05e9, "<"), (-1.05e9, ">")):
        edge = broadcast(builder, F32(limit), _V_F32)
        bound = builder.select(builder.fcmp_ordered(sign, bound, edge), bound, edge)
    below = broadcast(builder, I32(1), _V_I32)
    return builder.sub(builder.fptosi(bound, _V_I32), below)

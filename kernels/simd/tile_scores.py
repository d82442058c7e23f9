"""Approximate scores of a panel of items with a panel of queries, or with one query.

The scores of a panel of items with a panel of queries form a *tile* of 32 x 32 numbers, which stays
in the first-level cache. Scores are int32 if rows are packed as int8 codes, and otherwise float32.
The machine instruction that multiplies and adds depends on the instruction set:

- AMX uses tdpbssd, which multiplies 16 x 64 signed bytes by 64 x 16 signed bytes. Scores are int32.
- AVX512_VNNI uses vpdpbusd, with 4 multiply-adds in each of 16 lanes. Scores are int32.
- AVX_VNNI uses vpdpbusd in registers of 8 lanes. Scores are int32.
- AVX2 uses vpmaddubsw, vpaddw and vpmaddwd, which add 8 products in int16, or 4 if there is only
  one query. Scores are int32.
- AVX512_FLOAT multiplies float32 numbers of 8 items and 32 queries, in 16 registers of 16 lanes.
- GENERIC multiplies float32 numbers of 4 items and 8 queries, in 8 registers of 4 lanes, and runs
  on any CPU.

All instructions that multiply int8 codes, except tdpbssd, take one unsigned and one signed factor.
Therefore 128 is added to the codes of items. This addition increases the sum of products by 128
times the sum of the query's codes. Therefore the *correction* of the query, which is -128 times the
sum of its codes, is added to every score. Scores of int8 codes are exact for up to
``kernels.tiles.MAX_CODED_COLUMNS`` columns.
"""

from ..jit import cgutils, intrinsic, ir, types
from . import instruction_sets
from .emit import (
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
from .instruction_sets import AVX512_VNNI
from .memory import emit_prefetch
from .panel import GROUP, PANEL

# The number of bytes that 64 columns of 32 packed rows take in the layout of AMX.
_STEP_BYTES = 2048

_VOID = ir.VoidType()


@intrinsic
def start_tiles(typingctx, isa, configuration):
    """If `isa` has tile registers, configure them with the bytes of `configuration` (64,) uint8."""

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
    """Return an intrinsic that computes the scores of a panel of items with a panel of queries.

    `items`, `queries`, `corrections` and `scores` are flat arrays. The panels begin at items[item0]
    and queries[query0], and the corrections of the queries begin at corrections[correction0]. The
    32 x 32 scores are written to `scores`. The corrections are read only if rows are packed as int8
    codes and AMX is not used. `n_queries` is the number of queries in the panel without padding. A
    panel with few queries takes less time than a full panel, because the scores of padding need not
    be computed. `by_item` says whether panels of items are laid out by item. If the items have a
    projection, their full codes are laid out by item, except with AMX (``simd.panel``). Items that
    are stored as float32 have no projected codes.
    """

    @intrinsic
    def score(
        typingctx, isa, items, item0, queries, query0, words, corrections, correction0, n_queries,
        scores,
    ):  # fmt: skip
        def codegen(context, builder, sig, a):
            isa = instruction_sets.of(sig)
            places = (1, a[2]), (3, a[4]), (6, a[7]), (9, I64(0))
            item_start, query_start, sums, out = pointers(context, builder, sig, a, *places)
            if not isa.has_codes:
                if not by_item:
                    _emit_float(builder, isa, item_start, a[5], query_start, a[5], out)
                return context.get_dummy_value()
            # Only the first 16 queries of a panel are multiplied if the other 16 are padding.
            is_full = builder.icmp_signed(">", a[8], I64(PANEL // 2))
            with builder.if_else(is_full) as (if_full, if_not_full):
                for branch, n in ((if_full, PANEL), (if_not_full, PANEL // 2)):
                    with branch:
                        if isa.has_tile_registers:
                            steps = builder.lshr(a[5], I64(4))
                            _emit_amx(builder, item_start, query_start, steps, n, out)
                            continue
                        _emit_int8(
                            builder, isa, item_start, query_start, a[5], sums, n, out, by_item
                        )
            return context.get_dummy_value()

        arrays = (
            items, item0, queries, query0, words, corrections, correction0, n_queries, scores
        )  # fmt: skip
        return types.void(isa, *arrays), codegen

    return score


score_panel, score_panel_by_item = _panel_scorer(by_item=False), _panel_scorer(by_item=True)


@intrinsic
def multiply_item(typingctx, isa, items, item0, item, words, codes, code0, correction):
    """Return the product of one item of a panel with one query, as multiply_run computes it.

    The panel begins at items[item0] and is laid out by item, except with AMX. The words of the
    query are contiguous in `codes` and begin at codes[code0]. `items` and `codes` are flat arrays.
    """

    def codegen(context, builder, sig, a):
        isa = instruction_sets.of(sig)
        if not isa.has_codes:  # rows of float32 have no projection, so no kernel calls this code
            return I32(0)
        panel, query = pointers(context, builder, sig, a, (1, a[2]), (5, a[6]))
        if isa.has_tile_registers:
            return _emit_item_of_steps(builder, panel, a[3], a[4], query)
        row = builder.gep(panel, [builder.mul(a[3], a[4])])
        (products,) = _emit_items(builder, isa, [row], a[4], query)
        return builder.add(_reduced(builder, "add", products), a[7])

    return types.int32(isa, items, item0, item, words, codes, code0, correction), codegen


@intrinsic
def multiply_group(typingctx, isa, items, item0, words, codes, code0, correction, products):
    """Write the products of 8 neighbouring items of a panel with one query to `products` (8,).

    The panel is laid out by groups, and the 8 items form the group that begins at items[item0]. The
    words of the query are contiguous in `codes` and begin at codes[code0]. `items`, `codes` and
    `products` are flat arrays of int32. The intrinsic computes nothing if rows are not packed as
    int8 codes. With AMX, the intrinsic computes nothing either, because panels for AMX have no
    groups.
    """

    def codegen(context, builder, sig, a):
        isa = instruction_sets.of(sig)
        if not isa.has_codes or isa.has_tile_registers:
            return context.get_dummy_value()
        group, query, out = pointers(context, builder, sig, a, (1, a[2]), (4, a[5]), (7, I64(0)))
        kind = ir.VectorType(I32, GROUP)

        def step(k, sums):
            item_words = load(builder, builder.gep(group, [builder.mul(k, I64(GROUP))]), kind)
            word = broadcast(builder, builder.load(builder.gep(query, [k])), kind)
            return [_add_products(builder, isa, sums[0], [(item_words, word)])]

        (sums,) = loop(builder, a[3], [broadcast(builder, a[6], kind)], step)
        store(builder, sums, out)
        return context.get_dummy_value()

    return types.void(isa, items, item0, words, codes, code0, correction, products), codegen


@intrinsic
def multiply_run(
    typingctx, isa, items, item0, step, count, words, codes, code0, correction, products,
    largest_products,
):  # fmt: skip
    """Write a query's products with the items of `count` panels, and each panel's largest product.

    `items`, `codes`, `products` and `largest_products` are flat arrays. The first panel begins at
    items[item0], and the panels are `step` words apart. The words of the query begin at
    codes[code0]; each word is stored 8 times, except with AMX. The results are written to
    `products` (32 count,) and `largest_products` (count,), which are int32. The intrinsic supports
    only int8 codes, because queries of float32 are never compared one by one
    (``fastcos.search.task_grid.one_by_one_is_faster``).
    """
    signature = types.void(
        isa, items, item0, step, count, words, codes, code0, correction, products, largest_products
    )

    def codegen(context, builder, sig, a):
        _emit_run(context, builder, sig.args, a, _multiply_panel)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def multiply_run_by_item(
    typingctx, isa, items, item0, step, count, words, codes, code0, correction, products,
    largest_products,
):  # fmt: skip
    """Write products as multiply_run does, for panels that are laid out by item (``simd.panel``).

    The words of the query, each of which is stored once, begin at codes[code0]. With AMX, no panel
    is laid out by item, so this function does the same as multiply_run.
    """
    signature = types.void(
        isa, items, item0, step, count, words, codes, code0, correction, products, largest_products
    )

    def codegen(context, builder, sig, a):
        isa = instruction_sets.of(sig)
        if isa.has_tile_registers:
            _emit_run(context, builder, sig.args, a, _multiply_panel)
            return context.get_dummy_value()
        kind, lanes = ir.VectorType(I32, GROUP), isa.int8_lanes or GROUP

        def multiply_panel(builder, isa, panel, codes, words, correction, out):
            totals = cgutils.alloca_once(builder, ir.VectorType(I32, lanes), PANEL)
            # The items of the panel form four groups. Each step multiplies one item of each group,
            # and thus reads memory in the same order as multiply_run. If each step multiplied four
            # neighbouring items, the products would take 1.3 times as long, as we measured with
            # 60,000 rows of 768 columns.
            with cgutils.for_range(builder, I64(GROUP)) as item:
                numbers = [builder.add(item.index, I64(first)) for first in range(0, PANEL, GROUP)]
                rows = [builder.gep(panel, [builder.mul(number, words)]) for number in numbers]
                sums = _emit_items(builder, isa, rows, words, codes)
                for number, total in zip(numbers, sums, strict=True):
                    builder.store(total, builder.gep(totals, [number]))

            def add_lanes(group, carried):
                first = builder.mul(group, I64(GROUP))
                numbers = [builder.add(first, I64(item)) for item in range(GROUP)]
                sums = [builder.load(builder.gep(totals, [number])) for number in numbers]
                added = broadcast(builder, correction, kind)
                products = builder.add(_sum_of_each(builder, sums), added)
                store(builder, products, builder.gep(out, [first]))
                return [_larger(builder, products, carried[0])]

            lowest = ir.Constant(kind, [-(2**31)] * GROUP)
            (largest,) = loop(builder, I64(PANEL // GROUP), [lowest], add_lanes)
            return _reduced(builder, "smax", largest)

        _emit_run(context, builder, sig.args, a, multiply_panel)
        return context.get_dummy_value()

    return signature, codegen


def _emit_run(context, builder, kinds, a, multiply_panel):
    """Emit the loop of multiply_run over the panels of items.

    The function multiply_panel(builder, isa, panel, codes, words, correction, out) emits the
    products of one panel and returns the largest product.
    """
    isa = kinds[0].instance_class
    if not isa.has_codes:
        return
    first, codes, out, largest_products = (
        pointer(context, builder, kinds[i], a[i], at)
        for i, at in ((1, a[2]), (6, a[7]), (9, I64(0)), (10, I64(0)))
    )
    with cgutils.for_range(builder, a[4]) as run:
        panel = builder.gep(first, [builder.mul(run.index, a[3])])
        products = builder.gep(out, [builder.mul(run.index, I64(PANEL))])
        largest = multiply_panel(builder, isa, panel, codes, a[5], a[8], products)
        builder.store(largest, builder.gep(largest_products, [run.index]))


def _multiply_panel(builder, isa, panel, codes, words, correction, out):
    """Emit the products of a panel of items with one query, and return the largest product."""
    totals = emit_products(builder, isa, panel, codes, words, correction)
    largest = totals[0]
    for group, value in enumerate(totals):
        store(builder, value, out, group * GROUP)
        largest = _larger(builder, value, largest)
    return _reduced(builder, "smax", largest)


@intrinsic
def multiply_floats(typingctx, isa, rows, row0, stride, n_rows, columns, column0, depth, out):
    """Compute the float32 products (32, 32) of up to 32 float32 rows with a panel of 32 columns.

    `rows`, `columns` and `out` are flat arrays. The first row begins at rows[row0], and the rows
    are `stride` elements apart. The panel begins at columns[column0]. For each of the `depth`
    elements of a row, the panel holds 32 numbers, one number per column. Up to 7 rows after the
    last row may be read as well, so these rows must exist in memory. `isa` is the instruction set
    of the tiles.
    """

    def codegen(context, builder, sig, a):
        places = (1, a[2]), (5, a[6]), (8, I64(0))
        row_start, column_start, out = pointers(context, builder, sig, a, *places)
        # If `isa` has no int8 codes, this function uses instructions that every CPU has.
        isa = instruction_sets.of(sig)
        shape = isa if isa.has_codes else instruction_sets.GENERIC
        _emit_float(builder, shape, row_start, a[3], column_start, a[7], out, n_items=a[4])
        return context.get_dummy_value()

    return types.void(isa, rows, row0, stride, n_rows, columns, column0, depth, out), codegen


@intrinsic
def multiply_registers(typingctx, isa, count, factors, sums):
    """Perform `count` rounds of the multiply-adds of score_panel as fast as the CPU can.

    `factors` (1024,) has the type of packed rows, and `sums` (1024,) has the type of scores. The
    sums of all rounds stay in registers, and are written to `sums` at the end. Without AMX, every
    round reads one factor of each product again; otherwise, the compiler could leave out products.
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
                    _add_products(builder, isa, total, [pair] * max(1, isa.int16_words))
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
    """Emit a loop; each round adds a product to each of four tiles of sums, as in _emit_amx.

    Products that are added to different tiles do not wait for each other, so the latency of tdpbssd
    is hidden.
    """
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


def _emit_amx(builder, items, queries, steps, n_queries, out):
    """Emit code that scores a panel of items for 16 or 32 queries in the tile registers of AMX.

    Each of the tile registers 0 to 3 holds 16 x 16 sums, for one half of the items and one half of
    the queries. Registers 4 and 5 hold items, and registers 6 and 7 hold queries. A panel of items
    is multiplied by many panels of queries in turn, so the items, not the queries, should stay in
    the first-level cache. Queries are therefore loaded with the hint that they will not be needed
    again soon. On a Xeon with AMX, this hint speeds up a tile by a factor of 1.25 for rows of 768
    columns, 1.11 for rows of 1,536 columns, and 1.02 for rows of 384 columns.
    """
    sums = [tile for tile in range(4) if 16 * (tile % 2) < n_queries]
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
            if tile == 7 and n_queries <= 16:
                continue
            offset = builder.add(at, I64(1024 * (tile % 2)))
            load_tile = read_once if start is queries else read
            builder.call(load_tile, [I8(tile), builder.gep(start, [offset]), I64(64)])
        for tile in sums:
            builder.call(multiply, [I8(tile), I8(4 + tile // 2), I8(6 + tile % 2)])
    for tile in sums:
        at = tile // 2 * 16 * PANEL * 4 + tile % 2 * 64
        builder.call(write, [I8(tile), builder.gep(out, [I64(at)]), I64(PANEL * 4)])


def _emit_int8(builder, isa, items, queries, words, corrections, n_queries, out, by_item):
    """Emit code that scores all pairs of a panel of items and 16 or 32 queries.

    The words of the rows are multiplied in passes, so that the codes of one pass stay in the
    first-level cache. Between two passes, the sums are stored in `out`. `by_item` says whether the
    panel of items is laid out by item or by groups (``simd.panel``).
    """
    item_starts = _emit_item_starts(builder, items, words) if by_item else None
    per_pass = I64(isa.words_per_pass)
    n_passes = builder.udiv(builder.add(words, I64(isa.words_per_pass - 1)), per_pass)
    with cgutils.for_range(builder, n_passes) as pass_:
        first = builder.mul(pass_.index, per_pass)
        rest = builder.sub(words, first)
        count = builder.select(builder.icmp_signed("<", rest, per_pass), rest, per_pass)
        _emit_pass(
            builder, isa, items, item_starts, queries, words, first, count, corrections, n_queries,
            out,
        )  # fmt: skip


def _emit_pass(
    builder, isa, items, item_starts, queries, words, first_word, count, corrections, n_queries, out
):
    """Emit one pass over `count` words from `first_word` on.

    Each step multiplies two words, or int16_words words if their products are added in int16. The
    number of words is even. If int16_words is 4, two words may remain for a last step. A block has
    at most 8 items, and there is one sum for each pair of an item and a query. A block is so small
    that these sums fit in registers. `item_starts` is None if the panel of items is laid out by
    groups.
    """
    lanes = isa.int8_lanes
    kind, columns = ir.VectorType(I32, lanes), range(0, n_queries, lanes)
    rows = min(GROUP, isa.int8_sums // len(columns))
    words_per_step = max(2, isa.int16_words)
    is_first = builder.icmp_signed("==", first_word, I64(0))
    first_query = builder.gep(queries, [builder.mul(first_word, I64(PANEL))])
    with cgutils.for_range(builder, I64(PANEL // rows)) as part:
        first = builder.mul(part.index, I64(rows))
        group = builder.mul(builder.udiv(first, I64(GROUP)), builder.mul(words, I64(GROUP)))
        at = builder.add(group, builder.urem(first, I64(GROUP)))
        block = builder.gep(items, [builder.add(at, builder.mul(first_word, I64(GROUP)))])
        item_rows = []
        if item_starts:
            places = [builder.add(first, I64(row)) for row in range(rows)]
            item_rows = [builder.load(builder.gep(item_starts, [place])) for place in places]

        def multiply(at, n_words, sums, block=block, item_rows=item_rows):
            item_at = builder.gep(block, [builder.mul(at, I64(GROUP))])
            word_at = builder.add(first_word, at)
            query_at = builder.gep(first_query, [builder.mul(at, I64(PANEL))])
            first_read = builder.gep(item_rows[0], [word_at]) if item_rows else item_at
            _prefetch_next_panel(builder, first_read, words)

            def item_word(row, word):
                at = builder.gep(item_at, [I64(word * GROUP + row)])
                if item_rows:
                    at = builder.gep(item_rows[row], [builder.add(word_at, I64(word))])
                return broadcast(builder, builder.load(at), kind)

            words_per_sum = min(n_words, max(1, isa.int16_words))
            for word in range(0, n_words, words_per_sum):
                group = range(word, word + words_per_sum)
                codes = [
                    [load(builder, query_at, kind, word * PANEL + at) for word in group]
                    for at in columns
                ]
                results = []
                for row in range(rows):
                    item = [item_word(row, word) for word in group]
                    results += [
                        _add_products(
                            builder, isa, sums[len(codes) * row + v], zip(item, query, strict=True)
                        )
                        for v, query in enumerate(codes)
                    ]
                sums = results
            return sums

        target = builder.gep(out, [builder.mul(first, I64(PANEL))])
        initial, places = [], [(row, column) for row in range(rows) for column in columns]
        for row, column in places:
            stored = builder.gep(target, [I64(row * PANEL)])
            initial.append(
                load(builder, builder.select(is_first, corrections, stored), kind, column)
            )

        def step(k, sums, multiply=multiply):
            return multiply(builder.mul(k, I64(words_per_step)), words_per_step, sums)

        n_steps = builder.udiv(count, I64(words_per_step))
        sums = loop(builder, n_steps, initial, step)
        if words_per_step > 2:
            done = builder.mul(n_steps, I64(words_per_step))

            def last_step(k, sums, multiply=multiply, done=done):
                return multiply(done, 2, sums)

            remaining = builder.lshr(builder.sub(count, done), I64(1))
            sums = loop(builder, remaining, sums, last_step)
        for (row, column), value in zip(places, sums, strict=True):
            store(builder, value, target, row * PANEL + column)


def _emit_item_starts(builder, items, words):
    """Emit a table of pointers to the items of a panel that is laid out by item.

    Without the table of pointers, every step would compute each pointer from the previous pointer.
    These computations would occupy execution ports that the products need. If the items have a
    projection and the search uses their full codes, the table makes the search 2 % faster.
    """
    table = cgutils.alloca_once(builder, items.type, PANEL)
    with cgutils.for_range(builder, I64(PANEL)) as item:
        start = builder.gep(items, [builder.mul(item.index, words)])
        builder.store(start, builder.gep(table, [item.index]))
    return table


def _larger(builder, value, other):
    return builder.select(builder.icmp_signed(">", value, other), value, other)


def _reduced(builder, operation, vector):
    """Emit code that reduces an integer vector to one integer: `operation` combines all lanes."""
    name = f"llvm.vector.reduce.{operation}.v{vector.type.count}i32"
    return builder.call(function(builder, name, I32, [vector.type]), [vector])


def emit_products(builder, isa, items, codes, words, correction):
    """Emit the products of all items of a panel with one query; return vectors of 8 products.

    The arguments from `codes` to `correction` are described in multiply_run.
    """
    emit = _emit_steps if isa.has_tile_registers else _emit_groups
    added = broadcast(builder, correction, ir.VectorType(I32, GROUP))
    return [builder.add(sums, added) for sums in emit(builder, isa, items, codes, words)]


def _emit_steps(builder, isa, items, codes, words):
    """Emit the products of all items with one query for a panel in the layout of AMX.

    In the layout of AMX, a panel holds the first 16 words of each item, item by item, then the
    next 16 words of each item, and so on.

    The products are computed by vpdpbusd, which every CPU with tile registers has. The first
    operand of vpdpbusd must hold unsigned codes, so 128 is added to the codes of the items.
    """
    kind, count = ir.VectorType(I32, 16), PANEL // 2
    flip, totals = broadcast(builder, I32(-0x7F7F7F80), kind), []
    for first in range(0, PANEL, count):  # each of 16 items has a register

        def step(k, sums, first=first):
            at = builder.add(builder.mul(k, I64(16 * PANEL)), I64(16 * first))
            item_start = builder.gep(items, [at])
            query = load(builder, builder.gep(codes, [builder.mul(k, I64(16))]), kind)
            new_sums = []
            # Each item is loaded just before it is multiplied. LLVM moves no load across a
            # prefetch. If all items were loaded before the first prefetch, they would need more
            # registers at the same time than the CPU has.
            for item, total in enumerate(sums):
                row = builder.xor(load(builder, item_start, kind, 16 * item), flip)
                new_sums.append(_add_products(builder, AVX512_VNNI, total, [(row, query)]))
                _prefetch_next_panel(builder, builder.gep(item_start, [I64(16 * item)]), words)
            return new_sums

        zero = ir.Constant(kind, [0] * 16)
        sums = loop(builder, builder.lshr(words, I64(4)), [zero] * count, step)
        totals += [_sum_of_each(builder, sums[i : i + GROUP]) for i in range(0, count, GROUP)]
    return totals


def _emit_groups(builder, isa, items, codes, words):
    """Emit the products of one query with all items of a panel that is laid out by groups."""
    lanes = isa.int8_lanes
    kind, wide = ir.VectorType(I32, lanes), lanes // GROUP
    groups = [builder.gep(items, [builder.mul(words, I64(i))]) for i in range(0, PANEL, GROUP)]
    parts = [
        ir.Constant(ir.VectorType(I32, GROUP), list(range(first, first + GROUP)))
        for first in range(0, lanes, GROUP)
    ]

    words_per_step = max(1, isa.int16_words_of_run)
    offsets = range(0, lanes * words_per_step, lanes)

    def step(k, sums):
        position = builder.mul(k, I64(lanes * words_per_step))

        def vectors(start):
            return [load(builder, builder.gep(start, [position]), kind, at) for at in offsets]

        query, rows = vectors(codes), [vectors(group) for group in groups]
        for group in groups:
            _prefetch_next_panel(builder, builder.gep(group, [position]), words)
        return [
            _add_products(builder, isa, total, zip(row, query, strict=True))
            for total, row in zip(sums, rows, strict=True)
        ]

    zero = broadcast(builder, I32(0), kind)
    steps = builder.udiv(words, I64(wide * words_per_step))
    sums = loop(builder, steps, [zero] * len(groups), step)
    totals = []
    for value in sums:
        pieces = [builder.shuffle_vector(value, value, part) for part in parts]
        totals.append(pieces[0] if wide == 1 else builder.add(*pieces))
    return totals


def _emit_items(builder, isa, rows, words, query):
    """Emit one vector per item; each lane is a sum of products of item codes and query codes.

    `rows` holds a pointer to the first word of each item, and the words of an item are contiguous.
    To get the score of an item, add the lanes of its vector.
    """
    lanes = isa.int8_lanes
    kind = ir.VectorType(I32, lanes)
    zero, bits = ir.Constant(kind, [0] * lanes), ir.VectorType(ir.IntType(1), lanes)
    read_masked = function(
        builder, f"llvm.masked.load.v{lanes}i32.p0", kind, [kind.as_pointer(), I32, bits, kind]
    )

    def products(sums, at, read):
        # Each item is loaded just before it is multiplied. LLVM moves no load across a prefetch. If
        # all items were loaded before the first prefetch, they would need more registers at the
        # same time than the CPU has.
        codes, totals = read(builder.gep(query, [at])), []
        for total, row in zip(sums, rows, strict=True):
            start = builder.gep(row, [at])
            totals.append(_add_products(builder, isa, total, [(read(start), codes)]))
            if len(rows) > 1:
                _prefetch_next_panel(builder, start, words)
        return totals

    def whole_register(start):
        return load(builder, start, kind)

    def step(k, sums):
        # Two independent chains of sums keep the CPU busy during the latency of an instruction.
        first = builder.mul(k, I64(2 * lanes))
        second, n_rows = builder.add(first, I64(lanes)), len(rows)
        return products(sums[:n_rows], first, whole_register) + products(
            sums[n_rows:], second, whole_register
        )

    def last_step(k, sums):
        # The last register may extend beyond the array, so only the remaining words are read.
        at = builder.add(whole, builder.mul(k, I64(lanes)))
        n_remaining = broadcast(builder, builder.trunc(builder.sub(words, at), I32), kind)
        numbers = ir.Constant(kind, list(range(lanes)))
        mask = builder.icmp_signed("<", numbers, n_remaining)

        def masked(start):
            return builder.call(
                read_masked, [builder.bitcast(start, kind.as_pointer()), I32(4), mask, zero]
            )

        return products(sums, at, masked)

    blocks = builder.udiv(words, I64(2 * lanes))
    whole = builder.mul(blocks, I64(2 * lanes))
    sums = loop(builder, blocks, [zero] * (2 * len(rows)), step)
    totals = [builder.add(*pair) for pair in zip(sums[: len(rows)], sums[len(rows) :], strict=True)]
    n_steps = builder.udiv(builder.add(builder.sub(words, whole), I64(lanes - 1)), I64(lanes))
    return loop(builder, n_steps, totals, last_step)


def _emit_item_of_steps(builder, panel, item, words, query):
    """Emit the inner product of the signed codes of one item and the codes of a query.

    The panel has the layout of AMX, which _emit_steps describes. The products are computed by
    vpdpbusd, which every CPU with tile registers has. The first operand of vpdpbusd must hold
    unsigned codes, so 128 is added to the codes of the query. Therefore, 128 times the sum of the
    item's codes is subtracted from the result.
    """
    kind = ir.VectorType(I32, 16)
    flip = broadcast(builder, I32(-0x7F7F7F80), kind)
    first = builder.gep(panel, [builder.mul(item, I64(16))])

    def step(k, sums):
        row = load(builder, builder.gep(first, [builder.mul(k, I64(16 * PANEL))]), kind)
        codes = load(builder, builder.gep(query, [builder.mul(k, I64(16))]), kind)
        codes = builder.xor(codes, flip)
        return [
            _add_products(builder, AVX512_VNNI, sums[0], [(codes, row)]),
            _add_products(builder, AVX512_VNNI, sums[1], [(flip, row)]),
        ]

    zero = ir.Constant(kind, [0] * 16)
    total, shifted = loop(builder, builder.lshr(words, I64(4)), [zero, zero], step)
    return _reduced(builder, "add", builder.sub(total, shifted))


def _sum_of_each(builder, vectors):
    """Emit one vector from 8 vectors: its lane i holds the sum of all lanes of vector i.

    Interleaving two vectors moves numbers only within parts of 128 bits. The lanes are therefore
    first added within such parts.
    """
    lanes = vectors[0].type.count
    kind = ir.VectorType(I32, lanes)

    def sums_of_pairs(pairs, low, high):
        """For each pair of vectors, interleave the two vectors in two ways, and add the results.

        The lists `low` and `high` describe the two interleaved vectors: each list names the lanes
        that form the first 128 bits of its vector. Lanes 0 to 3 are those of the first vector, and
        lanes 4 to 7 those of the second vector.
        """

        def interleaved(pair, first_lanes):
            order = [
                part + (lane if lane < 4 else lanes + lane - 4)
                for part in range(0, lanes, 4)
                for lane in first_lanes
            ]
            return builder.shuffle_vector(*pair, ir.Constant(kind, order))

        return [builder.add(interleaved(pair, low), interleaved(pair, high)) for pair in pairs]

    for low, high in (((0, 4, 1, 5), (2, 6, 3, 7)), ((0, 1, 4, 5), (2, 3, 6, 7))):
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = sums_of_pairs(pairs, low, high)
    total = None
    for first in range(0, lanes, 4):
        chosen = [*range(first, first + 4), *range(lanes + first, lanes + first + 4)]
        mask = ir.Constant(ir.VectorType(I32, GROUP), chosen)
        part = builder.shuffle_vector(*vectors, mask)
        total = part if total is None else builder.add(total, part)
    return total


def _prefetch_next_panel(builder, at, words):
    """Emit a prefetch of the codes at the same position in the next panel of items.

    The hardware prefetcher does not predict which codes are read next, because several groups of a
    panel are read alternately. On a Zen 4 CPU, the prefetch makes a search with one query among
    1,000,000 rows of 128 columns 1.25 times as fast. With the prefetch, a search with 256 queries
    among 100,000 rows of 768 columns is 1.1 times as fast as without it.
    """
    line = builder.gep(at, [builder.mul(words, I64(PANEL))])
    emit_prefetch(builder, builder.bitcast(line, BYTES), level=2)


def _add_products(builder, isa, total, pairs):
    """In each lane, add the products of the word pairs in `pairs` to `total`; return the sum.

    A word holds 4 codes: the first word of a pair holds unsigned codes, and the second word holds
    signed codes. The product of the words is the inner product of their codes. With AVX2, `pairs`
    contains at most four pairs, and their products are added in int16. The sums fit in int16,
    because ``query_encoding.query_step`` limits the codes of queries. If the codes belong to the
    remainder of a query, `pairs` contains only one pair. In this case, ``query_blocks`` shows that
    the sums also fit in int16.
    """
    kind = total.type
    if isa is not instruction_sets.AVX2:
        # All versions of LLVM, including version 22 and later, accept i32 operands for this
        # intrinsic.
        name = f"llvm.x86.avx512.vpdpbusd.{32 * kind.count}"
        for item, query in pairs:
            total = builder.call(function(builder, name, kind, [kind] * 3), (total, item, query))
        return total
    codes, sums = ir.VectorType(I8, 32), ir.VectorType(I16, 16)
    multiply = function(builder, "llvm.x86.avx2.pmadd.ub.sw", sums, [codes] * 2)
    add_neighbors = function(builder, "llvm.x86.avx2.pmadd.wd", kind, [sums] * 2)
    products = None
    for pair in pairs:
        product = builder.call(multiply, [builder.bitcast(word, codes) for word in pair])
        products = product if products is None else builder.add(products, product)
    return builder.add(total, builder.call(add_neighbors, [products, ir.Constant(sums, [1] * 16)]))


def _emit_float(builder, isa, items, stride, queries, depth, out, n_items=None):
    """Emit the float32 products of blocks of items with two registers of queries.

    The compiler may contract a multiplication and an addition to a fused operation.
    """
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

"""Candidate filter of the dense searches: drops pairs that cannot reach a query's threshold.

Bound. A query a is scaled to a' (norm about 1), an item b to b' (norm at most 1), and both are
quantised: a' = s q + e, b' = t c + f. The score is an increasing function of K = <a', b'> + w o,
with weight w of the query and offset o of the item. With the integer v = <q, c> of the tile,

    <a', b'> - s t v = <e, b'> + <s q, f>,
    |<a', b'> - s t v| <= |e| |b'| + |s q| |f| + SLACK |a'| |b'|   (Cauchy-Schwarz, packing.SLACK)

so K lies within s t v + w o +- E. In units of s, for a panel of 32 items with largest norm N and
residual R, and with the largest W of w o, an item can have K >= tau only if

    v >= (tau - (|e| + SLACK |a'|) / s N - |s q| / s R - W / s) / t.

The tile compares v with the integer below this. (float32 tiles: s = t = 1, R = 0, and |e| is the
bound on the rounding of a float32 sum, relative to |a'|.) SLACK also covers the rounding of this
expression, of tau to float32 and of float64 products. The rounding of a squared distance may be
larger by |a| / |b|: it is score_rounding. tau and w o are rounded in proportion to |tau| <= |a'|
|b'| + |w o|, and W is enlarged by SLACK |w o|. Therefore a pair that is dropped has a float64 score
strictly below every threshold that is kept.

Shift. Rows of embeddings have a common direction c: it is taken out before packing, which makes a'
and b', and with them all terms of the bound, shorter. For unit rows, a = alpha c + a' and b = beta
c + b' with alpha = <a, c> and beta = <b, c> of float64, and

    <a, b> = <a', b'> + alpha (beta - 1) + alpha,

an inner product, an offset beta - 1 with weight alpha, and a constant of the query. Both have
either sign. As <a', c> and <b', c> vanish up to rounding, so do the terms that are left out; the
rounding is `rounding` (search.packing). Distances do not change if c is subtracted from both rows.
"""

from collections import namedtuple

import numpy as np

from .exhaustive_top_k import is_excluded
from .few_queries import find_run, panels_of_run
from .jit import borrowing_kernel, inlined_kernel, kernel, relaxed_kernel
from .packing import LANES, SLACK, pack_query, padded_width
from .projection import pack_query_prefixes, spread_codes
from .projection_filter import PANELS_TRIED, choose_prefixes, find_hits_by_prefix
from .simd.hits import largest_scores, passing
from .simd.panel import CODED, PANEL, RESIDUAL, TAU, WEIGHT
from .simd.tile_scores import end_tiles, score_panel, score_panel_by_item, start_tiles
from .tiles import aligned_empty, are_few

# rows (p, d), norms and offsets (p,) float64 as given, offsets (0,) where all are 0; order (m,):
# item of each position; packed: panels of 32 rows of `words` words, flat int32 or float32, or the
# rows as given; small_offsets by position, or empty where all are 0; statistics (panels, 5); shift
# (d,) float64 or empty; signs (2, max(d, 16)); isa_state: configuration of the tile registers;
# scaling (p, 2) float32 of rows as given, else empty: a tile's score v becomes v factor + w offset
# with the two numbers of the item; prefix: Prefixes, with which the packed words of an item lie
# together, except with amx
Items = namedtuple(
    "Items",
    "rows norms offsets order packed words small_offsets statistics shift signs isa_state scaling "
    "prefix",
)
# rows (n, d), norms (n,); a' = factor a - coefficient shift; weights w; K = slope score +
# intercept; error: bound on the rounding of a float32 tile relative to the norms, 0 for integers;
# rounding: bound on the rounding that a shift adds; own: the item that is the query itself, or -1;
# excluded: CSR with sorted rows; permitted (p,) uint8, or empty for all items
Queries = namedtuple(
    "Queries",
    "rows norms factors coefficients weights slopes intercepts error rounding own excluded_indptr "
    "excluded_indices permitted",
)

# packed: `used` queries in panels of `size` words; spread: words of few queries, one query behind
# the other, as score_run takes them; lanes (panels, 4, 32) and scales (panels, 32) float32; starts
# (32 panels,) int32; of the current tile, or run: scores (1024,), hits (1024,) and largest (32,);
# prefix: QueryPrefixes
Block = namedtuple(
    "Block", "packed spread size used lanes scales starts scores hits largest prefix"
)

# a threshold that no score reaches
NEVER = np.float32(3e38)
# bound on the error by underflow of a float64 sum of up to 2^22 products
_UNDERFLOW = 2.0**-1050


@kernel
def pack_block(lo, hi, isa, batch, queries, items, k, score_type):
    """Queries batch[lo:hi] in panels, with thresholds that all scores reach, and tile buffers.

    score_type: empty array of the type of packed rows and scores. Padding lanes never pass.
    """
    n_panels = (hi - lo + PANEL - 1) // PANEL
    size = PANEL * items.words
    packed = aligned_empty(n_panels * size, score_type)
    packed[:] = 0
    lanes = aligned_empty(n_panels * 4 * PANEL, np.empty(0, np.float32)).reshape(n_panels, 4, PANEL)
    lanes[:] = np.float32(0.0)
    lanes[:, TAU] = NEVER
    scales, starts = np.ones((n_panels, PANEL), np.float32), np.zeros(n_panels * PANEL, np.int32)
    width = padded_width(max(queries.rows.shape[1], LANES))
    buffer, codes = np.empty(width, np.float32), np.empty(width, np.int8)
    measured = np.empty(2, np.float32)
    for i in range(hi - lo):
        p, lane, query = i // PANEL, i % PANEL, batch[lo + i]
        scale, norm, residual, start = pack_query(
            isa, queries.rows, query, queries.factors[query], queries.coefficients[query],
            items.shift, items.signs, items.words, lane, packed[p * size : (p + 1) * size], buffer,
            codes, measured,
        )  # fmt: skip
        unit = np.float32(1.0) / scale
        residual += np.float32(queries.error) * norm
        scales[p, lane], starts[i] = scale, start
        lanes[p, TAU, lane] = -NEVER
        lanes[p, RESIDUAL, lane] = (residual + SLACK * norm) * unit
        lanes[p, CODED, lane] = (norm + residual) * unit
        lanes[p, WEIGHT, lane] = queries.weights[query] * unit
    scores, hits = aligned_empty(PANEL * PANEL, score_type), np.empty(PANEL * PANEL, np.int32)
    scores[:] = 0
    spread, largest = spread_codes(isa, hi - lo, packed, items.words), np.empty_like(scores[:PANEL])
    prefix = pack_query_prefixes(
        lo, hi, isa, batch, queries, items, k, packed, lanes, scales, starts
    )  # fmt: skip
    return Block(
        packed, spread, size, hi - lo, lanes, scales, starts, scores, hits, largest, prefix
    )


@inlined_kernel
def score_tile(isa, p, q, items, block):
    """Score panel p of the items with panel q of the queries, to block.scores."""
    used = min(block.used - q * PANEL, PANEL)
    if items.prefix.words > 0:
        score_panel_by_item(
            isa, items.packed, p * block.size, block.packed, q * block.size, items.words,
            block.starts, q * PANEL, used, block.scores,
        )  # fmt: skip
        return
    score_panel(
        isa, items.packed, p * block.size, block.packed, q * block.size, items.words,
        block.starts, q * PANEL, used, block.scores,
    )  # fmt: skip
    if items.scaling.shape[0] > 0:
        _scale_tile(p, block.lanes[q, WEIGHT], items.scaling, block.scores)


@inlined_kernel
def find_hits(isa, p, q, items, block):
    """Write what may reach its query's threshold in a tile to block.hits; return how many.

    As `passing` does; block.scores of the hits are those of all codes.
    """
    n_hits = find_hits_by_prefix(isa, p, q, items, block)
    if n_hits < 0:
        score_tile(isa, p, q, items, block)
        n_hits = list_hits(p, q, items, block)
    return n_hits


@inlined_kernel
def list_hits(p, q, items, block):
    """Write the scores of a tile that reach their query's threshold to block.hits."""
    return passing(
        block.scores, block.lanes, q * 4 * PANEL, items.statistics, p,
        items.order.shape[0] - p * PANEL, block.hits,
    )  # fmt: skip


@borrowing_kernel
def _scale_tile(p, weights, scaling, scores):
    """Multiply scores by the items' factors, and add upper bounds of the rounded offsets."""
    for i in range(PANEL):
        factor, offset = scaling[p * PANEL + i, 0], scaling[p * PANEL + i, 1]
        for lane in range(PANEL):
            term = weights[lane] * offset
            at = i * PANEL + lane
            scores[at] = scores[at] * factor + (term + abs(term) * SLACK)


@relaxed_kernel
def _offer(top, best):
    """Insert one score per query into best (rank, 32), descending; top (32,) is overwritten."""
    last = best.shape[0] - 1
    some = False
    for i in range(PANEL):
        some |= top[i] > best[last, i]
    if some:
        for r in range(last + 1):
            for i in range(PANEL):
                held = best[r, i]
                larger = top[i] > held
                best[r, i] = top[i] if larger else held
                top[i] = held if larger else top[i]


@borrowing_kernel
def rank_maxima(p, q, items, block, best, top):
    """Offer the tile's largest score of each query to best (rank, 32), and raise tau to its last.

    top (32,) float32 is overwritten.
    """
    lanes, scale = block.lanes[q], np.float32(1.0) / items.statistics[p, 0]
    most, least = items.statistics[p, 3], items.statistics[p, 4]
    largest_scores(block.scores, top)
    for i in range(PANEL):
        weight = lanes[WEIGHT, i]
        top[i] = top[i] * scale + max(weight * most, weight * least)
    _offer(top, best)
    for i in range(PANEL):
        lanes[TAU, i] = max(lanes[TAU, i], best[-1, i])


@borrowing_kernel
def rank_hits(p, q, n_hits, items, block, best, top):
    """Do as rank_maxima with the scores of a tile's hits: all others are below tau."""
    lanes, scale = block.lanes[q], np.float32(1.0) / items.statistics[p, 0]
    most, least = items.statistics[p, 3], items.statistics[p, 4]
    top[:] = -NEVER
    for at in range(n_hits):
        hit = block.hits[at]
        weight = lanes[WEIGHT, hit & 31]
        score = np.float32(block.scores[hit]) * scale + max(weight * most, weight * least)
        top[hit & 31] = max(top[hit & 31], score)
    _offer(top, best)
    for i in range(PANEL):
        lanes[TAU, i] = max(lanes[TAU, i], best[-1, i])


@borrowing_kernel
def threshold_of(query, queries, score, unit):
    """The score as a tau in units of the query's scale, rounded down."""
    bound = queries.slopes[query] * score + queries.intercepts[query]
    # infinity cannot be converted to an integer
    return np.float32(max((bound - score_rounding(query, queries)) * unit, -3e38))


@borrowing_kernel
def score_rounding(query, queries):
    """Bound on the difference of K and of the K of the float64 score, by rounding."""
    return (
        1e-12 * abs(queries.intercepts[query])
        + queries.slopes[query] * _UNDERFLOW
        + queries.rounding
    )


@borrowing_kernel
def may_find(column, query, own, permitted, excluded_indptr, excluded_indices):
    """Whether the item is permitted, not the query itself and not excluded."""
    if column == own[query] or (permitted.shape[0] > 0 and permitted[column] == 0):
        return False
    first, last = excluded_indptr[query], excluded_indptr[query + 1]
    return first == last or not is_excluded(column, excluded_indices, first, last)


@kernel
def pass_rows(
    lo, hi, isa, metric_type, batch, queries, items, bounds, score_type, capacity, starts, counts,
    columns,
):  # fmt: skip
    """Range search: candidates of queries batch[lo:hi] that may have scores of at least bounds.

    bounds (n,) float64; counts (n,) int64 out: number of candidates; columns out: the first
    `capacity` candidates of batch[i], from starts[i] on, unordered.
    """
    block = pack_block(lo, hi, isa, batch, queries, items, 0, score_type)
    for i in range(hi - lo):
        q, lane, query = i >> 5, i & 31, batch[lo + i]
        unit = np.float32(1.0) / block.scales[q, lane]
        block.lanes[q, TAU, lane] = threshold_of(query, queries, bounds[query], unit)
        counts[query] = 0
    start_tiles(isa, items.isa_state)
    _pass_panels(lo, isa, batch, queries, items, block, capacity, starts, counts, columns)
    end_tiles(isa)


@borrowing_kernel
def _pass_panels(lo, isa, batch, queries, items, block, capacity, starts, counts, columns):
    order, hits = items.order, block.hits
    own, permitted = queries.own, queries.permitted
    indptr, excluded = queries.excluded_indptr, queries.excluded_indices
    restricted = permitted.shape[0] > 0 or excluded.shape[0] > 0
    n_panels, has_few = items.statistics.shape[0], are_few(isa, block.used)
    run = panels_of_run(items, block) if has_few else 1
    for p in range(0, n_panels, run):
        if p - run < PANELS_TRIED <= p:
            choose_prefixes(isa, 1, items, block)
        for q in range(block.used if has_few else block.lanes.shape[0]):
            if has_few:
                n_hits = find_run(isa, p, 1, min(run, n_panels - p), q, items, block)
            else:
                n_hits = find_hits(isa, p, q, items, block)
            for at in range(n_hits):
                hit = hits[at]
                if has_few:
                    i, position = lo + q, p * PANEL + hit
                else:
                    i, position = lo + q * PANEL + (hit & 31), p * PANEL + (hit >> 5)
                query, column = batch[i], order[position]
                if column == own[query] or (
                    restricted and not may_find(column, query, own, permitted, indptr, excluded)
                ):
                    continue
                if counts[query] < capacity:
                    columns[starts[i] + counts[query]] = column
                counts[query] += 1

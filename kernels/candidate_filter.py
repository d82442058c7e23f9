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

from typing import Any, NamedTuple

import numpy as np

from .exhaustive_top_k import is_excluded
from .few_queries import find_run, panels_of_run
from .jit import borrowing_kernel, inlined_kernel, kernel, relaxed_kernel
from .packing import LANES, SLACK, pack_query, padded_width
from .projection import pack_projected_queries, spread_codes
from .projection_filter import PANELS_TRIED, abandon_costly_projections, find_hits_by_projection
from .simd.hits import largest_scores, passing
from .simd.panel import CODE_NORM, OFFSET_WEIGHT, PANEL, RESIDUAL_NORM, THRESHOLD
from .simd.tile_scores import end_tiles, score_panel, score_panel_by_item, start_tiles
from .tiles import aligned_empty, are_few


class Block(NamedTuple):
    """A block of packed queries, and the buffers of its tiles.

    Attributes
    ----------
    packed : array (panels * size,)
        `used` queries in panels of `size` words.
    spread : array
        Words of few queries, one query behind the other, as score_run takes them.
    lanes : float32 array (panels, 4, 32)
        What scores are compared with, in the rows that ``simd.panel`` names.
    scales, starts : float32 array (panels, 32) and int32 array (32 panels,)
        Steps of quantisation, and what the products of the codes start from.
    scores, hits, largest : arrays (1024,), (1024,) and (32,)
        Of the current tile, or run.
    projected : ProjectedQueries
    """

    packed: Any
    spread: Any
    size: Any
    used: Any
    lanes: Any
    scales: Any
    starts: Any
    scores: Any
    hits: Any
    largest: Any
    projected: Any


# A threshold that no score reaches.
NEVER = np.float32(3e38)
# A bound on the error that underflow causes in a float64 sum of up to 2^22 products.
_UNDERFLOW = 2.0**-1050


@kernel
def pack_block(lo, hi, batch, queries, items, k):
    """Queries batch[lo:hi] in panels, with thresholds that all scores reach, and tile buffers.

    Scores are of the type of packed rows. Padding lanes never pass.
    """
    isa, scaling = items.isa, queries.scaling
    n_panels = (hi - lo + PANEL - 1) // PANEL
    size = PANEL * items.words
    packed = aligned_empty(n_panels * size, items.packed)
    packed[:] = 0
    lanes = aligned_empty(n_panels * 4 * PANEL, np.empty(0, np.float32)).reshape(n_panels, 4, PANEL)
    lanes[:] = np.float32(0.0)
    lanes[:, THRESHOLD] = NEVER
    scales, starts = np.ones((n_panels, PANEL), np.float32), np.zeros(n_panels * PANEL, np.int32)
    width = padded_width(max(queries.rows.shape[1], LANES))
    buffer, codes = np.empty(width, np.float32), np.empty(width, np.int8)
    measured = np.empty(2, np.float32)
    for i in range(hi - lo):
        p, lane, query = i // PANEL, i % PANEL, batch[lo + i]
        scale, norm, residual, start = pack_query(
            isa, queries.rows, query, scaling.factors[query], scaling.coefficients[query],
            items.shift, items.signs, items.words, lane, packed[p * size : (p + 1) * size], buffer,
            codes, measured,
        )  # fmt: skip
        unit = np.float32(1.0) / scale
        residual += np.float32(queries.error) * norm
        scales[p, lane], starts[i] = scale, start
        lanes[p, THRESHOLD, lane] = -NEVER
        lanes[p, RESIDUAL_NORM, lane] = (residual + SLACK * norm) * unit
        lanes[p, CODE_NORM, lane] = (norm + residual) * unit
        lanes[p, OFFSET_WEIGHT, lane] = scaling.weights[query] * unit
    scores, hits = aligned_empty(PANEL * PANEL, items.packed), np.empty(PANEL * PANEL, np.int32)
    scores[:] = 0
    spread, largest = spread_codes(isa, hi - lo, packed, items.words), np.empty_like(scores[:PANEL])
    projected = pack_projected_queries(
        lo, hi, batch, queries, items, k, packed, lanes, scales, starts
    )
    return Block(
        packed, spread, size, hi - lo, lanes, scales, starts, scores, hits, largest, projected
    )


@inlined_kernel
def score_tile(isa, p, q, items, block):
    """Score panel p of the items with panel q of the queries, to block.scores."""
    used = min(block.used - q * PANEL, PANEL)
    if items.projection.words > 0:
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
        _scale_tile(p, block.lanes[q, OFFSET_WEIGHT], items.scaling, block.scores)


@inlined_kernel
def find_hits(isa, p, q, items, block):
    """Write what may reach its query's threshold in a tile to block.hits; return how many.

    As `passing` does; block.scores of the hits are those of all codes.
    """
    n_hits = find_hits_by_projection(isa, p, q, items, block)
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
        weight = lanes[OFFSET_WEIGHT, i]
        top[i] = top[i] * scale + max(weight * most, weight * least)
    _offer(top, best)
    for i in range(PANEL):
        lanes[THRESHOLD, i] = max(lanes[THRESHOLD, i], best[-1, i])


@borrowing_kernel
def rank_hits(p, q, n_hits, items, block, best, top):
    """Do as rank_maxima with the scores of a tile's hits: all others are below tau."""
    lanes, scale = block.lanes[q], np.float32(1.0) / items.statistics[p, 0]
    most, least = items.statistics[p, 3], items.statistics[p, 4]
    top[:] = -NEVER
    for at in range(n_hits):
        hit = block.hits[at]
        weight = lanes[OFFSET_WEIGHT, hit & 31]
        score = np.float32(block.scores[hit]) * scale + max(weight * most, weight * least)
        top[hit & 31] = max(top[hit & 31], score)
    _offer(top, best)
    for i in range(PANEL):
        lanes[THRESHOLD, i] = max(lanes[THRESHOLD, i], best[-1, i])


@borrowing_kernel
def threshold_of(query, queries, score, unit):
    """The score as a tau in units of the query's scale, rounded down."""
    scaling = queries.scaling
    bound = scaling.slopes[query] * score + scaling.intercepts[query]
    # The result is finite, because infinity cannot be converted to an integer.
    return np.float32(max((bound - score_rounding(query, queries)) * unit, -3e38))


@borrowing_kernel
def score_rounding(query, queries):
    """Bound on the difference of K and of the K of the float64 score, by rounding."""
    return (
        1e-12 * abs(queries.scaling.intercepts[query])
        + queries.scaling.slopes[query] * _UNDERFLOW
        + queries.rounding
    )


@borrowing_kernel
def may_find(row, query, self_rows, allowed, excluded_indptr, excluded_rows):
    """Return whether the item is allowed, not the query itself and not excluded."""
    if row == self_rows[query] or (allowed.shape[0] > 0 and allowed[row] == 0):
        return False
    first, last = excluded_indptr[query], excluded_indptr[query + 1]
    return first == last or not is_excluded(row, excluded_rows, first, last)


@kernel
def pass_rows(lo, hi, items, queries, batch, bounds, lists):
    """Range search: candidates of queries batch[lo:hi] that may have scores of at least bounds.

    items: Items; queries: Queries; bounds (n,) float64; lists: CandidateLists, where the list of
    batch[i] starts at starts[i]. Candidates are not ordered.
    """
    block = pack_block(lo, hi, batch, queries, items, 0)
    for i in range(hi - lo):
        q, lane, query = i >> 5, i & 31, batch[lo + i]
        unit = np.float32(1.0) / block.scales[q, lane]
        block.lanes[q, THRESHOLD, lane] = threshold_of(query, queries, bounds[query], unit)
        lists.counts[query] = 0
    start_tiles(items.isa, items.tile_configuration)
    _pass_panels(lo, items, queries, batch, block, lists)
    end_tiles(items.isa)


@borrowing_kernel
def _pass_panels(lo, items, queries, batch, block, lists):
    isa, order, hits, filters = items.isa, items.order, block.hits, queries.filters
    self_rows, allowed = filters.self_rows, filters.allowed
    indptr, excluded = filters.excluded_indptr, filters.excluded_rows
    starts, counts, rows, capacity = lists.starts, lists.counts, lists.rows, lists.capacity
    is_filtered = allowed.shape[0] > 0 or excluded.shape[0] > 0
    n_panels, has_few = items.statistics.shape[0], are_few(isa, block.used)
    run = panels_of_run(items, block) if has_few else 1
    for p in range(0, n_panels, run):
        if p - run < PANELS_TRIED <= p:
            abandon_costly_projections(isa, 1, items, block)
        for q in range(block.used if has_few else block.lanes.shape[0]):
            if has_few:
                n_hits = find_run(isa, p, 1, min(run, n_panels - p), q, items, block)
            else:
                n_hits = find_hits(isa, p, q, items, block)
            for at in range(n_hits):
                hit = hits[at]
                if has_few:
                    i, slot = lo + q, p * PANEL + hit
                else:
                    i, slot = lo + q * PANEL + (hit & 31), p * PANEL + (hit >> 5)
                query, row = batch[i], order[slot]
                if row == self_rows[query] or (
                    is_filtered and not may_find(row, query, self_rows, allowed, indptr, excluded)
                ):
                    continue
                if counts[query] < capacity:
                    rows[starts[i] + counts[query]] = row
                counts[query] += 1

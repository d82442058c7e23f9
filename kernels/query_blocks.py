"""Blocks of queries in panels of 32, and the tiles in which they are compared with panels of items.

A tile consists of the 32 x 32 scores of a panel of items with a panel of queries. ``find_hits``
computes a tile and lists its hits, the pairs that may reach the threshold of their query. A hit is
the number 32 i + q of item i and query q of the two panels. ``candidate_filter`` proves that no
other pair can reach its threshold.
"""

from typing import Any, NamedTuple

import numpy as np

from .candidate_filter import NEVER, set_bound_terms
from .jit import borrowing_kernel, inlined_kernel, kernel, relaxed_kernel
from .packing import LANES, SLACK, pack_query, padded_width
from .projection import pack_projected_queries
from .projection_filter import find_hits_by_projection
from .simd.hits import largest_scores, passing
from .simd.panel import OFFSET_WEIGHT, PANEL, THRESHOLD
from .simd.tile_scores import score_panel, score_panel_by_item
from .tiles import aligned_empty


class Block(NamedTuple):
    """A block of packed queries, and the buffers of its tiles.

    Attributes
    ----------
    packed : array (panels * size,)
        `used` queries in panels of `size` words.
    lanes : float32 array (panels, 4, 32)
        The numbers with which scores are compared, in the rows that ``simd.panel`` names.
    scales, starts : float32 array (panels, 32) and int32 array (32 panels,)
        The steps of quantisation, and the numbers to which the products of the codes are added.
    scores, hits : arrays (1024,)
        The scores and the hits of the current tile.
    projected : ProjectedQueries
    """

    packed: Any
    size: Any
    used: Any
    lanes: Any
    scales: Any
    starts: Any
    scores: Any
    hits: Any
    projected: Any


@kernel
def pack_block(lo, hi, batch, queries, items, k):
    """Pack the queries batch[lo:hi] in panels, with thresholds that all scores reach.

    The result also contains buffers for the scores of a tile, which have the type of packed rows.
    The scores of padding never reach a threshold.
    """
    isa, scaling = items.isa, queries.scaling
    n_panels = (hi - lo + PANEL - 1) // PANEL
    size = PANEL * items.words
    packed = aligned_empty(n_panels * size, items.packed)
    packed[:] = 0
    lanes = aligned_empty(n_panels * 4 * PANEL, np.empty(0, np.float32)).reshape(n_panels, 4, PANEL)
    lanes[:] = np.float32(0.0)
    lanes[:, THRESHOLD] = NEVER
    scales, starts = np.empty((n_panels, PANEL), np.float32), np.empty(n_panels * PANEL, np.int32)
    scales[:], starts[:] = np.float32(1.0), 0
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
        residual += np.float32(queries.error) * norm
        scales[p, lane], starts[i] = scale, start
        set_bound_terms(lanes[p], lane, scale, norm, residual, scaling.weights[query])
    scores, hits = aligned_empty(PANEL * PANEL, items.packed), np.empty(PANEL * PANEL, np.int32)
    scores[:] = 0
    projected = pack_projected_queries(lo, hi, batch, queries, items, k, packed, lanes, scales)
    return Block(packed, size, hi - lo, lanes, scales, starts, scores, hits, projected)


@inlined_kernel
def score_tile(isa, p, q, items, block):
    """Write the scores of panel p of the items with panel q of the queries to block.scores."""
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
    """Write the pairs of a tile that may reach their query's threshold to block.hits.

    The function returns the number of these pairs. The hits have the form that `passing` writes,
    and block.scores holds the scores of the hits by their full codes.
    """
    n_hits = find_hits_by_projection(isa, p, q, items, block)
    if n_hits < 0:
        score_tile(isa, p, q, items, block)
        n_hits = list_hits(p, q, items, block)
    return n_hits


@inlined_kernel
def list_hits(p, q, items, block):
    """Write the positions of a tile's scores that reach their query's threshold to block.hits."""
    return passing(
        block.scores, block.lanes, q * 4 * PANEL, items.statistics, p,
        items.order.shape[0] - p * PANEL, block.hits,
    )  # fmt: skip


@borrowing_kernel
def _scale_tile(p, weights, scaling, scores):
    """Multiply scores by the items' factors, and add upper bounds of the items' rounded offsets."""
    for i in range(PANEL):
        factor, offset = scaling[p * PANEL + i, 0], scaling[p * PANEL + i, 1]
        for lane in range(PANEL):
            term = weights[lane] * offset
            at = i * PANEL + lane
            scores[at] = scores[at] * factor + (term + abs(term) * SLACK)


@relaxed_kernel
def _offer(top, best):
    """Insert one score per query into best (rank, 32), which descends; top (32,) is overwritten."""
    last = best.shape[0] - 1
    has_larger = False
    for i in range(PANEL):
        has_larger |= top[i] > best[last, i]
    if has_larger:
        for r in range(last + 1):
            for i in range(PANEL):
                entry = best[r, i]
                larger = top[i] > entry
                best[r, i] = top[i] if larger else entry
                top[i] = entry if larger else top[i]


@borrowing_kernel
def rank_maxima(p, q, items, block, best, top):
    """Insert each query's largest score in the tile into best (rank, 32), and raise its threshold.

    The threshold of a query becomes the last entry of best, which is the rank-th largest of these
    scores. top (32,) float32 is overwritten.
    """
    lanes, scale = block.lanes[q], np.float32(1.0) / items.statistics[p, 0]
    max_offset, min_offset = items.statistics[p, 3], items.statistics[p, 4]
    largest_scores(block.scores, top)
    for i in range(PANEL):
        weight = lanes[OFFSET_WEIGHT, i]
        top[i] = top[i] * scale + max(weight * max_offset, weight * min_offset)
    _offer(top, best)
    for i in range(PANEL):
        lanes[THRESHOLD, i] = max(lanes[THRESHOLD, i], best[-1, i])


@borrowing_kernel
def rank_hits(p, q, n_hits, items, block, best, top):
    """Raise thresholds as rank_maxima does, from a tile whose best scores are its hits."""
    lanes, scale = block.lanes[q], np.float32(1.0) / items.statistics[p, 0]
    max_offset, min_offset = items.statistics[p, 3], items.statistics[p, 4]
    top[:] = -NEVER
    for at in range(n_hits):
        hit = block.hits[at]
        weight = lanes[OFFSET_WEIGHT, hit & 31]
        score = np.float32(block.scores[hit]) * scale + max(
            weight * max_offset, weight * min_offset
        )
        top[hit & 31] = max(top[hit & 31], score)
    _offer(top, best)
    for i in range(PANEL):
        lanes[THRESHOLD, i] = max(lanes[THRESHOLD, i], best[-1, i])

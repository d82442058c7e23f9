"""Candidate filter of the dense searches: drops pairs that cannot reach a query's threshold.

Bound. A query a is scaled to a' (norm about 1), an item b to b' (norm at most 1), and both are
quantised: a' = s q + e, b' = t c + f. The score is an increasing function of K = <a', b'> + w o,
with weight w of the query and offset o of the item. With the integer v = <q, c> of the tile,

    |<a', b'> - s t v| <= |e| |b'| + |s q| |f| + SLACK |a'| |b'|   (Cauchy-Schwarz, packing.SLACK)

so K lies within s t v + w o +- E. In units of s, for a panel of 32 items with largest norm N,
residual R and offset O, an item can have K >= tau only if

    v >= (tau - (|e| + SLACK |a'|) / s N - |s q| / s R - w / s O) / t.

The tile compares v with the integer below this. (float32 tiles: s = t = 1, R = 0, and |e| is the
bound on the rounding of a float32 sum, relative to |a'|.) SLACK also covers the rounding of this
expression, of tau to float32 and of float64 products. The rounding of a squared distance may be
larger by |a| / |b|: it is score_rounding. tau and O are rounded in proportion to |tau| <= |a'| |b'|
+ w |o|, and O is enlarged by SLACK |O|. Therefore a pair that is dropped has a float64 score
strictly below every threshold that is kept.

Where many items have nearly the same direction, it is subtracted from all rows before packing
(centring). a' and b' are then the remainders, which are short, and so are all terms of the bound.
"""

from collections import namedtuple

import numpy as np

from .exhaustive_top_k import is_excluded
from .jit import kernel, relaxed_kernel
from .packing import (
    SLACK,
    load_panel,
    measure_panel,
    pack_query_codes,
    pack_query_floats,
    rotate_panel,
)
from .tiles import (
    PANEL,
    aligned_empty,
    end_tiles,
    largest_scores,
    passing,
    score_panel,
    start_tiles,
)

# rows (p, d), norms and offsets (p,) float64 as given; order (m,): item of each position; codes:
# int8 codes or float32 rows, flat, with `stride` elements a row; starts and small_offsets by
# position; statistics (panels, 4); shift (d,) float64 or empty; signs (3, d); isa_state:
# configuration of the tile registers
Items = namedtuple(
    "Items",
    "rows norms offsets order codes stride starts small_offsets statistics shift signs isa_state",
)
# rows (n, d), norms (n,); factors: a' = factor a; weights w; K = slope score + intercept; error:
# bound on the rounding of a float32 tile relative to the norms, 0 for integers; rounding: bound on
# the rounding that a shift adds; own: the item that is the query itself, or -1; excluded: CSR with
# sorted rows; permitted (p,) uint8, or empty for all items
Queries = namedtuple(
    "Queries",
    "rows norms factors weights slopes intercepts error rounding own excluded_indptr "
    "excluded_indices permitted",
)

# packed: queries in panels of `size` elements; lanes (panels, 4, 32) and scales (panels, 32)
# float32; of the current tile: scores (1024,) and hits (1024,)
Block = namedtuple("Block", "packed size lanes scales scores hits")

# a threshold that no score reaches
NEVER = np.float32(3e38)
# bound on the error by underflow of a float64 sum of up to 2^22 products
_UNDERFLOW = 2.0**-1050
# rows of lanes: threshold, residual, norm of the codes, weight of the offset
TAU, RESIDUAL, CODED, WEIGHT = range(4)


@kernel
def _prepare_queries(
    queries, batch, first, last, shift, signs, quantised, unsigned, packed, lanes, scales
):
    """Pack queries batch[first:last] in panels, with their lanes; padding lanes never pass."""
    depth = queries.rows.shape[1]
    n_panels = lanes.shape[0]
    size = packed.shape[0] // n_panels
    panel = np.empty((depth, PANEL), np.float32)
    norms, residuals = np.empty(PANEL, np.float32), np.empty(PANEL, np.float32)
    for p in range(n_panels):
        start = first + p * PANEL
        load_panel(queries.rows, batch, start, last, queries.factors, shift, panel)
        target = packed[p * size : (p + 1) * size]
        if quantised:
            rotate_panel(panel, signs)
        else:
            pack_query_floats(panel, target)
        scales[p, 0] = np.float32(1.0)
        measure_panel(panel, scales[p], norms, residuals)
        if quantised:
            pack_query_codes(panel, unsigned, target)
        for i in range(PANEL):
            if not quantised:
                scales[p, i], residuals[i] = np.float32(1.0), np.float32(queries.error) * norms[i]
            unit = np.float32(1.0) / scales[p, i]
            lanes[p, RESIDUAL, i] = (residuals[i] + SLACK * norms[i]) * unit
            lanes[p, CODED, i] = (norms[i] + residuals[i]) * unit
            here = start + i < last
            lanes[p, WEIGHT, i] = queries.weights[batch[start + i]] * unit if here else 0.0
            lanes[p, TAU, i] = -NEVER if here else NEVER


@kernel
def pack_block(lo, hi, shape, batch, queries, items, code_type, score_type):
    """Queries batch[lo:hi] in panels, with thresholds that all scores reach, and tile buffers.

    shape: whether codes are quantised, whether they are unsigned, and the depth in steps of the
    tiles; code_type, score_type: empty arrays of the types of packed queries and scores.
    """
    quantised, unsigned, depth = shape
    n_panels = (hi - lo + PANEL - 1) // PANEL
    size = depth * PANEL
    if quantised:
        size = ((depth + 15) // 16 if unsigned else depth) * 2048
    packed = aligned_empty(n_panels * size, code_type)
    lanes = aligned_empty(n_panels * 4 * PANEL, np.empty(0, np.float32)).reshape(n_panels, 4, PANEL)
    scales = np.empty((n_panels, PANEL), np.float32)
    _prepare_queries(
        queries, batch, lo, hi, items.shift, items.signs, quantised, unsigned, packed, lanes, scales
    )
    scores, hits = aligned_empty(PANEL * PANEL, score_type), np.empty(PANEL * PANEL, np.int32)
    return Block(packed, size, lanes, scales, scores, hits)


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


@kernel
def estimate_thresholds(isa, depth, items, first_panel, last_panel, stride, rank, block):
    """Set every tau to the rank-th best of the largest scores of every stride-th panel."""
    lanes, n_queries = block.lanes, block.lanes.shape[0]
    best = np.full((n_queries, rank, PANEL), -NEVER)
    top = np.empty(PANEL, np.float32)
    for p in range(first_panel + stride // 2, last_panel, stride):
        scale, offset = np.float32(1.0) / items.statistics[p, 0], items.statistics[p, 3]
        for q in range(n_queries):
            score_panel(
                isa, items.codes, p * PANEL * items.stride, items.stride, block.packed,
                q * block.size, depth, items.starts, p * PANEL, block.scores,
            )  # fmt: skip
            largest_scores(block.scores, top)
            for i in range(PANEL):
                top[i] = top[i] * scale + lanes[q, WEIGHT, i] * offset
            _offer(top, best[q])
    for q in range(n_queries):
        for i in range(PANEL):
            if lanes[q, TAU, i] < 0.0:
                lanes[q, TAU, i] = best[q, -1, i]


@kernel
def threshold_of(query, queries, score, unit):
    """The score as a tau in units of the query's scale, rounded down."""
    bound = queries.slopes[query] * score + queries.intercepts[query]
    # infinity cannot be converted to an integer
    return np.float32(max((bound - score_rounding(query, queries)) * unit, -3e38))


@kernel
def score_rounding(query, queries):
    """Bound on the difference of K and of the K of the float64 score, by rounding."""
    return (
        1e-12 * abs(queries.intercepts[query])
        + queries.slopes[query] * _UNDERFLOW
        + queries.rounding
    )


@kernel
def may_find(column, query, own, permitted, excluded_indptr, excluded_indices):
    """Whether the item is permitted, not the query itself and not excluded."""
    if column == own[query] or (permitted.shape[0] > 0 and permitted[column] == 0):
        return False
    first, last = excluded_indptr[query], excluded_indptr[query + 1]
    return first == last or not is_excluded(column, excluded_indices, first, last)


@kernel
def pass_rows(
    lo, hi, isa, metric_type, shape, batch, queries, items, bounds, code_type, score_type, capacity,
    starts, counts, columns,
):  # fmt: skip
    """Range search: candidates of queries batch[lo:hi] that may have scores of at least bounds.

    bounds (n,) float64; counts (n,) int64 out: number of candidates; columns out: the first
    `capacity` candidates of batch[i], from starts[i] on, unordered.
    """
    block = pack_block(lo, hi, shape, batch, queries, items, code_type, score_type)
    for i in range(hi - lo):
        q, lane, query = i >> 5, i & 31, batch[lo + i]
        unit = np.float32(1.0) / block.scales[q, lane]
        block.lanes[q, TAU, lane] = threshold_of(query, queries, bounds[query], unit)
        counts[query] = 0
    # plain arrays: access to a member of a tuple counts references, 5 times the cost of a hit
    codes, stride, first_codes = items.codes, items.stride, items.starts
    statistics, order = items.statistics, items.order
    packed, lanes, scores, hits = block.packed, block.lanes, block.scores, block.hits
    own, permitted = queries.own, queries.permitted
    indptr, excluded = queries.excluded_indptr, queries.excluded_indices
    restricted = permitted.shape[0] > 0 or excluded.shape[0] > 0
    start_tiles(isa, items.isa_state)
    for p in range(statistics.shape[0]):
        for q in range(lanes.shape[0]):
            score_panel(
                isa, codes, p * PANEL * stride, stride, packed, q * block.size, shape[2],
                first_codes, p * PANEL, scores,
            )  # fmt: skip
            n_hits = passing(
                scores, lanes, q * 4 * PANEL, statistics, p, order.shape[0] - p * PANEL, hits
            )
            for at in range(n_hits):
                hit = hits[at]
                i = lo + q * PANEL + (hit & 31)
                query, column = batch[i], order[p * PANEL + (hit >> 5)]
                if column == own[query] or (
                    restricted and not may_find(column, query, own, permitted, indptr, excluded)
                ):
                    continue
                if counts[query] < capacity:
                    columns[starts[i] + counts[query]] = column
                counts[query] += 1
    end_tiles(isa)

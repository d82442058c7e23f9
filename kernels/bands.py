"""Exact top-k by norm gap plus angle: tiles whose thresholds fall with the distance of the norms.

An item can be as near as tau only if its angle is at most tau - |gap of the norms|, so in a panel
of items whose norms are all at least `gap` away, only if its cosine is at least cos(tau - gap).
Items lie by norm, queries come in blocks of similar norm, and panels are visited from the block's
own norm outwards: tau is small soon, and what is further away than tau is never looked at.

What passes is scored in float64 (pair_scores) in batches; the k-th best so far is the next tau.
"""

import numpy as np

from .candidate_filter import NEVER, TAU, may_find, pack_block
from .exhaustive_top_k import write_run
from .jit import kernel, screen_kernel
from .pair_scores import NORM_ANGLE
from .tile_top_k import merge_scores
from .tiles import PANEL, end_tiles, passing, score_panel, start_tiles

# of the norms: what rounding may add to their gap
_ROUNDING = 1e-15


@screen_kernel
def _thresholds(reach, norms, units, least, largest, lanes):
    """lanes[0] = least cosine that may matter, in the queries' units; whether any lane is left.

    reach (32,): tau of each query; the panel's norms are from least to largest. cos a is at least
    the first four terms of its series.
    """
    furthest = -1.0
    for i in range(PANEL):
        gap = max(least - norms[i], norms[i] - largest) - _ROUNDING * (norms[i] + largest)
        angle = reach[i] - max(gap, 0.0)
        furthest = max(furthest, angle)
        # beyond 3.2 the series is below -1
        s = np.float32(min(angle, 3.2)) * np.float32(min(angle, 3.2))
        cosine = np.float32(1.0) - s * (
            np.float32(0.5) - s * (np.float32(1 / 24) - s * np.float32(1 / 720))
        )
        bound = (cosine - np.float32(2e-6)) * units[i]
        lanes[TAU, i] = bound if angle >= 0.0 else NEVER
    return furthest >= 0.0


@kernel
def _next_panel(left, right, least, largest, firsts, lasts):
    """The nearer of two panels by norm, and its gap; -1 where none is left."""
    below = least - lasts[left] if left >= 0 else np.inf
    above = firsts[right] - largest if right < firsts.shape[0] else np.inf
    if left < 0 and right >= firsts.shape[0]:
        return -1, np.inf
    return (left, max(below, 0.0)) if below <= above else (right, max(above, 0.0))


@kernel
def _flush(query, queries, items, waiting, count, run, run_keys, run_columns, keys):
    """Score what waits for a query; the length of its run and its new reach."""
    run = merge_scores(
        NORM_ANGLE, query, queries, items, waiting, count, keys, run, run_keys, run_columns
    )
    if run < run_keys.shape[0]:
        return run, np.inf
    return run, -run_keys[run - 1] * (1.0 + 1e-12)


@kernel
def search_bands(
    lo, hi, isa, shape, batch, queries, items, firsts, lasts, capacity, code_type, score_type,
    keys, columns,
):  # fmt: skip
    """Neighbours of queries batch[lo:hi], numbers by rising norm, by -(norm gap + angle).

    The worst case is O((hi - lo) m d) operations of the tiles. Items lie by rising norm; firsts,
    lasts (panels,) float64: least and largest norm of a panel; capacity: candidates that wait for a
    query's next scoring. The other arguments as in screen.search_rows.
    """
    n, k = hi - lo, columns.shape[1]
    block = pack_block(lo, hi, shape, batch, queries, items, code_type, score_type)
    n_panels = block.lanes.shape[0]
    reach, norms = np.full((n_panels, PANEL), -1.0), np.zeros((n_panels, PANEL))
    units = np.float32(1.0) / block.scales
    for i in range(n):
        reach[i >> 5, i & 31], norms[i >> 5, i & 31] = np.inf, queries.norms[batch[lo + i]]
    counts, runs = np.zeros(n, np.int64), np.zeros(n, np.int64)
    waiting = np.empty((n, capacity + k), np.int64)
    run_keys, run_columns = np.empty((n, k)), np.empty((n, k), np.int64)
    merged = np.empty(2 * (capacity + k))
    least, largest = queries.norms[batch[lo]], queries.norms[batch[hi - 1]]
    right = np.searchsorted(firsts, queries.norms[batch[(lo + hi) // 2]])
    left = right - 1
    own, permitted = queries.own, queries.permitted
    indptr, excluded = queries.excluded_indptr, queries.excluded_indices
    start_tiles(isa, items.isa_state)
    while True:
        p, gap = _next_panel(left, right, least, largest, firsts, lasts)
        if p < 0 or gap > reach.max() + _ROUNDING * (largest + lasts[p]):
            break
        if p == left:
            left -= 1
        else:
            right += 1
        for q in range(n_panels):
            if not _thresholds(reach[q], norms[q], units[q], firsts[p], lasts[p], block.lanes[q]):
                continue
            score_panel(
                isa, items.codes, p * PANEL * items.stride, items.stride, block.packed,
                q * block.size, shape[2], items.starts, p * PANEL, block.scores,
            )  # fmt: skip
            n_hits = passing(
                block.scores, block.lanes, q * 4 * PANEL, items.statistics, p,
                items.order.shape[0] - p * PANEL, block.hits,
            )  # fmt: skip
            for at in range(n_hits):
                hit = block.hits[at]
                i, column = q * PANEL + (hit & 31), items.order[p * PANEL + (hit >> 5)]
                query = batch[lo + i]
                if not may_find(column, query, own, permitted, indptr, excluded):
                    continue
                waiting[i, counts[i]] = column
                counts[i] += 1
                if counts[i] == capacity:
                    runs[i], reach[q, i & 31] = _flush(
                        query, queries, items, waiting[i], capacity, runs[i], run_keys[i],
                        run_columns[i], merged,
                    )  # fmt: skip
                    counts[i] = 0
    end_tiles(isa)
    for i in range(n):
        query = batch[lo + i]
        run, _ = _flush(
            query, queries, items, waiting[i], counts[i], runs[i], run_keys[i], run_columns[i],
            merged,
        )  # fmt: skip
        write_run(run_keys[i], run_columns[i], run, keys[query], columns[query])

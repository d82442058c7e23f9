"""The filter for few queries: each is compared by itself, with all items of a run of panels.

A tile of 32 queries of which few are in use wastes most of its comparisons. A run is as large as a
tile, one query and up to 32 panels, so that its hits and scores fit the same buffers.
"""

import numpy as np

from .jit import borrowing_kernel, inlined_kernel
from .projection_filter import find_run_by_projection
from .simd.hits import list_reaching
from .simd.panel import GROUP, PANEL
from .simd.tile_scores import score_run, score_run_by_item
from .tiles import least_score

# The words of the items of a run of several queries: one panel of 128 columns. While the queries
# read it one after the other, the next panel is fetched. Compared with runs of 4 panels, four
# queries are 1.3 times as fast among 1,000,000 x 128 rows, and take 1.08 times as long among
# 40,000 x 128 rows (Zen 4).
_WORDS_OF_RUN = 1 << 10


@borrowing_kernel
def panels_of_run(items, block):
    """Panels of a run, at most 32."""
    if block.used == 1:
        return PANEL
    return max(1, min(PANEL, _WORDS_OF_RUN // (PANEL * items.words)))


@inlined_kernel
def score_run_of(isa, first, step, count, i, items, block):
    """Score query i with every step-th panel from `first` on, to block.scores and block.largest."""
    start, step = first * block.size, step * block.size
    if items.projection.words > 0:
        score_run_by_item(
            isa, items.packed, start, step, count, items.words, block.projected.codes,
            i * items.words, block.starts[i], block.scores, block.largest,
        )  # fmt: skip
        return
    score_run(
        isa, items.packed, start, step, count, items.words, block.spread, i * GROUP * items.words,
        block.starts[i], block.scores, block.largest,
    )  # fmt: skip


@inlined_kernel
def find_run(isa, first, step, count, i, items, block):
    """Find what may reach the threshold of query i in every step-th panel from `first` on.

    Returns how many there are. An entry of block.hits is 32 times the panel's place in the run plus
    the item's place in the panel; block.scores of hits are by all codes.
    """
    n_items = items.order.shape[0]
    if items.projection.words > 0 and not block.projected.is_dense[0]:
        return find_run_by_projection(
            isa, first, step, count, i, n_items, items.packed, items.words, items.statistics,
            items.projection, block,
        )  # fmt: skip
    score_run_of(isa, first, step, count, i, items, block)
    return list_scored(first, step, count, i, items, block)


@inlined_kernel
def list_scored(first, step, count, i, items, block):
    """Do as find_run for a run that score_run_of has just scored."""
    return _list_hits(
        first, step, count, i, items.order.shape[0], items.statistics, block.lanes[0],
        block.scores, block.largest, block.hits,
    )  # fmt: skip


@inlined_kernel
def _list_hits(first, step, count, i, n_items, statistics, lanes, scores, largest, hits):
    n_hits = 0
    for run in range(count):
        p = first + run * step
        least = least_score(lanes, i, statistics, p)
        if np.float32(largest[run]) < least:
            continue
        n_hits += list_reaching(scores, run * PANEL, least, n_items - p * PANEL, hits, n_hits)
    return n_hits

"""First level of the candidate filter, which drops most pairs by their projected codes.

Rows of embeddings have most of their length in few directions. The codes of the coordinates along p
axes (kernels.projection) are multiplied first, and these projected codes suffice to drop most
pairs. The full codes are multiplied only for the remaining pairs (kernels.candidate_filter).

Bound, in the notation of kernels.candidate_filter. V (d, p) has nearly orthonormal columns, with
|V'V - I| <= eps. The coordinates u = V'b' and w = V'a' have rounding errors of at most rho |b'| and
rho |a'|. Let g = b' - V u and h = a' - V w be the remainders. Then

    <a', b'> = <V w, V u> + <V w, g> + <h, V u> + <h, g>,
    <V w, V u> <= <w, u> + eps |w| |u|,
    <V w, g> = <w, V'b' - u - (V'V - I) u> <= |w| (rho |b'| + eps |u|), and so <h, V u>,
    |g|^2 = |b'|^2 - |u|^2 - 2 <V'b' - u, u> + <(V'V - I) u, u>
         <= |b'|^2 - |u|^2 + 2 rho |b'| |u| + eps |u|^2 = r^2, and |h| <= t alike.

Here t bounds |h| as r bounds |g|. Apart from rho, |u| <= (1 + eps) |b'| and |w| <= (1 + eps) |a'|,
so <a', b'> <= <w, u> + t r + ETA |a'| |b'| with ETA >= 1.1 (1 + eps)^2 (3 eps + 2 rho). The product
<w, u> is bounded as in kernels.candidate_filter, by w = s q + e and u = t' c + f, with |e| |u| <=
(1 + ETA) |e| |b'|. So an item can have K >= tau only if, in units of the scale s of w, with r of
the item and the largest value R of |f| in its panel,

    v >= (tau - t / s r - ((1 + ETA) |e| + (SLACK + ETA) |a'|) / s N - |s q| / s R - W / s) / t'.

The bound holds for any V. The bound drops many pairs if rows have most of their length along the
columns of V (search.projection).

If the queries are unlike the items, the projected codes drop few pairs, and are then no longer
used.
"""

import numpy as np

from .candidate_filter import reaching_score
from .jit import borrowing_kernel, inlined_kernel
from .simd.hits import passing_by_projection
from .simd.instruction_sets import has_tile_registers
from .simd.memory import prefetch_row
from .simd.panel import CODE_NORM, OFFSET_WEIGHT, PANEL, RESIDUAL_NORM, THRESHOLD
from .simd.tile_scores import score_item, score_panel

# A tile of 32 items and 32 queries takes _TILE cycles per word (64 multiply-adds) and _TILE_BESIDES
# further cycles.
_TILE, _TILE_BESIDES = 64, 350
# Scoring one pair outside a tile and entering it in the list of hits takes _PAIR cycles, and one
# further cycle for every _PAIR_WORDS words of a packed row. We measured 85 to 110 cycles per pair
# on Zen 4, in searches with k = 10 and 100 of rows of 384 to 1,536 columns.
_PAIR, _PAIR_WORDS = 80, 8
# After this many panels, a query may stop using projected codes. For a query that is unlike the
# items, all items of these panels have been scored one by one by then, at the cost of _PAIR for
# each item.
PANELS_TRIED = 8


@borrowing_kernel
def _durations(used, words):
    """Return the cycles of a tile per word, and the cycles of scoring one pair by itself."""
    return _TILE if used > PANEL // 2 else _TILE // 2, _PAIR + words // _PAIR_WORDS


@borrowing_kernel
def abandon_costly_projections(factor, items, block):
    """Stop using projected codes for the panels of queries whose tiles so far had too many hits.

    The tiles so far had `factor` times as many hits as the tiles that follow are expected to have.
    """
    projected, words = block.projected, items.words
    for q in range(projected.is_dense.shape[0]):
        if projected.is_dense[q]:
            continue
        used, saved_words = min(block.used - q * PANEL, PANEL), words - items.projection.words
        tiles, hits = projected.counts[q, 0], projected.counts[q, 1]
        tile, pair = _durations(used, words)
        saved = tile * saved_words - _TILE_BESIDES
        projected.is_dense[q] = hits * pair > factor * tiles * saved


@borrowing_kernel
def fetch_item(isa, packed, start, item, words):
    """Prefetch the codes of an item of the panel that starts at packed[start]."""
    if not has_tile_registers(isa):
        prefetch_row(packed, start + item * words, words)
        return
    for step in range(0, words, 16):
        prefetch_row(packed, start + step * PANEL + item * 16, 16)


@inlined_kernel
def find_hits_by_projection(isa, p, q, items, block):
    """Write the pairs of a tile that may reach their query's threshold to block.hits.

    The function returns the number of these pairs, or -1 if there are no projected codes, or if
    multiplying the full codes of the tile takes less time. The hits have the form that `passing`
    writes, and block.scores holds the scores of the hits by their full codes.
    """
    if items.projection.words == 0 or block.projected.is_dense[q]:
        return -1
    return _find_hits(
        isa, p, q, items.order.shape[0] - p * PANEL, items.packed, items.words, items.statistics,
        items.projection, block,
    )  # fmt: skip


@borrowing_kernel
def _find_hits(isa, p, q, n_items, packed, words, statistics, projection, block):
    """Find hits by projected codes, and keep those hits that are also hits by their full codes."""
    projected, size = block.projected, PANEL * projection.words
    used = min(block.used - q * PANEL, PANEL)
    score_panel(
        isa, projection.packed, p * size, projected.packed, q * size, projection.words,
        projected.starts, q * PANEL, used, block.scores,
    )  # fmt: skip
    n_hits = passing_by_projection(
        block.scores, block.lanes, q * 4 * PANEL, projected.lanes, q * 5 * PANEL,
        projection.statistics, p, n_items, projection.rest_norms, block.hits,
    )  # fmt: skip
    projected.counts[q, 0] += 1
    projected.counts[q, 1] += n_hits
    tile, pair = _durations(used, words)
    if n_hits * pair > tile * words:
        return -1
    if n_hits == 0:
        return 0
    least, n_passing, lanes = projected.least, 0, block.lanes[q]
    for i in range(PANEL):
        least[i] = reaching_score(
            lanes[THRESHOLD, i], lanes[RESIDUAL_NORM, i], lanes[CODE_NORM, i],
            lanes[OFFSET_WEIGHT, i], statistics, p,
        )  # fmt: skip
    n_panels = block.lanes.shape[0]
    if projected.counts[q, 1] * n_panels >= PANEL * projected.counts[q, 0]:
        # Nearly every item is a hit of at least one query. Each tile prefetches a part of the next
        # panel, because prefetched codes of the current panel would come too late. A search of
        # 60,000 rows of 768 columns with k = 10 is 1.07 times as fast with this prefetch.
        share = block.size // n_panels
        prefetch_row(packed, (p + 1) * block.size + q * share, share)
    elif q == 0:  # the other panels of queries have hits with the same items
        for at in range(n_hits):
            fetch_item(isa, packed, p * block.size, np.int64(block.hits[at] >> 5), words)
    for at in range(n_hits):
        hit = block.hits[at]
        lane = hit & 31
        query = q * PANEL + lane
        score = score_item(
            isa, packed, p * block.size, hit >> 5, words, projected.codes, query * words,
            block.starts[query],
        )  # fmt: skip
        block.scores[hit] = score
        block.hits[n_passing] = hit
        n_passing += np.float32(score) >= least[lane]
    return n_passing

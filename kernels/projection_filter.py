"""The first level of the candidate filter, which drops most pairs by their projected codes.

Most of the norm of an embedding lies in few directions. The search therefore computes the
coordinates of each row along p axes (``projection``). The codes of these coordinates are called
projected codes. They are multiplied first, and suffice to drop most pairs. The full codes are
multiplied only for the remaining pairs (``candidate_filter``).

Bound. As in ``candidate_filter``, a' is the scaled query, b' is the scaled item, K is the score,
and tau is a threshold. The axes are the columns of V (d, p), which are nearly orthonormal: |V'V -
I| ≤ eps. Let u be the computed value of V'b', with a rounding error of at most rho |b'|, and let w
be the computed value of V'a', with a rounding error of at most rho |a'|. Let g = b' - V u and h =
a' - V w be the remainders. Then

    a' · b' = (V w) · (V u) + (V w) · g + h · (V u) + h · g,
    (V w) · (V u) ≤ w · u + eps |w| |u|,
    (V w) · g = w · (V'b' - u - (V'V - I) u) ≤ |w| (rho |b'| + eps |u|), and likewise for h · (V u),
    |g|^2 = |b'|^2 - |u|^2 - 2 (V'b' - u) · u + ((V'V - I) u) · u
         ≤ |b'|^2 - |u|^2 + 2 rho |b'| |u| + eps |u|^2 = r^2, and likewise |h| ≤ t.

Here r is an upper bound on the remainder norm |g|, and t is the corresponding bound on |h|. Apart
from the rounding errors that rho bounds, |u| is at most (1 + eps) |b'|, and |w| is at most
(1 + eps) |a'|. Therefore,

    a' · b' ≤ w · u + t r + ETA |a'| |b'|  with ETA ≥ 1.1 (1 + eps)^2 (3 eps + 2 rho).

The coordinates are quantised: w = s q + e and u = t' c + f. The product w · u is then bounded as in
``candidate_filter``. In this bound, |e| |u| is at most (1 + ETA) |e| |b'|. Let v = q · c be the
product of the projected codes. Let R be the largest residual norm |f| in the panel of the item. N
and W are defined in ``candidate_filter``. An item can have K ≥ tau only if

    v ≥ (tau - t r - ((1 + ETA) |e| + (SLACK + ETA) |a'|) N - |s q| R - W) / (s t').

The bound holds for any V with nearly orthonormal columns. The bound drops many pairs if most of the
norm of each row lies along the columns of V. The module ``fastcos.search.projection`` chooses V.

If the queries are unlike the items, the projected codes drop few pairs, and the search stops using
projected codes.
"""

import numpy as np

from .candidate_filter import product_below
from .jit import borrowing_kernel, inlined_kernel
from .simd.hits import list_tile_hits_by_projection
from .simd.instruction_sets import has_tile_registers
from .simd.memory import prefetch_row
from .simd.panel import (
    CODE_NORM,
    N_BOUND_TERMS,
    N_PROJECTED_TERMS,
    OFFSET_WEIGHT,
    PANEL,
    THRESHOLD,
    UNREFINED_RESIDUAL_NORM,
)
from .simd.tile_scores import multiply_item, score_panel

# A tile compares 32 items with 32 queries. Computing it takes _CYCLES_PER_TILE cycles, plus
# _CYCLES_PER_TILE_WORD cycles for each word of a packed row. Each word takes 4,096 multiply-adds
# per tile, and the CPU performs 64 multiply-adds per cycle.
_CYCLES_PER_TILE_WORD, _CYCLES_PER_TILE = 64, 350
# Scoring one pair outside a tile, and entering the pair in the list of hits, takes at least
# _CYCLES_PER_PAIR cycles. In addition, it takes one cycle for every _PAIR_WORDS_PER_CYCLE words of
# a packed row. We measured 85 to 110 cycles per pair on Zen 4, in searches for 10 and 100
# neighbours among rows of 384 to 1,536 columns.
_CYCLES_PER_PAIR, _PAIR_WORDS_PER_CYCLE = 80, 8
# After this many panels, a query may stop using projected codes. If the query is unlike the items,
# nearly all items of these panels are scored one by one. Each of these items then takes
# _CYCLES_PER_PAIR cycles.
PANELS_TRIED = 8


@borrowing_kernel
def _durations(n_queries, words):
    """Return the costs, in CPU cycles, of one word in a tile and of one pair outside a tile."""
    cycles = _CYCLES_PER_TILE_WORD if n_queries > PANEL // 2 else _CYCLES_PER_TILE_WORD // 2
    return cycles, _CYCLES_PER_PAIR + words // _PAIR_WORDS_PER_CYCLE


@borrowing_kernel
def abandon_costly_projections(factor, items, block):
    """Stop using projected codes for those panels of queries whose tiles had too many hits.

    To estimate the number of hits per later tile, the kernel divides the number of hits per tile so
    far by `factor`.
    """
    projected, words = block.projected, items.words
    for q in range(projected.uses_full_codes.shape[0]):
        if projected.uses_full_codes[q]:
            continue
        n_queries = min(block.n_queries - q * PANEL, PANEL)
        saved_words = words - items.projection.words
        n_tiles, n_hits = projected.tile_counts[q], projected.hit_counts[q]
        cycles_per_word, cycles_per_pair = _durations(n_queries, words)
        saved_cycles = cycles_per_word * saved_words - _CYCLES_PER_TILE
        projected.uses_full_codes[q] = n_hits * cycles_per_pair > factor * n_tiles * saved_cycles


@borrowing_kernel
def fetch_item(isa, packed, start, item, words):
    """Prefetch the full codes of one item of the panel that begins at packed[start]."""
    if not has_tile_registers(isa):
        prefetch_row(packed, start + item * words, words)
        return
    for step in range(0, words, 16):
        prefetch_row(packed, start + step * PANEL + item * 16, 16)


@inlined_kernel
def find_hits_by_projection(isa, p, q, items, block):
    """Write the hits of item panel p with query panel q to block.hits.

    The hits are the pairs that may reach the threshold of their query. The function returns the
    number of hits. The function returns -1 if there are no projected codes, or if multiplying the
    full codes of the tile takes less time. The hits have the format of ``list_tile_hits``, and
    block.scores receives the products of the full codes of the hits.
    """
    if items.projection.words == 0 or block.projected.uses_full_codes[q]:
        return -1
    return _find_hits(
        isa, p, q, items.row_of_slot.shape[0] - p * PANEL, items.packed, items.words,
        items.statistics, items.projection, block,
    )  # fmt: skip


@borrowing_kernel
def _find_hits(isa, p, q, n_items, packed, words, statistics, projection, block):
    """Find the hits of a tile by projected codes; keep the hits that the full codes confirm."""
    projected, size = block.projected, PANEL * projection.words
    n_queries = min(block.n_queries - q * PANEL, PANEL)
    score_panel(
        isa, projection.packed, p * size, projected.packed, q * size, projection.words,
        projected.corrections, q * PANEL, n_queries, block.scores,
    )  # fmt: skip
    n_hits = list_tile_hits_by_projection(
        block.scores, block.bound_terms, q * N_BOUND_TERMS * PANEL, projected.bound_terms,
        q * N_PROJECTED_TERMS * PANEL, projection.statistics, p, n_items,
        projection.remainder_norms, block.hits,
    )  # fmt: skip
    projected.tile_counts[q] += 1
    projected.hit_counts[q] += n_hits
    cycles_per_word, cycles_per_pair = _durations(n_queries, words)
    if n_hits * cycles_per_pair > cycles_per_word * words:
        return -1
    if n_hits == 0:
        return 0
    min_products, n_reaching, bound_terms = projected.min_products, 0, block.bound_terms[q]
    for i in range(PANEL):
        min_products[i] = product_below(
            bound_terms[THRESHOLD, i], bound_terms[UNREFINED_RESIDUAL_NORM, i],
            bound_terms[CODE_NORM, i], bound_terms[OFFSET_WEIGHT, i], statistics, p,
        )  # fmt: skip
    n_panels = block.bound_terms.shape[0]
    if projected.hit_counts[q] * n_panels >= PANEL * projected.tile_counts[q]:
        # In this branch, nearly every item is a hit of at least one query. If the codes of the
        # current panel were prefetched here, they would arrive too late. Each tile therefore
        # prefetches a part of the next panel. A search of 60,000 rows of 768 columns with k = 10 is
        # 1.07 times as fast with this prefetch.
        share = block.size // n_panels
        prefetch_row(packed, (p + 1) * block.size + q * share, share)
    # Only the first panel of queries prefetches, because later panels hit the same items.
    elif q == 0:
        for at in range(n_hits):
            fetch_item(isa, packed, p * block.size, np.int64(block.hits[at] >> 5), words)
    for at in range(n_hits):
        hit = block.hits[at]
        query_in_panel = hit & 31
        query = q * PANEL + query_in_panel
        product = multiply_item(
            isa, packed, p * block.size, hit >> 5, words, projected.codes, query * words,
            block.corrections[query],
        )  # fmt: skip
        block.scores[hit] = product
        block.hits[n_reaching] = hit
        n_reaching += np.float32(product) >= min_products[query_in_panel]
    return n_reaching

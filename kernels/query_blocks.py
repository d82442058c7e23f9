"""Blocks of queries, whose panels are compared with panels of items in tiles.

A panel consists of 32 queries or 32 items, and a tile consists of the 32 x 32 scores of a panel of
items with a panel of queries. ``find_hits`` computes a tile and lists its hits, which are the pairs
that may reach the threshold of their query. A hit is stored as the number 32 i + j. Here i is the
position of the item in its panel, and j is the position of the query in its panel.
``candidate_filter`` proves that only hits can reach the threshold of their query.

Refinement. With AVX2, products are added in int16. To prevent an overflow, the codes of queries
must be small numbers, and are therefore coarse. With such coarse codes, a tile has several times as
many hits as with finer codes. The codes of a query, multiplied by the step, approximate the query,
and the *remainder* is the query minus this approximation. The remainder is quantised, too, so it
has codes of its own. For each hit, the codes of the remainder are multiplied by the codes of the
item. This product makes the score of the hit more precise. The hit is dropped if its refined score
does not reach the threshold. In the notation of ``candidate_filter``, a' = s q + e, where e is the
remainder. The remainder is quantised as e = s' q' + e', where the codes q' are at most 63 in
magnitude. The number (s' / s) (q' · c) is computed in float32, and rounded to the nearest integer
r. The refined score is v + r, and

    a' · b' = s t (v + (s' / s) (q' · c)) + e' · b' + (s q + s' q') · f.

- |s q + s' q'| ≤ |a'| + |e'| ≤ |a'| + |e|, so the bound term CODE_NORM also bounds the last term.
- r differs from (s' / s) (q' · c) by less than 2. Rows have at most 65,000 columns, so |r| is at
  most 65,000 * 127 / 2 = 4.1e6. Three roundings to float32 therefore change r by at most 0.74.
  Rounding to an integer changes r by at most 0.5. Let x be the largest entry of a panel of items.
  The step t of the panel is x / 127. Because x is at most N, t is at most N / 127. If a panel has
  only zero codes, r is 0. The difference therefore changes the product by at most (2 / 127) s N.
  The bound term RESIDUAL_NORM contains 2 / 126 in addition to |e'| / s.
- The remainder e is computed in float32, with an error of at most 2^-24 (|s q| + |e|), which SLACK
  covers.

In int16, a sum of two products is at most 2 * 255 * 63 = 32,130. The sum is converted to int32
before further products are added.

In this file, p is the index of a panel of items, and q is the index of a panel of queries.
"""

from typing import Any, NamedTuple

import numpy as np

from .candidate_filter import NEVER, product_below, set_bound_terms
from .jit import borrowing_kernel, inlined_kernel, kernel, relaxed_kernel
from .packing import LANES, SLACK, is_by_item, padded_width
from .projection import pack_projected_queries
from .projection_filter import find_hits_by_projection
from .query_encoding import encode_remainder, pack_query
from .simd.hits import largest_scores, list_tile_hits
from .simd.instruction_sets import int16_words
from .simd.panel import (
    CODE_NORM,
    GROUP,
    INVERSE_STEP,
    MAX_OFFSET,
    MIN_OFFSET,
    N_BOUND_TERMS,
    OFFSET_WEIGHT,
    PANEL,
    RESIDUAL_NORM,
    THRESHOLD,
)
from .simd.tile_scores import multiply_group, multiply_item, score_panel, score_panel_by_item
from .tiles import aligned_empty

# The rounding error of a refined score is less than two units. One unit is the step of the query
# times the step of the panel. The step of the panel is at most 1 / 127 of the largest norm of an
# item.
_ROUNDING_OF_REFINED = np.float32(2.0 / 126.0)


class Remainders(NamedTuple):
    """The codes of the remainders of the queries; the arrays are empty if hits are not refined.

    Attributes
    ----------
    codes : int32 array (32 panels * words,)
        The codes of the remainders, one query after the other, 4 codes per word.
    corrections : int32 array (32 panels,)
        For each query, the number that is added to every product of its remainder's codes with the
        codes of an item.
    ratios : float32 array (32 panels,)
        For each query, the ratio of the remainder's step to the query's step.
    """

    codes: Any
    corrections: Any
    ratios: Any


class Block(NamedTuple):
    """A block of packed queries, and the buffers of its tiles.

    Attributes
    ----------
    packed : array (panels * size,)
        The queries in panels, in the layout that ``simd.panel`` describes.
    size : int
        The number of words of a panel.
    n_queries : int
        The number of queries. If the number of queries is not a multiple of 32, the last panel
        contains padding.
    bound_terms : float32 array (panels, 5, 32)
        The bound terms of each panel of queries. Module ``simd.panel`` describes the five rows of
        each panel of bound terms.
    steps : float32 array (panels, 32)
        The quantisation step of each query.
    corrections : int32 array (32 panels,)
        For each query, the number that is added to the products of its codes (``tile_scores``).
    remainders : Remainders
        The remainders of the queries.
    scores, hits : arrays (1024,)
        The scores and the hits of the current tile.
    products : int32 array (8,)
        A buffer of refine_hits.
    projected : ProjectedQueries
        The projected codes of the queries.
    """

    packed: Any
    size: Any
    n_queries: Any
    bound_terms: Any
    steps: Any
    corrections: Any
    remainders: Any
    scores: Any
    hits: Any
    products: Any
    projected: Any


@kernel
def _empty_remainders(n_panels, items):
    """Return Remainders of zero codes; they are empty if hits are not refined."""
    n = n_panels * PANEL if int16_words(items.isa) > 0 else 0
    remainders = Remainders(
        np.empty(n * items.words, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    )
    remainders.codes[:], remainders.corrections[:], remainders.ratios[:] = 0, 0, np.float32(1.0)
    return remainders


@kernel
def pack_block(lo, hi, batch, queries, items, n_projected):
    """Return a Block of the queries batch[lo:hi], with thresholds that all scores reach.

    If the items have a projection, the first n_projected panels of queries are projected. The
    buffer for the scores of a tile has the type of packed rows. The thresholds of padding queries
    are so high that no score reaches them.
    """
    isa, scaling = items.isa, queries.scaling
    n_panels = (hi - lo + PANEL - 1) // PANEL
    size = PANEL * items.words
    packed = aligned_empty(n_panels * size, items.packed)
    packed[:] = 0
    bound_terms = aligned_empty(n_panels * N_BOUND_TERMS * PANEL, np.empty(0, np.float32)).reshape(
        n_panels, N_BOUND_TERMS, PANEL
    )
    bound_terms[:] = np.float32(0.0)
    bound_terms[:, THRESHOLD] = NEVER
    steps = np.empty((n_panels, PANEL), np.float32)
    corrections = np.empty(n_panels * PANEL, np.int32)
    steps[:], corrections[:] = np.float32(1.0), 0
    remainders = _empty_remainders(n_panels, items)
    width = padded_width(max(queries.rows.n_columns, LANES))
    buffer, codes = np.empty(width, np.float32), np.empty(width, np.int8)
    measured = np.empty(2, np.float32)
    for i in range(hi - lo):
        q, j, query = i // PANEL, i % PANEL, batch[lo + i]
        step, norm, residual, correction = pack_query(
            isa, queries.rows, query, scaling.factors[query], scaling.coefficients[query],
            items.shift, items.signs, items.words, j, packed[q * size : (q + 1) * size], buffer,
            codes, measured,
        )  # fmt: skip
        residual += np.float32(queries.tile_error) * norm
        steps[q, j], corrections[i] = step, correction
        set_bound_terms(bound_terms[q], j, step, norm, residual, scaling.weights[query])
        if int16_words(isa) > 0:
            _store_remainder(
                i, step, norm, items.words, buffer, codes, measured, remainders, bound_terms[q]
            )
    scores, hits = aligned_empty(PANEL * PANEL, items.packed), np.empty(PANEL * PANEL, np.int32)
    scores[:] = 0
    projected = pack_projected_queries(
        lo, hi, batch, queries, items, n_projected, packed, bound_terms, steps
    )
    return Block(
        packed, size, hi - lo, bound_terms, steps, corrections, remainders, scores, hits,
        np.empty(GROUP, np.int32), projected,
    )  # fmt: skip


@borrowing_kernel
def _store_remainder(i, step, norm, words, buffer, codes, measured, remainders, bound_terms):
    """Encode the remainder of query i, and set the bound term RESIDUAL_NORM of the query.

    `step` and `norm` are results of ``query_encoding.encode_query``, and `buffer` and `codes` are
    the arrays that it has filled. `buffer` and `codes` are overwritten. The error ``tile_error`` of
    float32 tiles is 0 for codes, so the bound term does not contain it.
    """
    remainder_step, residual, correction = encode_remainder(step, buffer, codes, measured)
    remainders.corrections[i], remainders.ratios[i] = correction, remainder_step / step
    row_words = codes.view(np.int32)
    for k in range(words):
        word = row_words[k] if k < row_words.shape[0] else np.int32(0)
        remainders.codes[i * words + k] = word
    bound_terms[RESIDUAL_NORM, i % PANEL] = (residual + SLACK * norm) / step + _ROUNDING_OF_REFINED


@inlined_kernel
def score_tile(isa, p, q, items, block):
    """Write the scores of item panel p with query panel q to block.scores."""
    n_queries = min(block.n_queries - q * PANEL, PANEL)
    if is_by_item(isa, items.words, items.projection.words > 0):
        score_panel_by_item(
            isa, items.packed, p * block.size, block.packed, q * block.size, items.words,
            block.corrections, q * PANEL, n_queries, block.scores,
        )  # fmt: skip
        return
    score_panel(
        isa, items.packed, p * block.size, block.packed, q * block.size, items.words,
        block.corrections, q * PANEL, n_queries, block.scores,
    )  # fmt: skip
    if items.scaling.shape[0] > 0:
        _scale_tile(p, block.bound_terms[q, OFFSET_WEIGHT], items.scaling, block.scores)


@inlined_kernel
def find_hits(isa, p, q, items, block):
    """Write the hits of item panel p with query panel q to block.hits.

    The hits are the pairs whose scores may reach the threshold of their query. The function returns
    the number of hits. The scores of the hits are computed from full codes and then refined (see
    the docstring of this module). The refined scores are written to block.scores.
    """
    n_hits = find_hits_by_projection(isa, p, q, items, block)
    if n_hits < 0:
        score_tile(isa, p, q, items, block)
        n_hits = list_hits(p, q, items, block)
    return keep_refined_hits(p, q, n_hits, items, block)


@inlined_kernel
def keep_refined_hits(p, q, n_hits, items, block):
    """Refine the scores of the n_hits hits of a tile; drop those below the threshold.

    The function returns the number of remaining hits. If hits are not refined, all hits remain.
    """
    if int16_words(items.isa) == 0 or n_hits == 0:
        return n_hits
    refine_hits(p, q, n_hits, items, block)
    return _keep_reaching(p, n_hits, items.statistics, block.bound_terms[q], block)


@borrowing_kernel
def refine_hits(p, q, n_hits, items, block):
    """For each hit, add the product of the item and the query's remainder to the score."""
    isa, words, remainders = items.isa, items.words, block.remainders
    products, last = block.products, -1
    by_item = is_by_item(isa, words, items.projection.words > 0)
    for at in range(n_hits):
        hit = np.int64(block.hits[at])
        item, query = hit >> 5, q * PANEL + (hit & 31)
        if by_item:
            product = multiply_item(
                isa, items.packed, p * block.size, item, words, remainders.codes, query * words,
                remainders.corrections[query],
            )  # fmt: skip
        else:
            # The codes of 8 items are stored together, and multiplied together. The hits are
            # ordered by query and item, so all hits of a query among these 8 items follow one
            # another. The products of the 8 items with the query are therefore computed only once.
            group = item // GROUP
            if last != query * GROUP + group:
                last = query * GROUP + group
                multiply_group(
                    isa, items.packed, p * block.size + group * GROUP * words, words,
                    remainders.codes, query * words, remainders.corrections[query], products,
                )  # fmt: skip
            product = products[item % GROUP]
        block.scores[hit] += np.int32(round(np.float32(product) * remainders.ratios[query]))


@borrowing_kernel
def _keep_reaching(p, n_hits, statistics, bound_terms, block):
    """Keep the hits whose refined scores reach the threshold; return the number of these hits."""
    n_reaching, last, min_product = 0, -1, np.float32(0.0)
    for at in range(n_hits):
        hit = block.hits[at]
        j = hit & 31
        if j != last:
            last = j
            min_product = product_below(
                bound_terms[THRESHOLD, j], bound_terms[RESIDUAL_NORM, j],
                bound_terms[CODE_NORM, j], bound_terms[OFFSET_WEIGHT, j], statistics, p,
            )  # fmt: skip
        block.hits[n_reaching] = hit
        n_reaching += np.float32(block.scores[hit]) >= min_product
    return n_reaching


@inlined_kernel
def list_hits(p, q, items, block):
    """Write the hits among the scores in block.scores to block.hits, and return their number."""
    return list_tile_hits(
        block.scores, block.bound_terms, q * N_BOUND_TERMS * PANEL, items.statistics, p,
        items.row_of_slot.shape[0] - p * PANEL, block.hits,
    )  # fmt: skip


@borrowing_kernel
def _scale_tile(p, weights, scaling, scores):
    """Scale the scores (32, 32) of a tile of unpacked rows, as Items.scaling describes.

    Each score is multiplied by the factor of its item. The product of the item's offset and the
    query's weight is rounded up and added to the score.
    """
    for i in range(PANEL):
        factor, offset = scaling[p * PANEL + i, 0], scaling[p * PANEL + i, 1]
        for j in range(PANEL):
            term = weights[j] * offset
            at = i * PANEL + j
            scores[at] = scores[at] * factor + (term + abs(term) * SLACK)


@relaxed_kernel
def _insert_scores(new_scores, best):
    """Insert one score per query into `best` (rank, 32), whose columns are in descending order.

    After a new score has been inserted into a column, the smallest score is dropped, so the length
    of the column does not change. `new_scores` (32,) is overwritten.
    """
    last = best.shape[0] - 1
    has_larger = False
    for j in range(PANEL):
        has_larger |= new_scores[j] > best[last, j]
    if has_larger:
        for r in range(last + 1):
            for j in range(PANEL):
                entry = best[r, j]
                larger = new_scores[j] > entry
                best[r, j] = new_scores[j] if larger else entry
                new_scores[j] = entry if larger else new_scores[j]


@borrowing_kernel
def rank_maxima(p, q, items, block, best, largest):
    """Insert each query's largest score in a tile into `best`, and raise the query's threshold.

    For each query, the array `best` (rank, 32) holds the `rank` largest scores so far, and the
    smallest of these scores becomes the threshold of the query. `largest` (32,) float32 is
    overwritten.
    """
    bound_terms = block.bound_terms[q]
    step = np.float32(1.0) / items.statistics[p, INVERSE_STEP]
    max_offset, min_offset = items.statistics[p, MAX_OFFSET], items.statistics[p, MIN_OFFSET]
    largest_scores(block.scores, largest)
    for j in range(PANEL):
        weight = bound_terms[OFFSET_WEIGHT, j]
        largest[j] = largest[j] * step + max(weight * max_offset, weight * min_offset)
    _insert_scores(largest, best)
    for j in range(PANEL):
        bound_terms[THRESHOLD, j] = max(bound_terms[THRESHOLD, j], best[-1, j])


@borrowing_kernel
def rank_hits(p, q, n_hits, items, block, best, largest):
    """Do the same as rank_maxima, but use only the scores of the n_hits hits of the tile."""
    bound_terms = block.bound_terms[q]
    step = np.float32(1.0) / items.statistics[p, INVERSE_STEP]
    max_offset, min_offset = items.statistics[p, MAX_OFFSET], items.statistics[p, MIN_OFFSET]
    largest[:] = -NEVER
    for at in range(n_hits):
        hit = block.hits[at]
        weight = bound_terms[OFFSET_WEIGHT, hit & 31]
        score = np.float32(block.scores[hit]) * step + max(weight * max_offset, weight * min_offset)
        largest[hit & 31] = max(largest[hit & 31], score)
    _insert_scores(largest, best)
    for j in range(PANEL):
        bound_terms[THRESHOLD, j] = max(bound_terms[THRESHOLD, j], best[-1, j])

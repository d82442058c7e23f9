"""Exact top-k of a few queries among items that have a projection.

The kernel follows the steps of ``few_queries``, but skips the full codes of most slots. In a sample
of the panels, all full codes are multiplied, and the largest score of each panel is computed. The
estimated threshold is the r-th largest of these scores, where r is the setting sample_rank. In the
panels outside the sample, the projected codes are multiplied first (``projection_filter``).
Projected codes give an upper bound on the score of each slot. The full codes are multiplied only
for the slots whose upper bounds reach the estimated threshold. At the end, the k-th best score
shows whether the estimated threshold was too high. If the estimated threshold was too high, the
query is compared with the full codes of all slots, so that no neighbour is lost.

If queries are unlike the items, the upper bounds of almost all slots reach the threshold. For
queries that are unlike the items, the kernel therefore stops using projected codes after a few
panels.
"""

import numpy as np

from .candidate_filter import NEVER, threshold_of
from .few_queries import (
    STATUS_NOT_ORDINARY,
    empty_buffers,
    encode_queries,
    find_best,
    kth_estimate,
    multiply_codes,
    repeated_words,
    score_reaching,
    write_best_rows,
)
from .jit import borrowing_kernel, inlined_kernel, kernel
from .projection import copy_codes, empty_projected_queries, project_panel
from .projection_filter import PANELS_TRIED, fetch_item
from .query_encoding import are_ordinary, with_norms_and_scaling
from .records import items_at, rows_of_query_bytes
from .simd.hits import list_panel_hits_by_projection
from .simd.instruction_sets import has_tile_registers, int16_words_of_run
from .simd.panel import PANEL, THRESHOLD
from .simd.tile_scores import multiply_item
from .tiles import numbers_below

# A slot is dropped if its projected codes show that it cannot reach the threshold. This placeholder
# is then stored instead of the product of the slot.
_DROPPED = np.int32(-(2**31))
# The full codes of a slot can be multiplied alone, or together with the other slots of its panel.
# The ratio of the two times is _COST_OF_SLOT + _COST_OF_QUERY * (number of queries): multiplying a
# slot alone takes longer. We measured this ratio on Zen 4.
_COST_OF_SLOT, _COST_OF_QUERY = 1.3, 0.16


@inlined_kernel
def projection_costs_more(n_hits, n_panels, n_queries, items):
    """Return whether searching n_panels panels would have been faster without projected codes.

    In these panels, the projected codes ruled out all slots except n_hits. The full codes of the
    n_hits slots were multiplied one slot at a time.
    """
    cost = items.words * (_COST_OF_SLOT + _COST_OF_QUERY * n_queries)
    return n_hits * cost > n_panels * PANEL * (items.words - items.projection.words)


@kernel
def project_few_queries(queries, items, codes):
    """Project a few queries; return their ProjectedQueries and the words of their projected codes.

    Each word of the projected codes is stored 8 times, except with AMX. If the queries are unlike
    the items, or if the items have no projection, the queries are not projected, and
    uses_full_codes[0] is 1.
    """
    n, words = queries.rows.data.shape[0], items.projection.words
    projected = empty_projected_queries(1, items)
    if words > 0:
        project_panel(
            0, 0, n, numbers_below(n), queries, items, codes.bound_terms, codes.steps,
            int16_words_of_run(items.isa), projected,
        )  # fmt: skip
    all_words = np.empty(n * words, np.int32)
    for i in range(n):
        copy_codes(items.isa, projected.packed, 0, i, words, all_words, i)
    if has_tile_registers(items.isa):
        return projected, all_words
    return projected, repeated_words(all_words)


@kernel
def search_few_by_projection(lo, hi, addresses, query_bytes, filters, settings, scores, rows):
    """Find the best k rows like ``search_few_queries``, but among items with a projection.

    The argument `settings` is a ProjectedSettings.
    """
    task, n, k = lo // settings.panels_per_range, query_bytes.shape[0], rows.shape[2]
    items = items_at(addresses)
    queries = with_norms_and_scaling(
        rows_of_query_bytes(query_bytes, items), filters, addresses, items.shift
    )
    if settings.check_norms and not are_ordinary(queries.norms):
        rows[task, 0, 0] = STATUS_NOT_ORDINARY
        return
    codes = encode_queries(queries, items)
    products = np.empty((n, (hi - lo) * PANEL), np.int32)
    largest_products = np.empty((n, hi - lo), np.int32)
    # This array holds one threshold for each query. If a product of a query is missing from
    # `products`, it is below the threshold of the query.
    dropped_below = np.empty(n, np.float32)
    dropped_below[:] = -NEVER
    buffers = empty_buffers(hi - lo, k)
    _multiply_by_projection(
        lo, hi, settings, queries, items, codes, products, largest_products, buffers, dropped_below
    )
    for i in range(n):
        n_best = np.int64(-1)
        if dropped_below[i] > -NEVER:
            n_best = _find_best_of_multiplied(
                i, lo, k, settings.first_rank, dropped_below[i], queries, items, codes, products[i],
                largest_products[i], buffers,
            )  # fmt: skip
            if n_best < 0:
                multiply_codes(lo, hi, lo, i, i + 1, items, codes, products, largest_products)
        if n_best < 0:
            n_best = find_best(
                i, lo, k, settings.first_rank, queries, items, codes, products[i],
                largest_products[i], buffers,
            )  # fmt: skip
        write_best_rows(n_best, buffers, scores[task, i], rows[task, i])


@borrowing_kernel
def _find_best_of_multiplied(
    i, lo, k, first_rank, dropped_below, queries, items, codes, products, largest_products, buffers
):
    """Do the work of ``find_best`` for a query i for which the products of some slots are missing.

    Every missing product is below the threshold `dropped_below`. The function returns -1 if a slot
    whose product is missing may be among the best k.
    """
    rank = min(first_rank, largest_products.shape[0])
    threshold = kth_estimate(i, lo, rank, dropped_below, items, codes, largest_products, buffers)
    n_best, kth_score = score_reaching(
        i, lo, k, threshold, NEVER, False, queries, items, codes, products, largest_products,
        buffers, 0, -np.inf,
    )  # fmt: skip
    if n_best < k:
        return -1
    proved = threshold_of(i, queries, kth_score, np.float32(1.0) / codes.steps[i])
    if not proved >= dropped_below:
        return -1
    n_best, _ = score_reaching(
        i, lo, k, proved, threshold, True, queries, items, codes, products, largest_products,
        buffers, n_best, kth_score,
    )  # fmt: skip
    return n_best


@kernel
def _multiply_by_projection(
    lo, hi, settings, queries, items, codes, products, largest_products, buffers, dropped_below
):
    """For each query, multiply the full codes of slots that may reach an estimated threshold.

    If the upper bound of a slot does not reach the threshold, the product of the slot becomes
    _DROPPED. The threshold of each query is written to dropped_below.
    """
    n, stride = queries.rows.data.shape[0], settings.sample_stride
    projected, projected_words = project_few_queries(queries, items, codes)
    if projected.uses_full_codes[0]:
        multiply_codes(lo, hi, lo, 0, n, items, codes, products, largest_products)
        return
    largest_products[:] = _DROPPED
    for panel in range(lo + stride // 2, hi, stride):
        for i in range(n):
            multiply_codes(panel, panel + 1, lo, i, i + 1, items, codes, products, largest_products)
    for i in range(n):
        _raise_threshold(i, lo, hi, settings.sample_rank, items, codes, largest_products, buffers)
    _search_other_panels(
        lo, hi, settings, items, codes, projected, projected_words, products, largest_products,
        buffers, dropped_below,
    )  # fmt: skip


@borrowing_kernel
def _raise_threshold(i, lo, hi, rank, items, codes, largest_products, buffers):
    """Raise the threshold of query i according to the largest scores of the panels.

    The largest score of each panel is estimated. The new threshold is the rank-th largest of these
    estimates or the present threshold, whichever is higher.
    """
    bound_terms = codes.bound_terms
    bound_terms[THRESHOLD, i] = kth_estimate(
        i, lo, min(rank, hi - lo), bound_terms[THRESHOLD, i], items, codes, largest_products[i],
        buffers,
    )  # fmt: skip


@borrowing_kernel
def _search_other_panels(
    lo, hi, settings, items, codes, projected, projected_words, products, largest_products, buffers,
    dropped_below,
):  # fmt: skip
    """In panels outside the sample, multiply the full codes of slots that may reach a threshold."""
    n, stride, raise_at = dropped_below.shape[0], settings.sample_stride, lo + ((hi - lo) >> 3)
    n_hits, n_tried, is_costly = 0, 0, False
    for panel in range(lo, hi):
        if (panel - lo) % stride == stride // 2:
            continue
        if panel == raise_at:
            # Each searched panel has a best score. The threshold is the r-th largest of these best
            # scores, so it rises as more panels are searched. A higher threshold drops more slots.
            # The threshold is therefore computed again whenever the number of searched panels has
            # doubled.
            for i in range(n):
                _raise_threshold(
                    i, lo, hi, settings.first_rank, items, codes, largest_products, buffers
                )
            raise_at = lo + 2 * (panel - lo)
        for i in range(n):
            if is_costly:
                multiply_codes(
                    panel, panel + 1, lo, i, i + 1, items, codes, products, largest_products
                )
            else:
                dropped_below[i] = codes.bound_terms[THRESHOLD, i]
                n_hits += multiply_reaching_slots(
                    panel, lo, i, items, codes, projected, projected_words, products,
                    largest_products, buffers.hits,
                )  # fmt: skip
                n_tried += 1
        # If the queries are unlike the items, the upper bounds of almost all slots reach the
        # threshold. Multiplying the full codes of whole panels is then faster.
        is_costly |= n_tried >= PANELS_TRIED and projection_costs_more(n_hits, n_tried, n, items)


@inlined_kernel
def multiply_reaching_slots(
    panel, lo, i, items, codes, projected, projected_words, products, largest_products, hits
):
    """Multiply the full codes of those slots of a panel whose upper bounds reach the threshold.

    If the upper bound of a slot does not reach the threshold, the product of the slot becomes
    _DROPPED. The array `products` begins with the products of panel lo. The array `hits` (32,)
    int32 is overwritten. The function returns the number of slots that reach the threshold of query
    i.
    """
    isa, words, projection = items.isa, items.words, items.projection
    n_hits = list_panel_hits_by_projection(
        isa, projection.packed, panel * PANEL * projection.words, projection.words, projected_words,
        i * (projected_words.shape[0] // codes.corrections.shape[0]), projected.corrections[i], i,
        codes.bound_terms, projected.bound_terms, projection.statistics, panel,
        items.row_of_slot.shape[0] - panel * PANEL, projection.remainder_norms, hits, 0,
    )  # fmt: skip
    start, first_product = panel * PANEL * words, (panel - lo) * PANEL
    for at in range(n_hits):
        fetch_item(isa, items.packed, start, np.int64(hits[at]), words)
    for slot in range(PANEL):
        products[i, first_product + slot] = _DROPPED
    largest = _DROPPED
    for at in range(n_hits):
        slot = np.int64(hits[at])
        product = multiply_item(
            isa, items.packed, start, slot, words, codes.words, i * words, codes.corrections[i]
        )
        products[i, first_product + slot] = product
        largest = max(largest, product)
    largest_products[i, panel - lo] = largest
    return n_hits

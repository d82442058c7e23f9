"""Candidate filter of the dense searches, which drops pairs that cannot reach a query's threshold.

Scaling. The query `a` is scaled to a row a' whose norm is at most about 1, and the item `b` is
scaled to a row b' of norm at most 1 (``query_encoding``). The score of the pair is an increasing
function of K = a' · b' + w o. Here o is the offset of the item, and w is the weight with which the
query multiplies offsets. If the score is the cosine and no shift is subtracted (see below), w o is
0, and K is the cosine itself. The threshold tau of a query is a lower bound on the k-th largest
value of K among the pairs of this query, or an estimate of this value. Searches that use an
estimate find out afterwards whether it was too high (``tile_top_k``, ``few_queries``).

Rotation. Before quantisation, both rows are multiplied by the same orthogonal matrix
(``packing.rotate_row``), which spreads a large entry over all columns and changes no inner product.
In the following, a' and b' stand for the rotated rows; the rounding errors of the rotation are part
of SLACK.

Bound. Both rows are quantised: a' = s q + e and b' = t c + f. The query has the quantisation step
s, the integer codes q and the residual e. The item has the quantisation step t, the integer codes c
and the residual f. A residual is what the codes omit. A kernel computes the integer product
v = q · c. By the inequality of Cauchy and Schwarz,

    a' · b' - s t v = e · b' + (s q) · f,
    |a' · b' - s t v| ≤ |e| |b'| + |s q| |f| + SLACK |a'| |b'|,

where SLACK (``packing.SLACK``) is a bound on the rounding errors, relative to the norms. So K
differs from s t v + w o by at most |e| |b'| + |s q| |f| + SLACK |a'| |b'|. Let N be the largest
norm |b'| in a panel of 32 items, R the largest norm |f| of a residual, and W the largest product
``w * o``. An item of the panel can have K ≥ tau only if v is at least the bound v_min:

    v ≥ v_min = (tau - (|e| + SLACK |a'|) N - |s q| R - W) / (s t).

The bound terms of a query (``simd.panel``) are tau, the factor of N, an upper bound on |s q|, and
the weight of the offsets, all divided by s; the code calls them THRESHOLD, RESIDUAL_NORM, CODE_NORM
and OFFSET_WEIGHT. The statistics of a panel are 1 / t, N, R and the range of the offsets; the code
calls the first three INVERSE_STEP, MAX_NORM and MAX_RESIDUAL. Most kernels compare v with v_min - 1
in float32 (``product_below``). Only the operation that lists the hits of a tile
(``simd.hits.list_tile_hits``) does not: with int8 codes, it compares v with an integer between
v_min - 2 and v_min, and in a tile of float32 numbers, it compares v with v_min itself.

Two kinds of searches compute v in another way. If tiles multiply float32 numbers instead of codes,
then s = t = 1 and R = 0, and |e| is |a'| times a bound on the relative rounding error of a float32
sum. With AVX2, searches for blocks of queries refine some of the products, so that |e| becomes
smaller (``query_blocks``). The bound terms therefore contain the factor of N twice: for products
that are refined, and for products that are not.

Rounding. SLACK also covers the rounding errors of v_min, of tau as a float32, and of float64
products. Other errors are treated separately. The rounding error of a squared distance may be |a| /
|b| times as large as that of an inner product, and a shift causes rounding errors, too; tau is
lowered by a bound on these errors (``score_rounding``). The rounding errors of w o are proportional
to |w o|; when items are packed, the extreme offsets of a panel are therefore moved apart by SLACK
times their magnitudes, which enlarges W. The rounding error of tau is proportional to |tau|. If
|tau| is at most twice |a'| |b'| + |w o|, SLACK covers this error; otherwise, K differs from tau by
much more than the error. Therefore, if a pair is dropped because of a threshold, the float64 score
of the pair is strictly below this threshold.

Shift. Rows of embeddings often share a common direction c, a row of norm 1. If the components of
the rows along c are subtracted before packing, a' and b' become shorter, and every term of the
bound becomes smaller. For unit rows, a = alpha c + a' and b = beta c + b' with alpha = a · c and
beta = b · c in float64, and

    a · b = a' · b' + alpha (beta - 1) + alpha.

So a · b is the sum of three terms. The first term a' · b' is the inner product of the shifted rows.
The second term is the product of the query's weight, alpha, and the item's offset, beta - 1. The
third term is alpha. Offsets and their weights may be positive or negative. The equation for a · b
leaves out the terms that contain a' · c, b' · c or |c|² - 1, all of which are 0 except for rounding
errors. The field `shift_error` of the queries, which ``fastcos.search.packing`` computes, is a
bound on the rounding errors that the shift causes.
"""

import numpy as np

from .jit import borrowing_kernel, inlined_kernel
from .packing import SLACK
from .simd.panel import (
    CODE_NORM,
    INVERSE_STEP,
    MAX_NORM,
    MAX_OFFSET,
    MAX_RESIDUAL,
    MIN_OFFSET,
    OFFSET_WEIGHT,
    RESIDUAL_NORM,
    THRESHOLD,
    UNREFINED_RESIDUAL_NORM,
)

# A threshold above every score. The threshold -NEVER is below every score.
NEVER = np.float32(3e38)
# A bound on the error that underflow causes in a float64 sum of up to 2^22 products.
_UNDERFLOW = 2.0**-1050


@inlined_kernel
def set_bound_terms(bound_terms, i, step, norm, residual, weight):
    """Set the bound terms of query i in a panel, with a threshold that every product reaches.

    `bound_terms` (5, 32) is described in ``simd.panel``. `step`, `norm` and `residual` are the
    first three results of ``query_encoding.encode_query``: the quantisation step of the query, and
    bounds on the norms of the query and of its residual. For this query, the offsets of items are
    multiplied by `weight`.
    """
    inverse_step = np.float32(1.0) / step
    bound_terms[THRESHOLD, i] = -NEVER
    bound_terms[RESIDUAL_NORM, i] = (residual + SLACK * norm) * inverse_step
    bound_terms[UNREFINED_RESIDUAL_NORM, i] = bound_terms[RESIDUAL_NORM, i]
    bound_terms[CODE_NORM, i] = (norm + residual) * inverse_step
    bound_terms[OFFSET_WEIGHT, i] = weight * inverse_step


@inlined_kernel
def product_below(threshold, residual_norm, code_norm, weight, statistics, panel):
    """Return a number: an item can reach a threshold only if its product is at least this number.

    An item of the panel can reach the threshold only if its product is at least v_min, which is
    defined at the top of this file. The result is v_min - 1, so that no rounding error excludes an
    item whose product is v_min. The first four arguments are bound terms of the query, which are
    divided by the quantisation step of the query; the threshold, too, must be divided by it. If
    residual_norm and code_norm are 0, the threshold is compared with an estimate of the score,
    which consists of the product and the weighted offset, instead of an upper bound. `statistics`
    (panels, 5) is described in ItemPanels. If rows have at most 1,024 columns, float32 represents
    the products of codes exactly. For longer rows, ``packing.SLACK`` covers the rounding errors of
    the products.
    """
    bound = threshold - residual_norm * statistics[panel, MAX_NORM]
    bound -= code_norm * statistics[panel, MAX_RESIDUAL]
    bound -= max(weight * statistics[panel, MAX_OFFSET], weight * statistics[panel, MIN_OFFSET])
    return bound * statistics[panel, INVERSE_STEP] - np.float32(1.0)


@borrowing_kernel
def estimate_panels(first, n_panels, largest_products, statistics, weight, panel_estimates):
    """In each of n_panels panels, estimate the largest K of the query and an item of the panel.

    The panels are those from number `first` on. The estimate for panel first + p is computed from
    largest_products[p] (int32), the largest product of this panel. Like the bound terms, the
    estimate is divided by the step of the query. It is written to panel_estimates[p] (float32).
    `weight` is the bound term OFFSET_WEIGHT of the query, by which the offsets of items are
    multiplied.
    """
    for p in range(n_panels):
        panel = first + p
        offset = max(weight * statistics[panel, MAX_OFFSET], weight * statistics[panel, MIN_OFFSET])
        panel_estimates[p] = (
            np.float32(largest_products[p]) / statistics[panel, INVERSE_STEP] + offset
        )


@borrowing_kernel
def threshold_of(query, queries, score, inverse_step):
    """Return the threshold tau that corresponds to a score of a query, as float32.

    The threshold is K for this score, less a bound on rounding errors. It is divided by the
    quantisation step of the query, like the other bound terms.
    """
    scaling = queries.scaling
    bound = scaling.slopes[query] * score + scaling.intercepts[query]
    # The result is at least -3e38 and never -inf, because infinity cannot be converted to an
    # integer.
    return np.float32(max((bound - score_rounding(query, queries)) * inverse_step, -3e38))


@borrowing_kernel
def score_rounding(query, queries):
    """Return a bound on those rounding errors of K that SLACK does not cover.

    The docstring of this module defines K, and lists these errors under "Rounding".
    """
    return (
        1e-12 * abs(queries.scaling.intercepts[query])
        + queries.scaling.slopes[query] * _UNDERFLOW
        + queries.shift_error
    )


@borrowing_kernel
def is_excluded(row, excluded_rows, first, last):
    """Return whether `row` is an entry of the sorted array excluded_rows[first:last]."""
    while first < last:
        middle = (first + last) >> 1
        if excluded_rows[middle] < row:
            first = middle + 1
        elif excluded_rows[middle] > row:
            last = middle
        else:
            return True
    return False


@borrowing_kernel
def passes_filters(row, query, filters):
    """Return whether an item is allowed in the results of a query.

    `filters` is a QueryFilters whose self_rows and excluded_indptr are not empty. The result is
    False in three cases: the item is the query itself, the item is excluded for the query, or the
    mask of allowed items is not empty and does not contain the item.
    """
    self_rows, allowed = filters.self_rows, filters.allowed
    if row == self_rows[query] or (allowed.shape[0] > 0 and allowed[row] == 0):
        return False
    first, last = filters.excluded_indptr[query], filters.excluded_indptr[query + 1]
    return first == last or not is_excluded(row, filters.excluded_rows, first, last)

"""Candidate filter of the dense searches, which drops pairs that cannot reach a query's threshold.

Bound. A query a is scaled to a' (norm about 1), an item b to b' (norm at most 1), and both are
quantised: a' = s q + e, b' = t c + f. The score is an increasing function of K = <a', b'> + w o,
with weight w of the query and offset o of the item. With the integer v = <q, c> of the tile,

    <a', b'> - s t v = <e, b'> + <s q, f>,
    |<a', b'> - s t v| <= |e| |b'| + |s q| |f| + SLACK |a'| |b'|   (Cauchy-Schwarz, packing.SLACK)

so K differs from s t v + w o by at most the right-hand side. In units of s, for a panel of 32 items
with largest norm N, largest residual R and largest value W of w o, an item can have K >= tau only
if

    v >= (tau - (|e| + SLACK |a'|) / s N - |s q| / s R - W / s) / t.

The tile compares v with the largest integer below this bound. In float32 tiles, s = t = 1, R = 0,
and |e| is the bound on the rounding of a float32 sum, relative to |a'|. SLACK also covers the
rounding of this expression, of tau to float32 and of float64 products. The rounding of a squared
distance may be larger by a factor |a| / |b|; score_rounding bounds it. tau and w o are rounded in
proportion to |tau| <= |a'| |b'| + |w o|, and W is enlarged by SLACK |w o|. Therefore a dropped pair
has a float64 score strictly below the threshold by which it was dropped.

Shift. Rows of embeddings have a common direction c. Subtracting c before packing makes a' and b'
shorter, and therefore every term of the bound smaller. For unit rows, a = alpha c + a' and b = beta
c + b' with alpha = <a, c> and beta = <b, c> in float64, and

    <a, b> = <a', b'> + alpha (beta - 1) + alpha,

which is an inner product, an offset beta - 1 with the weight alpha, and a constant of the query.
The offset and its weight may be positive or negative. The equation leaves out the terms that
contain <a', c> or <b', c>, because these products vanish up to rounding; the bound `rounding` of
search.packing covers their rounding errors. Distances do not change if c is subtracted from both
rows.
"""

import numpy as np

from .jit import borrowing_kernel, inlined_kernel
from .packing import SLACK
from .simd.panel import CODE_NORM, OFFSET_WEIGHT, RESIDUAL_NORM, THRESHOLD

# A threshold that no score reaches.
NEVER = np.float32(3e38)
# A bound on the error that underflow causes in a float64 sum of up to 2^22 products.
_UNDERFLOW = 2.0**-1050


@inlined_kernel
def set_bound_terms(terms, i, scale, norm, residual, weight):
    """Set the terms with which the products of query i of a panel are compared.

    terms (4, 32) is described in simd.panel. scale, norm and residual belong to the quantised query
    and come from ``packing.encode_query``; weight is the weight of the items' offsets. The
    threshold of the query is set to a number that every product reaches.
    """
    unit = np.float32(1.0) / scale
    terms[THRESHOLD, i] = -NEVER
    terms[RESIDUAL_NORM, i] = (residual + SLACK * norm) * unit
    terms[CODE_NORM, i] = (norm + residual) * unit
    terms[OFFSET_WEIGHT, i] = weight * unit


@inlined_kernel
def reaching_score(threshold, residual, coded, weight, statistics, panel):
    """Return 1 less than the smallest product with which an item may reach a query's threshold.

    threshold, residual, coded and weight are the terms that set_bound_terms sets for the query. If
    residual and coded are 0, the product itself is compared with the threshold, and not an upper
    bound of the product. statistics (panels, 5) belongs to ItemPanels. float32 represents the
    products of up to 1,024 columns exactly; the rounding errors of larger products are within
    packing.SLACK.
    """
    bound = threshold - residual * statistics[panel, 1]
    bound -= coded * statistics[panel, 2]
    bound -= max(weight * statistics[panel, 3], weight * statistics[panel, 4])
    return bound * statistics[panel, 0] - np.float32(1.0)


@borrowing_kernel
def largest_scores_of_panels(first, n_panels, largest, statistics, weight, maxima):
    """Write an estimate of K for the largest product of each panel from `first` on to maxima.

    maxima (n_panels,) is float32, largest (n_panels,) int32 holds the largest products, and weight
    is the weight of the items' offsets.
    """
    for p in range(n_panels):
        panel = first + p
        offset = max(weight * statistics[panel, 3], weight * statistics[panel, 4])
        maxima[p] = np.float32(largest[p]) / statistics[panel, 0] + offset


@borrowing_kernel
def threshold_of(query, queries, score, unit):
    """Return the score as a threshold tau in units of the query's scale, rounded down."""
    scaling = queries.scaling
    bound = scaling.slopes[query] * score + scaling.intercepts[query]
    # The result is finite, because infinity cannot be converted to an integer.
    return np.float32(max((bound - score_rounding(query, queries)) * unit, -3e38))


@borrowing_kernel
def score_rounding(query, queries):
    """Return a bound on the error of K if K is computed from a rounded float64 score."""
    return (
        1e-12 * abs(queries.scaling.intercepts[query])
        + queries.scaling.slopes[query] * _UNDERFLOW
        + queries.rounding
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
def may_find(row, query, self_rows, allowed, excluded_indptr, excluded_rows):
    """Return whether an item is allowed, is not the query itself, and is not excluded."""
    if row == self_rows[query] or (allowed.shape[0] > 0 and allowed[row] == 0):
        return False
    first, last = excluded_indptr[query], excluded_indptr[query + 1]
    return first == last or not is_excluded(row, excluded_rows, first, last)

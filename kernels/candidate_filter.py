"""Candidate filter of the dense searches: drops pairs that cannot reach a query's threshold.

Bound. A query a is scaled to a' (norm about 1), an item b to b' (norm at most 1), and both are
quantised: a' = s q + e, b' = t c + f. The score is an increasing function of K = <a', b'> + w o,
with weight w of the query and offset o of the item. With the integer v = <q, c> of the tile,

    <a', b'> - s t v = <e, b'> + <s q, f>,
    |<a', b'> - s t v| <= |e| |b'| + |s q| |f| + SLACK |a'| |b'|   (Cauchy-Schwarz, packing.SLACK)

so K lies within s t v + w o +- E. In units of s, for a panel of 32 items with largest norm N and
residual R, and with the largest W of w o, an item can have K >= tau only if

    v >= (tau - (|e| + SLACK |a'|) / s N - |s q| / s R - W / s) / t.

The tile compares v with the integer below this. (float32 tiles: s = t = 1, R = 0, and |e| is the
bound on the rounding of a float32 sum, relative to |a'|.) SLACK also covers the rounding of this
expression, of tau to float32 and of float64 products. The rounding of a squared distance may be
larger by |a| / |b|: it is score_rounding. tau and w o are rounded in proportion to |tau| <= |a'|
|b'| + |w o|, and W is enlarged by SLACK |w o|. Therefore a pair that is dropped has a float64 score
strictly below every threshold that is kept.

Shift. Rows of embeddings have a common direction c: it is taken out before packing, which makes a'
and b', and with them all terms of the bound, shorter. For unit rows, a = alpha c + a' and b = beta
c + b' with alpha = <a, c> and beta = <b, c> of float64, and

    <a, b> = <a', b'> + alpha (beta - 1) + alpha,

an inner product, an offset beta - 1 with weight alpha, and a constant of the query. Both have
either sign. As <a', c> and <b', c> vanish up to rounding, so do the terms that are left out; the
rounding is `rounding` (search.packing). Distances do not change if c is subtracted from both rows.
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
    """Set what the products of query i of a panel are compared with: terms (4, 32), see simd.panel.

    scale, norm, residual: of the quantised query, as ``packing.encode_query`` returns them; weight:
    of the items' offsets. The threshold becomes one that every product reaches.
    """
    unit = np.float32(1.0) / scale
    terms[THRESHOLD, i] = -NEVER
    terms[RESIDUAL_NORM, i] = (residual + SLACK * norm) * unit
    terms[CODE_NORM, i] = (norm + residual) * unit
    terms[OFFSET_WEIGHT, i] = weight * unit


@inlined_kernel
def reaching_score(threshold, residual, coded, weight, statistics, panel):
    """Return the least product of an item of a panel that may reach a query's threshold, less 1.

    threshold, residual, coded, weight: of the query, as set_bound_terms sets them; with 0 for
    residual and coded, the product itself must reach the threshold, and not its upper bound.
    statistics (panels, 5): of ItemPanels. float32 holds the products of up to 1,024 columns; the
    rounding of larger ones is within packing.SLACK.
    """
    bound = threshold - residual * statistics[panel, 1]
    bound -= coded * statistics[panel, 2]
    bound -= max(weight * statistics[panel, 3], weight * statistics[panel, 4])
    return bound * statistics[panel, 0] - np.float32(1.0)


@borrowing_kernel
def largest_scores_of_panels(first, n_panels, largest, statistics, weight, maxima):
    """maxima[p] (n_panels,) float32 out: K of the largest product of panel first + p, estimated.

    largest (n_panels,) int32; weight: of the items' offsets.
    """
    for p in range(n_panels):
        panel = first + p
        offset = max(weight * statistics[panel, 3], weight * statistics[panel, 4])
        maxima[p] = np.float32(largest[p]) / statistics[panel, 0] + offset


@borrowing_kernel
def threshold_of(query, queries, score, unit):
    """The score as a tau in units of the query's scale, rounded down."""
    scaling = queries.scaling
    bound = scaling.slopes[query] * score + scaling.intercepts[query]
    # The result is finite, because infinity cannot be converted to an integer.
    return np.float32(max((bound - score_rounding(query, queries)) * unit, -3e38))


@borrowing_kernel
def score_rounding(query, queries):
    """Bound on the difference of K and of the K of the float64 score, by rounding."""
    return (
        1e-12 * abs(queries.scaling.intercepts[query])
        + queries.scaling.slopes[query] * _UNDERFLOW
        + queries.rounding
    )


@borrowing_kernel
def is_excluded(row, excluded_rows, first, last):
    """Whether row is in the sorted excluded_rows[first:last]."""
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
    """Return whether the item is allowed, not the query itself and not excluded."""
    if row == self_rows[query] or (allowed.shape[0] > 0 and allowed[row] == 0):
        return False
    first, last = excluded_indptr[query], excluded_indptr[query + 1]
    return first == last or not is_excluded(row, excluded_rows, first, last)

"""Search for a rescaling that loses a neighbour: the other side of the bracket of certificates.

What is found is a fact (the weights are a witness); that nothing is found proves nothing.
"""

import math

import numpy as np

from .certificates import beats
from .intervals import unit_row, weighted_cosine, weighted_sums
from .jit import kernel

# a witness must lift rivals by more than rounding
MARGIN = 1e-12
ROUNDS = 2


@kernel
def add_sensitivity(x, y, w, sign, slopes):
    """slopes[j] += sign times the derivative of Fisher z of (x, y) by ln w[j], at w."""
    xy, xx, yy = weighted_sums(x, y, w)
    if xx == 0.0 or yy == 0.0:
        return
    x_scale, y_scale = 1.0 / math.sqrt(xx), 1.0 / math.sqrt(yy)
    cosine = xy * x_scale * y_scale
    plus, minus = 2.0 + 2.0 * cosine, 2.0 - 2.0 * cosine
    if plus < MARGIN or minus < MARGIN:
        return
    for j in range(x.shape[0]):
        above, below = x[j] * x_scale + y[j] * y_scale, x[j] * x_scale - y[j] * y_scale
        slopes[j] += sign * 0.5 * w[j] * (above * above / plus - below * below / minus)


@kernel
def to_vertex(slopes, K, w):
    """Set w to K where slopes are positive, else to 1."""
    for j in range(w.shape[0]):
        w[j] = K if slopes[j] > 0.0 else 1.0


@kernel
def is_lost(x, listed, edge, k, w):
    """Whether at least k of the listed items are nearer to x than item edge of the list, at w.

    Asked first: those that follow the edge in the list.
    """
    m = listed.shape[0]
    bar, nearer = weighted_cosine(x, listed[edge], w) + MARGIN, 0
    for step in range(1, m):
        nearer += weighted_cosine(x, listed[(edge + step) % m], w) > bar
        if nearer >= k:
            return True
        if nearer + (m - 1 - step) < k:
            return False
    return False


@kernel
def climb(x, listed, edge, first, last, k, K, w):
    """Whether the edge is lost at a vertex that lifts items first .. last - 1 of the list over it.

    From w = 1, the vertex that local sensitivities point at, then the one that they do from there.
    """
    slopes = np.empty_like(w)
    w[:] = 1.0
    for _ in range(ROUNDS):
        slopes[:] = 0.0
        for s in range(first, last):
            add_sensitivity(x, listed[s], w, 1.0 / (last - first), slopes)
        add_sensitivity(x, listed[edge], w, -1.0, slopes)
        to_vertex(slopes, K, w)
        if is_lost(x, listed, edge, k, w):
            return True
    return False


@kernel
def breaks(x, listed, edge, k, rivals, K, depth, w):
    """Whether weights w of the box [1, K]^d are found at which item edge is not among k nearest.

    Tried: all k items behind the edge at once, each of the nearest rivals alone, and where the
    refined certificate sees a rival win.
    """
    m = listed.shape[0]
    if climb(x, listed, edge, edge + 1, min(edge + 1 + k, m), k, K, w):
        return True
    for s in range(k, min(k + rivals, m)):
        if climb(x, listed, edge, s, s + 1, k, K, w):
            return True
        if beats(x, listed[edge], listed[s], K, depth, w) < 0 and is_lost(x, listed, edge, k, w):
            return True
    return False


@kernel
def attacked_radii(
    lo, hi, items, norms, rows, neighbors, rivals, floors, levels, depth, radii, weights
):
    """The least of rising levels at which a rescaling loses an edge of rows[lo:hi], inf if none.

    items (p, d) with norms; neighbors (n, m) by falling cosine, the first k of them the edges;
    floors (n, k): conditions known to be safe; radii (n, k) float64 out, NaN for an edge of a zero
    row; weights (n, k, d) float64 out: the witness, with entries from 1 to radius²; ones where
    there is none.
    """
    d, m, k = items.shape[1], neighbors.shape[1], radii.shape[1]
    x, w, listed = np.empty(d), np.empty(d), np.empty((m, d))
    for i in range(lo, hi):
        unit_row(items[rows[i]], norms[rows[i]], x)
        for r in range(m):
            unit_row(items[neighbors[i, r]], norms[neighbors[i, r]], listed[r])
        for r in range(k):
            weights[i, r, :] = 1.0
            if norms[rows[i]] == 0.0 or norms[neighbors[i, r]] == 0.0:
                radii[i, r] = np.nan
                continue
            radii[i, r] = math.inf
            safe, lost = np.searchsorted(levels, floors[i, r], "right") - 1, len(levels) - 1
            if lost <= safe or not breaks(x, listed, r, k, rivals, levels[lost] ** 2, depth, w):
                continue
            weights[i, r] = w
            while lost - safe > 1:
                middle = (safe + lost) >> 1
                if breaks(x, listed, r, k, rivals, levels[middle] ** 2, depth, w):
                    lost = middle
                    weights[i, r] = w
                else:
                    safe = middle
            radii[i, r] = levels[lost]

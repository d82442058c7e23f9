"""Attacks on neighbours: searches for rescalings that drop a neighbour from the top k.

An attack gives an upper bound on the robustness of a neighbour, and a certificate
(``certificates``) gives a lower bound. A successful attack returns a counterexample. A
counterexample is a vector of weights w in the box [1, K]^d (see ``intervals``). In the metric
diag(w), the neighbour is no longer among the top k. A neighbour that survives an attack is not
necessarily robust.
"""

import math

import numpy as np

from .certificates import beats, count_levels
from .intervals import copy_row, read_unit_row, weighted_cosine, weighted_sums
from .jit import kernel

# If two cosines differ by more than MARGIN, rounding errors cannot have changed their order.
MARGIN = 1e-12
# For each target, an attack tries this many vertices of the box. The first vertex follows from the
# gradient at w = 1, and the second vertex from the gradient at the first vertex.
ROUNDS = 2


@kernel
def add_sensitivity(x, y, w, sign, slopes):
    """Add `sign` times the derivative of Fisher z with respect to ln w[j] to slopes[j], for each j.

    Fisher z is the artanh of the cosine of x and y in the metric diag(w).
    """
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
    """Set w[j] to K where slopes[j] is positive, and to 1 elsewhere."""
    for j in range(w.shape[0]):
        w[j] = K if slopes[j] > 0.0 else 1.0


@kernel
def is_lost(x, units, edge, k, w):
    """Return whether, in the metric diag(w), at least k rows are nearer to x than units[edge] is.

    The rows of `units` are compared in order: first the rows after row `edge`, and then the rows
    before row `edge`.
    """
    m = units.shape[0]
    threshold, nearer = weighted_cosine(x, units[edge], w) + MARGIN, 0
    for step in range(1, m):
        nearer += weighted_cosine(x, units[(edge + step) % m], w) > threshold
        if nearer >= k:
            return True
        if nearer + (m - 1 - step) < k:
            return False
    return False


@kernel
def attack_towards(x, units, edge, first, last, k, K, w):
    """Choose a vertex w that brings units[first:last] nearer to x; return whether an edge is lost.

    The edge from x to units[edge] is lost at w if at least k other rows are nearer to x than
    units[edge]. For any row u, let z(u) be the Fisher z of x and u. Let f be the mean of z over
    units[first:last], minus z(units[edge]). The function computes the gradient of f. The vertex has
    the weight K in each dimension in which the gradient is positive, and the weight 1 in the other
    dimensions. The first vertex is computed from the gradient at w = 1. If the edge is not lost at
    this vertex, a second vertex is computed from the gradient at the first one.
    """
    slopes = np.empty_like(w)
    w[:] = 1.0
    for _ in range(ROUNDS):
        slopes[:] = 0.0
        for s in range(first, last):
            add_sensitivity(x, units[s], w, 1.0 / (last - first), slopes)
        add_sensitivity(x, units[edge], w, -1.0, slopes)
        to_vertex(slopes, K, w)
        if is_lost(x, units, edge, k, w):
            return True
    return False


@kernel
def find_counterexample(x, units, edge, k, n_targets, K, depth, w):
    """Return whether a search finds weights w that remove units[edge] from the k nearest rows.

    First, the search tries to move the k rows after units[edge] closer to x, all at the same time.
    The search then tries to move each of the n_targets nearest competitors closer to x. For each
    competitor, the search also tries the counterexample that ``certificates.beats`` finds.
    """
    m = units.shape[0]
    if attack_towards(x, units, edge, edge + 1, min(edge + 1 + k, m), k, K, w):
        return True
    for s in range(k, min(k + n_targets, m)):
        if attack_towards(x, units, edge, s, s + 1, k, K, w):
            return True
        if beats(x, units[edge], units[s], K, depth, w) < 0 and is_lost(x, units, edge, k, w):
            return True
    return False


@kernel
def attacked_radii(lo, hi, sample, neighbors, attacks, radii, weights):
    """For each edge of rows[lo:hi], write the lowest level at which an attack drops the edge.

    `sample` is a SampledRows, and `attacks` is an Attacks. `neighbors` (n, m) holds the neighbours
    of each row, sorted by descending cosine, and the first k neighbours of a row form its edges.
    `radii` (n, k) float64 receives the level of each edge: inf if no attack drops the edge, and NaN
    if the row of the edge is zero. `weights` (n, k, d) float64 receives the counterexamples. The
    weights of a counterexample are between 1 and radius²; if there is no counterexample, all
    weights are 1.
    """
    items, norms, rows = sample.items, sample.norms, sample.rows
    n_targets, levels, depth = attacks.n_targets, attacks.levels, attacks.depth
    d, m, k = items.n_columns, neighbors.shape[1], radii.shape[1]
    x, w, units = np.empty(d), np.empty(d), np.empty((m, d))
    for i in range(lo, hi):
        read_unit_row(items, rows[i], norms[rows[i]], x)
        for r in range(m):
            read_unit_row(items, neighbors[i, r], norms[neighbors[i, r]], units[r])
        for r in range(k):
            weights[i, r, :] = 1.0
            if norms[rows[i]] == 0.0 or norms[neighbors[i, r]] == 0.0:
                radii[i, r] = np.nan
                continue
            radii[i, r] = math.inf
            safe = count_levels(levels, attacks.certified[i, r], True) - 1
            lost = len(levels) - 1
            if lost <= safe:
                continue
            K = levels[lost] ** 2
            if not find_counterexample(x, units, r, k, n_targets, K, depth, w):
                continue
            copy_row(w, weights[i, r])
            while lost - safe > 1:
                middle = (safe + lost) >> 1
                K = levels[middle] ** 2
                if find_counterexample(x, units, r, k, n_targets, K, depth, w):
                    lost = middle
                    copy_row(w, weights[i, r])
                else:
                    safe = middle
            radii[i, r] = levels[lost]

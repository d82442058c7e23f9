"""A search for the one rescaling under which most neighbours leave the k nearest at once.

Weights w of the metric diag(w) are at a vertex of the box [1, K]^d: each is 1 or K. A step turns
one weight over. The count is of edges with at least k listed items nearer, so that each is lost in
truth; items beyond the lists can only add to it.
"""

import numpy as np

from .attacks import MARGIN
from .jit import kernel


@kernel
def weigh(units, rows, neighbors, w, products, squares):
    """Compute products (n, m) and squares (p,) of unit rows in the metric diag(w). units (d, p)."""
    squares[:] = 0.0
    products[:] = 0.0
    for dimension in range(units.shape[0]):
        add_dimension(units[dimension], rows, neighbors, w[dimension], products, squares)


@kernel
def add_dimension(unit, rows, neighbors, weight, products, squares):
    """Add weight times one dimension of all rows, unit (p,), to their products and squares."""
    for i in range(unit.shape[0]):
        squares[i] += weight * unit[i] * unit[i]
    for i in range(rows.shape[0]):
        x = weight * unit[rows[i]]
        for r in range(neighbors.shape[1]):
            products[i, r] += x * unit[neighbors[i, r]]


@kernel
def count_lost(units, rows, neighbors, k, dimension, weight, products, squares, scores):
    """Edges with at least k listed items nearer, if weight is added to that of a dimension.

    scores (m,): working memory. An edge of a zero row is not counted.
    """
    lost, m, unit = 0, neighbors.shape[1], units[dimension]
    for i in range(rows.shape[0]):
        x = unit[rows[i]]
        own = squares[rows[i]] + weight * x * x
        if own <= 0.0:
            continue
        for r in range(m):
            y = unit[neighbors[i, r]]
            square = squares[neighbors[i, r]] + weight * y * y
            product = products[i, r] + weight * x * y
            scores[r] = product / np.sqrt(own * square) if square > 0.0 else 0.0
        nearest = -2.0
        for r in range(k, m):
            nearest = max(nearest, scores[r])
        for edge in range(k):
            # of k nearer items one at least is no edge
            if scores[edge] + MARGIN >= nearest or squares[neighbors[i, edge]] <= 0.0:
                continue
            threshold, nearer = scores[edge] + MARGIN, 0
            for r in range(m):
                nearer += scores[r] > threshold
            lost += nearer >= k
    return lost


@kernel
def climb(lo, hi, units, rows, neighbors, k, K, n_sweeps, orders, weights, counts):
    """From each start of weights[lo:hi], turn single weights over while more edges are lost.

    units (d, p) float64: unit rows, transposed; rows (n,); neighbors (n, m) by descending cosine,
    the first k are the edges; orders (s, n_sweeps, d): the order of the dimensions in each sweep;
    weights (s, d) float64 in/out, entries 1 or K; counts (s,) int64 out. Equal counts are accepted
    too, so that plateaus are crossed; the best weights are returned.
    """
    d, m = units.shape[0], neighbors.shape[1]
    products, squares = np.empty((rows.shape[0], m)), np.empty(units.shape[1])
    scores, best = np.empty(m), np.empty(d)
    for s in range(lo, hi):
        w = weights[s]
        weigh(units, rows, neighbors, w, products, squares)
        lost = count_lost(units, rows, neighbors, k, 0, 0.0, products, squares, scores)
        most = lost
        for j in range(d):
            best[j] = w[j]
        for sweep in range(n_sweeps):
            before = lost
            for place in range(d):
                j = orders[s, sweep, place]
                change = K - 1.0 if w[j] == 1.0 else 1.0 - K
                found = count_lost(units, rows, neighbors, k, j, change, products, squares, scores)
                if found < lost:
                    continue
                add_dimension(units[j], rows, neighbors, change, products, squares)
                w[j], lost = w[j] + change, found
                if lost > most:
                    most = lost
                    for t in range(d):
                        best[t] = w[t]
            if lost == before:
                break
        for j in range(d):
            w[j] = best[j]
        counts[s] = most


@kernel
def count_lost_by_row(lo, hi, images, rows, neighbors, k, lost):
    """Edges of rows[lo:hi] with at least k listed items nearer, by the cosines of images (p, d).

    neighbors (n, m): the first k are the edges; lost (n,) int64 out. Zero rows have no edges.
    """
    m, d = neighbors.shape[1], images.shape[1]
    scores, squares = np.empty(m), np.empty(m)
    for i in range(lo, hi):
        lost[i] = 0
        x, own = images[rows[i]], 0.0
        for j in range(d):
            own += x[j] * x[j]
        for r in range(m):
            y, product, squares[r] = images[neighbors[i, r]], 0.0, 0.0
            for j in range(d):
                product += x[j] * y[j]
                squares[r] += y[j] * y[j]
            scores[r] = product / np.sqrt(own * squares[r]) if own * squares[r] > 0.0 else 0.0
        for edge in range(k):
            threshold, nearer = scores[edge] + MARGIN, 0
            for r in range(m):
                nearer += scores[r] > threshold
            lost[i] += nearer >= k and squares[edge] > 0.0

"""A search for the one rescaling under which most neighbours leave the k nearest at once.

Weights w of the metric diag(w) are at a vertex of the box [1, K]^d: each is 1 or K. A step turns
one weight over. The count is of edges with at least k listed items nearer, so that each is lost in
truth; items beyond the lists can only add to it. The search counts in float32; its result is
counted again in float64.
"""

from typing import Any, NamedTuple

import numpy as np

from .attacks import MARGIN
from .jit import kernel, relaxed_kernel

# Cosines in float32 that differ by less count as equal, because sums of products are rounded.
SEARCH_MARGIN = np.float32(2e-6)


class EdgeLists(NamedTuple):
    """The listed items of rows.

    rows (n,): row numbers; neighbors (n, m) by descending cosine, the first k are the edges;
    lengths (n,), or (s, n) for s searches: how many of them matter.
    """

    rows: Any
    neighbors: Any
    lengths: Any
    k: Any


class LocalSearch(NamedTuple):
    """The settings of s climbs.

    ends (s,) float32: K; n_counts: counts until a climb ends; orders (s, n_rounds, d): the order of
    the dimensions in each climb; turned (s, n_rounds, t): the weights that are turned between them.
    """

    ends: Any
    n_counts: Any
    orders: Any
    turned: Any


@kernel
def add_dimension(unit, rows, neighbors, lengths, weight, products, squares):
    """Add weight times one dimension of all rows, unit (p,), to their products and squares."""
    for i in range(unit.shape[0]):
        squares[i] += weight * unit[i] * unit[i]
    for i in range(rows.shape[0]):
        x = weight * unit[rows[i]]
        for r in range(lengths[i]):
            products[i, r] += x * unit[neighbors[i, r]]


@kernel
def count_lost(unit, rows, neighbors, lengths, k, weight, products, squares, inverse, scores):
    """Edges with at least k listed items nearer, if weight is added to that of one dimension.

    unit (p,): that dimension of all rows. inverse (p,) and scores (m,): working memory.
    """
    for i in range(unit.shape[0]):
        square = squares[i] + weight * unit[i] * unit[i]
        inverse[i] = np.float32(1.0) / np.sqrt(square) if square > 0.0 else np.float32(0.0)
    lost = 0
    for i in range(rows.shape[0]):
        m = lengths[i]
        x = weight * unit[rows[i]]
        # The factor of the row itself is left out, because all of its scores contain it.
        for r in range(m):
            item = neighbors[i, r]
            scores[r] = (products[i, r] + x * unit[item]) * inverse[item]
        margin = SEARCH_MARGIN / max(inverse[rows[i]], np.float32(1e-30))
        least = scores[0]
        for edge in range(1, k):
            least = min(least, scores[edge])
        passing = 0
        for r in range(k, m):
            passing += scores[r] > least + margin
        if passing == 0:
            continue
        for edge in range(k):
            threshold, nearer = scores[edge] + margin, 0
            for r in range(m):
                nearer += scores[r] > threshold
            lost += nearer >= k
    return lost


@kernel
def climb(lo, hi, units, lists, search, weights, counts):
    """From each start of weights[lo:hi]: turn single weights over while more edges are lost.

    Iterated local search (Lourenço, Martin, Stützle 2003): where no turn of one weight helps, the
    weights ``turned`` are turned over in the best ones, and the climb goes on from there, until
    n_counts counts. units (d, p) float32: unit rows, transposed; lists: EdgeLists; search:
    LocalSearch; weights (s, d) float32 in/out, entries 1 or K; counts (s,) int64 out.
    """
    rows, neighbors, lengths, k = lists
    ends, n_counts, orders, turned = search
    d, m, one = units.shape[0], neighbors.shape[1], np.float32(1.0)
    products = np.empty((rows.shape[0], m), np.float32)
    squares, inverse = np.empty((2, units.shape[1]), np.float32)
    scores = np.empty(m, np.float32)
    w, target = np.empty((2, d), np.float32)
    for s in range(lo, hi):
        w[:], K, listed = weights[s], ends[s], lengths[s]
        squares[:] = 0.0
        products[:] = 0.0
        for j in range(d):
            add_dimension(units[j], rows, neighbors, listed, w[j], products, squares)
        most, counted = -1, 0
        for sweep in range(orders.shape[1]):
            lost = count_lost(
                units[0], rows, neighbors, listed, k, np.float32(0.0), products, squares,
                inverse, scores,
            )  # fmt: skip
            place, in_vain = 0, 0
            while in_vain < d and counted < n_counts:
                j = orders[s, sweep, place]
                change = K - one if w[j] == one else one - K
                found = count_lost(
                    units[j], rows, neighbors, listed, k, change, products, squares, inverse,
                    scores,
                )  # fmt: skip
                in_vain = 0 if found > lost else in_vain + 1
                # Equal losses are accepted, too, so that the search crosses plateaus.
                if found >= lost:
                    add_dimension(units[j], rows, neighbors, listed, change, products, squares)
                    w[j], lost = K if w[j] == one else one, found
                place, counted = (place + 1) % d, counted + 1
            if lost >= most:
                most = lost
                weights[s] = w
            if counted >= n_counts:
                break
            target[:] = weights[s]
            for j in turned[s, sweep]:
                target[j] = K if target[j] == one else one
            for j in range(d):
                if target[j] != w[j]:
                    change = target[j] - w[j]
                    add_dimension(units[j], rows, neighbors, listed, change, products, squares)
                    w[j] = target[j]
        counts[s] = most


@relaxed_kernel
def cosines_of_list(image, mapped, inverse, listed, scores):
    """Write the products of an image (d,) with listed rows of mapped (p, d), times inverse (p,)."""
    for r in range(listed.shape[0]):
        item, product = listed[r], 0.0
        for j in range(mapped.shape[1]):
            product += image[j] * mapped[item, j]
        scores[r] = product * inverse[item]


@kernel
def count_lost_by_row(lo, hi, images, mapped, inverse, lists, lost):
    """Count the edges of rows lo to hi that at least k listed items pass under a map.

    images (n, d): the mapped rows at length 1; mapped (p, d): all mapped items; inverse (p,): 1
    over the length of each, 0 for zero rows, which have no edges. lists: EdgeLists with one list of
    lengths. lost (n,) int64 out.
    """
    _, neighbors, lengths, k = lists
    scores = np.empty(neighbors.shape[1])
    for i in range(lo, hi):
        lost[i], m = 0, lengths[i]
        if m <= k:
            continue
        listed = neighbors[i, :m]
        cosines_of_list(images[i], mapped, inverse, listed, scores)
        for edge in range(k):
            threshold, nearer = scores[edge] + MARGIN, 0
            for r in range(m):
                nearer += scores[r] > threshold
            lost[i] += nearer >= k and inverse[listed[edge]] > 0.0

"""A search for the one rescaling under which most neighbours leave the k nearest at once.

The weights w of the metric diag(w) are a vertex of the box [1, K]^d, so each weight is 1 or K. A
step flips one weight. An edge is a pair of a row and one of its k nearest neighbours. The search
counts the edges for which at least k listed items are nearer than the neighbour, which is then
certainly lost; items beyond the lists can only increase the number of lost edges. The search counts
in float32, and its result is counted again in float64.
"""

from typing import Any, NamedTuple

import numpy as np

from .attacks import MARGIN
from .jit import kernel, relaxed_kernel

# Cosines in float32 that differ by less count as equal, because sums of products are rounded.
SEARCH_MARGIN = np.float32(2e-6)


class EdgeLists(NamedTuple):
    """The listed items of rows.

    rows (n,) holds row numbers. neighbors (n, m) is ordered by descending cosine, and the first k
    neighbours of a row are its edges. lengths, of the shape (n,), or (s, n) for s searches, holds
    the number of neighbours that are considered.
    """

    rows: Any
    neighbors: Any
    lengths: Any
    k: Any


class LocalSearch(NamedTuple):
    """The settings of s climbs.

    ends (s,) float32 holds the value K of each climb, and n_counts the number of counts after which
    a climb ends. orders (s, n_rounds, d) holds the order of the dimensions in each round, and
    turned (s, n_rounds, t) the weights that are flipped between two rounds.
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
    """Count the edges that are lost if `weight` is added to the weight of one dimension.

    An edge is lost if at least k listed items are nearer. unit (p,) holds that dimension of all
    rows. inverse (p,) and scores (m,) are overwritten.
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
    """Flip single weights of each start of weights[lo:hi] as long as that loses more edges.

    This is iterated local search (Lourenço, Martin, Stützle 2003). When no flip of a single weight
    loses more edges, the weights ``turned`` are flipped in the best weights so far, and the climb
    continues from there, until n_counts counts have been made. units (d, p) float32 holds the
    transposed unit rows, lists is an EdgeLists, and search a LocalSearch. weights (s, d) float32,
    with entries 1 or K, is changed in place, and the numbers of lost edges are written to counts
    (s,) int64.
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

    images (n, d) holds the mapped rows at length 1, and mapped (p, d) all mapped items. inverse
    (p,) holds 1 over the length of each mapped item, or 0 for a zero row, which has no edges. lists
    is an EdgeLists with one list of lengths. The output is lost (n,) int64.
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

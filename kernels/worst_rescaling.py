"""Search for one rescaling that removes as many neighbours as possible from the k nearest.

The search considers only metrics diag(w) in which w is a vertex of the box [1, K]^d
(``intervals``). Each weight in w is therefore 1 or K. A step of the search flips one weight from 1
to K or from K to 1. An edge is a pair of a row and one of its k nearest neighbours. For each row, a
list of its nearest items is given. An edge is counted as lost if at least k listed items are nearer
to its row than its neighbour is. An edge that is counted as lost is certainly lost: items outside
the list may be nearer, too, but they cannot restore the edge. The search compares cosines in
float32. After the search, the edges that are lost under the best weights are counted again in
float64.
"""

from typing import Any, NamedTuple

import numpy as np

from .attacks import MARGIN
from .intervals import copy_row
from .jit import kernel, relaxed_kernel

# Two float32 cosines that differ by less than this margin count as equal, because rounding errors
# could explain the difference.
SEARCH_MARGIN = np.float32(2e-6)


class EdgeLists(NamedTuple):
    """Lists of the nearest items, one list for each of n rows.

    `rows` (n,) holds row numbers. `neighbors` (n, m) holds the nearest items of each row, ordered
    by descending cosine, and the first k of them form the edges of the row. For each row, `lengths`
    holds the number of listed items that are used. The shape of `lengths` is (n,). If s searches
    use different numbers of items, the shape is (s, n).
    """

    rows: Any
    neighbors: Any
    lengths: Any
    k: Any


class LocalSearch(NamedTuple):
    """The settings of s climbs; a climb is one local search.

    For each climb, `ends` (s,) float32 holds the largest weight, K. A climb ends after n_counts
    calls of count_lost or after n_rounds rounds, whichever comes first. `orders` (s, n_rounds, d)
    holds the order in which each round of a climb tries the dimensions. `perturbations` (s,
    n_rounds, t) holds the dimensions whose weights are flipped between two rounds.
    """

    ends: Any
    n_counts: Any
    orders: Any
    perturbations: Any


@kernel
def add_dimension(unit, rows, neighbors, lengths, weight, products, squares):
    """Add `weight` times the terms of one dimension to `products` and `squares`.

    `unit` (p,) holds the coordinates of all unit rows in this dimension. `squares` (p,) holds the
    weighted squared norm of each of the p items. Row i of `products` (n, m) holds the weighted
    inner products of row rows[i] with the m items in its list.
    """
    for i in range(unit.shape[0]):
        squares[i] += weight * unit[i] * unit[i]
    for i in range(rows.shape[0]):
        x = weight * unit[rows[i]]
        for r in range(lengths[i]):
            products[i, r] += x * unit[neighbors[i, r]]


@kernel
def count_lost(unit, rows, neighbors, lengths, k, weight, products, squares, inverse, scores):
    """Return the number of edges that are lost if the weight of a dimension increases by `weight`.

    An edge consists of a row and a neighbour. The edge is lost if at least k listed items are
    nearer to the row than the neighbour is. `unit` (p,) holds the coordinates of all unit rows in
    the dimension whose weight increases. The values in `products` and `squares` (see add_dimension)
    do not yet include `weight`. `inverse` (p,) and `scores` (m,) are overwritten.
    """
    for i in range(unit.shape[0]):
        square = squares[i] + weight * unit[i] * unit[i]
        inverse[i] = np.float32(1.0) / np.sqrt(square) if square > 0.0 else np.float32(0.0)
    lost = 0
    for i in range(rows.shape[0]):
        m = lengths[i]
        x = weight * unit[rows[i]]
        # The scores are not divided by the norm of the row itself, because this would not change
        # their order.
        for r in range(m):
            item = neighbors[i, r]
            scores[r] = (products[i, r] + x * unit[item]) * inverse[item]
        margin = SEARCH_MARGIN / max(inverse[rows[i]], np.float32(1e-30))
        lowest = scores[0]
        for edge in range(1, k):
            lowest = min(lowest, scores[edge])
        passing = 0
        for r in range(k, m):
            passing += scores[r] > lowest + margin
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
    """Run climbs lo to hi; each climb searches for weights under which many edges are lost.

    The algorithm is iterated local search (Lourenço, Martin, Stützle 2003). A round tries to flip
    one weight after another, and ends when no flip increases the number of lost edges. The next
    round begins with the best weights so far, but first flips the weights of the dimensions in
    ``perturbations``. The climb ends after n_counts calls of count_lost or after all rounds,
    whichever comes first. `units` (d, p) float32 holds the transposed unit rows, `lists` is an
    EdgeLists, and `search` is a LocalSearch. `weights` (s, d) float32 holds the initial weights of
    each climb; each weight is 1 or K. At the end, `weights` holds the best weights of each climb.
    The numbers of edges lost under the best weights are written to `counts` (s,) int64.
    """
    rows, neighbors, lengths, k = lists
    ends, n_counts, orders, perturbations = search
    d, m, one = units.shape[0], neighbors.shape[1], np.float32(1.0)
    products = np.empty((rows.shape[0], m), np.float32)
    squares, inverse = np.empty((2, units.shape[1]), np.float32)
    scores = np.empty(m, np.float32)
    w, target = np.empty((2, d), np.float32)
    for s in range(lo, hi):
        K, list_lengths = ends[s], lengths[s]
        copy_row(weights[s], w)
        squares[:] = 0.0
        products[:] = 0.0
        for j in range(d):
            add_dimension(units[j], rows, neighbors, list_lengths, w[j], products, squares)
        best_count, n_evaluations = -1, 0
        for sweep in range(orders.shape[1]):
            lost = count_lost(
                units[0], rows, neighbors, list_lengths, k, np.float32(0.0), products, squares,
                inverse, scores,
            )  # fmt: skip
            place, n_failures = 0, 0
            while n_failures < d and n_evaluations < n_counts:
                j = orders[s, sweep, place]
                change = K - one if w[j] == one else one - K
                change_count = count_lost(
                    units[j], rows, neighbors, list_lengths, k, change, products, squares, inverse,
                    scores,
                )  # fmt: skip
                n_failures = 0 if change_count > lost else n_failures + 1
                # A flip is accepted even if it leaves the number of lost edges unchanged, so that
                # the search can cross plateaus.
                if change_count >= lost:
                    add_dimension(
                        units[j], rows, neighbors, list_lengths, change, products, squares
                    )
                    w[j], lost = K if w[j] == one else one, change_count
                place, n_evaluations = (place + 1) % d, n_evaluations + 1
            if lost >= best_count:
                best_count = lost
                copy_row(w, weights[s])
            if n_evaluations >= n_counts:
                break
            copy_row(weights[s], target)
            for j in perturbations[s, sweep]:
                target[j] = K if target[j] == one else one
            for j in range(d):
                if target[j] != w[j]:
                    change = target[j] - w[j]
                    add_dimension(
                        units[j], rows, neighbors, list_lengths, change, products, squares
                    )
                    w[j] = target[j]
        counts[s] = best_count


@relaxed_kernel
def cosines_of_list(image, mapped, inverse, list_items, scores):
    """Write the cosine of a mapped row and each listed item to `scores`.

    `image` (d,) is the mapped row, normalised to norm 1. `mapped` (p, d) holds all mapped items,
    and `inverse` (p,) holds 1 over the norm of each mapped item. `list_items` holds the numbers of
    the listed items.
    """
    for r in range(list_items.shape[0]):
        item, product = list_items[r], 0.0
        for j in range(mapped.shape[1]):
            product += image[j] * mapped[item, j]
        scores[r] = product * inverse[item]


@kernel
def count_lost_by_row(lo, hi, images, mapped, inverse, lists, lost):
    """For each row from lo to hi, count the edges that are lost under a linear map.

    All items are mapped first. The edge between a row and a neighbour is lost if at least k mapped
    items of the row's list are nearer to the row than the neighbour is.

    `images` (n, d) holds the mapped rows, normalised to norm 1, and `mapped` (p, d) holds all
    mapped items. `inverse` (p,) holds 1 over the norm of each mapped item, or 0 for a zero row,
    which has no edges. `lists` is an EdgeLists whose lengths have the shape (n,). The counts are
    written to `lost` (n,) int64.
    """
    _, neighbors, lengths, k = lists
    scores = np.empty(neighbors.shape[1])
    for i in range(lo, hi):
        lost[i], m = 0, lengths[i]
        if m <= k:
            continue
        list_items = neighbors[i, :m]
        cosines_of_list(images[i], mapped, inverse, list_items, scores)
        for edge in range(k):
            threshold, nearer = scores[edge] + MARGIN, 0
            for r in range(m):
                nearer += scores[r] > threshold
            lost[i] += nearer >= k and inverse[list_items[edge]] > 0.0

"""Range of the cosine of a pair under rescalings of the latent dimensions.

A rescaling D turns x · y into sum w x y with weights w = D^-2. The *condition* of D is the ratio of
its largest to its smallest entry. If the condition is at most κ, the weights can be divided by a
common factor such that they lie in the *box* [1, K]^d, where K = κ². A common factor of all weights
does not change a cosine. All computations use float64 and begin with unit vectors x and y.
"""

import math

import numpy as np

from .jit import kernel
from .select import sort_best_first
from .simd.row_products import scale_row

# If the squared distance of two unit vectors in d dimensions is at most d * COLLINEAR, the vectors
# differ only by rounding errors. The rounding error of each entry is at most 4 epsilon.
COLLINEAR = (4 * 2.0**-52) ** 2


@kernel
def unit_row(row, norm, unit):
    """Write `row` (d,) divided by its norm to `unit` (d,) float64, or zeros if the norm is 0."""
    scale = 1.0 / norm if norm > 0.0 else 0.0
    for j in range(row.shape[0]):
        unit[j] = row[j] * scale


@kernel
def read_unit_row(rows, i, norm, unit):
    """Divide row i of a Rows by its norm, and write it to `unit` (d,) float64.

    If the norm is 0, `unit` becomes zero.
    """
    scale_row(rows, i, 1.0 / norm if norm > 0.0 else 0.0, 0.0, unit[:0], unit)


@kernel
def copy_row(row, out):
    """Copy `row` to `out` in a loop, because Numba takes seconds to compile `out[:] = row`."""
    for j in range(row.shape[0]):
        out[j] = row[j]


@kernel
def sum_and_difference(x, y):
    """Return |x + y|² and |x - y|² of unit vectors; values that may be rounding errors become 0."""
    plus, minus = 0.0, 0.0
    for j in range(x.shape[0]):
        plus += (x[j] + y[j]) * (x[j] + y[j])
        minus += (x[j] - y[j]) * (x[j] - y[j])
    smallest = x.shape[0] * COLLINEAR
    return plus if plus > smallest else 0.0, minus if minus > smallest else 0.0


@kernel
def fisher_z(x, y):
    """Return Fisher z, the artanh of the cosine, of two vectors that are unit or zero vectors.

    Fisher z of collinear vectors is inf or -inf. If a vector is zero, the result is 0.
    """
    plus, minus = sum_and_difference(x, y)
    if minus == 0.0:
        return math.inf if plus > 0.0 else 0.0
    if plus == 0.0:
        return -math.inf
    return 0.5 * (math.log(plus) - math.log(minus))


@kernel
def weighted_sums(x, y, w):
    """Return sum w x y, sum w x² and sum w y², which are sums over the dimensions."""
    xy, xx, yy = 0.0, 0.0, 0.0
    for j in range(x.shape[0]):
        xy += w[j] * x[j] * y[j]
        xx += w[j] * x[j] * x[j]
        yy += w[j] * y[j] * y[j]
    return xy, xx, yy


@kernel
def weighted_cosine(x, y, w):
    """Return the cosine of x and y in the metric diag(w), in [-1, 1]; 0 if a vector is zero."""
    xy, xx, yy = weighted_sums(x, y, w)
    if xx == 0.0 or yy == 0.0:
        return 0.0
    return min(max(xy / (math.sqrt(xx) * math.sqrt(yy)), -1.0), 1.0)


@kernel
def best_positive(x, y, K, w):
    """Write to w the vertex of the box [1, K]^d at which the cosine of x and y is largest.

    The function may be called only if the largest cosine is positive. At the vertex with the
    largest cosine, only dimensions with x y > 0 have the weight K. If the dimensions with x y > 0
    are sorted by y / x, the dimensions with the weight K form a contiguous range. The function
    tries all contiguous ranges in O(d²) time.
    """
    d = x.shape[0]
    positions, ratios, m = np.empty(d, np.int64), np.empty(d), 0
    xy, xx, yy = 0.0, 0.0, 0.0
    for j in range(d):
        xy, xx, yy = xy + x[j] * y[j], xx + x[j] * x[j], yy + y[j] * y[j]
        if x[j] * y[j] > 0.0:
            positions[m], ratios[m] = j, -y[j] / x[j]
            m += 1
    sort_best_first(ratios, positions, m)
    best, best_square, first, last = max(xy, 0.0), xx * yy, 0, 0
    for a in range(m):
        n, p, q = xy, xx, yy
        for b in range(a, m):
            j = positions[b]
            n += (K - 1.0) * x[j] * y[j]
            p += (K - 1.0) * x[j] * x[j]
            q += (K - 1.0) * y[j] * y[j]
            # The cosine is n / sqrt(p q), and the largest cosine so far is best /
            # sqrt(best_square). The squares of the two cosines are compared, so that no root is
            # computed.
            if n > 0.0 and n * n * best_square > best * best * p * q:
                best, best_square, first, last = n, p * q, a, b + 1
    w[:] = 1.0
    for b in range(first, last):
        w[positions[b]] = K


@kernel
def tangent_vertex(x, y, K, t, w):
    """Write to w the point of the box [1, K]^d that minimises 2 sum w x y / sum w (t x² + y²/t).

    The function finds the minimum by Dinkelbach's method.
    """
    value = math.inf
    w[:] = 1.0
    while True:
        xy, xx, yy = weighted_sums(x, y, w)
        newer = 2.0 * xy / (t * xx + yy / t)
        if not newer < value:
            return
        value = newer
        for j in range(x.shape[0]):
            gain = 2.0 * x[j] * y[j] - value * (t * x[j] * x[j] + y[j] * y[j] / t)
            w[j] = 1.0 if gain > 0.0 else K


@kernel
def tangent(sums, t):
    """Return 2 xy / (t xx + yy / t), a lower bound on the cosine if the cosine is not negative.

    `sums` holds the weighted sums xy, xx and yy. The bound equals the cosine if t = sqrt(yy / xx).
    """
    return 2.0 * sums[0] / (t * sums[1] + sums[2] / t)


@kernel
def highest_envelope(left, right, low, high):
    """Return the t from `low` to `high` at which the smaller of two tangents is largest.

    The weighted sums `left` define one tangent, and the weighted sums `right` define the other.
    Each tangent is a function of t (see ``tangent``). Each tangent has one peak. The tangent that
    `left` defines must have its peak at or after `low`. The tangent that `right` defines must have
    its peak at or before `high`. If rounding errors make it impossible to determine t, the function
    returns 0.0.
    """
    first = math.sqrt(left[2] / left[1])
    second = math.sqrt(right[2] / right[1])
    if low < first < high and tangent(right, first) >= tangent(left, first):
        return first
    if low < second < high and tangent(left, second) >= tangent(right, second):
        return second
    below = right[0] * left[2] - left[0] * right[2]
    above = left[0] * right[1] - right[0] * left[1]
    if below * above > 0.0:
        t = math.sqrt(below / above)
        if low < t < high:
            return t
    return 0.0


@kernel
def lowest_between(start, end, w_start, w_end, w):
    """Find the point between w_start and w_end at which the cosine is smallest; write it to w.

    The points `w_start` and `w_end` belong to the box, and the cosine is not negative at any point
    between them. The weighted sums at these two points are `start` and `end`. The derivative of the
    cosine along the segment from w_start to w_end changes its sign at most once, because the
    numerator of the derivative is linear.
    """
    n, p, q = start
    dn, dp, dq = end[0] - n, end[1] - p, end[2] - q
    constant = 2.0 * dn * p * q - n * (dp * q + dq * p)
    slope = dn * (p * dq + q * dp) - 2.0 * n * dp * dq
    at, lowest = 0.0, n / math.sqrt(p * q)
    inner = -constant / slope if slope != 0.0 else 1.0
    for share in (min(max(inner, 0.0), 1.0), 1.0):
        value = (n + share * dn) / math.sqrt((p + share * dp) * (q + share * dq))
        if value < lowest:
            at, lowest = share, value
    for j in range(w.shape[0]):
        w[j] = w_start[j] + at * (w_end[j] - w_start[j])


@kernel
def worst_nonnegative(x, y, K, w):
    """Store in w the point of the box at which the cosine of x and y is smallest.

    The function may be called only if no point of the box has a negative cosine. Let f(t, w) be 2
    sum w x y / sum w (t x² + y²/t). For each positive t, f has a minimum over w. The largest of
    these minima is the smallest cosine. For each t, the minimum over w is attained at some vertex
    of the box, and the value of f at any vertex is an upper bound on this minimum. The algorithm
    keeps two vertices, and each of the two vertices gives an upper bound for every t. Let g(t) be
    the smaller of the two upper bounds at t. In each step, the algorithm tries the t that maximises
    g(t).
    """
    low, high = 1.0 / math.sqrt(K), math.sqrt(K)
    w_left, w_right = np.empty_like(w), np.empty_like(w)
    tangent_vertex(x, y, K, low, w_left)
    tangent_vertex(x, y, K, high, w_right)
    left, right = weighted_sums(x, y, w_left), weighted_sums(x, y, w_right)
    for _ in range(200):
        t = highest_envelope(left, right, low, high)
        improves = t > 0.0
        if not improves:
            t = math.sqrt(low * high)
        if not low < t < high:
            break
        bound = min(tangent(left, t), tangent(right, t))
        tangent_vertex(x, y, K, t, w)
        sums = weighted_sums(x, y, w)
        if sums[2] > t * t * sums[1]:
            low, left = t, sums
            copy_row(w, w_left)
        else:
            high, right = t, sums
            copy_row(w, w_right)
        if improves and tangent(sums, t) >= bound * (1.0 - 2.0**-51):
            break
    lowest_between(left, right, w_left, w_right, w)


@kernel
def highest_cosine(x, y, K, w):
    """Write to w the point of the box [1, K]^d at which the cosine of unit vectors is largest."""
    largest = 0.0
    for j in range(x.shape[0]):
        term = x[j] * y[j]
        largest += K * term if term > 0.0 else term
    if largest > 0.0:
        best_positive(x, y, K, w)
    else:
        worst_nonnegative(x, -y, K, w)


@kernel
def box_intervals(lo, hi, pairs, K, ends, weights):
    """For pairs lo to hi, write the exact range of the cosine over the box [1, K]^d of weights.

    `pairs` is a RowPairs. The lowest and the highest cosine of each pair are written to `ends` (n,
    2) float64; both are NaN if a row is zero. The weights at which the pair has the lowest and the
    highest cosine are written to `weights` (n, 2, d) float64. If a row of a pair is zero, all
    weights of the pair are 1. The kernel takes O(d²) time per pair.
    """
    x, y, x_norms, y_norms = pairs.x, pairs.y, pairs.x_norms, pairs.y_norms
    d = x.shape[1]
    a, b = np.empty(d), np.empty(d)
    for i in range(lo, hi):
        if x_norms[i] == 0.0 or y_norms[i] == 0.0:
            ends[i, :] = np.nan
            weights[i, :, :] = 1.0
            continue
        unit_row(x[i], x_norms[i], a)
        unit_row(y[i], y_norms[i], b)
        highest_cosine(a, b, K, weights[i, 1])
        highest_cosine(a, -b, K, weights[i, 0])
        ends[i, 0] = weighted_cosine(a, b, weights[i, 0])
        ends[i, 1] = weighted_cosine(a, b, weights[i, 1])


@kernel
def total_variation_index(x, y, contributions):
    """Return the total-variation index of two unit vectors; write each dimension's contribution.

    `contributions` (d,) float64 is set to ½ (e₊² - e₋²), entry by entry, where e₊ and e₋ are the
    unit vectors along x + y and x - y. The contribution of a dimension is the derivative of Fisher
    z with respect to the logarithm of the weight of this dimension. The total-variation index is
    the sum of the absolute values of the contributions.
    """
    plus, minus = sum_and_difference(x, y)
    contributions[:] = 0.0
    total = 0.0
    if plus == 0.0 or minus == 0.0:
        return total
    for j in range(x.shape[0]):
        above, below = x[j] + y[j], x[j] - y[j]
        contributions[j] = 0.5 * (above * above / plus - below * below / minus)
        total += abs(contributions[j])
    return total


@kernel
def pair_indices(lo, hi, pairs, z, indices, contributions):
    """For pairs lo to hi, write Fisher z and the total-variation index.

    `pairs` is a RowPairs. The outputs `z` (n,), `indices` (n,) and `contributions` (n, d) are
    float64. Row i of `contributions` holds the contribution of each dimension to indices[i].
    """
    x, y, x_norms, y_norms = pairs.x, pairs.y, pairs.x_norms, pairs.y_norms
    a, b = np.empty(x.shape[1]), np.empty(x.shape[1])
    for i in range(lo, hi):
        unit_row(x[i], x_norms[i], a)
        unit_row(y[i], y_norms[i], b)
        z[i] = fisher_z(a, b)
        indices[i] = total_variation_index(a, b, contributions[i])


@kernel
def edge_indices(lo, hi, sample, neighbors, first_of, indices, totals):
    """For parts lo to hi, write the index of each edge and the total of each dimension.

    An edge is a pair of a row and one of its nearest neighbours. `sample` is a SampledRows, and
    `neighbors` (n, k) holds the neighbours of the sampled rows. Part q consists of the rows from
    first_of[q] to first_of[q + 1]. The outputs are `indices` (n, k) float64 and `totals` (parts, d)
    float64. If one row of an edge is zero, the total-variation index of the edge is NaN. For each
    part and each dimension, `totals` holds the sum of the absolute contributions of all edges in
    the part. The kernel takes O(d) time per edge.
    """
    items, norms, rows = sample.items, sample.norms, sample.rows
    d = items.n_columns
    x, y, contributions = np.empty(d), np.empty(d), np.empty(d)
    for part in range(lo, hi):
        totals[part, :] = 0.0
        for i in range(first_of[part], first_of[part + 1]):
            read_unit_row(items, rows[i], norms[rows[i]], x)
            for r in range(neighbors.shape[1]):
                if norms[rows[i]] == 0.0 or norms[neighbors[i, r]] == 0.0:
                    indices[i, r] = np.nan
                    continue
                read_unit_row(items, neighbors[i, r], norms[neighbors[i, r]], y)
                indices[i, r] = total_variation_index(x, y, contributions)
                for j in range(d):
                    totals[part, j] += abs(contributions[j])

"""Certificates that a neighbour remains a neighbour under every rescaling with a condition up to κ.

The condition of a rescaling is the ratio of its largest to its smallest entry. As in ``intervals``,
a rescaling is represented by its weights w, which lie in the box [1, K]^d with K = κ².

x, y and m are float64 unit vectors: x is an item, y its neighbour, and m a competitor of the
neighbour. The neighbour y beats the competitor m at w if cosine(x, y) > cosine(x, m) in the metric
diag(w). An edge is a pair of a row and one of its k nearest neighbours. The certified radius of an
edge is the largest condition up to which the neighbour is certified to remain among the k nearest.
Every test is sound: a certified neighbour cannot be lost. A neighbour that is not certified may
still be stable.
"""

import math

import numpy as np

from .intervals import fisher_z, highest_cosine, read_unit_row, weighted_cosine
from .jit import kernel
from .select import sort_best_first

# A relative bound on the rounding error of a certified sum: 32 epsilon.
SLACK = 32 * 2.0**-52


@kernel
def ratio_range(a, b, K):
    """Return the smallest and the largest ratio (sum w a) / (sum w b) for w in [1, K]^d.

    The function finds both ratios by Dinkelbach's method. No entry of a or b may be negative, and
    at least one entry of b must be positive.
    """
    ends = (np.inf, -np.inf)
    for sign in (1.0, -1.0):
        value, w_a, w_b = -np.inf, 0.0, 0.0
        for j in range(a.shape[0]):
            w_a, w_b = w_a + a[j], w_b + b[j]
        while sign * (w_a / w_b) > value:
            value = sign * (w_a / w_b)
            ratio, w_a, w_b = sign * value, 0.0, 0.0
            for j in range(a.shape[0]):
                weight = K if sign * (a[j] - ratio * b[j]) > 0.0 else 1.0
                w_a, w_b = w_a + weight * a[j], w_b + weight * b[j]
        ends = (ends[0], value) if sign > 0.0 else (-value, ends[1])
    return ends


@kernel
def stays_positive(x, y, m, y_scale, m_scale, multiplier, K):
    """Return whether sum w h > 0 is certain, despite rounding errors, for every w in [1, K]^d.

    The entries of h are x (y_scale y - m_scale m) + multiplier ((m_scale m)² - (y_scale y)²).
    """
    total, size = 0.0, 0.0
    for j in range(x.shape[0]):
        near, far = y_scale * y[j], m_scale * m[j]
        h = x[j] * (near - far) + multiplier * ((far - near) * (far + near))
        weight = K if h < 0.0 else 1.0
        total += weight * h
        size += weight * (
            abs(x[j]) * (abs(near) + abs(far)) + abs(multiplier) * (far * far + near * near)
        )
    return total > SLACK * size


@kernel
def norm_ratios(y, m, K):
    """Return the smallest and the largest norm ratio sqrt(sum w m² / sum w y²) on the box.

    The smallest ratio is rounded down, and the largest ratio is rounded up.
    """
    smallest, largest = ratio_range(m * m, y * y, K)
    return math.sqrt(smallest) * (1.0 - 1e-14), math.sqrt(largest) * (1.0 + 1e-14)


@kernel
def joint_certificate(x, y, m, K, ratios):
    """Return whether two tests, at the smallest and the largest norm ratio, prove that y beats m.

    Let ρ(w) be the norm ratio sqrt(sum w m² / sum w y²) (see norm_ratios). Let T(w, ρ) be sum w x
    (ρ y - m). In the metric diag(w), the difference cosine(x, y) - cosine(x, m) has the same sign
    as T(w, ρ(w)). If ρ is regarded as independent of w, the minimum of T(w, ρ) over all w is a
    concave function of ρ. Therefore, if this minimum is positive at both ends of a range of ρ,
    T(w, ρ) is positive for all w and for all ρ in the range. `ratios` holds the two ends of the
    range of the norm ratio. The function takes O(d) time.
    """
    sure = stays_positive(x, y, m, ratios[0], 1.0, 0.0, K)
    return sure and stays_positive(x, y, m, ratios[1], 1.0, 0.0, K)


@kernel
def best_multiplier(a, g, K, w):
    """Return the μ that maximises sum min(h, K h), where h = a + μ g, and return the maximum.

    The array g must have positive and negative entries, unless all entries are 0. The sum that is
    maximised is a concave, piecewise linear function of μ. Consider those points w of the box at
    which sum w g = 0. By duality, the smallest value of sum w a among these points equals the
    returned maximum. The point with the smallest value is written to `w`. The kernel takes O(d log
    d) time.
    """
    d = a.shape[0]
    keys, positions, m, slope = np.empty(d), np.empty(d, np.int64), 0, 0.0
    for j in range(d):
        if g[j] != 0.0:
            keys[m], positions[m] = a[j] / g[j], j
            slope += K * g[j] if g[j] > 0.0 else g[j]
            m += 1
    multiplier, turning = 0.0, -1
    sort_best_first(keys, positions, m)
    for rank in range(m):
        multiplier, turning = -keys[rank], positions[rank]
        slope -= (K - 1.0) * abs(g[turning])
        if slope <= 0.0:
            break
    total, tilt = 0.0, 0.0
    for j in range(d):
        h = a[j] + multiplier * g[j]
        w[j] = K if h < 0.0 else 1.0
        if j != turning:
            total += w[j] * h
            tilt += w[j] * g[j]
    if turning >= 0:
        w[turning] = min(max(-tilt / g[turning], 1.0), K)
    return multiplier, total


@kernel
def piece_certificate(x, y, m, K, first, last, w):
    """Test whether y beats m at all w with first <= ρ(w) <= last; return 1, -1 or 0.

    If y is proved to beat m, the result is 1. If the test finds a point at which y does not beat m,
    the point is written to `w`, and the result is -1. If neither is proved, the result is 0.

    ρ(w) is the norm ratio (norm_ratios). Let T(w, ρ) be sum w x (ρ y - m) + μ sum w (m² - ρ² y²)
    for a multiplier μ. If ρ = ρ(w), the second of the two sums is 0. If μ is not negative, the
    minimum of T(w, ρ) over all w is a concave function of ρ. Therefore, if this minimum is positive
    at ρ = first and at ρ = last, T(w, ρ) is positive for all w and for all ρ from `first` to
    `last`. If μ is negative, the test uses U(w, ρ) instead of T(w, ρ). Here U(w, ρ) is sum w x (y -
    m / ρ) + ν sum w ((m / ρ)² - y²), with ν = μ sqrt(first * last). The minimum of U(w, ρ) over all
    w is a concave function of 1/ρ.
    """
    a, g = np.empty_like(x), np.empty_like(x)
    middle = math.sqrt(first * last)
    for j in range(x.shape[0]):
        near = middle * y[j]
        a[j], g[j] = x[j] * (near - m[j]), (m[j] - near) * (m[j] + near)
    multiplier, minimum = best_multiplier(a, g, K, w)
    if minimum <= 0.0:
        return -1
    for end in (first, last):
        if multiplier >= 0.0:
            sure = stays_positive(x, y, m, end, 1.0, multiplier, K)
        else:
            sure = stays_positive(x, y, m, 1.0, 1.0 / end, multiplier * middle, K)
        if not sure:
            return 0
    return 1


@kernel
def refined_certificate(x, y, m, K, ratios, depth, w):
    """Return 1 if y is certified to beat competitor m, -1 if w is a counterexample, else 0.

    `ratios` holds the ends of the range of the norm ratio ρ. If piece_certificate returns 0 for a
    piece of the range, the piece is bisected at its geometric mean, up to `depth` times. A piece of
    the smallest size is not bisected. If piece_certificate returns 0 for such a piece, y cannot be
    certified. The remaining pieces are then searched only to find a counterexample w.
    """
    step = math.log(ratios[1] / ratios[0]) / 2.0**depth
    start, size, is_open = 0, 1 << depth, False
    while start < 1 << depth:
        end = start + size
        first = ratios[0] * math.exp(start * step)
        last = ratios[0] * math.exp(end * step) if end < 1 << depth else ratios[1]
        answer = piece_certificate(x, y, m, K, first, last, w)
        if answer < 0:
            return answer
        if answer == 0 and size > 1 and not is_open:
            size >>= 1
            continue
        is_open = is_open or answer == 0
        start += size
        size = start & -start  # the size of the largest aligned piece that begins here
    return 0 if is_open else 1


@kernel
def beats(x, y, m, K, depth, w):
    """Return 1 if y is certified to beat competitor m, -1 if w is a counterexample, else 0.

    The function joint_certificate, which takes O(d) time, is tried before refined_certificate. The
    competitor m may be a zero row, whose cosine is 0 for every w.
    """
    if not m.any():
        return 1 if stays_positive(x, y, m, 1.0, 0.0, 0.0, K) else 0
    ratios = norm_ratios(y, m, K)
    if joint_certificate(x, y, m, K, ratios):
        return 1
    if ratios[0] <= 0.0 or not ratios[0] < ratios[1]:
        return 0
    return refined_certificate(x, y, m, K, ratios, depth, w)


@kernel
def count_levels(levels, limit, with_limit):
    """Return the number of levels below `limit`; with_limit=True includes a level equal to it.

    `levels` is in ascending order. The function is used instead of np.searchsorted, which Numba
    compiles for half a second in each kernel.
    """
    low, high = 0, levels.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if levels[middle] < limit or (with_limit and levels[middle] == limit):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def certified_level(x, y, m, bound, radius, levels, depth, w):
    """Certify neighbour y against competitor m; return the largest condition that is certified.

    The caller guarantees that y beats m under every rescaling whose condition is at most `bound`.
    The function first tries to certify y up to the condition `radius`. If y cannot be certified up
    to `radius`, the function bisects the array `levels` to find the largest level between `bound`
    and `radius` that can be certified. The array `levels` is in ascending order. If no level above
    `bound` can be certified, the function returns `bound`.
    """
    if beats(x, y, m, radius * radius, depth, w) > 0:
        return radius
    safe = count_levels(levels, bound, True) - 1
    first = safe
    lost = count_levels(levels, radius, False)
    while lost - safe > 1:
        middle = (safe + lost) >> 1
        if beats(x, y, m, levels[middle] * levels[middle], depth, w) > 0:
            safe = middle
        else:
            lost = middle
    return levels[safe] if safe > first else bound


@kernel
def competitor_threshold(x, y, condition, w):
    """Return a threshold: a competitor cannot beat y if its Fisher z with x is below the threshold.

    Here, a competitor beats y if, under some rescaling, it is at least as near to x as y is. Only
    rescalings with a condition of at most `condition` are considered. The function computes the
    smallest Fisher z that x and y have at any point of the box, and subtracts ln(condition). A
    rescaling with a condition of at most `condition` cannot increase the Fisher z of any pair by
    more than ln(condition).
    """
    highest_cosine(x, -y, condition * condition, w)
    cosine = weighted_cosine(x, y, w) - SLACK
    return math.atanh(max(cosine, -1.0 + SLACK)) - math.log(condition) - SLACK


@kernel
def separation(near, far):
    """Return a lower bound on the condition of any linear map that swaps the order of two rows.

    The two rows are ordered by their Fisher z with an item. The nearer row has the Fisher z `near`
    with the item, and the farther row has the Fisher z `far` with the item.
    """
    if near == math.inf or far == -math.inf:
        return 1.0 if near == far else math.inf
    return math.exp(max(0.0, 0.5 * (near - far)))


@kernel
def linear_radii(lo, hi, sample, neighbors, z, radii):
    """For every edge of rows[lo:hi], write the radius that is certified under all linear maps.

    `sample` is a SampledRows. `neighbors` (n, m) holds the neighbours of each row, sorted by
    descending cosine; m is k + 1, or k if there are only k other items. The outputs are float64:
    `radii` (n, k) holds the radii of the edges, and `z` (n, m) holds the Fisher z of each row with
    each of its neighbours. The radius of an edge of a zero row is NaN. The kernel takes O(m d) time
    per row.
    """
    items, norms, rows = sample.items, sample.norms, sample.rows
    d, m, k = items.n_columns, neighbors.shape[1], radii.shape[1]
    x, y = np.empty(d), np.empty(d)
    for i in range(lo, hi):
        read_unit_row(items, rows[i], norms[rows[i]], x)
        for r in range(m):
            read_unit_row(items, neighbors[i, r], norms[neighbors[i, r]], y)
            z[i, r] = fisher_z(x, y)
        for r in range(k):
            if norms[rows[i]] == 0.0 or norms[neighbors[i, r]] == 0.0:
                radii[i, r] = np.nan
            else:
                radii[i, r] = separation(z[i, r], z[i, k]) if m > k else math.inf


@kernel
def rescaling_radii(lo, hi, sample, neighbors, search, partial, radii, truncated):
    """For every edge of rows[lo:hi], write the radius that is certified under rescalings.

    `sample` is a SampledRows, and `search` is a CertificateSearch. `neighbors` (n, m) holds the
    neighbours of each row, sorted by descending cosine, and the first k neighbours of a row form
    its edges. `partial` (n, k) float64 is changed in place. Before the first call, `partial` holds
    an upper limit on each radius. After a call, `partial` holds the radius that is certified
    against the competitors of this call and of all previous calls. `radii` (n, k) float64 receives
    the radius that is certified against all items, or NaN for an edge of a zero row. No item
    outside the list of a row has a larger Fisher z with the row than the last item in the list has.
    An unlisted item may be as near to the row as the last listed item. The last listed item
    therefore sets a limit on the radii of the row. `truncated` (n,) uint8 is 1 for each row whose
    list is too short. The list of a row is too short if the limit that its last item sets lowers
    the radius of at least one edge of the row.
    """
    items, norms, rows = sample.items, sample.norms, sample.rows
    first, levels, depth = search.first, search.levels, search.depth
    d, m, k = items.n_columns, neighbors.shape[1], radii.shape[1]
    x, w, z, units = np.empty(d), np.empty(d), np.empty(m), np.empty((m, d))
    for i in range(lo, hi):
        read_unit_row(items, rows[i], norms[rows[i]], x)
        for r in range(m):
            if r < k or r >= first:
                read_unit_row(items, neighbors[i, r], norms[neighbors[i, r]], units[r])
                z[r] = fisher_z(x, units[r])
        truncated[i] = 0
        for r in range(k):
            if norms[rows[i]] == 0.0 or norms[neighbors[i, r]] == 0.0:
                radii[i, r] = np.nan
                continue
            radius = partial[i, r]
            threshold = competitor_threshold(x, units[r], radius, w)
            for s in range(first, m):
                bound = separation(z[r], z[s])
                if z[s] < threshold or bound >= radius:
                    continue
                level = certified_level(x, units[r], units[s], bound, radius, levels, depth, w)
                if level < radius:
                    radius = level
                    threshold = competitor_threshold(x, units[r], radius, w)
            partial[i, r] = radius
            if not (search.complete or z[m - 1] < threshold):
                last = separation(z[r], z[m - 1])
                truncated[i] |= last < radius
                radius = min(radius, last)
            radii[i, r] = radius

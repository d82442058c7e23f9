"""For every measure, exact formulas for the score of two rows and for the size of the score.

Rounding errors are measured in units in the last place (ULP) of this size.
"""

from collections.abc import Callable
from typing import Any

import mpmath

from tests.robustness.rounding_truth import cosine, distance, dot, terms

ITEMS, DEPTH, NEAREST = 16, 6, 3
EPS = mpmath.mpf(2) ** -52
# If the size of a score is NOTHING, the error of the score is not judged. The exact score is then
# undefined, or the documentation promises a different score.
NOTHING = mpmath.inf

Rows = list[list[Any]]
# A Truth is a function for two matrices (Q, B) of exact numbers. Its arguments i and j select row i
# of Q and row j of B. It returns the exact score of these two rows, and the size of this score. The
# rounding error of the score is measured relative to this size.
Truth = Callable[[int, int], tuple[Any, Any]]


# exact parts


def norm(x: Any) -> Any:
    return mpmath.sqrt(mpmath.fdot(x, x))


def less(x: Any, y: Any) -> Any:
    return [a - b for a, b in zip(x, y, strict=True)]


def times(x: Any, y: Any) -> Any:
    return [a * b for a, b in zip(x, y, strict=True)]


def mean(rows: Rows) -> Any:
    return [mpmath.fsum(column) / len(rows) for column in zip(*rows, strict=True)]


def sizes(rows: Rows) -> Any:
    return mean([[abs(a) for a in row] for row in rows])


def moment(rows: Rows, shares: Any = None) -> Any:
    """Second moment, by shares."""
    shares = [mpmath.mpf(1) / len(rows)] * len(rows) if shares is None else shares
    weighted = [[s * a for a in row] for s, row in zip(shares, rows, strict=True)]
    return mpmath.matrix(weighted).T * mpmath.matrix(rows)


def product(x: Any, S: Any, y: Any) -> Any:
    return mpmath.fdot(x, list(S * mpmath.matrix(y)))


def under(S: Any, x: Any, y: Any) -> Any:
    """Cosine under a metric."""
    size = mpmath.sqrt(product(x, S, x) * product(y, S, y))
    return product(x, S, y) / size if size else mpmath.mpf(0)


def lost(rows: Rows, x: Any) -> Any:
    """Return the factor by which subtracting the mean from x amplifies rounding errors."""
    moved = norm(less(x, mean(rows)))
    return (norm(x) + norm(sizes(rows))) / moved if moved else NOTHING


# The following functions are measures. For exact queries and items, each function computes the
# exact score of a pair, and the size of this score. The rounding error of the score is measured
# relative to this size.


def plain(x: Any, y: Any) -> Any:
    return cosine(x, y), 1


def inner(x: Any, y: Any) -> Any:
    return dot(x, y), terms(x, y)


def euclid(x: Any, y: Any) -> Any:
    return -distance(x, y), distance(x, y)


def angle(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the angle, and the magnitude of its derivative with respect to the cosine.

    The magnitude is limited to 2^26.
    """
    c = cosine(x, y)
    c = max(min(c, mpmath.mpf(1)), mpmath.mpf(-1))
    return mpmath.acos(c), 1 / mpmath.sqrt(max(1 - c * c, EPS))


def angular(x: Any, y: Any) -> Any:
    theta, slope = angle(x, y)
    return 1 - theta / mpmath.pi, 1 + slope


def norm_angle(x: Any, y: Any) -> Any:
    theta, slope = angle(x, y)
    return -(abs(norm(x) - norm(y)) + theta), norm(x) + norm(y) + slope


def of_pairs(pair: Callable[[Any, Any], Any]) -> Callable[[Rows, Rows], Truth]:
    """Return the exact scores of a measure that compares two rows without any other rows."""
    return lambda Q, B: lambda i, j: pair(Q[i], B[j])


def layer_norm(x: Any, y: Any) -> Any:
    moved = [[a - mpmath.fsum(row) / len(row) for a in row] for row in (x, y)]
    sizes = [norm(m) for m in moved]
    if not all(sizes):
        return 0, NOTHING
    return cosine(*moved), 1 + sum(norm(r) / s for r, s in zip((x, y), sizes, strict=True))


def rank(row: Any) -> Any:
    return [
        mpmath.mpf(sum(b < a for b in row)) + mpmath.mpf(sum(b == a for b in row) - 1) / 2
        for a in row
    ]


def spearman(x: Any, y: Any) -> Any:
    return layer_norm(rank(x), rank(y))[0], 1


def recos(x: Any, y: Any) -> Any:
    ascending, top = sorted(x), dot(x, y)
    both = [abs(dot(ascending, sorted(y, reverse=descending))) for descending in (False, True)]
    bottom = both[bool(top < 0)]
    if not bottom:
        return 0, NOTHING
    value, smaller = abs(top) / bottom * mpmath.sign(top), min(both)
    size = terms(x, y) * (1 + abs(value)) / smaller if smaller else NOTHING
    return value, size + terms(ascending, sorted(y)) * abs(value) / bottom


def radial(x: Any, y: Any) -> Any:
    size = mpmath.sqrt(norm(x) * norm(y))
    return cosine(x, y) * size, size


def scaled(Q: Rows, B: Rows) -> Truth:
    middle = mpmath.fsum(map(norm, B)) / sum(map(any, B))

    def pair(i: int, j: int) -> Any:
        both = (norm(Q[i]) + norm(B[j])) / middle
        return (cosine(Q[i], B[j]) + both) / 2, 1 + both

    return pair


def augmented(Q: Rows, B: Rows) -> Truth:
    middle = mpmath.fsum(map(norm, B)) / sum(map(any, B))

    def pair(i: int, j: int) -> Any:
        both = norm(Q[i]) * norm(B[j]) / middle**2
        return cosine(Q[i], B[j]) + both, 1 + both

    return pair


def centred(Q: Rows, B: Rows) -> Truth:
    middle = mean(B)

    def pair(i: int, j: int) -> Any:
        x, y = less(Q[i], middle), less(B[j], middle)
        return cosine(x, y), lost(B, Q[i]) + lost(B, B[j])

    return pair


def unit_columns(Q: Rows, B: Rows) -> Truth:
    inverse = [1 / norm(column) if any(column) else 0 for column in zip(*B, strict=True)]
    return lambda i, j: (cosine(times(Q[i], inverse), times(B[j], inverse)), 1)


def zscores(Q: Rows, B: Rows) -> Truth:
    middle, large = mean(B), sizes(B)
    columns = list(zip(*(less(row, middle) for row in B), strict=True))
    spread = [norm(column) / mpmath.sqrt(len(B)) for column in columns]
    inverse = [1 / s if s else 0 for s in spread]
    narrow = max(m / s if s else mpmath.mpf(0) for m, s in zip(large, spread, strict=True))

    def pair(i: int, j: int) -> Any:
        x, y = (times(less(row, middle), inverse) for row in (Q[i], B[j]))
        mapped = [times([abs(a) + m for a, m in zip(row, large, strict=True)], inverse)
                for row in (Q[i], B[j])]  # fmt: skip
        bare = [norm(x), norm(y)]
        if not all(bare):
            return 0, NOTHING
        return cosine(x, y), 1 + narrow + sum(
            norm(m) / b for m, b in zip(mapped, bare, strict=True)
        )

    return pair


def condition_of(S: Any) -> tuple[Any, Any, Any]:
    """Return descending eigenvalues, eigenvectors as columns, and the condition number."""
    values, vectors = mpmath.eigsy(S)
    order = sorted(range(len(values)), key=lambda at: -values[at])
    values = [values[at] for at in order]
    columns = [[vectors[row, at] for row in range(vectors.rows)] for at in order]
    return values, columns, values[0] / values[-1] if values[-1] > 0 else NOTHING


def without_top(Q: Rows, B: Rows) -> Truth:
    middle = mean(B)
    values, columns, _ = condition_of(moment([less(row, middle) for row in B]))
    gap = values[0] / (values[0] - values[1]) if values[0] > values[1] else NOTHING

    def bare(row: Any) -> tuple[Any, Any]:
        moved = less(row, middle)
        top = dot(moved, columns[0])
        rest = less(moved, [top * a for a in columns[0]])
        size = norm(rest)
        error = norm(row) + norm(sizes(B)) + gap * norm(moved)
        # A remainder that consists only of rounding errors is set to 0.
        return rest, error / size if size > 1e-11 * norm(moved) else NOTHING

    def pair(i: int, j: int) -> Any:
        (x, a), (y, b) = bare(Q[i]), bare(B[j])
        return (cosine(x, y), a + b) if a + b != NOTHING else (0, NOTHING)

    return pair


def metric_of(S: Any, Q: Rows, B: Rows, shift: Any = None) -> Truth:
    """Return a function that computes, for a pair, the exact cosine in the metric S and a size.

    The error of the cosine is expressed in units of this size. The condition number of S is a
    factor of the size, because the rounding error of the root of S is proportional to the largest
    eigenvalue of the root.
    """
    _, _, condition = condition_of(S)
    shift = [mpmath.mpf(0)] * DEPTH if shift is None else shift
    large = norm(sizes(B)) if any(shift) else 0

    def pair(i: int, j: int) -> Any:
        x, y = less(Q[i], shift), less(B[j], shift)
        if not any(x) or not any(y):
            return 0, NOTHING
        error = sum((norm(r) + large) / norm(m) for r, m in zip((Q[i], B[j]), (x, y), strict=True))
        return under(S, x, y), condition * error

    return pair


def whitened(Q: Rows, B: Rows, shares: Any = None, from_middle: bool = True) -> Truth:
    middle = mean(B)
    if shares is not None:
        middle = [dot(shares, column) for column in zip(*B, strict=True)]
    S = moment([less(row, middle) for row in B], shares)
    if condition_of(S)[2] == NOTHING:
        return lambda i, j: (0, NOTHING)
    return metric_of(mpmath.inverse(S), Q, B, middle if from_middle else None)


# of the population


def best(values: Any, k: int = NEAREST) -> Any:
    return sorted(values, reverse=True)[:k]


def among(B: Rows) -> Any:
    """Return the matrix of all cosines, and for each item, its cosines with the other items."""
    table = [[cosine(x, y) for y in B] for x in B]
    return table, [[c for j, c in enumerate(row) if j != i] for i, row in enumerate(table)]


def csls(Q: Rows, B: Rows) -> Truth:
    _, others = among(B)
    own = [mpmath.fsum(best(row)) / NEAREST for row in others]
    apart = [[cosine(x, y) for y in B] for x in Q]
    queries = [mpmath.fsum(best(row)) / NEAREST for row in apart]
    return lambda i, j: (2 * apart[i][j] - queries[i] - own[j], 1)


def local_scaling(Q: Rows, B: Rows) -> Truth:
    _, others = among(B)

    def reach(row: Any) -> Any:
        return mpmath.sqrt(max(0, 2 - 2 * best(row)[-1]))

    own, apart = list(map(reach, others)), [[cosine(x, y) for y in B] for x in Q]
    queries = [reach(row) for row in apart]

    def pair(i: int, j: int) -> Any:
        least = min(queries[i], own[j])
        # A distance that is as small as a rounding error may be computed as 0, which changes the
        # score. The score of a pair with such a distance is therefore not judged.
        if least < 1e-7:
            return 0, NOTHING
        value = mpmath.exp(-(2 - 2 * apart[i][j]) / (queries[i] * own[j]))
        return value, 1 + 1 / least**2

    return pair


def dis_sim_local(Q: Rows, B: Rows) -> Truth:
    def local(row: Any, there: Rows) -> Any:
        nearest = sorted(there, key=lambda other: distance(row, other))[:NEAREST]
        return distance(row, mean(nearest)) ** 2

    own = [local(row, B[:j] + B[j + 1 :]) for j, row in enumerate(B)]
    queries = [local(row, B) for row in Q]
    largest = max(norm(row) for row in B)

    def pair(i: int, j: int) -> Any:
        value = -(distance(Q[i], B[j]) ** 2 - queries[i] - own[j])
        return value, (norm(Q[i]) + norm(B[j]) + largest) ** 2

    return pair


def mean_and_variance(row: Any) -> tuple[Any, Any]:
    """Mean and variance."""
    middle = mpmath.fsum(row) / len(row)
    return middle, mpmath.fsum((a - middle) ** 2 for a in row) / len(row)


def query_normalized(Q: Rows, B: Rows) -> Truth:
    apart = [[cosine(x, y) for y in B] for x in Q]

    def pair(i: int, j: int) -> Any:
        middle, variance = mean_and_variance(apart[i])
        if variance < 2e-14:  # According to the documentation, such a variance counts as 0.
            return 0, NOTHING
        value = (apart[i][j] - middle) / mpmath.sqrt(variance)
        return value, (1 + abs(value)) / variance

    return pair


def mutual_proximity(Q: Rows, B: Rows) -> Truth:
    _, others = among(B)
    apart = [[cosine(x, y) for y in B] for x in Q]

    def pair(i: int, j: int) -> Any:
        value, size = mpmath.mpf(1), mpmath.mpf(1)
        for middle, variance in (mean_and_variance(apart[i]), mean_and_variance(others[j])):
            if variance < 2e-14:
                return 0, NOTHING
            z = (apart[i][j] - middle) / mpmath.sqrt(variance)
            value *= mpmath.ncdf(z)
            size += (1 + abs(z)) / variance
        return value, size

    return pair

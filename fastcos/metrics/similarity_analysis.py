"""Whether two embeddings order the pairs of items alike."""

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from fastcos import validation
from fastcos.metrics import checks
from fastcos.metrics.labelled import CHUNK, Floats, cross_products, same_rows, unit_rows

# what rounding leaves of a variance that is 0
_ROUNDING = 1e-13


class RSA(NamedTuple):
    """Correlation of the cosines of two embeddings.

    Attributes
    ----------
    value : float
        In [-1, 1].
    low, high : float
        95 % confidence interval of a sample; both are value where all pairs count.
    n_left_out : int
        Items with a zero row in either embedding.
    """

    value: float
    low: float
    high: float
    n_left_out: int


def rsa(
    first: Any,
    second: Any,
    *,
    method: str = "pearson",
    n_pairs: int = 100_000,
    random_state: int = 0,
) -> RSA:
    """Representational similarity: correlation over pairs of items of two embeddings' cosines.

    "pearson" is exact from k x k Gram matrices in O(p k k): with unit rows A and B, the sums of the
    cosines, of their squares and of their products are |sum A|^2, |A'A|^2 and |A'B|^2, less p.
    "spearman" ranks the cosines of n_pairs pairs drawn with replacement, or of all pairs if there
    are no more; its interval is Fisher's with the variance (1 + r^2 / 2) / (n - 3). Either changes
    under a rescaling of the columns.

    Parameters
    ----------
    first, second : array_like (p, k1), (p, k2), float32 or float64
        One row per item, the same items.
    method : {"pearson", "spearman"}
        Which correlation.
    n_pairs : int
        Pairs of a sample.
    random_state : int or Generator
        Draws the sample.

    Returns
    -------
    RSA
        (value, low, high, n_left_out).

    Raises
    ------
    ValueError
        Different numbers of rows, fewer than three non-zero rows, or cosines that are all equal.

    Notes
    -----
    Sources: Kriegeskorte, Mur and Bandettini, Front. Syst. Neurosci. 2 (2008); the interval: Bonett
    and Wright, Psychometrika 65 (2000).

    Examples
    --------
    >>> from fastcos.metrics import rsa
    >>> items = [[1, 0], [1, 1], [0, 1], [-1, 2]]
    >>> round(rsa(items, [[-y, x] for x, y in items]).value, 12)
    1.0
    """
    method = validation.as_choice("method", method, ("pearson", "spearman"))
    n_pairs = validation.as_count("n_pairs", n_pairs, 4)
    random = validation.as_generator("random_state", random_state)
    X, Y = same_rows("first", first, "second", second)
    kept = X.any(axis=1) & Y.any(axis=1)
    n = checks.as_enough("first", int(kept.sum()), 3, "rows that are zero in neither")
    A, B = unit_rows(X[kept]), unit_rows(Y[kept])
    if method == "pearson":
        value = _pearson(A, B)
        low = high = value
    else:
        value, low, high = _spearman(A, B, n_pairs, random)
    return RSA(value, low, high, len(X) - n)


def _pearson(A: Floats, B: Floats) -> float:
    n = len(A)
    n_pairs = n * (n - 1) / 2
    mean_a, mean_b = ((np.square(rows.sum(axis=0)).sum() - n) / 2 / n_pairs for rows in (A, B))

    def covariance(left: Floats, right: Floats, means: float) -> float:
        products = (np.square(cross_products(left, right)).sum() - n) / 2 / n_pairs
        return float(products - means)

    variances = covariance(A, A, mean_a * mean_a), covariance(B, B, mean_b * mean_b)
    checks.as_varying("first", variances[0] > _ROUNDING, "cosines")
    checks.as_varying("second", variances[1] > _ROUNDING, "cosines")
    value = covariance(A, B, mean_a * mean_b) / np.sqrt(variances[0] * variances[1])
    return float(np.clip(value, -1, 1))


def _spearman(
    A: Floats, B: Floats, n_pairs: int, random: np.random.Generator
) -> tuple[float, float, float]:
    n = len(A)
    sampled = n * (n - 1) // 2 > n_pairs
    if sampled:
        i = random.integers(n, size=n_pairs)
        j = random.integers(n - 1, size=n_pairs)
        j += j >= i
    else:
        i, j = np.triu_indices(n, 1)
    ranks = [stats.rankdata(_cosines(rows, i, j)) for rows in (A, B)]
    checks.as_varying("first", bool(np.ptp(ranks[0]) > 0), "cosines")
    checks.as_varying("second", bool(np.ptp(ranks[1]) > 0), "cosines")
    value = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    if not sampled or abs(value) == 1:
        return value, value, value
    half = 1.959963984540054 * np.sqrt((1 + value * value / 2) / (n_pairs - 3))
    centre = np.arctanh(value)
    return value, float(np.tanh(centre - half)), float(np.tanh(centre + half))


def _cosines(rows: Floats, i: Any, j: Any) -> Floats:
    values = np.empty(len(i))
    for first in range(0, len(i), CHUNK):
        chunk = slice(first, first + CHUNK)
        values[chunk] = np.einsum("ij,ij->i", rows[i[chunk]], rows[j[chunk]])
    return values

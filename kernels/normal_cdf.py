"""The normal distribution function, and the mutual proximity of Schnitzer et al. (2012).

Mutual proximity is computed under the assumption that cosines have a normal distribution.
"""

import math

from .jit import kernel

_ROOT_HALF = math.sqrt(0.5)
_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)
# For z below this number, erfc underflows in float64.
_MIN_ERFC_ARGUMENT = -37.0


@kernel
def log_cdf(z):
    """Return the logarithm of the standard normal CDF at z, with a relative error of 1e-15."""
    if z > 0.0:
        return math.log1p(-0.5 * math.erfc(z * _ROOT_HALF))
    if z >= _MIN_ERFC_ARGUMENT:
        return math.log(0.5 * math.erfc(-z * _ROOT_HALF))
    square = 1.0 / (z * z)
    series = 1.0 - square * (1.0 - 3.0 * square * (1.0 - 5.0 * square * (1.0 - 7.0 * square)))
    return -0.5 * z * z - math.log(-z) - _HALF_LOG_2_PI + math.log(series)


@kernel
def mutual_proximity_rows(lo, hi, cosines, columns, queries, items, scores):
    """Set scores[i] to the log mutual proximity of query i and each item in columns[i].

    The kernel processes the queries i from lo to hi. The log mutual proximity is log(F G), where F
    and G are two normal CDFs, evaluated at the cosine. One CDF has the mean and the standard
    deviation of the query's cosines, and the other CDF has the mean and the standard deviation of
    the item's cosines. `cosines` and `columns` have the shape (n, k), `queries` and `items` are the
    ScoreMoments of n queries and of p items, and `scores` (n, k) is the output. The kernel takes
    O((hi - lo) k) time.
    """
    means, deviations = items.means, items.deviations
    for i in range(lo, hi):
        mean, deviation = queries.means[i], queries.deviations[i]
        for entry in range(cosines.shape[1]):
            cosine, item = cosines[i, entry], columns[i, entry]
            query_z, item_z = (cosine - mean) / deviation, (cosine - means[item]) / deviations[item]
            scores[i, entry] = log_cdf(query_z) + log_cdf(item_z)

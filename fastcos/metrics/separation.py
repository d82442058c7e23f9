"""Separation of clusters by cosines, computed from sums over clusters instead of over pairs."""

from typing import Any, NamedTuple

import numpy as np

from fastcos.metrics.labelled import (
    CHUNK,
    LabelledRows,
    Score,
    cross_products,
    labelled_rows,
    packed,
    products,
)
from fastcos.validation import Floats

# Distances and variances of at most _ROUNDING count as 0, because they may be rounding errors of
# products of unit rows.
_ROUNDING = 1e-13
# Number of (row, cluster) pairs in a block. The inner products of 2^22 pairs take 32 MiB.
_BLOCK = 2**22


class WithinBetween(NamedTuple):
    """The mean cosine of pairs within clusters, the mean cosine of other pairs, and their contrast.

    Attributes
    ----------
    within : float
        Mean cosine of pairs with the same label.
    between : float
        Mean cosine of pairs with different labels.
    contrast : float
        The contrast d' = (within - between) / sqrt((v_w + v_b) / 2), where v_w and v_b are the
        variances of the cosines within clusters and between clusters. If v_w and v_b are both 0,
        the contrast is 0 if ``within`` equals ``between``, and infinite otherwise.
    n_left_out : int
        Number of zero rows.
    """

    within: float
    between: float
    contrast: float
    n_left_out: int


def within_between(items: Any, labels: Any) -> WithinBetween:
    """Return the mean cosines within and between clusters, and their contrast d'.

    The result is exact, and the function does not enumerate pairs. For a cluster c with n_c unit
    rows B_c, let S_c be the sum of the rows, and let G_c = B_c'B_c be the Gram matrix of the rows.
    The cosines of the pairs within the cluster sum to (|S_c|^2 - n_c) / 2, and the squares of these
    cosines sum to (|G_c|^2 - n_c) / 2. The function takes O(p k k) time and O(p k) memory.

    Parameters
    ----------
    items, labels
        As in :func:`pair_auc`.

    Returns
    -------
    WithinBetween

    Examples
    --------
    >>> from fastcos.metrics import within_between
    >>> scores = within_between([[1, 0], [2, 0], [0, 1], [0, 3]], [0, 0, 1, 1])
    >>> scores.within, scores.between, scores.contrast
    (1.0, 0.0, inf)
    """
    grouped = labelled_rows(items, labels)
    sizes = np.diff(grouped.starts).astype(np.float64)
    n = sizes.sum()
    n_within = (sizes * (sizes - 1)).sum() / 2
    n_between = n * (n - 1) / 2 - n_within
    sums = _cluster_sums(grouped)
    within = ((sums * sums).sum(axis=1) - sizes).sum() / 2
    between = (np.square(sums.sum(axis=0)).sum() - n) / 2 - within
    squares = (_cluster_squares(grouped) - sizes).sum() / 2
    other_squares = (np.square(cross_products(grouped.rows, grouped.rows)).sum() - n) / 2 - squares
    mean_within, mean_between = within / n_within, between / n_between
    variances = _variance(squares / n_within, mean_within)
    variances += _variance(other_squares / n_between, mean_between)
    contrast = _ratio(mean_within - mean_between, float(np.sqrt(variances / 2)))
    return WithinBetween(float(mean_within), float(mean_between), contrast, grouped.n_left_out)


def _cluster_sums(grouped: LabelledRows) -> Floats:
    return np.add.reduceat(grouped.rows, grouped.starts[:-1], axis=0)


def _cluster_squares(grouped: LabelledRows) -> Floats:
    """Return, for each cluster, the sum of the squared cosines over all ordered pairs of its rows.

    The pairs include one pair of each row with itself.
    """
    squares = np.empty(len(grouped.starts) - 1)
    for code, (first, last) in enumerate(zip(grouped.starts[:-1], grouped.starts[1:], strict=True)):
        rows = grouped.rows[first:last]
        # Use the smaller Gram matrix: either the matrix of the rows or the matrix of the
        # dimensions.
        matrix = rows.T if len(rows) < rows.shape[1] else rows
        squares[code] = np.square(cross_products(matrix, matrix)).sum()
    return squares


def _variance(mean_of_squares: float, mean: float) -> float:
    variance = mean_of_squares - mean * mean
    return variance if variance > _ROUNDING else 0.0


def _ratio(difference: float, deviation: float) -> float:
    if deviation > 0:
        return float(difference / deviation)
    return float(np.copysign(np.inf, difference)) if abs(difference) > _ROUNDING else 0.0


def silhouette(items: Any, labels: Any, *, n_threads: int | None = None) -> Score:
    """Return the silhouette with cosine distances: the mean over rows of (b - a) / max(a, b).

    For each row, let a be the mean distance from the other rows of its cluster. For every other
    cluster, compute the mean distance of the row from the rows of the cluster; let b be the
    smallest of these means. The result is exact and takes O(p k C) time for C clusters. Let S_c be
    the sum of the n_c unit rows of cluster c. If a unit row x does not belong to cluster c, its
    mean distance from the rows of cluster c is 1 - x'S_c / n_c. If x belongs to cluster c, its mean
    distance from the other rows of cluster c is (n_c - x'S_c) / (n_c - 1). If a row is the only one
    in its cluster, its silhouette is 0. The silhouette is also 0 if a and b are both at most 1e-13,
    because such small distances may be 0 in exact arithmetic.

    Source: Rousseeuw, J. Comput. Appl. Math. 20 (1987).

    Parameters
    ----------
    items, labels, n_threads
        As in :func:`pair_auc`.

    Returns
    -------
    Score
        The mean silhouette of the non-zero rows, from -1 to 1.

    Examples
    --------
    >>> from fastcos.metrics import silhouette
    >>> silhouette([[1, 0], [2, 0], [0, 1], [0, 3]], ["a", "a", "b", "b"])
    Score(value=1.0, n_left_out=0)
    """
    grouped = labelled_rows(items, labels)
    sizes = np.diff(grouped.starts).astype(np.float64)
    sums = packed(_cluster_sums(grouped), n_threads)
    total, n = 0.0, len(grouped.rows)
    step = max(CHUNK // 32, min(CHUNK, _BLOCK // len(sizes)))
    for first in range(0, n, step):
        block = slice(first, first + step)
        cosines = products(grouped.rows[block], sums, len(sizes), n_threads)
        total += float(_silhouettes(cosines, grouped.codes[block], sizes).sum())
    return Score(total / n, grouped.n_left_out)


def _silhouettes(sums: Floats, codes: Any, sizes: Floats) -> Floats:
    """Return the silhouettes (n,) of the rows, computed from sums of cosines.

    Entry (i, c) of `sums` (n, C) is the sum of the cosines of row i with the rows of cluster c. The
    array `sums` is overwritten.
    """
    rows, cluster_size = np.arange(len(sums)), sizes[codes]
    cluster_sum = sums[rows, codes]
    a = np.maximum(cluster_size - cluster_sum, 0) / np.maximum(cluster_size - 1, 1)
    distances = np.subtract(1, np.divide(sums, sizes, out=sums), out=sums)
    distances[rows, codes] = np.inf
    b = np.maximum(distances.min(axis=1), 0)
    larger = np.maximum(a, b)
    is_defined = (cluster_size > 1) & (larger > _ROUNDING)
    return np.where(is_defined, (b - a) / np.where(is_defined, larger, 1), 0.0)

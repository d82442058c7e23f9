"""Histograms of scores, average precisions and rank excesses, computed from all pairs of rows.

A score is a float64 dot product whose terms are added in the order of the dimensions
(``dot_tile``). Therefore, every kernel computes bit-for-bit the same score for a pair. A *strip* is
a group of a few neighbouring rows. A kernel never stores the scores of all pairs. At any time, a
kernel stores the scores of at most one strip, that is, the scores between the rows of this strip
and all rows.
"""

import numpy as np

from .dot_tile import COLUMNS, ROWS, dot_tile
from .jit import borrowing_kernel, kernel
from .label_ranks import precision_of_ranked
from .row_argsort import DIGITS, argsort_row, top_k_of_row

# The number of rows in one strip of pair_histograms. All rows of a strip are multiplied by a panel
# while the panel is in the cache.
STRIP = 16 * ROWS
# The score -1 lies this many bin widths above the lower edge of the first bin. With this offset,
# the score 0 and other simple fractions lie inside a bin and not on an edge.
OFFSET = 0.3719


@borrowing_kernel
def count_score(score, margin, histogram, near):
    """Count a score in its bin of the histogram; if it is near an edge, count it in `near[0]`, too.

    A score is near an edge if it is less than `margin` bin widths away from the nearer edge of its
    bin.
    """
    n_bins = histogram.shape[0]
    # Bins have the width 2 / (n_bins - 2).
    place = (score + 1.0) * (0.5 * n_bins - 1.0) + OFFSET
    whole = np.int64(place)
    histogram[min(max(whole, 0), n_bins - 1)] += 1
    near[0] += abs(place - whole - 0.5) > 0.5 - margin


@borrowing_kernel
def _stratum_of(level, boundaries, stratum):
    """Return the number of boundaries below a level, by a linear search from `stratum` on.

    The boundaries must ascend.
    """
    while stratum < boundaries.shape[0] and level > boundaries[stratum]:
        stratum += 1
    while stratum > 0 and level <= boundaries[stratum - 1]:
        stratum -= 1
    return stratum


@kernel
def pair_histograms(lo, hi, begin, stop, clustered, margin, counts, near):
    """Count pairs of rows by stratum and score bin, separately for pairs within one cluster.

    The rows are divided into strips of 96 rows. A pair i < j is counted if row i lies in one of the
    strips from `begin` to `stop`. The strips from `begin` to `stop` are divided into Q parts, where
    Q is the length of `counts`. Part q consists of the strips begin + q, begin + q + Q, begin + q +
    2 Q, and so on. The kernel counts the pairs of parts lo to hi. `clustered` is a ClusteredRows,
    and `margin` is a bound on the rounding error of a score, in bin widths. The kernel adds the
    numbers of pairs to the int64 array `counts` (parts, strata, 2, bins). The third index of
    `counts` is 1 for a pair of rows in the same cluster, and 0 for other pairs. Rounding errors may
    have moved some scores to a neighbouring bin. The kernel adds the number of these scores to the
    int64 array `near` (parts, strata, 2, 1). The kernel takes O(96 n d) time per strip. With
    strata, the kernel is fastest if neighbouring rows have similar levels.
    """
    rows, panels, ends = clustered.rows, clustered.panels, clustered.ends
    levels, boundaries = clustered.levels, clustered.boundaries
    n, n_parts = rows.shape[0], counts.shape[0]
    tile = np.empty((ROWS, COLUMNS))
    for part in range(lo, hi):
        for strip in range((begin + part) * STRIP, min(stop * STRIP, n), n_parts * STRIP):
            for panel in range(strip // COLUMNS, panels.shape[0]):
                first = panel * COLUMNS
                end = min(first + COLUMNS, n)
                for tile_row in range(strip, min(strip + STRIP, n), ROWS):
                    if first + COLUMNS <= tile_row:
                        continue
                    dot_tile(rows, tile_row, panels, panel, tile)
                    for i in range(tile_row, min(tile_row + ROWS, n, strip + STRIP)):
                        scores, column, stratum = tile[i - tile_row], max(first, i + 1), 0
                        # The rows are sorted by cluster, and every column j that is compared here
                        # is greater than i. Therefore, the columns before ``ends[i]`` belong to the
                        # cluster of row i.
                        border = min(max(column, ends[i]), end)
                        for same, start, last in ((1, column, border), (0, border, end)):
                            for j in range(start, last):
                                if boundaries.shape[0] > 0:
                                    level = levels[i] + levels[j]
                                    stratum = _stratum_of(level, boundaries, stratum)
                                count_score(
                                    scores[j - first], margin, counts[part, stratum, same],
                                    near[part, stratum, same],
                                )  # fmt: skip


@kernel
def score_strip(first_row, last_row, rows, panels, scores):
    """Set scores[i - first_row, j] to the score of row i of `rows` and row j of `panels`.

    The kernel processes the rows i from first_row to last_row, and clips the scores to [-1, 1]. The
    output is `scores` (strip, 32 * number of panels) float64. Columns of `scores` that belong to
    the padding of the last panel are set to 0.
    """
    tile = np.empty((ROWS, COLUMNS))
    for panel in range(panels.shape[0]):
        first = panel * COLUMNS
        for tile_row in range(first_row, last_row, ROWS):
            dot_tile(rows, tile_row, panels, panel, tile)
            for r in range(min(ROWS, last_row - tile_row)):
                row_scores = scores[tile_row - first_row + r]
                for c in range(COLUMNS):
                    row_scores[first + c] = min(max(tile[r, c], -1.0), 1.0)


@kernel
def average_precisions_at_r(lo, hi, queries, rows, panels, codes, sizes, values):
    """For each q from lo to hi, set values[q] to the average precision at R of row queries[q].

    R is the number of other rows with the label of the query; ``label_ranks.precision_of_ranked``
    defines the average precision at R. `queries` (n_q,) is int64, `rows` (n, d) holds float64 unit
    rows, and `panels` holds the same rows in packed form. `codes` (n,) int64 holds the label code
    of each row, and `sizes` (C,) int64 holds the number of rows with each code. The code of a query
    must belong to at least 2 rows. The output is `values` (n_q,) float64. The kernel takes O((hi -
    lo) n d) time and allocates memory for 9 n numbers.
    """
    n = rows.shape[0]
    strip = np.empty((ROWS, rows.shape[1]))
    scores = np.empty((ROWS, panels.shape[0] * COLUMNS))
    keys, starts = np.empty((2, n), np.int64), np.empty((3, DIGITS), np.int64)
    ranked = np.empty(n, np.int64)
    for first in range(lo, hi, ROWS):
        m = min(ROWS, hi - first)
        for r in range(m):
            for j in range(rows.shape[1]):
                strip[r, j] = rows[queries[first + r], j]
        score_strip(0, m, strip, panels, scores)
        for r in range(m):
            i = queries[first + r]
            relevant = sizes[codes[i]] - 1
            argsort_row(scores[r, :n], i, relevant, keys, starts, ranked)
            values[first + r] = precision_of_ranked(codes, i, relevant, ranked)


@borrowing_kernel
def rank_excess(scores, self_row, neighbors):
    """Return the sum of max(rank - k, 0) over the k rows in `neighbors`.

    Rows are ranked by descending score, and rows with equal scores by row number; self_row has no
    rank. The metric "trustworthiness" is computed from the sums that this function returns.
    """
    total, k = 0, neighbors.shape[0]
    for j in neighbors:
        score, ahead = scores[j], 0
        for other in range(j):
            ahead += scores[other] >= score
        for other in range(j + 1, scores.shape[0]):
            ahead += scores[other] > score
        # The query row is not a neighbour of itself, so it is not counted among the rows with
        # higher scores.
        ahead -= scores[self_row] > score or (scores[self_row] == score and self_row < j)
        total += max(ahead + 1 - k, 0)
    return total


@kernel
def rank_excess_rows(lo, hi, X, X_panels, Y, Y_panels, k, excess):
    """For each row from lo to hi, sum the amounts by which the ranks of the neighbours exceed k.

    `excess` (n, 2) is int64. Both entries of excess[i] are results of rank_excess. For excess[i,
    0], the neighbours are the k rows nearest to row i in Y, and their ranks are computed from the
    scores in X. For excess[i, 1], the neighbours are the k rows nearest to row i in X, and their
    ranks are computed from the scores in Y. `X` and `Y` (n, d) hold float64 unit rows, and
    `X_panels` and `Y_panels` hold the same rows in packed form. The kernel takes O((hi - lo) n (d +
    k)) time and allocates memory for 12 n scores.
    """
    n = X.shape[0]
    x_scores = np.empty((ROWS, X_panels.shape[0] * COLUMNS))
    y_scores = np.empty((ROWS, X_panels.shape[0] * COLUMNS))
    neighbors = np.empty(k, np.int64)
    for first in range(lo, hi, ROWS):
        last = min(first + ROWS, hi)
        score_strip(first, last, X, X_panels, x_scores)
        score_strip(first, last, Y, Y_panels, y_scores)
        for i in range(first, last):
            x_row_scores, y_row_scores = x_scores[i - first, :n], y_scores[i - first, :n]
            top_k_of_row(y_row_scores, i, k, neighbors)
            excess[i, 0] = rank_excess(x_row_scores, i, neighbors)
            top_k_of_row(x_row_scores, i, k, neighbors)
            excess[i, 1] = rank_excess(y_row_scores, i, neighbors)


@borrowing_kernel
def pairs_at_most(levels, bound):
    """Return the number of pairs i < j for which levels[i] + levels[j] <= bound.

    `levels` (n,) is float64 and ascending.
    """
    total, j = 0, levels.shape[0] - 1
    for i in range(levels.shape[0]):
        while j > i and levels[i] + levels[j] > bound:
            j -= 1
        if j <= i:
            break
        total += j - i
    return total

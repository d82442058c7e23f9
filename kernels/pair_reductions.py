"""Reductions over all pairs of rows: histograms of the scores, precision and ranks in full lists.

Scores are float64 dot products in the order of the dimensions (``dot_tile``), so a score has the
same bits wherever it is computed. No kernel holds more than a strip of rows against all rows.
"""

import numpy as np

from .dot_tile import COLUMNS, ROWS, dot_tile
from .jit import kernel
from .label_ranks import precision_of_ranked
from .row_argsort import DIGITS, best_of_line, rank_row

# rows that share a panel while it is in the cache
STRIP = 16 * ROWS

# where -1 lies in the first bin: then no simple fraction, above all not 0, is at a bin's edge
OFFSET = 0.3719


@kernel
def place_of(score, n_bins):
    """Where a score of [-1, 1] lies on n_bins equal bins of width 2 / (n_bins - 2), in bins."""
    return (score + 1.0) * (0.5 * n_bins - 1.0) + OFFSET


@kernel
def count_score(score, margin, histogram, near):
    """Count a score in its bin; in near[0] too if it is within margin (in bins) of a bin's edge."""
    n_bins = histogram.shape[0]
    place = place_of(score, n_bins)
    whole = np.int64(place)
    histogram[min(max(whole, 0), n_bins - 1)] += 1
    near[0] += abs(place - whole - 0.5) > 0.5 - margin


@kernel
def pair_histograms(lo, hi, begin, stop, rows, panels, ends, margin, counts, near):
    """counts[part, 0 or 1, bin]: pairs i < j of different or the same cluster, for parts lo .. hi.

    i in the strips of 96 rows from begin up to stop.

    rows (n, d) float64 unit rows, sorted by cluster, and the same packed (``pack_rows``); the
    cluster of row i ends before row ends[i], (n,) int64; margin float: how far a score may be from
    the truth, in bins; counts (parts, 2, bins) and near (parts, 2, 1) int64, zeros, in/out: near
    counts the scores that may belong to the next bin. Part q takes every parts-th strip. O(96 n d)
    time a strip.
    """
    n, n_parts = rows.shape[0], counts.shape[0]
    tile = np.empty((ROWS, COLUMNS))
    for part in range(lo, hi):
        for strip in range((begin + part) * STRIP, min(stop * STRIP, n), n_parts * STRIP):
            for panel in range(strip // COLUMNS, panels.shape[0]):
                first = panel * COLUMNS
                for tile_row in range(strip, min(strip + STRIP, n), ROWS):
                    if first + COLUMNS <= tile_row:
                        continue
                    dot_tile(rows, tile_row, panels, panel, tile)
                    for i in range(tile_row, min(tile_row + ROWS, n, strip + STRIP)):
                        scores = tile[i - tile_row]
                        end = min(first + COLUMNS, n)
                        column = max(first, i + 1)
                        # i's own cluster begins at or before column: rows are sorted
                        border = min(max(column, ends[i]), end)
                        for j in range(column, border):
                            count_score(scores[j - first], margin, counts[part, 1], near[part, 1])
                        for j in range(border, end):
                            count_score(scores[j - first], margin, counts[part, 0], near[part, 0])


@kernel
def stratified_pair_histograms(
    lo, hi, begin, stop, rows, panels, ends, levels, cuts, margin, counts, near
):
    """Do what pair_histograms does, with counts per stratum of levels[i] + levels[j].

    levels (n,) float64; cuts (strata - 1,) float64, rising: a pair is in the stratum whose number
    is the number of cuts below its sum, which is sought from the stratum of the pair before; counts
    (parts, strata, 2, bins) and near (parts, strata, 2, 1) int64, zeros, in/out. Fastest where
    levels of neighbouring rows are alike.
    """
    n, n_parts = rows.shape[0], counts.shape[0]
    tile = np.empty((ROWS, COLUMNS))
    for part in range(lo, hi):
        for strip in range((begin + part) * STRIP, min(stop * STRIP, n), n_parts * STRIP):
            for panel in range(strip // COLUMNS, panels.shape[0]):
                first = panel * COLUMNS
                for tile_row in range(strip, min(strip + STRIP, n), ROWS):
                    if first + COLUMNS <= tile_row:
                        continue
                    dot_tile(rows, tile_row, panels, panel, tile)
                    for i in range(tile_row, min(tile_row + ROWS, n, strip + STRIP)):
                        stratum = 0
                        for j in range(max(first, i + 1), min(first + COLUMNS, n)):
                            level = levels[i] + levels[j]
                            while stratum < cuts.shape[0] and level > cuts[stratum]:
                                stratum += 1
                            while stratum > 0 and level <= cuts[stratum - 1]:
                                stratum -= 1
                            same = 1 if j < ends[i] else 0
                            count_score(
                                tile[i - tile_row, j - first],
                                margin,
                                counts[part, stratum, same],
                                near[part, stratum, same],
                            )


@kernel
def score_strip(first_row, last_row, rows, panels, scores):
    """scores[i - first_row, j] = rows[i] . row j of the packed matrix, within [-1, 1].

    scores (strip, 32 panels) float64, out: columns past the last row are 0.
    """
    tile = np.empty((ROWS, COLUMNS))
    for panel in range(panels.shape[0]):
        first = panel * COLUMNS
        for tile_row in range(first_row, last_row, ROWS):
            dot_tile(rows, tile_row, panels, panel, tile)
            for r in range(min(ROWS, last_row - tile_row)):
                line = scores[tile_row - first_row + r]
                for c in range(COLUMNS):
                    line[first + c] = min(max(tile[r, c], -1.0), 1.0)


@kernel
def write_pair_scores(lo, hi, rows, panels, ends, same_offsets, other_offsets, same, other):
    """Write the scores of all pairs i < j, those of row i from its two offsets on.

    same_offsets, other_offsets (n,) int64; same, other float64, out. O((hi - lo) n d) time.
    """
    n = rows.shape[0]
    scores = np.empty((ROWS, panels.shape[0] * COLUMNS))
    for tile_row in range(lo, hi, ROWS):
        last = min(tile_row + ROWS, hi)
        score_strip(tile_row, last, rows, panels, scores)
        for i in range(tile_row, last):
            line = scores[i - tile_row]
            end, s, o = max(ends[i], i + 1), same_offsets[i], other_offsets[i]
            same[s : s + end - i - 1] = line[i + 1 : end]
            other[o : o + n - end] = line[end:n]


@kernel
def average_precisions_at_r(lo, hi, queries, rows, panels, codes, sizes, values):
    """values[q] = MAP@R of the list of row queries[q] over all rows, for queries lo .. hi.

    (1/R) times the sum over ranks r <= R of rel(r) P(r); R is the number of other rows of the code.
    queries (n_q,) int64; rows (n, d) float64 unit rows in their own order, and the same packed;
    codes (n,) int64; sizes (C,) int64 rows per code, at least 2 for a query's; values (n_q,)
    float64, out. O((hi - lo) n d) time, 9 n scores of scratch.
    """
    n = rows.shape[0]
    strip = np.empty((ROWS, rows.shape[1]))
    scores = np.empty((ROWS, panels.shape[0] * COLUMNS))
    keys, starts = np.empty((2, n), np.int64), np.empty((3, DIGITS), np.int64)
    ranked = np.empty(n, np.int64)
    for first in range(lo, hi, ROWS):
        m = min(ROWS, hi - first)
        for r in range(m):
            strip[r] = rows[queries[first + r]]
        score_strip(0, m, strip, panels, scores)
        for r in range(m):
            i = queries[first + r]
            relevant = sizes[codes[i]] - 1
            rank_row(scores[r, :n], i, relevant, keys, starts, ranked)
            values[first + r] = precision_of_ranked(codes, i, relevant, ranked)


@kernel
def rank_excess(line, self_row, listed):
    """Sum over the k listed rows of how far their rank in the line is beyond k."""
    total, k = 0, listed.shape[0]
    for j in listed:
        score, ahead = line[j], 0
        for other in range(j):
            ahead += line[other] >= score
        for other in range(j + 1, line.shape[0]):
            ahead += line[other] > score
        # self_row is no neighbour
        ahead -= line[self_row] > score or (line[self_row] == score and self_row < j)
        total += max(ahead + 1 - k, 0)
    return total


@kernel
def rank_excess_rows(lo, hi, X, X_panels, Y, Y_panels, k, excess):
    """excess[i] = rank excess in X of i's k nearest in Y, and the reverse, for rows lo .. hi.

    X, Y (n, d) float64 unit rows and the same packed; excess (n, 2) int64, out.
    O((hi - lo) n (d + k)) time, 12 n scores of scratch.
    """
    n = X.shape[0]
    x_scores = np.empty((ROWS, X_panels.shape[0] * COLUMNS))
    y_scores = np.empty((ROWS, X_panels.shape[0] * COLUMNS))
    listed = np.empty(k, np.int64)
    for first in range(lo, hi, ROWS):
        last = min(first + ROWS, hi)
        score_strip(first, last, X, X_panels, x_scores)
        score_strip(first, last, Y, Y_panels, y_scores)
        for i in range(first, last):
            x_line, y_line = x_scores[i - first, :n], y_scores[i - first, :n]
            best_of_line(y_line, i, k, listed)
            excess[i, 0] = rank_excess(x_line, i, listed)
            best_of_line(x_line, i, k, listed)
            excess[i, 1] = rank_excess(y_line, i, listed)


@kernel
def pairs_at_most(levels, bound):
    """Number of pairs i < j with levels[i] + levels[j] <= bound; levels (n,) float64, rising."""
    total, j = 0, levels.shape[0] - 1
    for i in range(levels.shape[0]):
        while j > i and levels[i] + levels[j] > bound:
            j -= 1
        if j <= i:
            break
        total += j - i
    return total

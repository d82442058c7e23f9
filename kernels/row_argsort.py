"""Partial argsort of a row by descending score; equal scores are ordered by column number."""

import numpy as np

from .jit import borrowing_kernel
from .select import GAPS

# Scores are quantised to this many levels for a radix sort.
LEVELS = 2**32
# The number of bits per digit of the radix sort. A level consists of three digits.
DIGIT_BITS = 11
# The number of values that a digit can have.
DIGITS = 2**DIGIT_BITS
# If the difference between the highest and the lowest score lies between MIN_RANGE and MAX_RANGE,
# the scores are quantised without overflow or underflow. If the difference lies outside this range,
# all levels are 0.
MIN_RANGE = 2.0**-900
MAX_RANGE = 2.0**900
# A sort key is an integer: its lowest COLUMN_BITS bits are the column number, and the bits above
# are the level.
COLUMN_BITS = 31


@borrowing_kernel
def sort_by_score(scores, columns):
    """Sort columns in place by descending score, then by column number, with Shell's sort."""
    for gap in GAPS:
        for c in range(gap, columns.shape[0]):
            column, at = columns[c], c
            while at >= gap:
                other = columns[at - gap]
                if scores[other] > scores[column] or (
                    not scores[other] < scores[column] and other < column
                ):
                    break
                columns[at] = other
                at -= gap
            columns[at] = column


@borrowing_kernel
def level_scale(scores):
    """Return the highest score and the scale, which is the number of levels per unit of score.

    The scale is 0 if the range of the scores is not between MIN_RANGE and MAX_RANGE.
    """
    lowest = highest = scores[0]
    for score in scores:
        if score < lowest:
            lowest = score
        if score > highest:
            highest = score
    span = highest - lowest
    return highest, (LEVELS - 1) / span if MIN_RANGE < span < MAX_RANGE else 0.0


@borrowing_kernel
def level_of(score, highest, scale):
    """Return the level of a score: 0 for the highest score, LEVELS - 1 for the lowest and for NaN.

    `highest` and `scale` are the results of level_scale.
    """
    depth = (highest - score) * scale if scale > 0 else 0.0
    return np.int64(depth) if depth < LEVELS else LEVELS - 1


@borrowing_kernel
def _counting_sort(keys, shift, starts, sorted_keys):
    """Copy `keys` to `sorted_keys`, sorted by the digit at bit `shift`; the sort is stable.

    `starts` holds the number of keys for each value of the digit, and is overwritten.
    """
    total = 0
    for digit in range(starts.shape[0]):
        size, starts[digit] = starts[digit], total
        total += size
    for key in keys:
        digit = (key >> shift) & (DIGITS - 1)
        sorted_keys[starts[digit]] = key
        starts[digit] += 1


@borrowing_kernel
def radix_sort_best(scores, self_column, k, keys, starts):
    """Write the sorted keys of the columns with the best levels to keys[1].

    The function writes the keys of at least k columns, and returns the number of these columns.
    Columns with equal levels are ordered by column number. The arguments are described in
    argsort_row. No branch depends on the scores, because a CPU could not predict such a branch.
    """
    highest, scale = level_scale(scores)
    starts[:] = 0
    for j in range(scores.shape[0]):
        starts[2, level_of(scores[j], highest, scale) >> 2 * DIGIT_BITS] += 1
    starts[2, level_of(scores[self_column], highest, scale) >> 2 * DIGIT_BITS] -= 1
    digits, reached = 0, 0
    while reached < k:
        reached += starts[2, digits]
        digits += 1
    n_sorted = 0
    for j in range(scores.shape[0]):
        level = level_of(scores[j], highest, scale)
        keys[0, n_sorted] = (level << COLUMN_BITS) | j
        inside = level >> 2 * DIGIT_BITS < digits and j != self_column
        n_sorted += inside
        starts[0, level & (DIGITS - 1)] += inside
        starts[1, (level >> DIGIT_BITS) & (DIGITS - 1)] += inside
    _counting_sort(keys[0, :n_sorted], COLUMN_BITS, starts[0], keys[1, :n_sorted])
    _counting_sort(keys[1, :n_sorted], COLUMN_BITS + DIGIT_BITS, starts[1], keys[0, :n_sorted])
    _counting_sort(keys[0, :n_sorted], COLUMN_BITS + 2 * DIGIT_BITS, starts[2], keys[1, :n_sorted])
    return n_sorted


@borrowing_kernel
def argsort_row(scores, self_column, k, keys, starts, ranked):
    """Write the k best columns, except self_column, to ``ranked`` by descending score.

    Columns with equal scores are ordered by column number. `scores` (n,) is float64, with k < n <
    2^31. `keys` (2, n) int64 and `starts` (3, DIGITS) int64 are overwritten, and the columns are
    written to ranked[:k], where `ranked` (n,) is int64. A radix sort orders the columns by level.
    After the radix sort, columns with equal levels may not be in the order of their scores. In this
    case, these columns are sorted by score. If only few columns must be sorted by score, the
    function takes O(n) time.
    """
    n_sorted = radix_sort_best(scores, self_column, k, keys, starts)
    sorted_keys = keys[1, :n_sorted]
    for place in range(n_sorted):
        ranked[place] = sorted_keys[place] & ((1 << COLUMN_BITS) - 1)
    place, before = 0, np.inf
    while place < n_sorted:
        score = scores[ranked[place]]
        if not score > before:
            place, before = place + 1, score
            continue
        level, first = sorted_keys[place] >> COLUMN_BITS, place
        while first > 0 and sorted_keys[first - 1] >> COLUMN_BITS == level:
            first -= 1
        while place < n_sorted and sorted_keys[place] >> COLUMN_BITS == level:
            place += 1
        sort_by_score(scores, ranked[first:place])
        before = scores[ranked[place - 1]]


@borrowing_kernel
def top_k_of_row(scores, self_column, k, best):
    """Write the k best columns to best[:k]; leave out the column self_column.

    The columns are sorted as in argsort_row: by descending score, and by number if scores are
    equal. They are inserted into the result one by one, which takes O(n k) time in the worst case.
    """
    count = 0
    for j in range(scores.shape[0]):
        if j == self_column or (count == k and not scores[j] > scores[best[k - 1]]):
            continue
        at = count if count < k else k - 1
        while at > 0 and scores[j] > scores[best[at - 1]]:
            best[at] = best[at - 1]
            at -= 1
        best[at] = j
        count = min(count + 1, k)

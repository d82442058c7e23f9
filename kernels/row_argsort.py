"""The best of a line of scores in order: by falling score, equal scores by lower column."""

import numpy as np

from .jit import kernel

# scores are cut to whole steps, of which three digits are looked at, of so many values each
DIGIT_BITS = 11
DIGITS = 2**DIGIT_BITS
CUTS = 2**32
# a line's scores differ by more and by less than this, or they are sorted as they are
LEAST_SPAN, MOST_SPAN = 2.0**-900, 2.0**900
# a key is a score's cut and, in so many lower bits, its column
COLUMN_BITS = 31


@kernel
def sort_by_score(line, rows):
    """Order rows by falling score in the line, in place; equal scores keep their order."""
    if rows.shape[0] > 32:
        keys = np.empty(rows.shape[0])
        for c in range(rows.shape[0]):
            keys[c] = -line[rows[c]]
        rows[:] = rows[np.argsort(keys, kind="mergesort")]
        return
    for c in range(1, rows.shape[0]):
        row, at = rows[c], c
        while at > 0 and line[rows[at - 1]] < line[row]:
            rows[at] = rows[at - 1]
            at -= 1
        rows[at] = row


@kernel
def span_of(line):
    """The highest score of a line, and the steps that one unit of score makes of its CUTS."""
    lowest = highest = line[0]
    for score in line:
        if score < lowest:
            lowest = score
        if score > highest:
            highest = score
    span = highest - lowest
    return highest, (CUTS - 1) / span if LEAST_SPAN < span < MOST_SPAN else 0.0


@kernel
def cut_of(score, highest, steps):
    """Whole steps of a score below the highest one, less than CUTS, of what is no number too.

    Where no steps tell the line's scores apart, all are cut to 0.
    """
    depth = (highest - score) * steps if steps > 0 else 0.0
    return np.int64(depth) if depth < CUTS else CUTS - 1


@kernel
def _deal(keys, shift, starts, dealt):
    """Order keys by the digit at shift, in dealt; keys of one digit stay in order."""
    total = 0
    for digit in range(starts.shape[0]):
        size, starts[digit] = starts[digit], total
        total += size
    for key in keys:
        digit = (key >> shift) & (DIGITS - 1)
        dealt[starts[digit]] = key
        starts[digit] += 1


@kernel
def deal_best(line, self_row, k, keys, starts):
    """Order the rows of the k highest cuts by radix, in keys[1]; returns how many they are.

    All rows of one cut, by lower row; no branch can be mispredicted.
    """
    highest, steps = span_of(line)
    starts[:] = 0
    for j in range(line.shape[0]):
        starts[2, cut_of(line[j], highest, steps) >> 2 * DIGIT_BITS] += 1
    starts[2, cut_of(line[self_row], highest, steps) >> 2 * DIGIT_BITS] -= 1
    digits, reached = 0, 0
    while reached < k:
        reached += starts[2, digits]
        digits += 1
    found = 0
    for j in range(line.shape[0]):
        cut = cut_of(line[j], highest, steps)
        keys[0, found] = (cut << COLUMN_BITS) | j
        inside = cut >> 2 * DIGIT_BITS < digits and j != self_row
        found += inside
        starts[0, cut & (DIGITS - 1)] += inside
        starts[1, (cut >> DIGIT_BITS) & (DIGITS - 1)] += inside
    _deal(keys[0, :found], COLUMN_BITS, starts[0], keys[1, :found])
    _deal(keys[1, :found], COLUMN_BITS + DIGIT_BITS, starts[1], keys[0, :found])
    _deal(keys[0, :found], COLUMN_BITS + 2 * DIGIT_BITS, starts[2], keys[1, :found])
    return found


@kernel
def rank_row(line, self_row, k, keys, starts, ranked):
    """ranked[:k] = the k rows of highest score but self_row, by falling score, then by lower row.

    line (n,) float64; k < n < 2^31; keys (2, n) int64 and starts (3, DIGITS) int64 scratch; ranked
    (n,) int64, out. By radix on the scores cut to 32 bits (twice as fast as bins of few rows
    each); where scores of one cut are out of order they are sorted anew. O(n) time where few are.
    """
    found = deal_best(line, self_row, k, keys, starts)
    dealt = keys[1, :found]
    for place in range(found):
        ranked[place] = dealt[place] & ((1 << COLUMN_BITS) - 1)
    place, before = 0, np.inf
    while place < found:
        score = line[ranked[place]]
        if not score > before:
            place, before = place + 1, score
            continue
        cut, first = dealt[place] >> COLUMN_BITS, place
        while first > 0 and dealt[first - 1] >> COLUMN_BITS == cut:
            first -= 1
        while place < found and dealt[place] >> COLUMN_BITS == cut:
            place += 1
        sort_by_score(line, ranked[first:place])
        before = line[ranked[place - 1]]


@kernel
def best_of_line(line, self_row, k, best):
    """best[:k] = the k rows of highest score but self_row, by falling score, then by lower row."""
    found = 0
    for j in range(line.shape[0]):
        if j == self_row or (found == k and not line[j] > line[best[k - 1]]):
            continue
        at = found if found < k else k - 1
        while at > 0 and line[j] > line[best[at - 1]]:
            best[at] = best[at - 1]
            at -= 1
        best[at] = j
        found = min(found + 1, k)

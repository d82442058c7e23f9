"""Selection and sorting of the best entries of a list by descending key, then by row number.

An entry is a pair of a key, which is a score, and a row number. The order of rows with equal scores
is part of the specification of every search. Besides this module, three modules order equal scores
by row or column number. ``row_argsort`` sorts the columns of a row of scores, and
``fastcos.search.numpy_search`` sorts scores with NumPy. For a query of zeros, all scores are equal,
and ``fastcos.search.scan`` lists the rows with the lowest numbers.
"""

import numpy as np

from .jit import borrowing_kernel, kernel

# The gaps of Shell's sort. Source of _CIURA: Ciura, Best increments for the average case of
# Shellsort, FCT 2001. Each gap in _LARGER is 2.25 times the next smaller gap, rounded down to an
# integer.
_CIURA = (701, 301, 132, 57, 23, 10, 4, 1)
_LARGER = (1035711, 460316, 204585, 90927, 40412, 17961, 7983, 3548, 1577)
GAPS = np.array([*_LARGER, *_CIURA])
# Lists of at least _FEWEST_COUNTED and at most _MOST_COUNTED entries are sorted by counting, which
# is 3 times as fast as Shell's sort for 100 entries.
_FEWEST_COUNTED = 17
_MOST_COUNTED = 256


@borrowing_kernel
def kth_largest(values, count, k):
    """Return the k-th largest of values[:count], where 1 <= k <= count, and reorder the values.

    The algorithm is quickselect, which takes O(count) time on average. The partition performs one
    swap for each value. After each swap, a comparison gives 0 or 1, and the end of the first part
    moves by this number. The partition therefore has no branch that a CPU could mispredict. In a
    block, a query usually has 100 to 500 candidates. For 100 to 500 values, the partition without a
    branch is 2.5 times as fast as a partition with a branch.
    """
    low, high, target = 0, count, k - 1
    while high - low > 1:
        # The pivot is the median of three values, so that the algorithm also takes linear time for
        # a list that is already sorted.
        first, middle, last = values[low], values[(low + high) >> 1], values[high - 1]
        pivot = max(min(first, middle), min(max(first, middle), last))
        above = low
        # Only damaged rows produce NaN. If the pivot is NaN, all NaN are moved behind the other
        # values. If NaN stayed among the other values, the partition below would never end, because
        # every comparison with NaN is false.
        if pivot != pivot:
            for i in range(low, high):
                value = values[i]
                values[i] = values[above]
                values[above] = value
                above += value == value
            if target >= above:
                return pivot
            high = above
            continue
        for i in range(low, high):
            value = values[i]
            values[i] = values[above]
            values[above] = value
            above += value > pivot
        if target < above:
            high = above
            continue
        equal = above
        for i in range(above, high):
            value = values[i]
            values[i] = values[equal]
            values[equal] = value
            equal += value == pivot
        if target < equal:
            return pivot
        low = equal
    return values[low]


@borrowing_kernel
def sort_ascending(values):
    """Sort values in place by Shell's sort, because Numba takes 3 s to compile NumPy's sort."""
    for gap in GAPS:
        for i in range(gap, values.shape[0]):
            value, j = values[i], i
            while j >= gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value


@borrowing_kernel
def sort_best_first(keys, rows, count):
    """Sort the first `count` entries in place by descending key, then by row number.

    No two entries may have the same row. A NaN key, which occurs only if rows are damaged, is
    replaced with -inf. Lists of medium length are sorted by counting: for each entry, the entries
    that precede it are counted. Sorting by counting does not branch, and is 3 times as fast as
    Shell's sort for 100 entries. Shorter and longer lists are sorted by Shell's sort.
    """
    _replace_nan(keys, count)
    if _FEWEST_COUNTED <= count <= _MOST_COUNTED:
        _sort_by_counting(keys, rows, count)
        return
    for gap in GAPS:
        for i in range(gap, count):
            key, row = keys[i], rows[i]
            j = i
            while j >= gap and (
                keys[j - gap] < key or (keys[j - gap] == key and rows[j - gap] > row)
            ):
                keys[j], rows[j] = keys[j - gap], rows[j - gap]
                j -= gap
            keys[j], rows[j] = key, row


@borrowing_kernel
def _replace_nan(keys, count):
    """Replace each NaN among the first `count` keys with -inf, so that it sorts last.

    Comparisons with NaN are false. Without the replacement, a sort by comparisons could place a NaN
    before better entries, and a sort by counting could give several entries the same rank.
    """
    for i in range(count):
        if keys[i] != keys[i]:
            keys[i] = -np.inf


@kernel
def _sort_by_counting(keys, rows, count):
    """Sort like sort_best_first: for each entry, count the entries that must precede it."""
    ranks, total = np.empty(count, np.int64), 0
    for i in range(count):
        key, rank = keys[i], 0
        for j in range(count):
            rank += keys[j] > key
        ranks[i] = rank
        total += rank
    # If all keys differ, the ranks are 0, 1, ..., count - 1, and their sum is count * (count - 1) /
    # 2. If some keys are equal, the sum is smaller. A second pass then compares the row numbers of
    # the entries with equal keys.
    if total < count * (count - 1) // 2:
        for i in range(count):
            key, row = keys[i], rows[i]
            for j in range(count):
                is_before = rows[j] < row or (rows[j] == row and j < i)
                ranks[i] += (keys[j] == key) & is_before
    for i in range(count):
        while ranks[i] != i:
            rank = ranks[i]
            keys[i], keys[rank] = keys[rank], keys[i]
            rows[i], rows[rank] = rows[rank], rows[i]
            ranks[i], ranks[rank] = ranks[rank], rank


@borrowing_kernel
def select_best(keys, rows, count, k, scratch):
    """Move the best k of the first `count` entries to the front, in any order (k <= `count`).

    The function returns the k-th best key. A key that is NaN is replaced with -inf. `scratch` (>=
    count,) has the type of the keys and is overwritten.
    """
    _replace_nan(keys, count)
    for i in range(count):
        scratch[i] = keys[i]
    bound = kth_largest(scratch, count, k)
    if count > k:
        n_above = 0
        for i in range(count):
            if keys[i] > bound:
                n_above += 1
        _move_best(keys, rows, count, bound, k - n_above)
    return bound


@borrowing_kernel
def keep_best(keys, rows, count, k, scratch):
    """Move the best k of the first `count` entries to the front, sorted; return min(k, count).

    A key that is NaN is replaced with -inf. `scratch` (>= count,) has the type of the keys and is
    overwritten.
    """
    if count > k:
        select_best(keys, rows, count, k, scratch)
        count = k
    sort_best_first(keys, rows, count)
    return count


@borrowing_kernel
def _move_best(keys, rows, count, bound, ties):
    """Move all entries above the bound, and `ties` entries that equal the bound, to the front.

    The key of each entry is compared with the bound. Among the entries whose keys equal the bound,
    those with the lowest row numbers are moved; `ties` says how many.
    """
    n_equal = 0
    for i in range(count):
        if keys[i] == bound:
            n_equal += 1
    # An entry whose key equals the bound is moved only if its row number is at most last_row. If
    # last_row is -1, every entry whose key equals the bound is moved.
    last_row = rows[0] * 0 - 1
    if n_equal > ties:
        last_row = _nth_lowest_row(keys, rows, count, bound, ties)
    position = 0
    for i in range(count):
        if keys[i] > bound or (keys[i] == bound and (last_row < 0 or rows[i] <= last_row)):
            keys[position], rows[position] = keys[i], rows[i]
            position += 1


@borrowing_kernel
def _nth_lowest_row(keys, rows, count, bound, n):
    """Among the entries whose keys equal the bound, find the n-th lowest row by bisection.

    No two entries may have the same row.
    """
    low, high = rows[0] * 0, rows[0]
    for i in range(count):
        high = max(high, rows[i])
    while low < high:
        middle = (low + high) >> 1
        below = 0
        for i in range(count):
            if keys[i] == bound and rows[i] <= middle:
                below += 1
        if below >= n:
            high = middle
        else:
            low = middle + 1
    return low


@borrowing_kernel
def write_best(scores, rows, count, scores_out, rows_out):
    """Copy `count` <= k sorted entries to scores_out and rows_out (k,), padded with -inf and -1."""
    for j in range(rows_out.shape[0]):
        if j < count:
            scores_out[j], rows_out[j] = scores[j], rows[j]
        else:
            scores_out[j], rows_out[j] = -np.inf, -1

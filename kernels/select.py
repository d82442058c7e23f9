"""Selecting and ordering the best of a list: by falling key, equal keys by lower column."""

import numpy as np

from .jit import kernel


@kernel
def kth_largest(values, count, k):
    """k-th largest of values[:count] (1 <= k <= count); reorders them. Mean O(count).

    The partition swaps always and moves its end by a comparison's 0 or 1: no branch to mispredict,
    2.5x on the 100 to 500 values of a query's candidates.
    """
    low, high, target = 0, count, k - 1
    while high - low > 1:
        # the middle of three, so that sorted lists stay linear
        first, middle, last = values[low], values[(low + high) >> 1], values[high - 1]
        pivot = max(min(first, middle), min(max(first, middle), last))
        above = low
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


@kernel
def _comes_after(key, column, other_key, other_column):
    return key < other_key or (key == other_key and column > other_column)


@kernel
def sort_best_first(keys, columns, count):
    """Sort the first count pairs in place: falling key, equal keys by lower column; columns differ.

    Middling counts by counting what comes before each pair, which has no branch: 3x on 100 pairs.
    Others by Shell's sort with Ciura's gaps: by insertion where they are few.
    """
    if 16 < count <= 256:
        _sort_by_rank(keys, columns, count)
        return
    gap = 1
    while gap < count:
        gap = next_gap(gap)
    while gap > 1:
        smaller = 1
        while next_gap(smaller) < gap:
            smaller = next_gap(smaller)
        gap = smaller
        for i in range(gap, count):
            key, column = keys[i], columns[i]
            j = i
            while j >= gap and _comes_after(keys[j - gap], columns[j - gap], key, column):
                keys[j], columns[j] = keys[j - gap], columns[j - gap]
                j -= gap
            keys[j], columns[j] = key, column


@kernel
def _sort_by_rank(keys, columns, count):
    ranks = np.empty(count, np.int64)
    for i in range(count):
        key, column, rank = keys[i], columns[i], 0
        for j in range(count):
            rank += (keys[j] > key) | ((keys[j] == key) & (columns[j] < column))
        ranks[i] = rank
    for i in range(count):
        while ranks[i] != i:
            to = ranks[i]
            keys[i], keys[to] = keys[to], keys[i]
            columns[i], columns[to] = columns[to], columns[i]
            ranks[i], ranks[to] = ranks[to], to


@kernel
def next_gap(gap):
    """1, 4, 10, 23, 57, 132, 301, 701, then 2.25 times the last."""
    if gap < 4:
        return 4
    if gap < 10:
        return 10
    if gap < 23:
        return 23
    if gap < 57:
        return 57
    if gap < 132:
        return 132
    if gap < 301:
        return 301
    if gap < 701:
        return 701
    return gap * 9 // 4


@kernel
def keep_best(keys, columns, count, k, scratch):
    """Bring the best k pairs of the first count to the front, in order; returns how many.

    scratch (>= count,) of the keys' type is overwritten.
    """
    if count > k:
        for i in range(count):
            scratch[i] = keys[i]
        bound = kth_largest(scratch, count, k)
        above = 0
        for i in range(count):
            if keys[i] > bound:
                above += 1
        _gather_best(keys, columns, count, bound, k - above)
        count = k
    sort_best_first(keys, columns, count)
    return count


@kernel
def _gather_best(keys, columns, count, bound, ties):
    """Move to the front what is above the bound and the `ties` lowest columns of what equals it."""
    equal = 0
    for i in range(count):
        if keys[i] == bound:
            equal += 1
    last = columns[0] * 0 - 1
    if equal > ties:
        last = _nth_lowest_column(keys, columns, count, bound, ties, equal)
    kept = 0
    for i in range(count):
        if keys[i] > bound or (keys[i] == bound and (last < 0 or columns[i] <= last)):
            keys[kept], columns[kept] = keys[i], columns[i]
            kept += 1


@kernel
def _nth_lowest_column(keys, columns, count, bound, n, equal):
    """n-th lowest column among the keys that equal the bound, by bisection; columns differ."""
    low, high = columns[0] * 0, columns[0]
    for i in range(count):
        high = max(high, columns[i])
    while low < high:
        middle = (low + high) >> 1
        below = 0
        for i in range(count):
            if keys[i] == bound and columns[i] <= middle:
                below += 1
        if below >= n:
            high = middle
        else:
            low = middle + 1
    return low

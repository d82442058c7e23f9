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
def _insert(keys, columns, low, high):
    for i in range(low + 1, high):
        key, column = keys[i], columns[i]
        j = i
        while j > low and _comes_after(keys[j - 1], columns[j - 1], key, column):
            keys[j], columns[j] = keys[j - 1], columns[j - 1]
            j -= 1
        keys[j], columns[j] = key, column


@kernel
def _split(keys, columns, low, high):
    """Partition the pairs low .. high around one of them; return where it now stands."""
    middle = (low + high) >> 1
    # the middle of three goes last, as the pivot
    for i, j in ((low, middle), (low, high - 1), (high - 1, middle)):
        if _comes_after(keys[i], columns[i], keys[j], columns[j]):
            keys[i], keys[j] = keys[j], keys[i]
            columns[i], columns[j] = columns[j], columns[i]
    pivot, pivot_column = keys[high - 1], columns[high - 1]
    split = low
    for i in range(low, high - 1):
        key, column = keys[i], columns[i]
        keys[i], columns[i] = keys[split], columns[split]
        keys[split], columns[split] = key, column
        split += (key > pivot) | ((key == pivot) & (column < pivot_column))
    keys[high - 1], columns[high - 1] = keys[split], columns[split]
    keys[split], columns[split] = pivot, pivot_column
    return split


@kernel
def sort_best_first(keys, columns, low, high):
    """Sort the pairs low .. high in place: falling key, equal keys by lower column.

    No recursion: the compiled code of a numba function that calls itself cannot always be linked
    when it comes back from the disk, and LLVM then ends the process.
    """
    if high - low <= 16:
        _insert(keys, columns, low, high)
        return
    # the larger part waits, so that log2 of the count places are enough
    waiting = np.empty((64, 2), np.int64)
    depth = 0
    while True:
        while high - low > 16:
            split = _split(keys, columns, low, high)
            if split - low < high - split:
                waiting[depth, 0], waiting[depth, 1] = split + 1, high
                high = split
            else:
                waiting[depth, 0], waiting[depth, 1] = low, split
                low = split + 1
            depth += 1
        _insert(keys, columns, low, high)
        if depth == 0:
            return
        depth -= 1
        low, high = waiting[depth, 0], waiting[depth, 1]


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
    sort_best_first(keys, columns, 0, count)
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

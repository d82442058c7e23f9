"""Selecting and ordering the best of a list: by falling key, equal keys by lower column."""

from .jit import kernel


@kernel
def kth_largest(values, count, k):
    """k-th largest of values[:count] (1 <= k <= count); reorders them. Mean O(count)."""
    low, high, target = 0, count - 1, k - 1
    while low < high:
        # the middle of three, so that sorted and constant lists stay linear
        first, middle, last = values[low], values[(low + high) >> 1], values[high]
        pivot = max(min(first, middle), min(max(first, middle), last))
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if target <= j:
            high = j
        elif target >= i:
            low = i
        else:
            break
    return values[target]


@kernel
def _comes_after(key, column, other_key, other_column):
    return key < other_key or (key == other_key and column > other_column)


@kernel
def _sink(keys, columns, root, count):
    key, column = keys[root], columns[root]
    while True:
        child = 2 * root + 1
        if child >= count:
            break
        if child + 1 < count and _comes_after(
            keys[child + 1], columns[child + 1], keys[child], columns[child]
        ):
            child += 1
        if not _comes_after(keys[child], columns[child], key, column):
            break
        keys[root], columns[root] = keys[child], columns[child]
        root = child
    keys[root], columns[root] = key, column


@kernel
def sort_best_first(keys, columns, count):
    """Sort the first count pairs in place: falling key, equal keys by lower column."""
    if count <= 48:
        for i in range(1, count):
            key, column = keys[i], columns[i]
            j = i
            while j > 0 and _comes_after(keys[j - 1], columns[j - 1], key, column):
                keys[j], columns[j] = keys[j - 1], columns[j - 1]
                j -= 1
            keys[j], columns[j] = key, column
        return
    # a heap whose root comes last, emptied from the back
    for root in range(count // 2 - 1, -1, -1):
        _sink(keys, columns, root, count)
    for last in range(count - 1, 0, -1):
        keys[0], keys[last] = keys[last], keys[0]
        columns[0], columns[last] = columns[last], columns[0]
        _sink(keys, columns, 0, last)


@kernel
def keep_best(keys, columns, count, k, scratch):
    """Bring the best k pairs of the first count to the front, in order; returns how many.

    scratch (>= count,) of the keys' type is overwritten.
    """
    if count > k:
        scratch[:count] = keys[:count]
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

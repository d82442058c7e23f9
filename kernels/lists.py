"""Short lists of items: the best of a list, distances of two lists."""

import numpy as np

from .jit import kernel
from .pair_scores import pair_keys
from .select import keep_best, kth_largest
from .topk import write_run


@kernel
def best_of_lists(lo, hi, listed, listed_keys, keys, columns):
    """The best k of every list, for lists lo .. hi: by falling key, equal keys by lower item.

    listed (n, c) int64, -1 for no item; listed_keys (n, c) float64; keys (n, k) float64, columns
    (n, k) int64 out, padded by -inf and -1. O((hi - lo) c).
    """
    c = listed.shape[1]
    some, some_keys, scratch = np.empty(c, np.int64), np.empty(c), np.empty(c)
    for i in range(lo, hi):
        count = 0
        for entry in range(c):
            some[count], some_keys[count] = listed[i, entry], listed_keys[i, entry]
            count += listed[i, entry] >= 0
        count = keep_best(some_keys, some, count, columns.shape[1], scratch)
        write_run(some_keys, some, count, keys[i], columns[i])


@kernel
def likely_of_mutual_lists(
    lo, hi, numbers, k, listed, listed_keys, naming_indptr, naming, naming_keys, errors, floors,
    counts, columns,
):  # fmt: skip
    """Floors of the k-th best listed key of items numbers[lo:hi], and what listed items reach them.

    listed, listed_keys (p, c): every item's list, without itself, and its keys; naming and its
    keys: from naming_indptr[j] on the items on whose list j is, rising, and j's keys with them; a
    key with item b is known to within errors[b]. Out: floors (n,) float64, -inf where fewer than k
    are listed; counts (n,) int64: how many listed items may reach them; columns (n, room) int64:
    the first `room` of these. O(c) time per naming item.
    """
    c, room = listed.shape[1], columns.shape[1]
    longest = 0
    for i in range(lo, hi):
        longest = max(longest, naming_indptr[numbers[i] + 1] - naming_indptr[numbers[i]])
    some, keys = np.empty(c + longest, np.int64), np.empty(c + longest)
    lower = np.empty(c + longest)
    for i in range(lo, hi):
        number, count = numbers[i], c
        for entry in range(c):
            some[entry], keys[entry] = listed[number, entry], listed_keys[number, entry]
        for at in range(naming_indptr[number], naming_indptr[number + 1]):
            other, known = naming[at], False
            for entry in range(c):
                known |= some[entry] == other
            some[count], keys[count] = other, naming_keys[at]
            count += not known
        for entry in range(count):
            lower[entry] = keys[entry] - errors[some[entry]]
        floor = kth_largest(lower, count, k) if count >= k else -np.inf
        floors[i], kept = floor, 0
        for entry in range(count):
            if keys[entry] + errors[some[entry]] >= floor:
                if kept < room:
                    columns[i, kept] = some[entry]
                kept += 1
        counts[i] = kept


@kernel
def best_of_scored_lists(
    lo, hi, form, queries, query_norms, items, item_norms, item_offsets, counts, listed, keys,
    columns,
):  # fmt: skip
    """The best k by key of the first counts[i] items of listed[i], for queries lo .. hi.

    queries (n, d), items (p, d) of one dtype; norms and offsets float64; counts (n,), listed
    (n, room) int64. keys (n, k) float64, columns (n, k) int64 out, padded by -inf and -1.
    """
    room, k = listed.shape[1], columns.shape[1]
    some, some_keys, scratch = np.empty(room, np.int64), np.empty(room), np.empty(room)
    for i in range(lo, hi):
        count = counts[i]
        some[:count] = listed[i, :count]
        pair_keys(
            form, queries, i, query_norms[i], items, item_norms, item_offsets, some, count,
            some_keys,
        )  # fmt: skip
        count = keep_best(some_keys, some, count, k, scratch)
        write_run(some_keys, some, count, keys[i], columns[i])


@kernel
def doubled_kendall_rows(lo, hi, places, doubled):
    """doubled[i] = twice the Kendall distance K^(1/2) of two lists of k items, for lists lo .. hi.

    places (n, k) int64: where item a of the first list is in the second, -1 where it is not;
    doubled (n,) int64, out. O((hi - lo) k k) time.
    """
    k = places.shape[1]
    for i in range(lo, hi):
        total, shared = 0, 0
        for a in range(k):
            here = places[i, a]
            if here < 0:
                continue
            # items of one list only that are ahead of a shared one: a + here, less the shared
            total += a + here
            for other in range(a):
                total += places[i, other] > here
            shared += 1
        total -= shared * (shared - 1)
        alone = k - shared
        # one item in each list only; two in one list only, at 1/2
        doubled[i] = 2 * (total + alone * alone) + alone * (alone - 1)

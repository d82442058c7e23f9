"""Short lists of items: the best of a list, distances of two lists."""

import numpy as np

from .exhaustive_top_k import write_run
from .jit import kernel
from .pair_scores import pair_keys
from .select import keep_best, kth_largest


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
def best_of_mutual_lists(
    lo, hi, numbers, form, queries, query_norms, items, item_norms, item_offsets, listed,
    listed_keys, naming_indptr, naming, naming_keys, errors, ceilings, floors, done, keys, columns,
):  # fmt: skip
    """The best k of items numbers[lo:hi] on their lists, where nothing else can be better.

    queries (n, d), items (p, d) of one dtype; norms and offsets float64. listed, listed_keys
    (p, c): every item's list, without itself, and its keys; naming and its keys: from
    naming_indptr[j] on the items on whose list j is, rising, and j's keys with them; a key with
    item b is known to within errors[b]; ceilings (p,): no other key exceeds them.
    Out: floors (n,) float64, a key that k items have, -inf where fewer than k are listed; done (n,)
    uint8, whether it exceeds the ceiling; and where it does keys (n, k) float64 and columns (n, k)
    int64. O(c) time per naming item.
    """
    c, k = listed.shape[1], columns.shape[1]
    longest = 0
    for i in range(lo, hi):
        longest = max(longest, naming_indptr[numbers[i] + 1] - naming_indptr[numbers[i]])
    some, known = np.empty(c + longest, np.int64), np.empty(c + longest)
    scratch = np.empty(c + longest)
    for i in range(lo, hi):
        number, count = numbers[i], c
        for entry in range(c):
            some[entry], known[entry] = listed[number, entry], listed_keys[number, entry]
        for at in range(naming_indptr[number], naming_indptr[number + 1]):
            other, twice = naming[at], False
            for entry in range(c):
                twice |= some[entry] == other
            some[count], known[count] = other, naming_keys[at]
            count += not twice
        for entry in range(count):
            scratch[entry] = known[entry] - errors[some[entry]]
        floor = kth_largest(scratch, count, k) if count >= k else -np.inf
        floors[i], done[i] = floor, floor > ceilings[number]
        if not done[i]:
            continue
        kept = 0
        for entry in range(count):
            some[kept] = some[entry]
            kept += known[entry] + errors[some[entry]] >= floor
        pair_keys(
            form, queries, i, query_norms[i], items, item_norms, item_offsets, some, kept, known
        )
        kept = keep_best(known, some, kept, k, scratch)
        write_run(known, some, kept, keys[i], columns[i])


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

"""Short lists of items: the best of a list, distances of two lists."""

import numpy as np

from .exhaustive_top_k import write_run
from .jit import kernel
from .select import keep_best


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

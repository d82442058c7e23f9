"""Distances of two short lists of items."""

from .jit import kernel


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

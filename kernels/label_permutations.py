"""Statistics of labels that are permuted among items: of neighbour lists, and of ranks of pairs."""

import numpy as np

from .jit import kernel


@kernel
def count_same(lo, hi, permuted, lists, same, known):
    """Neighbours with the label of their query, by that label, in permutations lo .. hi.

    permuted (r, m) int32: labels, the first n of queries; lists (n, k) int64: their neighbours, -1
    for none; same, known (r, C) int64 out: neighbours of the label, and all, of a label's queries.
    """
    for number in range(lo, hi):
        codes = permuted[number]
        same[number] = 0
        known[number] = 0
        for i in range(lists.shape[0]):
            own = codes[i]
            for item in lists[i]:
                if item >= 0:
                    known[number, own] += 1
                    same[number, own] += codes[item] == own


@kernel
def sum_ranks(lo, hi, permuted, ranks, sums):
    """Ranks of the pairs of one label, summed by label, in permutations lo .. hi.

    permuted (r, n) int32 labels; ranks (n, n) int16 or int32; sums (r, C) int64 out.
    """
    n, n_labels = permuted.shape[1], sums.shape[1]
    starts, members = np.empty(n_labels + 1, np.int64), np.empty(n, np.int64)
    for number in range(lo, hi):
        codes = permuted[number]
        starts[:] = 0
        for code in codes:
            starts[code + 1] += 1
        for code in range(n_labels):
            starts[code + 1] += starts[code]
        for i in range(n):  # counting sort by label
            members[starts[codes[i]]] = i
            starts[codes[i]] += 1
        first = 0
        for code in range(n_labels):
            total = 0
            for a in range(first, starts[code]):
                row = ranks[members[a]]
                for b in range(first, starts[code]):
                    total += row[members[b]]
            sums[number, code] = total
            first = starts[code]

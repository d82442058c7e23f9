"""Statistics under permuted labels: counts of neighbours with equal labels, and sums of ranks.

A label is represented by its code, an integer that is at least 0.
"""

import numpy as np

from .jit import kernel


@kernel
def count_same(lo, hi, permuted, lists, n_same, n_neighbors):
    """In each permutation from lo to hi, count the neighbours that have the label of their query.

    `permuted` (r, m) int32 holds the labels of all m items in each of r permutations; the first n
    items are the queries. `lists` (n, k) int64 holds the neighbours of the queries, padded with -1.
    The outputs have the shape (r, C) and are int64. Each permutation gives each query one of C
    labels. For each permutation and each label, `n_neighbors` is the number of all neighbours of
    the queries with this label, and `n_same` is the number of those neighbours that also have this
    label.
    """
    for number in range(lo, hi):
        codes = permuted[number]
        n_same[number] = 0
        n_neighbors[number] = 0
        for i in range(lists.shape[0]):
            label = codes[i]
            for item in lists[i]:
                if item >= 0:
                    n_neighbors[number, label] += 1
                    n_same[number, label] += codes[item] == label


@kernel
def sum_ranks(lo, hi, permuted, ranks, sums):
    """For each label, add up ranks[i, j] over all items i and j with this label.

    The kernel processes the permutations lo to hi. `permuted` (r, n) int32 holds the labels of n
    items in each of r permutations. `ranks` (n, n), int16 or int32, holds the rank of each pair of
    items. The sums for the C labels are written to `sums` (r, C) int64.
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

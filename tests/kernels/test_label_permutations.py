"""Statistics of permuted labels, compared with loops over pairs."""

import numpy as np

from fastcos.kernels import label_permutations
from tests.kernels.inputs import frozen


def permuted_labels():
    rng = np.random.default_rng(0)
    permuted = np.stack([rng.permutation(np.arange(14) % 3) for _ in range(4)]).astype(np.int32)
    return rng, permuted


def test_count_same_counts_neighbours_of_the_label():
    rng, permuted = permuted_labels()
    lists = np.where(rng.random((6, 5)) < 0.2, -1, rng.integers(0, 14, (6, 5)))
    same, known = np.full((2, 4, 3), -7)
    label_permutations.count_same(1, 3, *frozen(permuted, lists), same, known)
    for r in (1, 2):
        codes = permuted[r]
        for label in range(3):
            near = [j for i in range(6) if codes[i] == label for j in lists[i] if j >= 0]
            assert known[r, label] == len(near)
            assert same[r, label] == sum(codes[j] == label for j in near)
    assert (same[[0, 3]] == -7).all()


def test_sum_ranks_sums_pairs_of_one_label():
    rng, permuted = permuted_labels()
    ranks = rng.integers(0, 30, (14, 14)).astype(np.int16)
    sums = np.full((4, 3), -7)
    label_permutations.sum_ranks(1, 3, *frozen(permuted, ranks), sums)
    for r in (1, 2):
        for label in range(3):
            of = permuted[r] == label
            assert sums[r, label] == ranks[np.ix_(of, of)].sum()
    assert (sums[[0, 3]] == -7).all()

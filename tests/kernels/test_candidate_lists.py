import numpy as np
import pytest

from fastcos.kernels import candidate_lists
from fastcos.kernels.pair_scores import DOT


@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_best_of_lists_read_both_ways(k):
    """Item 0 is on every list; exact keys tie, and listed ones are off by up to their errors."""
    random = np.random.default_rng(k)
    p, c = 12, 3
    rows, items = random.integers(-2, 3, (2, p, 3)) + 0.0
    offsets = random.integers(-1, 2, p) + 0.0
    exact = rows @ items.T + offsets
    errors = random.choice([0.0, 0.75], p)
    every = exact + errors * random.uniform(-1, 1, (p, p))
    listed = np.zeros((p, c), np.int64)
    for i in range(p):
        others = np.setdiff1d(np.arange(1, p), [i])
        first = 0 if i else others[0]
        listed[i] = first, *random.choice(others[others != first], c - 1, replace=False)
    naming = [np.flatnonzero((listed == j).any(axis=1)) for j in range(p)]
    indptr = np.append(0, np.cumsum([len(one) for one in naming]))
    named_keys = np.concatenate([every[j, naming[j]] for j in range(p)])
    numbers = np.array([0, 3, 5, 7, 11])
    ceilings = np.where(np.arange(p) == 5, 99.0, -99.0)
    n = len(numbers)
    floors, done = np.full(n, np.nan), np.full(n, 249, np.uint8)
    keys, columns = np.full((n, k), np.nan), np.full((n, k), -7)
    candidate_lists.best_of_mutual_lists(
        0, n, numbers, DOT, rows[numbers], np.zeros(n), items, np.zeros(p), offsets, listed,
        np.take_along_axis(every, listed, axis=1), indptr, np.concatenate(naming), named_keys,
        errors, ceilings, floors, done, keys, columns,
    )  # fmt: skip
    for row, i in enumerate(numbers):
        met = np.union1d(listed[i], naming[i])
        least = -np.sort(errors[met] - every[i, met])
        assert floors[row] == (least[k - 1] if len(met) >= k else -np.inf)
        assert done[row] == (i != 5 and len(met) >= k)
        if not done[row]:
            assert (columns[row] == -7).all()
            continue
        order = np.lexsort([met, -exact[i, met]])[:k]
        assert columns[row].tolist() == met[order].tolist()
        np.testing.assert_array_equal(keys[row], exact[i, met[order]])

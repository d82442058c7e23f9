import numpy as np
import pytest

from fastcos.kernels import lists
from fastcos.kernels.pair_scores import DOT


@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_best_of_lists_read_both_ways(k):
    """Item 0 is on every list; keys tie, so that lower items must come first."""
    random = np.random.default_rng(k)
    p, c = 12, 2
    items = random.integers(-2, 3, (p, 3)) + 0.0
    offsets = random.integers(-1, 2, p) + 0.0
    listed = np.zeros((p, c), np.int64)
    for i in range(p):
        others = np.setdiff1d(np.arange(1, p), [i])
        first = 0 if i else others[0]
        listed[i] = first, random.choice(others[others != first])
    naming = [np.flatnonzero((listed == j).any(axis=1)) for j in range(p)]
    indptr = np.append(0, np.cumsum([len(one) for one in naming]))
    numbers = np.array([0, 3, 5, 11])
    norms = np.linalg.norm(items, axis=1)
    keys, columns = np.full((4, k), np.nan), np.full((4, k), -7)
    lists.best_of_mutual_lists(
        0, 4, DOT, items[numbers], norms[numbers], items, norms, offsets, numbers, listed, indptr,
        np.concatenate(naming), keys, columns,
    )  # fmt: skip
    for row, i in enumerate(numbers):
        met = np.union1d(listed[i], naming[i])
        scores = items[met] @ items[i] + offsets[met]
        order = np.lexsort([met, -scores])[:k]
        assert columns[row, : len(order)].tolist() == met[order].tolist()
        np.testing.assert_array_equal(keys[row, : len(order)], scores[order])
        assert (columns[row, len(order) :] == -1).all()
        assert (keys[row, len(order) :] == -np.inf).all()

import numpy as np
import pytest

from fastcos.kernels import lists
from fastcos.kernels.pair_scores import DOT


@pytest.mark.parametrize("room", [2, 12])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_floors_of_lists_read_both_ways(k, room):
    """Item 0 is on every list; keys tie, and some are uncertain."""
    random = np.random.default_rng(k)
    p, c = 12, 2
    every = random.integers(-2, 3, (p, p)) + 0.0
    errors = random.choice([0.0, 0.75], p)
    listed = np.zeros((p, c), np.int64)
    for i in range(p):
        others = np.setdiff1d(np.arange(1, p), [i])
        first = 0 if i else others[0]
        listed[i] = first, random.choice(others[others != first])
    naming = [np.flatnonzero((listed == j).any(axis=1)) for j in range(p)]
    indptr = np.append(0, np.cumsum([len(one) for one in naming]))
    named_keys = np.concatenate([every[j, naming[j]] for j in range(p)])
    numbers = np.array([0, 3, 5, 11])
    floors, counts = np.full(4, np.nan), np.full(4, -7)
    columns = np.full((4, room), -7)
    lists.likely_of_mutual_lists(
        0, 4, numbers, k, listed, np.take_along_axis(every, listed, axis=1), indptr,
        np.concatenate(naming), named_keys, errors, floors, counts, columns,
    )  # fmt: skip
    for row, i in enumerate(numbers):
        met = np.union1d(listed[i], naming[i])
        least = -np.sort(errors[met] - every[i, met])
        floor = least[k - 1] if len(met) >= k else -np.inf
        reaching = met[every[i, met] + errors[met] >= floor]
        assert floors[row] == floor
        assert counts[row] == len(reaching)
        kept = columns[row, : min(room, len(reaching))]
        assert len(set(kept.tolist())) == len(kept)
        assert np.isin(kept, reaching).all()
        assert (columns[row, len(kept) :] == -7).all()


@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_best_of_scored_lists(k):
    """Lists of 0 to 5 items whose keys tie, so that lower items must come first."""
    random = np.random.default_rng(k)
    items = random.integers(-2, 3, (12, 3)) + 0.0
    offsets = random.integers(-1, 2, 12) + 0.0
    queries = random.integers(-2, 3, (6, 3)) + 0.0
    counts = np.arange(6)
    listed = np.argsort(random.random((6, 12)), axis=1)[:, :5].astype(np.int64)
    keys, columns = np.full((6, k), np.nan), np.full((6, k), -7)
    lists.best_of_scored_lists(
        0, 6, DOT, queries, np.linalg.norm(queries, axis=1), items,
        np.linalg.norm(items, axis=1), offsets, counts, listed, keys, columns,
    )  # fmt: skip
    for i, count in enumerate(counts):
        some = listed[i, :count]
        scores = items[some] @ queries[i] + offsets[some]
        order = np.lexsort([some, -scores])[:k]
        assert columns[i, : len(order)].tolist() == some[order].tolist()
        np.testing.assert_array_equal(keys[i, : len(order)], scores[order])
        assert (columns[i, len(order) :] == -1).all()
        assert (keys[i, len(order) :] == -np.inf).all()

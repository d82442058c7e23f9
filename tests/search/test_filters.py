"""Each method of filtered search finds the same neighbours as a search of only allowed items."""

import functools

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import SimilarityIndex
from fastcos.search.request import as_request
from tests.oracles import dense as dense_oracle

RANDOM = np.random.default_rng(5)
ROWS = RANDOM.standard_normal((3000, 24)).astype(np.float32)
ROWS[2500:] = ROWS[:500]  # Equal scores are ordered by position.
NAMES = [f"item {number}" for number in RANDOM.permutation(3000)]


def changed_index(measure):
    """Return an index of several segments, and the positions of the items that were not removed."""
    index = SimilarityIndex(measure).fit(ROWS[:2000], NAMES[:2000])
    index.add(ROWS[2000:2400], NAMES[2000:2400])
    index.add(ROWS[2400:], NAMES[2400:])
    gone = RANDOM.choice(3000, 300, replace=False)
    index.remove([NAMES[position] for position in gone])
    return index, np.setdiff1d(np.arange(3000), gone)


@functools.cache
def index_of(measure, is_changed):
    """Return an index that the tests search but do not change, and its positions."""
    if is_changed:
        return changed_index(measure)
    return SimilarityIndex(measure).fit(ROWS, NAMES), np.arange(3000)


@pytest.mark.parametrize(
    ("measure", "is_changed"),
    [
        ("cosine", True),
        ("dot", False),
        pytest.param("cosine", False, marks=pytest.mark.slow),
        pytest.param("dot", True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "n_queries", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 30)), 130]
)
@pytest.mark.parametrize(
    "n_allowed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (9, 60, 700)), 200, 2900]
)
def test_filtered_answers_are_exact(measure, is_changed, n_queries, n_allowed):
    index, live = index_of(measure, is_changed)
    random = np.random.default_rng(n_queries + n_allowed)
    Q = random.standard_normal((n_queries, 24)).astype(np.float32)
    Q[0] = ROWS[7]
    allowed = random.choice(3000, n_allowed, replace=False)
    excluded = np.ones((n_queries, 3000), bool)
    excluded[:, np.intersect1d(allowed, live)] = False
    columns, _ = dense_oracle.top_k(Q, ROWS, 12, measure, excluded=excluded)
    names = [NAMES[position] for position in allowed]
    others = sorted(set(NAMES) - set(names))
    mask = np.zeros(3000, bool)
    mask[allowed] = True
    for filters in (
        {"allowed": allowed}, {"allowed": mask}, {"allowed_ids": names},
        {"exclude_ids": others}, {"allowed_ids": [names] * n_queries},
        {"exclude_ids": [others] * n_queries},
    ):  # fmt: skip
        result = index.search(Q, 12, **filters)
        np.testing.assert_array_equal(result.indices, columns, err_msg=str(list(filters)))
        expected = [[NAMES[one] if one >= 0 else "" for one in row] for row in columns]
        assert result.ids.tolist() == expected


@pytest.mark.parametrize("n_queries", [1, 130])
@pytest.mark.parametrize(
    "n_excluded", [20, 2995, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 64, 65))]
)
def test_excluded_ids_are_dropped_and_nothing_else(n_queries, n_excluded):
    index = SimilarityIndex().fit(ROWS, NAMES)
    Q = ROWS[:n_queries]
    # without the exclusion, these items would be found
    near = index.search(Q[:1], n_excluded).indices[0]
    excluded = np.zeros((n_queries, 3000), bool)
    excluded[:, near] = True
    columns, _ = dense_oracle.top_k(Q, ROWS, 9, "cosine", excluded=excluded)
    names = [NAMES[position] for position in near]
    result = index.search(Q, 9, exclude_ids=[*names, "unknown"])
    np.testing.assert_array_equal(result.indices, columns)
    twice = index.search(Q, 9, exclude_ids=names, allowed=np.arange(3000), min_score=-1.0)
    np.testing.assert_array_equal(twice.indices, columns)
    excluded[:, 1::2] = True
    columns, _ = dense_oracle.top_k(Q, ROWS, 9, "cosine", excluded=excluded)
    even = index.search(Q, 9, exclude_ids=names, allowed=np.arange(0, 3000, 2))
    np.testing.assert_array_equal(even.indices, columns)


def test_lists_of_ids_may_be_shared_mixed_and_repeated():
    index = SimilarityIndex().fit(ROWS[:50], NAMES[:50])
    shared = NAMES[3:9]
    lists = [shared, NAMES[:2] * 3, shared, np.array(NAMES[10:12]), None, {"unknown"}, set(shared)]
    result = index.search(ROWS[:7], 6, allowed_ids=lists)
    for row, names in zip(result.ids.tolist(), lists, strict=True):
        expected = set() if names is None else {str(name) for name in names} - {"unknown"}
        assert {name for name in row if name} == expected
    numbered = SimilarityIndex().fit(ROWS[:50])
    for wrong in ([[1, True]], [[1, 2.0]], [["a", 1]]):
        with pytest.raises(TypeError, match="allowed_ids must hold whole numbers or strings"):
            numbered.search(ROWS[:1], 2, allowed_ids=wrong)
    with pytest.raises(TypeError, match="allowed_ids must be whole numbers, like the ids"):
        numbered.search(ROWS[:1], 2, allowed_ids=[["a"]])


@pytest.mark.parametrize("allowed", [[0, 1], sp.eye_array(2, 4)])
def test_a_request_refuses_allowed_items_in_two_forms(allowed):
    lists = np.array([0, 1, 2]), np.array([2, 3])
    with pytest.raises(ValueError, match="allowed must be None with lists, got"):
        as_request(1, 2, 4, allowed=allowed, lists=lists)

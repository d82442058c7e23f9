import numpy as np
import pytest

from fastcos.engine import duplicates
from fastcos.engine.packing import encode_rows
from fastcos.neighbors.index import SimilarityIndex
from fastcos.neighbors.search import top_k
from tests.oracles.compare import assert_same_bits


def copies(n_distinct, n, d, seed=0):
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((n_distinct, d)).astype(np.float32)
    return base[rng.integers(0, n_distinct, n)]


def groups_of(X, bias=None):
    return duplicates.find_duplicates(encode_rows(X, bias, None, "dot"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_groups_are_those_of_numpy(dtype):
    X = copies(60, 900, 7).astype(dtype)
    _, first, inverse = np.unique(X, axis=0, return_index=True, return_inverse=True)
    found = groups_of(X)
    np.testing.assert_array_equal(found.first, np.sort(first))
    # NumPy 2.0 alone gives the inverse a column
    np.testing.assert_array_equal(found.first[found.group_of], first[inverse.ravel()])
    for g in range(len(first)):
        members = found.members[found.starts[g] : found.starts[g + 1]]
        np.testing.assert_array_equal(members, np.flatnonzero(found.group_of == g))


def test_few_copies_are_not_grouped_even_with_equal_norms():
    X = copies(2000, 1100, 9)
    assert groups_of(X) is None
    assert groups_of(np.eye(200, dtype=np.float32)) is None
    assert groups_of(np.repeat(X[:500], 2, axis=0)) is not None


def test_rows_with_different_bias_are_no_copies():
    X = np.ones((300, 4), np.float32)
    assert len(groups_of(X).first) == 1
    assert groups_of(X, np.arange(300.0)) is None
    assert len(groups_of(X, np.arange(300.0) % 5).first) == 5


@pytest.mark.parametrize("measure", ["cosine", "dot", "neg_euclidean", "csls", "mutual_proximity"])
@pytest.mark.parametrize("exclude_self", [True, False])
def test_grouped_rows_are_found_like_separate_ones(measure, exclude_self):
    X = np.concatenate([copies(50, 800, 12), np.zeros((100, 12), np.float32)])
    X[::9] *= 2
    assert groups_of(X) is not None
    options = {"measure": measure, "exclude_self": exclude_self}
    # with a filter of all items copies are searched one by one
    grouped = top_k(X, k=25, **options)
    separate = top_k(X, k=25, allowed=np.arange(len(X)), **options)
    assert_same_bits(grouped.indices, separate.indices)
    assert_same_bits(grouped.scores, separate.scores)


@pytest.mark.parametrize("n_queries", [1, 10, 70, 300])
def test_an_index_of_copies_finds_what_top_k_finds(n_queries):
    X = copies(40, 900, 10)
    index = SimilarityIndex().fit(X)
    expected = top_k(X[:n_queries], X, 30, allowed=np.arange(len(X)))
    for found in (index.search(X[:n_queries], 30), top_k(X[:n_queries], X, 30)):
        assert_same_bits(found.indices, expected.indices)
        assert_same_bits(found.scores, expected.scores)


def test_progress_counts_all_rows_of_groups():
    X, seen = copies(300, 6000, 8), []
    top_k(X, k=5, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (6000, 6000)


def test_copies_of_one_row_by_the_thousand_are_exact():
    X = np.concatenate([np.ones((3000, 16), np.float32), copies(500, 1500, 16, seed=3)])
    found = top_k(X, k=40)
    np.testing.assert_array_equal(found.indices[5], np.r_[0:5, 6:41])
    assert (found.scores[:3000] == 1).all()

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos.search import duplicates
from fastcos.search.index import SimilarityIndex
from fastcos.search.top_k import top_k
from fastcos.similarity.encoded_rows import encode_rows
from tests.oracles import dense as oracle
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
    groups = groups_of(X)
    np.testing.assert_array_equal(groups.first, np.sort(first))
    # NumPy 2.0 returns the inverse as a column, so the inverse is flattened.
    np.testing.assert_array_equal(groups.first[groups.group_of], first[inverse.ravel()])
    for g in range(len(first)):
        members = groups.members[groups.starts[g] : groups.starts[g + 1]]
        np.testing.assert_array_equal(members, np.flatnonzero(groups.group_of == g))


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


def separately(X):
    """Return a matrix `exclude` that makes a search treat each copy of a row separately.

    The matrix excludes only one pair of the last row.
    """
    n = len(X)
    return sp.csr_array(([1.0], ([n - 1], [0])), shape=(n, n))


@pytest.mark.parametrize("measure", ["cosine", "dot", "neg_euclidean", "csls", "mutual_proximity"])
@pytest.mark.parametrize("exclude_self", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "allowed",
    [None, slice(0, None, 2), pytest.param(slice(100, 700), marks=pytest.mark.slow)],
    ids=str,
)
def test_grouped_rows_are_found_like_separate_ones(measure, exclude_self, allowed):
    X = np.concatenate([copies(50, 800, 12), np.zeros((100, 12), np.float32)])
    X[::9] *= 2
    numbers = None if allowed is None else np.arange(len(X))[allowed]
    assert groups_of(X if numbers is None else X[numbers]) is not None
    options = {"k": 25, "measure": measure, "exclude_self": exclude_self, "allowed": numbers}
    grouped = top_k(X, **options)
    separate = top_k(X, exclude=separately(X), **options)
    assert_same_bits(grouped.indices[:-1], separate.indices[:-1])
    assert_same_bits(grouped.scores[:-1], separate.scores[:-1])


@pytest.mark.parametrize("measure", ["cosine", "dot", "neg_euclidean"])
def test_grouped_rows_match_the_oracle(measure):
    X = copies(40, 500, 9)
    X[::7] *= 3
    form = "euclidean" if measure == "neg_euclidean" else measure
    truth, _ = oracle.top_k(X, X, 30, form, exclude_self=True)
    np.testing.assert_array_equal(top_k(X, k=30, measure=measure).indices, truth)


def test_equal_hashes_do_not_join_groups(monkeypatch):
    class Zeros:
        def integers(self, high, size, dtype):
            return np.zeros(size, dtype)

    X = copies(40, 700, 6)
    X[:350] = X[0]
    expected = top_k(X, k=12)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Zeros())
    groups = groups_of(X)
    monkeypatch.undo()
    if groups is not None:  # a group may be split, but two groups are never joined
        for g in range(len(groups.first)):
            members = groups.members[groups.starts[g] : groups.starts[g + 1]]
            assert (X[members] == X[members[0]]).all()
    truth, _ = oracle.top_k(X, X, 12, "cosine", exclude_self=True)
    np.testing.assert_array_equal(expected.indices, truth)


@pytest.mark.parametrize("n_queries", [1, 10, 70, 300])
def test_an_index_of_copies_finds_what_top_k_finds(n_queries):
    X = copies(40, 900, 10)
    index = SimilarityIndex().fit(X)
    truth, _ = oracle.top_k(X[:n_queries], X, 30, "cosine")
    for result in (index.search(X[:n_queries], 30), top_k(X[:n_queries], X, 30)):
        np.testing.assert_array_equal(result.indices, truth)
    index.remove(np.arange(0, 900, 3))
    is_live = np.arange(900) % 3 > 0
    truth, _ = oracle.top_k(X[:n_queries], X, 30, "cosine", allowed=is_live)
    np.testing.assert_array_equal(index.search(X[:n_queries], 30).indices, truth)


def test_progress_counts_all_rows_of_groups():
    X, seen = copies(300, 6000, 8), []
    top_k(X, k=5, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (6000, 6000)


def test_copies_of_one_row_by_the_thousand_are_exact():
    X = np.concatenate([np.ones((3000, 16), np.float32), copies(500, 1500, 16, seed=3)])
    result = top_k(X, k=40)
    np.testing.assert_array_equal(result.indices[5], np.r_[0:5, 6:41])
    assert (result.scores[:3000] == 1).all()

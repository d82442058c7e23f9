import numpy as np
import pytest

from fastcos.engine import duplicates, scan
from fastcos.neighbors.search import top_k
from tests.oracles.compare import assert_same_bits


def copies(n_distinct, n, d, seed=0):
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((n_distinct, d)).astype(np.float32)
    return base[rng.integers(0, n_distinct, n)]


def groups_of(X, offsets=None):
    return duplicates.grouped(scan.side(X, offsets, None))


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


def test_few_copies_are_left_alone_even_where_all_norms_are_equal():
    X = copies(2000, 1100, 9)
    assert groups_of(X) is None
    assert groups_of(np.eye(200, dtype=np.float32)) is None
    assert groups_of(np.repeat(X[:500], 2, axis=0)) is not None


def test_rows_with_different_offsets_are_no_copies():
    X = np.ones((300, 4), np.float32)
    assert len(groups_of(X).first) == 1
    assert groups_of(X, np.arange(300.0)) is None
    assert len(groups_of(X, np.arange(300.0) % 5).first) == 5


def test_a_hash_for_all_rows_changes_no_answer(monkeypatch):
    X = copies(40, 700, 6)
    expected = top_k(X, k=12)
    monkeypatch.setattr(duplicates, "_hashes", lambda side: np.zeros(len(side.rows), np.uint64))
    X[:350] = X[0]
    same_hash = top_k(X, k=12)
    monkeypatch.undo()
    assert_same_bits(same_hash.indices, top_k(X, k=12).indices)
    assert (same_hash.indices != expected.indices).any()


@pytest.mark.parametrize("measure", ["cosine", "dot", "neg_euclidean", "csls", "mutual_proximity"])
@pytest.mark.parametrize("exclude_self", [True, False])
def test_searching_one_row_of_each_group_shows_in_no_bit(measure, exclude_self, monkeypatch):
    X = np.concatenate([copies(50, 800, 12), np.zeros((100, 12), np.float32)])
    X[::9] *= 2
    options = {"k": 25, "measure": measure, "exclude_self": exclude_self}
    grouped, few = top_k(X, **options), top_k(X[:70], X, 25, measure=measure)
    assert groups_of(X) is not None
    monkeypatch.setattr(duplicates, "grouped", lambda side: None)
    for found, expected in (
        (grouped, top_k(X, **options)),
        (few, top_k(X[:70], X, 25, measure=measure)),
    ):
        assert_same_bits(found.indices, expected.indices)
        assert_same_bits(found.scores, expected.scores)


def test_each_group_is_searched_once_and_progress_counts_all_rows(monkeypatch):
    X, searched, told = copies(300, 6000, 8), [], []
    plain = scan.search

    def counted(prepared, queries, *rest):
        searched.append((len(queries.rows), len(prepared.items.order)))
        return plain(prepared, queries, *rest)

    monkeypatch.setattr(scan, "search", counted)
    top_k(X, k=5, progress=lambda done, total: told.append((done, total)))
    assert searched == [(300, 300)]
    assert told[-1] == (6000, 6000)

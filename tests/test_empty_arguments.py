"""An empty argument means "none of them"; only None means that an argument was not passed."""

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import SimilarityIndex, neighbors_above, similarity_blocks, top_k
from fastcos.search import near_duplicates, rescore

X = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
NAMES = [f"item{number}" for number in range(40)]
EMPTY_LISTS = [[], (), np.array([]), np.array([], np.int64), np.empty(0, np.str_)]


@pytest.fixture(scope="module", params=["cosine", "neg_euclidean", "csls"])
def index(request):
    return SimilarityIndex(request.param).fit(X, NAMES)


def named(values):
    return f"{type(values).__name__}-{getattr(values, 'dtype', '')}"


@pytest.mark.parametrize("empty", EMPTY_LISTS[:4], ids=named)
def test_nothing_allowed_finds_nothing(index, empty):
    for n_queries in (1, 3, 100):
        Q = np.resize(X, (n_queries, 6))
        result = index.search(Q, 4, allowed=empty)
        assert (result.indices == -1).all()
        assert (result.scores == -np.inf).all()
        assert (result.ids == "").all()
        assert result.ids.shape == (n_queries, 4)
    assert index.radius(X, -100.0, allowed=empty).nnz == 0
    assert (top_k(X, k=3, allowed=empty).indices == -1).all()
    assert (top_k(sp.csr_array(X), k=3, allowed=empty).indices == -1).all()


@pytest.mark.parametrize("empty", [*EMPTY_LISTS, set(), {}], ids=named)
def test_no_allowed_ids_find_nothing_and_no_excluded_ids_exclude_nothing(index, empty):
    plain = index.search(X, 4)
    assert (index.search(X, 4, allowed_ids=empty).indices == -1).all()
    assert (index.search(X[:1], 4, allowed_ids=[empty]).indices == -1).all()
    np.testing.assert_array_equal(index.search(X, 4, exclude_ids=empty).ids, plain.ids)
    assert (index.similar(NAMES[:3], 4, allowed_ids=empty).ids == "").all()


def test_nothing_excluded_excludes_nothing(index):
    plain = index.search(X, 4)
    none = sp.csr_array((40, 40), dtype=np.float32)
    for exclude in ([], none):
        np.testing.assert_array_equal(index.search(X, 4, exclude=exclude).ids, plain.ids)
        result = top_k(X, X, 4, exclude=exclude)
        np.testing.assert_array_equal(result.indices, top_k(X, X, 4).indices)
    assert (index.search(X, 4, allowed=none).indices == -1).all()
    assert (top_k(X, X, 4, allowed=none).indices == -1).all()


def test_an_empty_mask_is_a_mask_of_the_wrong_length(index):
    with pytest.raises(ValueError, match=r"allowed must be of shape \(40,\), got \(0,\)"):
        index.search(X, 4, allowed=np.zeros(0, bool))
    assert (index.search(X, 4, allowed=np.zeros(40, bool)).indices == -1).all()


def test_an_empty_list_for_one_query_concerns_that_query_alone(index):
    result = index.search(X[:3], 2, allowed_ids=[[], ["item5"], None])
    assert result.ids.tolist() == [["", ""], ["item5", ""], ["", ""]]
    result = index.search(X[:2], 1, exclude_ids=[[], ["item1"]])
    assert result.ids[0] == index.search(X[:1], 1).ids[0]
    assert result.ids[1] != "item1"


@pytest.mark.parametrize("empty", EMPTY_LISTS[:3], ids=named)
def test_lookups_of_no_ids_return_nothing(index, empty):
    assert index.positions_of(empty).shape == (0,)
    assert index.vectors_of(empty).shape == (0, 6)
    assert index.similar(empty, 3).ids.shape == (0, 3)


def test_changes_by_nothing_change_nothing():
    index = SimilarityIndex().fit(X, NAMES)
    index.remove([])
    index.upsert(np.empty((0, 6)), [])
    assert index.add(np.empty((0, 6)), []).shape == (0,)
    assert index.ids.tolist() == NAMES


def test_no_queries_find_nothing(index):
    none = np.empty((0, 6), np.float32)
    assert index.search(none, 3).ids.shape == (0, 3)
    assert index.search(none, 3, allowed_ids=[]).ids.shape == (0, 3)
    assert index.radius(none, 0.5).shape == (0, 40)
    empty = SimilarityIndex().fit(none, [])
    assert (empty.search(X, 3, allowed=[]).indices == -1).all()
    assert (empty.search(X, 3).indices == -1).all()
    assert not len(empty)


@pytest.mark.parametrize("empty", [[], np.empty((0, 6)), "frame", sp.csr_array((0, 6))], ids=named)
def test_no_rows_are_refused_with_their_name(empty):
    if isinstance(empty, str):
        empty = pytest.importorskip("pandas").DataFrame()
    calls = {
        "top_k": lambda: top_k(empty, k=1),
        "items": lambda: top_k(X, empty, 1),
        "neighbors_above": lambda: neighbors_above(empty, min_score=0.5),
        "similarity_blocks": lambda: list(similarity_blocks(X, empty)),
        "near_duplicates": lambda: near_duplicates(empty, 0.5),
        "rescore": lambda: rescore(X, empty, np.zeros((40, 1), int), 1),
        "calibrate": lambda: fastcos.calibrate(empty),
    }
    for name, call in calls.items():
        with pytest.raises((ValueError, TypeError)) as refused:
            call()
        message = str(refused.value)
        assert any(word in message for word in ("items", "queries", "candidates")), (name, message)
        assert len(message) <= 300

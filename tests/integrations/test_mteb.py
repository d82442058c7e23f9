"""Tests of the search index for MTEB: its protocol, both alone and inside MTEB's own search."""

import numpy as np
import pytest

from fastcos.integrations.mteb import FastcosSearchIndex

RANDOM = np.random.default_rng(0)
DOCUMENTS, QUERIES = (RANDOM.standard_normal((n, 8)) for n in (30, 4))
NAMES = [f"d{number}" for number in range(30)]


def cosines():
    x, y = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (QUERIES, DOCUMENTS))
    return x @ y.T


@pytest.fixture
def index():
    backend = FastcosSearchIndex()
    backend.add_documents(DOCUMENTS[:20], NAMES[:20])
    backend.add_documents(DOCUMENTS[20:], NAMES[20:])
    return backend


def test_search_ranks_all_documents(index):
    scores, numbers = index.search(QUERIES, 100, similarity_fn=None)
    np.testing.assert_array_equal(numbers, np.argsort(-cosines(), axis=1))
    np.testing.assert_allclose(scores, -np.sort(-cosines(), axis=1), atol=1e-6)


def test_search_ranks_given_documents_by_place(index):
    ranked = {"q0": ["d5", "d2", "d9"], "q2": ["d7"], "q3": []}
    queries = {number: f"q{number}" for number in range(4)}
    scores, places = index.search(QUERIES, 2, None, ranked, queries)
    own = cosines()[0, [5, 2, 9]]
    assert places == [np.argsort(-own)[:2].tolist(), [], [0], []]
    np.testing.assert_allclose(scores[0], -np.sort(-own)[:2], atol=1e-6)


def test_search_needs_documents_and_query_ids(index):
    with pytest.raises(
        ValueError, match=r"query_idx_to_id must contain the ids of all .* top_ranked is given"
    ):
        index.search(QUERIES, 2, None, {"q0": ["d1"]})
    index.clear()
    with pytest.raises(ValueError, match="documents must be added before a search"):
        index.search(QUERIES, 2)


@pytest.mark.parametrize("ranked", [None, {"q0": ["d5", "d2", "d9"], "q1": ["d7", "d8"]}])
def test_mteb_finds_what_it_finds_without_the_index(ranked):
    mteb = pytest.importorskip("mteb", reason="needs mteb")
    from datasets import Dataset
    from mteb.models.search_wrappers import SearchEncoderWrapper

    corpus = Dataset.from_list([{"id": name, "text": name, "title": ""} for name in NAMES])
    queries = Dataset.from_list([{"id": f"q{one}", "text": f"query {one}"} for one in range(2)])
    place = {
        "task_metadata": mteb.get_task("NFCorpus").metadata,
        "hf_split": "test",
        "hf_subset": "default",
        "encode_kwargs": {},
    }
    results = []
    for index in (None, FastcosSearchIndex()):
        model = mteb.get_model("mteb/baseline-random-encoder")
        search = SearchEncoderWrapper(model, index_backend=index)
        search.index(corpus, **place)
        results.append(search.search(queries, top_k=4, top_ranked=ranked, **place))
    theirs, ours = results
    assert ours.keys() == theirs.keys()
    for query, scores in theirs.items():
        assert ours[query] == pytest.approx(scores, abs=1e-5)

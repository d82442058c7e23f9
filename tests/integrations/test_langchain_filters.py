"""Tests of the LangChain store.

The tests cover empty arguments, metadata filters, score thresholds, and calls that were written for
other stores.
"""

import asyncio

import numpy as np
import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from fastcos.integrations.langchain import FastcosVectorStore
from fastcos.storage import FastcosFormatError

EMBEDDING = DeterministicFakeEmbedding(size=16)
TEXTS = [f"text {number}" for number in range(40)]


def store_with_facts():
    vectors = np.random.default_rng(0).standard_normal((40, 16))
    facts = [{"source": f"{n % 4}.pdf", "page": n, "tags": [n % 2]} for n in range(40)]
    return FastcosVectorStore.from_embeddings(
        zip(TEXTS, vectors, strict=True), EMBEDDING, facts, ids=TEXTS
    )


def test_deleting_no_ids_deletes_nothing():
    store = store_with_facts()
    store.delete([])
    assert len(store.get_by_ids(TEXTS)) == 40
    store.delete(None)
    assert store.get_by_ids(TEXTS) == []


def test_empty_metadata_are_those_of_no_document():
    store = FastcosVectorStore.from_texts(["a", "b"], EMBEDDING, metadatas=[])
    assert [one.metadata for one in store.similarity_search("a", 2)] == [{}, {}]
    with pytest.raises(ValueError, match=r"ids must have one entry per text \(2\), got 0"):
        store.add_texts(["a", "b"], ids=[])
    with pytest.raises(ValueError, match="ids must not hold ''"):
        store.add_texts(["a"], ids=[""])
    assert len(store.similarity_search("a", 9)) == 2


def test_the_index_of_metadata_follows_changes():
    store = store_with_facts()

    def ids(filter):
        return sorted(one.id for one in store.similarity_search("x", 99, filter=filter))

    assert ids({"source": "3.pdf"}) == sorted(TEXTS[3::4])
    assert ids({"tags": [[1]]}) == sorted(TEXTS[1::2])
    assert ids({}) == sorted(TEXTS)
    store.delete(TEXTS[3:20:4])
    store.add_texts(
        ["new", "moved"], [{"source": "3.pdf"}, {"source": "x"}], ids=["new", TEXTS[23]]
    )
    assert ids({"source": "3.pdf"}) == sorted(["new", *TEXTS[27::4]])
    assert ids({"source": {"x"}}) == [TEXTS[23]]
    assert ids({"source": "3.pdf", "page": [27, 31]}) == sorted([TEXTS[27], TEXTS[31]])
    assert ids(lambda one: one.metadata.get("page") == 5) == [TEXTS[5]]


@pytest.mark.parametrize(
    ("filter", "error", "line"),
    [
        ({"sorce": "3.pdf"}, ValueError, "filter must name a metadata key of at least one"),
        ({"page": {"$regex": "2"}}, ValueError, "filter must use only the operators "),
        ({"page": {"$gte": 20, "lt": 30}}, ValueError, "filter must use only the operators "),
        ({"$nor": [{"page": 1}]}, ValueError, "filter must use only the operators "),
        ({"$and": {"page": 1}}, TypeError, r"filter\['\$and'\] must "),
        ({"$or": [{"sorce": "3.pdf"}]}, ValueError, "filter must name a metadata key of at least"),
        ({"$not": "3.pdf"}, TypeError, "filter must be a function of a document, or a dict"),
        ("source=3.pdf", TypeError, "filter must be a function of a document, or a dict"),
        (["3.pdf"], TypeError, "filter must be a function of a document, or a dict"),
    ],
)
def test_filters_that_mean_nothing_are_refused(filter, error, line):
    with pytest.raises(error, match=rf"^{line}[^\n]*, got [^\n]*$"):
        store_with_facts().similarity_search("x", 3, filter=filter)


PAGES = [
    ({"page": {"$gte": 20, "$lt": 25}}, lambda page, tag: 20 <= page < 25),
    ({"page": {"$gt": 36}, "source": "1.pdf"}, lambda page, tag: page > 36 and page % 4 == 1),
    ({"page": {"$in": [3, 5, "x"]}}, lambda page, tag: page in (3, 5)),
    ({"page": {"$nin": range(30)}}, lambda page, tag: page is None or page >= 30),
    ({"page": {"$ne": 4}}, lambda page, tag: page != 4),
    ({"page": {"$neq": 4, "$lte": 5}}, lambda page, tag: page in (0, 1, 2, 3, 5)),
    ({"page": {"$eq": 4}}, lambda page, tag: page == 4),
    ({"tags": {"$eq": [1]}}, lambda page, tag: tag == [1]),
    ({"source": {"$gt": 3}}, lambda page, tag: False),
    ({"$or": [{"page": 3}, {"page": {"$gt": 37}}]}, lambda page, tag: page in (3, 38, 39)),
    ({"$and": [{"page": {"$gt": 3}}, {"page": {"$lt": 6}}]}, lambda page, tag: page in (4, 5)),
    ({"$not": {"page": {"$gt": 3}}}, lambda page, tag: page is None or page <= 3),
    ({"$or": []}, lambda page, tag: False),
    ({"$and": []}, lambda page, tag: True),
    ({"$not": {"$or": [{"page": 1}, {"page": 2}]}, "page": [1, 2, 3]}, lambda page, tag: page == 3),
]  # fmt: skip


@pytest.mark.parametrize(("filter", "accepts"), PAGES)
def test_operators_in_filters(filter, accepts):
    store = store_with_facts()
    store.add_texts(["bare"], ids=["bare"])
    found = {one.id for one in store.similarity_search("x", 99, filter=filter)}
    facts = [(f"text {n}", n, [n % 2]) for n in range(40)]
    assert found == {
        id for id, page, tag in [*facts, ("bare", None, None)] if _none_safe(accepts, page, tag)
    }


def _none_safe(accepts, page, tag):
    """Return the result of `accepts`, or False if `accepts` applies < or > to a missing value."""
    try:
        return accepts(page, tag)
    except TypeError:
        return False


def test_relevance_thresholds_lose_no_returned_score():
    store = store_with_facts()
    found = store.similarity_search_with_relevance_scores("x", 40)
    for _, score in found[:5]:
        kept = store.similarity_search_with_relevance_scores("x", 40, score_threshold=score)
        assert kept == [pair for pair in found if pair[1] >= score]
    vector = np.zeros(16)
    vector[:2] = 3.0, 4.0
    point = FastcosVectorStore.from_embeddings([("p", np.eye(16)[1])], FixedEmbedding(vector))
    assert len(point.similarity_search_with_relevance_scores("x", 1, score_threshold=0.8)) == 1


def test_asynchronous_calls_of_the_faiss_store():
    store, vector = store_with_facts(), EMBEDDING.embed_query("x")
    pairs = asyncio.run(
        store.asimilarity_search_with_score_by_vector(vector, 3, filter={"page": 7})
    )
    assert pairs == store.similarity_search_with_score_by_vector(vector, 3, filter={"page": 7})
    diverse = asyncio.run(
        store.amax_marginal_relevance_search_with_score_by_vector(vector, k=2, fetch_k=5)
    )
    assert diverse == store.max_marginal_relevance_search_with_score_by_vector(
        vector, k=2, fetch_k=5
    )
    made = asyncio.run(
        FastcosVectorStore.afrom_embeddings([("a", vector)], EMBEDDING, ids=["only"])
    )
    assert [one.id for one in made.similarity_search("x")] == ["only"]


class FixedEmbedding(Embeddings):
    """Embeds every text as the same vector."""

    def __init__(self, vector):
        self.vector = list(vector)

    def embed_documents(self, texts):
        return [self.vector for _ in texts]

    def embed_query(self, text):
        return self.vector


def test_calls_of_the_faiss_store_exist(tmp_path):
    store, vector = store_with_facts(), EMBEDDING.embed_query("x")
    by_vector = store.similarity_search_with_score_by_vector(vector, 3, filter={"page": [1, 2, 3]})
    assert {one.metadata["page"] for one, _ in by_vector} == {1, 2, 3}
    assert by_vector == store.similarity_search_with_score("x", 3, filter={"page": [1, 2, 3]})
    diverse = store.max_marginal_relevance_search_with_score_by_vector(vector, k=4, fetch_k=9)
    assert [one for one, _ in diverse] == store.max_marginal_relevance_search("x", 4, 9)
    other = FastcosVectorStore.from_texts(["late"], EMBEDDING, [{"page": 77}], ids=["late"])
    store.merge_from(other)
    assert store.similarity_search("late", 1)[0].metadata == {"page": 77}
    with pytest.raises(ValueError, match="target must have ids that are new to the store, got 'l"):
        store.merge_from(other)
    store.save_local(tmp_path, index_name="first")
    other.save_local(tmp_path, "second")
    for name, expected in (("first", store), ("second", other)):
        loaded = FastcosVectorStore.load_local(
            tmp_path, EMBEDDING, name, allow_dangerous_deserialization=True
        )
        assert loaded.similarity_search("x", 5) == expected.similarity_search("x", 5)
        assert loaded.similarity_search("x", 5, filter={"page": 77})[0].id == "late"
    for stored in (store, FastcosVectorStore(EMBEDDING)):
        copy = FastcosVectorStore.deserialize_from_bytes(
            stored.serialize_to_bytes(), EMBEDDING, allow_dangerous_deserialization=True
        )
        expected = stored.similarity_search_with_score("x", 50)
        assert copy.similarity_search_with_score("x", 50) == expected
    for wrong in (b"no archive", "text", None):
        with pytest.raises(FastcosFormatError, match="serialized must be bytes that serialize"):
            FastcosVectorStore.deserialize_from_bytes(wrong, EMBEDDING)
    with pytest.raises(ValueError, match=r"index_name must be the name of a file, got '\.\./x'"):
        store.save_local(tmp_path, "../x")

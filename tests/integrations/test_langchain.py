"""LangChain's own suite for vector stores, and what it leaves out.

Its asynchronous half runs with `-o asyncio_mode=auto`."""

import numpy as np
import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")
langchain_tests = pytest.importorskip(
    "langchain_tests.integration_tests.vectorstores", reason="needs langchain-tests"
)
from langchain_core.embeddings import DeterministicFakeEmbedding  # noqa: E402

from fastcos.integrations.langchain import FastcosVectorStore  # noqa: E402


class TestFastcosVectorStore(langchain_tests.VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self):
        return FastcosVectorStore(self.get_embeddings())


EMBEDDING = DeterministicFakeEmbedding(size=16)
TEXTS = [f"text {number}" for number in range(40)]


def test_store_orders_by_cosine_among_filtered_documents():
    facts = [{"even": number % 2 == 0} for number in range(40)]
    store = FastcosVectorStore.from_texts(TEXTS, EMBEDDING, facts, ids=TEXTS)
    store.add_texts(["text 3", "text 3", "other"], ids=["text 3", "text 3", "last"])
    store.delete(["text 5", "none"])
    vectors = np.array(EMBEDDING.embed_documents(TEXTS))
    query = np.array(EMBEDDING.embed_query("a query"))
    scores = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    order = [n for n in np.argsort(-scores) if n % 2 == 0]
    found = store.similarity_search_with_score(
        "a query", 7, filter=lambda one: one.metadata.get("even", False)
    )
    assert [one.page_content for one, _ in found] == [TEXTS[n] for n in order[:7]]
    np.testing.assert_allclose([score for _, score in found], scores[order[:7]], rtol=1e-6)
    assert store.similarity_search("x", 3, filter=lambda one: False) == []
    assert len(store.similarity_search("x", 100)) == 40
    near = store.similarity_search_with_relevance_scores("text 3", 1)
    assert near[0][0].id == "text 3"
    assert near[0][1] == pytest.approx(1)
    store.delete()
    assert store.similarity_search("x", 3) == [] == store.get_by_ids(TEXTS)


class Fixed:
    """Embeds every text as the same row."""

    def __init__(self, row):
        self.row = row

    def embed_documents(self, texts):
        return [self.row] * len(texts)

    def embed_query(self, text):
        return self.row


def test_ten_wrong_calls_change_nothing():
    store = FastcosVectorStore(Fixed([1.0, 2.0]))
    store.add_texts(["x", "y"], ids=["a", "b"])
    more = {"texts": ["new"], "ids": ["a"]}
    calls = [
        (row, store.add_texts, more, "items must")
        for row in ([1.0], [np.nan, 1.0], [np.inf, 1.0], ["1", "2"], [None, 1.0], [[1.0], [2.0]])
    ] + [
        (None, store.add_texts, {"texts": ["new"], "ids": [5]}, "ids must"),
        (None, store.add_texts, {"texts": ["new"], "ids": ["\0"]}, "ids must"),
        (None, store.similarity_search, {"query": "x", "k": 0}, "k must"),
        (None, store.similarity_search, {"query": "x", "k": 1.5}, "k must"),
        ([1.0], store.similarity_search, {"query": "x", "k": 1}, "queries must"),
        ([np.nan, 1.0], store.similarity_search, {"query": "x", "k": 1}, "queries must"),
    ]
    for row, call, given, start in calls:
        store.embeddings.row = [1.0, 2.0] if row is None else row
        with pytest.raises((TypeError, ValueError), match=rf"^{start} [^\n]*, got [^\n]*$"):
            call(**given)
        store.embeddings.row = [1.0, 2.0]
        found = store.similarity_search_with_score("x", 5)
        assert [(one.id, one.page_content) for one, _ in found] == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize("wrong", [{"ids": ["a"]}, {"metadatas": [{}]}])
def test_wrong_lengths_are_refused_and_change_nothing(wrong):
    store = FastcosVectorStore(EMBEDDING)
    with pytest.raises(ValueError, match=r"^(ids|metadatas) must be of 2 texts, got 1$"):
        store.add_texts(["x", "y"], **wrong)
    assert store.similarity_search("x", 1) == []

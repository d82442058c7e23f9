"""LangChain's own test suite for vector stores, and tests of what this suite omits.

The asynchronous half of the suite needs the pytest option `-o asyncio_mode=auto`.
"""

import numpy as np
import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")
langchain_tests = pytest.importorskip(
    "langchain_tests.integration_tests.vectorstores", reason="needs langchain-tests"
)
from langchain_core.embeddings import DeterministicFakeEmbedding  # noqa: E402

from fastcos import calibrate  # noqa: E402
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
    """Embeds every text as the same vector."""

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
    with pytest.raises(
        ValueError, match=r"^(ids|metadatas) must have one entry per text \(2\), got 1$"
    ):
        store.add_texts(["x", "y"], **wrong)
    assert store.similarity_search("x", 1) == []


def test_store_takes_embeddings_that_exist_and_filters_by_metadata():
    vectors = np.random.default_rng(0).standard_normal((40, 16))
    facts = [{"source": f"{number % 4}.pdf", "page": number} for number in range(40)]
    store = FastcosVectorStore.from_embeddings(
        zip(TEXTS, vectors, strict=True), EMBEDDING, facts, ids=TEXTS
    )
    store.add_embeddings([("late", vectors[7])], [{"source": "late.pdf", "page": 99}], ids=["late"])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    order = np.argsort(-(unit @ unit[7]))
    for given, kept in (
        ({"source": "3.pdf"}, [n for n in order if n % 4 == 3]),
        ({"source": ["1.pdf", "3.pdf"], "page": list(range(9))}, [7, 5, 3, 1]),
        ({"source": "nobody.pdf"}, []),
        ({"source": []}, []),
    ):
        found = store.similarity_search_by_vector(vectors[7].tolist(), 4, filter=given)
        expected = [TEXTS[n] for n in kept[:4]]
        assert sorted(one.id for one in found) == sorted(expected)
        assert found == [] or found[0].id == "text 7"
    assert store.similarity_search_by_vector(vectors[7].tolist(), 2, filter={"source": "late.pdf"})[
        0
    ].metadata == {"source": "late.pdf", "page": 99}


def test_store_thresholds_are_cosines_or_calibrated():
    vectors = np.random.default_rng(1).standard_normal((300, 16))
    names = [f"text {number}" for number in range(300)]
    store = FastcosVectorStore.from_embeddings(zip(names, vectors, strict=True), Fixed(vectors[0]),
                                               ids=names)  # fmt: skip
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit[0]
    rate = calibrate(vectors, fpr=0.02)
    for given, least in ((0.3, 0.3), (rate, rate.threshold())):
        found = store.similarity_search("x", 300, min_score=given)
        assert {one.id for one in found} == {names[n] for n in np.flatnonzero(cosines >= least)}
    found = store.similarity_search_with_relevance_scores("x", 300, score_threshold=0.3)
    assert {one.id for one, _ in found} == {names[n] for n in np.flatnonzero(cosines >= 0.3)}
    retriever = store.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.3, "k": 300}
    )
    assert len(retriever.invoke("x")) == len(found)


def test_store_is_saved_with_its_documents(tmp_path):
    facts = [{"page": number} for number in range(40)]
    store = FastcosVectorStore.from_texts(TEXTS, EMBEDDING, facts, ids=TEXTS, measure="dot")
    store.save_local(tmp_path / "store")
    store.delete(TEXTS[:5])
    store.add_texts(["new"], [{"page": 99}], ids=["new"])
    store.save_local(tmp_path / "store")
    found = FastcosVectorStore.load_local(tmp_path / "store", EMBEDDING)
    for query in ("new", "text 9"):
        one, other = (s.similarity_search_with_score(query, 7) for s in (store, found))
        assert one == other
    assert found.get_by_ids(["new", TEXTS[0]])[0].metadata == {"page": 99}
    found.delete(["new"])
    assert "new" not in found.index
    FastcosVectorStore(EMBEDDING).save_local(tmp_path / "empty")
    assert FastcosVectorStore.load_local(tmp_path / "empty", EMBEDDING).similarity_search("x") == []
    (tmp_path / "store" / "documents.jsonl").write_text("")
    with pytest.raises(ValueError, match="must hold every document of the index, got no document"):
        FastcosVectorStore.load_local(tmp_path / "store", EMBEDDING)


def test_store_finds_documents_that_differ():
    """Maximal marginal relevance picks one of two copies, and then a different document."""
    rows = np.eye(4)[[0, 0, 1, 2]] + 0.01 * np.arange(4)[:, None]
    store = FastcosVectorStore.from_embeddings(
        zip("abcd", rows, strict=True), Fixed([1.0, 0.6, 0.3, 0.0]), ids=list("abcd")
    )
    assert [one.id for one in store.similarity_search("x", 2)] == ["b", "a"]
    found = store.max_marginal_relevance_search("x", 2, fetch_k=4, lambda_mult=0.3)
    assert found[0].id == "b"
    assert found[1].id in "cd"
    assert FastcosVectorStore(EMBEDDING).max_marginal_relevance_search("x") == []


class _Named:
    """An embedding with the name of its model, like those of langchain-openai."""

    def __init__(self, model, size=16):
        self.model, self._made = model, DeterministicFakeEmbedding(size=size)

    def embed_documents(self, texts):
        return self._made.embed_documents(texts)

    def embed_query(self, text):
        return self._made.embed_query(text)


def test_store_is_loaded_for_its_model_alone(tmp_path):
    def load(embedding, **model):
        return FastcosVectorStore.load_local(tmp_path, embedding, **model)

    named = _Named("minilm@2")
    FastcosVectorStore.from_texts(TEXTS, named).save_local(tmp_path)
    assert load(named, model="minilm@2").index.model == "minilm@2"
    for call in (lambda: load(_Named("minilm@3")), lambda: load(EMBEDDING, model="minilm@3")):
        with pytest.raises(
            ValueError, match=r"same model as the index \('minilm@2'\), got 'minilm@3'$"
        ):
            call()
    store = load(EMBEDDING)  # the name of this embedding is unknown, so it is not compared
    store.add_texts(["more"])
    with pytest.raises(ValueError, match="'minilm@2', got 'mpnet@1'"):
        FastcosVectorStore.from_texts(TEXTS, EMBEDDING, model="mpnet@1").save_local(tmp_path)
    assert len(load(named).similarity_search("x", 100)) == 40
    store.save_local(tmp_path)
    assert load(named).index.model == "minilm@2"
    assert len(load(named).similarity_search("x", 100)) == 41
    with pytest.raises(ValueError, match="folder_path must be a folder without a store"):
        FastcosVectorStore(named).save_local(tmp_path)
    rate = calibrate(np.array(EMBEDDING.embed_documents(TEXTS)), fpr=0.1, model="mpnet@1")
    with pytest.raises(ValueError, match=r"min_score .* model as the index \('minilm@2'\)"):
        load(named).similarity_search("x", min_score=rate)


def test_store_without_a_name_is_not_loaded_for_a_model(tmp_path):
    FastcosVectorStore.from_texts(TEXTS, EMBEDDING).save_local(tmp_path)
    FastcosVectorStore.load_local(tmp_path, _Named("minilm@2"))  # stores of older versions
    with pytest.raises(ValueError, match=r"model must be None for an index .* got 'minilm@2'"):
        FastcosVectorStore.load_local(tmp_path, EMBEDDING, model="minilm@2")

"""A vector store for LangChain (``pip install langchain-core``): exact search, ids, changes."""

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from fastcos import parallel
from fastcos.measures.base import Measure
from fastcos.neighbors import SimilarityIndex

Filter = Callable[[Document], bool]


class FastcosVectorStore(VectorStore):  # type: ignore[misc]  # untyped where it is missing
    """Documents in memory, searched exactly by their embeddings.

    Parameters
    ----------
    embedding : Embeddings
        Turns texts into vectors.
    measure : str or Measure
        As in :func:`fastcos.top_k`; one with the capability ``append``.

    Attributes
    ----------
    index : SimilarityIndex or None
        What is searched; its ids are those of the documents. None before the first document.

    Examples
    --------
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding  # doctest: +SKIP
    >>> from fastcos.integrations.langchain import FastcosVectorStore  # doctest: +SKIP
    >>> store = FastcosVectorStore(DeterministicFakeEmbedding(size=8))  # doctest: +SKIP
    >>> store.add_texts(["a red car", "a tree"], ids=["car", "tree"])  # doctest: +SKIP
    ['car', 'tree']
    >>> store.similarity_search("a tree", k=1)[0].id  # doctest: +SKIP
    'tree'
    """

    def __init__(self, embedding: Embeddings, *, measure: str | Measure = "cosine") -> None:
        self.index: SimilarityIndex | None = None
        self._embedding, self._measure = embedding, measure
        self._documents: dict[str, Document] = {}

    @property
    def embeddings(self) -> Embeddings:
        """What turns texts into vectors."""
        return self._embedding

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> "FastcosVectorStore":
        """Return a store of these texts; kwargs go to the class."""
        store = cls(embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embed and add texts; a document with a known id is replaced. Return the ids."""
        texts = list(texts)
        for name, values in (("metadatas", metadatas), ("ids", ids)):
            if values is not None and len(values) != len(texts):
                raise ValueError(f"{name} must be of {len(texts)} texts, got {len(values)}")
        if not texts:
            return []
        vectors = np.asarray(self._embedding.embed_documents(texts))
        named = [one or str(uuid.uuid4()) for one in (ids or [None] * len(texts))]
        about = metadatas or [{} for _ in texts]
        documents = {
            one: Document(id=one, page_content=text, metadata=dict(facts))
            for one, text, facts in zip(named, texts, about, strict=True)
        }
        # of texts with one id the last stays, as in documents
        place = {one: number for number, one in enumerate(named)}
        rows = vectors[list(place.values())]
        with parallel.writer_lock():
            # the index first: it refuses vectors of another width, and then nothing has changed
            if self.index is None:
                self.index = SimilarityIndex(self._measure).fit(rows, ids=list(place))
            else:
                self.index.upsert(rows, list(place))
            self._documents |= documents
        return named

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Remove documents; unknown ids are left out. None: all documents."""
        with parallel.writer_lock():
            known = [one for one in dict.fromkeys(ids or self._documents) if one in self._documents]
            if known and self.index is not None:
                self.index.remove(known)
            for one in known:
                del self._documents[one]
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids; unknown ones are left out."""
        return [self._documents[one] for one in ids if one in self._documents]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k nearest documents. kwargs: filter, as similarity_search_with_score takes."""
        return [one for one, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, *, filter: Filter | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the k nearest documents with their scores, best first.

        filter: a function of a document; only those for which it returns True are found.
        """
        return self._nearest(self._embedding.embed_query(query), k, filter)

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, *, filter: Filter | None = None, **kwargs: Any
    ) -> list[Document]:
        """Return the k documents nearest to a vector."""
        return [one for one, _ in self._nearest(embedding, k, filter)]

    def _nearest(
        self, vector: list[float], k: int, filter: Filter | None
    ) -> list[tuple[Document, float]]:
        index, documents, allowed = self.index, self._documents, None
        if index is None:
            return []
        if filter is not None:
            with parallel.writer_lock():
                chosen = [name for name, one in documents.items() if filter(one)]
                allowed = index.positions_of(chosen) if chosen else np.zeros(0, np.int64)
        found = index.search(np.asarray(vector), k, allowed=allowed)
        pairs = zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True)
        # a document may have gone since the search
        return [(documents[name], score) for name, score in pairs if name in documents]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Map scores to [0, 1]: of a cosine only."""
        if self._measure != "cosine":
            raise ValueError(f"measure must be 'cosine' for relevance, got {self._measure!r}")
        return lambda score: (1.0 + score) / 2.0

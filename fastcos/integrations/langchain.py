"""A vector store for LangChain (``pip install langchain-core``): exact search, ids, changes."""

import json
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance

from fastcos import parallel, storage
from fastcos.integrations.metadata_index import MetadataIndex
from fastcos.io import write_text
from fastcos.search import SimilarityIndex
from fastcos.search.model_check import as_model, check_same_model
from fastcos.search.request import Threshold, as_threshold, rounded_scores
from fastcos.similarity.base import Measure, get_measure
from fastcos.validation import as_real

# documents for which it returns True, or whose metadata meet the conditions of MetadataIndex.find
Filter = Callable[[Document], bool] | Mapping[str, Any]
_INDEX, _DOCUMENTS = "index", "documents.jsonl"


class FastcosVectorStore(VectorStore):  # type: ignore[misc]  # untyped where it is missing
    """Documents in memory, searched exactly by their embeddings.

    Parameters
    ----------
    embedding : Embeddings
        Turns texts into vectors.
    measure : str or Measure
        As in :func:`fastcos.top_k`; one with the capability ``append``.
    model : str, optional
        Name and version of the embedding model, such as ``"minilm@2"``. It is saved with the
        documents, and ``load_local`` refuses them for another model. Default: the text in the
        attribute ``model_name`` or ``model`` of the embedding, if it has one.

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

    def __init__(
        self,
        embedding: Embeddings,
        *,
        measure: str | Measure = "cosine",
        model: str | None = None,
    ) -> None:
        self.index: SimilarityIndex | None = None
        self._model = as_model(model) or _model_of(embedding)
        self._embedding, self._measure = embedding, measure
        self._documents: dict[str, Document] = {}
        # made by the first search that filters by metadata
        self._metadata: MetadataIndex | None = None

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
        _check_lengths(len(texts), metadatas, ids)
        if not texts:
            return []
        vectors = self._embedding.embed_documents(texts)
        return self.add_embeddings(zip(texts, vectors, strict=True), metadatas, ids=ids)

    @classmethod
    def from_embeddings(
        cls,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> "FastcosVectorStore":
        """Return a store of texts with the vectors they have: nothing is embedded."""
        store = cls(embedding, **kwargs)
        store.add_embeddings(text_embeddings, metadatas, ids=ids)
        return store

    @classmethod
    async def afrom_embeddings(
        cls,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        embedding: Embeddings,
        **kwargs: Any,
    ) -> "FastcosVectorStore":
        """Return what from_embeddings returns."""
        return await run_in_executor(
            None, cls.from_embeddings, text_embeddings, embedding, **kwargs
        )

    def add_embeddings(
        self,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
    ) -> list[str]:
        """Add texts with their vectors; a document with a known id is replaced. Return the ids."""
        pairs = list(text_embeddings)
        texts = [text for text, _ in pairs]
        _check_lengths(len(texts), metadatas, ids)
        if not texts:
            return []
        vectors = np.asarray([vector for _, vector in pairs])
        given_ids = [None] * len(texts) if ids is None else ids
        named = [str(uuid.uuid4()) if one is None else one for one in given_ids]
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
                self.index = SimilarityIndex(self._measure, model=self._model).fit(
                    rows, ids=list(place), copy=False
                )
            else:
                self.index.upsert(rows, list(place))
            self._documents |= documents
            if self._metadata is not None:
                positions = self.index.positions_of(list(documents)).tolist()
                self._metadata.put(positions, [one.metadata for one in documents.values()])
        return named

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Remove documents; unknown ids are left out. None: all documents."""
        with parallel.writer_lock():
            named = self._documents if ids is None else ids
            known = [one for one in dict.fromkeys(named) if one in self._documents]
            if known and self.index is not None:
                if self._metadata is not None:
                    self._metadata.drop(self.index.positions_of(known).tolist())
                self.index.remove(known)
            for one in known:
                del self._documents[one]
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids; unknown ones are left out."""
        return [self._documents[one] for one in ids if one in self._documents]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k nearest documents. kwargs: filter and min_score, as the next one takes."""
        return [one for one, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Filter | None = None,
        min_score: float | Threshold | None = None,
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Return the k nearest documents with their scores, best first.

        filter: a function of a document, or values of its metadata: ``{"source": "a.pdf"}``, or a
        list of values for any of them, or comparisons: ``{"year": {"$gte": 2020}}``. Operators:
        ``$eq``, ``$ne``, ``$gt``, ``$gte``, ``$lt``, ``$lte``, ``$in``, ``$nin``, and, between
        conditions, ``$and``, ``$or`` and ``$not``. A key that no document has is an error. Metadata
        are indexed as they were when the documents were added. min_score: a score, such as a
        cosine, or a calibration, whose threshold a random pair reaches with the probability ``fpr``
        of ``calibrate``.
        """
        return self._nearest(self._embedding.embed_query(query), k, filter, min_score)

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """Return the k documents nearest to a vector; kwargs: filter and min_score."""
        return [
            one for one, _ in self.similarity_search_with_score_by_vector(embedding, k, **kwargs)
        ]

    def similarity_search_with_score_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        filter: Filter | None = None,
        *,
        min_score: float | Threshold | None = None,
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Return the k documents nearest to a vector with their scores, best first."""
        return self._nearest(embedding, k, filter, min_score)

    async def asimilarity_search_with_score_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return what similarity_search_with_score_by_vector returns."""
        return await run_in_executor(
            None, self.similarity_search_with_score_by_vector, embedding, k, **kwargs
        )

    def similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the k nearest documents with their cosines, 0 for negative ones.

        score_threshold: a least relevance; it is compared in float32, as min_score is.
        """
        threshold = kwargs.pop("score_threshold", None)
        found = self._similarity_search_with_relevance_scores(query, k=k, **kwargs)
        if threshold is None:
            return found
        least = rounded_scores(as_real("score_threshold", threshold))
        return [(one, relevance) for one, relevance in found if relevance >= least]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k of the fetch_k nearest documents that differ from each other, too (MMR)."""
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(
            vector, k, fetch_k, lambda_mult, **kwargs
        )

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Document]:
        """Return k of the fetch_k documents nearest to a vector that differ from each other."""
        found = self.max_marginal_relevance_search_with_score_by_vector(
            embedding, k=k, fetch_k=fetch_k, lambda_mult=lambda_mult, **kwargs
        )
        return [one for one, _ in found]

    def max_marginal_relevance_search_with_score_by_vector(
        self,
        embedding: list[float],
        *,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Return k of the fetch_k nearest documents that differ from each other, with scores."""
        near = self.similarity_search_with_score_by_vector(embedding, fetch_k, **kwargs)
        if self.index is None or not near:
            return []
        rows = self.index.vectors_of([one.id for one, _ in near])
        chosen = maximal_marginal_relevance(
            np.asarray(embedding, np.float32), list(rows), lambda_mult, k
        )
        return [near[place] for place in chosen]

    async def amax_marginal_relevance_search_with_score_by_vector(
        self, embedding: list[float], **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return what max_marginal_relevance_search_with_score_by_vector returns."""
        return await run_in_executor(
            None, self.max_marginal_relevance_search_with_score_by_vector, embedding, **kwargs
        )

    def merge_from(self, target: "FastcosVectorStore") -> None:
        """Add the documents of another store with the vectors that they have there.

        Its ids must be new to this store. Stores of different models are not merged.
        """
        if target.index is None or not target._documents:
            return
        check_same_model("target", self._model, target._model)
        documents = list(target._documents.values())
        if known := [one.id for one in documents if one.id in self._documents]:
            raise ValueError(f"target must have ids that are new to the store, got {known[0]!r}")
        vectors = target.index.vectors_of([one.id for one in documents])
        pairs = zip((one.page_content for one in documents), vectors, strict=True)
        self.add_embeddings(
            pairs, [one.metadata for one in documents], ids=[one.id for one in documents]
        )

    def save_local(self, folder_path: storage.PathLike, index_name: str = _INDEX) -> None:
        """Write the index and the documents, whose metadata must have a JSON form, to a folder.

        index_name: stores with different names may lie in one folder.
        """
        path = Path(folder_path)
        index_name, documents_name = _names_of(index_name)
        path.mkdir(parents=True, exist_ok=True)
        with parallel.writer_lock():
            lines = [
                json.dumps({"id": one.id, "text": one.page_content, "metadata": one.metadata})
                for one in self._documents.values()
            ]
            if self.index is None and (path / index_name).exists():
                rule = "a folder without a store, for a store without documents"
                raise storage.OccupiedError(f"folder_path must be {rule}, got {str(path)!r}")
            file = path / documents_name
            before = file.read_text("utf8") if file.exists() else None
            # documents first: one without a vector is left out when they are read
            write_text(file, "".join(f"{line}\n" for line in lines))
            if self.index is None:
                return
            try:
                self.index.save(path / index_name)
            except BaseException:  # such as an index of another model: its documents stay, too
                if before is not None:
                    write_text(file, before)
                raise

    @classmethod
    def load_local(
        cls,
        folder_path: storage.PathLike,
        embeddings: Embeddings,
        index_name: str = _INDEX,
        *,
        model: str | None = None,
        allow_dangerous_deserialization: bool = False,
    ) -> "FastcosVectorStore":
        """Return the store that ``save_local`` wrote; its vectors are memory-mapped.

        allow_dangerous_deserialization: for calls written for LangChain's FAISS store, and without
        effect, because nothing that can run code is read.

        Documents that another model embedded are refused. Their store must have the name in
        ``model``, if that is given. Without it, the name in the attribute ``model_name`` or
        ``model`` of the embeddings is compared with that of the store, if both have one.
        """
        path, store = Path(folder_path), cls(embeddings, model=model)
        index_name, documents_name = _names_of(index_name)
        lines = (path / documents_name).read_text("utf8").splitlines()
        if not (path / index_name).exists():
            return store
        store.index = SimilarityIndex.open(path / index_name, model=model)
        check_same_model("embeddings", store.index.model, store._model)
        store._model = store.index.model
        store._measure = store.index.measure
        known = set(store.index.ids.tolist())
        for record in map(json.loads, lines):
            if record["id"] in known:
                store._documents[record["id"]] = Document(
                    id=record["id"], page_content=record["text"], metadata=record["metadata"]
                )
        if missing := known - store._documents.keys():
            raise storage.FastcosFormatError(
                f"{path / documents_name} must hold every document of the index, got none of id "
                f"{min(missing)!r}"
            )
        return store

    def serialize_to_bytes(self) -> bytes:
        """Return the index and the documents as one zip archive of what ``save_local`` writes."""
        archive = BytesIO()
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(archive, "w") as members:
            self.save_local(folder)
            for file in sorted(Path(folder).rglob("*")):
                members.write(file, file.relative_to(folder))
        return archive.getvalue()

    @classmethod
    def deserialize_from_bytes(
        cls,
        serialized: bytes,
        embeddings: Embeddings,
        *,
        model: str | None = None,
        allow_dangerous_deserialization: bool = False,
    ) -> "FastcosVectorStore":
        """Return the store that ``serialize_to_bytes`` wrote, with its vectors in memory.

        model, allow_dangerous_deserialization: as of ``load_local``.
        """
        with tempfile.TemporaryDirectory() as folder:
            try:
                with zipfile.ZipFile(BytesIO(serialized)) as members:
                    members.extractall(folder)
            except (TypeError, zipfile.BadZipFile) as error:
                rule = "serialized must be what serialize_to_bytes returned"
                raise storage.FastcosFormatError(f"{rule}, got {error}") from None
            mapped = cls.load_local(folder, embeddings, model=model)
            store = cls(embeddings, measure=mapped._measure, model=mapped._model)
            store.merge_from(mapped)
        return store

    def _nearest(
        self,
        vector: list[float],
        k: int,
        filter: Filter | None,
        min_score: float | Threshold | None,
    ) -> list[tuple[Document, float]]:
        index, documents, allowed = self.index, self._documents, None
        if index is None:
            return []
        if filter is not None:
            with parallel.writer_lock():
                allowed = self._positions_of(index, filter)
        least = None
        if min_score is not None:
            measure = get_measure(self._measure)
            least = as_threshold("min_score", min_score, measure, index.model)
        found = index.search(np.asarray(vector), k, allowed=allowed, min_score=least)
        pairs = zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True)
        # a document may have gone since the search
        return [(documents[name], score) for name, score in pairs if name in documents]

    def _positions_of(self, index: SimilarityIndex, filter: Filter) -> Any:
        """Return the positions in the index of the documents that a filter accepts."""
        if callable(filter):
            return index.positions_of([n for n, one in self._documents.items() if filter(one)])
        if self._metadata is None:
            self._metadata = MetadataIndex()
            self._metadata.put(
                index.positions_of(list(self._documents)).tolist(),
                [one.metadata for one in self._documents.values()],
            )
        return self._metadata.find(filter)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Relevance is the cosine, 0 below 0, so that score_threshold is a cosine, too."""
        if get_measure(self._measure).name != "cosine":
            raise ValueError(f"measure must be 'cosine' for relevance, got {self._measure!r}")
        return lambda score: min(max(score, 0.0), 1.0)


def _model_of(embedding: Embeddings) -> str | None:
    """The name of its model that an embedding carries, as those of LangChain's packages do."""
    names = (getattr(embedding, attribute, None) for attribute in ("model_name", "model"))
    return next((name for name in names if isinstance(name, str) and name.strip()), None)


def _names_of(index_name: str) -> tuple[str, str]:
    """Return the names of the directory of the index and of the file of its documents."""
    if not isinstance(index_name, str) or Path(index_name).name != index_name:
        raise ValueError(f"index_name must be the name of a file, got {index_name!r}")
    return index_name, _DOCUMENTS if index_name == _INDEX else f"{index_name}.{_DOCUMENTS}"


def _check_lengths(n: int, metadatas: Any, ids: Any) -> None:
    for name, values in (("metadatas", metadatas), ("ids", ids)):
        if name == "metadatas" and values is not None and not len(values):
            continue  # as LangChain's other stores take it: no document has any
        if values is not None and len(values) != n:
            raise ValueError(f"{name} must be of {n} texts, got {len(values)}")

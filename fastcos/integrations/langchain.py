"""A vector store for LangChain (``pip install langchain-core``) that searches exactly."""

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
from fastcos.search import SimilarityIndex
from fastcos.search.model_check import as_model, check_same_model
from fastcos.search.request import Threshold, as_threshold
from fastcos.search.results import rounded_scores
from fastcos.similarity.base import Measure, get_measure
from fastcos.storage.atomic_files import write_text
from fastcos.validation import as_real

# A filter is a function or a mapping. If it is a function, a search finds only the documents for
# which the function returns True. If it is a mapping, a search finds only the documents whose
# metadata meet the conditions in the mapping (see MetadataIndex.find).
Filter = Callable[[Document], bool] | Mapping[str, Any]
_INDEX, _DOCUMENTS = "index", "documents.jsonl"


class FastcosVectorStore(VectorStore):  # type: ignore[misc]  # untyped if LangChain is missing
    """A vector store for LangChain; it holds documents in memory and searches them exactly.

    Parameters
    ----------
    embedding : Embeddings
        The LangChain embedding model, which turns texts into vectors.
    measure : str or Measure
        The similarity, as in :func:`fastcos.top_k`. If the measure lacks the capability ``append``,
        the store fits the measure again and encodes all documents again after every change.
    model : str, optional
        Name and version of the embedding model, such as ``"minilm@2"``. The name is saved with the
        documents, and ``load_local`` raises an error if it is called with a different model. The
        default is the attribute ``model_name`` or ``model`` of the embedding, if the attribute is a
        string.

    Attributes
    ----------
    index : SimilarityIndex or None
        The index that the store searches. The ids of the index are the ids of the documents. None
        before the first document is added.

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
        # The first search with a filter by metadata creates the index of the metadata.
        self._metadata: MetadataIndex | None = None

    @property
    def embeddings(self) -> Embeddings:
        """The model that turns texts into vectors."""
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
        """Return a store that contains the texts; kwargs are the arguments of the constructor."""
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
        """Embed and add texts, and return their ids.

        If the store already contains a document with one of these ids, the new document replaces
        it.
        """
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
        """Return a store of texts and their vectors, without embedding anything."""
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
        """Call from_embeddings in a thread, and return the store."""
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
        """Add texts with their vectors, and return their ids.

        An existing document with the same id is replaced.
        """
        pairs = list(text_embeddings)
        texts = [text for text, _ in pairs]
        _check_lengths(len(texts), metadatas, ids)
        if not texts:
            return []
        vectors = np.asarray([vector for _, vector in pairs])
        optional_ids = [None] * len(texts) if ids is None else ids
        document_ids = [str(uuid.uuid4()) if name is None else name for name in optional_ids]
        documents = {
            name: Document(id=name, page_content=text, metadata=dict(metadata))
            for name, text, metadata in zip(
                document_ids, texts, metadatas or [{} for _ in texts], strict=True
            )
        }
        # If several texts have the same id, the index and the dict of documents store only the last
        # text.
        row_of_id = {name: row for row, name in enumerate(document_ids)}
        rows = vectors[list(row_of_id.values())]
        with parallel.writer_lock():
            # The index is changed before the documents. If the index refuses the vectors because
            # they have the wrong width, the documents stay unchanged.
            if self.index is None:
                self.index = SimilarityIndex(self._measure, model=self._model).fit(
                    rows, ids=list(row_of_id), copy=False
                )
            else:
                self.index.upsert(rows, list(row_of_id))
            self._documents |= documents
            if self._metadata is not None:
                positions = self.index.positions_of(list(documents)).tolist()
                self._metadata.put(
                    positions, [document.metadata for document in documents.values()]
                )
        return document_ids

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Remove the documents with these ids, or all if ids is None; ignore unknown ids."""
        with parallel.writer_lock():
            requested = self._documents if ids is None else ids
            known_ids = [name for name in dict.fromkeys(requested) if name in self._documents]
            if known_ids and self.index is not None:
                if self._metadata is not None:
                    self._metadata.drop(self.index.positions_of(known_ids).tolist())
                self.index.remove(known_ids)
            for name in known_ids:
                del self._documents[name]
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids; unknown ids are ignored."""
        return [self._documents[name] for name in ids if name in self._documents]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k nearest documents.

        The keyword arguments are those of similarity_search_with_score.
        """
        pairs = self.similarity_search_with_score(query, k, **kwargs)
        return [document for document, _ in pairs]

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Filter | None = None,
        min_score: float | Threshold | None = None,
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Return the k nearest documents with their scores, in descending order of the score.

        ``filter`` limits the search to some of the documents. A filter is a function that returns
        True for the documents that may be found, or a dict of conditions on the metadata of
        documents. A condition is one value (``{"source": "a.pdf"}``), a list of allowed values, or
        a comparison (``{"year": {"$gte": 2020}}``). The operators of comparisons are ``$eq``,
        ``$ne``, ``$gt``, ``$gte``, ``$lt``, ``$lte``, ``$in`` and ``$nin``. The operators ``$and``,
        ``$or`` and ``$not`` combine conditions. A key that occurs in no document raises an error.
        The metadata of all documents are read once, when a search with conditions first needs them.
        If you change the metadata of a document later, searches with conditions ignore the change.

        ``min_score`` is the lowest score of a returned document. Pass either a number, or a
        calibration, whose threshold is then the lowest score. A random pair reaches this threshold
        with a probability of at most ``fpr``, which is the argument that was passed to
        ``calibrate``.
        """
        return self._nearest(self._embedding.embed_query(query), k, filter, min_score)

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """Return the k documents nearest to a vector.

        The keyword arguments are ``filter`` and ``min_score``, as in similarity_search_with_score.
        """
        pairs = self.similarity_search_with_score_by_vector(embedding, k, **kwargs)
        return [document for document, _ in pairs]

    def similarity_search_with_score_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        filter: Filter | None = None,
        *,
        min_score: float | Threshold | None = None,
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Return the k documents nearest to a vector with their scores, in descending order."""
        return self._nearest(embedding, k, filter, min_score)

    async def asimilarity_search_with_score_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Call similarity_search_with_score_by_vector in a thread, and return its result."""
        return await run_in_executor(
            None, self.similarity_search_with_score_by_vector, embedding, k, **kwargs
        )

    def similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the k nearest documents with their relevance.

        The relevance is the cosine, or 0 if the cosine is negative. ``score_threshold`` is the
        lowest relevance of a returned document. Both ``min_score`` and ``score_threshold`` are
        rounded to float32 before they are compared with scores.
        """
        threshold = kwargs.pop("score_threshold", None)
        pairs = self._similarity_search_with_relevance_scores(query, k=k, **kwargs)
        if threshold is None:
            return pairs
        min_relevance = rounded_scores(as_real("score_threshold", threshold))
        return [
            (document, relevance) for document, relevance in pairs if relevance >= min_relevance
        ]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k of the fetch_k nearest documents, chosen by maximal marginal relevance (MMR).

        MMR prefers documents that are near to the query but differ from each other.
        """
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
        """Return k documents near a vector, chosen by maximal marginal relevance."""
        pairs = self.max_marginal_relevance_search_with_score_by_vector(
            embedding, k=k, fetch_k=fetch_k, lambda_mult=lambda_mult, **kwargs
        )
        return [document for document, _ in pairs]

    def max_marginal_relevance_search_with_score_by_vector(
        self,
        embedding: list[float],
        *,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Choose k documents by maximal marginal relevance; return them with their scores."""
        pairs = self.similarity_search_with_score_by_vector(embedding, fetch_k, **kwargs)
        if self.index is None or not pairs:
            return []
        rows = self.index.vectors_of([document.id for document, _ in pairs])
        numbers = maximal_marginal_relevance(
            np.asarray(embedding, np.float32), list(rows), lambda_mult, k
        )
        return [pairs[number] for number in numbers]

    async def amax_marginal_relevance_search_with_score_by_vector(
        self, embedding: list[float], **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Call max_marginal_relevance_search_with_score_by_vector in a thread."""
        return await run_in_executor(
            None, self.max_marginal_relevance_search_with_score_by_vector, embedding, **kwargs
        )

    def merge_from(self, target: "FastcosVectorStore") -> None:
        """Add the documents and the vectors of another store to this store.

        This store must not contain any id of the other store. Stores of different models cannot be
        merged.
        """
        if target.index is None or not target._documents:
            return
        check_same_model("target", self._model, target._model)
        documents = list(target._documents.values())
        ids = [document.id for document in documents]
        if known_ids := [name for name in ids if name in self._documents]:
            raise ValueError(
                f"target must have ids that are new to the store, got {known_ids[0]!r}"
            )
        texts = (document.page_content for document in documents)
        pairs = zip(texts, target.index.vectors_of(ids), strict=True)
        self.add_embeddings(pairs, [document.metadata for document in documents], ids=ids)

    def save_local(self, folder_path: storage.PathLike, index_name: str = _INDEX) -> None:
        """Write the index and the documents to a folder.

        The metadata of the documents must have a JSON form. Stores with different values of
        ``index_name`` may share a folder.
        """
        path = Path(folder_path)
        index_name, documents_name = _names_of(index_name)
        path.mkdir(parents=True, exist_ok=True)
        with parallel.writer_lock():
            lines = [
                json.dumps(
                    {"id": name, "text": document.page_content, "metadata": document.metadata}
                )
                for name, document in self._documents.items()
            ]
            if self.index is None and (path / index_name).exists():
                reason = "this store is empty, and an empty store must not replace the stored one"
                raise storage.OccupiedError(
                    f"folder_path must be a folder without a store, got {str(path)!r}: {reason}"
                )
            file = path / documents_name
            previous_text = file.read_text("utf8") if file.exists() else None
            # The documents are written before the index, because load_local ignores documents
            # without a vector.
            write_text(file, "".join(f"{line}\n" for line in lines))
            if self.index is None:
                return
            try:
                self.index.save(path / index_name)
            except BaseException:
                # If `save` fails, the previous index remains, so its documents are restored.
                if previous_text is not None:
                    write_text(file, previous_text)
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

        An error is raised if the documents were embedded by another model. If ``model`` is not
        None, the store must have been saved with this model name. If ``model`` is None, the
        function uses the attribute ``model_name`` or ``model`` of the embeddings. If this attribute
        exists and a name was saved with the store, the attribute must equal the saved name.

        ``allow_dangerous_deserialization`` has no effect, because the files cannot run code. The
        argument exists for compatibility: calls that were written for LangChain's FAISS store,
        which requires the argument, also work with this store.
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
        indexed_ids = set(store.index.ids.tolist())
        for record in map(json.loads, lines):
            if record["id"] in indexed_ids:
                store._documents[record["id"]] = Document(
                    id=record["id"], page_content=record["text"], metadata=record["metadata"]
                )
        if missing := indexed_ids - store._documents.keys():
            raise storage.FastcosFormatError(
                f"{path / documents_name} must hold every document of the index, got no document "
                f"with the id {min(missing)!r}"
            )
        return store

    def serialize_to_bytes(self) -> bytes:
        """Return the files that ``save_local`` writes, as one zip archive."""
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

        ``model`` and ``allow_dangerous_deserialization`` have the same meaning as in
        ``load_local``.
        """
        with tempfile.TemporaryDirectory() as folder:
            try:
                with zipfile.ZipFile(BytesIO(serialized)) as members:
                    members.extractall(folder)
            except (TypeError, zipfile.BadZipFile) as error:
                rule = "serialized must be bytes that serialize_to_bytes returned"
                raise storage.FastcosFormatError(f"{rule}, got {error}") from None
            mapped_store = cls.load_local(folder, embeddings, model=model)
            store = cls(embeddings, measure=mapped_store._measure, model=mapped_store._model)
            store.merge_from(mapped_store)
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
        threshold = None
        if min_score is not None:
            measure = get_measure(self._measure)
            threshold = as_threshold("min_score", min_score, measure, index.model)
        neighbors = index.search(np.asarray(vector), k, allowed=allowed, min_score=threshold)
        pairs = zip(neighbors.ids[0].tolist(), neighbors.scores[0].tolist(), strict=True)
        # Another thread may have removed a document that the search found.
        return [(documents[name], score) for name, score in pairs if name in documents]

    def _positions_of(self, index: SimilarityIndex, filter: Filter) -> Any:
        """Find the documents that a filter accepts; return their positions in the index."""
        if callable(filter):
            accepted = [name for name, document in self._documents.items() if filter(document)]
            return index.positions_of(accepted)
        if self._metadata is None:
            self._metadata = MetadataIndex()
            self._metadata.put(
                index.positions_of(list(self._documents)).tolist(),
                [document.metadata for document in self._documents.values()],
            )
        return self._metadata.find(filter)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Return the function that converts a cosine to a relevance, which is at least 0."""
        if get_measure(self._measure).name != "cosine":
            raise ValueError(
                f"measure must be 'cosine' for relevance scores, got {self._measure!r}"
            )
        return lambda score: min(max(score, 0.0), 1.0)


def _model_of(embedding: Embeddings) -> str | None:
    """Return the name of an embedding's model; most packages store the name in an attribute."""
    names = (getattr(embedding, attribute, None) for attribute in ("model_name", "model"))
    return next((name for name in names if isinstance(name, str) and name.strip()), None)


def _names_of(index_name: str) -> tuple[str, str]:
    """Return the name of the directory of the index, and the name of the file of documents."""
    if not isinstance(index_name, str) or Path(index_name).name != index_name:
        raise ValueError(f"index_name must be the name of a file, got {index_name!r}")
    return index_name, _DOCUMENTS if index_name == _INDEX else f"{index_name}.{_DOCUMENTS}"


def _check_lengths(n: int, metadatas: Any, ids: Any) -> None:
    for name, values in (("metadatas", metadatas), ("ids", ids)):
        if name == "metadatas" and values is not None and not len(values):
            continue  # Other stores of LangChain treat an empty list in the same way as None.
        if values is not None and len(values) != n:
            raise ValueError(f"{name} must have one entry per text ({n}), got {len(values)}")

"""A search index with the ``IndexEncoderSearchProtocol`` of MTEB (``pip install mteb``)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.search import SimilarityIndex
from fastcos.similarity.base import Measure


class FastcosSearchIndex:
    """A search index for MTEB; it holds document embeddings in memory and searches them exactly.

    Parameters
    ----------
    measure : str or Measure
        The similarity of the model, as in :func:`fastcos.top_k`. If the measure lacks the
        capability ``append``, every addition fits the measure again and encodes all documents
        again.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.integrations.mteb import FastcosSearchIndex
    >>> index = FastcosSearchIndex()
    >>> index.add_documents(np.eye(3), ["a", "b", "c"])
    >>> index.search(np.array([[0.0, 3.0, 4.0]]), top_k=2, similarity_fn=None)[1]
    [[2, 1]]
    """

    def __init__(self, measure: str | Measure = "cosine") -> None:
        self._measure = measure
        self._index: SimilarityIndex | None = None
        self._numbers: dict[str, int] = {}

    def add_documents(self, embeddings: Any, idxs: list[str]) -> None:
        """Add documents with these embeddings (n, d) and these ids."""
        rows = validation.as_rows("embeddings", embeddings)
        names = validation.as_list("idxs", idxs)
        known_ids = [name for name in names if name in self._numbers]
        if len(set(names)) < len(rows) or len(names) != len(rows) or known_ids:
            got = f"{known_ids[0]!r} again" if known_ids else f"{len(set(names))} of {len(names)}"
            raise ValueError(f"idxs must be {len(rows)} new, distinct ids, got {got}")
        if self._index is None:
            self._index = SimilarityIndex(self._measure).fit(rows)
        else:
            self._check_width(rows)
            self._index.add(rows)
        self._numbers |= {name: len(self._numbers) + i for i, name in enumerate(names)}

    def _check_width(self, rows: Any) -> None:
        width = self._index.n_features_in_ if self._index else 0
        validation.check_width("embeddings", rows, "the documents", width)

    def search(
        self,
        embeddings: Any,
        top_k: int,
        similarity_fn: Callable[[Any, Any], Any] | None = None,
        top_ranked: dict[str, list[str]] | None = None,
        query_idx_to_id: dict[int, str] | None = None,
    ) -> tuple[list[list[float]], list[list[int]]]:
        """Return the scores and positions of the best documents of each query, best first.

        `similarity_fn` is not called, because the measure computes the scores. If top_ranked is not
        None, it contains a list of document ids for each query id. Only the documents in this list
        are ranked. The returned numbers are then positions in the list, because MTEB expects such
        positions.
        """
        if self._index is None:
            raise ValueError("documents must be added before a search, got none")
        rows = validation.as_rows("embeddings", embeddings, or_vector=True)
        self._check_width(rows)
        k = validation.as_count("top_k", top_k)
        if top_ranked is None:
            neighbors = self._index.search(rows, min(k, self._index.n_items_))
            return neighbors.scores.tolist(), neighbors.indices.tolist()
        if query_idx_to_id is None or not query_idx_to_id.keys() >= set(range(len(rows))):
            raise ValueError(
                f"query_idx_to_id must contain the ids of all {len(rows)} queries, because "
                f"top_ranked is given, got {query_idx_to_id}"
            )
        lists = [top_ranked.get(query_idx_to_id[row]) or [] for row in range(len(rows))]
        unknown = [name for names in lists for name in names if name not in self._numbers]
        if unknown:
            raise ValueError(f"top_ranked must hold ids of documents, got {unknown[0]!r}")
        candidates = np.full((len(lists), max(1, max(map(len, lists)))), -1, np.int64)
        for row, names in enumerate(lists):
            candidates[row, : len(names)] = [self._numbers[name] for name in names]
        best = self._index.rescore(rows, candidates, min(k, candidates.shape[1]))
        scores, numbers = [], []
        for row, indices in enumerate(best.indices):
            position_of = {number: place for place, number in enumerate(candidates[row].tolist())}
            documents = indices[indices >= 0].tolist()
            scores.append(best.scores[row, : len(documents)].tolist())
            numbers.append([position_of[number] for number in documents])
        return scores, numbers

    def clear(self) -> None:
        """Remove all documents."""
        self._index, self._numbers = None, {}

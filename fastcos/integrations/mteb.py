"""A search index for MTEB (``pip install mteb``): its ``IndexEncoderSearchProtocol``."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastcos.measures.base import Measure
from fastcos.neighbors import SimilarityIndex


class FastcosSearchIndex:
    """Embeddings of documents in memory, searched and re-ranked exactly.

    Parameters
    ----------
    measure : str or Measure
        The model's similarity, as in :func:`fastcos.top_k`; one with the capability ``append``.

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
        """Add documents with these ids."""
        if self._index is None:
            self._index = SimilarityIndex(self._measure).fit(embeddings)
        else:
            self._index.add(embeddings)
        self._numbers |= {one: len(self._numbers) + i for i, one in enumerate(idxs)}

    def search(
        self,
        embeddings: Any,
        top_k: int,
        similarity_fn: Callable[[Any, Any], Any] | None = None,
        top_ranked: dict[str, list[str]] | None = None,
        query_idx_to_id: dict[int, str] | None = None,
    ) -> tuple[list[list[float]], list[list[int]]]:
        """Return scores and numbers of the best documents of each query, the best first.

        similarity_fn is not called: the measure scores. With top_ranked, each query's list of ids,
        numbers count within that list, as MTEB reads them.
        """
        if self._index is None:
            raise ValueError("documents must be added before a search, got none")
        if top_ranked is None:
            found = self._index.search(embeddings, min(top_k, self._index.n_items_))
            return found.scores.tolist(), found.indices.tolist()
        if query_idx_to_id is None:
            raise ValueError("query_idx_to_id must be given with top_ranked, got None")
        lists = [top_ranked.get(query_idx_to_id[row]) or [] for row in range(len(embeddings))]
        candidates = np.full((len(lists), max(1, max(map(len, lists)))), -1, np.int64)
        for row, names in enumerate(lists):
            candidates[row, : len(names)] = [self._numbers[one] for one in names]
        k = min(top_k, candidates.shape[1])
        best = self._index.rescore(embeddings, candidates, k)
        scores, numbers = [], []
        for row, indices in enumerate(best.indices):
            places = {number: place for place, number in enumerate(candidates[row].tolist())}
            kept = indices[indices >= 0].tolist()
            scores.append(best.scores[row, : len(kept)].tolist())
            numbers.append([places[number] for number in kept])
        return scores, numbers

    def clear(self) -> None:
        """Forget all documents."""
        self._index, self._numbers = None, {}

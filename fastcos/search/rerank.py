"""Re-ranking: another score for candidates already found, which no inner product can express."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.search.results import Neighbors
from fastcos.similarity.row_transforms import norms_of, unit_rows

if TYPE_CHECKING:
    import scipy.sparse as sp

# vectors of a bag, and their shares
_Bag = tuple[npt.NDArray[np.integer[Any]], npt.NDArray[np.float64]]
Scorer = Callable[[int, npt.NDArray[np.int64]], Any]
Progress = Callable[[int, int], object]


def rerank(neighbors: Neighbors, scorer: Scorer, *, progress: Progress | None = None) -> Neighbors:
    """Order the neighbours of every query by a score that exists for pairs only.

    One call of the scorer a query; the candidates are not changed, so what is left out of
    neighbors stays out: search more of them than are needed.

    Parameters
    ----------
    neighbors : Neighbors
        Candidates of n queries, as ``top_k`` finds them; -1 is no candidate.
    scorer : callable
        scorer(query, items) returns one score for each of items (m,), the larger the better; query
        is the number of the query. A model of texts, a distance between sets of vectors, ...
    progress : callable, optional
        Called as progress(done, total) with numbers of queries.

    Returns
    -------
    Neighbors
        indices (n, k) int64 by descending score, equal scores by lower index; scores (n, k)
        float32. The order is that of the scores in float64.

    Raises
    ------
    ValueError
        The scorer returned another number of scores than it got items, or NaN or infinity.
    TypeError
        neighbors or scorer is not what it must be.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import top_k
    >>> from fastcos.search.rerank import rerank
    >>> items = np.array([[1.0, 0.0], [2.0, 0.1], [0.9, 0.3], [0.0, 1.0]])
    >>> found = top_k(items, k=2)
    >>> nearest = lambda query, others: -np.linalg.norm(items[others] - items[query], axis=1)
    >>> found.indices[0].tolist(), rerank(found, nearest).indices[0].tolist()
    ([1, 2], [2, 1])
    """
    validation.check_progress(progress)
    given = validation.as_instance("neighbors", neighbors, Neighbors, "what top_k returns")
    validation.check_callable("scorer", scorer)
    indices = np.array(given.indices, np.int64)
    scores = np.full(indices.shape, -np.inf, np.float32)
    for query in range(len(indices)):
        items = np.sort(indices[query][indices[query] >= 0])
        indices[query] = -1
        if len(items):
            found = validation.as_vector("scores of scorer", scorer(query, items), len(items))
            order = np.argsort(-found, kind="stable")
            indices[query, : len(items)] = items[order]
            with np.errstate(over="ignore"):
                scores[query, : len(items)] = found[order]
        if progress is not None:
            progress(query + 1, len(indices))
    return Neighbors(indices, scores)


class STSScorer:
    """Similarity of texts by a cross-encoder, for ``rerank``.

    Source: STSScore, a model fine-tuned on the STS benchmark (arXiv:2309.12697). The model reads
    both texts at once, so that no embedding and no index exists for its score.

    Parameters
    ----------
    model : str or path-like or object
        The folder of a sentence-transformers CrossEncoder on this machine, or any object with
        ``predict(pairs)``. Nothing is downloaded.
    query_texts : sequence of str
        Text of every query.
    item_texts : sequence of str, optional
        Text of every item. Default: the queries are the items.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    ImportError
        model is a folder and sentence-transformers is not installed.

    Examples
    --------
    >>> from fastcos.search.rerank import STSScorer
    >>> class SharedWords:
    ...     def predict(self, pairs):
    ...         return [len(set(a.split()) & set(b.split())) for a, b in pairs]
    >>> scorer = STSScorer(SharedWords(), ["a red car", "one red car", "a tree"])
    >>> scorer(0, [1, 2])
    array([2., 1.])
    """

    def __init__(self, model: Any, query_texts: Any, item_texts: Any = None) -> None:
        self.model = model if hasattr(model, "predict") else _cross_encoder(model)
        self.query_texts = list(query_texts)
        self.item_texts = self.query_texts if item_texts is None else list(item_texts)

    def __call__(self, query: int, items: Any) -> npt.NDArray[np.float64]:
        """Return the score of the query with each of items.

        Parameters
        ----------
        query : int
        items : array_like (m,), int

        Returns
        -------
        ndarray (m,), float64
        """
        pairs = [(self.query_texts[query], self.item_texts[item]) for item in items]
        return np.asarray(self.model.predict(pairs), np.float64).reshape(-1)


class WordRotatorsScorer:
    """Minus Word Rotator's Distance of two bags of vectors, for ``rerank``.

    A bag's masses are |w| times its weight, divided by their sum; the distance is the optimal
    transport between two bags with the cost 1 - cosine. Between bags of one vector it is
    1 - cosine; an empty bag is at distance 1 from all. A linear programme per pair, O(m^3 log m)
    for bags of m vectors: milliseconds. ``directions`` gives rows to find candidates with: half
    their squared distance is at most the bags' distance, by Jensen's inequality.

    Source: Yokoi et al. arXiv:2004.15003.

    Parameters
    ----------
    vectors : array_like (w, d)
        The vectors of which the bags are made.
    query_bags : array_like or sparse (n, w)
        Weights (counts) of the vectors in every query's bag, >= 0.
    item_bags : array_like or sparse (p, w), optional
        Those of every item. Default: the queries are the items.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import top_k
    >>> from fastcos.search.rerank import WordRotatorsScorer, rerank
    >>> vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> scorer = WordRotatorsScorer(vectors, [[2, 0, 0], [1, 0, 1], [0, 1, 0]])
    >>> found = top_k(scorer.directions(), k=2, measure="neg_euclidean")
    >>> rerank(found, scorer).indices[0].tolist()
    [1, 2]
    """

    def __init__(self, vectors: Any, query_bags: Any, item_bags: Any = None) -> None:
        given = validation.as_rows("vectors", vectors, dtype=np.float64)
        self._norms = norms_of(given)
        self._units = unit_rows(given)
        self._queries = self._masses("query_bags", query_bags)
        self._items = self._queries if item_bags is None else self._masses("item_bags", item_bags)

    def __call__(self, query: int, items: Any) -> npt.NDArray[np.float64]:
        """Return the score of the query's bag with each of the items' bags.

        Parameters
        ----------
        query : int
        items : array_like (m,), int

        Returns
        -------
        ndarray (m,), float64
        """
        own = _bag(self._queries, query)
        return np.array([-self._distance(own, _bag(self._items, item)) for item in items])

    def directions(self, *, of_items: bool = False) -> npt.NDArray[np.float64]:
        """Return the mean direction of every query's bag, or of every item's.

        Parameters
        ----------
        of_items : bool

        Returns
        -------
        ndarray (n, d), float64
        """
        masses = self._items if of_items else self._queries
        return np.asarray(masses @ self._units)

    def _masses(self, name: str, bags: Any) -> sp.csr_array:
        """Return the share of each vector in every bag, without zeros."""
        import scipy.sparse as sp

        weights = sp.csr_array(bags, dtype=np.float64, copy=True)
        validation.check_same_width(name, weights, "vectors.T", self._units.T)
        if weights.nnz and not (weights.data.min() >= 0 and np.isfinite(weights.data.max())):
            raise ValueError(f"{name} must be finite and >= 0, got {weights.data.min():g}")
        weights.data *= self._norms[weights.indices]
        weights.eliminate_zeros()
        weights.data /= np.repeat(weights.sum(axis=1), np.diff(weights.indptr))
        return weights

    def _distance(self, first: _Bag, second: _Bag) -> float:
        (rows, a), (columns, b) = first, second
        if not len(rows) or not len(columns):
            return 1.0
        if np.array_equal(rows, columns) and np.array_equal(a, b):
            return 0.0
        # 1 - cosine, from differences: exact where vectors are nearly the same
        differences = self._units[rows][:, None] - self._units[columns]
        costs = 0.5 * np.square(differences).sum(axis=2)
        if len(rows) == 1 or len(columns) == 1:
            return float((a[:, None] * costs * b).sum())
        from scipy.optimize import linprog

        n, m = costs.shape
        # each row gives its mass, each column but the last takes its own: the last one follows
        gives = np.kron(np.eye(n), np.ones(m))
        takes = np.kron(np.ones(n), np.eye(m))[:-1]
        done = linprog(
            costs.ravel(),
            A_eq=np.vstack([gives, takes]),
            b_eq=np.concatenate([a, b[:-1]]),
            method="highs-ds",
        )
        return float(done.fun)


def _bag(masses: sp.csr_array, row: int) -> _Bag:
    """Return the vectors of a bag, and their shares."""
    part = slice(masses.indptr[row], masses.indptr[row + 1])
    return masses.indices[part], masses.data[part]


def _cross_encoder(folder: Any) -> Any:
    path = validation.as_path("model", folder)
    if not path.is_dir():
        raise FileNotFoundError(f"model must be a folder on this machine, got {str(path)!r}")
    try:
        module = import_module("sentence_transformers")
    except ImportError:
        raise ImportError("model is a folder: pip install sentence-transformers") from None
    return module.CrossEncoder(str(path), local_files_only=True)

"""Re-rank the candidates of a search by a score that must be computed pair by pair."""

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

# A bag of vectors is a pair of arrays. The first array contains the row numbers of the vectors. The
# second array contains the masses of the vectors, which sum to 1.
_Bag = tuple[npt.NDArray[np.integer[Any]], npt.NDArray[np.float64]]
Scorer = Callable[[int, npt.NDArray[np.int64]], Any]
Progress = Callable[[int, int], object]


def rerank(neighbors: Neighbors, scorer: Scorer, *, progress: Progress | None = None) -> Neighbors:
    """Reorder the neighbours of each query by the scores that ``scorer`` computes pair by pair.

    The scorer is called once per query. An item that is not among the candidates cannot be found,
    so search for more candidates than you need.

    Parameters
    ----------
    neighbors : Neighbors
        The candidates of n queries, as ``top_k`` returns them; -1 stands for no candidate.
    scorer : callable
        ``scorer(query, items)`` returns the scores (m,) of a query with items (m,). ``query`` is
        the index of the query, and ``items`` contains the indices of the items. A larger score is
        better. The scorer may, for example, call a model that compares two texts, or compute a
        distance between two sets of vectors.
    progress : callable, optional
        Called as ``progress(done, total)``, where both arguments count queries.

    Returns
    -------
    Neighbors
        indices (n, k) int64 by descending score, and scores (n, k) float32. Equal scores are
        ordered by item number. Neighbours are ordered by the exact scores that the scorer returns.
        After the neighbours have been ordered, the scores are rounded to float32.

    Raises
    ------
    ValueError
        The scorer returned more or fewer scores than items, or a score is NaN or infinite.
    TypeError
        `neighbors` is not a Neighbors object, or `scorer` is not callable.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import top_k
    >>> from fastcos.search.rerank import rerank
    >>> items = np.array([[1.0, 0.0], [2.0, 0.1], [0.9, 0.3], [0.0, 1.0]])
    >>> neighbors = top_k(items, k=2)
    >>> nearest = lambda query, others: -np.linalg.norm(items[others] - items[query], axis=1)
    >>> neighbors.indices[0].tolist(), rerank(neighbors, nearest).indices[0].tolist()
    ([1, 2], [2, 1])
    """
    validation.check_progress(progress)
    candidates = validation.as_instance("neighbors", neighbors, Neighbors, "what top_k returns")
    validation.check_callable("scorer", scorer)
    indices = np.array(candidates.indices, np.int64)
    scores = np.full(indices.shape, -np.inf, np.float32)
    for query in range(len(indices)):
        items = np.sort(indices[query][indices[query] >= 0])
        indices[query] = -1
        if len(items):
            new_scores = validation.as_vector("scores of scorer", scorer(query, items), len(items))
            order = np.argsort(-new_scores, kind="stable")
            indices[query, : len(items)] = items[order]
            with np.errstate(over="ignore"):
                scores[query, : len(items)] = new_scores[order]
        if progress is not None:
            progress(query + 1, len(indices))
    return Neighbors(indices, scores)


class STSScorer:
    """A scorer for ``rerank``: the similarity of two texts according to a cross-encoder.

    A cross-encoder reads both texts of a pair at once. The score of a cross-encoder cannot be
    computed from embeddings of the texts, so no index can search by this score.

    Source: STSScore, which uses a model that was fine-tuned on the STS benchmark
    (arXiv:2309.12697).

    Parameters
    ----------
    model : str or path-like or object
        The folder of a sentence-transformers CrossEncoder on this machine, or an object with a
        method ``predict(pairs)``. No model is downloaded.
    query_texts : sequence of str
        The text of each query.
    item_texts : sequence of str, optional
        The text of each item. Default: the queries are the items.

    Raises
    ------
    FileNotFoundError
        ``model`` is a path to a folder that does not exist.
    ImportError
        ``model`` is a folder, and sentence-transformers is not installed.

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
        """Return the similarities of the query's text to the texts of these items.

        Parameters
        ----------
        query : int
            The index of the query.
        items : array_like (m,), int
            The indices of the items.

        Returns
        -------
        ndarray (m,), float64
            The scores, in the order of items.
        """
        pairs = [(self.query_texts[query], self.item_texts[item]) for item in items]
        return np.asarray(self.model.predict(pairs), np.float64).reshape(-1)


class WordRotatorsScorer:
    """A scorer for ``rerank``: minus the Word Rotator's Distance between two bags of vectors.

    A bag contains vectors with weights, for example the word vectors of a text with the counts of
    the words. To compute the masses of the vectors in a bag, multiply the norm of each vector by
    its weight, and divide these products by their sum. The distance between two bags is the lowest
    cost of moving the masses of one bag to the vectors of the other bag. Moving a unit of mass from
    one vector to another costs 1 - cosine. If each bag contains a single vector, the distance is
    therefore 1 - cosine. The distance between an empty bag and any bag is 1. A linear programme
    computes the distance between two bags of m vectors in O(m^3 log m) time. This usually takes a
    few milliseconds. To find candidates, call ``directions``, and search the returned rows with the
    measure "neg_euclidean". For two bags, ``directions`` returns two rows. By Jensen's inequality,
    half the squared Euclidean distance between these rows is a lower bound on the distance between
    the bags.

    Source: Yokoi et al. arXiv:2004.15003.

    Parameters
    ----------
    vectors : array_like (w, d)
        All vectors that can occur in a bag.
    query_bags : array_like or sparse (n, w)
        The weights of the vectors in the bag of each query, such as counts; at least 0.
    item_bags : array_like or sparse (p, w), optional
        The weights of the vectors in the bag of each item. Default: the queries are the items.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import top_k
    >>> from fastcos.search.rerank import WordRotatorsScorer, rerank
    >>> vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> scorer = WordRotatorsScorer(vectors, [[2, 0, 0], [1, 0, 1], [0, 1, 0]])
    >>> neighbors = top_k(scorer.directions(), k=2, measure="neg_euclidean")
    >>> rerank(neighbors, scorer).indices[0].tolist()
    [1, 2]
    """

    def __init__(self, vectors: Any, query_bags: Any, item_bags: Any = None) -> None:
        rows = validation.as_rows("vectors", vectors, dtype=np.float64)
        self._norms = norms_of(rows)
        self._units = unit_rows(rows)
        self._queries = self._masses("query_bags", query_bags)
        self._items = self._queries if item_bags is None else self._masses("item_bags", item_bags)

    def __call__(self, query: int, items: Any) -> npt.NDArray[np.float64]:
        """Return the scores of the bag of one query with the bags of these items.

        Parameters
        ----------
        query : int
            The index of the query.
        items : array_like (m,), int
            The indices of the items.

        Returns
        -------
        ndarray (m,), float64
            The scores, in the order of items.
        """
        query_bag = _bag(self._queries, query)
        return np.array([-self._distance(query_bag, _bag(self._items, item)) for item in items])

    def directions(self, *, of_items: bool = False) -> npt.NDArray[np.float64]:
        """For each query or for each item, return the mean of the unit vectors in its bag.

        In each mean, the vectors are weighted by their masses.

        Parameters
        ----------
        of_items : bool
            Whether to return one mean per item. By default, one mean per query is returned.

        Returns
        -------
        ndarray (n, d), float64
            One row per bag.
        """
        masses = self._items if of_items else self._queries
        return np.asarray(masses @ self._units)

    def _masses(self, name: str, bags: Any) -> sp.csr_array:
        """Return the masses of the vectors in each bag, as a sparse matrix (n, w)."""
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
        # 1 - cosine is computed from the difference of the unit vectors, because the cosine of
        # nearly equal vectors rounds to 1.
        differences = self._units[rows][:, None] - self._units[columns]
        costs = 0.5 * np.square(differences).sum(axis=2)
        if len(rows) == 1 or len(columns) == 1:
            return float((a[:, None] * costs * b).sum())
        from scipy.optimize import linprog

        n, m = costs.shape
        # The equations say that the mass a[i] leaves vector i of the first bag, and that the mass
        # b[j] arrives at vector j of the second bag. The last equation is omitted, because it
        # follows from the other equations.
        leaving = np.kron(np.eye(n), np.ones(m))
        arriving = np.kron(np.ones(n), np.eye(m))[:-1]
        solution = linprog(
            costs.ravel(),
            A_eq=np.vstack([leaving, arriving]),
            b_eq=np.concatenate([a, b[:-1]]),
            method="highs-ds",
        )
        return float(solution.fun)


def _bag(masses: sp.csr_array, row: int) -> _Bag:
    """Return the indices of the vectors in one bag, and each vector's share of the bag's mass."""
    entries = slice(masses.indptr[row], masses.indptr[row + 1])
    return masses.indices[entries], masses.data[entries]


def _cross_encoder(folder: Any) -> Any:
    """Return the CrossEncoder that is stored in a folder on this machine."""
    path = validation.as_path("model", folder)
    if not path.is_dir():
        raise FileNotFoundError(f"model must be a folder on this machine, got {str(path)!r}")
    try:
        module = import_module("sentence_transformers")
    except ImportError:
        rule = "needs sentence-transformers: pip install sentence-transformers"
        raise ImportError(f"a folder as model {rule}") from None
    return module.CrossEncoder(str(path), local_files_only=True)

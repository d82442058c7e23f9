"""Another score for candidates that are already found: for what no inner product can express."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.neighbors.types import Neighbors

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
        indices (n, k) int64 by falling score, equal scores by lower index; scores (n, k) float32.
        The order is that of the scores in float64.

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
    >>> from fastcos.neighbors.rerank import rerank
    >>> items = np.array([[1.0, 0.0], [2.0, 0.1], [0.9, 0.3], [0.0, 1.0]])
    >>> found = top_k(items, k=2)
    >>> nearest = lambda query, others: -np.linalg.norm(items[others] - items[query], axis=1)
    >>> found.indices[0].tolist(), rerank(found, nearest).indices[0].tolist()
    ([1, 2], [2, 1])
    """
    given = validation.as_instance("neighbors", neighbors, Neighbors, "what top_k returns")
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
    >>> from fastcos.neighbors.rerank import STSScorer
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


def _cross_encoder(folder: Any) -> Any:
    path = validation.as_path("model", folder)
    if not path.is_dir():
        raise FileNotFoundError(f"model must be a folder on this machine, got {str(path)!r}")
    try:
        module = import_module("sentence_transformers")
    except ImportError:
        raise ImportError("model is a folder: pip install sentence-transformers") from None
    return module.CrossEncoder(str(path), local_files_only=True)

"""A scikit-learn transformer that returns the graph of nearest neighbours."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fastcos import validation
from fastcos.search.distances import MEASURES, distances_of
from fastcos.search.index import SimilarityIndex
from fastcos.validation import Integers

# _self_items compares row i of its argument with row i of the fitted rows. It compares this many
# rows at once.
_COMPARED_AT_ONCE = 4096


class NeighborsTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """In scikit-learn pipelines, transform rows to the sparse graph of their nearest fitted rows.

    The class works like ``sklearn.neighbors.KNeighborsTransformer``. The entries of the graph are
    distances: 1 - cosine, or Euclidean distances. Each row has ``n_neighbors + 1`` entries, because
    a fitted row also finds itself, at distance 0. Distances are computed in float64 from the
    differences of rows, so that even small distances are accurate.

    Parameters
    ----------
    n_neighbors : int
        The number of neighbours of each row.
    mode : {"distance", "connectivity"}
        With "distance", the entries of the graph are distances. With "connectivity", the entries
        are ones, and each row has only ``n_neighbors`` entries.
    measure : {"cosine", "neg_euclidean"}
        The measure, as in :func:`top_k`.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns of the fitted rows.
    n_samples_fit_ : int
        The number of fitted rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import NeighborsTransformer
    >>> X = np.array([[3.0, 4.0], [4.0, 3.0], [0.0, 1.0]])
    >>> NeighborsTransformer(1).fit_transform(X).toarray().round(2).tolist()
    [[0.0, 0.04, 0.0], [0.04, 0.0, 0.0], [0.2, 0.0, 0.0]]
    """

    def __init__(
        self, n_neighbors: int = 10, *, mode: str = "distance", measure: str = "cosine"
    ) -> None:
        self.n_neighbors = n_neighbors
        self.mode = mode
        self.measure = measure

    def fit(self, X: Any, y: Any = None) -> "NeighborsTransformer":
        """Build an index of the rows X, in which ``transform`` finds neighbours.

        Parameters
        ----------
        X : array_like (p, d)
            The rows among which ``transform`` finds neighbours.
        y : ignored
            This argument has no effect; it is accepted because scikit-learn pipelines pass it.

        Returns
        -------
        NeighborsTransformer
            The transformer itself.
        """
        items = validation.estimator_rows(self, X, reset=True)
        validation.as_choice("mode", self.mode, ("distance", "connectivity"))
        validation.as_choice("measure", self.measure, MEASURES)
        validation.as_count("n_neighbors", self.n_neighbors)
        self._index = SimilarityIndex(self.measure).fit(items)
        self.n_samples_fit_ = len(items)
        return self

    def transform(self, X: Any) -> sp.csr_matrix:
        """Return the graph that connects each row of X with its nearest fitted rows.

        Parameters
        ----------
        X : array_like (n, d)
            The rows. If ``X[i]`` equals row i of the fitted rows, this fitted row is the first
            neighbour of ``X[i]``, at distance 0. In ``fit_transform``, the first neighbour of every
            row is therefore the row itself, even if other rows are equal to it.

        Returns
        -------
        csr_matrix (n, p), float64
            Each row has ``n_neighbors + 1`` entries, ordered by ascending distance, or
            ``n_neighbors`` entries if ``mode`` is "connectivity".
        """
        check_is_fitted(self)
        rows = validation.estimator_rows(self, X, reset=False)
        with_itself = self.mode == "distance"
        k = with_itself + validation.as_count(
            "n_neighbors", self.n_neighbors, high=self.n_samples_fit_ - with_itself
        )
        indices = np.array(self._index.search(rows, k).indices)
        self_items = self._self_items(rows)
        is_absent = (self_items >= 0) & ~(indices == self_items[:, None]).any(axis=1)
        indices[is_absent, -1] = self_items[is_absent]
        is_itself = indices == self_items[:, None]
        distances = distances_of(self._index, rows, indices)
        distances[is_itself] = 0.0
        order = np.argsort(np.where(is_itself, -1.0, distances), axis=1, kind="stable")
        indices = np.take_along_axis(indices, order, axis=1)
        values = np.ones(indices.shape)
        if self.mode == "distance":
            values = np.take_along_axis(distances, order, axis=1)
        indptr = np.arange(0, values.size + 1, k)
        shape = (len(rows), self.n_samples_fit_)
        return sp.csr_matrix((values.ravel(), indices.ravel(), indptr), shape=shape)

    def _self_items(self, rows: validation.Rows) -> Integers:
        """For each row i, return i if the row equals the fitted row i, and -1 otherwise."""
        n = min(len(rows), self.n_samples_fit_)
        is_item = np.zeros(len(rows), np.bool_)
        for first in range(0, n, _COMPARED_AT_ONCE):
            block = np.arange(first, min(n, first + _COMPARED_AT_ONCE))
            is_item[block] = (self._index.vectors_of(block) == rows[block]).all(axis=1)
        return np.where(is_item, np.arange(len(rows)), -1)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_samples_fit_)

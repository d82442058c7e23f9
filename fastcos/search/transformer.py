"""Nearest neighbours as a step of a scikit-learn pipeline."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fastcos import validation
from fastcos.search.distances import MEASURES, distances_of
from fastcos.search.index import SimilarityIndex
from fastcos.validation import Integers

# rows that are compared with the fitted ones at once
_COMPARED_AT_ONCE = 4096


class NeighborsTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # untyped there
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Rows to the sparse graph of their nearest items, for scikit-learn's pipelines.

    Like ``sklearn.neighbors.KNeighborsTransformer``: the graph holds distances for measures that
    have them (1 - cosine, Euclidean) with n_neighbors + 1 entries a row, so that a row's own zero
    is there beside its neighbours. Distances are computed in float64 from differences of the rows,
    so that those of near rows keep their digits.

    Parameters
    ----------
    n_neighbors : int
        Neighbours of each row.
    mode : {"distance", "connectivity"}
        What the entries are: distances, or ones (then n_neighbors a row).
    measure : {"cosine", "neg_euclidean"}
        As in :func:`top_k`.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the rows that were fitted.
    n_samples_fit_ : int
        Rows that were fitted.

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
        """Index the rows as items; later calls of transform search that index.

        Parameters
        ----------
        X : array_like (p, d)
            What later rows are compared with.
        y : ignored
            For pipelines.

        Returns
        -------
        NeighborsTransformer
            Itself.
        """
        items = validation.estimator_rows(self, X, reset=True)
        validation.as_choice("mode", self.mode, ("distance", "connectivity"))
        validation.as_choice("measure", self.measure, MEASURES)
        validation.as_count("n_neighbors", self.n_neighbors)
        self._index = SimilarityIndex(self.measure).fit(items)
        self.n_samples_fit_ = len(items)
        return self

    def transform(self, X: Any) -> sp.csr_matrix:
        """Graph of the rows' nearest items.

        Parameters
        ----------
        X : array_like (n, d)
            Rows. Row i finds item i first, at distance 0, where it equals that item: so every row
            of ``fit_transform`` finds itself before its copies.

        Returns
        -------
        csr_matrix (n, p), float64
            n_neighbors entries a row, one more for distances; a row's entries by ascending
            distance.
        """
        check_is_fitted(self)
        rows = validation.estimator_rows(self, X, reset=False)
        with_itself = self.mode == "distance"
        k = with_itself + validation.as_count(
            "n_neighbors", self.n_neighbors, high=self.n_samples_fit_ - with_itself
        )
        indices = np.array(self._index.search(rows, k).indices)
        itself = self._itself(rows)
        is_absent = (itself >= 0) & ~(indices == itself[:, None]).any(axis=1)
        indices[is_absent, -1] = itself[is_absent]
        is_itself = indices == itself[:, None]
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

    def _itself(self, rows: validation.Rows) -> Integers:
        """Return i for each row i that equals item i, and -1 for the others."""
        numbers = np.arange(len(rows))
        n = min(len(rows), self.n_samples_fit_)
        is_item = np.zeros(len(rows), np.bool_)
        for first in range(0, n, _COMPARED_AT_ONCE):
            some = np.arange(first, min(n, first + _COMPARED_AT_ONCE))
            is_item[some] = (self._index.vectors_of(some) == rows[some]).all(axis=1)
        return np.where(is_item, numbers, -1)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_samples_fit_)

"""Nearest neighbours as a step of a scikit-learn pipeline."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fastcos import validation
from fastcos.neighbors.index import SimilarityIndex


class NeighborsTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # untyped there
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Rows to the sparse graph of their nearest items, for scikit-learn's pipelines.

    Like ``sklearn.neighbors.KNeighborsTransformer``: the graph holds distances for measures that
    have them (1 - cosine, Euclidean) with n_neighbors + 1 entries a row, so that a row's own zero
    is there beside its neighbours.

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
        validation.as_choice("measure", self.measure, ("cosine", "neg_euclidean"))
        validation.as_count("n_neighbors", self.n_neighbors)
        self._index = SimilarityIndex(self.measure).fit(items)
        self.n_samples_fit_ = len(items)
        return self

    def transform(self, X: Any) -> sp.csr_matrix:
        """Graph of the rows' nearest items.

        Parameters
        ----------
        X : array_like (n, d)
            Rows; those that were fitted find themselves first.

        Returns
        -------
        csr_matrix (n, p), float64
            n_neighbors entries a row, one more for distances.
        """
        check_is_fitted(self)
        rows = validation.estimator_rows(self, X, reset=False)
        with_itself = self.mode == "distance"
        k = with_itself + validation.as_count(
            "n_neighbors", self.n_neighbors, high=self.n_samples_fit_ - with_itself
        )
        found = self._index.search(rows, k)
        values = np.ones(found.scores.shape)
        if self.mode == "distance":
            scores = found.scores.astype(np.float64)
            values = 1.0 - scores if self.measure == "cosine" else -scores
        indptr = np.arange(0, values.size + 1, k)
        shape = (len(rows), self.n_samples_fit_)
        return sp.csr_matrix((values.ravel(), found.indices.ravel(), indptr), shape=shape)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_samples_fit_)

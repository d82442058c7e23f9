"""Base classes of the estimators, for validating input, recommending, saving and loading."""

import inspect
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fastcos import storage, validation
from fastcos.linalg.csr import as_interactions
from fastcos.parallel import Progress
from fastcos.search.results import Neighbors
from fastcos.search.top_k import top_k
from fastcos.similarity.scoring_embeddings import ScoringEmbeddings

# Number of users whose embeddings are computed at a time. With 128 dimensions, the embeddings of
# 65,536 users take 32 MiB in float32.
_USERS_PER_BLOCK = 1 << 16
# If a model was fitted on a data frame, the saved model contains the column names of the data frame
# in an array with this name.
_FEATURE_NAMES = "feature_names_in"


class SparseInputMixin:
    """A mixin for estimators that accept sparse or dense rows and preserve float32 and float64."""

    def _as_matrix(self, X: Any, *, reset: bool) -> Any:
        """Return X as a canonical CSR array or as dense rows, after checking its columns.

        If `reset` is true, X is the argument of fit, and the function stores the number and the
        names of the columns of X. If `reset` is false, the function raises an error unless X has
        the same columns as the matrix that was passed to fit.
        """
        if not sp.issparse(X):
            return validation.estimator_rows(self, X, reset=reset)
        X = as_interactions("X", X)  # scikit-learn does not validate the indices of sparse X
        return validate_data(self, X, reset=reset, skip_check_array=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class FactorModel(
    SparseInputMixin,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # scikit-learn ships no types
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Base class of matrix factorisations, which embed users and items and recommend items.

    A subclass sets the attribute ``components_`` (k, p), and defines the methods
    ``user_embeddings``, ``item_embeddings`` and ``_embed``. The method ``_embed`` returns the
    embeddings of validated rows of users. To support saving and loading, a subclass also defines
    the following members:

    - ``_saved_as``, the name of the model type, which is written into a saved directory;
    - ``_fitted_arrays``, a dict that describes the fitted arrays of floats. A key of the dict is
      the name of an array without the final underscore, and a value contains one letter per axis of
      the array. Axes with the same letter have the same length; the letter p denotes the number of
      items. A value ends with "?" if the array may be None; an array that is None is not stored;
    - ``_saved_fields``, which returns a JSON document with the validated "parameters" and
      everything else that is saved, except the arrays;
    - ``_restore``, which sets the attributes that ``_saved_fields`` has saved.
    """

    _saved_as: ClassVar[str]
    _fitted_arrays: ClassVar[dict[str, str]]

    @property
    def _n_features_out(self: Any) -> int:
        return len(self.components_)

    def transform(self: Any, X: Any) -> Any:
        """Return the embeddings of the users in X, as :meth:`user_embeddings` does."""
        return self.user_embeddings(X)

    def scoring_embeddings(self: Any, X: Any) -> ScoringEmbeddings:
        """Return rows of users and rows of items whose inner products are the model's scores.

        Parameters
        ----------
        X : sparse matrix or array_like (m, p)
            One row per user; the users may differ from those in fit.

        Returns
        -------
        ScoringEmbeddings
            The rows ``users`` and ``items``, which you can pass to ``top_k(users, items,
            measure="dot", exclude=X)`` or to any index of inner products. ``CosineMF`` appends one
            column to ``users`` and one to ``items``, so that the inner products contain
            ``item_bias_``.

        Examples
        --------
        >>> from fastcos import CosineMF, simulate_interactions, top_k
        >>> X = simulate_interactions(300, 40, n_clusters=2, interactions_per_user=9).X
        >>> users, items = CosineMF(4).fit(X).scoring_embeddings(X)
        >>> top_k(users, items, 5, measure="dot", exclude=X).indices.shape
        (300, 5)
        """
        check_is_fitted(self)
        return self._scoring(self._as_matrix(X, reset=False))

    def _scoring(self: Any, X: Any) -> ScoringEmbeddings:
        return ScoringEmbeddings(self._embed(X), self.item_embeddings())

    def recommend(
        self: Any,
        X: Any,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> Neighbors:
        """Return the k items with the highest scores for every user.

        The scores are the inner products of the rows that :meth:`scoring_embeddings` returns. The
        result is exact, and does not change if the latent dimensions are rescaled. In addition to
        the result, the method needs memory for the embeddings of at most 65,536 users.

        Parameters
        ----------
        X : sparse matrix or array_like (m, p)
            One row per user; the users may differ from those in fit.
        k : int
            Number of items per user, from 1 to p.
        exclude_seen : bool
            If true, an item with a non-zero entry in the user's row of X is not recommended to the
            user. If fewer than k items remain, the indices are padded with -1 and the scores with
            -inf.
        n_threads : int, optional
            Number of threads. Default: the setting ``n_threads``.
        progress : callable, optional
            Function that is called as progress(done, total), where both arguments count users.

        Returns
        -------
        Neighbors
            The fields ``indices`` (m, k), int64, and ``scores`` (m, k), float32. The items of a
            user are sorted by descending score, and items with equal scores by ascending index.

        Examples
        --------
        >>> import numpy as np
        >>> from fastcos import LinearMF
        >>> X = np.array([[1.0, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]])
        >>> LinearMF(2, regularization=0.1).fit(X).recommend(X, 1).indices.ravel().tolist()
        [2, 3, 0]
        """
        check_is_fitted(self)
        X = self._as_matrix(X, reset=False)
        m, p = X.shape
        k = validation.as_count("k", k, high=p)
        exclude_seen = validation.as_flag("exclude_seen", exclude_seen)
        validation.check_progress(progress)
        neighbors = Neighbors(np.empty((m, k), np.int64), np.empty((m, k), np.float32))
        for first in range(0, m, _USERS_PER_BLOCK):
            rows = X[first : first + _USERS_PER_BLOCK]

            def report(done: int, _: int, first: int = first) -> None:
                if progress is not None:
                    progress(first + done, m)

            users, items = self._scoring(rows)
            block = top_k(
                users, items, k, measure="dot", n_threads=n_threads,
                exclude=sp.csr_array(rows) if exclude_seen else None, progress=report,
            )  # fmt: skip
            last = first + len(block.indices)
            neighbors.indices[first:last], neighbors.scores[first:last] = block
        return neighbors

    def save(self: Any, path: storage.PathLike) -> None:
        """Write the fitted model to a directory, atomically.

        `path` is a new directory, or the directory of a saved model; the method replaces a saved
        model. The method raises ValueError if the directory contains anything other than a saved
        model, or if the parameter random_state of the model is a Generator.
        """
        check_is_fitted(self)
        arrays = {name: getattr(self, f"{name}_") for name in self._fitted_arrays}
        arrays = {name: array for name, array in arrays.items() if array is not None}
        if hasattr(self, "feature_names_in_"):
            arrays[_FEATURE_NAMES] = self.feature_names_in_.astype(str)
        storage.save_arrays(path, self._saved_as, arrays, self._saved_fields())

    @classmethod
    def load(cls, path: storage.PathLike) -> Self:
        """Return the fitted model that :meth:`save` has written to the directory `path`.

        The arrays of the model are read-only memory maps of the saved files. The method raises
        FileNotFoundError if the directory does not exist, and FastcosFormatError if the directory
        is damaged or contains anything other than a saved model.
        """
        stored = storage.load_arrays(path, cls._saved_as)
        with storage.refuse_damage(path):
            return cls._of_stored(stored.arrays, stored.fields)

    @classmethod
    def _of_stored(cls, arrays: dict[str, Any], fields: dict[str, Any]) -> Self:
        parameters = storage.field(fields, "parameters", dict)
        unknown = sorted(parameters.keys() - inspect.signature(cls).parameters.keys())
        if unknown:
            raise ValueError(f"parameters must be those of {cls.__name__}, got {unknown[0]!r}")
        model: Any = cls(**parameters)
        for name in cls._fitted_arrays:
            setattr(model, f"{name}_", arrays.get(name))
        sizes: dict[str, int] = {}
        for name, axes in cls._fitted_arrays.items():
            if not (axes.endswith("?") and name not in arrays):
                for axis, size in zip(axes.rstrip("?"), arrays[name].shape, strict=True):
                    validation.check_shape(name, (size,), (sizes.setdefault(axis, size),))
                if arrays[name].dtype.kind != "f":
                    raise ValueError(f"{name} must be of floats, got {arrays[name].dtype}")
        model.n_features_in_ = sizes["p"]
        if _FEATURE_NAMES in arrays:
            validation.check_shape(_FEATURE_NAMES, arrays[_FEATURE_NAMES].shape, (sizes["p"],))
            model.feature_names_in_ = arrays[_FEATURE_NAMES].astype(object)
        model._restore(fields)
        return model

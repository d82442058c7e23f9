"""Fitted estimators as directories: their ``save`` and ``load``."""

from typing import Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from fastcos import storage

_FEATURE_NAMES = "feature_names_in"


class SavedModelMixin:
    """``save`` and ``load`` for estimators with components_ (k, p).

    A subclass defines the kind of its directory and the names of its fitted arrays, without the
    underscore; arrays that are None are not stored.
    """

    _saved_as: ClassVar[str]
    _fitted_arrays: ClassVar[tuple[str, ...]]

    def _saved_fields(self) -> dict[str, Any]:
        """Return JSON fields: the checked "parameters", and what _restore needs."""
        raise NotImplementedError

    def _restore(self, fields: dict[str, Any]) -> None:
        """Set the fitted attributes that are not arrays."""
        raise NotImplementedError

    def save(self: Any, path: storage.PathLike) -> None:
        """Write the fitted model to a directory, which appears or changes in one step.

        Parameters
        ----------
        path : path-like
            A new directory, or one with a model that is replaced.

        Raises
        ------
        ValueError
            The directory holds something else, or random_state is a generator.
        """
        check_is_fitted(self)
        arrays = {name: getattr(self, f"{name}_") for name in self._fitted_arrays}
        arrays = {name: array for name, array in arrays.items() if array is not None}
        if hasattr(self, "feature_names_in_"):
            arrays[_FEATURE_NAMES] = self.feature_names_in_.astype(str)
        storage.save_arrays(path, self._saved_as, arrays, self._saved_fields())

    @classmethod
    def load(cls, path: storage.PathLike) -> Self:
        """Return the model that save wrote; its arrays are read-only memory maps.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        the class
            Fitted.

        Raises
        ------
        FileNotFoundError
            There is no directory path.
        FastcosFormatError
            It is damaged, or holds another kind.
        """
        arrays, fields, _ = storage.load_arrays(path, cls._saved_as)
        model: Any = cls(**fields["parameters"])
        for name in cls._fitted_arrays:
            setattr(model, f"{name}_", arrays.get(name))
        model.n_features_in_ = model.components_.shape[1]
        if _FEATURE_NAMES in arrays:
            model.feature_names_in_ = arrays[_FEATURE_NAMES].astype(object)
        model._restore(fields)
        return model  # type: ignore[no-any-return]

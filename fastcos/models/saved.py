"""Fitted estimators as directories: their ``save`` and ``load``."""

from typing import Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from fastcos import storage, validation

_FEATURE_NAMES = "feature_names_in"


class SavedModelMixin:
    """``save`` and ``load`` for estimators with components_ (k, p).

    A subclass defines the kind of its directory and its fitted arrays of floats: their names,
    without the underscore, and a letter for each of their axes, p for the items. Axes of one letter
    have one length. A final ? allows None, which is not stored.
    """

    _saved_as: ClassVar[str]
    _fitted_arrays: ClassVar[dict[str, str]]

    def _saved_fields(self) -> dict[str, Any]:
        """Return JSON fields: the checked "parameters", and what _restore needs."""
        raise NotImplementedError

    def _restore(self, fields: dict[str, Any]) -> None:
        """Set the fitted attributes that are not arrays."""
        raise NotImplementedError

    def save(self: Any, path: storage.PathLike) -> None:
        """Write the fitted model to a directory, which appears or changes in one step.

        path: a new directory, or one with a model that is replaced; ValueError if it holds
        something else, or if random_state is a generator.
        """
        check_is_fitted(self)
        arrays = {name: getattr(self, f"{name}_") for name in self._fitted_arrays}
        arrays = {name: array for name, array in arrays.items() if array is not None}
        if hasattr(self, "feature_names_in_"):
            arrays[_FEATURE_NAMES] = self.feature_names_in_.astype(str)
        storage.save_arrays(path, self._saved_as, arrays, self._saved_fields())

    @classmethod
    def load(cls, path: storage.PathLike) -> Self:
        """Return the fitted model that save wrote to path; its arrays are read-only memory maps.

        FileNotFoundError where there is no directory path, FastcosFormatError where it is damaged
        or holds another kind.
        """
        stored = storage.load_arrays(path, cls._saved_as)
        with storage.refuse_damage(path):
            return cls._of_stored(stored.arrays, stored.fields)

    @classmethod
    def _of_stored(cls, arrays: dict[str, Any], fields: dict[str, Any]) -> Self:
        model: Any = cls(**fields["parameters"])
        for name in cls._fitted_arrays:
            setattr(model, f"{name}_", arrays.get(name))
        sizes: dict[str, int] = {}
        for name, axes in cls._fitted_arrays.items():
            if not (axes.endswith("?") and name not in arrays):
                for axis, size in zip(axes.rstrip("?"), arrays[name].shape, strict=True):
                    validation.check_shape(name, (size,), (sizes.setdefault(axis, size),))
                if arrays[name].dtype.kind != "f":
                    raise TypeError(f"{name} must be of floats, got {arrays[name].dtype}")
        model.n_features_in_ = sizes["p"]
        if _FEATURE_NAMES in arrays:
            validation.check_shape(_FEATURE_NAMES, arrays[_FEATURE_NAMES].shape, (sizes["p"],))
            model.feature_names_in_ = arrays[_FEATURE_NAMES].astype(object)
        model._restore(fields)
        return model  # type: ignore[no-any-return]

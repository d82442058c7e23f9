"""Names of other libraries for methods of an index: the error says what they are called here."""

from typing import Any, NoReturn

_METHODS = {
    "query": "search",
    "kneighbors": "search",
    "knn_query": "search",
    "range_search": "radius",
    "radius_neighbors": "radius",
    "load": "SimilarityIndex.open",
    "read": "SimilarityIndex.open",
    "dump": "save",
    "write": "save",
    "train": "fit",
    "build": "fit",
    "insert": "add",
    "add_items": "add",
    "add_with_ids": "add(rows, ids)",
    "update": "upsert",
    "replace": "upsert",
    "delete": "remove",
    "remove_ids": "remove",
    "reconstruct": "vectors_of",
    "get": "vectors_of",
    "ntotal": "n_items_",
    "size": "n_items_",
    "dim": "n_features_in_",
}


class _OtherName:
    """An attribute that does not exist, of which the error names the one that does."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__} has no attribute {self._name!r} (use {_METHODS[self._name]})",
            name=self._name,
            obj=instance,
        )


class OtherNames:
    """A base class of ``SimilarityIndex``, with such an attribute for each name."""


for _name in _METHODS:
    setattr(OtherNames, _name, _OtherName(_name))

"""An inverted index of documents' metadata: which positions have which value of which key."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation


class MetadataIndex:
    """Positions of documents by key and value of their metadata.

    A value that has no hash, such as a list, is compared with those of all documents that have its
    key and a value without a hash.
    """

    def __init__(self) -> None:
        self._positions: dict[str, dict[Any, set[int]]] = {}
        self._unhashable: dict[str, dict[int, Any]] = {}
        self._values: dict[int, dict[str, Any]] = {}

    def put(self, positions: Iterable[int], metadatas: Iterable[Mapping[str, Any]]) -> None:
        """Take up the metadata of documents, in place of what their positions had before."""
        for position, metadata in zip(positions, metadatas, strict=True):
            self.drop([position])
            self._values[position] = dict(metadata)
            for key, value in metadata.items():
                if _has_hash(value):
                    by_value = self._positions.setdefault(key, {})
                    by_value.setdefault(value, set()).add(position)
                else:
                    self._unhashable.setdefault(key, {})[position] = value

    def drop(self, positions: Iterable[int]) -> None:
        """Forget the documents at positions; unknown ones are left out."""
        for position in positions:
            for key, value in self._values.pop(position, {}).items():
                if not _has_hash(value):
                    self._forget(self._unhashable, key, position)
                    continue
                self._positions[key][value].discard(position)
                if not self._positions[key][value]:
                    self._forget(self._positions, key, value)

    def find(self, conditions: Any) -> npt.NDArray[np.int64]:
        """Return the positions of the documents that meet all conditions, a mapping.

        A condition is a key with a value, or with a list, tuple or set of values that will do.
        """
        if not isinstance(conditions, Mapping):
            rule = "a function of a document, or a dict of values of its metadata"
            raise TypeError(f"filter must be {rule}, got {validation.format_value(conditions)}")
        found = None
        for key, condition in conditions.items():
            positions = self._of_key(key, condition)
            found = positions if found is None else found & positions
        chosen = self._values if found is None else found
        return np.fromiter(chosen, np.int64, len(chosen))

    def _of_key(self, key: Any, condition: Any) -> set[int]:
        hashed, others = self._positions.get(key, {}), self._unhashable.get(key, {})
        values = condition if isinstance(condition, (list, tuple, set, frozenset)) else [condition]
        for value in [{key: None}, *values]:
            if isinstance(value, Mapping) and any(str(name).startswith("$") for name in value):
                rule = "hold values of metadata, without operators (give a function of a document)"
                got = validation.format_value({key: condition})
                raise ValueError(f"filter must {rule}, got {got}")
        if self._values and not hashed and not others:
            keys = sorted(map(str, {*self._positions, *self._unhashable}))
            names = ", ".join(keys[:5]) + (", ..." if len(keys) > 5 else "")
            rule = f"name metadata that some document has ({names})"
            hint = validation.did_you_mean(key, keys)
            raise ValueError(f"filter must {rule}, got {validation.format_value(key)}{hint}")
        found: set[int] = set()
        for value in values:
            if _has_hash(value):
                found |= hashed.get(value, set())
            else:
                found |= {position for position, other in others.items() if other == value}
        return found

    @staticmethod
    def _forget(table: dict[str, Any], key: str, entry: Any) -> None:
        del table[key][entry]
        if not table[key]:
            del table[key]


def _has_hash(value: Any) -> bool:
    """Whether a value can be looked up; a tuple of lists cannot."""
    try:
        hash(value)
    except TypeError:
        return False
    return True

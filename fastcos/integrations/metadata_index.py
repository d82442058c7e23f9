"""An inverted index, which maps keys and values of metadata to the positions of documents."""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation

# For each operator of a filter, the function that compares a value in a document with a value in
# the filter.
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
    "$in": lambda value, values: value in values,
}
# Each key is a negated operator, and the value is the operator that it negates. A negated operator
# matches every document that the other operator does not match, including documents that lack the
# key.
_NEGATIONS = {"$ne": "$eq", "$neq": "$eq", "$nin": "$in"}
_OPERATORS = ", ".join((*_COMPARISONS, *_NEGATIONS, "$and", "$or", "$not"))


class MetadataIndex:
    """Positions of documents by key and value of their metadata.

    A dict cannot look up unhashable values, such as lists. An unhashable value in a condition is
    instead compared with all unhashable values of the same key.
    """

    def __init__(self) -> None:
        self._positions: dict[str, dict[Any, set[int]]] = {}
        self._unhashable: dict[str, dict[int, Any]] = {}
        self._values: dict[int, dict[str, Any]] = {}

    def put(self, positions: Iterable[int], metadatas: Iterable[Mapping[str, Any]]) -> None:
        """Set the metadata of the documents at ``positions``, and forget their older metadata."""
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
        """Remove the documents at ``positions``; positions without a document are ignored."""
        for position in positions:
            for key, value in self._values.pop(position, {}).items():
                if not _has_hash(value):
                    self._forget(self._unhashable, key, position)
                    continue
                self._positions[key][value].discard(position)
                if not self._positions[key][value]:
                    self._forget(self._positions, key, value)

    def find(self, conditions: Any) -> npt.NDArray[np.int64]:
        """Return the positions of the documents that meet all conditions of a mapping.

        The mapping assigns one condition to each key. A condition is a single value, a collection
        (list, tuple or set) of allowed values, or a dict of comparisons, as in ``{"year": {"$gte":
        2020, "$lt": 2025}}``. ``"$and"`` and ``"$or"`` take a list of mappings, and ``"$not"``
        takes one mapping. A text and a number cannot be compared, so ``"$lt"`` and similar
        comparisons are false for them.
        """
        positions = self._meeting(conditions)
        return np.fromiter(positions, np.int64, len(positions))

    def _meeting(self, conditions: Any) -> set[int]:
        if not isinstance(conditions, Mapping):
            rule = "a function of a document, or a dict of conditions on its metadata"
            raise TypeError(f"filter must be {rule}, got {validation.format_value(conditions)}")
        matches = set(self._values)
        for key, condition in conditions.items():
            if key == "$not":
                matches -= self._meeting(condition)
            elif key in ("$and", "$or"):
                branches = map(self._meeting, validation.as_list(f"filter[{key!r}]", condition))
                if key == "$and":
                    matches = matches.intersection(*branches)
                else:
                    matches &= set[int]().union(*branches)
            else:
                matches &= self._of_key(key, condition)
        return matches

    def _of_key(self, key: Any, condition: Any) -> set[int]:
        hashed, unhashable = self._positions.get(key, {}), self._unhashable.get(key, {})
        if str(key)[:1] == "$":
            got = validation.format_value({key: condition})
            raise ValueError(f"filter must use only the operators {_OPERATORS}, got {got}")
        if self._values and not hashed and not unhashable:
            keys = sorted(map(str, {*self._positions, *self._unhashable}))
            names = ", ".join(keys[:5]) + (", ..." if len(keys) > 5 else "")
            rule = f"name a metadata key of at least one document ({names})"
            hint = validation.did_you_mean(key, keys)
            raise ValueError(f"filter must {rule}, got {validation.format_value(key)}{hint}")
        if isinstance(condition, Mapping) and any(str(name)[:1] == "$" for name in condition):
            compared = [self._compared(key, *entry) for entry in condition.items()]
            return set.intersection(*compared)
        values = condition if isinstance(condition, (list, tuple, set, frozenset)) else [condition]
        matches: set[int] = set()
        for value in values:
            if _has_hash(value):
                matches |= hashed.get(value, set())
            else:
                matches |= {position for position, other in unhashable.items() if other == value}
        return matches

    def _compared(self, key: Any, name: Any, operand: Any) -> set[int]:
        """Return the positions of the documents whose value for a key satisfies a comparison."""
        if name in _NEGATIONS:
            return set(self._values) - self._compared(key, _NEGATIONS[name], operand)
        if name not in _COMPARISONS:
            got = validation.format_value({name: operand})
            raise ValueError(f"filter must use only the operators {_OPERATORS}, got {got}")
        compare, hashed = _COMPARISONS[name], self._positions.get(key, {})

        def holds(value: Any) -> bool:
            try:
                return bool(compare(value, operand))
            except TypeError:  # A text and a number, for example, cannot be compared.
                return False

        matches = set[int]().union(
            *(positions for value, positions in hashed.items() if holds(value))
        )
        unhashable = self._unhashable.get(key, {})
        return matches | {position for position, value in unhashable.items() if holds(value)}

    @staticmethod
    def _forget(table: dict[str, Any], key: str, entry: Any) -> None:
        del table[key][entry]
        if not table[key]:
            del table[key]


def _has_hash(value: Any) -> bool:
    """Return whether a value can be hashed; for example, a tuple of lists cannot be hashed."""
    try:
        hash(value)
    except TypeError:
        return False
    return True

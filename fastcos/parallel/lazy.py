"""Attributes that are made at first use, without a lock."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class lazy_attribute(Generic[Owner, Value]):
    """An attribute that its method makes at first use, as functools.cached_property.

    That holds one lock for all instances on Python 3.11: a child forked beside a thread that makes
    an attribute would wait for ever, and threads make theirs one after the other. Here two threads
    that need a value at once may both make it; all get the one that is stored first.
    """

    def __init__(self, make: Callable[[Owner], Value]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy_attribute[Owner, Value]": ...
    @overload
    def __get__(self, instance: Owner, owner: type) -> Value: ...
    def __get__(self, instance: Owner | None, owner: type) -> Any:
        if instance is None:
            return self
        # a stored value hides this descriptor, which has no __set__; setdefault is one step
        return vars(instance).setdefault(self._name, self._make(instance))

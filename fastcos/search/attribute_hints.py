"""If a user tries an attribute name of another library, the error says which name to use."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

Class = TypeVar("Class", bound=type)


class _MissingAttribute:
    """A descriptor for a missing attribute: it raises an error that names the attribute to use."""

    def __init__(self, name: str, replacement: str) -> None:
        self._name, self._replacement = name, replacement

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__} has no attribute {self._name!r} (use {self._replacement})",
            name=self._name,
            obj=instance,
        )


def with_attribute_hints(replacements: Mapping[str, str]) -> Callable[[Class], Class]:
    """Return a class decorator that makes the attributes in ``replacements`` raise an error.

    ``replacements`` maps the name of each missing attribute to the attribute that the error message
    suggests. The error is an AttributeError, so ``hasattr`` returns False for these names, on the
    class and on its instances.
    """

    def decorate(cls: Class) -> Class:
        for name, replacement in replacements.items():
            setattr(cls, name, _MissingAttribute(name, replacement))
        return cls

    return decorate

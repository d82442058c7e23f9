"""Measures as the command line names them: NAME, or NAME:PARAMETER=VALUE:PARAMETER=VALUE."""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastcos import io, validation
from fastcos.io.arrays import read_npy
from fastcos.io.vectors import SUFFIXES
from fastcos.measures import Measure, checks, get_measure, list_measures
from fastcos.measures.base import registered

_FLAGS = {"True": True, "False": False}


def as_measure(flag: str, text: str, besides: Sequence[str] = ()) -> str | Measure:
    """Return the name, or the measure that the text names with its parameters.

    besides: what else the flag takes, for the message.
    """
    # a colon is also in names such as rescaled_cosine:data
    name, *pairs = re.split(r":(?=\w+=)", text)
    name = validation.as_choice(flag, name, (*besides, *list_measures()))
    if not pairs:
        return name
    accepted = inspect.signature(registered()[name]).parameters
    parameters: dict[str, Any] = {}
    for pair in pairs:
        parameter, _, value = pair.partition("=")
        validation.as_choice(f"a parameter of {name}", parameter, [*accepted] or ["(it has none)"])
        checks.as_parameter(parameter, value, parameters)
        parameters[parameter] = _value(parameter, value)
    return get_measure(name, **parameters)


def _value(parameter: str, text: str) -> Any:
    """A number, True or False; the array in a file of that kind; or the text itself."""
    if text in _FLAGS:
        return _FLAGS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    suffix = Path(text).suffix
    if suffix == ".npy":
        return read_npy(Path(text))
    if suffix in SUFFIXES:
        return io.read_vectors(text).vectors
    if Path(text).is_dir():
        from fastcos.models.linear_mf import LinearMF

        checks.as_fitted_folder(parameter, Path(text))

        return LinearMF.load(Path(text) / "model")
    return text

"""A measure as a name, numbers and arrays: what a file can hold and a table can print."""

import inspect
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fastcos import storage
from fastcos.similarity.base import REGISTRY, Measure
from fastcos.similarity.rescaled import ModelSpectrum

_PREFIX = "measure_"
_OF_MODEL = "measure_of_model_"


def label_of(measure: Measure) -> str:
    """The name, and the numbers and texts that are not its class's defaults: csls:n_neighbors=5."""
    label = measure.name
    for name, parameter in inspect.signature(type(measure)).parameters.items():
        value = getattr(measure, name, parameter.default)
        if isinstance(value, (bool, int, float, str)) and value != parameter.default:
            label += f":{name}={value}"
    return label


def parameters_of(measure: Measure) -> dict[str, Any]:
    """The parameters of a measure, as its class takes them."""
    names = inspect.signature(type(measure)).parameters
    return {name: getattr(measure, name) for name in names}


def to_parts(measure: str | Measure) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return fields (name and parameters, for JSON) and arrays from which ``from_parts`` makes it.

    Only the class and the parameters are kept: a loaded measure is fitted again. TypeError for a
    class that is not registered, and for parameters that are no number, text or array.
    """
    if isinstance(measure, str):
        return {"name": measure, "parameters": {}}, {}
    if REGISTRY.get(getattr(measure, "name", "")) is not type(measure):
        kind = type(measure).__name__
        raise TypeError(f"measure must be a name or registered to be saved, got {kind}")
    parameters, arrays = {}, {}
    for parameter in inspect.signature(type(measure)).parameters:
        value = getattr(measure, parameter, measure)
        if isinstance(value, np.ndarray):
            arrays[_PREFIX + parameter] = value
        elif isinstance(value, ModelSpectrum):
            arrays |= {_OF_MODEL + field: array for field, array in value._asdict().items()}
        elif value is None or isinstance(value, (bool, int, float, str)):
            parameters[parameter] = value
        else:
            kind = "no attribute of its name" if value is measure else type(value).__name__
            rule = "a number, a text or an array to be saved"
            raise TypeError(f"{parameter} of the measure must be {rule}, got {kind}")
    return {"name": measure.name, "parameters": parameters}, arrays


def from_parts(fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> str | Measure:
    """Return the measure of these parts; a name where there are no parameters."""
    of_model = {name: array for name, array in arrays.items() if name.startswith(_OF_MODEL)}
    kind, parameters = storage.field(fields, "name", str), storage.field(fields, "parameters", dict)
    parameters = dict(parameters)
    for name, array in arrays.items():
        if name.startswith(_PREFIX) and name not in of_model:
            parameters[name.removeprefix(_PREFIX)] = array
    if of_model:
        parameters["model"] = ModelSpectrum(
            **{name.removeprefix(_OF_MODEL): array for name, array in of_model.items()}
        )
    if not parameters:
        return kind
    try:
        return cast(Measure, REGISTRY[kind](**parameters))
    except TypeError as error:  # of values that its class does not take
        raise ValueError(f"parameters must be those of {kind}: {error}") from error

"""Convert measures to names, numbers and arrays (for files and tables), and back to measures."""

import inspect
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fastcos import storage
from fastcos.similarity.base import REGISTRY, Measure
from fastcos.similarity.rescaled_cosine import ModelSpectrum

_PREFIX = "measure_"
_OF_MODEL = "measure_of_model_"


def label_of(measure: Measure) -> str:
    """Return the name of a measure and its non-default parameters, such as "csls:n_neighbors=5"."""
    label = measure.name
    for name, parameter in inspect.signature(type(measure)).parameters.items():
        value = getattr(measure, name, parameter.default)
        if isinstance(value, (bool, int, float, str)) and value != parameter.default:
            label += f":{name}={value}"
    return label


def parameters_of(measure: Measure) -> dict[str, Any]:
    """Return the keyword arguments with which a measure was created, as a dict."""
    names = inspect.signature(type(measure)).parameters
    return {name: getattr(measure, name) for name in names}


def to_parts(measure: str | Measure) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return the fields and the arrays of a measure, for storage in files.

    The fields, which can be stored as JSON, are the name and the parameters of the measure.

    ``from_parts`` restores the measure from the fields and arrays. The fields and arrays contain
    only the class and the parameters, so a restored measure has to be fitted again. The function
    raises TypeError if the class of the measure is not registered, or if a parameter is not a
    number, a text or an array.
    """
    if isinstance(measure, str):
        return {"name": measure, "parameters": {}}, {}
    if REGISTRY.get(getattr(measure, "name", "")) is not type(measure):
        got = type(measure).__name__
        rule = "be a name or an instance of a registered class"
        raise TypeError(f"measure must {rule} to be saved, got {got}")
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
            got = "no attribute of its name" if value is measure else type(value).__name__
            rule = "a number, a string or an array to be saved"
            raise TypeError(f"{parameter} of the measure must be {rule}, got {got}")
    return {"name": measure.name, "parameters": parameters}, arrays


def from_parts(fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> str | Measure:
    """Return the measure with these fields and arrays.

    A measure without parameters is returned as its name.
    """
    of_model = {name: array for name, array in arrays.items() if name.startswith(_OF_MODEL)}
    name_of_measure = storage.field(fields, "name", str)
    parameters = dict(storage.field(fields, "parameters", dict))
    for name, array in arrays.items():
        if name.startswith(_PREFIX) and name not in of_model:
            parameters[name.removeprefix(_PREFIX)] = array
    if of_model:
        parameters["model"] = ModelSpectrum(
            **{name.removeprefix(_OF_MODEL): array for name, array in of_model.items()}
        )
    if not parameters:
        return name_of_measure
    try:
        return cast(Measure, REGISTRY[name_of_measure](**parameters))
    except TypeError as error:  # The class of the measure does not accept the saved parameters.
        raise ValueError(f"parameters must belong to {name_of_measure}: {error}") from error

"""A measure as a name, numbers and arrays, so that a file can hold what an object says."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validate_measures
from fastcos.measure.base import Measure, registered

_PREFIX = "measure_"


def parts_of(measure: str | Measure) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return fields (name and parameters, for JSON) and arrays from which ``measure_of`` makes it.

    A measure object is that of its class with its parameters: what it learned is learned anew.
    TypeError for a class that is not registered, and for parameters that are no number, text or
    array, such as a model.
    """
    if isinstance(measure, str):
        return {"name": measure, "parameters": {}}, {}
    name = validate_measures.as_registered(measure, registered())
    parameters, arrays = {}, {}
    for parameter in inspect.signature(type(measure)).parameters:
        value = validate_measures.as_storable(measure, parameter)
        if isinstance(value, np.ndarray):
            arrays[_PREFIX + parameter] = value
        else:
            parameters[parameter] = value
    return {"name": name, "parameters": parameters}, arrays


def measure_of(fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> str | Measure:
    """Return the measure of these parts; a name where there are no parameters."""
    given = {
        name.removeprefix(_PREFIX): array
        for name, array in arrays.items()
        if name.startswith(_PREFIX)
    }
    parameters = {**fields["parameters"], **given}
    if not parameters:
        return str(fields["name"])
    made: Measure = registered()[fields["name"]](**parameters)
    return made

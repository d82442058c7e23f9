"""Similarity measures: each is two maps of rows, offsets, and a finish.

``get_measure("cosine")`` makes one by name; every ``measure=`` argument takes a name or an object
with the members of ``Measure``.
"""

from typing import Any

from fastcos import validate
from fastcos.measure import elementary  # noqa: F401  registers its classes
from fastcos.measure.base import Measure, Plain, register, registered

__all__ = ["Measure", "Plain", "get_measure", "measures", "register"]


def measures() -> tuple[str, ...]:
    """Names of all measures, sorted.

    Returns
    -------
    tuple of str

    Raises
    ------
    Nothing.

    Examples
    --------
    >>> from fastcos import measures
    >>> "cosine" in measures()
    True
    """
    return tuple(sorted(registered()))


def get_measure(measure: str | Measure, **parameters: Any) -> Measure:
    """The measure of that name with these parameters; a measure object is returned as it is.

    Parameters
    ----------
    measure : str or Measure
        One of ``measures()``, or an object with the members of ``Measure``.
    **parameters
        Keyword arguments of the measure's class.

    Returns
    -------
    Measure
        Not fitted.

    Raises
    ------
    ValueError
        Unknown name.
    TypeError
        Neither a name nor a measure.

    Examples
    --------
    >>> from fastcos import get_measure
    >>> get_measure("cosine").form
    'cosine'
    """
    if not isinstance(measure, str):
        return validate.as_instance("measure", measure, Measure, "a name or a Measure")
    known = registered()
    made: Measure = known[validate.as_choice("measure", measure, sorted(known))](**parameters)
    return made

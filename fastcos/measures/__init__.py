"""Similarity measures: each is two maps of rows, offsets, and a finish.

``get_measure("cosine")`` makes one by name; every ``measure=`` argument takes a name or an object
with the members of ``Measure``. The engine fits a measure to the items that it searches, and what
else a measure needs (a metric, popularities, the other side of a model) is a parameter. ``fit``
returns a fitted copy: a measure that others hold never changes.

A measure of one's own is one small class. This one compares only the signs of the entries:

>>> import numpy as np
>>> from fastcos import top_k
>>> from fastcos.measures import Plain, register
>>> @register
... class SignCosine(Plain):
...     "Cosine of the signs of the entries."
...     name = "sign_cosine"
...     def items(self, B):
...         return np.sign(B)
>>> found = top_k(np.array([[1.0, 9.0], [2.0, -1.0], [5.0, 0.1]]), k=1, measure="sign_cosine")
>>> found.indices.ravel().tolist()
[2, 0, 0]
"""

import inspect
from typing import Any, get_args

from fastcos import validation
from fastcos.measures import (  # noqa: F401  they register their classes
    checks,
    elementary,
    hubness,
    learned,
    metric,
    non_linear,
    norm_based,
    rescaled,
    shaped,
)
from fastcos.measures.base import (
    Bounded,
    Candidates,
    Floored,
    Form,
    Guided,
    Invariances,
    Measure,
    Plain,
    Sharp,
    SharpRows,
    invariances,
    register,
    registered,
)

_MEMBERS = ("name", "form", "fit", "queries", "items", "item_offsets", "finish")

__all__ = [
    "Bounded",
    "Candidates",
    "Floored",
    "Guided",
    "Invariances",
    "Measure",
    "Plain",
    "Sharp",
    "SharpRows",
    "get_measure",
    "invariances",
    "list_measures",
    "register",
    "summaries",
]


def list_measures() -> tuple[str, ...]:
    """Names of all measures, sorted.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from fastcos import list_measures
    >>> "cosine" in list_measures()
    True
    """
    return tuple(sorted(registered()))


def get_measure(measure: str | Measure, **parameters: Any) -> Measure:
    """The measure of that name with these parameters; a measure object is returned as it is.

    Parameters
    ----------
    measure : str or Measure
        One of ``list_measures()``, or an object with the members of ``Measure``.
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
        rule = f"a name or a Measure ({', '.join(_MEMBERS)})"
        given: Measure = validation.as_instance("measure", measure, Measure, rule)  # type: ignore[type-abstract]
        validation.as_choice(f"form of {given.name}", given.form, get_args(Form))
        return given
    checks.as_of_vectors("measure", measure)
    known = registered()
    made: Measure = known[validation.as_choice("measure", measure, sorted(known))](**parameters)
    return made


def summaries() -> dict[str, str]:
    """One line about every measure, by name: what help and tables print.

    Returns
    -------
    dict of str
        Sorted by name.

    Examples
    --------
    >>> from fastcos.measures import summaries
    >>> summaries()["csls"]
    '2 cosine - r(x) - r(y), with r the mean cosine to the K nearest of the other side.'
    """
    makers = registered()
    lines = {}
    for name in sorted(makers):
        maker = getattr(makers[name], "func", makers[name])
        lines[name] = (inspect.getdoc(maker) or name).splitlines()[0]
    return lines

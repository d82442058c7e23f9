"""Similarity measures: transforms of both sides, a bias per item, and a monotone map of scores.

The engine ranks items by a raw score that is an inner product, a cosine or a squared distance of
encoded rows. A measure says how rows are encoded and what a raw score means::

    queries --encode_queries--> phi(q) --.
                                          engine: raw score --to_score--> what the caller sees
    items ---encode_items-----> psi(b) --'   + item_bias(b)

``get_measure("cosine")`` makes one by name; every ``measure=`` argument takes a name or an object
with the members of ``Measure``. A search fits the measure to the items; what else it needs (a
metric, popularities, the other side of a model) is a parameter. ``fit`` returns a fitted copy: a
measure that others hold never changes. An ``UpperBounded`` measure is no inner product but has an
upper bound that is one: the engine finds candidates by the bound, ``rescore`` ranks them.
``measure.capabilities`` says what a measure can be used for. The measures without parameters are
rows of ``table``; the others are classes.

A measure of your own is one small class. This one compares only the signs of the entries:

>>> import numpy as np
>>> from fastcos import top_k
>>> from fastcos.similarity import Plain, register
>>> @register
... class SignCosine(Plain):
...     "Cosine of the signs of the entries."
...     name = "sign_cosine"
...     def encode_items(self, B):
...         return np.sign(B)
>>> found = top_k(np.array([[1.0, 9.0], [2.0, -1.0], [5.0, 0.1]]), k=1, measure="sign_cosine")
>>> found.indices.ravel().tolist()
[2, 0, 0]
"""

# they register their classes
from fastcos.similarity import hubness, linear, non_linear, norm_based, rescaled, table  # noqa: F401
from fastcos.similarity.base import (
    Capabilities,
    Invariances,
    Measure,
    Plain,
    UpperBounded,
    get_measure,
    invariances,
    list_measures,
    register,
    summaries,
)

__all__ = [
    "Capabilities",
    "Invariances",
    "Measure",
    "Plain",
    "UpperBounded",
    "get_measure",
    "invariances",
    "list_measures",
    "register",
    "summaries",
]

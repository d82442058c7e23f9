"""Similarity measures, and the rescalings D under which their scores change or stay the same.

The modules ``rescalings``, ``cosine_bounds`` and ``canonical`` contain the mathematics of D: the
choices of D, the bounds on a cosine under all D, and the forms of a model that no D changes, such
as the query metric. Most of the other modules define measures or encode rows for them.

A search ranks items by a raw score: an inner product, a cosine or a squared distance of encoded
rows. A measure defines how rows are encoded, and how a raw score becomes the score in the result::

    queries --encode_queries--> phi(q) --.
                                          search: raw score --to_score--> score in the result
    items ---encode_items-----> psi(b) --'   + item_bias(b)

``get_measure("cosine")`` returns a measure by name. Every ``measure=`` argument takes a name or an
object with the members of ``Measure``. A search fits the measure to the items. If a measure needs
other data, such as the users of a model, the data are a parameter of the measure. The method
``fit`` returns a fitted copy and leaves the measure unchanged. ``measure.capabilities`` states
which operations a search or an index supports with a measure. The measures without parameters are
rows of a table in the module ``parameter_free``; every other measure is a class.

The raw score of two encoded rows does not determine the score of an ``UpperBounded`` measure; it
only determines an upper bound on the score. A search by an ``UpperBounded`` measure selects
candidates by their raw scores, and the method ``rescore`` of the measure ranks the candidates by
their exact scores.

You can define your own measure as a small class. The following measure compares only the signs of
the entries of two rows:

>>> import numpy as np
>>> from fastcos import top_k
>>> from fastcos.similarity import BaseMeasure, register
>>> @register
... class SignCosine(BaseMeasure):
...     "Cosine of the signs of the entries."
...     name = "sign_cosine"
...     def encode_items(self, B):
...         return np.sign(B)
>>> neighbors = top_k(np.array([[1.0, 9.0], [2.0, -1.0], [5.0, 0.1]]), k=1, measure="sign_cosine")
>>> neighbors.indices.ravel().tolist()
[2, 0, 0]
"""

# Importing the following modules registers the measures that they define.
from fastcos.similarity import (  # noqa: F401
    hubness,
    linear,
    non_linear,
    norm_based,
    parameter_free,
    rescaled_cosine,
)
from fastcos.similarity.base import (
    BaseMeasure,
    Capabilities,
    Invariances,
    Measure,
    UpperBounded,
    get_measure,
    list_measures,
    register,
    summaries,
)

__all__ = [
    "BaseMeasure",
    "Capabilities",
    "Invariances",
    "Measure",
    "UpperBounded",
    "get_measure",
    "list_measures",
    "register",
    "summaries",
]

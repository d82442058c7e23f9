"""Users and items of a model as rows whose inner products are the scores of the model."""

from typing import Any, NamedTuple

import numpy.typing as npt

from fastcos.reports import as_table


@as_table
class ScoringEmbeddings(NamedTuple):
    """Rows of users and items, whose inner products are the scores of the model.

    Attributes
    ----------
    users : ndarray (m, d), float32 or float64
        Rows of the users.
    items : ndarray (p, d), float32 or float64
        Rows of the items.
    """

    users: npt.NDArray[Any]
    items: npt.NDArray[Any]

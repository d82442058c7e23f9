"""What is compared: measures of the rows that a model gives under a rescaling, or of given rows."""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos.models.linear_mf import LinearMF
from fastcos.validation import Rows

EQ2 = "eq2"


class Candidate(NamedTuple):
    """A measure of the rows that a model gives.

    Attributes
    ----------
    measure : str
        Its name; of an object also the numbers and texts that are not its class's defaults, such as
        ``csls:n_neighbors=5``.
    rescaling : str
        Name or formula of D; "eq2" for the second objective; "" for given vectors. A measure that
        no D changes stands once, under the first.
    preprocessing : str
        What was done to the interactions before the model; "none" for nothing.
    """

    measure: str
    rescaling: str = ""
    preprocessing: str = "none"

    def __str__(self) -> str:
        text = self.measure + (f" under {self.rescaling}" if self.rescaling else "")
        return text if self.preprocessing == "none" else f"{text} after {self.preprocessing}"


@dataclass(frozen=True)
class Embeddings:
    """The rows that measures are fitted to, and what else some measures need.

    Attributes
    ----------
    items : ndarray (p, d)
    popularity : ndarray (p,), float64, or None
    model : LinearMF or None
    X : csr_array (n, p), or None
        What the rows of the model's users are made of.
    rescaling : Rescaling or None
    weight_decay : float or None
        λ of Eq. 2; None for the model's default.
    bags : csr_array (n, p), or None
        The interactions themselves: a user's row is a bag of items, an item's column one of users.
    """

    items: Rows
    popularity: npt.NDArray[np.float64] | None = None
    model: LinearMF | None = None
    X: Any = None
    rescaling: Any = None
    weight_decay: float | None = None
    bags: Any = None

    @functools.cached_property
    def users(self) -> Rows | None:
        """Embeddings of the users, (n, d)."""
        if self.model is None:
            return None
        return self.model.user_embeddings(self.X, self.rescaling)

    @functools.cached_property
    def bags_of_users(self) -> sp.csr_array:
        """The items as bags of users, (p, n)."""
        return sp.csr_array(self.bags.T)

    @property
    def has_eq1(self) -> bool:
        """Whether the model is one of Eq. 1, which still has every D to choose."""
        return self.model is not None and self.model.objective == "dropout"

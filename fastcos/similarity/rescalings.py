"""Rescalings D of the latent dimensions; objective (1) of the paper does not determine D.

Objective (1) depends on A and B only through AB'. For every invertible diagonal matrix D, the pair
(A D, B D^-1) is therefore also a solution, but its cosines are different. The rescalings of this
module have the form D = S^shrinkage Σ^spectrum with S = diag(σ²/(σ²+λ)) and Σ = diag(σ). The
rescalings are applied to the symmetric solution A = B = V_k S^½ (Eq. 5 of the paper). Under D = S^a
Σ^b, the items are V_k S^(½-a) Σ^-b and the users are U_k S^(½+a) Σ^(1+b). The choice of D therefore
decides what the cosine of two items, or of two users, compares.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.validation import Floats


@dataclass(frozen=True)
class Rescaling:
    """The diagonal matrix D = S^shrinkage Σ^spectrum, which changes (A, B) to (A D, B D^-1).

    Source: Steck, Ekanadham, Kallus, arXiv:2403.05440, Eq. 3 and sections 2.2 and 2.3.

    Parameters
    ----------
    shrinkage : float, default 0
        Exponent of S = diag(σ²/(σ²+λ)); objective (1) shrinks the directions by these factors.
    spectrum : float, default 0
        Exponent of Σ = diag(σ), the singular values of the data.

    Examples
    --------
    >>> from fastcos import Rescaling
    >>> half = Rescaling(shrinkage=0.5)
    >>> half.name, half.formula
    ('orthonormal', 'S^1/2')
    >>> half.item_exponents, half.user_exponents
    ((0.0, 0.0), (1.0, 1.0))
    """

    shrinkage: float = 0.0
    spectrum: float = 0.0

    def __post_init__(self) -> None:
        for name in ("shrinkage", "spectrum"):
            object.__setattr__(self, name, validation.as_real(name, getattr(self, name)))

    @classmethod
    def of_items(cls, a: float, b: float) -> "Rescaling":
        """Return the rescaling under which the item embeddings are V_k S^a Σ^b."""
        a, b = validation.as_real("a", a), validation.as_real("b", b)
        return cls(shrinkage=0.5 - a, spectrum=0.0 - b)

    @property
    def item_exponents(self) -> tuple[float, float]:
        """Exponents of S and Σ in the item embeddings, which are V_k S^½ for D = I."""
        return 0.5 - self.shrinkage, 0.0 - self.spectrum

    @property
    def user_exponents(self) -> tuple[float, float]:
        """Exponents of S and Σ in the user embeddings; for D = I, the embeddings are U_k S^½ Σ."""
        return 0.5 + self.shrinkage, 1.0 + self.spectrum

    @property
    def formula(self) -> str:
        """The formula of D, for example ``S^1/2 Σ^-1``."""
        return _product("", self.shrinkage, self.spectrum) or "I"

    @property
    def name(self) -> str:
        """The name in :func:`rescalings`, or the formula if the rescaling has no name."""
        names = (named.name for named in _NAMED if named.rescaling == self)
        return next(names, self.formula)


class NamedRescaling(NamedTuple):
    """A rescaling, its name in ``rescaling=`` arguments, and what cosines mean under it.

    Attributes
    ----------
    name : str
    rescaling : Rescaling
    items, users : str
        Formulas of the item embeddings and of the user embeddings.
    item_cosine, user_cosine : str
        Two texts: the first says what the cosine of two items compares, and the second says what
        the cosine of two users compares.
    """

    name: str
    rescaling: Rescaling
    items: str
    users: str
    item_cosine: str
    user_cosine: str


def rescalings() -> tuple[NamedRescaling, ...]:
    """Return the rescalings that have a name, with the meaning of the cosines under each rescaling.

    The meanings refer to the weights W = AB' (p, p) and the predictions M = XW (n, p) of the model.
    Neither W nor M depends on D.

    Source: arXiv:2403.05440. ``identity`` is Eq. 5, ``orthonormal`` and ``weights`` are the two
    cases of section 2.2, and ``balanced`` is at the end of section 2.3. Under the rescaling
    ``smoothed``, the cosine compares two items by their columns of the predictions M. In the same
    way, the remedy in section 3 of the paper compares two users by their rows of M. Recommenders
    with a truncated SVD use the rescaling ``data``.

    Returns
    -------
    tuple of NamedRescaling

    Examples
    --------
    >>> from fastcos import rescalings
    >>> for named in rescalings():
    ...     print(f"{named.name:11s}  {named.rescaling.formula:10s}  {named.item_cosine}")
    identity     I           W_ij / sqrt(W_ii W_jj)
    orthonormal  S^1/2       V_k V_k', normalised (if k = p: 0 for different items)
    weights      S^-1/2      rows of W
    balanced     Σ^-1/2      (M'M)^1/2, normalised
    smoothed     S^-1/2 Σ^-1  columns of M
    data         S^1/2 Σ^-1  columns of the rank-k approximation of X
    """
    return _NAMED


def rescaling_grid(
    shrinkage: Iterable[float] = (-0.5, 0.0, 0.5),
    spectrum: Iterable[float] = (-1.0, -0.5, 0.0, 0.5, 1.0),
) -> tuple[Rescaling, ...]:
    """Return the rescalings D = S^a Σ^b of a grid, ordered by a and then by b.

    Parameters
    ----------
    shrinkage, spectrum : iterable of float
        The values of the exponent a, and the values of the exponent b. The default grid contains
        all named rescalings.

    Examples
    --------
    >>> from fastcos.similarity.rescalings import rescaling_grid
    >>> grid = rescaling_grid()
    >>> len(grid), grid[0].formula, grid[-1].formula
    (15, 'S^-1/2 Σ^-1', 'S^1/2 Σ')
    """
    b_values = tuple(spectrum)
    return tuple(Rescaling(a, b) for a in shrinkage for b in b_values)


def as_diagonal(rescaling: Any, shrinkage: Floats, singular_values: Floats) -> Floats:
    """Convert any ``rescaling=`` argument to the positive float64 diagonal (k,) of D.

    ``rescaling`` is None (D = I), a name, a Rescaling, or the diagonal itself. If the shrinkage of
    a dimension is 0, the entry of D for this dimension is 1, because the column of the solution is
    zero for every D.
    """
    k = len(singular_values)
    if rescaling is None:
        rescaling = Rescaling()
    if isinstance(rescaling, str):
        by_name = {named.name: named.rescaling for named in _NAMED}
        rescaling = by_name[validation.as_choice("rescaling", rescaling, by_name)]
    if not isinstance(rescaling, Rescaling):
        return validation.as_positive_diagonal("rescaling", rescaling, k)
    D = np.ones(k)
    is_nonzero = shrinkage > 0
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        # Sum the logarithms, because one of the powers may overflow even if the product does not.
        D[is_nonzero] = np.exp(
            rescaling.shrinkage * np.log(shrinkage[is_nonzero])
            + rescaling.spectrum * np.log(singular_values[is_nonzero])
        )
    return validation.as_positive_diagonal("rescaling", D, k)


def _product(vectors: str, a: float, b: float) -> str:
    """Return the formula ``vectors S^a Σ^b``, without factors that are 1."""
    factors = [vectors, _power("S", a), _power("Σ", b)]
    return " ".join(factor for factor in factors if factor)


def _power(base: str, exponent: float) -> str:
    if exponent == 0:
        return ""
    suffixes = {1.0: "", 0.5: "^1/2", -0.5: "^-1/2"}
    return base + suffixes.get(exponent, f"^{exponent:g}")


# Each line contains the name of a rescaling, the rescaling, the meaning of the cosine of two items,
# and the meaning of the cosine of two users.
_NAMED = tuple(
    NamedRescaling(
        name, D, _product("V_k", *D.item_exponents), _product("U_k", *D.user_exponents), *meanings
    )
    for name, D, *meanings in (
        ("identity", Rescaling(), "W_ij / sqrt(W_ii W_jj)", "rows of X W^1/2"),
        ("orthonormal", Rescaling(0.5), "V_k V_k', normalised (if k = p: 0 for different items)",
         "rows of M (the paper's remedy)"),
        ("weights", Rescaling(-0.5), "rows of W", "rows of X V_k V_k' (if k = p: rows of X)"),
        ("balanced", Rescaling(0, -0.5), "(M'M)^1/2, normalised", "(MM')^1/2, normalised"),
        ("smoothed", Rescaling(-0.5, -1), "columns of M", "U_k U_k', normalised"),
        ("data", Rescaling(0.5, -1), "columns of the rank-k approximation of X", "rows of U_k S"),
    )
)  # fmt: skip

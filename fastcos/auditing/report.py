"""What an audit found, as records: the numbers, the sentence that sums them up, and the advice."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import metrics
from fastcos.auditing.parametrization import BALANCED, Convention

Floats = npt.NDArray[np.float64]


class Survival(NamedTuple):
    """What is known of the neighbours under every map of at most this condition.

    Attributes
    ----------
    condition : float
    certified_linear : float
        Share of all edges that survive every invertible map: a lower bound.
    certified : float
        Share of the sampled edges that survive every rescaling: a lower bound.
    survives_attack : float
        Share of the sampled edges for which no rescaling was found that loses them: an upper bound.
    certified_error, attack_error : float
        Standard errors of the two sampled shares, over items.
    """

    condition: float
    certified_linear: float
    certified: float
    survives_attack: float
    certified_error: float
    attack_error: float


class Comparison(NamedTuple):
    """Other embeddings of the same items against the given ones.

    Attributes
    ----------
    name, meaning : str
    condition : float or None
        Of the rescaling that leads there; None where it is not a rescaling.
    jaccard, overlap : float
        Jaccard of the k nearest with those given, and rank-biased overlap, mean over sampled items.
    jaccard_error : float
        Standard error of jaccard, over items.
    rsa : float or None
        Correlation of the cosines of sampled items with those given; None where all are alike.
    hubness : float
        Skewness of how often an item is in the sampled lists.
    auc : float or None
        Probability that a pair with one label has a larger cosine than a pair with two.
    """

    name: str
    meaning: str
    condition: float | None
    jaccard: float
    overlap: float
    jaccard_error: float
    rsa: float | None
    hubness: float
    auc: float | None


class Recovery(NamedTuple):
    """How well cosines recover labels under the worst and the best rescaling that was found.

    Attributes
    ----------
    condition : float
        Largest condition of the rescalings that were tried.
    n_items : int
        Labelled items that the values are of.
    given, low, high : float
        Pairwise AUC of the embeddings as they are, and the least and the greatest one found: the
        true range is at least as wide.
    low_rescaling, high_rescaling : ndarray (d,), float64
        Diagonals of the D that attain them: of items / D.
    """

    condition: float
    n_items: int
    given: float
    low: float
    high: float
    low_rescaling: Floats
    high_rescaling: Floats


@dataclass(frozen=True)
class Audit:
    """What of the cosines of one set of embeddings is a free choice, in numbers.

    Attributes
    ----------
    n_items, n_dimensions, k : int
    condition : float
        The condition of the verdict.
    n_zero : int
        Items that are zero rows: they have no direction and are left out of what follows.
    n_duplicates : int
        Items whose row stands earlier already. They stay: ties go to the lower number.
    n_sampled, n_listed : int
        Items whose edges were certified and attacked under rescalings; items whose lists were
        compared.
    convention : Convention or None
        How the factors share the scale of the dimensions, where it can be told.
    arbitrariness : float
        Mean total-variation index of the edges of 2,000 items, 0 to 1: to first order a rescaling
        of condition κ moves Fisher's z of an edge by at most that times ln κ.
    random_basis : float
        The same for sampled edges in random orthogonal bases, mean: what any basis would show.
    dimensions : ndarray (d,)
        Share of each latent dimension in it; sums to 1.
    survival : tuple of Survival
        By rising condition.
    given : Comparison
        The given embeddings themselves.
    family : tuple of Comparison
        Rescalings of the given items that other conventions would have chosen.
    alternatives : tuple of Comparison
        Forms that no rescaling changes.
    recovery : Recovery or None
        None without labels.
    hubness : metrics.Hubness
    popularity : metrics.PopularityBias or None
    mean_cosine, effective_rank : float
    isoscore : float or None
        None for one dimension.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import audit
    >>> card = audit(np.random.default_rng(0).standard_normal((200, 6)), k=5)
    >>> len(card.dimensions), round(float(card.dimensions.sum()), 6)
    (6, 1.0)
    >>> len(card.advice) > 0
    True
    """

    n_items: int
    n_dimensions: int
    k: int
    condition: float
    n_zero: int
    n_duplicates: int
    n_sampled: int
    n_listed: int
    convention: Convention | None
    arbitrariness: float
    random_basis: float
    dimensions: Floats
    survival: tuple[Survival, ...]
    given: Comparison
    family: tuple[Comparison, ...]
    alternatives: tuple[Comparison, ...]
    recovery: Recovery | None
    hubness: metrics.Hubness
    popularity: metrics.PopularityBias | None
    mean_cosine: float
    effective_rank: float
    isoscore: float | None

    @property
    def point(self) -> Survival:
        """What survives at the condition of the verdict."""
        return next(point for point in self.survival if point.condition == self.condition)

    @property
    def worst(self) -> Comparison:
        """The rescaling of the family that shares the fewest neighbours."""
        return min(self.family, key=lambda other: other.jaccard)

    @property
    def verdict(self) -> str:
        """The card in one sentence."""
        low, high = sorted((self.point.certified, self.point.survives_attack))
        shares = f"Between {low:.0%} and {high:.0%}"
        if f"{low:.0%}" == f"{high:.0%}":
            shares = f"About {low:.0%}"
        return (
            f"{shares} of the {self.k} nearest neighbours survive every "
            f"rescaling of condition {self.condition:g}, none of which changes a prediction; those "
            f"under {self.worst.name} ({self.worst.meaning}) have a Jaccard index of "
            f"{self.worst.jaccard:.2f} with them."
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do about it, most important first."""
        found = []
        if self.convention is not None and self.convention.name == BALANCED:
            found.append(
                "Both sides have the same Gram matrix, as weight decay on both sides makes them: "
                "if that is how these were trained, training has chosen the rescaling, and the "
                "range here is what other conventions would have shown."
            )
        names = {row.name for row in self.alternatives}
        if "query_metric" in names:
            found.append(
                "Compare items with the query metric (fastcos export): no rescaling, and no linear "
                "map that keeps the predictions, changes its cosines."
            )
        else:
            found.append(
                "Give the users' or queries' embeddings as well (--users): only the other side of "
                "the model tells which scale of the dimensions is meant."
            )
        if self.point.certified < 0.5:
            found.append(
                "Do not show or count single neighbours by this cosine as facts; use those that "
                "certified_neighbors certifies, or check them against labels or interactions."
            )
        if self.recovery is not None and self.recovery.high < 0.55:
            found.append(
                "Do not expect the labels from these embeddings: over all rescalings tried, cosine "
                f"recovers them with an AUC of {self.recovery.high:.2f} at best; 0.5 is chance."
            )
        if self.recovery is not None and self.recovery.high - self.recovery.low > 0.1:
            found.append(
                "Fix the rescaling with outside information: how well cosine recovers the labels "
                f"goes from {self.recovery.low:.2f} to {self.recovery.high:.2f} (AUC) by that "
                "choice alone."
            )
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain Python values, with the verdict and the advice."""
        card = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return {"verdict": self.verdict, "advice": list(self.advice), **card}


def _plain(value: Any) -> Any:
    """Return records as dicts and arrays as lists."""
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value

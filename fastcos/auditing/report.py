"""The report of an audit: its numbers as records, a verdict in one sentence, and advice."""

from dataclasses import dataclass
from typing import Any

from fastcos import metrics
from fastcos.reports.record import Record
from fastcos.reports.table import Table, as_table
from fastcos.validation import Floats

# other parametrisations, and what the model was trained on
BALANCED, ITEMS_ORTHONORMAL = "balanced", "items_orthonormal"
USERS_ORTHONORMAL = "users_orthonormal"
TRAINED_ON = ("dot", "cosine", "unknown")


@dataclass(frozen=True)
class RobustnessPoint(Record):
    """Bounds on the share of neighbours that survive every map of at most this condition.

    Attributes
    ----------
    condition : float
    certified_linear : float
        Share of all edges that survive every invertible map: a lower bound.
    certified : float
        Share of the sampled edges that survive every rescaling: a lower bound.
    unbroken : float
        Share of the sampled edges that the attack by rescalings did not remove: an upper bound.
    certified_error, unbroken_error : float
        Standard errors of the two sampled shares, over items.
    """

    condition: float
    certified_linear: float
    certified: float
    unbroken: float
    certified_error: float
    unbroken_error: float


@dataclass(frozen=True)
class VariantScores(Record):
    """Other embeddings of the same items compared with the given ones.

    Attributes
    ----------
    name, meaning : str
    condition : float or None
        Of the linear map from the given items to the variant; None if it is not invertible.
    jaccard, overlap : float
        Jaccard index of the k nearest with the given ones, and rank-biased overlap; means over
        sampled items.
    jaccard_error : float
        Standard error of jaccard, over items.
    rsa : float or None
        Correlation of the cosines of sampled items with the given ones; None if all are equal.
    hubness : float
        Skewness of how often an item is in the sampled lists.
    auc : float or None
        Probability that a pair of one label has a larger cosine than a pair of two labels. None
        without labels.
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


@dataclass(frozen=True)
class LabelRecovery(Record):
    """How well cosines recover labels under the worst and the best rescaling found.

    Attributes
    ----------
    condition : float
        Largest condition of the rescalings in the search.
    n_items : int
        Labelled items that the values refer to; the search did not see them.
    given, low, high : float
        Pairwise AUC of the embeddings as given, and the lowest and highest AUC found, on items
        that the search did not see. The true range is at least as wide.
    low_rescaling, high_rescaling : ndarray (d,), float64
        Diagonals of the D that attain them, for items / D.
    """

    condition: float
    n_items: int
    given: float
    low: float
    high: float
    low_rescaling: Floats
    high_rescaling: Floats


@as_table
@dataclass(frozen=True)
class Audit(Record):
    """The report of :func:`fastcos.audit`: how far the cosines depend on the parametrisation.

    Attributes
    ----------
    n_items, n_dimensions, k : int
    condition : float
        The condition of the verdict.
    n_zero : int
        Items that are zero rows: they have no direction and are left out.
    n_duplicates : int
        Items whose row is a duplicate of an earlier one. They are kept: ties go to the lower index.
    n_sampled, n_listed : int
        Items whose edges were certified and attacked under rescalings, and items whose lists of
        neighbours were compared.
    trained_on : {"dot", "cosine", "unknown"}
        As given.
    equal_norms : bool
        Whether all items have the same norm, as after training on the cosine.
    parametrization : str or None
        Name of the one of ``parametrizations`` that the given factors have; None if of no one.
    sensitivity : float
        Sensitivity index, 0 to 1: the mean of :func:`fastcos.auditing.tv_index` over the edges of
        2,000 items. To first order a rescaling of condition κ moves Fisher's z of an edge by at
        most that times ln κ.
    random_basis_sensitivity : float
        The same for sampled edges in random orthogonal bases, mean: the level of an average basis.
    dimension_shares : ndarray (d,)
        Share of each latent dimension in the sensitivity; sums to 1.
    robustness : tuple of RobustnessPoint
        By ascending condition.
    given : VariantScores
        The given embeddings themselves.
    parametrizations : tuple of VariantScores
        The items as other software would parametrise the same predictions.
    invariant_baselines : tuple of VariantScores
        Similarities that no linear map of the model changes.
    label_recovery : LabelRecovery or None
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
    >>> report = audit(np.random.default_rng(0).standard_normal((200, 6)), k=5)
    >>> len(report.dimension_shares), round(float(report.dimension_shares.sum()), 6)
    (6, 1.0)
    >>> len(report.advice) > 0
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
    trained_on: str
    equal_norms: bool
    parametrization: str | None
    sensitivity: float
    random_basis_sensitivity: float
    dimension_shares: Floats
    robustness: tuple[RobustnessPoint, ...]
    given: VariantScores
    parametrizations: tuple[VariantScores, ...]
    invariant_baselines: tuple[VariantScores, ...]
    label_recovery: LabelRecovery | None
    hubness: metrics.Hubness
    popularity: metrics.PopularityBias | None
    mean_cosine: float
    effective_rank: float
    isoscore: float | None

    @property
    def at_condition(self) -> RobustnessPoint:
        """The robustness at the condition of the verdict."""
        return next(point for point in self.robustness if point.condition == self.condition)

    @property
    def worst_parametrization(self) -> VariantScores:
        """The parametrisation that shares the fewest neighbours with the given embeddings."""
        return min(self.parametrizations, key=lambda variant: variant.jaccard)

    @property
    def nearest_parametrization(self) -> VariantScores | None:
        """The one with the smallest condition of all but the given one; None if there is none."""
        others = [one for one in self.parametrizations if one.name != self.parametrization]
        conditions = [one.condition for one in others if one.condition is not None]
        return next((one for one in others if one.condition == min(conditions, default=0)), None)

    @property
    def summary(self) -> str:
        """The size of the data in one phrase."""
        zero = f", {self.n_zero:,} zero rows left out" if self.n_zero else ""
        duplicates = f", {self.n_duplicates:,} duplicates of others" if self.n_duplicates else ""
        return f"{self.n_items:,} items of {self.n_dimensions} dimensions{zero}{duplicates}"

    @property
    def verdict(self) -> str:
        """The premise, and three numbers: all D, all linear maps, the nearest parametrisation.

        Written for readers who know neither D nor condition numbers.
        """
        point, other = self.at_condition, self.nearest_parametrization
        low = f"{point.certified:.0%} ± {point.certified_error:.0%}"
        high = f"{point.unbroken:.0%} ± {point.unbroken_error:.0%}"
        shares = f"about {low}" if low == high else f"between {low} and {high}"
        sentences = [
            self._premise(),
            f"Whatever factors between 1 and {self.condition:g} rescale the dimensions, {shares} "
            f"of the {self.k} nearest neighbours stay.",
            "Under linear maps that stretch directions by factors between 1 and "
            f"{self.condition:g}, at least {point.certified_linear:.0%} stay.",
        ]
        if other is not None:
            name = other.name.replace("_", " ")
            sentences.append(
                f"The nearest other form of the same model ({name}, factors up to "
                f"{other.condition:.2g}) shares them with a Jaccard index of {other.jaccard:.2f} ± "
                f"{other.jaccard_error:.2f}."
            )
        return " ".join(sentences)

    def _premise(self) -> str:
        """Whether rescalings are free, as far as is known: the vectors alone do not show it."""
        if self.trained_on == "dot":
            return (
                "The model was trained on dot products, which no rescaling and no linear map of "
                "both sides changes."
            )
        if self.trained_on == "cosine":
            return (
                "The model was trained on the cosine, so that its dimensions cannot be rescaled "
                "freely: these numbers are sensitivity, not arbitrariness."
            )
        if self.equal_norms:
            return (
                "All items have the same norm: if the model was trained on the cosine, no "
                "rescaling is free, and these numbers are sensitivity, not arbitrariness."
            )
        return (
            "If predictions are dot products with vectors of users or contexts, no rescaling and "
            "no linear map of both sides changes one."
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do about it, most important first."""
        found, free = [], self.trained_on != "cosine"
        if self.equal_norms and self.trained_on == "unknown":
            found.append(
                "Find out what the model was trained on (--trained-on): the items have equal "
                "norms, as after training on the cosine, or after normalising anything else."
            )
        if self.equal_norms and self.trained_on == "dot":
            found.append(
                "Audit the items before they were normalised: their norms are part of a model that "
                "was trained on dot products."
            )
        if not free:
            found.append(
                "Keep the cosine, which is what was trained. Its temperature decides how similar "
                "items come out: choose it by labels, since the held-out loss does not choose well."
            )
        if free and self.parametrization == BALANCED:
            found.append(
                "Both sides have the same Gram matrix, as after training both factors themselves "
                "with weight decay in the loss. If the model was trained so, training has chosen "
                "D; the numbers here are sensitivity."
            )
        if free and any(row.name == "query_metric" for row in self.invariant_baselines):
            found.append(
                "Compare items with the query metric (fastcos export): no rescaling, and no linear "
                "map that keeps the dot products, changes its cosines."
            )
        elif free:
            found.append(
                "Add the embeddings of users or queries (--users), if the model has them: only the "
                "other side determines the scale of the dimensions."
            )
        if self.at_condition.certified < 0.5:
            found.append(
                "Do not present individual neighbours by this cosine as facts. Use the ones that "
                "certified_neighbors certifies, or check them against labels or interactions."
            )
        recovery = self.label_recovery
        if recovery is not None and recovery.high < 0.55:
            found.append(
                "Do not expect the labels from these embeddings. Over all rescalings tried, the "
                f"best AUC of the cosine is {recovery.high:.2f}; 0.5 is chance level."
            )
        if recovery is not None and recovery.high - recovery.low > 0.1:
            found.append(
                "Fix the rescaling with outside information: it alone moves the AUC of the labels "
                f"from {recovery.low:.2f} to {recovery.high:.2f}."
            )
        return tuple(found)

    def shape(self) -> dict[str, float | None]:
        """Statistics of the embeddings as given, by description; None or NaN if undefined."""
        statistics = {
            "mean cosine of all pairs": self.mean_cosine,
            f"effective rank, of {self.n_dimensions}": self.effective_rank,
            "IsoScore (1 is isotropic)": self.isoscore,
            "hubness (skewness of N_k)": self.hubness.skewness,
            "share of items in no list": self.hubness.antihub_share,
        }
        if self.popularity is not None:
            statistics |= {
                "popularity and norm, correlation": self.popularity.norm_correlation,
                "popularity and hubness, correlation": self.popularity.hubness_correlation,
                "popularity and mean cosine, correlation": self.popularity.cosine_correlation,
                "popularity of neighbours over that of items": self.popularity.lift,
            }
        return statistics

    def table(self) -> Table:
        """The robustness curve, for ``repr``, with the verdict."""
        header = ("condition", "lower bound (proved)", "upper bound (no counterexample)")
        rows = [(f"{p.condition:g}", p.certified, p.unbroken) for p in self.robustness]
        title = f"Audit of {self.summary}: share of the {self.k} nearest that stay"
        return Table(title, header, rows, self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain Python values, with the verdict and the advice."""
        return {"verdict": self.verdict, "advice": list(self.advice), **super().to_dict()}

"""The parts of an audit: robustness by condition, variants, label recovery."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastcos.reports import Estimate, Figure, Record, Section, Table, as_table
from fastcos.validation import Floats

# forms in which the two sides of a model balance, by what is balanced
BALANCED, BALANCED_BY_COUNTS, NOISE_BALANCED = "balanced", "balanced_by_counts", "noise_balanced"
# Condition of the map to a form below which factors count as having it: it moves Fisher's z by at
# most 0.05. Gradient training and a randomized SVD stay below it, a D of condition 1.1 does not.
SAME_CONDITION = 1.05
# The same for the form at which stochastic gradient descent rests: it moves around it, by up to
# 1.08 in 232 trainings (examples/scale_of_dimensions.py).
SAME_NOISE_CONDITION = 1.1
# what the model was trained on
TRAINED_ON = ("dot", "cosine", "unknown")
# whether the loss had weight decay on users and items both
DECAY = ("both", "not both", "unknown")


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
    worst_rescaling, worst_linear : float
        Share of neighbours that stay under the one rescaling, or the one linear map, found to
        replace most of them: the true worst keeps at most that. See
        :func:`fastcos.auditing.worst_rescaling`.
    random_rescaling : float
        Mean share that stays under random rescalings, their logarithms uniform.
    """

    condition: float
    certified_linear: float
    certified: float
    unbroken: float
    certified_error: float
    unbroken_error: float
    worst_rescaling: float
    worst_linear: float
    random_rescaling: float


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
    neighbors_kept : float
        Share of the k nearest by the given embeddings that are among the k nearest of the variant
        too, mean over sampled items.
    jaccard_error : float
        Standard error of jaccard, over items.
    rsa : float or None
        Correlation of the cosines of sampled items with the given ones; None if all are equal.
    hubness : float
        Skewness of how often an item is in the sampled lists.
    auc : float or None
        Probability that two items with the same label have a larger cosine than two with different
        labels. None without labels.
    """

    name: str
    meaning: str
    condition: float | None
    jaccard: float
    neighbors_kept: float
    overlap: float
    jaccard_error: float
    rsa: float | None
    hubness: float
    auc: float | None

    @property
    def is_given(self) -> bool:
        """Whether the given embeddings have this form: the map to it changes hardly any cosine."""
        limit = SAME_NOISE_CONDITION if self.name == NOISE_BALANCED else SAME_CONDITION
        return self.condition is not None and self.condition < limit


def variants_table(title: str, rows: Sequence[VariantScores]) -> Table:
    """The variants in one table, with a column of AUC if there are labels."""
    auc = ("AUC",) if any(row.auc is not None for row in rows) else ()
    header = ("embeddings", "Jaccard", "overlap", "RSA", "hubness", *auc, "condition", "compares")
    lines = [
        (row.name, Estimate(row.jaccard, row.jaccard_error), row.overlap, row.rsa, row.hubness,
         *(row.auc for _ in auc), row.condition, row.meaning)
        for row in rows
    ]  # fmt: skip
    return Table(title, header, lines)


@as_table
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

    def sections(self) -> tuple[Section]:
        """The range, with the rescalings that attain it."""
        label = (
            f"Scale of each dimension under the worst rescaling found, with an AUC of "
            f"{self.low:.3f}, and under the best, with {self.high:.3f}; as given it is "
            f"{self.given:.3f}"
        )
        return (
            Section(
                "How far a rescaling moves label recovery",
                (
                    f"Pairwise AUC over {self.n_items:,} labelled items: the probability that two "
                    "items of one label are nearer than two of different labels. 0.5 is chance "
                    "level. Both ends were found by search, so the true range is at least as wide.",
                ),
                facts={
                    "AUC of the labels as given": self.given,
                    f"lowest found, rescalings up to {self.condition:g}": self.low,
                    f"highest found, rescalings up to {self.condition:g}": self.high,
                },
                figures=(Figure("label_recovery", self, 260, label),),
                verdict=f"Rescalings of condition {self.condition:g} move the AUC of the labels "
                f"from {self.given:.2f} to between {self.low:.2f} and {self.high:.2f}.",
            ),
        )

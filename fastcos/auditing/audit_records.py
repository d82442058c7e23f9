"""The records in the report of an audit: robustness, variants and label recovery."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastcos.reports import Estimate, Figure, Record, Section, Table, as_table
from fastcos.validation import Floats

# Names of the forms in which users and items have the same Gram matrix. In the first form, all rows
# have equal weights. In the second form, each row is weighted by its number of interactions. In the
# third form, the weight of each row is computed from the gradient noise and the weight decay of the
# row.
BALANCED, BALANCED_BY_COUNTS, NOISE_BALANCED = "balanced", "balanced_by_counts", "noise_balanced"
# Name of the form of a ranking model in which the mean of the items is 0.
CENTERED = "centered"
# To compare the audited factors with a form, the audit computes the linear map from the factors to
# the form. If the condition number of this map is below SAME_CONDITION, the audit concludes that
# the factors are in this form. A map with a condition number of 1.05 changes Fisher's z of a cosine
# by at most 0.05. Gradient training and a randomized SVD return factors that differ slightly from
# the exact form, so SAME_CONDITION is above 1. Two forms are still distinguished if the map between
# them has a condition number of 1.1.
SAME_CONDITION = 1.05
# For the form to which stochastic gradient descent converges, the audit uses SAME_NOISE_CONDITION
# instead of SAME_CONDITION. SAME_NOISE_CONDITION is higher than SAME_CONDITION, because the factors
# fluctuate around the converged form during training. The script examples/scale_of_dimensions.py
# measured the condition number of the map from the factors to the converged form. The script also
# predicted how many epochs a model needs to forget its initial scale. In 232 measurements, the
# model had been trained for at least twice this number of epochs. In all of these measurements, the
# condition number was at most 1.08.
SAME_NOISE_CONDITION = 1.1
# The accepted values of the argument trained_on. A ranking loss depends only on the differences of
# the dot products of one user with several items (Theorem 10 of docs/explanation/theorems.md).
RANKING = "ranking"
TRAINED_ON = ("dot", RANKING, "cosine", "unknown")
# The accepted values of the argument weight_decay_on.
DECAY = ("both", "not both", "unknown")


@dataclass(frozen=True)
class RobustnessPoint(Record):
    """Bounds on the share of neighbours that survive maps whose condition number is limited.

    A neighbour survives a map if it is still among the k nearest neighbours of the item after the
    map has been applied to all items.

    Attributes
    ----------
    condition : float
        The limit: the largest condition number of the maps.
    certified_linear : float
        Lower bound on the share of neighbours that survive every invertible linear map. The bound
        is the share of certified neighbours among the neighbours of all items.
    certified : float
        Lower bound on the share of neighbours that survive every rescaling. The bound is the share
        of certified neighbours among the neighbours of the sampled items.
    unbroken : float
        Upper bound on the share of neighbours that survive every rescaling. The bound is computed
        from the neighbours of the sampled items: it is the share of these neighbours that no attack
        removed.
    certified_error, unbroken_error : float
        Standard errors of ``certified`` and ``unbroken``, over the sampled items.
    worst_rescaling : float
        Upper bound on the share of neighbours that survive the worst single rescaling. The function
        :func:`fastcos.auditing.worst_rescaling` searches for the worst rescaling; the bound is the
        share of neighbours that survive the rescaling that it finds.
    worst_linear : float
        Upper bound on the share of neighbours that survive the worst single linear map. A search
        looks for the worst map; the bound is the share of neighbours that survive the map that the
        search finds.
    random_rescaling : float
        Mean share of neighbours that survive a random rescaling. The logarithms of the entries of a
        random rescaling are uniformly distributed.
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
    """Comparison of the audited embeddings with a variant of them.

    A variant is another parametrisation of the model, or an embedding whose cosines do not depend
    on the parametrisation.

    Attributes
    ----------
    name, meaning : str
        Name of the variant, and a description of its rows.
    condition : float or None
        Condition number of the linear map from the audited items to the variant; None if the map is
        not invertible.
    jaccard, overlap : float
        Each sampled item has two lists: its k nearest neighbours in the variant, and its k nearest
        neighbours in the audited embeddings. ``jaccard`` is the Jaccard index of the two lists, and
        ``overlap`` is their rank-biased overlap. Both numbers are means over the sampled items.
    neighbors_kept : float
        Share of the k nearest neighbours in the audited embeddings that are also among the k
        nearest in the variant; mean over sampled items.
    jaccard_error : float
        Standard error of ``jaccard``, over items.
    rsa : float or None
        Correlation between the cosines of sampled items in the variant and in the audited
        embeddings; None if all cosines are equal.
    hubness : float
        Skewness of the counts, where the count of an item is the number of sampled neighbour lists
        that contain the item.
    auc : float or None
        Probability that two items with the same label have a larger cosine than two items with
        different labels. None without labels.
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
        """Whether the cosines of this variant and of the audited embeddings are nearly equal.

        Two sets of embeddings have nearly equal cosines if the map from one set to the other has a
        condition number close to 1 (Theorem 3 of docs/explanation/theorems.md).
        """
        limit = SAME_NOISE_CONDITION if self.name == NOISE_BALANCED else SAME_CONDITION
        return self.condition is not None and self.condition < limit


def variants_table(title: str, rows: Sequence[VariantScores]) -> Table:
    """Return the table of the variants, with a column for the AUC if there are labels."""
    auc = ("AUC",) if any(row.auc is not None for row in rows) else ()
    header = ("embeddings", "Jaccard", "overlap", "RSA", "hubness", *auc, "condition", "meaning")
    lines = [
        (row.name, Estimate(row.jaccard, row.jaccard_error), row.overlap, row.rsa, row.hubness,
         *(row.auc for _ in auc), row.condition, row.meaning)
        for row in rows
    ]  # fmt: skip
    return Table(title, header, lines)


@as_table
@dataclass(frozen=True)
class LabelRecovery(Record):
    """The AUC of labels under the worst and the best rescaling that a search found.

    The pairwise AUC is the probability that two items with the same label have a larger cosine than
    two items with different labels.

    Attributes
    ----------
    condition : float
        Largest condition number of the rescalings in the search.
    n_items : int
        Number of labelled items on which the AUC was evaluated. The search for the rescalings did
        not use these items.
    given, low, high : float
        The pairwise AUC of the audited embeddings, of the rows ``items / low_rescaling``, and of
        the rows ``items / high_rescaling``. The AUCs ``given``, ``low`` and ``high`` are computed
        on items that the search did not use. The true range of the AUC is at least as wide as the
        range from ``low`` to ``high``.
    low_rescaling, high_rescaling : ndarray (d,), float64
        Diagonals of two rescalings D that the search found. The rows ``items / low_rescaling`` have
        the lowest AUC that the search found, and the rows ``items / high_rescaling`` have the
        highest.
    """

    condition: float
    n_items: int
    given: float
    low: float
    high: float
    low_rescaling: Floats
    high_rescaling: Floats

    def sections(self) -> tuple[Section]:
        """Return the section about the rescalings with the lowest and the highest AUC."""
        label = (
            "Scale of each dimension under two rescalings that the search found. The AUC is "
            f"{self.low:.3f} under the worst rescaling and {self.high:.3f} under the best "
            f"rescaling. The AUC of the audited embeddings is {self.given:.3f}."
        )
        return (
            Section(
                "How far a rescaling moves the AUC of the labels",
                (
                    "The pairwise AUC is the probability that two items with the same label are "
                    "nearer to each other than two items with different labels. An AUC of 0.5 is "
                    f"chance level. The AUC was computed on {self.n_items:,} labelled items. The "
                    "search may have missed rescalings with a lower or a higher AUC, so the true "
                    "range of the AUC is at least as wide as the range that the search found.",
                ),
                facts={
                    "AUC of the audited embeddings": self.given,
                    f"lowest AUC found for a condition up to {self.condition:g}": self.low,
                    f"highest AUC found for a condition up to {self.condition:g}": self.high,
                },
                figures=(Figure("label_recovery", self, 260, label),),
                verdict=f"The AUC of the labels is {self.given:.2f}. Rescalings of condition "
                f"{self.condition:g} move the AUC to values between {self.low:.2f} and "
                f"{self.high:.2f}.",
            ),
        )

"""The result of ``compare``: scores of the cosine per rescaling, and a leaderboard of measures."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos.comparison.candidates import EQ2
from fastcos.comparison.leaderboard import Leaderboard
from fastcos.reports import Record, Section, Table, as_table
from fastcos.similarity.rescalings import Rescaling

if TYPE_CHECKING:
    from fastcos.models.linear_mf import LinearMF

Items = npt.NDArray[np.floating[Any]]
Lists = npt.NDArray[np.int64]

# For each column of the table: its heading, the attribute of RescalingScores, and an explanation.
_COLUMNS = (
    (
        "AUC",
        "pair_auc",
        "probability that two items with the same label have a larger cosine than two items with "
        "different labels",
    ),
    ("stratified", "stratified_auc", "AUC among pairs of similar popularity"),
    ("MAP@R", "map_at_r", "mean average precision of a search for items with the same label"),
    ("AMI", "ami", "agreement of clusters with labels, 0 by chance"),
    ("ARI", "ari", ""),
    ("silhouette", "silhouette", ""),
    ("within", "within", "mean cosine of items with the same label"),
    ("between", "between", "mean cosine of items with different labels"),
    (
        "d'",
        "contrast",
        "within minus between, divided by the pooled standard deviation",
    ),
    ("eff. rank", "effective_rank", "effective rank of the items"),
    (
        "Jaccard@10",
        "jaccard_at_10",
        "Jaccard index between the ten nearest items under the rescaling and the ten nearest items "
        "under D = I",
    ),
    ("±", "jaccard_error", "standard error of Jaccard@10"),
)


@dataclass(frozen=True, kw_only=True)
class RescalingScores(Record):
    """Scores of the cosine between item embeddings under one rescaling.

    The scores that require labels are None if there are no labels.

    Attributes
    ----------
    name : str
        Name of the rescaling, or "eq2" for the solution of Eq. 2.
    formula : str
        Formula of D.
    objective : str
        "dropout" (Eq. 1) or "weight_decay" (Eq. 2).
    shrinkage, spectrum : float or None
        Exponents of the rescaling D = S^shrinkage Σ^spectrum; None for Eq. 2, whose solution cannot
        be rescaled.
    pair_auc, pair_auc_low, pair_auc_high : float or None
        ``pair_auc`` is the probability that a pair of items with the same label has a larger cosine
        than a pair with different labels. The exact ``pair_auc``, without rounding errors,
        certainly lies between ``pair_auc_low`` and ``pair_auc_high``.
    stratified_auc : float or None
        Mean AUC within ten strata of pairs that have similar popularity, so that a few popular
        items do not dominate the score. If fewer than 50 items have labels, all pairs are in a
        single stratum.
    map_at_r, ami, ari, silhouette, within, between, contrast : float or None
        Scores that the documentation of ``fastcos.metrics`` defines. ``ami`` and ``ari`` are None
        for the rescalings of the grid, because the items are clustered only for named rescalings.
    effective_rank : float
        Effective rank of the item embeddings.
    jaccard_at_10 : float
        Jaccard index of two sets: the ten nearest neighbours of an item under the rescaling, and
        its ten nearest neighbours under D = I. The value is the mean over items. If Eq. 1 is not
        compared, the second set contains the nearest neighbours in the solution of Eq. 2.
    jaccard_error : float or None
        Standard error of ``jaccard_at_10`` over the sampled items; None if all items were used.
    zero_items : int
        Number of items whose embedding is zero, for example because no user interacted with them.
    """

    name: str
    formula: str
    objective: str
    shrinkage: float | None
    spectrum: float | None
    pair_auc: float | None = None
    pair_auc_low: float | None = None
    pair_auc_high: float | None = None
    stratified_auc: float | None = None
    map_at_r: float | None = None
    ami: float | None = None
    ari: float | None = None
    silhouette: float | None = None
    within: float | None = None
    between: float | None = None
    contrast: float | None = None
    effective_rank: float
    jaccard_at_10: float
    jaccard_error: float | None = None
    zero_items: int

    @property
    def rescaling(self) -> Rescaling | None:
        """The rescaling D, or None for Eq. 2."""
        if self.shrinkage is None or self.spectrum is None:
            return None
        return Rescaling(self.shrinkage, self.spectrum)

    @property
    def heading(self) -> str:
        """The name and the formula of the rescaling, as the label of a row in a table."""
        return f"{self.name}, D = {self.formula}" if self.rescaling else "Eq. 2, unique"


def rescalings_table(named: Sequence[RescalingScores]) -> Table:
    """Return the table of scores, with one row per rescaling and without empty columns."""
    columns = [
        column for column in _COLUMNS if any(getattr(row, column[1]) is not None for row in named)
    ]
    rows = [
        (row.heading, *(getattr(row, attribute) for _, attribute, _ in columns)) for row in named
    ]
    title = "Item-item cosine under every rescaling D of one model (Eq. 1), and under Eq. 2"
    legend = "; ".join(f"{name}: {meaning}" for name, _, meaning in columns if meaning)
    return Table(title, ("rescaling", *(name for name, _, _ in columns)), rows, f"{legend}.")


@as_table
@dataclass(frozen=True)
class Comparison(Record):
    """The result of :func:`fastcos.compare`: scores of the cosine per rescaling, and a leaderboard.

    Attributes
    ----------
    leaderboard : Leaderboard
        The ranking of all measures under all rescalings, with a conclusion. Measures are ranked by
        how well they recover the labels or, without labels, by how well they predict held-out
        interactions.
    named : list of RescalingScores
        Scores of the cosine under each named rescaling of Eq. 1, followed by the scores of the
        cosine under Eq. 2.
    grid : list of RescalingScores
        Scores of the cosine of Eq. 1 under D = S^shrinkage Σ^spectrum, for a grid of the two
        exponents.
    neighbors : dict of str to ndarray (p, 10), int64
        Ten nearest neighbours by cosine under each named rescaling. If items were sampled, each
        array contains one row per sampled item.
    sampled : ndarray (m,), int64, or None
        Indices of the items that were sampled to score the rescalings, or None if all items were
        used.
    labels : ndarray (p,), int64, or None
        Label code of each item: the position of its label among the sorted labels, counted from 0;
        -1 for an item without a label.
    label_names : list of str
        The names of the labels, indexed by label code.
    popularity : ndarray (p,), int64
        Number of users of each item.
    parameters : dict
        The parameters with which the same comparison can be repeated.
    models : dict of str to LinearMF
        The fitted model of each objective that was compared.
    """

    leaderboard: Leaderboard
    named: list[RescalingScores]
    grid: list[RescalingScores]
    neighbors: dict[str, Lists] = field(repr=False)
    labels: npt.NDArray[np.int64] | None = field(repr=False)
    popularity: npt.NDArray[np.int64] = field(repr=False)
    parameters: dict[str, Any]
    models: dict[str, "LinearMF"] = field(repr=False)
    sampled: npt.NDArray[np.int64] | None = field(default=None, repr=False)
    label_names: list[str] = field(default_factory=list, repr=False)

    def item_embeddings(self, row: RescalingScores) -> Items:
        """Return the item embeddings (p, k) to which the scores in ``row`` belong."""
        return self.models[row.objective].item_embeddings(row.rescaling)

    def auc_range(self, *, grid: bool = False) -> float | None:
        """Return the difference between the largest and the smallest ``pair_auc`` of Eq. 1.

        If `grid` is false, the AUCs under the named rescalings are compared; if `grid` is true, the
        AUCs under the rescalings of the grid are compared.
        """
        rows = self.grid if grid else [row for row in self.named if row.name != EQ2]
        values = [row.pair_auc for row in rows if row.pair_auc is not None]
        return max(values) - min(values) if values else None

    @property
    def verdict(self) -> str:
        """The conclusion of the leaderboard."""
        return self.leaderboard.conclusion

    def sections(self) -> tuple[Section, ...]:
        """Return the section of the rescalings, followed by the section of the leaderboard."""
        rescalings = Section("Rescalings of one model", tables=[rescalings_table(self.named)])
        return (rescalings, *self.leaderboard.sections())

    def to_dict(self) -> dict[str, Any]:
        """Return the scores and the leaderboard as a dict that can be written as JSON."""
        return {
            "scores": {
                "named": [row.to_dict() for row in self.named],
                "grid": [row.to_dict() for row in self.grid],
            },
            "leaderboard": self.leaderboard.to_dict(),
        }

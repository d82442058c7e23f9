"""The result of a comparison: the table over rescalings, and the leaderboard of all measures."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.comparison.candidates import EQ2
from fastcos.comparison.leaderboard import Leaderboard
from fastcos.models.linear_mf import LinearMF
from fastcos.reports import Record, Section, Table, as_table
from fastcos.similarity.diagonal import Rescaling

Items = npt.NDArray[np.floating[Any]]
Lists = npt.NDArray[np.int64]

# heading, attribute of RescalingScores, and what a heading does not say
_COLUMNS = (
    ("AUC", "pair_auc", "two items of one label have the larger cosine"),
    ("stratified", "stratified_auc", "AUC among pairs of similar popularity"),
    ("MAP@R", "map_at_r", "an item's label at the top of its list"),
    ("AMI", "ami", "agreement of clusters with labels, 0 by chance"),
    ("ARI", "ari", ""),
    ("silhouette", "silhouette", ""),
    ("within", "within", "mean cosine of one label"),
    ("between", "between", "of two labels"),
    ("d'", "contrast", "their difference in standard deviations"),
    ("eff. rank", "effective_rank", "effective rank of the items"),
    ("Jaccard@10", "jaccard_at_10", "the ten nearest shared with D = I"),
    ("±", "jaccard_error", "its standard error"),
)


@dataclass(frozen=True, kw_only=True)
class RescalingScores(Record):
    """Label recovery of one set of item embeddings by cosine; None without labels.

    Attributes
    ----------
    name : str
        Name of the rescaling; "eq2" for the second objective.
    formula : str
        D in letters.
    objective : str
        "dropout" (Eq. 1) or "weight_decay" (Eq. 2).
    shrinkage, spectrum : float or None
        Exponents of D = S^shrinkage Σ^spectrum; None for Eq. 2, which leaves D no freedom.
    pair_auc, pair_auc_low, pair_auc_high : float or None
        Probability that a pair with one label has a larger cosine than a pair with two, and the
        interval that certainly holds it.
    stratified_auc : float or None
        pair_auc within the strata that are given, else within ten strata of the pairs by
        popularity, so that popular pairs alone do not decide it; one stratum for fewer than 50
        labelled items.
    map_at_r, ami, ari, silhouette, within, between, contrast : float or None
        See fastcos.metrics. No clustering for the grid: ami and ari are None there.
    effective_rank : float
        Of the item embeddings.
    jaccard_at_10 : float
        Overlap of the ten nearest neighbours with those under D = I (of Eq. 2 itself where Eq. 1
        is not compared), mean over items.
    jaccard_error : float or None
        Its standard error over the items that were sampled; None for all items.
    zero_items : int
        Items whose embedding is zero: without interactions, or without a column of the model.
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
        """D, or None for Eq. 2."""
        if self.shrinkage is None or self.spectrum is None:
            return None
        return Rescaling(self.shrinkage, self.spectrum)

    @property
    def heading(self) -> str:
        """Its name and D, for a table."""
        return f"{self.name}, D = {self.formula}" if self.rescaling else "Eq. 2, unique"


def rescalings_table(named: Sequence[RescalingScores]) -> Table:
    """The scores by rescaling; a column that is empty, as most are without labels, is left out."""
    columns = [one for one in _COLUMNS if any(getattr(row, one[1]) is not None for row in named)]
    attributes = [attribute for _, attribute, _ in columns]
    rows = [(row.heading, *(getattr(row, one) for one in attributes)) for row in named]
    title = "Item-item cosine under every rescaling D of one model (Eq. 1), and under Eq. 2"
    legend = "; ".join(f"{name}: {meaning}" for name, _, meaning in columns if meaning)
    return Table(title, ("rescaling", *(name for name, _, _ in columns)), rows, f"{legend}.")


@as_table
@dataclass(frozen=True)
class Comparison(Record):
    """The items of one model under every rescaling, and by every measure.

    Attributes
    ----------
    leaderboard : Leaderboard
        Every measure under every rescaling, ranked: by recovery of the labels, or, without labels,
        by held-out interactions; with a conclusion of one sentence.
    named : list of RescalingScores
        The named rescalings of objective (1), then objective (2).
    grid : list of RescalingScores
        Objective (1) under D = S^shrinkage Σ^spectrum over a grid of exponents.
    neighbors : dict of str to ndarray (p, 10), int64
        Ten nearest neighbours under the named ones, by cosine; of the sampled items only.
    sampled : ndarray (m,), int64, or None
        Items whose neighbours and labels score the rescalings; None for all.
    labels : ndarray (p,), int64, or None
        Label numbers by sorted value; -1 for items that were left out.
    label_names : list of str
        The labels by number.
    popularity : ndarray (p,), int64
        Number of users per item.
    parameters : dict
        All that is needed to repeat the comparison on the same data.
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
    models: dict[str, LinearMF] = field(repr=False)
    sampled: npt.NDArray[np.int64] | None = field(default=None, repr=False)
    label_names: list[str] = field(default_factory=list, repr=False)

    def item_embeddings(self, row: RescalingScores) -> Items:
        """Return the item embeddings (p, k) behind a row of scores."""
        return self.models[row.objective].item_embeddings(row.rescaling)

    def auc_range(self, *, grid: bool = False) -> float | None:
        """Return the largest minus the smallest pairwise AUC of objective (1), named or grid."""
        rows = self.grid if grid else [row for row in self.named if row.name != EQ2]
        values = [row.pair_auc for row in rows if row.pair_auc is not None]
        return max(values) - min(values) if values else None

    @property
    def verdict(self) -> str:
        """The conclusion of the leaderboard."""
        return self.leaderboard.conclusion

    def sections(self) -> tuple[Section, ...]:
        """The rescalings, then the leaderboard."""
        rescalings = Section("Rescalings of one model", tables=[rescalings_table(self.named)])
        return (rescalings, *self.leaderboard.sections())

    def to_dict(self) -> dict[str, Any]:
        """The scores of all rescalings and the leaderboard, as dicts, lists, numbers and texts."""
        return {
            "scores": {
                "named": [row.to_dict() for row in self.named],
                "grid": [row.to_dict() for row in self.grid],
            },
            "leaderboard": self.leaderboard.to_dict(),
        }

"""The paper's question on any data: what every rescaling of one model says of the same items."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import metrics, validate
from fastcos.factorization import LinearMF
from fastcos.neighbors import top_k
from fastcos.rescaling import Rescaling, rescaling_grid, rescalings
from fastcos.validate_csr import as_interactions

Items = npt.NDArray[np.floating[Any]]
Lists = npt.NDArray[np.int64]
Progress = Callable[[int, int], object]

EQ2 = "eq2"
N_NEIGHBORS = 10


class Scores(NamedTuple):
    """How one set of item embeddings recovers the labels by cosine; None without labels.

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
    map_at_r, ami, ari, silhouette, within, between, contrast : float or None
        See fastcos.metrics.
    effective_rank : float
        Of the item embeddings.
    jaccard_at_10 : float
        Overlap of the ten nearest neighbours with those under D = I (of Eq. 2 itself where Eq. 1
        is not compared), mean over items.
    zero_items : int
        Items without a direction: nobody touched them, or no column is left for them.

    Examples
    --------
    >>> import fastcos
    >>> data = fastcos.simulate_interactions(300, 60, seed=0)
    >>> row = fastcos.compare(data.X, data.item_cluster, n_components=8).named[0]
    >>> row.name, row.formula, row.pair_auc_low <= row.pair_auc <= row.pair_auc_high
    ('identity', 'I', True)
    """

    name: str
    formula: str
    objective: str
    shrinkage: float | None
    spectrum: float | None
    pair_auc: float | None
    pair_auc_low: float | None
    pair_auc_high: float | None
    map_at_r: float | None
    ami: float | None
    ari: float | None
    silhouette: float | None
    within: float | None
    between: float | None
    contrast: float | None
    effective_rank: float
    jaccard_at_10: float
    zero_items: int

    @property
    def rescaling(self) -> Rescaling | None:
        """D, or None for Eq. 2."""
        if self.shrinkage is None or self.spectrum is None:
            return None
        return Rescaling(self.shrinkage, self.spectrum)


@dataclass(frozen=True)
class Comparison:
    """The same items under every rescaling.

    Attributes
    ----------
    named : list of Scores
        The named rescalings of objective (1), then objective (2).
    grid : list of Scores
        Objective (1) under D = S^shrinkage Σ^spectrum over a grid of exponents.
    neighbors : dict of str to ndarray (p, 10), int64
        Ten nearest neighbours under the named ones, by cosine.
    labels : ndarray (p,), int64, or None
        Label numbers by sorted value; -1 for items that were left out.
    popularity : ndarray (p,), int64
        Number of users per item.
    parameters : dict
        Everything needed to repeat the comparison on the same data.
    models : dict of str to LinearMF
        The fitted model of each objective that was compared.

    Examples
    --------
    >>> import fastcos
    >>> data = fastcos.simulate_interactions(300, 60, seed=0)
    >>> comparison = fastcos.compare(data.X, data.item_cluster, n_components=8)
    >>> [row.name for row in comparison.named][-1]
    'eq2'
    >>> comparison.item_embeddings(comparison.named[0]).shape
    (60, 8)
    """

    named: list[Scores]
    grid: list[Scores]
    neighbors: dict[str, Lists] = field(repr=False)
    labels: npt.NDArray[np.int64] | None = field(repr=False)
    popularity: npt.NDArray[np.int64] = field(repr=False)
    parameters: dict[str, Any]
    models: dict[str, LinearMF] = field(repr=False)

    def item_embeddings(self, row: Scores) -> Items:
        """Return the item embeddings (p, k) behind a row of scores."""
        return self.models[row.objective].item_embeddings(row.rescaling)

    def auc_range(self, *, grid: bool = False) -> float | None:
        """Return the largest minus the smallest pairwise AUC of objective (1), named or grid."""
        rows = self.grid if grid else [row for row in self.named if row.name != EQ2]
        values = [row.pair_auc for row in rows if row.pair_auc is not None]
        return max(values) - min(values) if values else None


def compare(
    X: Any,
    labels: Any = None,
    *,
    n_components: int = 50,
    regularization: float | None = None,
    weight_decay: float | None = None,
    objective: str = "both",
    rescalings: Sequence[str | Rescaling] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Score every rescaling of one model, and the second objective, by recovery of the labels.

    All rescalings of objective (1) are the same model: the same predictions, the same loss. Where
    the scores differ between them, cosine similarity says what nobody trained.

    Parameters
    ----------
    X : sparse matrix or array_like (n, p)
        Interactions of n users with p items, any finite real numbers. Zeros count as none.
    labels : sequence (p,) of int or str, optional
        One label per item; None for an item to be left out of the scores. Without labels only
        the label-free columns are filled.
    n_components : int, default 50
        Rank k of the model, from 1 to min(n, p).
    regularization : float, optional
        λ of Eq. 1, compared with squared singular values. Default: the square of the singular
        value number k/5, which is about what the paper chose for its data (10,000).
    weight_decay : float, optional
        λ of Eq. 2, compared with singular values. Default: the square root of regularization, which
        puts the knee of both objectives at the same singular value.
    objective : {"both", "dropout", "weight_decay"}, default "both"
        Which of Eq. 1 and Eq. 2 to compare.
    rescalings : sequence of str or Rescaling, optional
        Default: every named one. The grid of exponents is scored in any case.
    seed : int, default 0
        For the solver and for the clustering behind AMI and ARI.
    progress : callable, optional
        progress(done, total), in numbers of embeddings.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        An argument breaks its rule.

    Notes
    -----
    Time O(nnz k) for the model and O(p² k) per rescaling for AUC, MAP@R and neighbours; no p x p
    array is held.
    Source: Steck, Ekanadham, Kallus 2024 (arXiv:2403.05440), sections 2 and 4.

    Examples
    --------
    >>> import fastcos
    >>> data = fastcos.simulate_interactions(2000, 200, seed=1)
    >>> comparison = fastcos.compare(data.X, data.item_cluster, n_components=20)
    >>> comparison.auc_range() > 0.1
    True
    """
    X = as_interactions("X", X)
    n, p = X.shape
    n_components = validate.as_count("n_components", n_components, high=min(n, p))
    if regularization is not None:
        regularization = validate.as_real("regularization", regularization, low=0)
    if weight_decay is not None:
        weight_decay = validate.as_real("weight_decay", weight_decay, low=0)
    objective = validate.as_choice("objective", objective, ("both", "dropout", "weight_decay"))
    seed = validate.as_count("seed", seed, low=0)
    codes = None if labels is None else validate.as_partial_labels("labels", labels, p)
    named = [*_named_variants(rescalings), _Variant(EQ2, "weight_decay", None)]

    fitted = LinearMF(n_components, random_state=seed).fit(X)
    if regularization is None:
        regularization = fitted.default_regularization("dropout")
    if weight_decay is None:
        weight_decay = math.sqrt(regularization)
    strengths = {"dropout": regularization, "weight_decay": weight_decay}
    models = {
        name: fitted.reregularized(name, strength)
        for name, strength in strengths.items()
        if objective in ("both", name)
    }
    grid = [_Variant(f"grid {D.formula}", "dropout", D) for D in rescaling_grid()]
    variants = [v for v in [*named, *grid] if v.objective in models]
    judge = _Judge(codes, seed, next(iter(models.values())).item_embeddings())
    scores: dict[_Variant, Scores] = {}
    neighbors: dict[str, Lists] = {}
    for done, variant in enumerate(variants):
        embedded = models[variant.objective].item_embeddings(variant.rescaling)
        scores[variant], lists = judge.score(variant, embedded)
        if variant in named:
            neighbors[variant.name] = lists
        if progress is not None:
            progress(done + 1, len(variants))
    return Comparison(
        named=[row for variant, row in scores.items() if variant in named],
        grid=[row for variant, row in scores.items() if variant not in named],
        neighbors=neighbors,
        labels=codes,
        popularity=np.bincount(X.indices, minlength=p).astype(np.int64),
        parameters={
            "n_users": n,
            "n_items": p,
            "n_interactions": int(X.nnz),
            "n_labelled": None if codes is None else int((codes >= 0).sum()),
            "n_components": n_components,
            "objective": objective,
            "regularization": regularization,
            "weight_decay": weight_decay,
            "seed": seed,
        },
        models=models,
    )


class _Variant(NamedTuple):
    """One set of item embeddings to be judged."""

    name: str
    objective: str
    rescaling: Rescaling | None


def _named_variants(chosen: Sequence[str | Rescaling] | None) -> list[_Variant]:
    known = {named.name: named.rescaling for named in rescalings()}
    variants = []
    for choice in known if chosen is None else chosen:
        if isinstance(choice, Rescaling):
            variants.append(_Variant(choice.name, "dropout", choice))
        else:
            name = validate.as_choice("rescalings", choice, known)
            variants.append(_Variant(name, "dropout", known[name]))
    return variants


class _Judge:
    """Scores embeddings of the same items against the same labels and reference neighbours."""

    def __init__(
        self, codes: npt.NDArray[np.int64] | None, seed: int, reference_items: Items
    ) -> None:
        self._codes, self._seed = codes, seed
        self._k = min(N_NEIGHBORS, len(reference_items) - 1)
        self._reference = self._neighbors(reference_items)

    def _neighbors(self, items: Items) -> Lists:
        return top_k(items, k=self._k).indices

    def score(self, variant: _Variant, items: Items) -> tuple[Scores, Lists]:
        """Return the scores and the neighbour lists of one variant."""
        lists = self._neighbors(items)
        free = variant.rescaling
        scores = Scores(
            name=variant.name,
            formula="unique" if free is None else free.formula,
            objective=variant.objective,
            shrinkage=None if free is None else free.shrinkage,
            spectrum=None if free is None else free.spectrum,
            **self._recovery(items),
            effective_rank=metrics.effective_rank(items),
            jaccard_at_10=metrics.jaccard_at_k(lists, self._reference),
            zero_items=int((~items.any(axis=1)).sum()),
        )
        return scores, lists

    def _recovery(self, items: Items) -> dict[str, float | None]:
        if self._codes is None:
            return dict.fromkeys(_RECOVERY)
        kept = self._codes >= 0
        rows, labels = items[kept], self._codes[kept]
        auc = metrics.pair_auc(rows, labels)
        clusters = metrics.clustering_scores(rows, labels, seed=self._seed)
        means = metrics.within_between(rows, labels)
        values = (
            *(auc.value, auc.low, auc.high),
            metrics.map_at_r(rows, labels).value,
            *(clusters.ami, clusters.ari),
            metrics.silhouette(rows, labels).value,
            *(means.within, means.between, means.contrast),
        )
        return dict(zip(_RECOVERY, values, strict=True))


_RECOVERY = Scores._fields[Scores._fields.index("pair_auc") : Scores._fields.index("contrast") + 1]

"""The paper's question on any data: label recovery by cosine under every rescaling of one model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import metrics
from fastcos.comparison.models import ModelVariant
from fastcos.comparison.result import Items, Lists, RescalingScores
from fastcos.comparison.runner import Executor
from fastcos.linalg.csr import one_per_row
from fastcos.metrics.list_overlap import jaccard_per_query
from fastcos.models.linear_mf import LinearMF
from fastcos.search.top_k import top_k
from fastcos.similarity.diagonal import Rescaling
from fastcos.validation import Integers

# length of the neighbour lists, as in the paper's examples
N_NEIGHBORS = 10
# pairs are stratified by popularity where a stratum holds 5 items on average
N_STRATA = 10
LEAST_ITEMS_FOR_STRATA = 50


class Tables(NamedTuple):
    """Scores of the named rescalings and of the grid, and the neighbours under the named ones."""

    named: list[RescalingScores]
    grid: list[RescalingScores]
    neighbors: dict[str, Lists]


def score_rescalings(
    evaluator: "RescalingEvaluator",
    named: Iterable[ModelVariant],
    grid: Sequence[ModelVariant],
    tick: Callable[[], None],
    executor: Executor,
) -> Tables:
    """Score the cosines of every variant; one that is also on the grid is evaluated once."""
    tables = Tables([], [], {})
    works = [(variant, True) for variant in named]
    of_named = {variant.rescaling for variant, _ in works}
    works += [(variant, False) for variant in grid if variant.rescaling not in of_named]
    scored: dict[Rescaling | None, RescalingScores] = {}
    results = executor(evaluator, works)
    for (variant, is_named), (row, lists) in zip(works, results, strict=True):
        scored[variant.rescaling] = row
        if is_named:
            tables.named.append(row)
            tables.neighbors[variant.name] = lists
        tick()
    for variant in grid:
        row = scored[variant.rescaling]
        tables.grid.append(replace(row, name=variant.name, ami=None, ari=None))
        if variant.rescaling in of_named:
            tick()
    return tables


class RescalingEvaluator:
    """Scores embeddings of the same items against the same labels and reference neighbours."""

    def __init__(
        self,
        models: Mapping[str, LinearMF],
        codes: Integers | None,
        strata: Integers | None,
        popularity: Integers,
        random_state: int,
        sampled: Integers | None,
    ) -> None:
        self._models, self._codes, self._random_state = models, codes, random_state
        self._strata, self._popularity, self._sampled = strata, popularity, sampled
        if codes is not None and sampled is not None:
            self._codes = np.full_like(codes, -1)
            labelled = np.random.default_rng(random_state).permutation(np.flatnonzero(codes >= 0))
            self._codes[labelled[: len(sampled)]] = codes[labelled[: len(sampled)]]
        reference_items = next(iter(models.values())).item_embeddings()
        self._k = min(N_NEIGHBORS, len(reference_items) - 1)
        self._reference = self._neighbors(reference_items)

    def evaluate(self, work: tuple[ModelVariant, bool]) -> tuple[RescalingScores, Lists]:
        """The scores and the neighbour lists of a variant, which is clustered for AMI if True."""
        variant, cluster = work
        D, items = variant.rescaling, variant.embeddings(self._models)
        lists = self._neighbors(items)
        # the overlap with the reference, and its standard error over sampled items
        of_items, error = jaccard_per_query(lists, self._reference), None
        if self._sampled is not None:
            error = float(np.std(of_items, ddof=1) / np.sqrt(len(lists)))
        scores = RescalingScores(
            name=variant.name,
            formula="unique" if D is None else D.formula,
            objective=variant.objective,
            shrinkage=None if D is None else D.shrinkage,
            spectrum=None if D is None else D.spectrum,
            **self._recovery(items, cluster),
            effective_rank=metrics.effective_rank(items),
            jaccard_at_10=float(of_items.mean()),
            jaccard_error=error,
            zero_items=int((~items.any(axis=1)).sum()),
        )
        return scores, lists

    def _neighbors(self, items: Items) -> Lists:
        if self._sampled is None:
            return top_k(items, k=self._k).indices
        own = one_per_row(self._sampled, len(items))
        return top_k(items[self._sampled], items, self._k, exclude=own).indices

    def _recovery(self, items: Items, cluster: bool) -> dict[str, Any]:
        if self._codes is None:
            return {}
        kept = self._codes >= 0
        rows, labels = items[kept], self._codes[kept]
        auc = metrics.pair_auc(rows, labels)
        means = metrics.within_between(rows, labels)
        scores = {
            "pair_auc": auc.value,
            "pair_auc_low": auc.low,
            "pair_auc_high": auc.high,
            "stratified_auc": self._stratified_auc(rows, labels, kept),
            "map_at_r": metrics.map_at_r(rows, labels).value,
            "silhouette": metrics.silhouette(rows, labels).value,
            "within": means.within,
            "between": means.between,
            "contrast": means.contrast,
        }
        if cluster:
            found = metrics.clustering_scores(rows, labels, random_state=self._random_state)
            scores |= {"ami": found.ami, "ari": found.ari}
        return scores

    def _stratified_auc(self, rows: Items, labels: Integers, kept: npt.NDArray[np.bool_]) -> float:
        if self._strata is not None:
            of_items = [None if code < 0 else code for code in self._strata[kept].tolist()]
            return metrics.stratified_auc(rows, labels, strata=of_items).value
        n_strata = N_STRATA if len(rows) >= LEAST_ITEMS_FOR_STRATA else 1
        return metrics.stratified_auc(rows, labels, self._popularity[kept], n_strata=n_strata).value

"""The table of ``compare``: how well cosines recover labels under every rescaling of a model."""

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
from fastcos.similarity.rescalings import Rescaling
from fastcos.validation import Integers

# Length of the neighbour lists, as in the examples of the paper.
N_NEIGHBORS = 10
# The pairs of items are divided by popularity into N_STRATA strata. If fewer than
# MIN_ITEMS_FOR_STRATA items have labels, there is only one stratum.
N_STRATA = 10
MIN_ITEMS_FOR_STRATA = 50


class Tables(NamedTuple):
    """Scores for every rescaling, and neighbour lists for the named rescalings."""

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
    """Return the scores of the cosine under all named rescalings and all rescalings of the grid.

    A rescaling that is both named and on the grid is scored only once.
    """
    tables = Tables([], [], {})
    jobs = [(variant, True) for variant in named]
    named_rescalings = {variant.rescaling for variant, _ in jobs}
    jobs += [(variant, False) for variant in grid if variant.rescaling not in named_rescalings]
    scores: dict[Rescaling | None, RescalingScores] = {}
    results = executor(evaluator, jobs)
    for (variant, is_named), (row, lists) in zip(jobs, results, strict=True):
        scores[variant.rescaling] = row
        if is_named:
            tables.named.append(row)
            tables.neighbors[variant.name] = lists
        tick()
    for variant in grid:
        row = scores[variant.rescaling]
        tables.grid.append(replace(row, name=variant.name, ami=None, ari=None))
        if variant.rescaling in named_rescalings:
            tick()
    return tables


class RescalingEvaluator:
    """Evaluates rescaled item embeddings: compares them with labels and with neighbour lists."""

    def __init__(
        self,
        models: Mapping[str, LinearMF],
        codes: Integers | None,
        popularity: Integers,
        random_state: int,
        sampled: Integers | None,
    ) -> None:
        self._models, self._codes, self._random_state = models, codes, random_state
        self._popularity, self._sampled = popularity, sampled
        if codes is not None and sampled is not None:
            self._codes = np.full_like(codes, -1)
            labelled_items = np.random.default_rng(random_state).permutation(
                np.flatnonzero(codes >= 0)
            )
            self._codes[labelled_items[: len(sampled)]] = codes[labelled_items[: len(sampled)]]
        reference_items = next(iter(models.values())).item_embeddings()
        self._k = min(N_NEIGHBORS, len(reference_items) - 1)
        self._reference = self._neighbors(reference_items)

    def evaluate(self, job: tuple[ModelVariant, bool]) -> tuple[RescalingScores, Lists]:
        """Return the scores and the neighbour lists of the item embeddings under a rescaling.

        `job` is a pair (variant, cluster). The boolean `cluster` says whether to cluster the items,
        which is necessary to compute AMI and ARI.
        """
        variant, cluster = job
        D, items = variant.rescaling, variant.embeddings(self._models)
        lists = self._neighbors(items)
        jaccard, error = jaccard_per_query(lists, self._reference), None
        if self._sampled is not None:
            error = float(np.std(jaccard, ddof=1) / np.sqrt(len(lists)))
        scores = RescalingScores(
            name=variant.name,
            formula="unique" if D is None else D.formula,
            objective=variant.objective,
            shrinkage=None if D is None else D.shrinkage,
            spectrum=None if D is None else D.spectrum,
            **self._recovery(items, cluster),
            effective_rank=metrics.effective_rank(items),
            jaccard_at_10=float(jaccard.mean()),
            jaccard_error=error,
            zero_items=int((~items.any(axis=1)).sum()),
        )
        return scores, lists

    def _neighbors(self, items: Items) -> Lists:
        if self._sampled is None:
            return top_k(items, k=self._k).indices
        self_exclusions = one_per_row(self._sampled, len(items))
        return top_k(items[self._sampled], items, self._k, exclude=self_exclusions).indices

    def _recovery(self, items: Items, cluster: bool) -> dict[str, Any]:
        if self._codes is None:
            return {}
        is_labelled = self._codes >= 0
        rows, labels = items[is_labelled], self._codes[is_labelled]
        auc = metrics.pair_auc(rows, labels)
        means = metrics.within_between(rows, labels)
        scores = {
            "pair_auc": auc.value,
            "pair_auc_low": auc.low,
            "pair_auc_high": auc.high,
            "stratified_auc": self._stratified_auc(rows, labels, is_labelled),
            "map_at_r": metrics.map_at_r(rows, labels).value,
            "silhouette": metrics.silhouette(rows, labels).value,
            "within": means.within,
            "between": means.between,
            "contrast": means.contrast,
        }
        if cluster:
            clustering = metrics.clustering_scores(rows, labels, random_state=self._random_state)
            scores |= {"ami": clustering.ami, "ari": clustering.ari}
        return scores

    def _stratified_auc(
        self, rows: Items, labels: Integers, is_labelled: npt.NDArray[np.bool_]
    ) -> float:
        n_strata = N_STRATA if len(rows) >= MIN_ITEMS_FOR_STRATA else 1
        popularity = self._popularity[is_labelled]
        return metrics.stratified_auc(rows, labels, popularity, n_strata=n_strata).value

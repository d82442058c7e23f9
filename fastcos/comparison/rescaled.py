"""The paper's question on any data: what every rescaling of one model says of the same items."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fastcos import metrics, validation
from fastcos.comparison.candidates import EQ2
from fastcos.comparison.evaluator import Over
from fastcos.comparison.result import Items, Lists, Scores
from fastcos.measures.rescaling import Rescaling, rescaling_grid, rescalings
from fastcos.measures.row_transforms import Integers
from fastcos.models.linear_mf import LinearMF
from fastcos.neighbors.search import top_k

N_NEIGHBORS = 10
# pairs are told apart by popularity where there are so many items
_STRATA, _ENOUGH_FOR_STRATA = 10, 50


class Variant(NamedTuple):
    """One set of item embeddings of a model; rescaling None for Eq. 2."""

    name: str
    objective: str
    rescaling: Rescaling | None

    def embeddings(self, models: Mapping[str, LinearMF]) -> Items:
        """The item embeddings (p, k)."""
        return models[self.objective].item_embeddings(self.rescaling)


def named_variants(chosen: Sequence[str | Rescaling] | None) -> list[Variant]:
    """The chosen rescalings of Eq. 1 (default: all that have a name), and Eq. 2."""
    known = {named.name: named.rescaling for named in rescalings()}
    variants = []
    for choice in known if chosen is None else chosen:
        if isinstance(choice, Rescaling):
            variants.append(Variant(choice.name, "dropout", choice))
        else:
            name = validation.as_choice("rescalings", choice, known)
            variants.append(Variant(name, "dropout", known[name]))
    return [*variants, Variant(EQ2, "weight_decay", None)]


def grid_variants() -> list[Variant]:
    """Eq. 1 over a grid of exponents."""
    return [Variant(f"grid {D.formula}", "dropout", D) for D in rescaling_grid()]


class Tables(NamedTuple):
    """Scores of the named rescalings and of the grid, and the neighbours under the named ones."""

    named: list[Scores]
    grid: list[Scores]
    neighbors: dict[str, Lists]


def score_rescalings(
    models: Mapping[str, LinearMF],
    named: Iterable[Variant],
    grid: Iterable[Variant],
    codes: Integers | None,
    popularity: Integers,
    seed: int,
    tick: Callable[[], None],
    over: Over,
) -> Tables:
    """Score the cosines of every variant; one that is on the grid too is judged once."""
    tables = Tables([], [], {})
    cells = [_Cell(variant, cluster=True) for variant in named]
    of_named = {cell.variant.rescaling for cell in cells}
    every = list(grid)
    cells += [_Cell(one, cluster=False) for one in every if one.rescaling not in of_named]
    judged: dict[Rescaling | None, Scores] = {}
    for cell, (row, lists) in zip(
        cells, over(_Judge(models, codes, popularity, seed), cells), strict=True
    ):
        judged[cell.variant.rescaling] = row
        if cell.cluster:
            tables.named.append(row)
            tables.neighbors[cell.variant.name] = lists
        tick()
    for variant in every:
        row = judged[variant.rescaling]
        tables.grid.append(row._replace(name=variant.name, ami=None, ari=None))
        if variant.rescaling in of_named:
            tick()
    return tables


class _Cell(NamedTuple):
    """A variant to score; whether its clusters are sought too."""

    variant: Variant
    cluster: bool


class _Judge:
    """Scores embeddings of the same items against the same labels and reference neighbours."""

    def __init__(
        self,
        models: Mapping[str, LinearMF],
        codes: Integers | None,
        popularity: Integers,
        seed: int,
    ) -> None:
        self._models, self._codes, self._seed = models, codes, seed
        self._popularity = popularity
        reference_items = next(iter(models.values())).item_embeddings()
        self._k = min(N_NEIGHBORS, len(reference_items) - 1)
        self._reference = self._neighbors(reference_items)

    def answer(self, cell: _Cell) -> tuple[Scores, Lists]:
        """The scores and the neighbour lists of one variant."""
        variant, cluster = cell
        items = variant.embeddings(self._models)
        return self._score(variant, items, cluster=cluster)

    def _neighbors(self, items: Items) -> Lists:
        return top_k(items, k=self._k).indices

    def _score(self, variant: Variant, items: Items, *, cluster: bool) -> tuple[Scores, Lists]:
        lists = self._neighbors(items)
        free = variant.rescaling
        scores = Scores(
            name=variant.name,
            formula="unique" if free is None else free.formula,
            objective=variant.objective,
            shrinkage=None if free is None else free.shrinkage,
            spectrum=None if free is None else free.spectrum,
            **self._recovery(items, cluster),
            effective_rank=metrics.effective_rank(items),
            jaccard_at_10=metrics.jaccard_at_k(lists, self._reference),
            zero_items=int((~items.any(axis=1)).sum()),
        )
        return scores, lists

    def _recovery(self, items: Items, cluster: bool) -> dict[str, float | None]:
        if self._codes is None:
            return dict.fromkeys(_RECOVERY)
        kept = self._codes >= 0
        rows, labels = items[kept], self._codes[kept]
        auc = metrics.pair_auc(rows, labels)
        found = (
            metrics.clustering_scores(rows, labels, random_state=self._seed) if cluster else None
        )
        means = metrics.within_between(rows, labels)
        n_strata = _STRATA if len(rows) >= _ENOUGH_FOR_STRATA else 1
        of_strata = metrics.stratified_auc(rows, labels, self._popularity[kept], n_strata=n_strata)
        values = (
            *(auc.value, auc.low, auc.high, of_strata.value),
            metrics.map_at_r(rows, labels).value,
            *((None, None) if found is None else (found.ami, found.ari)),
            metrics.silhouette(rows, labels).value,
            *(means.within, means.between, means.contrast),
        )
        return dict(zip(_RECOVERY, values, strict=True))


_RECOVERY = Scores._fields[Scores._fields.index("pair_auc") : Scores._fields.index("contrast") + 1]

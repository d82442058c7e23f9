"""How other embeddings of the same items differ from the given ones, on samples of items."""

import numpy as np
import numpy.typing as npt

from fastcos import metrics, validation
from fastcos.auditing import certificates, variants
from fastcos.auditing.report import Comparison
from fastcos.auditing.robustness import standard_error
from fastcos.metrics.list_overlap import jaccard_per_query
from fastcos.neighbors.index import SimilarityIndex
from fastcos.storage import memmap

Integers = npt.NDArray[np.int64]


class Judge:
    """Compares embeddings with the given ones.

    Attributes
    ----------
    lists : ndarray (m, k), int64
        The k nearest of the sampled rows in the given embeddings.
    """

    def __init__(
        self, side: certificates.Side, lists: Integers, labelled: "Labelled | None"
    ) -> None:
        """Keep the sampled side, its lists, and the labelled rows, if there are any."""
        self._side, self.lists, self._labelled = side, lists, labelled

    def compare(self, variant: variants.Variant, n_threads: int | None = None) -> Comparison:
        """Return how one variant differs."""
        side, lists = self._side, self.lists
        own = memmap.take_rows("items", side.items, side.rows)
        if variant.mapped is not None:
            index = SimilarityIndex(variants.VariantCosine(variant), n_threads=n_threads)
            found = certificates.nearest_of(index.fit(side.items), side, lists.shape[1], n_threads)
            lists = found.indices
        auc = None
        if self._labelled is not None:
            rows, labels = self._labelled
            some = memmap.take_rows("items", side.items, rows)
            auc = metrics.pair_auc(variant.rows(some), labels, exact=False).value
        shared = jaccard_per_query(lists, self.lists)
        return Comparison(
            name=variant.name,
            meaning=variant.meaning,
            condition=variant.condition,
            jaccard=float(shared.mean()),
            overlap=metrics.rank_biased_overlap(lists, self.lists).value,
            jaccard_error=standard_error(shared, len(side.items)),
            rsa=_correlation(variant.rows(own), own),
            hubness=metrics.hubness(lists, n_items=len(side.items)).skewness,
            auc=auc,
        )


Labelled = tuple[Integers, Integers]  # rows with a label, and their labels


def _correlation(first: validation.Rows, second: validation.Rows) -> float | None:
    """Correlation over pairs of rows of the cosines in two embeddings."""
    try:
        return metrics.rsa(first, second).value
    except ValueError:
        return None

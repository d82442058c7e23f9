"""Example items of a comparison: their neighbours and scores under every candidate."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.comparison.candidates import USER_ITEM, Candidate, Embeddings
from fastcos.linalg.csr import one_per_row
from fastcos.metrics.label_permutation import number_within_label
from fastcos.parallel import memmap
from fastcos.search.top_k import top_k
from fastcos.similarity.row_transforms import pair_scores
from fastcos.validation import Floats, Integers

# Number of neighbours of an item, as in the examples of the paper.
_K = 10


class Example(NamedTuple):
    """The neighbours and scores of the example items under one candidate.

    Attributes
    ----------
    neighbors : ndarray (m, k), int64
        The items that are nearest to each example item, by descending score.
    scores : ndarray (m, k), float64
        Scores of the neighbours.
    ranks : ndarray (m, m), uint8
        For each pair of example items, the share of all pairs of example items that have a lower
        score, multiplied by 255.
    """

    neighbors: Integers
    scores: Floats
    ranks: npt.NDArray[np.uint8]


def choose_examples(codes: Integers | None, popularity: Integers, n: int) -> Integers:
    """Choose n popular items, about the same number per label.

    The items are sorted by label, and within a label by descending popularity.
    """
    order = np.argsort(-popularity, kind="stable")
    if codes is None:
        return order[:n]
    order = order[codes[order] >= 0]
    by_label = order[np.argsort(codes[order], kind="stable")]
    first = np.argsort(number_within_label(codes[by_label]), kind="stable")
    return by_label[np.sort(first[:n])]


def find_example(candidate: Candidate, embeddings: Embeddings, items: Integers) -> Example | None:
    """Return neighbours and ranks of the example items, or None if the candidate compares users."""
    if candidate.compares_users or candidate.name in USER_ITEM:
        return None
    rows = candidate.rows(embeddings)
    measure = candidate.make(embeddings)
    n, m = len(rows), len(items)
    k = min(_K, n - 1)
    queries, self_exclusions = memmap.take_rows("vectors", rows, items), one_per_row(items, n)
    neighbors = top_k(queries, rows, k, measure=measure, exclude=self_exclusions).indices
    partners = np.hstack([neighbors, np.tile(items, (m, 1))])
    pairs = np.column_stack([np.repeat(items, k + m), partners.ravel()])
    scores = pair_scores(measure.fit(rows), rows, pairs).reshape(m, k + m)
    return Example(neighbors, scores[:, :k].astype(np.float64), _ranks(scores[:, k:]))


def _ranks(scores: Floats) -> npt.NDArray[np.uint8]:
    """Return for each pair the share of pairs of different items with a lower score, times 255.

    The entries of the diagonal are 255.
    """
    ascending = np.sort(scores[~np.eye(len(scores), dtype=bool)])
    low, high = (np.searchsorted(ascending, scores, side) for side in ("left", "right"))
    ranks = np.round((low + high) * (255 / (2 * len(ascending)))).clip(0, 255).astype(np.uint8)
    np.fill_diagonal(ranks, 255)
    return ranks

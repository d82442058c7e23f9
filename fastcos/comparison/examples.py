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
    """The neighbours of example items under one candidate, and the scores between example items.

    Attributes
    ----------
    neighbors : ndarray (m, k), int64
        The items that are nearest to each example item, in descending order of the score.
    scores : ndarray (m, k), float64
        Scores of the neighbours.
    ranks : ndarray (m, m), uint8
        One rank for each pair of example items, from 0 (low) to 255 (high). All pairs of two
        different example items are ranked by their scores.
    """

    neighbors: Integers
    scores: Floats
    ranks: npt.NDArray[np.uint8]


def choose_examples(codes: Integers | None, popularity: Integers, n: int) -> Integers:
    """Return n popular items as examples, with about the same number of items for each label.

    The examples are sorted by label; examples with the same label are sorted by descending
    popularity. Without labels (`codes` is None), the n most popular items are returned.
    """
    order = np.argsort(-popularity, kind="stable")
    if codes is None:
        return order[:n]
    order = order[codes[order] >= 0]
    by_label = order[np.argsort(codes[order], kind="stable")]
    first = np.argsort(number_within_label(codes[by_label]), kind="stable")
    return by_label[np.sort(first[:n])]


def find_example(candidate: Candidate, embeddings: Embeddings, items: Integers) -> Example | None:
    """Return the neighbours and the scores of the example items.

    If the candidate does not compare items with each other, the function returns None.
    """
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
    """Return, for each score, its rank (0 to 255) among the scores of pairs of different items.

    Equal scores have equal ranks. The entries of the diagonal, where an item is compared with
    itself, are 255.
    """
    ascending = np.sort(scores[~np.eye(len(scores), dtype=bool)])
    low, high = (np.searchsorted(ascending, scores, side) for side in ("left", "right"))
    ranks = np.round((low + high) * (255 / (2 * len(ascending)))).clip(0, 255).astype(np.uint8)
    np.fill_diagonal(ranks, 255)
    return ranks

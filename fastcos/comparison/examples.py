"""Example items of a comparison: their neighbours and scores by every candidate, for its page."""

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

# neighbours of an item, as in the paper's examples
_K = 10


class Example(NamedTuple):
    """What one candidate says about the example items.

    Attributes
    ----------
    neighbors : ndarray (m, k), int64
        The nearest of all items, by descending score.
    scores : ndarray (m, k), float64
    ranks : ndarray (m, m), uint8
        Of each pair of example items: the share of such pairs with a lower score, from 0 to 255.
    """

    neighbors: Integers
    scores: Floats
    ranks: npt.NDArray[np.uint8]


def choose_examples(codes: Integers | None, popularity: Integers, n: int) -> Integers:
    """The n most popular items, about equally many of each label; by label, then popularity."""
    order = np.argsort(-popularity, kind="stable")
    if codes is None:
        return order[:n]
    order = order[codes[order] >= 0]
    by_label = order[np.argsort(codes[order], kind="stable")]
    first = np.argsort(number_within_label(codes[by_label]), kind="stable")
    return by_label[np.sort(first[:n])]


def find_example(candidate: Candidate, embeddings: Embeddings, items: Integers) -> Example | None:
    """Neighbours and ranks of the example items; None where the candidate compares users."""
    if candidate.compares_users or candidate.name in USER_ITEM:
        return None
    rows = candidate.rows(embeddings)
    measure = candidate.make(embeddings)
    n, m = len(rows), len(items)
    k = min(_K, n - 1)
    queries, themselves = memmap.take_rows("vectors", rows, items), one_per_row(items, n)
    neighbors = top_k(queries, rows, k, measure=measure, exclude=themselves).indices
    others = np.hstack([neighbors, np.tile(items, (m, 1))])
    pairs = np.column_stack([np.repeat(items, k + m), others.ravel()])
    scores = pair_scores(measure.fit(rows), rows, pairs).reshape(m, k + m)
    return Example(neighbors, scores[:, :k].astype(np.float64), _ranks(scores[:, k:]))


def _ranks(scores: Floats) -> npt.NDArray[np.uint8]:
    """Share of the pairs of different items below each score, as 0 to 255; 255 on the diagonal."""
    apart = np.sort(scores[~np.eye(len(scores), dtype=bool)])
    middle = np.searchsorted(apart, scores, "left") + np.searchsorted(apart, scores, "right")
    ranks = np.round(middle * (255 / (2 * len(apart)))).clip(0, 255).astype(np.uint8)
    np.fill_diagonal(ranks, 255)
    return ranks

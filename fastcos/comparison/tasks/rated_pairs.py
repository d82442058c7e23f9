"""Agreement with people's ratings of pairs: Spearman's correlation."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastcos.comparison.bootstrap import ChanceTest, Evaluation
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.comparison.scoring import pair_scores
from fastcos.measures.row_transforms import Floats, Integers
from fastcos.storage import memmap


class Ranks(NamedTuple):
    """Values as groups of equal ones, in ascending order.

    Attributes
    ----------
    groups : ndarray (n,), int64
        The group of every value.
    n_groups : int
    """

    groups: Integers
    n_groups: int


def ranks_of(values: Floats) -> Ranks:
    """Group the values."""
    distinct, groups = np.unique(values, return_inverse=True)
    return Ranks(groups.astype(np.int64), len(distinct))


def weighted_spearman(first: Ranks, second: Ranks, weights: Floats) -> float:
    """Spearman's correlation where value i occurs weights[i] times, as in a bootstrap sample.

    Equal values share their mean rank. 0 if one side is constant.
    """
    x, y = (_mean_ranks(side, weights) for side in (first, second))
    total = weights.sum()
    x, y = x - weights @ x / total, y - weights @ y / total
    scale = np.sqrt((weights @ (x * x)) * (weights @ (y * y)))
    return float(weights @ (x * y) / scale) if scale > 0 else 0.0


def _mean_ranks(side: Ranks, weights: Floats) -> Floats:
    sizes = np.bincount(side.groups, weights, side.n_groups)
    ranks: Floats = (np.cumsum(sizes) - sizes / 2)[side.groups]
    return ranks


class PairTask:
    """Score rated pairs of rows, and correlate the scores with the ratings."""

    def __init__(self, pairs: Integers, ratings: Floats) -> None:
        self._pairs, self._ratings = pairs, ranks_of(ratings)

    def score(self, candidate: Candidate, embeddings: Embeddings) -> Ranks:
        """The ranks of a measure's scores of the pairs; fitted to all rows."""
        rows = candidate.rows(embeddings)
        measure = candidate.make(embeddings).fit(rows)
        used, numbers = np.unique(self._pairs, return_inverse=True)
        some = memmap.take_rows("vectors", rows, used)
        return ranks_of(pair_scores(measure, some, numbers.reshape(self._pairs.shape)))

    def evaluation(self, scores: Sequence[Ranks]) -> Evaluation:
        """Ranked by Spearman's correlation; the best must exceed 0."""

        def estimate(weights: Floats, some: Sequence[int]) -> Floats:
            return np.array(
                [[weighted_spearman(self._ratings, scores[c], w) for c in some] for w in weights]
            )

        return Evaluation(
            task="how similar people rate pairs",
            unit="pairs",
            n_units=len(self._pairs),
            score="Spearman",
            estimate=estimate,
            tests=(
                ChanceTest(
                    "Spearman", estimate, lambda weights: np.zeros(len(weights)), "chance has"
                ),
            ),
            other_scores={},
            failure="No measure follows these ratings",
        )

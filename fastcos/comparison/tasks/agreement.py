"""How the scores of a measure agree with people's: Spearman's correlation over pairs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastcos.comparison.bootstrap import Question, Test
from fastcos.comparison.candidates import Embeddings
from fastcos.comparison.entrants import Entrant
from fastcos.comparison.scoring import pair_scores
from fastcos.measures.row_transforms import Floats, Integers
from fastcos.storage import memmap


class Ranks(NamedTuple):
    """Values as groups of equal ones, by rising value.

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
    """Spearman's correlation where value i stands weights[i] times, as in a bootstrap sample.

    Equal values share their mean rank. 0 where one side does not vary.
    """
    x, y = (_mean_ranks(side, weights) for side in (first, second))
    total = weights.sum()
    x, y = x - weights @ x / total, y - weights @ y / total
    spread = np.sqrt((weights @ (x * x)) * (weights @ (y * y)))
    return float(weights @ (x * y) / spread) if spread > 0 else 0.0


def _mean_ranks(side: Ranks, weights: Floats) -> Floats:
    sizes = np.bincount(side.groups, weights, side.n_groups)
    ranks: Floats = (np.cumsum(sizes) - sizes / 2)[side.groups]
    return ranks


class PairQuestion:
    """Asks how alike pairs of rows are, and compares with people's ratings."""

    def __init__(self, pairs: Integers, ratings: Floats) -> None:
        self._pairs, self._ratings = pairs, ranks_of(ratings)

    def answer(self, entrant: Entrant, embeddings: Embeddings) -> Ranks:
        """The ranks of a measure's scores of the pairs; fitted to all rows."""
        rows = entrant.rows(embeddings)
        measure = entrant.measure(embeddings).fit(rows)
        used, numbers = np.unique(self._pairs, return_inverse=True)
        some = memmap.take_rows("vectors", rows, used)
        return ranks_of(pair_scores(measure, some, numbers.reshape(self._pairs.shape)))

    def question(self, answers: Sequence[Ranks]) -> Question:
        """Which measure's scores follow the ratings; one must do so at all."""

        def estimate(weights: Floats, some: Sequence[int]) -> Floats:
            return np.array(
                [[weighted_spearman(self._ratings, answers[c], w) for c in some] for w in weights]
            )

        return Question(
            question="how alike people find pairs",
            unit="pairs",
            n_units=len(self._pairs),
            score="Spearman",
            estimate=estimate,
            tests=(
                Test("Spearman", estimate, lambda weights: np.zeros(len(weights)), "chance has"),
            ),
            others={},
            failure="No measure follows these ratings",
        )

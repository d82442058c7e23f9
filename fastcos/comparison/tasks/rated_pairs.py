"""Agreement with people's ratings of pairs: Spearman's correlation."""

from collections.abc import Sequence

import numpy as np

from fastcos.comparison.bootstrap import Evaluation, mean_estimate
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.similarity.row_transforms import pair_scores
from fastcos.validation import Floats, Integers


def tie_groups(values: Floats) -> Integers:
    """The position of every value among the distinct values, in ascending order."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def weighted_spearman(first: Integers, second: Integers, weights: Floats) -> float:
    """Spearman's correlation of two sides by their tie groups, value i repeated weights[i] times.

    Equal values share their mean rank. 0 if one side is constant.
    """
    x, y = (_mean_ranks(groups, weights) for groups in (first, second))
    total = weights.sum()
    x, y = x - weights @ x / total, y - weights @ y / total
    scale = np.sqrt((weights @ (x * x)) * (weights @ (y * y)))
    return float(weights @ (x * y) / scale) if scale > 0 else 0.0


def _mean_ranks(groups: Integers, weights: Floats) -> Floats:
    sizes = np.bincount(groups, weights)
    return (np.cumsum(sizes) - sizes / 2)[groups]


class PairTask:
    """Score rated pairs of rows, and correlate the scores with the ratings."""

    def __init__(self, pairs: Integers, ratings: Floats) -> None:
        self._pairs, self._ratings = pairs, tie_groups(ratings)

    def score(self, candidate: Candidate, embeddings: Embeddings) -> Integers:
        """The scores of the pairs by a measure fitted to all rows, as tie groups."""
        rows = candidate.rows(embeddings)
        measure = candidate.make(embeddings).fit(rows)
        return tie_groups(pair_scores(measure, rows, self._pairs))

    def evaluation(self, scores: Sequence[Integers]) -> Evaluation:
        """Ranked by Spearman's correlation; the best must exceed 0."""

        def estimate(weights: Floats, among: Sequence[int]) -> Floats:
            return np.array(
                [[weighted_spearman(self._ratings, scores[c], w) for c in among] for w in weights]
            )

        return Evaluation(
            task="how similar people rate pairs",
            unit="pairs",
            n_units=len(self._pairs),
            score="Spearman",
            estimate=estimate,
            failure="No measure follows these ratings",
            chance=mean_estimate(np.zeros((1, len(self._pairs)))),
        )

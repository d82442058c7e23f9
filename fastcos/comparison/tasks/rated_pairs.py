"""The task to predict people's similarity ratings of pairs, scored by Spearman's correlation."""

from collections.abc import Sequence

import numpy as np

from fastcos.comparison.bootstrap import Evaluation, mean_estimate
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.similarity.row_transforms import pair_scores
from fastcos.validation import Floats, Integers


def tie_groups(values: Floats) -> Integers:
    """Return the tie group of each value: its rank among the distinct values, counted from 0."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def weighted_spearman(first: Integers, second: Integers, weights: Floats) -> float:
    """Return the weighted Spearman correlation of two vectors, each given by its tie groups.

    Entry i of each vector has the weight ``weights[i]``. Entries in the same tie group have the
    same rank: the mean of the places that they occupy in ascending order. If one of the two vectors
    is constant, the correlation is 0.
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
    """Task in which a candidate scores pairs of rows, and the scores are compared with ratings."""

    def __init__(self, pairs: Integers, ratings: Floats) -> None:
        self._pairs, self._ratings = pairs, tie_groups(ratings)

    def score(self, candidate: Candidate, embeddings: Embeddings) -> Integers:
        """Score all pairs by the measure of a candidate; return the tie groups of the scores."""
        rows = candidate.rows(embeddings)
        measure = candidate.make(embeddings).fit(rows)
        return tie_groups(pair_scores(measure, rows, self._pairs))

    def evaluation(self, scores: Sequence[Integers]) -> Evaluation:
        """Return the evaluation of all candidates on this task, ranked by Spearman's correlation.

        A candidate is recommended only if the correlation of the best candidate is significantly
        above 0.
        """

        def estimate(weights: Floats, numbers: Sequence[int]) -> Floats:
            return np.array(
                [[weighted_spearman(self._ratings, scores[c], w) for c in numbers] for w in weights]
            )

        return Evaluation(
            task="how similar people rate pairs",
            unit="pairs",
            n_units=len(self._pairs),
            score="Spearman",
            estimate=estimate,
            failure="No measure agrees with these ratings better than by chance",
            chance=mean_estimate(np.zeros((1, len(self._pairs)))),
        )

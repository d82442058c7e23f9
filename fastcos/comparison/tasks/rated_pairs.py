"""The task of predicting people's similarity ratings, scored by Spearman's correlation."""

from collections.abc import Sequence

import numpy as np

from fastcos.comparison.bootstrap import Evaluation, mean_estimate
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.similarity.row_transforms import pair_scores
from fastcos.validation import Floats, Integers

# Ranks are computed for about MAX_ENTRIES weights at a time, so that the temporary arrays stay in
# the cache.
MAX_ENTRIES = 2**15


def tie_groups(values: Floats) -> Integers:
    """Return the tie group of each value: the value's index among the sorted distinct values."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def weighted_spearman(ratings: Integers, scores: Sequence[Integers], weights: Floats) -> Floats:
    """Return the weighted Spearman correlations of the ratings with several vectors of scores.

    Each row of ``weights`` contains one weight per pair. The result has one row per row of
    ``weights``, and one column per vector of scores. ``ratings`` (n,) contains the tie group of
    each rating, and each vector (n,) in ``scores`` contains the tie group of each score. Pairs in
    the same tie group have the same rank, which is the mean of the places that they occupy in
    ascending order. If the ratings or the scores are constant, the correlation is 0.
    """
    x = _centred_ranks(ratings, weights)
    return np.stack([_correlations(x, _centred_ranks(y, weights), weights) for y in scores], axis=1)


def _centred_ranks(groups: Integers, weights: Floats) -> Floats:
    """Return the ranks for each row of weights, centred so that their weighted mean is 0."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(groups))[:-1]])
    sizes = np.add.reduceat(np.take(weights, np.argsort(groups), axis=1), starts, axis=1)
    ranks = np.take(np.cumsum(sizes, axis=1) - sizes / 2, groups, axis=1)
    return ranks - ((weights * ranks).sum(axis=1) / weights.sum(axis=1))[:, None]


def _correlations(x: Floats, y: Floats, weights: Floats) -> Floats:
    covariances = (weights * x * y).sum(axis=1)
    scales = np.sqrt((weights * x * x).sum(axis=1) * (weights * y * y).sum(axis=1))
    return np.divide(covariances, scales, out=np.zeros(len(weights)), where=scales > 0)


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

        No candidate is recommended unless the correlation of the best candidate is significantly
        above 0.
        """

        def estimate(weights: Floats, numbers: Sequence[int]) -> Floats:
            chosen = [scores[c] for c in numbers]
            n_blocks = min(len(weights), -(-weights.size // MAX_ENTRIES))
            blocks = np.array_split(weights, n_blocks)
            return np.concatenate([weighted_spearman(self._ratings, chosen, w) for w in blocks])

        return Evaluation(
            task="how similar people rate pairs",
            unit="pairs",
            n_units=len(self._pairs),
            score="Spearman",
            estimate=estimate,
            failure="No measure agrees with these ratings better than by chance",
            chance=mean_estimate(np.zeros((1, len(self._pairs)))),
        )

"""Label recovery: AUC, average precision, precision@10 and a majority vote per labelled item.

Recovery has two meanings. Globally, pairs of one label score higher than pairs of two: AUC.
Locally, the nearest neighbours share the label: precision@10. Labels of several groups each may be
recovered locally alone. Both tests weight all classes equally, since a vote or a mean over items
would only speak of the commonest class.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.comparison.bootstrap import (
    ChanceTest,
    Evaluation,
    balanced_estimate,
    mean_estimate,
)
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.comparison.scoring import raw_score_blocks
from fastcos.kernels import label_ranks
from fastcos.metrics import uncompiled
from fastcos.metrics.labelled import as_shared_labels
from fastcos.validation import Floats, Integers

# query items: the standard error of a mean of scores from 0 to 1 is at most 0.016
N_QUERIES = 1000
# nearest items that vote for a label, as many as the neighbour lists of the paper
N_VOTERS = 10
# groups of columns for each voter: so that about one column in twenty more than the voters is kept
N_GROUPS = 20


class LabelScores(NamedTuple):
    """Scores of the ranked list of each query item, (n,) each.

    Attributes
    ----------
    map_at_r : ndarray, float64
        Average precision at R; ``metrics.map_at_r`` is its mean.
    auc : ndarray, float64
        P(an item of its label scores more than one of another) + half of P(equal).
    precision : ndarray, float64
        Share of the ten nearest that have its label; of equally near ones each counts in part.
    accuracy : ndarray, float64
        1 if the ten nearest vote for its label, else 0.
    """

    map_at_r: Floats
    auc: Floats
    precision: Floats
    accuracy: Floats


class LabelTask:
    """Rank all labelled items, or n_items of them, for some labelled query items.

    Attributes
    ----------
    queries : ndarray (n,), int64
        Item numbers in ascending order; each shares its label with another item.
    """

    def __init__(
        self,
        codes: Integers,
        present: npt.NDArray[np.bool_],
        random: np.random.Generator,
        n_items: int | None = None,
    ) -> None:
        self._pool = np.flatnonzero((codes >= 0) & present)
        if n_items is not None and n_items < len(self._pool):
            self._pool = np.sort(random.choice(self._pool, n_items, replace=False))
        self._codes = as_shared_labels("labels", codes[self._pool])
        self._sizes = validation.read_only(np.bincount(self._codes).astype(np.int64))
        able = np.flatnonzero(self._sizes[self._codes] > 1)
        places = np.sort(random.permutation(able)[:N_QUERIES])
        self._places = validation.read_only(places.astype(np.int64))
        self.queries = self._pool[places]

    def score(self, candidate: Candidate, embeddings: Embeddings) -> LabelScores:
        """Score a measure, fitted to all items, on the ranked lists of the queries."""
        rows = candidate.rows(embeddings)
        measure = candidate.make(embeddings).fit(rows)
        n = len(self.queries)
        auc, average = parallel.unfilled(n, np.float64), parallel.unfilled(n, np.float64)
        voted, precision = parallel.unfilled(n, np.int64), np.empty(n)
        k = min(N_VOTERS, len(self._pool) - 1)
        for part, scores in raw_score_blocks(measure, rows, self.queries, self._pool):
            owns = self._places[part]
            if uncompiled.takes(label_ranks.score_label_ranks, *scores.shape):
                auc[part], average[part], voted[part] = uncompiled.score_label_ranks(
                    scores, owns, self._codes, self._sizes, k
                )
            else:
                parallel.run(
                    label_ranks.score_label_ranks, parallel.row_blocks(len(scores), 4),
                    validation.read_only(scores), owns, self._codes, self._sizes, k, auc[part],
                    average[part], voted[part],
                )  # fmt: skip
            precision[part] = _precisions(scores, self._codes, owns, k)
        right = voted == self._codes[self._places]
        return LabelScores(average, auc, precision, right.astype(np.float64))

    def evaluation(self, scores: Sequence[LabelScores]) -> Evaluation:
        """Ranked by MAP@R; the best must exceed chance among its ten nearest or in its AUC."""
        values = LabelScores(*(np.stack(score) for score in zip(*scores, strict=True)))
        map_at_r, auc, precision, accuracy = map(mean_estimate, values)
        _, classes = np.unique(self._codes[self._places], return_inverse=True)
        # the share of its label among all other items
        base = (self._sizes[self._codes[self._places]] - 1) / (len(self._pool) - 1)
        return Evaluation(
            task="which items have the same label",
            unit="items",
            n_units=len(self.queries),
            score="MAP@R",
            estimate=map_at_r,
            tests=(
                ChanceTest(
                    "precision@10 per class",
                    balanced_estimate(values.precision, classes),
                    balanced_estimate(base[None], classes),
                    "chance has",
                    "locally",
                ),
                ChanceTest(
                    "AUC per class",
                    balanced_estimate(values.auc, classes),
                    balanced_estimate(np.full((1, len(base)), 0.5), classes),
                    "chance has",
                    "globally",
                ),
            ),
            other_scores={"AUC": auc, "P@10": precision, "accuracy": accuracy},
            failure="No measure recovers these labels",
            success="The labels are recovered better than by chance",
        )


def _precisions(scores: Floats, codes: Integers, owns: Integers, k: int) -> Floats:
    """Share of own's label among the k best columns of scores (b, m), own left out.

    Columns that tie at the k-th score share the places that are left. Scores of own are
    overwritten.
    """
    n, m = scores.shape
    scores[np.arange(n), owns] = -np.inf
    # the k-th of the maxima of groups of columns is a lower bound of the k-th score; to partition
    # all columns took 5 times as long
    n_groups = min(m, N_GROUPS * k)
    grouped = scores[:, : m - m % n_groups].reshape(n, -1, n_groups).max(axis=1)
    bounds = np.partition(grouped, n_groups - k, axis=1)[:, n_groups - k]
    found = np.flatnonzero(scores >= bounds[:, np.newaxis])  # 25 times as fast as nonzero
    (query, column), candidates = np.divmod(found, m), scores.ravel()[found]
    order, counts = np.lexsort((-candidates, query)), np.bincount(query, minlength=n)
    least = candidates[order][np.cumsum(counts) - counts + k - 1][query]
    same, above, equal = (
        codes[column] == codes[owns][query],
        candidates > least,
        candidates == least,
    )

    def count(flags: npt.NDArray[np.bool_]) -> Integers:
        return np.bincount(query, flags, n)

    tied = (k - count(above)) * count(equal & same) / count(equal)
    shares: Floats = (count(above & same) + tied) / k
    return shares

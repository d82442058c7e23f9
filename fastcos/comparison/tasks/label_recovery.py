"""Label recovery: an AUC, an average precision and a majority vote per labelled item."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.comparison.bootstrap import ChanceTest, Evaluation, mean_estimate
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.comparison.scoring import raw_score_blocks
from fastcos.kernels import label_ranks
from fastcos.measures.row_transforms import Floats, Integers
from fastcos.metrics.labelled import as_shared_labels

# query items: the standard error of a mean of scores from 0 to 1 is at most 0.016
N_QUERIES = 1000
# nearest items that vote for a label, as many as the neighbour lists of the paper
N_VOTERS = 10


class LabelScores(NamedTuple):
    """Scores of the ranked list of each query item, (n,) each.

    Attributes
    ----------
    map_at_r : ndarray, float64
        Average precision at R; ``metrics.map_at_r`` is its mean.
    auc : ndarray, float64
        P(an item of its label scores more than one of another) + half of P(equal).
    accuracy : ndarray, float64
        1 if the ten nearest vote for its label, else 0.
    """

    map_at_r: Floats
    auc: Floats
    accuracy: Floats


class LabelTask:
    """Rank all labelled items for some labelled query items.

    Attributes
    ----------
    queries : ndarray (n,), int64
        Item numbers in ascending order; each shares its label with another item.
    """

    def __init__(
        self, codes: Integers, present: npt.NDArray[np.bool_], random: np.random.Generator
    ) -> None:
        self._pool = np.flatnonzero((codes >= 0) & present)
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
        auc, precision = parallel.unfilled(n, np.float64), parallel.unfilled(n, np.float64)
        voted = parallel.unfilled(n, np.int64)
        k = min(N_VOTERS, len(self._pool) - 1)
        for part, scores in raw_score_blocks(measure, rows, self.queries, self._pool):
            parallel.run(
                label_ranks.score_label_ranks, parallel.row_blocks(len(scores), 4),
                validation.read_only(scores), self._places[part], self._codes, self._sizes, k,
                auc[part], precision[part], voted[part],
            )  # fmt: skip
        right = voted == self._codes[self._places]
        return LabelScores(precision, auc, right.astype(np.float64))

    def evaluation(self, scores: Sequence[LabelScores]) -> Evaluation:
        """Ranked by MAP@R; the best must exceed chance in its votes and in its AUC."""
        map_at_r, auc, accuracy = (mean_estimate(np.stack(s)) for s in zip(*scores, strict=True))
        own = self._codes[self._places]
        most_common = (own == self._sizes.argmax()).astype(np.float64)
        return Evaluation(
            task="which items have the same label",
            unit="items",
            n_units=len(self.queries),
            score="MAP@R",
            estimate=map_at_r,
            tests=(
                ChanceTest(
                    "accuracy of ten votes",
                    accuracy,
                    most_common,
                    "the commonest label is right for",
                ),
                ChanceTest("AUC", auc, np.full(len(own), 0.5), "chance has"),
            ),
            other_scores={"AUC": auc, "accuracy": accuracy},
            failure="No measure recovers these labels",
        )

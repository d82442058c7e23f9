"""How a measure recovers labels: one AUC, one average precision and one vote per item."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.comparison.bootstrap import Question, Test, mean_chance, mean_estimate
from fastcos.comparison.candidates import Embeddings
from fastcos.comparison.entrants import Entrant
from fastcos.comparison.scoring import key_blocks
from fastcos.kernels import label_ranks
from fastcos.measures.row_transforms import Floats, Integers
from fastcos.metrics import checks

N_ASKED = 1000
N_VOTERS = 10


class LabelScores(NamedTuple):
    """What the list of every asked item says of its label, (n,) each.

    Attributes
    ----------
    map_at_r : ndarray, float64
        Average precision at R, as ``metrics.map_at_r`` averages it.
    auc : ndarray, float64
        P(an item of its label scores more than one of another) + half of P(equal).
    accuracy : ndarray, float64
        1 where the ten nearest vote for its label, else 0.
    """

    map_at_r: Floats
    auc: Floats
    accuracy: Floats


class LabelQuestion:
    """Asks some labelled items for their label, among all the labelled.

    Attributes
    ----------
    asked : ndarray (n,), int64
        Their numbers, rising; only items whose label another one shares.
    """

    def __init__(
        self, codes: Integers, present: npt.NDArray[np.bool_], random: np.random.Generator
    ) -> None:
        self._pool = np.flatnonzero((codes >= 0) & present)
        self._codes = checks.as_shared_labels("labels", codes[self._pool])
        self._sizes = validation.read_only(np.bincount(self._codes).astype(np.int64))
        able = np.flatnonzero(self._sizes[self._codes] > 1)
        places = np.sort(random.permutation(able)[:N_ASKED])
        self._places = validation.read_only(places.astype(np.int64))
        self.asked = self._pool[places]

    def answer(self, entrant: Entrant, embeddings: Embeddings) -> LabelScores:
        """Score a measure, fitted to all items, on the lists of the asked ones."""
        rows = entrant.rows(embeddings)
        measure = entrant.measure(embeddings).fit(rows)
        n = len(self.asked)
        auc, precision = parallel.unfilled(n, np.float64), parallel.unfilled(n, np.float64)
        voted = parallel.unfilled(n, np.int64)
        k = min(N_VOTERS, len(self._pool) - 1)
        for part, keys in key_blocks(measure, rows, self.asked, self._pool):
            parallel.run(
                label_ranks.score_label_ranks, parallel.row_blocks(len(keys), 4),
                validation.read_only(keys), self._places[part], self._codes, self._sizes, k,
                auc[part], precision[part], voted[part],
            )  # fmt: skip
        right = voted == self._codes[self._places]
        return LabelScores(precision, auc, right.astype(np.float64))

    def question(self, answers: Sequence[LabelScores]) -> Question:
        """Who ranks same-label items first; the best must vote and separate beyond chance."""
        map_at_r, auc, accuracy = (
            mean_estimate(np.stack(one)) for one in zip(*answers, strict=True)
        )
        own = self._codes[self._places]
        commonest = (own == self._sizes.argmax()).astype(np.float64)
        return Question(
            question="which items have the same label",
            unit="items",
            n_units=len(self.asked),
            score="MAP@R",
            estimate=map_at_r,
            tests=(
                Test(
                    "accuracy of ten votes",
                    accuracy,
                    mean_chance(commonest),
                    "the commonest label is right for",
                ),
                Test("AUC", auc, lambda weights: np.full(len(weights), 0.5), "chance has"),
            ),
            others={"AUC": auc, "accuracy": accuracy},
            failure="No measure recovers these labels",
        )

"""Label recovery: AUC, average precision, precision@10 and a majority vote per labelled item.

Recovery has two meanings. Globally, pairs of one label score higher than pairs of two: AUC.
Locally, the nearest neighbours share the label: precision@10. Labels of several groups each may be
recovered locally alone. Both are tested by permutations of the labels, as in an audit, and weight
all labels equally; a label may also be shown to be recovered by itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.comparison.bootstrap import Evaluation, Outcome, mean_estimate
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.comparison.scoring import raw_score_blocks
from fastcos.kernels import label_ranks
from fastcos.metrics.label_permutation import (
    SIGNIFICANT,
    WEAK_AUC,
    BestTest,
    Ranking,
    check_testable,
    doubled_ranks,
    draw_per_label,
    permute_labels,
)
from fastcos.metrics.labelled import as_shared_labels
from fastcos.validation import Floats, Integers

# query items: the standard error of a mean of scores from 0 to 1 is at most 0.016
N_QUERIES = 1000
# nearest items that vote for a label, as many as the neighbour lists of the paper
N_VOTERS = 10
# groups of columns for each voter: so that about one column in twenty more than the voters is kept
N_GROUPS = 20
# queries whose scores of each other are ranked for the test over all pairs: 0.2 MB a candidate
N_UNITS = 300


class LabelScores(NamedTuple):
    """Scores of the ranked list of each query item, (n,) each.

    map_at_r: average precision at R; ``metrics.map_at_r`` is its mean. auc: P(an item of its label
    scores more than one of another) + half of P(equal). precision: share of the ten nearest that
    have its label; of equally near ones each counts in part. accuracy: 1 if the ten nearest vote
    for its label, else 0. ranking: of places in the pool, for the tests.
    """

    map_at_r: Floats
    auc: Floats
    precision: Floats
    accuracy: Floats
    ranking: Ranking


class LabelTask:
    """Rank all labelled items, or n_items of them, for some labelled query items.

    names: of the labels, by number. queries (n,): ascending item numbers; each shares its label
    with another item.
    """

    def __init__(
        self,
        codes: Integers,
        present: npt.NDArray[np.bool_],
        random: np.random.Generator,
        n_items: int | None = None,
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        self._pool = np.flatnonzero((codes >= 0) & present)
        if n_items is not None and n_items < len(self._pool):
            self._pool = np.sort(random.choice(self._pool, n_items, replace=False))
        self._codes = as_shared_labels(codes[self._pool])
        self._names = [
            str(code) if names is None else names[code] for code in np.unique(codes[self._pool])
        ]
        self._sizes = validation.read_only(np.bincount(self._codes).astype(np.int64))
        check_testable(self._sizes)
        able = np.flatnonzero(self._sizes[self._codes] > 1)
        # as many of each label as there are, so that rare labels have queries
        places = able[draw_per_label(self._codes[able], N_QUERIES, random)]
        self._places = validation.read_only(places.astype(np.int64))
        self.queries = self._pool[places]
        drawn = np.bincount(self._codes[places], minlength=len(self._sizes))
        self._stands_for = (self._sizes / np.maximum(drawn, 1))[self._codes[places]]
        self._units = draw_per_label(self._codes[places], N_UNITS, random)
        # equally near items are listed in an order that labels do not follow
        self._order = random.permutation(len(self._pool))
        self._seed = int(random.integers(2**32))

    def score(self, candidate: Candidate, embeddings: Embeddings) -> LabelScores:
        """Score a measure, fitted to all items, on the ranked lists of the queries."""
        rows = candidate.rows(embeddings)
        measure = candidate.make(embeddings).fit(rows)
        n = len(self.queries)
        auc, average = parallel.unfilled(n, np.float64), parallel.unfilled(n, np.float64)
        voted, precision = parallel.unfilled(n, np.int64), np.empty(n)
        units, of_units = self._places[self._units], np.empty((len(self._units),) * 2)
        k = min(N_VOTERS, len(self._pool) - 1)
        lists = np.empty((n, k), np.int64)
        for part, scores in raw_score_blocks(measure, rows, self.queries, self._pool):
            owns = self._places[part]
            parallel.run(
                label_ranks.score_label_ranks, parallel.row_blocks(len(scores), 4),
                validation.read_only(scores), owns, self._codes, self._sizes, k, auc[part],
                average[part], voted[part],
            )  # fmt: skip
            here = np.flatnonzero((self._units >= part.start) & (self._units < part.stop))
            of_units[here] = scores[np.ix_(self._units[here] - part.start, units)]
            precision[part], lists[part] = self._nearest(scores, owns, k)
        right = voted == self._codes[self._places]
        ranking = Ranking(lists, doubled_ranks(of_units))
        return LabelScores(average, auc, precision, right.astype(np.float64), ranking)

    def evaluation(self, scores: Sequence[LabelScores]) -> Evaluation:
        """Ranked by MAP@R; the best must exceed chance among its ten nearest or in its AUC."""
        *values, rankings = zip(*scores, strict=True)
        map_at_r, auc, precision, accuracy = (
            mean_estimate(np.stack(of_score), self._stands_for) for of_score in values
        )
        units, random = self._places[self._units], np.random.default_rng(self._seed)
        best = permute_labels(rankings, self._places, units, self._codes, self._names, random)
        return Evaluation(
            task="which items have the same label",
            unit="items",
            n_units=len(self.queries),
            score="MAP@R",
            estimate=map_at_r,
            failure="It is not shown that a measure recovers these labels",
            success="The labels are recovered better than by chance",
            other_scores={"AUC": auc, "P@10": precision, "accuracy": accuracy},
            outcomes=_outcomes(best),
        )

    def _nearest(self, scores: Floats, owns: Integers, k: int) -> tuple[Floats, Integers]:
        """Share of own's label among the k best other columns of scores (b, m), and these columns.

        Columns that tie at the k-th score share the places that are left. Scores of own are
        overwritten.
        """
        n, m = scores.shape
        scores[np.arange(n), owns] = -np.inf
        # the k-th of the maxima of groups of columns is a lower bound of the k-th score; to
        # partition all columns took 5 times as long
        n_groups = min(m, N_GROUPS * k)
        grouped = scores[:, : m - m % n_groups].reshape(n, -1, n_groups).max(axis=1)
        bounds = np.partition(grouped, n_groups - k, axis=1)[:, n_groups - k]
        places = np.flatnonzero(scores >= bounds[:, np.newaxis])  # 25 times as fast as nonzero
        (query, column), candidates = np.divmod(places, m), scores.ravel()[places]
        order = np.lexsort((self._order[column], -candidates, query))
        firsts = np.cumsum(counts := np.bincount(query, minlength=n)) - counts
        least = candidates[order][firsts + k - 1][query]
        codes = self._codes
        same = codes[column] == codes[owns][query]
        above, equal = candidates > least, candidates == least

        def count(flags: npt.NDArray[np.bool_]) -> Integers:
            return np.bincount(query, flags, n)

        tied = (k - count(above)) * count(equal & same) / count(equal)
        shares: Floats = (count(above & same) + tied) / k
        return shares, column[order][firsts[:, None] + np.arange(k)]


def _outcomes(best: BestTest) -> list[Outcome]:
    """The tests among neighbours and over all pairs, and of a single label if both fail."""
    test = best.test
    locally, globally = test.precision_p <= SIGNIFICANT, test.auc_p <= SIGNIFICANT
    weakly = "weakly " if globally and test.auc < WEAK_AUC else ""
    outcomes = [
        Outcome("precision@10 per class", test.precision, test.chance, best.of_neighbors, locally,
                f"p = {test.precision_p:.2g} for the best of all", scope="locally"),
        Outcome("AUC per class", test.auc, 0.5, best.of_pairs, globally,
                f"p = {test.auc_p:.2g} for the best of all", scope=f"{weakly}globally"),
    ]  # fmt: skip
    if test.classes and not (locally or globally):
        label = test.classes[0]
        outcomes.insert(
            0,
            Outcome(f"precision@10 of {label.label}", label.precision, label.chance,
                    best.of_classes[0], True, f"p = {label.p:.2g}", scope="for single labels"),
        )  # fmt: skip
    return outcomes

"""The task of recovering labels: whether the items near a labelled item have the same label.

Labels can be recovered in two ways. Labels are recovered globally if pairs of items with the same
label score higher than other pairs of items (AUC). Labels are recovered locally if the nearest
neighbours of an item have the same label as the item (precision@10). If the items with one label
form several groups, labels may be recovered locally but not globally. Permutations of the labels
test local and global recovery, and all labels have the same weight, as in ``fastcos.audit``. A
third test shows whether any single label is recovered.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.comparison.bootstrap import Evaluation, Outcome, mean_estimate
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.comparison.scoring import raw_score_blocks
from fastcos.kernels import label_ranks, records
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

# Number of query items. For 1,000 query items, the standard error of a mean of scores from 0 to 1
# is at most 0.016.
N_QUERIES = 1000
# Number of nearest items that vote for a label, as in the neighbour lists of the paper.
N_VOTERS = 10
# To find the k voters of a query quickly, its scores are divided into N_GROUPS * k groups, and the
# maximum of each group is computed. The k-th largest maximum is a lower bound on the k-th best
# score. If a query has 5,000 or more scores, at most about 1.06 * k of them reach this lower bound.
N_GROUPS = 20
# In the test of the AUC, this many query items are compared with each other, and their scores are
# ranked. With 300 query items, the ranks take 0.2 MB per candidate.
N_UNITS = 300


class LabelScores(NamedTuple):
    """The scores of one candidate for each of n query items, as arrays (n,).

    - `map_at_r`: the average precision at R. The function ``metrics.map_at_r`` returns the mean of
      these values.
    - `auc`: the probability that an item with the label of the query scores higher than an item
      with another label, plus half of the probability of equal scores.
    - `precision`: the share of the ten nearest items that have the label of the query. If the items
      that tie for the last places outnumber these places, each tied item counts as a fraction of an
      item.
    - `accuracy`: 1 if the query has the label that is commonest among the ten nearest items, else
      0.
    - `ranking`: the neighbours and ranks for the permutation tests. Each neighbour is stored as a
      position in the pool.
    """

    map_at_r: Floats
    auc: Floats
    precision: Floats
    accuracy: Floats
    ranking: Ranking


class LabelTask:
    """The task of ranking labelled items by their similarity to labelled query items.

    The pool is the set of items that are ranked for each query: all labelled items, or `n_items` of
    them drawn at random. The attribute `queries` (n,) contains the ascending row numbers of the
    query items. Each query item shares its label with at least one other item of the pool. `names`
    contains the name of each label.
    """

    def __init__(
        self,
        codes: Integers,
        is_present: npt.NDArray[np.bool_],
        random: np.random.Generator,
        n_items: int | None = None,
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        self._pool = np.flatnonzero((codes >= 0) & is_present)
        if n_items is not None and n_items < len(self._pool):
            self._pool = np.sort(random.choice(self._pool, n_items, replace=False))
        self._codes = as_shared_labels(codes[self._pool])
        self._names = [
            str(code) if names is None else names[code] for code in np.unique(codes[self._pool])
        ]
        self._sizes = validation.read_only(np.bincount(self._codes).astype(np.int64))
        check_testable(self._sizes)
        eligible = np.flatnonzero(self._sizes[self._codes] > 1)
        # Draw queries evenly over the labels, so that rare labels also have queries.
        positions = eligible[draw_per_label(self._codes[eligible], N_QUERIES, random)]
        self._positions = validation.read_only(positions.astype(np.int64))
        self.queries = self._pool[positions]
        n_queries = np.bincount(self._codes[positions], minlength=len(self._sizes))
        self._stands_for = (self._sizes / np.maximum(n_queries, 1))[self._codes[positions]]
        self._units = draw_per_label(self._codes[positions], N_UNITS, random)
        # Items with equal scores are listed in random order, which is independent of the labels.
        self._order = random.permutation(len(self._pool))
        self._seed = int(random.integers(2**32))

    def score(self, candidate: Candidate, embeddings: Embeddings) -> LabelScores:
        """Rank the pool for every query by the measure of ``candidate``; score each ranking."""
        rows = candidate.rows(embeddings)
        measure = candidate.make(embeddings).fit(rows)
        n = len(self.queries)
        auc, average = parallel.unfilled(n, np.float64), parallel.unfilled(n, np.float64)
        votes, precision = parallel.unfilled(n, np.int64), np.empty(n)
        units, unit_scores = self._positions[self._units], np.empty((len(self._units),) * 2)
        k = min(N_VOTERS, len(self._pool) - 1)
        lists = np.empty((n, k), np.int64)
        for part, scores in raw_score_blocks(measure, rows, self.queries, self._pool):
            positions = self._positions[part]
            parallel.run(
                label_ranks.score_label_ranks, parallel.row_blocks(len(scores), 4),
                validation.read_only(scores), positions,
                records.LabelCodes(self._codes, self._sizes), k,
                records.LabelRanks(auc[part], average[part], votes[part]),
            )  # fmt: skip
            in_part = np.flatnonzero((self._units >= part.start) & (self._units < part.stop))
            unit_scores[in_part] = scores[np.ix_(self._units[in_part] - part.start, units)]
            precision[part], lists[part] = self._nearest(scores, positions, k)
        is_right = votes == self._codes[self._positions]
        ranking = Ranking(lists, doubled_ranks(unit_scores))
        return LabelScores(average, auc, precision, is_right.astype(np.float64), ranking)

    def evaluation(self, scores: Sequence[LabelScores]) -> Evaluation:
        """Return the evaluation of all candidates on this task, ranked by MAP@R.

        No candidate is recommended unless a permutation test of the precision@10, of the AUC or of
        a single label is significant.
        """
        *values, rankings = zip(*scores, strict=True)
        map_at_r, auc, precision, accuracy = (
            mean_estimate(np.stack(score_values), self._stands_for) for score_values in values
        )
        units, random = self._positions[self._units], np.random.default_rng(self._seed)
        best = permute_labels(rankings, self._positions, units, self._codes, self._names, random)
        return Evaluation(
            task="which items have the same label",
            unit="items",
            n_units=len(self.queries),
            score="MAP@R",
            estimate=map_at_r,
            failure="No measure recovers these labels significantly better than by chance",
            success="The labels are recovered better than by chance",
            other_scores={"AUC": auc, "P@10": precision, "accuracy": accuracy},
            outcomes=_outcomes(best),
        )

    def _nearest(self, scores: Floats, positions: Integers, k: int) -> tuple[Floats, Integers]:
        """Return the precision@k of each row of `scores` (b, m), and its k highest-scoring columns.

        Row i of `scores` contains the scores of one query. The score of the query with itself is in
        column ``positions[i]``. This score is overwritten, so that the query is not its own
        neighbour. Several columns may have the k-th highest score. If there are more tied columns
        than remaining places among the k columns, each tied column counts as a fraction of a
        column. This fraction is the number of remaining places, divided by the number of tied
        columns.
        """
        n, m = scores.shape
        scores[np.arange(n), positions] = -np.inf
        # The columns are divided into groups, and the maximum of each group is computed. The k-th
        # largest maximum is a lower bound on the k-th best score. Computing this lower bound takes
        # less time than partitioning the scores of all columns.
        n_groups = min(m, N_GROUPS * k)
        maxima = scores[:, : m - m % n_groups].reshape(n, -1, n_groups).max(axis=1)
        bounds = np.partition(maxima, n_groups - k, axis=1)[:, n_groups - k]
        cells = np.flatnonzero(scores >= bounds[:, np.newaxis])  # faster than np.nonzero
        (query, column), candidates = np.divmod(cells, m), scores.ravel()[cells]
        order = np.lexsort((self._order[column], -candidates, query))
        firsts = np.cumsum(counts := np.bincount(query, minlength=n)) - counts
        kth_score = candidates[order][firsts + k - 1][query]
        codes = self._codes
        is_same = codes[column] == codes[positions][query]
        is_above, is_tied = candidates > kth_score, candidates == kth_score

        def count(flags: npt.NDArray[np.bool_]) -> Integers:
            return np.bincount(query, flags, n)

        tied_hits = (k - count(is_above)) * count(is_tied & is_same) / count(is_tied)
        precision: Floats = (count(is_above & is_same) + tied_hits) / k
        return precision, column[order][firsts[:, None] + np.arange(k)]


def _outcomes(best: BestTest) -> list[Outcome]:
    """Return the outcomes of two tests: of local and of global recovery of the labels.

    If neither of these two tests is significant, but a test of a single label is significant, the
    list begins with the outcome of the test of the single label.
    """
    test = best.test
    is_local, is_global = test.precision_p <= SIGNIFICANT, test.auc_p <= SIGNIFICANT
    strength = "weakly " if is_global and test.auc < WEAK_AUC else ""
    outcomes = [
        Outcome("precision@10 per class", test.precision, test.chance, best.of_neighbors, is_local,
                f"p = {test.precision_p:.2g} for the best of all candidates", scope="locally"),
        Outcome("AUC per class", test.auc, 0.5, best.of_pairs, is_global,
                f"p = {test.auc_p:.2g} for the best of all candidates",
                scope=f"{strength}globally"),
    ]  # fmt: skip
    if test.classes and not (is_local or is_global):
        label = test.classes[0]
        outcomes.insert(
            0,
            Outcome(f"precision@10 of {label.label}", label.precision, label.chance,
                    best.of_classes[0], True, f"p = {label.p:.2g}", scope="for single labels"),
        )  # fmt: skip
    return outcomes

"""Ranking of candidates by score, with bootstrap intervals and cross-fitted tests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fastcos.comparison.candidates import Candidate
from fastcos.comparison.leaderboard import BootstrapInterval, Leaderboard, LeaderboardRow
from fastcos.validation import Floats

# Coverage of the bootstrap intervals. Only the units are resampled; the data and the models stay
# the same. A test is significant if the whole interval of a difference lies above 0. If the units
# are independent and there is no true difference, 2.5 % of all tests are significant.
LEVEL = 0.95
_TAIL = (1 - LEVEL) / 2
# Number of bootstrap samples. With 2,000 samples, the standard error of the ends of an interval is
# about 1.5 % of the width of the interval.
N_RESAMPLES = 2000
# Number of blocks in which bootstrap samples are drawn.
N_BLOCKS = 20
# The conclusion lists at most this many candidates besides the recommended candidate.
_MAX_LISTED = 3

# An estimate is a function that returns the scores (r, c) of c candidates on r bootstrap samples.
# An estimate takes two arguments. The first argument is an array of weights (r, n). Entry (i, j) is
# the number of times that unit j occurs in bootstrap sample i. The second argument contains the
# indices of the candidates.
Estimate = Callable[[Floats, Sequence[int]], Floats]


class Outcome(NamedTuple):
    """The result of one test: whether the best candidate scores higher than a trivial answer.

    - `score`: the name of the score.
    - `value`, `chance`: the score of the best candidate, and the score of the trivial answer.
    - `best`: the index of the best candidate.
    - `passed`: whether the score of the best candidate is significantly higher than the score of
      the trivial answer.
    - `evidence`: the evidence in words, such as "the lead is 0.1 [0.0, 0.2]".
    - `baseline`: the trivial answer in words, such as "by chance".
    - `scope`: a word, such as "locally", that distinguishes this test from other tests.
    """

    score: str
    value: float
    chance: float
    best: int
    passed: bool
    evidence: str
    baseline: str = "by chance"
    scope: str = ""


@dataclass(frozen=True)
class Evaluation:
    """Scores of all candidates on one task.

    - `task`: the task in words.
    - `unit`: the plural noun for the units, such as "users".
    - `n_units`: the number of units.
    - `score`, `estimate`: the name of the score that ranks the candidates, and the function that
      estimates this score.
    - `failure`: the opening words of the conclusion if no test is significant.
    - `chance`: a function that estimates the score of a trivial answer. A candidate is recommended
      only if the best candidate scores significantly higher than the trivial answer. If the task
      has already performed its own tests of the candidates, `chance` is None, and `outcomes`
      contains the results of these tests.
    - `baseline`: the trivial answer in words, such as "by chance".
    - `trivial`: the name of the table row that contains the trivial answer, or "" if the table has
      no such row.
    - `trivial_scores`: further scores of the trivial answer, as a dict that maps the name of each
      score to the function that estimates this score.
    - `outcomes`: the results of the tests that the task has already performed.
    - `other_scores`: further scores of the candidates, as a dict that maps the name of each score
      to the function that estimates this score.
    - `success`: the words with which the sentence about the test results begins.
    - `few`: if there are fewer units than this number, the conclusion contains a warning.
    """

    task: str
    unit: str
    n_units: int
    score: str
    estimate: Estimate
    failure: str
    chance: Estimate | None = None
    baseline: str = "by chance"
    trivial: str = ""
    trivial_scores: Mapping[str, Estimate] = field(default_factory=dict)
    outcomes: Sequence[Outcome] = ()
    other_scores: Mapping[str, Estimate] = field(default_factory=dict)
    success: str = ""
    few: int = 0


def mean_estimate(values: Floats, stands_for: Floats | None = None) -> Estimate:
    """Return a function that estimates the mean of each row of `values` (candidates, units).

    Unit i may represent several units of the population; entry i of `stands_for` (n,) is the number
    of units that unit i represents.
    """
    size = np.ones(values.shape[1]) if stands_for is None else stands_for
    return lambda weights, numbers: (
        (weights @ (values[numbers] * size).T) / (weights @ size)[:, None]
    )


def rank(
    evaluation: Evaluation,
    candidates: Sequence[Candidate],
    left_out: Mapping[str, str],
    random: np.random.Generator,
) -> Leaderboard:
    """Return the leaderboard of the candidates with its conclusion; candidate 0 is the baseline.

    The conclusion uses cross-fitting: each half of the units chooses the best candidate, and the
    other half measures the lead of this candidate. If the lead were measured on the same units that
    chose the best of many candidates, the measured lead would be too large.
    """
    n = evaluation.n_units
    all_units = np.ones((1, n))
    samples = _Samples(all_units, random)
    scores_on_samples = samples.scores(evaluation.estimate, range(len(candidates)))
    rows = _rows(evaluation, candidates, all_units, scores_on_samples)
    if evaluation.trivial:
        baseline = rows[0].score.value, scores_on_samples[:, 0]
        rows.append(_trivial_row(evaluation, all_units, samples, *baseline))
    rows.sort(key=lambda row: -row.score.value)
    halves = _CrossFitting(n, random)
    outcomes = [*evaluation.outcomes]
    if evaluation.chance is not None:
        outcomes.append(_test_chance(evaluation, len(candidates), halves, evaluation.chance))
    beats_chance = any(outcome.passed for outcome in outcomes)
    gain = None
    if len(candidates) > 1:
        alternatives = range(1, len(candidates))
        gain = halves.lead(evaluation.estimate, alternatives, evaluation.estimate)
    recommended = candidates[0]
    if gain is not None and gain.low > 0:
        recommended = next(row.candidate for row in rows if row.candidate in candidates[1:])
    ties = _tied(candidates, rows, recommended, scores_on_samples) if beats_chance else []
    best_of_items, items_sentence = _best_of_items(evaluation, candidates, rows, halves)
    board = Leaderboard(
        task=evaluation.task,
        score=evaluation.score,
        rows=rows,
        baseline=candidates[0],
        chance_level={outcome.score: outcome.chance for outcome in outcomes},
        n_units=n,
        unit=evaluation.unit,
        beats_chance=beats_chance,
        recommended=recommended if beats_chance else None,
        gain=gain,
        conclusion="",
        left_out=dict(left_out),
        not_distinguishable=ties,
        best_of_items=best_of_items if beats_chance else None,
    )
    conclusion = _conclusion(evaluation, board, outcomes, candidates, items_sentence)
    return replace(board, conclusion=conclusion)


def _rows(
    evaluation: Evaluation,
    candidates: Sequence[Candidate],
    all_units: Floats,
    scores_on_samples: Floats,
) -> list[LeaderboardRow]:
    numbers = range(len(candidates))
    scores = evaluation.estimate(all_units, numbers)[0]
    other_scores = {
        name: estimate(all_units, numbers)[0] for name, estimate in evaluation.other_scores.items()
    }
    return [
        LeaderboardRow(
            candidate,
            _interval(scores[c], scores_on_samples[:, c]),
            _interval(scores[c] - scores[0], scores_on_samples[:, c] - scores_on_samples[:, 0]),
            {name: float(values[c]) for name, values in other_scores.items()},
        )
        for c, candidate in enumerate(candidates)
    ]


def _trivial_row(
    evaluation: Evaluation,
    all_units: Floats,
    samples: "_Samples",
    baseline: float,
    baseline_on_samples: Floats,
) -> LeaderboardRow:
    """Return the row of the leaderboard that shows the scores of the trivial answer.

    - `baseline`: the score of the baseline.
    - `baseline_on_samples` (r,): the score of the baseline on each bootstrap sample of the units.
    """
    chance = evaluation.chance or evaluation.estimate
    value, on_samples = float(chance(all_units, [0])[0, 0]), samples.scores(chance, [0])[:, 0]
    other_scores = {
        name: float(estimate(all_units, [0])[0, 0])
        for name, estimate in evaluation.trivial_scores.items()
    }
    return LeaderboardRow(
        Candidate(evaluation.trivial),
        _interval(value, on_samples),
        _interval(value - baseline, on_samples - baseline_on_samples),
        other_scores,
    )


def _best_of_items(
    evaluation: Evaluation,
    candidates: Sequence[Candidate],
    rows: Sequence[LeaderboardRow],
    halves: "_CrossFitting",
) -> tuple[Candidate | None, str]:
    """Choose the best of those candidates that compare items with each other.

    The function returns the chosen candidate and a sentence about this candidate. If all candidates
    compare items with each other, the function returns None and an empty sentence. If no other
    candidate has a significant cross-fitted lead over the baseline, the baseline is the best
    candidate.
    """
    numbers = [c for c, candidate in enumerate(candidates) if candidate.compares_items]
    if len(numbers) == len(candidates):
        return None, ""
    best, estimate = candidates[0], evaluation.estimate
    if len(numbers) > 1 and halves.lead(estimate, numbers[1:], estimate).low > 0:
        alternatives = [candidates[c] for c in numbers[1:]]
        best = next(row.candidate for row in rows if row.candidate in alternatives)
    value = next(row.score.value for row in rows if row.candidate == best)
    sentence = f" To find similar items, use {best}: {evaluation.score} {value:.3f}."
    if evaluation.chance and halves.lead(estimate, numbers, evaluation.chance).low <= 0:
        sentence += f" This {evaluation.score} does not significantly exceed the required level."
    return best, sentence


def _tied(
    candidates: Sequence[Candidate],
    rows: Sequence[LeaderboardRow],
    recommended: Candidate,
    scores_on_samples: Floats,
) -> list[Candidate]:
    """Return the candidates that do not differ significantly from the recommended candidate."""
    leads = scores_on_samples[:, [candidates.index(recommended)]] - scores_on_samples
    ends = np.quantile(leads, (_TAIL, 1 - _TAIL), axis=0).T
    ties = {
        candidate
        for candidate, (low, high) in zip(candidates, ends, strict=True)
        if low <= 0 <= high
    }
    candidates_by_score = [row.candidate for row in rows]
    return [candidate for candidate in candidates_by_score if candidate in ties - {recommended}]


class _Samples:
    """Bootstrap samples that are drawn from the units with the entry 1 in `mask` (1, n).

    A sample is stored as one uint16 count per unit. The samples are drawn in blocks, because NumPy
    draws the counts as int64, which take four times as much memory as uint16.
    """

    def __init__(self, mask: Floats, random: np.random.Generator) -> None:
        size = int(mask.sum())
        self._counts = np.empty((N_RESAMPLES, mask.shape[1]), np.uint16)
        for block in np.array_split(self._counts, N_BLOCKS):
            block[:] = random.multinomial(size, mask[0] / size, len(block))

    def scores(self, estimate: Estimate, numbers: Sequence[int]) -> Floats:
        """Return one row of scores per sample: the scores of the candidates in `numbers`."""
        return estimate(self._counts.astype(np.float64), numbers)


class _CrossFitting:
    """Two random halves of the units for cross-fitting, with bootstrap samples of each half."""

    def __init__(self, n: int, random: np.random.Generator) -> None:
        first = np.zeros((1, n))
        first[0, random.permutation(n)[: n // 2]] = 1
        self._halves = first, 1 - first
        self._samples = [_Samples(half, random) for half in self._halves]

    def lead(
        self, estimate: Estimate, numbers: Sequence[int], reference: Estimate
    ) -> BootstrapInterval:
        """Measure the lead of the best candidate over a reference score by cross-fitting.

        The best candidate is chosen from the candidates whose indices are in `numbers`. The lead is
        the score of the best candidate minus the reference score, which the function `reference`
        returns for candidate 0.
        """
        values, scores_on_samples = [], []
        for choice, test in ((0, 1), (1, 0)):
            best = numbers[int(estimate(self._halves[choice], numbers)[0].argmax())]
            half, samples = self._halves[test], self._samples[test]
            values.append(estimate(half, [best])[0, 0] - reference(half, [0])[0, 0])
            lead = samples.scores(estimate, [best]) - samples.scores(reference, [0])
            scores_on_samples.append(lead[:, 0])
        return _interval(float(np.mean(values)), np.mean(scores_on_samples, axis=0))


def _test_chance(
    evaluation: Evaluation, n_candidates: int, halves: _CrossFitting, chance: Estimate
) -> Outcome:
    """Test whether the best candidate, chosen by cross-fitting, scores higher than `chance`."""
    numbers, all_units = range(n_candidates), np.ones((1, evaluation.n_units))
    lead = halves.lead(evaluation.estimate, numbers, chance)
    scores = evaluation.estimate(all_units, numbers)[0]
    best, level = int(scores.argmax()), float(chance(all_units, [0])[0, 0])
    return Outcome(
        evaluation.score, float(scores[best]), level, best, lead.low > 0, f"the lead is {lead}",
        evaluation.baseline,
    )  # fmt: skip


def _describe_scores(outcome: Outcome, candidates: Sequence[Candidate]) -> str:
    """Return a text that states the scores of the best candidate and of the trivial answer."""
    best = f"{outcome.score} {outcome.value:.3f} for {candidates[outcome.best]}"
    return f"{best}, compared with {outcome.chance:.3f} {outcome.baseline}"


def _conclusion(
    evaluation: Evaluation,
    board: Leaderboard,
    outcomes: Sequence[Outcome],
    candidates: Sequence[Candidate],
    items_sentence: str,
) -> str:
    """Return the recommendation and its evidence, or the statement that no test is significant.

    Some candidates compare items with each other; `items_sentence` is a sentence about the best of
    these candidates.
    """
    units, warning = f"{board.n_units:,} {board.unit}", ""
    if board.n_units < evaluation.few:
        warning = f"Only {units} were evaluated, so the answer may differ for other {board.unit}. "
    if not board.beats_chance:
        results = "; ".join(
            f"{_describe_scores(outcome, candidates)} ({outcome.evidence})" for outcome in outcomes
        )
        failure = f"{evaluation.failure}. The best of {len(candidates)} candidates has {results}."
        method = (
            f" The lead was measured by cross-fitting. The {units} were split into two halves: a "
            "candidate was chosen on one half and evaluated on the other half, and then the two "
            "halves changed roles."
        )
        return f"{warning}{failure}" + (method if evaluation.chance else "")
    ties_sentence, ties = "", board.not_distinguishable
    if ties:
        n_unlisted = len(ties) - _MAX_LISTED
        ending = f" and {n_unlisted} more" if n_unlisted > 0 else ""
        names = ", ".join(map(str, ties[:_MAX_LISTED]))
        ties_sentence = f" These candidates are not significantly worse: {names}{ending}."
    level = "".join(
        f" A measure is recommended only if its {outcome.score} is higher than "
        f"{outcome.chance:.3f}, the {outcome.score} of the {evaluation.trivial}."
        for outcome in outcomes
        if evaluation.trivial
    )
    advice = _advice(board, candidates, units) + ties_sentence + level
    if board.best_of_items != board.recommended:
        advice += items_sentence
    return warning + advice + _success(evaluation, outcomes, candidates)


def _success(
    evaluation: Evaluation, outcomes: Sequence[Outcome], candidates: Sequence[Candidate]
) -> str:
    """Return a sentence that lists the significant test results before the other test results."""
    if not evaluation.success:
        return ""
    results = [
        f"{'' if outcome.passed else 'not '}{outcome.scope} "
        f"({_describe_scores(outcome, candidates)})"
        for outcome in sorted(outcomes, key=lambda outcome: not outcome.passed)
    ]
    conjunction = " and " if not results[-1].startswith("not ") else ", but "
    return f" {evaluation.success} {conjunction.join(results)}."


def _advice(board: Leaderboard, candidates: Sequence[Candidate], units: str) -> str:
    """Return the advice on which candidate to use, with the cross-fitted gain over the baseline."""
    baseline, gain = board.row(board.baseline), board.gain
    advice = f"Stay with {baseline.candidate}: {board.score} {baseline.score.value:.3f}"
    if gain is None:
        return f"{advice}. No other candidate was compared with {baseline.candidate}."
    best = next(row for row in board.rows if row.candidate in candidates[1:])
    method = (
        f"The gain over the cosine was measured by cross-fitting. The {units} were split into two "
        "halves: a candidate was chosen on one half, and its gain was measured on the other half; "
        "then the two halves changed roles."
    )
    if gain.low > 0:
        return (
            f"Use {best.candidate}: {board.score} {best.score.value:.3f}, compared with "
            f"{baseline.score.value:.3f} for {baseline.candidate}. {method} The gain was "
            f"{_gain_in_words(gain)}."
        )
    result = "was worse" if gain.high < 0 else "was not significantly different"
    return (
        f"{advice}, compared with {best.score.value:.3f} for {best.candidate}. {method} The best "
        f"alternative {result}: the gain was {_gain_in_words(gain)}."
    )


def _gain_in_words(gain: BootstrapInterval) -> str:
    return f"{gain.value:.3f} (95 % interval {gain.low:.3f} to {gain.high:.3f})"


def _interval(value: float, scores_on_samples: Floats) -> BootstrapInterval:
    """Return a score with its percentile interval over the bootstrap samples."""
    low, high = np.quantile(scores_on_samples, (_TAIL, 1 - _TAIL))
    return BootstrapInterval(float(value), float(low), float(high))

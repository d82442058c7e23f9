"""Ranking with bootstrap intervals, and tests by cross-fitting."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fastcos.comparison.candidates import Candidate
from fastcos.comparison.leaderboard import BootstrapInterval, Leaderboard, LeaderboardRow
from fastcos.validation import Floats

# coverage of the intervals, over units drawn again for this data and these models; a test is
# significant where the interval excludes 0, by chance in 2.5 % of tests of independent units
LEVEL = 0.95
_TAIL = (1 - LEVEL) / 2
# samples behind an interval: its ends then vary by about 1.5 % of its width (standard error)
N_RESAMPLES = 2000
# candidates that the conclusion names besides the recommended one
_NAMED = 3

# scores (r, c) of c candidates (their numbers) on r samples; weights (r, n): how often each of the
# n units is in a sample
Estimate = Callable[[Floats, Sequence[int]], Floats]


class Outcome(NamedTuple):
    """What a test against the chance level found.

    value, chance: the score of the best candidate, number ``best``, and of the trivial answer.
    evidence, baseline: in words, "the lead is 0.1 [0.0, 0.2]" and "chance has". scope: what passing
    the test means, where there are several: "locally".
    """

    score: str
    value: float
    chance: float
    best: int
    passed: bool
    evidence: str
    baseline: str = "chance has"
    scope: str = ""


@dataclass(frozen=True)
class Evaluation:
    """Scores of all candidates on one task.

    task, unit: the question and its units, in words. score, estimate: what ranks, by name and as a
    function. failure: the conclusion if all tests fail. chance: the score of a trivial answer, as
    that of one candidate, which the best one must exceed; baseline: its words in the Outcome.
    outcomes: tests that are done already. other_scores: for the table. success: the start of the
    sentence that names the tests passed. few: number of units below which the conclusion warns.
    """

    task: str
    unit: str
    n_units: int
    score: str
    estimate: Estimate
    failure: str
    chance: Estimate | None = None
    baseline: str = "chance has"
    outcomes: Sequence[Outcome] = ()
    other_scores: Mapping[str, Estimate] = field(default_factory=dict)
    success: str = ""
    few: int = 0


def mean_estimate(values: Floats, stands_for: Floats | None = None) -> Estimate:
    """Means over units of values (c, n); stands_for (n,): how many units each one stands for."""
    own = np.ones(values.shape[1]) if stands_for is None else stands_for
    return lambda weights, some: (weights @ (values[some] * own).T) / (weights @ own)[:, None]


def rank(
    evaluation: Evaluation,
    candidates: Sequence[Candidate],
    left_out: Mapping[str, str],
    random: np.random.Generator,
) -> Leaderboard:
    """Rank the candidates, the first of which is the baseline, and conclude.

    The conclusion rests on cross-fitting: one half of the units chooses the best candidate and the
    other half measures its lead, so that many candidates do not inflate it.
    """
    n = evaluation.n_units
    whole = np.ones((1, n))
    resampled = evaluation.estimate(_samples(whole, random), range(len(candidates)))
    rows = _rows(evaluation, candidates, whole, resampled)
    rows.sort(key=lambda row: -row.score.value)
    halves = _CrossFitting(n, random)
    outcomes = [*evaluation.outcomes]
    if evaluation.chance is not None:
        outcomes.append(_tested(evaluation, len(candidates), halves, evaluation.chance))
    succeeds = any(one.passed for one in outcomes)
    gain = None
    if len(candidates) > 1:
        others = range(1, len(candidates))
        gain = halves.lead(evaluation.estimate, others, evaluation.estimate)
    best = next((row for row in rows if row.candidate != candidates[0]), rows[0])
    recommended = best.candidate if gain is not None and gain.low > 0 else candidates[0]
    tied = _tied(candidates, rows, recommended, resampled) if succeeds else []
    board = Leaderboard(
        task=evaluation.task,
        score=evaluation.score,
        rows=rows,
        baseline=candidates[0],
        chance_level={one.score: one.chance for one in outcomes},
        n_units=n,
        unit=evaluation.unit,
        beats_chance=succeeds,
        recommended=recommended if succeeds else None,
        gain=gain,
        conclusion="",
        left_out=dict(left_out),
        not_distinguishable=tied,
    )
    return replace(board, conclusion=_conclusion(evaluation, board, outcomes, candidates))


def _rows(
    evaluation: Evaluation, candidates: Sequence[Candidate], whole: Floats, resampled: Floats
) -> list[LeaderboardRow]:
    every = range(len(candidates))
    scores = evaluation.estimate(whole, every)[0]
    others = {name: estimate(whole, every)[0] for name, estimate in evaluation.other_scores.items()}
    return [
        LeaderboardRow(
            candidate,
            _interval(scores[c], resampled[:, c]),
            _interval(scores[c] - scores[0], resampled[:, c] - resampled[:, 0]),
            {name: float(values[c]) for name, values in others.items()},
        )
        for c, candidate in enumerate(candidates)
    ]


def _tied(
    candidates: Sequence[Candidate],
    rows: Sequence[LeaderboardRow],
    recommended: Candidate,
    resampled: Floats,
) -> list[Candidate]:
    """Other candidates whose score differs from the recommended one's by no more than chance."""
    leads = resampled[:, [candidates.index(recommended)]] - resampled
    ends = np.quantile(leads, (_TAIL, 1 - _TAIL), axis=0).T
    tied = {one for one, (low, high) in zip(candidates, ends, strict=True) if low <= 0 <= high}
    others = [row.candidate for row in rows if row.candidate != recommended]
    return [one for one in others if one in tied]


class _CrossFitting:
    """Two random halves of the units, and bootstrap samples of each."""

    def __init__(self, n: int, random: np.random.Generator) -> None:
        first = np.zeros((1, n))
        first[0, random.permutation(n)[: n // 2]] = 1
        self._halves = first, 1 - first
        self._samples = [_samples(half, random) for half in self._halves]

    def lead(self, estimate: Estimate, among: Sequence[int], other: Estimate) -> BootstrapInterval:
        """Lead of the best among candidates over the first one of other, cross-fitted."""
        values, resampled = [], []
        for choosing, measuring in ((0, 1), (1, 0)):
            best = among[int(estimate(self._halves[choosing], among)[0].argmax())]
            half, samples = self._halves[measuring], self._samples[measuring]
            values.append(estimate(half, [best])[0, 0] - other(half, [0])[0, 0])
            resampled.append((estimate(samples, [best]) - other(samples, [0]))[:, 0])
        return _interval(float(np.mean(values)), np.mean(resampled, axis=0))


def _tested(
    evaluation: Evaluation, n_candidates: int, halves: _CrossFitting, chance: Estimate
) -> Outcome:
    """The best candidate, and its cross-fitted lead over the chance level."""
    every, whole = range(n_candidates), np.ones((1, evaluation.n_units))
    lead = halves.lead(evaluation.estimate, every, chance)
    scores = evaluation.estimate(whole, every)[0]
    best, level = int(scores.argmax()), float(chance(whole, [0])[0, 0])
    return Outcome(
        evaluation.score, float(scores[best]), level, best, lead.low > 0, f"the lead is {lead}",
        evaluation.baseline,
    )  # fmt: skip


def _words(one: Outcome, candidates: Sequence[Candidate]) -> str:
    """The scores of a test: of the best candidate, and of chance."""
    own = f"{one.score} {one.value:.3f} of {candidates[one.best]}"
    return f"{own}, {one.baseline} {one.chance:.3f}"


def _conclusion(
    evaluation: Evaluation,
    board: Leaderboard,
    outcomes: Sequence[Outcome],
    candidates: Sequence[Candidate],
) -> str:
    """What to use, and the evidence; or that no test shows anything."""
    units, few = f"{board.n_units:,} {board.unit}", ""
    if board.n_units < evaluation.few:
        few = f"Only {units} were evaluated, so that other {board.unit} may give another answer. "
    method = f"Chosen on one half of {units} and measured on the other"
    if not board.beats_chance:
        results = "; ".join(f"{_words(one, candidates)}, {one.evidence}" for one in outcomes)
        failure = f"{evaluation.failure}: of {len(candidates)} candidates the best has {results}."
        return f"{few}{failure}" + (f" {method}." if evaluation.chance else "")
    ties, tied = "", board.not_distinguishable
    if tied:
        more = f" and {len(tied) - _NAMED} more" if len(tied) > _NAMED else ""
        ties = f" Not distinguishable from it: {', '.join(map(str, tied[:_NAMED]))}{more}."
    return few + _advice(board, method) + ties + _success(evaluation, outcomes, candidates)


def _success(
    evaluation: Evaluation, outcomes: Sequence[Outcome], candidates: Sequence[Candidate]
) -> str:
    """A sentence that names the tests passed and failed."""
    if not evaluation.success:
        return ""
    # what holds comes first
    words = [
        f"{'' if one.passed else 'not '}{one.scope} ({_words(one, candidates)})"
        for one in sorted(outcomes, key=lambda one: not one.passed)
    ]
    joint = " and " if not words[-1].startswith("not ") else ", but "
    return f" {evaluation.success} {joint.join(words)}."


def _advice(board: Leaderboard, method: str) -> str:
    """Which candidate to use, and what it gains."""
    own, gain = board.row(board.baseline), board.gain
    stay = f"Stay with {own.candidate}: {board.score} {own.score.value:.3f}"
    if gain is None:
        return f"{stay}; nothing was compared with it."
    best = next(row for row in board.rows if row.candidate != board.baseline)
    if gain.low > 0:
        return (
            f"Use {best.candidate}: {board.score} {best.score.value:.3f} against "
            f"{own.score.value:.3f} of {own.candidate}. {method}, the best candidate gains {gain}."
        )
    what = "loses" if gain.high < 0 else "differs by no more than chance"
    other = f"{best.candidate} {best.score.value:.3f}"
    return f"{stay}, {other}. {method}, the best alternative {what}: {gain}."


def _samples(included: Floats, random: np.random.Generator) -> Floats:
    """Bootstrap samples (r, n) of the units where included (1, n) is 1: how often each is drawn."""
    size = int(included.sum())
    return random.multinomial(size, included[0] / size, N_RESAMPLES).astype(np.float64)


def _interval(value: float, resampled: Floats) -> BootstrapInterval:
    """The percentile interval of a value."""
    low, high = np.quantile(resampled, (_TAIL, 1 - _TAIL))
    return BootstrapInterval(float(value), float(low), float(high))

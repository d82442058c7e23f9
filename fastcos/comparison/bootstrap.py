"""Ranks candidates, and says whether the best one's lead is more than chance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastcos.comparison.candidates import Candidate
from fastcos.comparison.leaderboard import Interval, Standing, Standings
from fastcos.measures.row_transforms import Floats

LEVEL = 0.95
N_RESAMPLES = 2000

# scores (r, c) of some candidates (by number) on r samples; weights (r, n): how often a unit of
# the n is in a sample
Estimate = Callable[[Floats, Sequence[int]], Floats]
# the same of somebody who knows nothing, (r,)
Chance = Callable[[Floats], Floats]


class Test(NamedTuple):
    """Something that the best candidate must do better than knowing nothing would.

    Attributes
    ----------
    name : str
        Of the score.
    estimate : callable
    chance : callable
    unknowing : str
        Who knows nothing, in words that a number follows: "chance has".
    """

    name: str
    estimate: Estimate
    chance: Chance
    unknowing: str


@dataclass(frozen=True)
class Question:
    """All that the ranking needs to know of what was asked.

    Attributes
    ----------
    question, unit : str
        In words: what was asked, and of what.
    n_units : int
    score : str
    estimate : callable
        The score to rank by.
    tests : sequence of Test
        Not to pass one of them is to have no answer.
    others : dict of str to Estimate
        Further scores for the table.
    failure : str
        What it means to have no answer.
    """

    question: str
    unit: str
    n_units: int
    score: str
    estimate: Estimate
    tests: Sequence[Test]
    others: Mapping[str, Estimate]
    failure: str


def mean_estimate(values: Floats) -> Estimate:
    """Means over units of values (c, n), as an estimate."""
    return lambda weights, some: weights @ values[some].T / weights.sum(axis=1, keepdims=True)


def mean_chance(values: Floats) -> Chance:
    """Mean over units of values (n,)."""
    return lambda weights: weights @ values / weights.sum(axis=1)


def rank(
    question: Question,
    candidates: Sequence[Candidate],
    left_out: Mapping[str, str],
    random: np.random.Generator,
) -> Standings:
    """Rank the candidates, the first of which is the baseline, and conclude.

    What the conclusion rests on is not what the best was chosen by, however many candidates there
    are: it is chosen on one half of the units and judged on the other, and the reverse.
    """
    n = question.n_units
    everyone = np.ones((1, n))
    table = _rows(question, candidates, everyone, _samples(everyone, random))
    rows = sorted(table, key=lambda row: -row.score.value)
    halves = _Halves(n, random)
    failed = _failed_test(question, candidates, halves)
    gain = None
    if len(candidates) > 1:
        gain = halves.lead(
            question.estimate, lambda weights: question.estimate(weights, [0])[:, 0],
            range(1, len(candidates)),
        )  # fmt: skip
    best = next((row for row in rows if row.candidate != candidates[0]), rows[0])
    recommended = best.candidate if gain is not None and gain.low > 0 else candidates[0]
    conclusion = failed or _advice(question, table[0], best, gain)
    return Standings(
        question=question.question,
        score=question.score,
        rows=rows,
        baseline=candidates[0],
        chance={test.name: float(test.chance(everyone)[0]) for test in question.tests},
        n_units=n,
        unit=question.unit,
        answers=not failed,
        recommended=None if failed else recommended,
        gain=gain,
        conclusion=conclusion,
        left_out=dict(left_out),
    )


def _rows(
    question: Question, candidates: Sequence[Candidate], everyone: Floats, drawn: Floats
) -> list[Standing]:
    every = range(len(candidates))
    whole, parts = question.estimate(everyone, every)[0], question.estimate(drawn, every)
    others = {name: estimate(everyone, every)[0] for name, estimate in question.others.items()}
    return [
        Standing(
            candidate,
            _interval(whole[c], parts[:, c]),
            _interval(whole[c] - whole[0], parts[:, c] - parts[:, 0]),
            {name: float(values[c]) for name, values in others.items()},
        )
        for c, candidate in enumerate(candidates)
    ]


class _Halves:
    """Two halves of the units, and bootstrap samples of each."""

    def __init__(self, n: int, random: np.random.Generator) -> None:
        first = np.zeros((1, n))
        first[0, random.permutation(n)[: n // 2]] = 1
        self._halves = first, 1 - first
        self._drawn = [_samples(half, random) for half in self._halves]

    def lead(self, estimate: Estimate, other: Chance, some: Sequence[int]) -> Interval:
        """What the best of some has over another score: chosen on a half, judged on the other."""
        values, parts = [], []
        for choosing, judging in ((0, 1), (1, 0)):
            best = some[int(estimate(self._halves[choosing], some)[0].argmax())]
            half, drawn = self._halves[judging], self._drawn[judging]
            values.append(estimate(half, [best])[0, 0] - other(half)[0])
            parts.append(estimate(drawn, [best])[:, 0] - other(drawn))
        return _interval(float(np.mean(values)), np.mean(parts, axis=0))


def _failed_test(
    question: Question, candidates: Sequence[Candidate], halves: _Halves
) -> str | None:
    """The conclusion where the best candidate does not pass a test."""
    every, everyone = range(len(candidates)), np.ones((1, question.n_units))
    for test in question.tests:
        lead = halves.lead(test.estimate, test.chance, every)
        if lead.low <= 0:
            scores = test.estimate(everyone, every)[0]
            best = int(scores.argmax())
            return (
                f"{question.failure}: the best of {len(candidates)} candidates, "
                f"{candidates[best]}, has {test.name} {scores[best]:.3f}, {test.unknowing} "
                f"{test.chance(everyone)[0]:.3f}; chosen on one half of {question.n_units:,} "
                f"{question.unit} and judged on the other, the lead is {lead}."
            )
    return None


def _advice(question: Question, own: Standing, best: Standing, gain: Interval | None) -> str:
    """The conclusion where there is an answer."""
    stay = f"Stay with {own.candidate}: {question.score} {own.score.value:.3f}"
    if gain is None:
        return f"{stay}; nothing was compared with it."
    judged = (
        f"chosen on one half of {question.n_units:,} {question.unit} and judged on the other, the "
        "best candidate"
    )
    if gain.low > 0:
        return (
            f"Use {best.candidate}: {question.score} {best.score.value:.3f} against "
            f"{own.score.value:.3f} of {own.candidate}; {judged} gains {gain}."
        )
    what = "loses" if gain.high < 0 else "differs by no more than chance"
    return f"{stay}, {best.candidate} {best.score.value:.3f}; {judged} but this one {what}: {gain}."


def _samples(some: Floats, random: np.random.Generator) -> Floats:
    """Bootstrap samples of the units where some (1, n) is 1: how often each is drawn, (r, n)."""
    size = int(some.sum())
    return random.multinomial(size, some[0] / size, N_RESAMPLES).astype(np.float64)


def _interval(value: float, resampled: Floats) -> Interval:
    """The percentile interval of a value."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(resampled, (tail, 1 - tail))
    return Interval(float(value), float(low), float(high))

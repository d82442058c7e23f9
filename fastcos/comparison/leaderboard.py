"""Candidates ranked by one score, with intervals, and what follows from it in one sentence."""

from dataclasses import dataclass
from typing import NamedTuple

from fastcos.comparison.candidates import Candidate


class Interval(NamedTuple):
    """A number and its 95 % percentile interval over bootstrap samples."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Standing(NamedTuple):
    """How one candidate does.

    Attributes
    ----------
    candidate : Candidate
    score : Interval
        What the standings are ranked by, over all units.
    gain : Interval
        Score less that of the baseline on the same samples of units; 0 for the baseline itself.
    others : dict of str to float
        Further scores, by name.
    """

    candidate: Candidate
    score: Interval
    gain: Interval
    others: dict[str, float]


@dataclass(frozen=True)
class Standings:
    """Candidates by falling score; equal scores in the order in which they were judged.

    Attributes
    ----------
    question : str
        What was asked.
    score : str
        Name of the score.
    rows : list of Standing
    baseline : Candidate
        The plain cosine of the rows as they are.
    chance : dict of str to float
        What knowing nothing scores, by name of score.
    n_units : int
        Items, users or pairs behind the table and the conclusion.
    unit : str
    answers : bool
        Whether any candidate does better than knowing nothing.
    recommended : Candidate or None
        None unless answers.
    gain : Interval or None
        What the best candidate but the baseline gains over it, chosen on one half of the units,
        judged on the other, and the reverse. None where there is no other.
    conclusion : str
        The recommendation and its evidence in a sentence.
    left_out : dict of str
        Measures that did not take part, and what they need.

    Examples
    --------
    >>> import numpy as np
    >>> import fastcos
    >>> vectors = np.random.default_rng(0).standard_normal((100, 4))
    >>> labels = np.argmax(vectors, axis=1)
    >>> found = fastcos.compare_vectors(vectors, labels, measures=["dot"])
    >>> found.answers, found.score, [row.candidate.measure for row in found.rows]
    (True, 'MAP@R', ['cosine', 'dot'])
    """

    question: str
    score: str
    rows: list[Standing]
    baseline: Candidate
    chance: dict[str, float]
    n_units: int
    unit: str
    answers: bool
    recommended: Candidate | None
    gain: Interval | None
    conclusion: str
    left_out: dict[str, str]

    def best_of_each(self) -> list[Standing]:
        """The best row of every measure, by falling score."""
        best: dict[str, Standing] = {}
        for row in self.rows:
            best.setdefault(row.candidate.measure, row)
        return list(best.values())

    def of(self, candidate: Candidate) -> Standing:
        """The row of a candidate."""
        return next(row for row in self.rows if row.candidate == candidate)

"""Candidates ranked by one score, with intervals and a recommendation."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastcos.comparison.candidates import Candidate
from fastcos.comparison.examples import Example
from fastcos.reports import Record, Section, Table, as_table
from fastcos.validation import Integers

# the same scores are in the conclusion, with other values
_PER_ITEM = (
    "AUC and P@10 are means over items, so that common labels count most; per class, as above, "
    "each label counts the same."
)


class BootstrapInterval(NamedTuple):
    """A number and its 95 % percentile interval over units drawn again, for the same models."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class LeaderboardRow(NamedTuple):
    """The scores of one candidate.

    Attributes
    ----------
    candidate : Candidate
    score : BootstrapInterval
        The score that ranks the candidates, over all units.
    gain : BootstrapInterval
        Score minus that of the baseline on the same samples of units; 0 for the baseline itself.
    other_scores : dict of str to float
        Further scores, by name.
    """

    candidate: Candidate
    score: BootstrapInterval
    gain: BootstrapInterval
    other_scores: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """One flat record: the candidate, the score and the gain with their intervals."""
        return {
            **self.candidate.to_dict(),
            "score": self.score.value,
            "low": self.score.low,
            "high": self.score.high,
            "gain": self.gain.value,
            "gain_low": self.gain.low,
            "gain_high": self.gain.high,
            **self.other_scores,
        }


@as_table
@dataclass(frozen=True)
class Leaderboard(Record):
    """Candidates by descending score; equal scores in the order of evaluation.

    Attributes
    ----------
    task : str
        The question in words, such as "which items have the same label".
    score : str
        Name of the score.
    rows : list of LeaderboardRow
    baseline : Candidate
        The plain cosine of the rows as they are.
    chance_level : dict of str to float
        Score of a trivial answer (chance, the commonest label, popularity), by name of score.
    n_units : int
        Items, users or pairs behind the table and the conclusion.
    unit : str
    beats_chance : bool
        Whether the best candidate exceeds a chance level significantly.
    recommended : Candidate or None
        None unless beats_chance.
    gain : BootstrapInterval or None
        Cross-fitted gain of the best other candidate over the baseline: each half of the units
        chooses, the other half measures. None where there is no other candidate.
    conclusion : str
        The recommendation and its evidence in a sentence.
    left_out : dict of str
        Measures that were not evaluated, and what they require.
    not_distinguishable : list of Candidate
        Others whose score differs from that of the recommended one by no more than chance: the
        95 % interval of the difference holds 0. Best first.
    example_items : ndarray (m,), int64, or None
        Items whose neighbours by every candidate were kept.
    examples : dict of Candidate to Example
        Those neighbours, and scores between the example items; none for measures of users.
    """

    task: str
    score: str
    rows: list[LeaderboardRow]
    baseline: Candidate
    chance_level: dict[str, float]
    n_units: int
    unit: str
    beats_chance: bool
    recommended: Candidate | None
    gain: BootstrapInterval | None
    conclusion: str
    left_out: dict[str, str]
    not_distinguishable: list[Candidate] = field(default_factory=list)
    example_items: Integers | None = field(default=None, repr=False)
    examples: dict[Candidate, Example] = field(default_factory=dict, repr=False)

    def best_per_measure(self) -> list[LeaderboardRow]:
        """The best row of every measure, by descending score."""
        best: dict[str, LeaderboardRow] = {}
        for row in self.rows:
            best.setdefault(row.candidate.measure, row)
        return list(best.values())

    @property
    def verdict(self) -> str:
        """The conclusion."""
        return self.conclusion

    def sections(self) -> tuple[Section]:
        """The best row of every measure."""
        scores = (self.score, f"95 % over {self.unit}", "gain", "95 % of the gain")
        header = ("measure", "under", *scores, *self.rows[0].other_scores)
        title = (
            f"{self.task}, {self.n_units:,} {self.unit}; best D of every measure, "
            f"{len(self.rows)} candidates"
        )
        lines = [
            (row.candidate.measure, row.candidate.embeddings, *_cells(row.score), *_cells(row.gain),
             *row.other_scores.values())
            for row in self.best_per_measure()
        ]  # fmt: skip
        more = _PER_ITEM if "P@10" in self.rows[0].other_scores else ""
        return (Section("Leaderboard", tables=[Table(title, header, lines, more)]),)

    def row(self, candidate: Candidate) -> LeaderboardRow:
        """The row of a candidate."""
        return next(row for row in self.rows if row.candidate == candidate)

    def to_dict(self) -> dict[str, Any]:
        """All fields but the examples, as dicts, lists, numbers and texts."""
        without = ("example_items", "examples")
        return {name: v for name, v in super().to_dict().items() if name not in without}


def _cells(interval: BootstrapInterval) -> tuple[float, str]:
    """The value, and the interval in words."""
    return interval.value, f"{interval.low:.3f} .. {interval.high:.3f}"

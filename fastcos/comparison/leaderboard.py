"""The leaderboard: candidates ranked by one score, with intervals and a recommendation."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastcos.comparison.candidates import Candidate
from fastcos.comparison.examples import Example
from fastcos.reports import Record, Section, Table, as_table
from fastcos.validation import Integers

# Some scores occur both in the conclusion and in the table below it, with the same name but with
# different values. _PER_ITEM explains why the values differ.
_PER_ITEM = (
    "The AUC and the P@10 in the table are means over items, so common labels count most. In the "
    'conclusion, a score "per class" is a mean over labels, so all labels have the same weight.'
)


class BootstrapInterval(NamedTuple):
    """A score and its 95 % bootstrap interval.

    Only the units are resampled; the models are not refitted.
    """

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
        The score by which the candidates are ranked, computed from all units.
    gain : BootstrapInterval
        The score of the candidate minus the score of the baseline. To compute the interval, the
        score of the baseline is subtracted from the score of the candidate on each bootstrap
        sample. The gain of the baseline itself is 0.
    other_scores : dict of str to float
        Further scores, by name.
    """

    candidate: Candidate
    score: BootstrapInterval
    gain: BootstrapInterval
    other_scores: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the row as one flat dict."""
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
    """The candidates of a comparison, ranked by their scores, and a recommendation.

    Candidates with equal scores are in the order in which they were evaluated.

    Attributes
    ----------
    task : str
        The question in words, such as "which items have the same label".
    score : str
        Name of the score.
    rows : list of LeaderboardRow
        One row per candidate. If the task is to predict held-out interactions, an additional row
        contains the scores of a trivial answer, which recommends the most popular items to all
        users. This additional row is not a candidate.
    baseline : Candidate
        The cosine of the unchanged rows.
    chance_level : dict of str to float
        Each key is the name of a tested score, and its value is the score that a trivial answer
        attains. The trivial answer is either a random answer or a recommendation of the most
        popular items.
    n_units : int
        Number of items, users or pairs on which the table and the conclusion are based.
    unit : str
        The units on which candidates are scored: "items", "users" or "pairs".
    beats_chance : bool
        Whether at least one score of the best candidate is significantly higher than its chance
        level.
    recommended : Candidate or None
        The recommended candidate; None if ``beats_chance`` is false.
    gain : BootstrapInterval or None
        Cross-fitted gain over the baseline, for the best candidate that is not the baseline; None
        if the baseline is the only candidate. To compute the gain, each half of the units chooses a
        candidate, and the gain of this candidate is measured on the other half.
    conclusion : str
        The recommendation and the evidence for it.
    left_out : dict of str
        The measures that were not evaluated, each with the reason, such as the name of the data
        that the measure requires.
    not_distinguishable : list of Candidate
        Candidates whose score does not differ significantly from the score of the recommended
        candidate (the 95 % interval of the difference contains 0). The candidates are in descending
        order of their scores.
    best_of_items : Candidate or None
        The best of the candidates that compare items with each other, chosen in the same way as
        ``recommended``. The attribute is None if every candidate compares items with each other, or
        if ``beats_chance`` is false.
    example_items : ndarray (m,), int64, or None
        Row numbers of the example items.
    examples : dict of Candidate to Example
        For each candidate that compares items with each other: the neighbours of the example items,
        and the scores between the example items.
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
    best_of_items: Candidate | None = None
    example_items: Integers | None = field(default=None, repr=False)
    examples: dict[Candidate, Example] = field(default_factory=dict, repr=False)

    def best_per_measure(self) -> list[LeaderboardRow]:
        """Return the best row of every measure, in descending order of the score."""
        best: dict[str, LeaderboardRow] = {}
        for row in self.rows:
            best.setdefault(row.candidate.measure, row)
        return list(best.values())

    @property
    def verdict(self) -> str:
        """The conclusion, which is the recommendation and the evidence for it."""
        return self.conclusion

    def sections(self) -> tuple[Section]:
        """Return a section with a table that contains the best row of every measure."""
        scores = (self.score, f"95 % over {self.unit}", "gain", "95 % of the gain")
        header = ("measure", "under", *scores, *self.rows[0].other_scores)
        title = (
            f"Task: {self.task}, for {self.n_units:,} {self.unit}. Of the {len(self.rows)} "
            "candidates, the table shows the best one for each measure"
        )
        lines = [
            (row.candidate.measure, row.candidate.embeddings, *_cells(row.score), *_cells(row.gain),
             *row.other_scores.values())
            for row in self.best_per_measure()
        ]  # fmt: skip
        legend = _PER_ITEM if "P@10" in self.rows[0].other_scores else ""
        return (Section("Leaderboard", tables=[Table(title, header, lines, legend)]),)

    def row(self, candidate: Candidate) -> LeaderboardRow:
        """Return the row that contains the scores of a candidate."""
        return next(row for row in self.rows if row.candidate == candidate)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the examples as a dict that can be written as JSON."""
        excluded = ("example_items", "examples")
        return {name: value for name, value in super().to_dict().items() if name not in excluded}


def _cells(interval: BootstrapInterval) -> tuple[float, str]:
    """Return the value and the interval, as two cells of a table."""
    return interval.value, f"{interval.low:.3f} .. {interval.high:.3f}"

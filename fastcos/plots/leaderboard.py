"""The measures ranked by score, with their intervals."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastcos.comparison import Leaderboard, LeaderboardRow
from fastcos.plots.style import COLOURS, Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# rows that a figure of about ten inches shows
MAX_ROWS = 40
ROW_INCHES = 0.2
# colour and marker: the marker distinguishes them without colour
_OTHER = COLOURS[0], "o"
_RECOMMENDED = COLOURS[1], "D"
_BASELINE = "#555555", "s"


@dataclass
class LeaderboardDisplay(Display):
    """The best row of every measure, as a dot with an interval.

    Attributes
    ----------
    rows : list of LeaderboardRow
        By descending score: the best row of each measure, and the baseline.
    leaderboard : Leaderboard

    Examples
    --------
    >>> import numpy as np
    >>> import fastcos
    >>> from fastcos.plots import LeaderboardDisplay
    >>> vectors = np.random.default_rng(0).standard_normal((100, 4))
    >>> found = fastcos.compare_vectors(vectors, np.argmax(vectors, axis=1), measures=["dot"])
    >>> len(LeaderboardDisplay.from_leaderboard(found).plot().rows)
    2
    """

    rows: list[LeaderboardRow]
    leaderboard: Leaderboard

    @classmethod
    def from_leaderboard(cls, leaderboard: Leaderboard) -> "LeaderboardDisplay":
        """Take the best row of every measure, at most 40, and the baseline."""
        shown = leaderboard.best_per_measure()[:MAX_ROWS]
        if leaderboard.baseline not in {row.candidate for row in shown}:
            shown.append(leaderboard.row(leaderboard.baseline))
        return cls(sorted(shown, key=lambda row: -row.score.value), leaderboard)

    def _inches(self) -> tuple[float, float]:
        return 6.8, 1.4 + ROW_INCHES * len(self.rows)

    def _draw(self, ax: "Axes") -> None:
        board, n = self.leaderboard, len(self.rows)
        in_legend = set()
        for place, row in enumerate(self.rows):
            (colour, marker), meaning = self._style(row)
            score = row.score
            error = [[score.value - score.low], [score.high - score.value]]
            ax.errorbar(
                score.value, place, xerr=error, color=colour, marker=marker, linestyle="none",
                capsize=2, linewidth=1.2, label=None if meaning in in_legend else meaning,
            )  # fmt: skip
            in_legend.add(meaning)
        baseline = board.row(board.baseline).score.value
        ax.axvline(baseline, color=_BASELINE[0], linewidth=0.8, linestyle=":")
        if board.score in board.chance_level:
            ax.axvline(
                board.chance_level[board.score], color="black", linewidth=0.8, linestyle="--",
                label="chance level",
            )  # fmt: skip
        ax.set_yticks(range(n), [str(row.candidate) for row in self.rows])
        ax.set_ylim(n - 0.4, -0.6)
        ax.set_xlabel(f"{board.score}, with 95 % intervals over {board.unit}")
        ax.set_title(f"{board.task}: {board.n_units:,} {board.unit}")
        ax.grid(axis="x")
        ax.legend(loc="best")

    def _style(self, row: LeaderboardRow) -> tuple[tuple[str, str], str]:
        if row.candidate == self.leaderboard.recommended:
            return _RECOMMENDED, "recommended"
        if row.candidate == self.leaderboard.baseline:
            return _BASELINE, "the plain cosine"
        under = ", best rescaling" if row.candidate.rescaling else ""
        return _OTHER, f"another measure{under}"

"""The measures ranked by score, with their intervals."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastcos.comparison import Standing, Standings
from fastcos.plots.style import COLOURS, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 40
ROW_INCHES = 0.2
# told apart by their shapes too
_OTHER, _RECOMMENDED, _BASELINE = (COLOURS[0], "o"), (COLOURS[1], "D"), ("#555555", "s")


@dataclass
class StandingsDisplay:
    """Every measure at its best, as a dot with an interval.

    Attributes
    ----------
    rows : list of Standing
        Best first: of each measure the best row, and the baseline.
    standings : Standings
    figure_, ax_
        What ``plot`` drew on.

    Examples
    --------
    >>> import numpy as np
    >>> import fastcos
    >>> from fastcos.plots import StandingsDisplay
    >>> vectors = np.random.default_rng(0).standard_normal((100, 4))
    >>> found = fastcos.compare_vectors(vectors, np.argmax(vectors, axis=1), measures=["dot"])
    >>> len(StandingsDisplay.from_standings(found).plot().rows)
    2
    """

    rows: list[Standing]
    standings: Standings
    figure_: Any = field(default=None, init=False, repr=False)
    ax_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_standings(cls, standings: Standings) -> "StandingsDisplay":
        """Take the best row of every measure, at most 40, and the baseline.

        Parameters
        ----------
        standings : Standings

        Returns
        -------
        StandingsDisplay
        """
        shown = standings.best_of_each()[:MOST_ROWS]
        if standings.baseline not in {row.candidate for row in shown}:
            shown.append(standings.of(standings.baseline))
        return cls(sorted(shown, key=lambda row: -row.score.value), standings)

    def plot(self, ax: "Axes | None" = None) -> "StandingsDisplay":
        """Draw the ranking.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Default: those of a new figure.

        Returns
        -------
        StandingsDisplay
            Itself, with ``figure_`` and ``ax_``.
        """
        with drawing(ax, 6.8, 1.4 + ROW_INCHES * len(self.rows)) as axes:
            self._draw(axes)
            self.figure_, self.ax_ = axes.get_figure(root=True), axes
        return self

    def _draw(self, ax: "Axes") -> None:
        standings, n = self.standings, len(self.rows)
        told = set()
        for place, row in enumerate(self.rows):
            (colour, marker), meaning = self._look(row)
            score = row.score
            reach = [[score.value - score.low], [score.high - score.value]]
            ax.errorbar(
                score.value, place, xerr=reach, color=colour, marker=marker, linestyle="none",
                capsize=2, linewidth=1.2, label=None if meaning in told else meaning,
            )  # fmt: skip
            told.add(meaning)
        baseline = standings.of(standings.baseline).score.value
        ax.axvline(baseline, color=_BASELINE[0], linewidth=0.8, linestyle=":")
        if standings.score in standings.chance:
            ax.axvline(
                standings.chance[standings.score], color="black", linewidth=0.8, linestyle="--",
                label="knowing nothing",
            )  # fmt: skip
        ax.set_yticks(range(n), [str(row.candidate) for row in self.rows])
        ax.set_ylim(n - 0.4, -0.6)
        ax.set_xlabel(f"{standings.score}, with 95 % intervals over {standings.unit}")
        ax.set_title(f"{standings.question}: {standings.n_units:,} {standings.unit}")
        ax.grid(axis="x")
        ax.legend(loc="best")

    def _look(self, row: Standing) -> tuple[tuple[str, str], str]:
        if row.candidate == self.standings.recommended:
            return _RECOMMENDED, "recommended"
        if row.candidate == self.standings.baseline:
            return _BASELINE, "the plain cosine"
        return _OTHER, "another measure" + (", at its best" if row.candidate.rescaling else "")

"""Small multiples of the sensitivity study: label recovery and prediction by rank."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fastcos.comparison.sensitivity import SensitivityRow, mean_interval
from fastcos.plots.style import COLOURS, figure_style, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# six lines are as many as a small panel shows; weights and smoothed are in the csv
_SHOWN = {
    "orthonormal": "D = S^½, orthonormal",
    "identity": "D = I",
    "balanced": "D = Σ^-½, balanced",
    "query_metric": "query metric",
    "eq2": "Eq. 2",
}
_N_COLUMNS = 5


@dataclass
class SensitivityDisplay:
    """AUC of the clusters under several D, and held-out NDCG, by rank; one panel a preset.

    Lines are means over seeds, bands their 95 % t intervals; λ is that of the paper.
    A vertical line marks the rank of the best mean NDCG.

    Attributes
    ----------
    rows : sequence of SensitivityRow

    Examples
    --------
    >>> import fastcos
    >>> from fastcos.comparison.sensitivity import score_simulation
    >>> from fastcos.plots import SensitivityDisplay
    >>> data = fastcos.simulate_interactions(300, 60)
    >>> rows = score_simulation(data, "zipf_bounded", 0)
    >>> len(SensitivityDisplay(rows).plot().figure_.axes)
    1
    """

    rows: Sequence[SensitivityRow]
    figure_: Any = None

    def plot(self) -> Self:
        """Draw the figure."""
        from matplotlib.figure import Figure

        presets = list(dict.fromkeys(row.preset for row in self.rows))
        n_columns = min(_N_COLUMNS, len(presets))
        n_lines = -(-len(presets) // n_columns)
        self.figure_ = Figure(figsize=(2.5 * n_columns + 0.8, 2.3 * n_lines + 0.7))
        self.figure_.set_layout_engine("constrained")
        with figure_style():
            shared: Any = {"squeeze": False, "sharex": True, "sharey": True}
            axes = self.figure_.subplots(n_lines, n_columns, **shared)
            for preset, ax in zip(presets, axes.flat, strict=False):
                self._draw(ax, preset)
            for ax in axes.flat[len(presets) :]:
                ax.remove()
            handles, names = axes.flat[0].get_legend_handles_labels()
            self.figure_.legend(handles, names, loc="outside upper center", ncols=4, frameon=False)
            self.figure_.supxlabel("rank of the model", fontsize="medium")
            self.figure_.supylabel("AUC of the clusters; NDCG", fontsize="medium")
        return self

    def _draw(self, ax: "Axes", preset: str) -> None:
        rows = [
            row
            for row in self.rows
            if row.preset == preset and row.strength == 1 and not row.criterion
        ]
        ranks = sorted({row.rank for row in rows})
        for number, (form, label) in enumerate(_SHOWN.items()):
            self._line(ax, rows, ranks, form, "auc", label, line_style(number) | {"markersize": 3})
        style = {"color": COLOURS[-1], "linestyle": ":", "linewidth": 2}
        best = self._line(ax, rows, ranks, "identity", "ndcg", "NDCG@20, held out", style)
        rank = ranks[int(np.argmax(best))]
        ax.axvline(rank, color=COLOURS[-1], linewidth=0.7, label="rank of the best NDCG")
        ax.set_xscale("log")
        ticks = [rank for rank in (2, 5, 12, 50) if rank <= ranks[-1]]
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.minorticks_off()
        ax.set_ylim(0, 1.02)
        ax.set_title(preset, fontsize="small")
        ax.grid(visible=True)

    def _line(
        self, ax: "Axes", rows: Any, ranks: Any, form: str, score: str, label: str, style: Any
    ) -> Any:
        """Draw one line and its band; return the means."""
        of_form = [row for row in rows if row.form == form]
        points = [
            mean_interval([getattr(row, score) for row in of_form if row.rank == rank])
            for rank in ranks
        ]
        means, low, high = np.array(points).T
        ax.fill_between(ranks, low, high, color=style["color"], alpha=0.15, linewidth=0)
        ax.plot(ranks, means, label=label, **style)
        return means

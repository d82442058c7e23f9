"""The figure of a speed report: what the machine could do, and how the search scales."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastcos.plots import style
from fastcos.speed import OURS, SpeedReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class SpeedDisplay:
    """Roofline, and pairs a second against rows.

    Attributes
    ----------
    report : SpeedReport
    """

    report: SpeedReport

    def plot(self) -> "Figure":
        """Return the figure; nothing is shown."""
        from matplotlib.figure import Figure

        with style.rules():
            panels = 2 if self.report.scaling else 1
            figure = Figure(figsize=(5.0 * panels, 3.8), layout="constrained")
            axes = np.atleast_1d(figure.subplots(1, panels))
            self._roofline(axes[0])
            # beside the axes: a mark may lie anywhere in them
            named = axes[0].get_legend_handles_labels()
            figure.legend(*named, loc="outside lower left", ncols=6)
            if self.report.scaling:
                self._scaling(axes[1])
        return figure

    def _roofline(self, ax: Any) -> None:
        peak, timed = self.report.peak, [s for s in self.report.speeds if s.gflops is not None]
        ridge = peak.gflops / peak.gigabytes
        ends = [ridge, *(speed.intensity for speed in timed)]
        x = np.geomspace(min(ends) / 3, max(ends) * 3, 200)
        bound = [peak.bound(value) for value in x]
        label = f"sgemm {peak.gflops:,.0f} GFLOP/s, copy {peak.gigabytes:,.0f} GB/s"
        ax.plot(x, bound, color="0.3", label=label)
        works = list(dict.fromkeys(speed.work for speed in timed))
        libraries = list(dict.fromkeys(speed.library for speed in timed))
        for at, speed in enumerate(timed):
            number = libraries.index(speed.library)
            is_named = any(speed.library == other.library for other in timed[:at])
            ax.plot(
                speed.intensity,
                speed.gflops,
                linestyle="none",
                marker=style.MARKERS[number % len(style.MARKERS)],
                color=style.COLOURS[number % len(style.COLOURS)],
                markersize=8 if speed.library == OURS else 5,
                label=None if is_named else speed.library,
            )
        for work in works:
            ours = next(s for s in timed if s.work == work and s.library == OURS)
            ax.annotate(
                work,
                (ours.intensity, ours.gflops),
                xytext=(8, -3),  # below the roof, which a good kernel comes close to
                textcoords="offset points",
                va="top",
                fontsize=8,
            )
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="operations per byte of inputs and outputs",
            ylabel="GFLOP/s of the plain method",
            title="What the machine can do",
        )
        ax.grid(visible=True)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter("{x:,g}")
            axis.set_minor_formatter("")

    def _scaling(self, ax: Any) -> None:
        counts = sorted({point.threads for point in self.report.scaling})
        for number, n_threads in enumerate(counts):
            points = [point for point in self.report.scaling if point.threads == n_threads]
            label = f"{n_threads} thread" + ("s" if n_threads > 1 else "")
            ax.plot(
                [point.n for point in points],
                [point.pairs for point in points],
                label=label,
                **style.line(number),
            )
        ax.set(
            xscale="log",
            xlabel="rows",
            ylabel="10⁹ pairs a second",
            title="Neighbours of every row",
        )
        sizes = sorted({point.n for point in self.report.scaling})
        ax.minorticks_off()
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
        ax.set_ylim(bottom=0)
        ax.grid(visible=True)
        ax.legend()

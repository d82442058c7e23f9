"""The roofline of a machine with measured operations (Williams, Waterman and Patterson, 2009)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from fastcos.plots.style import COLOURS, MARKERS, figure_style, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class RooflinePoint(NamedTuple):
    """One measured operation: what it must do, its time, and the limit that it is nearest to.

    operations and bytes are those of the plain method; percent is the share of the time that the
    resource ``bound`` needs at least.
    """

    name: str
    operations: float
    bytes: float
    seconds: float
    percent: float
    bound: str


@dataclass
class RooflineDisplay:
    """Operations per second by operations per byte, below the roofs; percent of limit beside it.

    Operations without multiply-adds, such as a selection, have a bar and no point.

    Attributes
    ----------
    points : sequence of RooflinePoint
    peaks : mapping of str to float
        Operations per second that the machine reaches at most, by arithmetic.
    bandwidth : float
        Bytes per second read from memory.

    Examples
    --------
    >>> from bench.roofline_display import RooflineDisplay, RooflinePoint
    >>> search = RooflinePoint("search", 1e12, 1e7, 4.0, 50.0, "tile")
    >>> display = RooflineDisplay([search], {"tile": 5e11, "float32": 1e11}, 2e10)
    >>> len(display.plot().figure_.axes)
    2
    """

    points: Sequence[RooflinePoint]
    peaks: Mapping[str, float]
    bandwidth: float
    figure_: Any = None

    def plot(self) -> Self:
        """Draw the figure."""
        from matplotlib.figure import Figure

        height = max(3.6, 0.26 * len(self.points) + 1.2)
        self.figure_ = Figure(figsize=(9.6, height), layout="constrained")
        with figure_style():
            roofs, bars = self.figure_.subplots(1, 2)
            self._draw_roofs(roofs)
            self._draw_bars(bars)
        return self

    def _draw_roofs(self, ax: "Axes") -> None:
        shown = [(i, one) for i, one in enumerate(self.points) if one.operations > 0]
        ridges = [peak / self.bandwidth for peak in self.peaks.values()]
        reach = [one.operations / one.bytes for _, one in shown] + ridges
        intensity = np.geomspace(min(reach) / 2, max(reach) * 4, 200)
        for number, (name, peak) in enumerate(self.peaks.items()):
            style = line_style(number) | {"marker": ""}
            roof = np.minimum(peak, intensity * self.bandwidth) / 1e9
            ax.plot(intensity, roof, label=f"{name}, {peak / 1e9:,.0f} Gop/s", **style)
        for i, one in shown:
            at = one.operations / one.bytes, one.operations / one.seconds / 1e9
            ax.plot(*at, MARKERS[i % len(MARKERS)], color=COLOURS[-1])
            ax.annotate(str(i + 1), at, xytext=(4, 3), textcoords="offset points", fontsize=7)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("operations per byte that must move")
        ax.set_ylabel("Gop/s")
        ax.set_title(f"memory: {self.bandwidth / 1e9:.0f} GB/s")
        ax.legend(loc="lower right")
        ax.grid(visible=True)

    def _draw_bars(self, ax: "Axes") -> None:
        places = range(len(self.points))
        ax.barh(places, [one.percent for one in self.points], color=COLOURS[0], height=0.6)
        names = [f"{i + 1}  {one.name}" for i, one in enumerate(self.points)]
        ax.set_yticks(places, names, fontsize=7)
        for place, one in enumerate(self.points):
            text = f" {one.percent:.0f}% of {one.bound}"
            ax.text(one.percent, place, text, va="center", fontsize=7)
        ax.invert_yaxis()
        ax.margins(x=0.35)
        ax.set_xlim(left=0)
        ax.set_xlabel("percent of this machine's limit")
        ax.grid(visible=True, axis="x")

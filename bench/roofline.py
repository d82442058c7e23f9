"""Kernels below the limits of this machine: `python -m bench.roofline` draws a figure.

docs/figures/roofline.png has the kernels of bench/tables.json that were measured on this CPU
(`pytest bench --benchmark-only --cases roofline`), below its limits as measured now.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import limits
from bench.markdown import cpu_name
from bench.tables import KERNELS, OURS, RECORD
from fastcos.plots.style import COLOURS, MARKERS, figure_style, line_style

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "roofline.png"


class Point(NamedTuple):
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


def draw(points, peaks, bandwidth):
    """Return the roofline of a machine as a figure (Williams, Waterman and Patterson, 2009).

    Operations per second by operations per byte, below the roofs; percent of limit beside it.
    What has no multiply-adds or no bytes to count, such as a selection, has a bar and no point.

    Parameters
    ----------
    points : sequence of Point
    peaks : dict of str to float
        Operations per second that the machine reaches at most, by arithmetic.
    bandwidth : float
        Bytes per second read from memory.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, max(3.6, 0.26 * len(points) + 1.2)), layout="constrained")
    with figure_style():
        roofs, bars = figure.subplots(1, 2)
        _draw_roofs(roofs, points, peaks, bandwidth)
        _draw_bars(bars, points)
    return figure


def _draw_roofs(ax, points, peaks, bandwidth):
    shown = [(i, one) for i, one in enumerate(points) if one.operations and one.bytes]
    reach = [one.operations / one.bytes for _, one in shown]
    reach += [peak / bandwidth for peak in peaks.values()]
    intensity = np.geomspace(min(reach) / 2, max(reach) * 4, 200)
    for number, (name, peak) in enumerate(peaks.items()):
        style = line_style(number) | {"marker": ""}
        roof = np.minimum(peak, intensity * bandwidth) / 1e9
        ax.plot(intensity, roof, label=f"{name}, {peak / 1e9:,.0f} Gop/s", **style)
    for i, one in shown:
        at = one.operations / one.bytes, one.operations / one.seconds / 1e9
        ax.plot(*at, MARKERS[i % len(MARKERS)], color=COLOURS[-1])
        ax.annotate(str(i + 1), at, xytext=(4, 3), textcoords="offset points", fontsize=7)
    ax.set(
        xscale="log", yscale="log", xlabel="operations per byte that must move", ylabel="Gop/s",
        title=f"memory: {bandwidth / 1e9:.0f} GB/s",
    )  # fmt: skip
    ax.legend(loc="lower right")
    ax.grid(visible=True)


def _draw_bars(ax, points):
    places = range(len(points))
    ax.barh(places, [one.percent for one in points], color=COLOURS[0], height=0.6)
    names = [f"{i + 1}  {one.name}" for i, one in enumerate(points)]
    ax.set_yticks(places, names, fontsize=7)
    for place, one in enumerate(points):
        text = f" {one.percent:.0f}% of {one.bound}"
        ax.text(one.percent, place, text, va="center", fontsize=7)
    ax.invert_yaxis()
    ax.margins(x=0.35)
    ax.set(xlim=(0, None), xlabel="percent of this machine's limit")
    ax.grid(visible=True, axis="x")


def points_of(rows):
    """Return the points of the kernels among the rows of bench.tables."""
    names = "operations", "bytes", "seconds", "percent_of_limit", "limited_by"
    kernels = (row | row[OURS] for row in rows if row["question"] == KERNELS)
    # ids are shorter than the cases in words
    return [
        Point(row["id"].removesuffix(", kernel"), *(row[name] for name in names)) for row in kernels
    ]


def main():
    rows = json.loads(RECORD.read_text("utf8"))
    here = [row for row in rows if row["cpu"] == cpu_name()]
    draw(points_of(here), *limits.roofs()).savefig(FIGURE, dpi=130)


if __name__ == "__main__":
    main()

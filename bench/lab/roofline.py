"""Kernels below the limits of this machine: `python -m bench.roofline` draws a figure.

docs/figures/roofline.png has the kernels of bench/tables.json that were measured on this CPU
(`pytest bench --benchmark-only --cases roofline`), below its limits as measured now.
"""

import json
from pathlib import Path

import numpy as np

from bench import limits
from bench.markdown import cpu_name
from bench.tables import KERNELS, OURS, RECORD
from fastcos.plots.style import COLOURS, MARKERS, figure_style, line_style

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "roofline.png"


def draw(points, peaks, bandwidth):
    """Return the roofline of a machine as a figure (Williams, Waterman and Patterson, 2009).

    A point is a dict of its name, operations and bytes by the plain method, seconds, and the
    percent of them that the limit limited_by needs at least. Operations per second by operations
    per byte, below the roofs: peaks, in operations per second by arithmetic, and the bandwidth in
    bytes per second. Percent of limit beside it. What has no multiply-adds or no bytes to count,
    such as a selection, has a bar and no point.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, max(3.6, 0.26 * len(points) + 1.2)), layout="constrained")
    shown = [
        (i, one["operations"] / one["bytes"], one["operations"] / one["seconds"] / 1e9)
        for i, one in enumerate(points)
        if one["operations"] and one["bytes"]
    ]
    reach = [at for _, at, _ in shown] + [peak / bandwidth for peak in peaks.values()]
    intensity = np.geomspace(min(reach) / 2, max(reach) * 4, 200)
    with figure_style():
        roofs, bars = figure.subplots(1, 2)
        for number, (name, peak) in enumerate(peaks.items()):
            style = line_style(number) | {"marker": ""}
            roof = np.minimum(peak, intensity * bandwidth) / 1e9
            roofs.plot(intensity, roof, label=f"{name}, {peak / 1e9:,.0f} Gop/s", **style)
        for i, *at in shown:
            roofs.plot(*at, MARKERS[i % len(MARKERS)], color=COLOURS[-1])
            roofs.annotate(str(i + 1), at, xytext=(4, 3), textcoords="offset points", fontsize=7)
        roofs.set(
            xscale="log", yscale="log", xlabel="operations per byte that must move", ylabel="Gop/s",
            title=f"memory: {bandwidth / 1e9:.0f} GB/s",
        )  # fmt: skip
        roofs.legend(loc="lower center", bbox_to_anchor=(0.5, 1.02))
        roofs.grid(visible=True)
        names = [f"{i}  {one['name']}" for i, one in enumerate(points, 1)]
        percents = [one["percent_of_limit"] for one in points]
        drawn = bars.barh(names, percents, color=COLOURS[0], height=0.6)
        shares = [f" {one['percent_of_limit']:.0f}% of {one['limited_by']}" for one in points]
        bars.bar_label(drawn, shares, fontsize=7)
        bars.tick_params("y", labelsize=7)
        bars.invert_yaxis()
        bars.margins(x=0.35)
        bars.set(xlim=(0, None), xlabel="percent of this machine's limit")
        bars.grid(visible=True, axis="x")
    return figure


def points_of(rows):
    """Return the kernels among the rows of bench.tables."""
    # ids are shorter than the cases in words
    kernels = (row | row[OURS] for row in rows if row["question"] == KERNELS)
    return [row | {"name": row["id"].removesuffix(", kernel")} for row in kernels]


def main():
    rows = json.loads(RECORD.read_text("utf8"))
    here = [row for row in rows if row["cpu"] == cpu_name()]
    draw(points_of(here), *limits.roofs()).savefig(FIGURE, dpi=130)


if __name__ == "__main__":
    main()

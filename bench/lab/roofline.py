"""Kernels below the limits of this machine: `python -m bench.lab.roofline` draws a figure.

Each of ten kernels that take more than a millisecond is called in turns with small probes of what
bounds it (bench/lab/limits.py). The figure is docs/figures/roofline.png; run it on a quiet machine.
"""

from functools import partial
from pathlib import Path

import numpy as np

import fastcos
from bench import data
from bench.lab import limits
from bench.lab.markdown import print_table
from bench.lab.timing import seconds
from fastcos.plots.style import COLOURS, MARKERS, figure_style, line_style

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "roofline.png"
TURNS = 7


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


def index_search(queries, n, d):
    index = fastcos.SimilarityIndex().fit(data.gaussian(n, d))
    rows = data.gaussian(queries, d, seed=1)
    return partial(index.search, rows, 10), limits.search_work(queries, n, d, 10)


def self_join(n, d):
    return partial(fastcos.top_k, data.gaussian(n, d), k=10), limits.search_work(n, n, d, 10)


def product(function, work, shape, columns):
    X = data.interactions(*shape)
    A = data.gaussian(X.shape[0] if function is fastcos.rmatmul else X.shape[1], columns)
    return partial(function, X, A), work(X, columns)


MIDDLE, LARGE = (40_000, 20_000, 800_000), (100_000, 20_000, 6_000_000)
# Name, and a function that prepares the call and says what it must do.
KERNELS = (
    ("self-join 20,000 x 128", partial(self_join, 20_000, 128)),
    ("self-join 10,000 x 384", partial(self_join, 10_000, 384)),
    ("self-join 10,000 x 768", partial(self_join, 10_000, 768)),
    ("one query, 100,000 x 768", partial(index_search, 1, 100_000, 768)),
    ("256 queries, 100,000 x 768", partial(index_search, 256, 100_000, 768)),
    ("X A, 0.8 M non-zeros, 64 columns",
     partial(product, fastcos.matmul, limits.product_work, MIDDLE, 64)),
    ("X'Y, 0.8 M non-zeros, 64 columns",
     partial(product, fastcos.rmatmul, limits.product_work, MIDDLE, 64)),
    ("X'(X A), 0.8 M non-zeros, 64 columns",
     partial(product, fastcos.gram_matmul, limits.gram_work, MIDDLE, 64)),
    ("X A, 6 M non-zeros, 64 columns",
     partial(product, fastcos.matmul, limits.product_work, LARGE, 64)),
    ("X'(X A), 6 M non-zeros, 64 columns",
     partial(product, fastcos.gram_matmul, limits.gram_work, LARGE, 64)),
)  # fmt: skip


def measure(name, prepare):
    """Return a kernel's point: its work, its seconds, and its share of the limit."""
    call, work = prepare()
    call()
    limit = limits.Limit(work)
    turns = [(limit.seconds(), seconds(call)) for _ in range(TURNS)]
    # The quarter of the turns that other work on the machine left alone.
    least, spent = np.quantile(turns, 0.25, axis=0)
    return {
        "name": name, "operations": 2 * work.multiply_adds, "bytes": work.bytes,
        "seconds": float(np.median(turns, axis=0)[1]),
        "percent_of_limit": float(100 * least / spent), "limited_by": limit.bound,
    }  # fmt: skip


def main():
    points = [measure(*kernel) for kernel in KERNELS]
    header = "name", "seconds", "percent_of_limit", "limited_by"
    print_table("lrrl", header, ([point[column] for column in header] for point in points))
    draw(points, *limits.roofs()).savefig(FIGURE, dpi=130)


if __name__ == "__main__":
    main()

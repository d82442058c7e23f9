"""Compare the speed of kernels with the limits of this machine: `python -m bench.lab.roofline`.

The script measures ten kernels that take more than a millisecond. Calls of a kernel alternate with
short probes of the resources that limit the speed of the kernel (bench/lab/limits.py). The script
draws the figure docs/figures/roofline.png; run the script on a quiet machine.
"""

from functools import partial
from pathlib import Path

import numpy as np

import fastcos
from bench import data
from bench.lab import limits
from bench.lab.markdown import print_table
from bench.lab.timing import seconds
from fastcos.plots.style import COLOURS, figure_style

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "roofline.png"
TURNS = 7
# The names that the figure uses for the resources of bench/lab/limits.py.
RESOURCES = {
    "tile": "integer multiplication", "float32": "float32 multiplication",
    "float64": "float64 multiplication", "read": "reading memory",
    "copy": "copying memory", "gather": "gathering rows",
}  # fmt: skip


def draw(points):
    """Return a figure with one bar per kernel: the speed of the kernel, in percent of its limit.

    The limit follows the roofline model (Williams, Waterman and Patterson, 2009): each resource
    needs a certain time for the work of the plain method, and the longest of these times is the
    limit. A point is a dict with the name of a kernel, its speed in percent of the limit, the
    quartiles of this percentage over the turns, and the resource that takes longest (limited_by).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 1.7 + 0.36 * len(points)), layout="constrained")
    colours = dict(
        zip(dict.fromkeys(point["limited_by"] for point in points), COLOURS, strict=False)
    )
    with figure_style(font_size=11, axes_titlesize=12, axes_labelsize=10):
        ax = figure.subplots()
        for position, point in enumerate(points):
            percent, resource = point["percent_of_limit"], point["limited_by"]
            ends = point["lower_percent"], point["upper_percent"]
            ax.barh(position, percent, color=colours[resource], height=0.62)
            ax.plot(ends, (position, position), color=COLOURS[-1], linewidth=1.2)
            ax.annotate(f"{percent:.0f} %", (max(*ends, percent), position), xytext=(6, -4),
                        textcoords="offset points",
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
        for resource, colour in colours.items():
            ax.barh(0, 0, color=colour, label=RESOURCES[resource])
        ax.axvline(100, color=COLOURS[-1], linewidth=1)
        ax.annotate("limit of the plain method", (100, -0.75), xytext=(6, 0),
                    textcoords="offset points", va="center")  # fmt: skip
        ax.set_yticks(range(len(points)), [point["name"] for point in points])
        ax.tick_params(axis="y", length=0)
        max_percent = max(point["upper_percent"] for point in points)
        ax.set(
            xlim=(0, 1.12 * max(100, max_percent)),
            ylim=(len(points) - 0.5, -1.1),
            xlabel="percent of the limit; thin lines: the middle half of the turns",
            title="Rates of the kernels beside the limit of the plain method",
        )  # fmt: skip
        ax.spines[["top", "right"]].set_visible(False)
        figure.legend(title="limited by", loc="outside lower center", ncols=3, frameon=False)
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
# For each kernel, its name, and a function that returns a call of the kernel and the work of the
# call.
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
    """Measure a kernel and its limit alternately; return a point in the format of `draw`."""
    call, work = prepare()
    call()
    limit = limits.Limit(work)
    turns = [(limit.seconds(), seconds(call)) for _ in range(TURNS)]
    percents = [100 * limit_seconds / call_seconds for limit_seconds, call_seconds in turns]
    # The first quartile of the times is used, because other work on the machine slows down only
    # some turns.
    limit_seconds, call_seconds = np.quantile(turns, 0.25, axis=0)
    return {
        "name": name, "seconds": float(np.median(turns, axis=0)[1]),
        "percent_of_limit": float(100 * limit_seconds / call_seconds), "limited_by": limit.bound,
        "lower_percent": float(np.quantile(percents, 0.25)),
        "upper_percent": float(np.quantile(percents, 0.75)),
    }  # fmt: skip


def main():
    points = [measure(*kernel) for kernel in KERNELS]
    header = "name", "seconds", "percent_of_limit", "limited_by"
    print_table("lrrl", header, ([point[column] for column in header] for point in points))
    peaks, bandwidth = limits.roofs()
    rates = ", ".join(f"{name} {peak / 1e9:,.0f} Gop/s" for name, peak in peaks.items())
    print(f"\nThis machine: {rates}, memory {bandwidth / 1e9:.0f} GB/s")
    draw(points).savefig(FIGURE, dpi=130)


if __name__ == "__main__":
    main()

"""Draws the figures of these pages: python docs/figures.py, about a minute on two cores."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import fastcos
from fastcos.plots import ExponentGridDisplay, RescalingsDisplay, RobustnessDisplay
from fastcos.plots.style import COLOURS

FOLDER = Path(__file__).parent / "figures"
DOTS_PER_INCH = 130


def kernel() -> Figure:
    """Draw the steps of the dense search for one pair."""
    figure = Figure(figsize=(8.6, 3.1), layout="constrained")
    ax = figure.subplots()
    ax.set_xlim(0, 100)
    ax.set_ylim(0, 34)
    ax.axis("off")
    steps = (
        (
            "1  pack",
            "rows to int8 codes\nin panels; the rounding\nof each row is kept",
            "p x d bytes",
        ),
        (
            "2  screen",
            "a tile of integer scores\nin registers, compared\nwith a rigorous bound",
            "every pair",
        ),
        (
            "3  score",
            "float64, fixed order,\nfrom the rows\nthat were given",
            "the few that are left",
        ),
        ("4  order", "the k best by score,\nequal scores by\nlower index", "k per query"),
    )
    for number, (title, text, amount) in enumerate(steps):
        left = 1 + number * 25.2
        deciding = number >= 2
        ax.add_patch(
            Rectangle(
                (left, 8),
                20.5,
                22,
                facecolor=COLOURS[number] + "22",
                edgecolor=COLOURS[number],
                linewidth=2 if deciding else 1,
                linestyle="-" if deciding else "--",
            )
        )
        ax.text(left + 1.2, 27, title, va="center", weight="bold", fontsize=11)
        ax.text(left + 1.2, 17.5, text, va="center", fontsize=9, linespacing=1.5)
        ax.text(left + 10.2, 4.5, amount, ha="center", va="center", fontsize=9, style="italic")
        if number < 3:
            ax.annotate(
                "", (left + 25, 19), (left + 20.7, 19), arrowprops={"arrowstyle": "->", "lw": 1.5}
            )
    ax.text(51.5, 32.5, "solid: decides the answer", ha="left", va="center", fontsize=9)
    ax.text(1, 32.5, "dashed: only drops what cannot be a neighbour", va="center", fontsize=9)
    return figure


def prefixes() -> Figure:
    """Draw the share of pairs that a bound by the leading principal axes leaves, at k = 10."""
    rng = np.random.default_rng(0)
    n, depth, widths = 20_000, 384, range(16, 257, 16)
    scales = np.arange(1, depth + 1) ** -0.5
    centres = 0.7 * rng.standard_normal((200, depth)) * scales
    clustered = centres[rng.integers(0, 200, n)] + 0.7 * rng.standard_normal((n, depth)) * scales
    sets = {"clusters, a spectrum that decays": clustered,
            "independent columns": rng.standard_normal((n, depth))}  # fmt: skip
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    ax = figure.subplots()
    for (name, rows), colour in zip(sets.items(), COLOURS, strict=False):
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows @ np.linalg.eigh(rows.T @ rows)[1][:, ::-1]
        queries = rows[:100]
        scores = queries @ rows.T
        least = np.partition(scores, n - 11, axis=1)[:, n - 11, None]  # besides the query itself
        shares = []
        for p in widths:
            rest = np.sqrt(np.square(rows[:, p:]).sum(axis=1))
            bounds = queries[:, :p] @ rows[:, :p].T + rest[:100, None] * rest
            shares.append(100 * (bounds >= least).mean())
        ax.plot(widths, shares, color=colour, label=name)
    ax.set_yscale("log")
    ax.set_xlabel(f"principal axes of {depth}")
    ax.set_ylabel("pairs left, %")
    ax.legend(frameon=False)
    return figure


def main() -> None:
    """Simulate at the size of the paper, fit, and draw."""
    FOLDER.mkdir(exist_ok=True)
    for draw in (kernel, prefixes):
        draw().savefig(FOLDER / f"{draw.__name__}.png", dpi=DOTS_PER_INCH)
    data = fastcos.simulate_interactions(random_state=0)
    comparison = fastcos.compare(data.X, data.item_cluster, regularization=10_000)
    model = comparison.models["dropout"]
    report = fastcos.audit(
        model.item_embeddings(), model.transform(data.X), k=10, condition=1.1, random_state=0
    )
    for name, display in (
        ("rescalings", RescalingsDisplay.from_estimator(model)),
        ("robustness", RobustnessDisplay(report)),
        ("exponents", ExponentGridDisplay.from_comparison(comparison)),
    ):
        display.plot().figure_.savefig(FOLDER / f"{name}.png", dpi=DOTS_PER_INCH)
    for point in report.robustness:
        print(point)


if __name__ == "__main__":
    main()

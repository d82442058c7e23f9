"""Draw the figures of these pages: python docs/figures.py, about a minute on two cores."""

import re
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import fastcos
from fastcos.plots import (
    ExponentGridDisplay,
    RescalingsDisplay,
    RobustnessDisplay,
    SimilarityMapsDisplay,
)
from fastcos.plots.style import COLOURS, GRID_COLOUR

FOLDER = Path(__file__).parent / "figures"
DOTS_PER_INCH = 130
# The background of a label, which hides grid lines behind the letters.
CARD = {"facecolor": "white", "edgecolor": "none", "pad": 1}


def clustered_rows(rng: np.random.Generator, n: int, depth: int) -> np.ndarray:
    """Return rows in 200 clusters; the spectrum of the rows decays as in text embeddings."""
    scales = np.arange(1, depth + 1) ** -0.5
    centres = 0.7 * rng.standard_normal((200, depth)) * scales
    return centres[rng.integers(0, 200, n)] + 0.7 * rng.standard_normal((n, depth)) * scales


def candidates_per_query(rows: np.ndarray, k: int) -> float:
    """Return how many rows per query, on average, a bound from 8-bit codes does not rule out.

    The mean is taken over 100 queries.
    """
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((rows.shape[1],) * 2))[0]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True) @ rotation
    scales = np.abs(rows).max(axis=1, keepdims=True) / 127
    codes = np.rint(rows / scales) * scales
    errors = np.linalg.norm(rows - codes, axis=1)
    queries = slice(100)
    kth_scores = np.sort(rows[queries] @ rows.T, axis=1)[:, -k, None]
    code_norms = np.linalg.norm(codes, axis=1)
    bounds = codes[queries] @ codes.T + errors[queries, None] * code_norms + errors
    return float((bounds >= kth_scores).sum(axis=1).mean())


def kernel() -> Figure:
    """Draw the steps of the dense search, with the number of rows that remain for one query."""
    n, k = 20_000, 10
    left_by_screen = candidates_per_query(clustered_rows(np.random.default_rng(0), n, 384), k)
    figure = Figure(figsize=(8.4, 2.9), layout="constrained")
    ax = figure.subplots()
    ax.set(xlim=(-0.3, 100.3), ylim=(-4.5, 33))
    ax.axis("off")
    steps = (
        ("1 Pack", "every row once\nas 8-bit integers;\nits rounding error\nis kept"),
        ("2 Screen", "every pair:\na score in integers\nand a proved bound\non its error"),
        ("3 Score", "the few pairs that\nmay be neighbours,\nin float64, from the\noriginal rows"),
        ("4 Order", "the best k by score,\nequal scores by the\nlower index"),
    )
    for number, (title, text) in enumerate(steps):
        left, decides = number * 26.2, number >= 2
        colour = COLOURS[1] if decides else COLOURS[0]
        ax.add_patch(Rectangle((left, 6), 21.4, 20, facecolor="white", edgecolor=colour,
                               linewidth=2, linestyle="-" if decides else "--"))  # fmt: skip
        ax.text(left + 1.2, 22.5, title, va="center", weight="bold", fontsize=14, color=colour)
        ax.text(left + 1.2, 18, text, va="top", fontsize=11, linespacing=1.35)
        if number < 3:
            arrow = {"arrowstyle": "->", "lw": 1.8}
            ax.annotate("", (left + 26, 15), (left + 21.6, 15), arrowprops=arrow)
    counts = f"{n:,} rows", f"about {left_by_screen:.0f} of the rows", f"the nearest {k} rows"
    for number, text in zip((0, 1, 3), counts, strict=True):
        ax.text(number * 26.2 + 10.7, 3.5, text, ha="center", va="top", fontsize=11, weight="bold")
    ax.text(50, -3.2, "Below the boxes: how many rows are left for one query, among simulated rows "
            "of 384 columns.", ha="center", fontsize=10, color="#555555")  # fmt: skip
    ax.text(0, 30, "only drops rows that cannot be neighbours", fontsize=12, color=COLOURS[0])
    ax.text(52.4, 30, "decides the answer", fontsize=12, color=COLOURS[1])
    return figure


def projection() -> Figure:
    """Plot the share of pairs that are not ruled out by a bound from the leading principal axes.

    A pair of a query and a row is ruled out if the bound proves that the row is not among the 10
    nearest rows of the query.
    """
    rng = np.random.default_rng(0)
    n, depth, widths = 20_000, 384, range(16, 257, 16)
    sets = {"clustered rows, whose spectrum decays": clustered_rows(rng, n, depth),
            "independent columns: no gain": rng.standard_normal((n, depth))}  # fmt: skip
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    ax = figure.subplots()
    for (name, rows), colour in zip(sets.items(), COLOURS, strict=False):
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows @ np.linalg.eigh(rows.T @ rows)[1][:, ::-1]
        queries = rows[:100]
        scores = queries @ rows.T
        least = np.partition(scores, n - 11, axis=1)[:, n - 11, None]
        shares = []
        for p in widths:
            rest = np.sqrt(np.square(rows[:, p:]).sum(axis=1))
            bounds = queries[:, :p] @ rows[:, :p].T + rest[:100, None] * rest
            shares.append(100 * (bounds >= least).mean())
        ax.plot(widths, shares, color=colour, linewidth=2)
        ax.annotate(name, (widths[5], shares[5]), xytext=(4, 12 if shares[5] < 50 else -18),
                    color=colour, textcoords="offset points", fontsize=12)  # fmt: skip
    ax.set_yscale("log")
    ax.set_yticks([0.1, 1, 10, 100], ["0.1 %", "1 %", "10 %", "100 %"])
    ax.set_xlabel(f"number of principal axes in the short code, of {depth} columns")
    ax.set_title(f"Share of the pairs that need the full code ({n:,} simulated rows)", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(visible=True, axis="y", color=GRID_COLOUR)
    return figure


def state_of(page: str) -> str:
    """Return the processor, the number of cores, the date and the commit that a page states."""
    machine = r"(\d+ cores) of (?:an )?((?:AMD|Intel)[^,.;]*)"
    ((cores, name, text),) = (
        (*found.groups(), text)
        for text in map(" ".join, map(str.split, page.split("\n\n")))
        if (found := re.search(machine, text))
    )
    state = max(re.findall(r"\d{4}-\d\d-\d\d, commit [0-9a-f]{10}", text))  # of the newest rows
    return f"{name}, {cores}, {state}"


def threads() -> Figure:
    """Plot the times of docs/dev/benchmarks.md against the number of threads."""
    page = (FOLDER.parent / "dev" / "benchmarks.md").read_text("utf8")
    rows = dict(re.findall(r"^\| ([^|]+?: (?:fastcos|FAISS)) \|(.*)\|$", page, re.MULTILINE))
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    for ax, work in zip(panels, ("1 query", "1,000 queries"), strict=True):
        for name, colour in (("FAISS", "#777777"), ("fastcos", COLOURS[0])):
            (cells,) = (cells for label, cells in rows.items()
                        if label.startswith(f"{work},") and label.endswith(name))  # fmt: skip
            times = [float(cell) for cell in cells.split("|")]
            ax.plot([1, 2, 4, 8, 16], times, "o-", color=colour, linewidth=2)
            for thread, time in ((1, times[0]), (16, times[-1])):
                text = f"{name}: {time:g} ms" if thread == 1 else f"{time:g} ms"
                ax.annotate(text, (thread, time), xytext=(4, 8), textcoords="offset points",
                            color=colour, fontsize=11, bbox=CARD)  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel="threads", xlim=(0.85, 28))
        ax.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
        ax.set_yticks([1, 10, 100, 1000], ["1 ms", "10 ms", "100 ms", "1 s"])
        ax.set_ylim(min(ax.get_ylim()[0], 0.6), ax.get_ylim()[1] * 1.6)
        ax.minorticks_off()
        ax.set_title(f"{work} among 100,000 x 384", loc="left", fontsize=12)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(visible=True, axis="y", color=GRID_COLOUR)
    figure.supxlabel(f"{state_of(page)}. Lower is faster.", fontsize=10, color="#555555")
    return figure


def recall() -> Figure:
    """Draw the speed and the recall of each library, from examples/service_benchmark.md."""
    page = (FOLDER.parents[1] / "examples" / "service_benchmark.md").read_text("utf8")
    row = r"^\| (\S+) \| 1 \|.*\| ([\d.]+) \| ([\d.]+) of \d+ \|[^|]*\|$"
    points = re.findall(row, page, re.MULTILINE)
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    ax = figure.subplots()
    names = {"faiss": "FAISS", "hnswlib-95": "hnswlib", "hnswlib-99": "hnswlib"}
    ax.axvline(1, color="black", linewidth=0.8, linestyle=":", zorder=0)
    ax.annotate("exact", (1, 2000), xytext=(6, 0), textcoords="offset points", fontsize=11)
    # One curve connects the results of an approximate index under its different settings.
    graph = [(float(share), float(rate)) for name, rate, share in points if "hnswlib" in name]
    ax.plot(*zip(*graph, strict=True), color="#777777", linewidth=1, zorder=0)
    for name, rate, share in points:
        colour = COLOURS[0] if name == "fastcos" else "#777777"
        place, is_exact = (float(share), float(rate)), float(share) == 1
        to_the_left = is_exact and name != "usearch"  # Two labels would touch.
        ax.plot(*place, "o" if is_exact else "^", color=colour, markersize=9)
        decimals = 0 if float(rate) >= 100 else 1
        ax.annotate(f"{names.get(name, name)}: {float(rate):,.{decimals}f}", place, fontsize=11,
                    xytext=(-10, -4) if to_the_left else (10, -4 if is_exact else 6),
                    textcoords="offset points", ha="right" if to_the_left else "left",
                    color=colour, bbox=CARD)  # fmt: skip
    ax.set(yscale="log", xlim=(0.95, 1.012), ylim=(1, 4000))
    ax.set_xticks([0.95, 0.96, 0.97, 0.98, 0.99, 1])
    ax.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    ax.set_xlabel("recall: share of the answers among the true ten nearest")
    figure.supxlabel(f"{state_of(page)}. Higher is faster.", fontsize=10, color="#555555")
    ax.set_title("Requests per second, one at a time, among 1,000,000 x 384", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(visible=True, axis="y", color=GRID_COLOUR)
    return figure


def main() -> None:
    """Simulate at the size of the paper, fit, and draw."""
    FOLDER.mkdir(exist_ok=True)
    for draw in (kernel, projection, threads, recall):
        draw().savefig(FOLDER / f"{draw.__name__}.png", dpi=DOTS_PER_INCH)
    data = fastcos.simulate_interactions(random_state=0)
    comparison = fastcos.compare(data.X, data.item_cluster, regularization=10_000)
    model = comparison.models["dropout"]
    report = fastcos.audit(
        model.item_embeddings(), model.transform(data.X), k=10, condition=1.2, random_state=0
    )
    for name, display in (
        ("rescalings", RescalingsDisplay.from_estimator(model)),
        ("robustness", RobustnessDisplay(report)),
        ("exponents", ExponentGridDisplay.from_comparison(comparison)),
        ("../figure1", SimilarityMapsDisplay.from_comparison(comparison)),
    ):
        display.plot().figure_.savefig(FOLDER / f"{name}.png", dpi=DOTS_PER_INCH)
    for point in report.robustness:
        print(point)


if __name__ == "__main__":
    main()

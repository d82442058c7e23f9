"""Measure how the recovery of labels depends on rank, λ and D, on simulated interactions.

    python examples/sensitivity.py        # ten presets with ten seeds each; resumes a stopped run
    python examples/sensitivity.py --users 300 --items 60 --preset zipf_pareto_focused --seeds 1
    python examples/sensitivity.py --curves docs/sensitivity.csv      # draws the figure again

For each data set (a preset and a seed), one SVD yields the models of every rank and λ. Each model
has two kinds of scores: how well its cosines recover the clusters under several rescalings D, and
how well it predicts held-out interactions. The predictions do not depend on D. The script writes
sensitivity.csv, curves.csv (the means that the figure shows), sensitivity.png and sensitivity.json.
"""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.stats

from fastcos import io, metrics, query_metric, simulate_interactions
from fastcos.comparison.rank import (
    count_above,
    fit_spectrum,
    largest_gap,
    shuffled_users,
    smallest_near_best,
)
from fastcos.comparison.tasks.held_out import HeldOutTask
from fastcos.models import Simulation, presets
from fastcos.models.linear_mf import LinearMF
from fastcos.plots.style import COLOURS, figure_style, line_style

RANKS = (2, 3, 4, 5, 6, 8, 12, 20, 50, 100)
# The rank of the paper.
PAPER_RANK = 50
# Factors by which the λ of Eq. 1 in the paper is multiplied. The λ of Eq. 2 is the square root of
# the λ of Eq. 1, so multiplying the λ of Eq. 1 by 100 multiplies the λ of Eq. 2 by 10.
STRENGTHS = (0.01, 1.0, 100.0)
# The paper uses λ = 10,000 in Eq. 1 for 20,000 users. The entries of X'X grow in proportion to the
# number of users, so λ must grow in the same proportion.
REGULARIZATION_PER_USER = 0.5
# RESCALINGS contains the named rescalings of Eq. 1. FORMS contains these rescalings and two other
# similarities that are computed from the same SVD.
RESCALINGS = ("orthonormal", "identity", "weights", "balanced", "smoothed")
FORMS = (*RESCALINGS, "query_metric", "eq2")
# The similarities that are scored for every λ.
_FORMS_OF_EVERY_STRENGTH = ("identity", "balanced", "query_metric", "eq2")
# The number of evaluated users. With this number, the standard error of a mean NDCG is below 0.01.
# All ranks are compared on the same users.
_N_USERS = 1000
CRITERIA = ("by_held_out", "by_gap", "by_parallel_analysis")


class SensitivityRow(NamedTuple):
    """The scores of one similarity of one model.

    Attributes
    ----------
    preset : str
    seed : int
    criterion : str
        The criterion that chose the rank, or "" if the row belongs to the grid of all ranks.
    rank : int
    strength : float
        λ divided by the λ of the paper.
    form : str
        The rescaling, "query_metric", or "eq2".
    auc : float
        Pairwise AUC of the clusters.
    map_at_r : float
        MAP@R of the clusters; it is NaN if the strength is not 1.
    ndcg : float
        NDCG@20 of the predictions of Eq. 1 for held-out interactions; it is the same for all forms.
    """

    preset: str
    seed: int
    criterion: str
    rank: int
    strength: float
    form: str
    auc: float
    map_at_r: float
    ndcg: float


def score_simulation(simulation: Simulation, preset: str, seed: int) -> list[SensitivityRow]:
    """Score one data set at every rank of the grid, and at the ranks that three criteria choose."""
    random = np.random.default_rng(seed)
    X, clusters = simulation.X, simulation.item_cluster
    task = HeldOutTask.split(X, random, _N_USERS)
    ranks = [rank for rank in RANKS if rank <= min(X.shape)]
    paper = REGULARIZATION_PER_USER * X.shape[0]
    spectrum = fit_spectrum(task.training_X, ranks[-1], paper, seed)
    noise = LinearMF(ranks[-1], random_state=seed).fit(shuffled_users(task.training_X, random))
    rows = []
    for strength in STRENGTHS:
        model = spectrum.reregularized("dropout", strength * paper)
        users, items = model.user_embeddings(task.training_X), model.item_embeddings()
        ndcg = np.stack([task.score_factors(users[:, :k], items[:, :k]).ndcg for k in ranks])
        means = dict(zip(ranks, ndcg.mean(axis=1).tolist(), strict=True))
        forms = FORMS if strength == 1 else _FORMS_OF_EVERY_STRENGTH
        embeddings = _embeddings(model, forms, users, strength * paper)
        works = [("", rank) for rank in ranks]
        if strength == 1:
            values = model.singular_values_
            works += [
                ("by_held_out", smallest_near_best(ranks, ndcg)),
                ("by_gap", largest_gap(values.astype(np.float64))),
                ("by_parallel_analysis", count_above(values, noise.singular_values_)),
            ]
        recovery = {
            (rank, form): _recovery(embeddings[form](rank), clusters, with_map=strength == 1)
            for rank in dict.fromkeys(rank for _, rank in works)
            for form in forms
        }
        for criterion, rank in works:
            for form in forms:
                place = preset, seed, criterion, rank, strength, form
                ndcg_here = means.get(rank, np.nan)
                rows.append(SensitivityRow(*place, *recovery[rank, form], ndcg_here))
    return rows


def _embeddings(model: LinearMF, forms: Sequence[str], users: Any, strength: float) -> Any:
    """For each form, return a function that returns the item embeddings of a given rank."""

    def of_columns(rows: Any) -> Any:
        return lambda rank: rows[:, :rank]

    found = {}
    for form in forms:
        if form == "eq2":
            # The λ of Eq. 2 is the square root of the λ of Eq. 1, so that both objectives suppress
            # about the same directions.
            other = model.reregularized("weight_decay", float(np.sqrt(strength)))
            found[form] = of_columns(other.item_embeddings())
        elif form == "query_metric":
            items = model.item_embeddings()
            found[form] = lambda rank, P=users, B=items: query_metric(P[:, :rank]).transform(
                B[:, :rank]
            )
        else:
            found[form] = of_columns(model.item_embeddings(form))
    return found


def _recovery(
    items: Any, clusters: npt.NDArray[np.int64], *, with_map: bool
) -> tuple[float, float]:
    """Return the pairwise AUC and MAP@R; 0.5 and 0 if all embeddings are zero."""
    if not items.any():
        return 0.5, 0.0
    auc = metrics.pair_auc(items, clusters, exact=False).value
    return auc, metrics.map_at_r(items, clusters).value if with_map else np.nan


def mean_interval(values: Any) -> tuple[float, float, float]:
    """Return the mean and the ends of its 95 % t interval."""
    values = np.asarray(values, np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return mean, mean, mean
    width = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)
    return mean, mean - float(width), mean + float(width)


def conclusions(rows: Sequence[SensitivityRow]) -> list[str]:
    """Return the results of the study in five sentences, with 95 % t intervals over data sets."""
    sets = [_DataSet(key, rows) for key in dict.fromkeys((row.preset, row.seed) for row in rows)]
    n, paper = len(sets), sets[0].paper_rank

    def over(value: Any) -> str:
        return "{:.3f} [{:.3f}, {:.3f}]".format(*mean_interval([value(one) for one in sets]))

    def median(value: Any) -> str:
        return f"{np.median([value(one) for one in sets]):g}"

    def at(criterion: str) -> Any:
        return lambda one: one.chosen[criterion]["identity"].auc - one.auc(paper, "identity")

    def loss(one: "_DataSet") -> float:
        return one.auc(one.best_rank, "identity") - one.chosen["by_held_out"]["identity"].auc

    def count(holds: Any) -> str:
        return f"{sum(bool(holds(one)) for one in sets)} of {n}"

    return [
        f"At rank {paper}, the AUC of the best rescaling exceeds the AUC of the worst by "
        f"{over(lambda one: one.spread(paper))}; at the best rank (median "
        f"{median(lambda one: one.best_rank)}), by "
        f"{over(lambda one: one.spread(one.best_rank))}.",
        "Held-out ranking chooses a rank with the median "
        f"{median(lambda one: one.chosen['by_held_out']['identity'].rank)}; the AUC of D = I is "
        f"then lower than at the best rank by {over(loss)}.",
        f"Compared with rank {paper}, the AUC of D = I is higher by {over(at('by_held_out'))} at "
        f"the rank that held-out ranking chooses, by {over(at('by_parallel_analysis'))} at that of "
        f"parallel analysis, and by {over(at('by_gap'))} at that of the largest gap; the best D at "
        f"rank {paper}, chosen by the clusters, exceeds D = I by "
        f"{over(lambda one: one.best_d_gain(paper))}.",
        f"At rank {paper} and D = I, the AUC of the best λ exceeds that of the worst by "
        f"{over(lambda one: one.strength_range(paper, 'auc'))}; the λ with the best NDCG is also "
        f"the λ with the best AUC in {count(lambda one: one.same_strength(paper))} data sets.",
        f"At rank {paper}, the D with orthonormal columns is the worst in "
        f"{count(lambda one: one.worst(paper) == 'orthonormal')} data sets; the AUC of the query "
        f"metric is within 0.01 of the best similarity in "
        f"{count(lambda one: one.lag(paper, 'query_metric') <= 0.01)}, and that of Eq. 2 in "
        f"{count(lambda one: one.lag(paper, 'eq2') <= 0.01)}.",
    ]


def summary_table(rows: Sequence[SensitivityRow]) -> tuple[list[str], list[list[str]]]:
    """Return the header of a table, and one line of mean AUCs for each preset.

    The means are over the seeds of the preset.
    """
    presets = list(dict.fromkeys(row.preset for row in rows))
    lines = []
    for preset in presets:
        own = [row for row in rows if row.preset == preset]
        seeds = dict.fromkeys(row.seed for row in own)
        sets = [_DataSet((preset, seed), own) for seed in seeds]
        paper = sets[0].paper_rank
        scores = [[one.auc(paper, form) for form in FORMS] for one in sets]
        scores_of_rank = [
            (one.chosen["by_held_out"]["identity"].auc, one.auc(one.best_rank, "identity"))
            for one in sets
        ]
        cells = [*np.mean(scores, axis=0), *np.mean(scores_of_rank, axis=0)]
        best = f"{np.median([one.best_rank for one in sets]):g}"
        lines.append([preset, *(f"{cell:.3f}" for cell in cells), best])
    names = [form.replace("_", " ") for form in FORMS]
    return ["preset", *names, "I, held-out rank", "I, best rank", "best rank"], lines


class _DataSet:
    """The rows of one data set; a rank, a strength and a form identify a row."""

    def __init__(self, key: tuple[str, int], rows: Sequence[SensitivityRow]) -> None:
        own = [row for row in rows if (row.preset, row.seed) == key]
        grid = [row for row in own if not row.criterion]
        self._rows = {(row.rank, row.strength, row.form): row for row in grid}
        self.chosen: dict[str, dict[str, SensitivityRow]] = {
            name: {row.form: row for row in own if row.criterion == name} for name in CRITERIA
        }
        ranks = sorted({row.rank for row in grid})
        self.paper_rank = max(rank for rank in ranks if rank <= PAPER_RANK)
        self.best_rank = max(ranks, key=lambda rank: self.auc(rank, "identity"))

    def auc(self, rank: int, form: str) -> float:
        return self._rows[rank, 1.0, form].auc

    def spread(self, rank: int) -> float:
        aucs = [self.auc(rank, form) for form in RESCALINGS]
        return max(aucs) - min(aucs)

    def worst(self, rank: int) -> str:
        return min(RESCALINGS, key=lambda form: self.auc(rank, form))

    def lag(self, rank: int, form: str) -> float:
        return max(self.auc(rank, other) for other in FORMS) - self.auc(rank, form)

    def best_d_gain(self, rank: int) -> float:
        return max(self.auc(rank, form) for form in RESCALINGS) - self.auc(rank, "identity")

    def _by_strength(self, rank: int, score: str) -> list[float]:
        return [getattr(self._rows[rank, one, "identity"], score) for one in STRENGTHS]

    def strength_range(self, rank: int, score: str) -> float:
        return float(np.ptp(self._by_strength(rank, score)))

    def same_strength(self, rank: int) -> bool:
        best = [int(np.argmax(self._by_strength(rank, score))) for score in ("auc", "ndcg")]
        return best[0] == best[1]


# A panel shows one curve per form. For each form: its name in the legend, and the number of the
# style of its curve. A rescaling has the same colour as in the figure of the named rescalings
# (docs/figures/rescalings.png).
_SHOWN = {
    "orthonormal": (r"Eq. 1, $D = S^{1/2}$ (orthonormal)", 0),
    "identity": (r"Eq. 1, $D = I$", 1),
    "balanced": (r"Eq. 1, $D = \Sigma^{-1/2}$ (balanced)", 3),
    "query_metric": ("Eq. 1, query metric", 6),
    "eq2": ("Eq. 2", 2),
}


class CurvePoint(NamedTuple):
    """The mean of one score over all seeds, for one preset and one rank, with the λ of the paper.

    Attributes
    ----------
    preset : str
    score : str
        "ndcg" for the NDCG; otherwise the name of the form for which the AUC is computed.
    rank : int
    mean, low, high : float
        The mean, and the ends of its 95 % t interval.
    """

    preset: str
    score: str
    rank: int
    mean: float
    low: float
    high: float


def curves(rows: Sequence[SensitivityRow]) -> list[CurvePoint]:
    """Return the points of the figure, ordered by preset, and by rank within a preset."""
    grid = [row for row in rows if row.strength == 1 and not row.criterion]
    scores: dict[tuple[str, str, int], list[float]] = {
        (row.preset, score, row.rank): [] for row in grid for score in (*_SHOWN, "ndcg")
    }
    for row in grid:
        if row.form in _SHOWN:
            scores[row.preset, row.form, row.rank].append(row.auc)
        if row.form == "identity":
            scores[row.preset, "ndcg", row.rank].append(row.ndcg)
    return [CurvePoint(*key, *mean_interval(values)) for key, values in scores.items()]


_N_COLUMNS = 3
_CHANCE = 0.5
_RANK_TICKS = (2, 5, 12, 50)


@dataclass
class SensitivityDisplay:
    """The AUC of the clusters under several D, drawn against the rank; one panel per preset.

    Lines are means over seeds, and bands are the 95 % t intervals of these means. A vertical line
    marks the rank with the best mean NDCG of held-out interactions.

    Attributes
    ----------
    points : sequence of CurvePoint

    """

    points: Sequence[CurvePoint]
    figure_: Any = None

    def plot(self) -> Self:
        """Draw the figure."""
        from matplotlib.figure import Figure

        presets = list(dict.fromkeys(point.preset for point in self.points))
        n_columns = min(_N_COLUMNS, len(presets))
        # The legend is drawn in the free place after the last panel.
        n_lines = len(presets) // n_columns + 1
        with figure_style():
            self.figure_ = Figure(
                figsize=(2.45 * n_columns + 0.6, 1.9 * n_lines + 0.3), layout="constrained"
            )
            axes = self.figure_.subplots(
                n_lines, n_columns, squeeze=False, sharex=True, sharey=True
            ).ravel()
            for preset, ax in zip(presets, axes, strict=False):
                self._draw(ax, preset)
            for ax in axes[len(presets) :]:
                ax.set_axis_off()
            for ax in axes[max(0, len(presets) - n_columns) : len(presets)]:
                ax.tick_params(labelbottom=True)
            handles, names = axes[0].get_legend_handles_labels()
            axes[len(presets)].legend(handles, names, loc="upper left", borderaxespad=0)
            self.figure_.supxlabel("rank of the model", fontsize="medium")
            self.figure_.supylabel(f"AUC of the clusters ({_CHANCE} is chance)", fontsize="medium")
        return self

    def _draw(self, ax: Any, preset: str) -> None:
        of_preset = [point for point in self.points if point.preset == preset]
        for form, (label, number) in _SHOWN.items():
            line = [point for point in of_preset if point.score == form]
            ranks, style = [point.rank for point in line], line_style(number) | {"markersize": 3}
            low, high = [point.low for point in line], [point.high for point in line]
            ax.fill_between(ranks, low, high, color=style["color"], alpha=0.15, linewidth=0)
            ax.plot(ranks, [point.mean for point in line], label=label, **style)
        best = max((point for point in of_preset if point.score == "ndcg"), key=lambda p: p.mean)
        ax.axvline(
            best.rank, color=COLOURS[-1], linewidth=1, linestyle=":", zorder=0,
            label="rank of the best prediction",
        )  # fmt: skip
        ax.set_xscale("log")
        ticks = [rank for rank in _RANK_TICKS if rank <= ranks[-1]]
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.minorticks_off()
        ax.set_ylim(_CHANCE, 1.01)
        ax.set_title(preset)
        ax.grid(visible=True, axis="y")


def read_records(path: Path, kind: Any, types: Sequence[Any]) -> list[Any]:
    """Read a csv file; return one record of this kind per line, with fields of these types."""
    with path.open(newline="") as file:
        lines = list(csv.reader(file))[1:]
    return [
        kind(*(convert(cell) for convert, cell in zip(types, line, strict=True))) for line in lines
    ]


def rows_of(given: argparse.Namespace, parts: Path, name: str, seed: int) -> list[SensitivityRow]:
    """Return the rows of one data set, from its file if the file exists."""
    path = parts / f"{name}-{seed}-{given.users}-{given.items}-{given.clusters}.csv"
    if not path.exists():
        simulation = simulate_interactions(
            given.users, given.items, n_clusters=given.clusters, preset=name, random_state=seed
        )
        scored = score_simulation(simulation, name, seed)
        io.write_csv(path, SensitivityRow._fields, scored)
    types = (str, int, str, int, float, str, float, float, float)
    return read_records(path, SensitivityRow, types)


def save_figure(points: Sequence[CurvePoint], path: Path) -> None:
    """Draw the figure and save it."""
    SensitivityDisplay(points).plot().figure_.savefig(path, dpi=130)


def main() -> None:
    """Score the presets and seeds that the folder does not contain, and write all results."""
    parser = argparse.ArgumentParser(description="Sensitivity of label recovery to rank, λ and D.")
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--clusters", type=int, default=5)
    parser.add_argument("--preset", help="name of a preset (default: all presets)")
    parser.add_argument("--seeds", type=int, default=10, help="number of data sets per preset")
    parser.add_argument("--out", type=Path, default=Path("sensitivity"))
    parser.add_argument("--curves", type=Path, help="only draw the figure of this csv file")
    given = parser.parse_args()
    if given.curves is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        types = (str, str, int, float, float, float)
        save_figure(read_records(given.curves, CurvePoint, types), given.out / "sensitivity.png")
        return
    parts = given.out / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    names = [given.preset] if given.preset else list(presets())
    rows = []
    for name in names:
        for seed in range(given.seeds):
            rows += rows_of(given, parts, name, seed)
            print(f"{name}, seed {seed}: done", flush=True)
    sentences, (header, lines) = conclusions(rows), summary_table(rows)
    io.write_csv(given.out / "sensitivity.csv", SensitivityRow._fields, rows)
    table = [dict(zip(header, line, strict=True)) for line in lines]
    io.write_json(given.out / "sensitivity.json", {"conclusions": sentences, "auc": table})
    points = curves(rows)
    digits = [(*point[:3], *(f"{value:.4f}" for value in point[3:])) for point in points]
    io.write_csv(given.out / "curves.csv", CurvePoint._fields, digits)
    save_figure(points, given.out / "sensitivity.png")
    for line in [header, *lines]:
        print("  ".join(line))
    for number, sentence in enumerate(sentences, 1):
        print(f"{number}. {sentence}")


if __name__ == "__main__":
    main()

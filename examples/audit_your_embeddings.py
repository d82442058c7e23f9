"""Audit real embeddings, and embeddings of simulations with a known answer.

    python examples/audit_your_embeddings.py OUT                # simulated data only, seconds
    python examples/audit_your_embeddings.py OUT --data DATA    # also real data, minutes

DATA is a folder that contains the folders ml-latest-small (MovieLens), mtg (deck lists), glove50
and words (GloVe), and completejourney (groceries). For each case, the script writes the page of the
audit and its numbers to the folder OUT. It also writes the table summary.md and the figure
robustness.png for docs/howto/audit.md.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fastcos
from fastcos import io
from fastcos.plots import RobustnessDisplay
from fastcos.plots.html import audit_page
from fastcos.plots.style import COLOURS, figure_style
from fastcos.storage import provenance

DOTS_PER_INCH = 130


@dataclass
class Case:
    """Embeddings to audit, with the other arguments of fastcos.audit."""

    items: Any
    users: Any = None
    labels: Any = None
    popularity: Any = None
    trained_on: str = "unknown"


def factors(X: Any, rank: int, objective: str = "dropout", **known: Any) -> Case:
    """Fit a linear model to interactions, and return its user and item embeddings.

    λ has its default value. Let j be rank / 5, rounded up. With the default λ, dimension j has the
    shrinkage 1/2 in Eq. 1, and the shrinkage 0 in Eq. 2.
    """
    model = fastcos.LinearMF(rank, objective=objective, random_state=0).fit(X)
    users = model.user_embeddings(X)
    popularity = np.asarray((X != 0).sum(axis=0)).ravel()
    return Case(model.item_embeddings(), users, popularity=popularity, trained_on="dot", **known)


def films(data: Path, objective: str = "dropout") -> Case:
    """Return a MovieLens latest-small model; a film with one genre is labelled with this genre."""
    folder = data / "ml-latest-small"
    read = fastcos.read_interactions(folder / "ratings.csv.zip", value="")
    labels = io.read_labels(folder / "movies.csv", read.item_ids, column="genres")
    return factors(read.X, 50, objective, labels=texts(labels))


def cards(data: Path) -> Case:
    """Return a model of Magic decks; a card with a single colour has it as its label."""
    read = fastcos.read_interactions(data / "mtg" / "mtg_csr.npz")
    labels = io.read_labels(
        data / "mtg" / "cards.csv", read.item_ids, column="color", only=set("WUBRG")
    )
    X = read.X
    X.data[:] = 1  # ignore how many copies of a card a deck contains
    return factors(X, 64, labels=texts(labels))


def words(data: Path) -> Case:
    """Return GloVe vectors with the categories of Battig as labels; there are no user vectors."""
    found = io.read_vectors(data / "glove50" / "glove50.npz")
    labels = io.read_labels(
        data / "words" / "battig.csv", found.ids, column="category", item="word", separator=None
    )
    return Case(found.vectors, labels=texts(labels))


def groceries(data: Path) -> Case:
    """Return a model of Complete Journey with departments as labels.

    Purchases hardly determine the department of a product, so the labels are hard to recover.
    """
    folder = data / "completejourney"
    read = fastcos.read_interactions(
        folder / "completejourney_pairs.csv.gz", user="household_id", item="product_id", value=""
    )
    labels = io.read_labels(
        folder / "completejourney_products.csv.gz", read.item_ids, column="department",
        item="product_id", separator=None,
    )  # fmt: skip
    return factors(read.X, 50, labels=texts(labels))


def simulated(small: bool, objective: str) -> Case:
    """Return a model of the simulation in section 4 of the paper, with the clusters as labels."""
    data = fastcos.simulate_interactions(
        *((600, 120) if small else (20_000, 1_000)), random_state=0
    )
    return factors(data.X, 12 if small else 50, objective, labels=data.item_cluster)


def stretched(case: Case) -> Case:
    """Return the embeddings of a case under a rescaling of condition 8."""
    D = np.geomspace(1, 8, case.items.shape[1])
    return Case(case.items / D, case.users * D, case.labels, case.popularity, "dot")


def noise(small: bool) -> Case:
    """Return rows of independent normal numbers, whose nearest neighbours mean nothing."""
    rng = np.random.default_rng(0)
    n = 500 if small else 10_000
    return Case(rng.standard_normal((n, 32), dtype=np.float32), labels=rng.integers(0, 5, n))


def texts(labels: io.ItemLabels) -> list[str | None]:
    """Return the label of each item, or None for an item without a label."""
    return [None if code < 0 else str(labels.classes[code]) for code in labels.labels]


def cases(data: Path | None) -> dict[str, Callable[[], Case]]:
    """Return a dict that maps the name of each case to the function that makes the case."""
    small = data is None
    found: dict[str, Callable[[], Case]] = {
        "simulation, Eq. 1": lambda: simulated(small, "dropout"),
        "simulation, planted D": lambda: stretched(simulated(small, "dropout")),
        "simulation, Eq. 2": lambda: simulated(small, "weight_decay"),
        "isotropic noise": lambda: noise(small),
    }
    if data is None:
        return found
    return {
        "films, Eq. 1": lambda: films(data),
        "films, Eq. 2": lambda: films(data, "weight_decay"),
        "cards, Eq. 1": lambda: cards(data),
        "GloVe words": lambda: words(data),
        "groceries, Eq. 1": lambda: groceries(data),
        **found,
    }


def audited(name: str, case: Case, out: Path) -> fastcos.auditing.Audit:
    """Audit one case, write its page and its numbers, and return the report."""
    report = fastcos.audit(
        case.items,
        case.users,
        labels=case.labels,
        popularity=case.popularity,
        trained_on=case.trained_on,
    )
    stem = "".join(letter for letter in name.casefold().replace(" ", "-") if letter not in ",.")
    facts = provenance.provenance(
        {"case": name, "condition": report.condition, "k": report.k, "seed": 0}
    )
    io.write_json(out / f"{stem}.json", {**facts, "audit": provenance.json_ready(report.to_dict())})
    io.write_text(out / f"{stem}.html", audit_page(report, name=name, provenance=facts))
    print(f"{name}: {report.verdict}", flush=True)
    return report


def summary(reports: dict[str, fastcos.auditing.Audit]) -> str:
    """Return the table of docs/howto/audit.md, as Markdown."""
    heads = (
        "embeddings", "items", "parametrisation", "certified", "unbroken",
        "certified, linear", "nearest form", "items orthonormal, Jaccard",
        "query metric, Jaccard", "AUC given", "AUC range", "AUC, query metric",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for name, report in reports.items():
        rows = {row.name: row for row in (*report.parametrizations, *report.invariant_baselines)}
        other = report.nearest_parametrization
        query, found, point = rows.get("query_metric"), report.label_recovery, report.at_condition
        cells = [
            name,
            f"{report.n_items:,} x {report.n_dimensions}",
            (report.parametrization or "-").replace("_", " "),
            f"{point.certified:.0%} ± {point.certified_error:.0%}",
            f"{point.unbroken:.0%} ± {point.unbroken_error:.0%}",
            f"{point.certified_linear:.0%}",
            "-" if other is None else f"{other.name.replace('_', ' ')}, {other.condition:.2g}",
            f"{rows['items_orthonormal'].jaccard:.2f}",
            "-" if query is None else f"{query.jaccard:.2f}",
            "-" if found is None else f"{found.given:.2f}",
            "-" if found is None else f"{found.low:.2f} to {found.high:.2f}",
            "-" if query is None or query.auc is None else f"{query.auc:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def figure(reports: dict[str, fastcos.auditing.Audit]) -> Any:
    """Draw the robustness curve of every case, in three columns of panels."""
    from matplotlib.figure import Figure

    n_rows = -(-len(reports) // 3)
    drawn = Figure(figsize=(8.4, 2.4 * n_rows + 0.7), layout="constrained")
    with figure_style():
        axes = drawn.subplots(n_rows, 3, squeeze=False, sharey=True)
    for (name, report), ax in zip(reports.items(), axes.flat, strict=False):
        RobustnessDisplay(report).plot(ax=ax)
        ax.set_title(name, loc="left")
        ax.set_xlabel("")
        ax.set_ylabel("")
        ax.get_legend().remove()
        ax.texts[0].remove()  # the label of the x axis of the figure explains the vertical line
    for ax in axes.flat[len(reports) :]:
        ax.remove()
    with figure_style():
        # The legend is outside the axes, because the curves of some panels leave no corner free.
        # The entries are sorted by colour, because the two curves of the same colour belong
        # together: they are the lower and the upper bound of one share.
        lines = sorted(axes.flat[0].get_legend_handles_labels()[0],
                       key=lambda line: COLOURS.index(line.get_color()))  # fmt: skip
        drawn.legend(handles=lines, loc="outside upper center", ncols=3)
        condition = next(iter(reports.values())).condition
        drawn.supxlabel(
            "condition of the rescaling D, its largest entry / its smallest "
            f"(dotted line: {condition:g}, that of the verdict)", fontsize="medium",
        )  # fmt: skip
        drawn.supylabel("share of the 10 nearest neighbours that survive", fontsize="medium")
    return drawn


def main() -> None:
    """Audit every case, write the pages, the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "out", type=Path, help="folder to which the pages, the table and the figure are written"
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder that contains the real data (default: only simulated data)",
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = {name: audited(name, make(), given.out) for name, make in cases(given.data).items()}
    io.write_text(given.out / "summary.md", summary(found))
    with io.atomic_path(given.out / "robustness.png") as path:
        figure(found).savefig(path, format="png", dpi=DOTS_PER_INCH)
    print(summary(found))


if __name__ == "__main__":
    main()

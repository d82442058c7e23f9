"""fastcos compare: every rescaling of one model of a person's own data."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastcos import io, validate
from fastcos.cli import options
from fastcos.cli.results import show_comparison, write_comparison
from fastcos.cli.terminal import print_table, progress_bar, say, spinner

if TYPE_CHECKING:
    from fastcos.comparison import Comparison, Scores

DESCRIPTION = """\
Factorise interactions once and compare item-item cosine similarity under every rescaling D of that
one model, and under Eq. 2: scores against labels, and the ten nearest neighbours of well-known
items side by side. Writes comparison.png, .svg, .csv, .json, neighbors.csv and, with labels,
exponents.png."""
EPILOG = """\
examples:
  fastcos compare ratings.csv --labels movies.csv --label-column genres
  fastcos compare clicks.npz --rank 128 --regularization 5000 --out clicks-compared
input: csv or tsv with user, item and perhaps value columns (plain, .gz, .zip), .npz CSR,
.mtx, or .parquet (pip install 'fastcos[io]')"""
# the terminal holds so many columns of names side by side
N_SHOWN_COLUMNS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    options.add_interactions(parser)
    options.add_labels(parser)
    options.add_model(parser, "square of the singular value number K/5")
    options.add_output(parser, "comparison")
    parser.add_argument(
        "--show", type=int, default=3, metavar="N", help="print neighbours of N items (default 3)"
    )
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Read, compare, write, show."""
    from fastcos.comparison import compare

    options.apply_common(given)
    n_shown = validate.as_count("--show", given.show, low=0)
    with spinner("reading"):
        data = options.read_interactions(given)
    model = options.model_arguments(given, data.X.shape)
    labelled = options.read_labels(given, data.item_ids)
    n, p = data.X.shape
    say(f"read {data.X.nnz:,} interactions of {n:,} users with {p:,} items")
    with progress_bar("comparing rescalings") as progress:
        comparison = compare(
            data.X,
            None if labelled is None else _labels_or_none(labelled),
            **model,
            progress=progress,
        )
    parameters = {"files": _files(given), "model": comparison.parameters}
    if labelled is not None:
        parameters["labels"] = _counts(labelled)
        say(_told(labelled))
    names = [str(name) for name in (data.item_ids if labelled is None else labelled.names)]
    with spinner("drawing"):
        written = write_comparison(comparison, given.out, stem="comparison", parameters=parameters)
    written.append(_write_neighbors(comparison, names, Path(given.out)))
    show_comparison(comparison, written, parameters, as_json=given.json)
    if not given.json:
        for item in well_known(comparison, n_shown):
            _print_neighbors(comparison, names, item)
    return 0


def _labels_or_none(labelled: io.ItemLabels) -> list[str | None]:
    return [None if code < 0 else str(labelled.classes[code]) for code in labelled.labels]


def _files(given: argparse.Namespace) -> dict[str, str | None]:
    return {"interactions": given.interactions, "labels": given.labels}


def _counts(labelled: io.ItemLabels) -> dict[str, Any]:
    return {
        "classes": labelled.classes.tolist(),
        "labelled": int((labelled.labels >= 0).sum()),
        "left_out_several": labelled.n_several,
        "left_out_none": labelled.n_none,
        "left_out_other": labelled.n_other,
        "unknown_items_in_file": labelled.n_unknown,
    }


def _told(labelled: io.ItemLabels) -> str:
    return (
        f"labels: {(labelled.labels >= 0).sum():,} items in {len(labelled.classes)} classes; "
        f"left out {labelled.n_several:,} with several labels, {labelled.n_none:,} with none, "
        f"{labelled.n_other:,} with another; {labelled.n_unknown:,} items of the file have no "
        "interactions"
    )


def well_known(comparison: "Comparison", n: int) -> list[int]:
    """Return the most popular item of each of the n labels whose most popular items lead.

    Without labels, the n most popular items.
    """
    order = np.argsort(-comparison.popularity, kind="stable")
    if comparison.labels is None:
        return [int(item) for item in order[:n]]
    order = order[comparison.labels[order] >= 0]
    _, first = np.unique(comparison.labels[order], return_index=True)
    return [int(item) for item in order[np.sort(first)[:n]]]


def side_by_side(comparison: "Comparison") -> list["Scores"]:
    """Return at most four rows that differ most: worst and best AUC, D = I, Eq. 2."""
    from fastcos.comparison import EQ2

    rows = {row.name: row for row in comparison.named}
    free = [row for row in comparison.named if row.pair_auc is not None and row.name != EQ2]
    if free:
        ranked = sorted(free, key=lambda row: row.pair_auc or 0.0)
        names = [ranked[0].name, "identity", ranked[-1].name, EQ2]
    else:
        names = ["orthonormal", "identity", "balanced", EQ2]
    return [rows[name] for name in dict.fromkeys(names) if name in rows][:N_SHOWN_COLUMNS]


def _print_neighbors(comparison: "Comparison", names: Sequence[str], item: int) -> None:
    rows = side_by_side(comparison)
    columns = [comparison.neighbors[row.name][item] for row in rows]
    table = [
        [str(rank + 1), *(names[neighbor] for neighbor in ranked)]
        for rank, ranked in enumerate(zip(*columns, strict=True))
    ]
    header = ["", *(_heading(row) for row in rows)]
    print_table(f"nearest to {names[item]}", header, table, numbers=False)


def _heading(row: "Scores") -> str:
    return f"{row.name}, D = {row.formula}" if row.rescaling else "Eq. 2, unique"


def _write_neighbors(comparison: "Comparison", names: Sequence[str], folder: Path) -> Path:
    path = folder / "neighbors.csv"
    shown = [row.name for row in side_by_side(comparison)]
    rows = (
        (name, names[item], *(names[neighbor] for neighbor in ranked))
        for name in shown
        for item, ranked in enumerate(comparison.neighbors[name].tolist())
    )
    ranks = range(1, comparison.neighbors[shown[0]].shape[1] + 1)
    io.write_csv(path, ("rescaling", "item", *(f"neighbor_{rank}" for rank in ranks)), rows)
    return path

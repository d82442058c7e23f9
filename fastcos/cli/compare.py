"""fastcos compare: which similarity to use for a person's own data."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.labels import counts_of_labels, labels_or_none, told_of_labels
from fastcos.cli.leaderboard import show_leaderboard, write_leaderboard
from fastcos.cli.model_folder import is_model_folder
from fastcos.cli.results import show_comparison, write_comparison
from fastcos.cli.terminal import print_table, progress_bar, say, spinner
from fastcos.cli.vectors import compare_vectors_of

if TYPE_CHECKING:
    from fastcos.comparison import Comparison, RescalingScores

DESCRIPTION = """\
Which similarity to use, by how much, and whether that is more than chance.

Of interactions: factorise them once, and judge every measure under every rescaling D of that one
model, and under Eq. 2; by how they recover labels, or, without --labels, by interactions that are
held out. Prints the measures ranked and a conclusion in one sentence, and the paper's own table
and ten nearest neighbours of well-known items under several D. Writes measures.csv, .png and .svg,
comparison.csv, .png, .svg and .json, neighbors.csv and, with labels, exponents.png.

Of vectors (.npy, .npz, or the items of a folder that fastcos fit wrote): judge every measure by
--labels, or by how it follows the ratings of --pairs. Writes comparison.json and a csv, png and svg
for each question.

Exit status 1: no measure does better than knowing nothing."""
EPILOG = """\
examples:
  fastcos compare ratings.csv --labels movies.csv --label-column genres
  fastcos compare clicks.npz --rank 128 --regularization 5000 --out compared
  fastcos compare clicks.npz --preprocessing all --measures csls:n_neighbors=5
  fastcos compare words.npz --pairs MEN.txt SimLex.txt
input: csv or tsv with user, item and perhaps value columns (plain, .gz, .zip), .npz CSR,
.mtx, or .parquet (pip install 'fastcos[io]');
vectors in .npy or .npz, with their words or ids beside them; or a folder of fastcos fit"""
# the terminal holds so many columns of names side by side
N_SHOWN_COLUMNS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    options.add_interactions(parser, "file of interactions, or of vectors")
    options.add_labels(parser)
    parser.add_argument(
        "--pairs",
        nargs="+",
        metavar="FILE",
        help="for vectors: tables of two items and a rating a line, such as WS-353",
    )
    options.add_choices(parser)
    options.add_model(parser, "square of the singular value number K/5")
    options.add_output(parser, "comparison")
    parser.add_argument(
        "--show", type=int, default=3, metavar="N", help="print neighbours of N items (default 3)"
    )
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Read, compare, write, show."""
    options.apply_common(given)
    options.out_directory(given)
    options.check_labels(given)
    validation.as_count("--show", given.show, low=0)
    of_vectors = is_model_folder(given.interactions) or io.holds_vectors(given.interactions)
    if given.pairs is not None or of_vectors:
        return compare_vectors_of(given)
    return _compare_interactions(given)


def _compare_interactions(given: argparse.Namespace) -> int:
    from fastcos.comparison import compare

    chosen: dict[str, Any] = {
        "measures": options.chosen_measures(given),
        "preprocessing": options.chosen_preprocessings(given),
    }
    data = options.read_interactions(given)
    model = options.model_arguments(given, data.X.shape)
    labelled = options.read_labels(given, data.item_ids)
    n, p = data.X.shape
    say(f"read {data.X.nnz:,} interactions of {n:,} users with {p:,} items")
    with progress_bar("factorising, then comparing measures") as progress:
        comparison = compare(
            data.X,
            None if labelled is None else labels_or_none(labelled),
            **model,
            **chosen,
            progress=progress,
        )
    parameters = {"files": _files(given), "model": comparison.parameters}
    if labelled is not None:
        parameters["labels"] = counts_of_labels(labelled)
        say(told_of_labels(labelled))
    names = [str(name) for name in (data.item_ids if labelled is None else labelled.names)]
    folder = Path(given.out)
    with spinner("drawing"):
        written = write_comparison(comparison, folder, stem="comparison", parameters=parameters)
        written += write_leaderboard(comparison.leaderboard, folder, "measures")
    written.append(_write_neighbors(comparison, names, folder))
    show_comparison(comparison, written, parameters, as_json=given.json)
    if not given.json:
        for item in well_known(comparison, given.show):
            _print_neighbors(comparison, names, item)
        show_leaderboard(comparison.leaderboard)
    return 0 if comparison.leaderboard.beats_chance else 1


def _files(given: argparse.Namespace) -> dict[str, str | None]:
    return {"interactions": given.interactions, "labels": given.labels}


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


def side_by_side(comparison: "Comparison") -> list["RescalingScores"]:
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


def _heading(row: "RescalingScores") -> str:
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

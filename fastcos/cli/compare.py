"""fastcos compare: which similarity to use for interactions or for vectors."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.model_folder import is_model_folder, read_items
from fastcos.cli.results import (
    show_comparison,
    show_leaderboard,
    write_comparison,
    write_leaderboard,
)
from fastcos.cli.terminal import (
    print_json,
    print_next,
    print_table,
    progress_bar,
    say,
    say_written,
    spinner,
)
from fastcos.similarity.serialization import label_of
from fastcos.storage import provenance

if TYPE_CHECKING:
    from fastcos.comparison import Candidate, Comparison, Leaderboard, RescalingScores
    from fastcos.similarity import Measure

DESCRIPTION = """\
Which similarity to use, by how much, and whether that is more than chance.

Of interactions: factorise them once, and evaluate a dozen measures under the named rescalings D of
that one model, and under Eq. 2; by how they recover labels, or, without --labels, by interactions
that are held out; on a sample of 2,000 items. With --all, every measure, a grid of exponents and
10,000 items. Prints the measures ranked and a conclusion in one sentence, and the paper's own table
and ten nearest neighbours of popular items under several D. Writes comparison.html, a page on which
you sort the leaderboard and open its rows, measures.csv, .png and .svg, comparison.csv, .png, .svg
and .json, neighbors.csv and, with labels and --all, exponents.png.

Of vectors (a file, or the items of a folder that fastcos fit wrote): evaluate every measure by
--labels, or by how it follows the ratings of --pairs. Writes comparison.json and an html, csv, png
and svg for each task.

Exit status 1: no measure exceeds the chance level."""
EPILOG = f"""\
examples:
  fastcos compare ratings.csv --labels movies.csv --label-column genres
  fastcos compare clicks.npz --budget 60s
  fastcos compare clicks.npz --all --rank 128 --regularization 5000 --out all
  fastcos compare clicks.npz --preprocessing all --measures csls:n_neighbors=5
  fastcos compare words.npz --pairs MEN.txt SimLex.txt
input: csv or tsv with user, item and perhaps value columns (plain, .gz, .zip), .npz CSR,
.mtx, .parquet or .arrow (pip install pyarrow);
vectors: a folder of fastcos fit or export, or
{options.VECTOR_FORMATS}"""
# items behind the scores of rescalings: the standard error of a mean Jaccard is at most 0.011
N_SAMPLED = 2000
# the same with --all: 0.005; the time grows with the square, and 40,000 items took hours
N_SAMPLED_OF_ALL = 10_000
_UNITS = {"s": 1, "m": 60, "h": 3600}
# items whose neighbours by every candidate are on the page: of five labels a dozen each
N_EXAMPLES = 64
# lists of names that a terminal of 120 columns shows side by side
N_SHOWN_COLUMNS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_interactions(parser, "file of interactions, or of vectors")
    options.add_vectors(parser)
    options.add_labels(parser)
    add = parser.add_argument
    help_ = "column of strata, such as decades: stratified AUC of pairs of one stratum"
    add("--label-stratum", metavar="C", help=help_)
    help_ = "for vectors: tables of two items and a rating a line, such as WS-353"
    add("--pairs", nargs="+", metavar="FILE", help=help_)
    group = parser.add_argument_group("candidates")
    help_ = (
        "measures besides the cosine (default, for interactions, a dozen that differ; all; "
        f"a wrong name lists them); {options.MEASURE_SYNTAX}"
    )
    group.add_argument("--measures", metavar="A,B,...", help=help_)
    help_ = (
        "of the interactions before the model, each besides none "
        "(default none; all; a wrong name lists them)"
    )
    group.add_argument("--preprocessing", default="none", metavar="A,B,...", help=help_)
    options.add_rescalings(parser)
    add("--all", action="store_true", help="all measures, 10,000 items, a grid of exponents of D")
    add("--budget", metavar="TIME", help="evaluate no further candidate then, such as 60s or 5m")
    options.add_model(parser, "square of the singular value number K/5")
    options.add_output(parser, "comparison")
    add("--show", type=int, default=3, metavar="N", help="print neighbours of N items (default 3)")
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Read, compare, write, print."""
    options.out_directory(given)
    options.check_labels(given)
    if given.labels is None:
        validation.check_none("--label-stratum", given.label_stratum, "without --labels")
    validation.as_count("--show", given.show, low=0)
    of_vectors = any((given.pairs, given.vector_column, given.id_column, given.ids))
    of_vectors = of_vectors or is_model_folder(given.interactions)
    if of_vectors or io.holds_vectors(given.interactions):
        return _compare_vectors(given)
    return _compare_interactions(given)


def _chosen_measures(given: argparse.Namespace) -> "list[str | Measure] | None":
    """Return the measures of --measures, None for all."""
    if given.measures in (None, "all"):
        return None
    return [options.as_measure("--measures", text) for text in given.measures.split(",")]


def _chosen_preprocessings(given: argparse.Namespace) -> list[str]:
    """Return the names of --preprocessing."""
    from fastcos.comparison.models import PREPROCESSINGS

    if given.preprocessing == "all":
        return list(PREPROCESSINGS)
    return [
        validation.as_choice("--preprocessing", name, ("all", *PREPROCESSINGS))
        for name in given.preprocessing.split(",")
    ]


def _compare_interactions(given: argparse.Namespace) -> int:
    from fastcos.comparison import compare
    from fastcos.plots.html import leaderboard_page

    measures: Any = _chosen_measures(given)
    if given.measures is None and not given.all:
        measures = "default"
    chosen: dict[str, Any] = {
        "measures": measures,
        "rescalings": options.chosen_rescalings(given),
        "preprocessing": _chosen_preprocessings(given),
        "grid": given.all,
        "n_sampled": N_SAMPLED_OF_ALL if given.all else N_SAMPLED,
        "n_examples": N_EXAMPLES,
        "budget": _seconds(given.budget),
    }
    data = options.read_interactions(given)
    model = options.model_arguments(given)
    labelled = options.read_labels(given, data.item_ids)
    labels, counts = (None, None) if labelled is None else options.use_labels(labelled)
    strata = options.read_labels(given, data.item_ids, "stratum")
    chosen["strata"] = None if strata is None else options.label_names(strata)
    with progress_bar("factorising, then comparing measures") as progress:
        comparison = compare(data.X, labels, **model, **chosen, progress=progress)
    parameters = {"given": options.arguments(given), "model": comparison.parameters}
    if counts is not None:
        parameters["labels"] = counts
    if comparison.sampled is not None:
        more = "" if given.all else f" (--all takes up to {N_SAMPLED_OF_ALL:,})"
        say(f"sampled {len(comparison.sampled):,} of {data.X.shape[1]:,} items{more}")
    names = [str(name) for name in (data.item_ids if labelled is None else labelled.names)]
    folder, leaderboard = Path(given.out), comparison.leaderboard
    with spinner("drawing"):
        written, document = write_comparison(
            comparison, folder, stem="comparison", parameters=parameters, every=given.all
        )
        written += write_leaderboard(leaderboard, folder, "measures")
        page = leaderboard_page(
            leaderboard, names=names, labels=labels, name=Path(given.interactions).name,
            sections=comparison.sections()[:1], provenance=provenance.provenance(parameters),
        )  # fmt: skip
        io.write_text(folder / "comparison.html", page)
        written.insert(0, folder / "comparison.html")
    written.append(_write_neighbors(comparison, names, folder))
    if given.json:
        print_json(document)
    else:
        show_leaderboard(leaderboard)
        show_comparison(comparison)
    say_written(written)
    if not given.json:
        for item in popular_items(comparison, given.show):
            _print_neighbors(comparison, names, item)
        print_next(_next_commands(comparison, given))
    return 0 if leaderboard.beats_chance else 1


def _next_commands(
    comparison: "Comparison", given: argparse.Namespace
) -> list[tuple[list[str], str]]:
    """Commands for the recommended candidate, if it is of a model without preprocessing."""
    from fastcos.comparison import EQ2
    from fastcos.comparison.candidates import NO_MODEL, USER_ITEM, USER_USER

    leaderboard, parameters = comparison.leaderboard, comparison.parameters
    best = leaderboard.recommended
    if best is None or best.preprocessing != "none":
        return []
    columns = options.words_of(given, *options.INTERACTION_COLUMNS)
    if best.rescaling == NO_MODEL:  # labels are no recommendations
        words = ["fastcos", "recommend", "none", given.interactions, *columns]
        gain = "by the columns of the interactions themselves: a model gains nothing here"
        return [] if given.labels else [([*words, "--measure", best.measure], gain)]
    is_eq2 = best.rescaling == EQ2
    fit = ["fastcos", "fit", given.interactions, *columns, *options.words_of(given, "rank")]
    strength, decay = parameters["regularization"], parameters["weight_decay"]
    is_default = given.regularization is None and given.weight_decay is None
    if not is_default or (is_eq2 and decay != math.sqrt(strength)):
        fit += ["--regularization", repr(float(decay if is_eq2 else strength))]
    fit += ["--objective", "weight_decay"] if is_eq2 else []
    fit += options.words_of(given, "seed") if given.seed else []
    of_users = best.name in (*USER_ITEM, *USER_USER)
    serve = (
        ["recommend", "model", given.interactions, *columns] if of_users else ["neighbors", "model"]
    )
    serve += ["--measure", _as_given(best, given)]
    D = {row.name: row.rescaling for row in comparison.named}[best.rescaling]
    if D is not None:
        name = best.rescaling if D.name != D.formula else f"{D.shrinkage:g},{D.spectrum:g}"
        serve.append(f"--rescaling={name}")
    gain = "recommendations for every user" if of_users else "the recommended neighbours"
    if leaderboard.gain is not None and best != leaderboard.baseline:
        gain += f"; {leaderboard.score} {leaderboard.gain.value:+.3f} over the plain cosine"
    return [([*fit, "--out", "model"], "the model that was compared"), (["fastcos", *serve], gain)]


def _as_given(best: "Candidate", given: argparse.Namespace) -> str:
    """The measure as it was written in --measures, with parameters that its name leaves out."""
    if isinstance(best.source, str):
        return best.measure
    chosen = zip(given.measures.split(","), _chosen_measures(given) or [], strict=True)
    labels: dict[str, str] = {
        label_of(one): text for text, one in chosen if not isinstance(one, str)
    }
    return labels.get(best.measure, best.measure)


def _compare_vectors(given: argparse.Namespace) -> int:
    """Compare by the labels and by each file of pairs; 1 if any task has no answer."""
    from fastcos.comparison import compare_vectors
    from fastcos.plots.html import leaderboard_page

    validation.check_none("--budget", given.budget, "for vectors")
    validation.check_none("--label-stratum", given.label_stratum, "for vectors")
    validation.check_none("--rescaling", given.rescaling or None, "for vectors, which have no D")
    measures = _chosen_measures(given)
    validation.as_choice("--preprocessing", given.preprocessing, ("none",))
    if given.labels is None and not given.pairs:
        raise ValueError("--labels or --pairs must be given for vectors, got none")
    vectors, ids = read_items(given.interactions, given)
    say(f"read {len(vectors):,} vectors of {vectors.shape[1]} numbers")
    tasks, counts = _tasks(given, ids)
    found: dict[str, Leaderboard] = {}
    for name, task in tasks.items():
        with progress_bar(f"comparing measures by {name}") as progress:
            found[name] = compare_vectors(
                vectors, **task, measures=measures, n_examples=N_EXAMPLES,
                random_state=given.seed, progress=progress,
            )  # fmt: skip
    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    parameters = options.arguments(given) | {"n_vectors": len(vectors), "tasks": counts}
    leaderboards = {name: one.to_dict() for name, one in found.items()}
    document = provenance.provenance(parameters)
    document["leaderboards"] = provenance.json_ready(leaderboards)
    written = []
    for name, one in found.items():
        page = leaderboard_page(
            one, names=ids, labels=tasks[name].get("labels"), name=Path(given.interactions).name,
            provenance=provenance.provenance(parameters),
        )  # fmt: skip
        io.write_text(folder / f"{name}.html", page)
        written += [folder / f"{name}.html", *write_leaderboard(one, folder, name)]
    io.write_json(folder / "comparison.json", document)
    if given.json:
        print_json(document)
    else:
        for name, one in found.items():
            show_leaderboard(one, name)
    say_written([*written, folder / "comparison.json"])
    return 0 if all(one.beats_chance for one in found.values()) else 1


def _tasks(given: argparse.Namespace, ids: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of compare_vectors, and counts for the provenance, by name of the task."""
    tasks: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    labelled = options.read_labels(given, ids)
    if labelled is not None:
        labels, counts["labels"] = options.use_labels(labelled)
        tasks["labels"] = {"labels": labels}
    for path in given.pairs or ():
        read, name = io.read_pairs(path, ids), Path(path).stem
        say(f"{path}: {len(read.pairs):,} pairs; {read.n_unknown:,} with an unknown item left out")
        counts[name] = {"file": path, "pairs": len(read.pairs), "left_out_unknown": read.n_unknown}
        tasks[name] = {"pairs": (read.pairs, read.ratings)}
    return tasks, counts


def _seconds(text: str | None) -> float | None:
    """Return a time such as 90, 60s, 5m or 1h in seconds."""
    if text is None:
        return None
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    seconds = validation.as_number("--budget", number) * _UNITS[unit]
    return validation.as_real("--budget", seconds, above=0)


def popular_items(comparison: "Comparison", n: int) -> list[int]:
    """Return the most popular item of each of the n labels with the most popular items.

    Without labels, the n most popular items; of those sampled.
    """
    order = np.argsort(-comparison.popularity, kind="stable")
    if comparison.sampled is not None:
        order = order[np.isin(order, comparison.sampled)]
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
    place = item if comparison.sampled is None else np.searchsorted(comparison.sampled, item)
    columns = [comparison.neighbors[row.name][place] for row in rows]
    table = [
        [str(rank + 1), *(names[neighbor] for neighbor in ranked)]
        for rank, ranked in enumerate(zip(*columns, strict=True))
    ]
    header = ["", *(row.heading for row in rows)]
    print_table(f"nearest to {names[item]}", header, table)


def _write_neighbors(comparison: "Comparison", names: Sequence[str], folder: Path) -> Path:
    path = folder / "neighbors.csv"
    shown = [row.name for row in side_by_side(comparison)]
    sampled = comparison.sampled
    items = range(len(names)) if sampled is None else sampled.tolist()
    rows = (
        (name, names[item], *(names[neighbor] for neighbor in ranked))
        for name in shown
        for item, ranked in zip(items, comparison.neighbors[name].tolist(), strict=True)
    )
    ranks = range(1, comparison.neighbors[shown[0]].shape[1] + 1)
    header = ("rescaling", "item", *(f"neighbor_{rank}" for rank in ranks))
    io.write_csv(path, header, rows, for_spreadsheets=True)
    return path

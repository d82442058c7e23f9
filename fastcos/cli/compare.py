"""The command ``fastcos compare``, which finds out which similarity to use."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.model_folder import align_to_users, is_model_folder, read_factors
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
Report which similarity to use, how much better it is than the plain cosine, and whether this
difference could be due to chance.

For a file of interactions, the command fits a model that minimises Eq. 1 of Steck et al. 2024
(arXiv:2403.05440), and evaluates twelve measures under several rescalings of this model. The
command also evaluates the measures with a second model, which minimises Eq. 2 of Steck et al. 2024.
A rescaling D is a diagonal matrix that scales the latent dimensions without changing the
predictions. With --labels, the score of a measure states how well the measure recovers the labels
of the items. Without --labels, the score states how well the measure predicts held-out
interactions. The score is computed on a sample of 2,000 items. With --all, the command evaluates
every measure and a grid of rescalings on a sample of 10,000 items. The command prints a conclusion,
the ranking of the measures, a table of the rescalings as in Steck et al. 2024, and the ten nearest
neighbours of popular items under several rescalings. The command writes comparison.html, a page on
which you can sort the measures and open the details of each measure. It also writes measures.csv,
.png and .svg; comparison.csv, .png, .svg and .json; and neighbors.csv. With --labels and --all, it
also writes exponents.png.

INTERACTIONS may also be a file of vectors, or a folder written by `fastcos fit`. For vectors, the
option --labels evaluates how well the scores of each measure recover the labels. The option --pairs
evaluates how strongly the scores of each measure correlate with the ratings of the pairs. The
command writes comparison.json. For the labels, and for each file of --pairs, the command also
writes a page (.html), a table (.csv) and a figure (.png and .svg).

To evaluate a model that you have trained, use the option --model FILE. FILE contains embeddings of
items and users, such as a model saved by implicit. With --model, the command evaluates how well the
twelve measures predict the interactions in --held-out, on which the model was not trained. With
--model, INTERACTIONS must contain either the training data of the model, or other interactions that
are older than the interactions in --held-out.

The exit status is 1 if no measure is significantly better than chance."""
EPILOG = f"""\
examples:
  fastcos compare ratings.csv --labels movies.csv --label-column genres
  fastcos compare clicks.npz --budget 60s
  fastcos compare clicks.npz --all --rank 128 --regularization 5000 --out all
  fastcos compare clicks.npz --preprocessing all --measures csls:n_neighbors=5
  fastcos compare words.npz --pairs MEN.txt SimLex.txt
  fastcos compare train.csv --model als.npz --held-out test.csv --ids items.txt
interactions: csv or tsv with columns for users, items and optionally values (plain, .gz,
.zip), .npz CSR, .mtx, .parquet or .arrow (pip install pyarrow);
vectors: a folder written by `fastcos fit` or `fastcos index export`, or
{options.VECTOR_FORMATS}"""
# Number of items in the sample. With 2,000 items, the standard error of a mean Jaccard index is at
# most 0.011.
N_SAMPLED = 2000
# Number of items in the sample with --all. With 10,000 items, the standard error of a mean Jaccard
# index is at most 0.005. The time of the comparison grows with the square of the number of items.
N_SAMPLED_OF_ALL = 10_000
_UNITS = {"s": 1, "m": 60, "h": 3600}
# Number of example items. For each example item, the page shows the neighbours that each candidate
# (a measure with a model) finds. If the items have five labels, about a dozen example items share
# each label.
N_EXAMPLES = 64
# In a terminal of 120 columns, this many lists of item names fit side by side.
N_SHOWN_COLUMNS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_interactions(parser, "file of interactions, or of vectors")
    options.add_vectors(parser)
    options.add_labels(parser)
    add = parser.add_argument
    help_ = (
        "tables with two item ids and a rating per line, such as WS-353. The measures are ranked "
        "by how well their scores agree with the ratings. With --pairs, INTERACTIONS must contain "
        "vectors"
    )
    add("--pairs", nargs="+", metavar="FILE", help=help_)
    group = parser.add_argument_group("a model that you have trained")
    help_ = "file with the item and user embeddings of the model"
    group.add_argument("--model", metavar="FILE", help=help_)
    help_ = (
        "file of interactions on which the model was not trained, in the same format as "
        "INTERACTIONS"
    )
    group.add_argument("--held-out", metavar="FILE", help=help_)
    help_ = "file with the id of each user of --model, in the order of the user embeddings"
    group.add_argument("--user-ids", metavar="FILE", help=help_)
    group = parser.add_argument_group("candidates")
    help_ = (
        "measures to compare with the cosine, or the word all. For interactions, the default is a "
        "list of twelve measures. No two of these measures rank items in the same way. "
        "fastcos.list_measures() in Python returns all names; "
        f"{options.MEASURE_SYNTAX}"
    )
    group.add_argument("--measures", metavar="A,B,...", help=help_)
    help_ = (
        "names of preprocessing steps, or the word all (default none). For each step, the command "
        "preprocesses the interactions, fits a new model to the result, and compares this model "
        "with the model of the original interactions. help(fastcos.compare) in Python describes "
        "all steps"
    )
    group.add_argument("--preprocessing", default="none", metavar="A,B,...", help=help_)
    options.add_rescalings(parser)
    help_ = "evaluate all measures and a grid of rescalings D = S^A Σ^B, on up to 10,000 items"
    add("--all", action="store_true", help=help_)
    help_ = "time (such as 60s or 5m) after which no further candidate is evaluated"
    add("--budget", metavar="TIME", help=help_)
    options.add_model(
        parser,
        "the square of the (K/5)-th largest singular value of the interactions; K is the rank",
    )
    options.add_output(parser, "comparison")
    help_ = "print the neighbours of N popular items, each with a different label (default 3)"
    add("--show", type=int, default=3, metavar="N", help=help_)
    options.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Compare measures for interactions or for vectors, and return the exit status."""
    options.out_directory(args)
    options.check_labels(args)
    validation.as_count("--show", args.show, low=0)
    if (args.model is None) != (args.held_out is None):
        missing = "--model" if args.model is None else "--held-out"
        raise ValueError(
            "--model and --held-out must be given together, because a model is evaluated on "
            f"interactions that it has not seen: {missing} is missing"
        )
    if args.model is None:
        options.refuse(args, "without --model", "user_ids")
    of_vectors = any((args.model, args.pairs, args.vector_column, args.id_column, args.ids))
    of_vectors = of_vectors or is_model_folder(args.interactions)
    if of_vectors or io.holds_vectors(args.interactions):
        return _compare_vectors(args)
    return _compare_interactions(args)


def _chosen_measures(args: argparse.Namespace) -> "list[str | Measure] | None":
    """Return the measures of --measures; None stands for all measures."""
    if args.measures in (None, "all"):
        return None
    return [options.as_measure("--measures", text) for text in args.measures.split(",")]


def _chosen_preprocessings(args: argparse.Namespace) -> list[str]:
    """Return the names in --preprocessing."""
    from fastcos.comparison.models import PREPROCESSINGS

    if args.preprocessing == "all":
        return list(PREPROCESSINGS)
    return [
        validation.as_choice("--preprocessing", name, ("all", *PREPROCESSINGS))
        for name in args.preprocessing.split(",")
    ]


def _compare_interactions(args: argparse.Namespace) -> int:
    from fastcos.comparison import compare
    from fastcos.plots.html import leaderboard_page

    measures: Any = _chosen_measures(args)
    if args.measures is None and not args.all:
        measures = "default"
    candidates: dict[str, Any] = {
        "measures": measures,
        "rescalings": options.parse_rescalings(args),
        "preprocessing": _chosen_preprocessings(args),
        "grid": args.all,
        "n_sampled": N_SAMPLED_OF_ALL if args.all else N_SAMPLED,
        "n_examples": N_EXAMPLES,
        "budget": _seconds(args.budget),
    }
    data = options.read_interactions(args)
    model = options.model_arguments(args)
    item_labels = options.read_labels(args, data.item_ids)
    labels, counts = (None, None) if item_labels is None else options.report_labels(item_labels)
    with progress_bar("factorising, then comparing measures") as progress:
        comparison = compare(data.X, labels, **model, **candidates, progress=progress)
    parameters = {"given": options.arguments(args), "model": comparison.parameters}
    if counts is not None:
        parameters["labels"] = counts
    if comparison.sampled is not None:
        hint = "" if args.all else f"; with --all, the sample has up to {N_SAMPLED_OF_ALL:,} items"
        sizes = f"{len(comparison.sampled):,} of {data.X.shape[1]:,} items"
        say(f"evaluated the measures on a sample of {sizes}{hint}")
    names = [str(name) for name in (data.item_ids if item_labels is None else item_labels.names)]
    folder, leaderboard = Path(args.out), comparison.leaderboard
    with spinner("drawing"):
        paths, document = write_comparison(
            comparison, folder, stem="comparison", parameters=parameters, every=args.all
        )
        paths += write_leaderboard(leaderboard, folder, "measures")
        page = leaderboard_page(
            leaderboard, names=names, labels=labels, name=Path(args.interactions).name,
            sections=comparison.sections()[:1], provenance=provenance.provenance(parameters),
        )  # fmt: skip
        io.write_text(folder / "comparison.html", page)
        paths.insert(0, folder / "comparison.html")
    paths.append(_write_neighbors(comparison, names, folder))
    if args.json:
        print_json(document)
    else:
        show_leaderboard(leaderboard)
        show_comparison(comparison)
    say_written(paths)
    if not args.json:
        for item in popular_items(comparison, args.show):
            _print_neighbors(comparison, names, item)
        print_next(_next_commands(comparison, args))
    return 0 if leaderboard.beats_chance else 1


def _next_commands(
    comparison: "Comparison", args: argparse.Namespace
) -> list[tuple[list[str], str]]:
    """Return the commands that use the recommended candidate.

    The list is empty if the candidate needs preprocessed interactions.
    """
    from fastcos.comparison import EQ2
    from fastcos.comparison.candidates import NO_MODEL, USER_ITEM, USER_USER

    leaderboard, parameters = comparison.leaderboard, comparison.parameters
    best = leaderboard.recommended
    if best is None or best.preprocessing != "none":
        return []
    columns = options.option_words(args, *options.INTERACTION_COLUMNS)
    if best.rescaling == NO_MODEL:
        if args.labels:
            # The recommended candidate compares items by the columns of X. No command finds
            # neighbours in this way, so no command is suggested.
            return []
        words = ["fastcos", "recommend", "none", args.interactions, *columns]
        reason = (
            "compares the columns of the interaction matrix, without a model; no trained model "
            "gave better results on this data"
        )
        return [([*words, "--measure", best.measure], reason)]
    is_eq2 = best.rescaling == EQ2
    fit = ["fastcos", "fit", args.interactions, *columns, *options.option_words(args, "rank")]
    strength, decay = parameters["regularization"], parameters["weight_decay"]
    is_default = args.regularization is None and args.weight_decay is None
    if not is_default or (is_eq2 and decay != math.sqrt(strength)):
        fit += ["--regularization", repr(float(decay if is_eq2 else strength))]
    fit += ["--objective", "weight_decay"] if is_eq2 else []
    fit += options.option_words(args, "seed") if args.seed else []
    of_users = best.name in (*USER_ITEM, *USER_USER)
    serve = (
        ["recommend", "model", args.interactions, *columns] if of_users else ["neighbors", "model"]
    )
    serve += ["--measure", _measure_option(best, args)]
    D = {row.name: row.rescaling for row in comparison.named}[best.rescaling]
    if D is not None:
        name = best.rescaling if D.name != D.formula else f"{D.shrinkage:g},{D.spectrum:g}"
        serve.append(f"--rescaling={name}")
    reason = (
        "recommends items to every user"
        if of_users
        else "finds neighbours by the recommended measure"
    )
    if leaderboard.gain is not None and best != leaderboard.baseline:
        gain = f"{leaderboard.gain.value:+.3f}"
        reason += f"; compared with the plain cosine, the {leaderboard.score} changes by {gain}"
    return [
        ([*fit, "--out", "model"], "fits the model that the comparison used, and saves it"),
        (["fastcos", *serve], reason),
    ]


def _measure_option(best: "Candidate", args: argparse.Namespace) -> str:
    """Return the best candidate's measure, with its parameters, in the syntax of --measures."""
    if isinstance(best.source, str):
        return best.measure
    pairs = zip(args.measures.split(","), _chosen_measures(args) or [], strict=True)
    texts: dict[str, str] = {
        label_of(measure): text for text, measure in pairs if not isinstance(measure, str)
    }
    return texts.get(best.measure, best.measure)


def _compare_vectors(args: argparse.Namespace) -> int:
    """Compare measures for vectors on held-out interactions, on labels and on each file of pairs.

    Each of these data sets is a task. Return 0 if, in every task, at least one measure exceeds the
    chance level; otherwise, return 1.
    """
    from fastcos.comparison import compare_vectors
    from fastcos.plots.html import leaderboard_page

    validation.check_none("--budget", args.budget, "for vectors")
    reason = "for vectors, because rescalings are evaluated only for a file of interactions"
    validation.check_none("--rescaling", args.rescaling or None, reason)
    measures = _chosen_measures(args)
    validation.as_choice("--preprocessing", args.preprocessing, ("none",))
    if args.labels is None and not args.pairs and args.model is None:
        raise ValueError("--labels or --pairs must be given to evaluate measures on vectors")
    factors = read_factors(args.model or args.interactions, None, args)
    vectors, ids = factors.items, factors.ids
    say(f"read {len(vectors):,} vectors of {vectors.shape[1]} numbers each")
    tasks, counts = _tasks(args, factors)
    leaderboards: dict[str, Leaderboard] = {}
    for name, task in tasks.items():
        with progress_bar(f"comparing measures by {name}") as progress:
            leaderboards[name] = compare_vectors(
                factors, **{"measures": measures} | task, n_examples=N_EXAMPLES,
                random_state=args.seed, progress=progress,
            )  # fmt: skip
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    parameters = options.arguments(args) | {"n_vectors": len(vectors), "tasks": counts}
    document = provenance.provenance(parameters)
    document["leaderboards"] = provenance.json_ready(
        {name: leaderboard.to_dict() for name, leaderboard in leaderboards.items()}
    )
    paths = []
    for name, leaderboard in leaderboards.items():
        page = leaderboard_page(
            leaderboard, names=ids, labels=tasks[name].get("labels"),
            name=Path(args.interactions).name, provenance=provenance.provenance(parameters),
        )  # fmt: skip
        io.write_text(folder / f"{name}.html", page)
        paths += [folder / f"{name}.html", *write_leaderboard(leaderboard, folder, name)]
    io.write_json(folder / "comparison.json", document)
    if args.json:
        print_json(document)
    else:
        for name, leaderboard in leaderboards.items():
            show_leaderboard(leaderboard, name)
    say_written([*paths, folder / "comparison.json"])
    return 0 if all(leaderboard.beats_chance for leaderboard in leaderboards.values()) else 1


def _tasks(args: argparse.Namespace, factors: io.Factors) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the data of each task, such as its labels or its pairs.

    Return two dicts, whose keys are the names of the tasks. For each task, the first dict contains
    the arguments of compare_vectors, and the second dict contains the numbers of pairs, labels or
    interactions.
    """
    tasks: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    ids = factors.ids
    if args.model is not None:
        task = tasks["held-out"] = _held_out_task(args, factors)
        counts["held-out"] = {name: task[name].nnz for name in ("interactions", "held_out")}
    item_labels = options.read_labels(args, ids)
    if item_labels is not None:
        labels, counts["labels"] = options.report_labels(item_labels)
        tasks["labels"] = {"labels": labels}
    for path in args.pairs or ():
        item_pairs, name = io.read_pairs(path, ids), Path(path).stem
        say(
            f"read {len(item_pairs.pairs):,} pairs of {path}, and left out "
            f"{item_pairs.n_unknown:,} pairs in which at least one item has no vector"
        )
        counts[name] = {
            "file": path,
            "pairs": len(item_pairs.pairs),
            "left_out_unknown": item_pairs.n_unknown,
        }
        tasks[name] = {"pairs": (item_pairs.pairs, item_pairs.ratings)}
    return tasks, counts


def _held_out_task(args: argparse.Namespace, factors: io.Factors) -> dict[str, Any]:
    """Read the earlier interactions (such as the training data) and the held-out interactions."""
    rule = "a file with item and user embeddings"
    users = validation.as_instance("--model", factors.users, np.ndarray, rule)
    has_user_ids = args.user_ids is not None
    user_ids = io.read_ids(args.user_ids, len(users)) if has_user_ids else np.arange(len(users))
    task: dict[str, Any] = {}
    for name, path in (("interactions", args.interactions), ("held_out", args.held_out)):
        data = options.read_interactions(argparse.Namespace(**vars(args) | {"interactions": path}))
        task[name] = align_to_users(factors, user_ids, path, data, has_user_ids=has_user_ids)
    if args.measures is None and not args.all:
        task["measures"] = "default"
    return task


def _seconds(text: str | None) -> float | None:
    """Convert a time such as 90, 60s, 5m or 1h to seconds."""
    if text is None:
        return None
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    seconds = validation.as_number("--budget", number) * _UNITS[unit]
    return validation.as_real("--budget", seconds, above=0)


def popular_items(comparison: "Comparison", n: int) -> list[int]:
    """Return n popular items with different labels.

    The function takes the most popular item of each label, and returns the n most popular of these
    items. Without labels, the function returns the n most popular items. If the comparison used a
    sample of the items, only items in the sample are returned.
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
    """Return the rows of at most four models: the worst D, D = I, the best D, and Eq. 2.

    The worst D has the lowest AUC, and the best D has the highest AUC. Without labels, there is no
    AUC. In this case, two rescalings of the paper take their places: D = S^1/2 replaces the worst
    D, and D = Σ^-1/2 replaces the best D.
    """
    from fastcos.comparison import EQ2

    rows = {row.name: row for row in comparison.named}
    eq1_rows = [row for row in comparison.named if row.pair_auc is not None and row.name != EQ2]
    if eq1_rows:
        ranked = sorted(eq1_rows, key=lambda row: row.pair_auc or 0.0)
        names = [ranked[0].name, "identity", ranked[-1].name, EQ2]
    else:
        names = ["orthonormal", "identity", "balanced", EQ2]
    return [rows[name] for name in dict.fromkeys(names) if name in rows][:N_SHOWN_COLUMNS]


def _print_neighbors(comparison: "Comparison", names: Sequence[str], item: int) -> None:
    rows = side_by_side(comparison)
    list_number = item if comparison.sampled is None else np.searchsorted(comparison.sampled, item)
    columns = [comparison.neighbors[row.name][list_number] for row in rows]
    table = [
        [str(rank + 1), *(names[neighbor] for neighbor in ranked)]
        for rank, ranked in enumerate(zip(*columns, strict=True))
    ]
    header = ["", *(row.heading for row in rows)]
    print_table(f"the nearest neighbours of {names[item]} under each rescaling", header, table)


def _write_neighbors(comparison: "Comparison", names: Sequence[str], folder: Path) -> Path:
    path = folder / "neighbors.csv"
    names_of_rows = [row.name for row in side_by_side(comparison)]
    sample = comparison.sampled
    items = range(len(names)) if sample is None else sample.tolist()
    rows = (
        (name, names[item], *(names[neighbor] for neighbor in ranked))
        for name in names_of_rows
        for item, ranked in zip(items, comparison.neighbors[name].tolist(), strict=True)
    )
    ranks = range(1, comparison.neighbors[names_of_rows[0]].shape[1] + 1)
    header = ("rescaling", "item", *(f"neighbor_{rank}" for rank in ranks))
    io.write_csv(path, header, rows, for_spreadsheets=True)
    return path

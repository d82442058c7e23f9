"""The command ``fastcos calibrate``, which computes thresholds with known false-positive rates."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.model_folder import read_items
from fastcos.cli.terminal import print_json, print_next, progress_bar, say, show_sections, show_text
from fastcos.io.columns import positions_in
from fastcos.search.request import as_threshold
from fastcos.similarity import get_measure
from fastcos.storage import provenance

if TYPE_CHECKING:
    from fastcos.auditing import Calibration, LabelledCalibration

DESCRIPTION = """\
Report what similarity scores mean. For each of several false-positive rates, the report contains
the threshold and a confidence interval of the threshold. With --score S, the report begins with the
share of random pairs that score at least S. With --condition, the command also reports how far
rescalings of the latent dimensions move the threshold. With --labelled, you pass a table of pairs
that are labelled as relevant or irrelevant. The command then also reports the error rates of each
threshold, and the probability that a pair with a given score is relevant. The command writes
calibration.json, which can be read without fastcos, and calibration.html, a page that needs no
network. The page also shows pairs just above and just below the threshold of --fpr. With
--labelled, the command also writes labelled.json."""
EPILOG = f"""\
examples:
  fastcos calibrate items.npy
  fastcos calibrate texts.parquet --score 0.72
  fastcos calibrate films --condition 1.2 --names movies.csv
  fastcos calibrate items.npy --queries queries.npy --fpr 1e-5
  fastcos calibrate items.npy --labelled pairs.csv --method platt
  fastcos calibrate items.npy --measure query_normalized
input: a folder written by `fastcos fit` or `fastcos index export`, or
{options.VECTOR_FORMATS}"""
# By default, the command draws this many queries and this many items. 20,000 queries and 20,000
# items form 400 million pairs.
SAMPLE = 20_000
FOLDER = "calibration"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    help_ = "file of item embeddings, or folder written by `fastcos fit`"
    add("items", metavar="ITEMS", help=help_)
    help_ = "file of query vectors (default: the items are also the queries)"
    add("--queries", metavar="FILE", help=help_)
    options.add_measure(parser)
    help_ = (
        "false-positive rate of the threshold: the share of random pairs whose score reaches the "
        "threshold (default 1e-4)"
    )
    add("--fpr", type=float, default=1e-4, metavar="P", help=help_)
    help_ = "begin the report with the share of random pairs that score at least S"
    add("--score", type=float, metavar="S", help=help_)
    help_ = (
        "also report how far rescalings with a condition of at most C move the threshold. The "
        "condition of a rescaling is its largest factor divided by its smallest"
    )
    add("--condition", type=float, metavar="C", help=help_)
    help_ = f"sample N items and N queries (default {SAMPLE:,}; 0 for all)"
    add("--sample", type=int, default=SAMPLE, metavar="N", help=help_)
    help_ = (
        "table of labelled pairs, with two columns of item ids. The third column contains 1 if the "
        "two items are relevant to each other, and 0 if they are not"
    )
    add("--labelled", metavar="FILE", help=help_)
    help_ = (
        "method that estimates the probability of relevance from --labelled: isotonic or platt "
        "(default isotonic)"
    )
    add("--method", default="isotonic", metavar="NAME", help=help_)
    help_ = "table with ids and names of the items; the page shows these names instead of ids"
    add("--names", metavar="FILE", help=help_)
    help_ = (
        "text file with one id per line: only pairs of these items are scored (default: all items)"
    )
    add("--only", metavar="FILE", help=help_)
    options.add_model_name(parser)
    options.add_vectors(parser)
    options.add_output(parser, FOLDER)
    options.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Calibrate the scores of the vectors, and write and print the calibration."""
    from fastcos.auditing import calibrate, pairs_near
    from fastcos.auditing.calibration.labelled import METHODS
    from fastcos.plots.html import calibration_page

    folder = options.out_directory(args)
    validation.as_choice("--method", args.method, METHODS)
    measure = options.as_measure("--measure", args.measure)
    if args.score is not None:
        as_threshold("--score", args.score, get_measure(measure))
    sample = validation.as_count("--sample", args.sample, low=0) or None
    if args.queries is not None:
        validation.check_none("--labelled", args.labelled, "with --queries")
    items, ids = read_items(args.items, args)
    if args.only is not None:
        items, ids = _select_items(items, ids, io.read_ids(args.only))
    queries = query_ids = None
    if args.queries is not None:
        queries, query_ids = options.read_vectors(args.queries, args, shared=True)
    names = ids
    if args.names is not None:
        with options.errors_name_flag("--names"):
            names = io.read_names(args.names, ids)
    pair_calibration = None if args.labelled is None else _labelled(args, items, ids, measure)
    with progress_bar("scoring pairs") as progress:
        calibration = calibrate(
            items, queries, measure=measure, fpr=args.fpr, sample=sample,
            condition=args.condition, model=args.model,
            progress=progress, random_state=args.seed,
        )  # fmt: skip
    examples = pairs_near(
        items, calibration.threshold(), queries, measure=measure, random_state=args.seed
    )
    facts = provenance.provenance(options.arguments(args))
    page = calibration_page(
        calibration, name=Path(args.items).name, score=args.score, examples=examples,
        labels=(names if query_ids is None else query_ids, names), labelled=pair_calibration,
        provenance=facts,
    )  # fmt: skip
    document = {**facts, "calibration": calibration.to_dict()}
    if pair_calibration is not None:
        document["labelled"] = pair_calibration.to_dict()
    folder.mkdir(parents=True, exist_ok=True)
    calibration.save(folder / "calibration.json")
    io.write_text(folder / "calibration.html", page)
    paths = [folder / "calibration.json", folder / "calibration.html"]
    if pair_calibration is not None:
        io.write_json(folder / "labelled.json", pair_calibration.to_dict())
        paths.append(folder / "labelled.json")
    if args.json:
        print_json(provenance.json_ready(document))
    else:
        _show(calibration, pair_calibration, args.score)
    say("wrote " + ", ".join(map(str, paths)))
    if not args.json:
        print_next(_next_commands(calibration, args))
    return 0


def _select_items(items: Any, ids: Any, selected_ids: Any) -> tuple[Any, Any]:
    """Return the items that --only selects, and their ids."""
    if len(selected_ids) < 2:
        raise ValueError(f"--only must contain at least 2 ids, got {len(selected_ids)}")
    rows = positions_in(ids, selected_ids)
    if (rows < 0).any():
        unknown = str(selected_ids[rows.argmin()])
        raise ValueError(f"--only must hold ids of the items, got {unknown!r}")
    return items[rows], ids[rows]


def _labelled(
    args: argparse.Namespace, items: Any, ids: Any, measure: Any
) -> "LabelledCalibration":
    """Calibrate with the labelled pairs of --labelled."""
    from fastcos.auditing import calibrate_pairs, score_pairs

    table = io.read_pairs(args.labelled, ids)
    is_valid = np.isin(table.ratings, (0, 1))
    if not is_valid.all():
        invalid = table.ratings[~is_valid][0]
        raise ValueError(f"--labelled must hold 1 or 0 in its third column, got {invalid:g}")
    say(
        f"read {len(table.pairs):,} labelled pairs, and left out {table.n_unknown:,} pairs in "
        "which at least one item has no vector"
    )
    scores = score_pairs(items, table.pairs, measure=measure)
    return calibrate_pairs(scores, table.ratings, method=args.method)


def _next_commands(
    calibration: "Calibration", args: argparse.Namespace
) -> list[tuple[list[str], str]]:
    """Return a command that searches with the threshold.

    If no threshold reaches the requested false-positive rate, return two commands. The first
    command finds the items that are copies of other items, and the second command calibrates
    without these copies.
    """
    columns = options.option_words(args, "vector_column", "id_column", "ids", "names")
    if args.measure != "cosine":
        columns += options.option_words(args, "measure")
    queries, rate = options.option_words(args, "queries"), ["--fpr", f"{args.fpr:g}"]
    if calibration.is_reachable(args.fpr):
        file = str(Path(args.out) / "calibration.json")
        search = ["fastcos", "neighbors", args.items, *columns, *queries, "--calibration", file]
        return [([*search, *rate], "finds only neighbours whose scores reach the threshold")]
    if args.only is not None or args.measure != "cosine":
        # A search for copies is recommended only if the copies have not been removed yet, and if
        # the score of two copies is known to be 1.
        return []
    find_copies = ["fastcos", "index", "duplicates", args.items, *columns, "--min-score", "0.9999"]
    defaults = {"out": FOLDER, "sample": SAMPLE, "method": "isotonic", "seed": 0}
    non_defaults = [name for name, default in defaults.items() if getattr(args, name) != default]
    names = ("score", "condition", "labelled", "model", *non_defaults)
    repeat = ["fastcos", "calibrate", args.items, *columns, *queries, "--only", "kept.txt", *rate]
    repeat += options.option_words(args, *names)
    return [
        ([*find_copies, "--kept", "kept.txt"], "finds items that are copies of other items"),
        (repeat, "calibrates without the copies"),
    ]


def _show(
    calibration: "Calibration", labelled: "LabelledCalibration | None", score: float | None
) -> None:
    if score is not None:
        show_text(calibration.reading(score))
    show_text(calibration.verdict)
    show_sections(calibration.sections())
    if labelled is not None:
        show_text(labelled.verdict)
        show_sections(labelled.sections())
    for note in calibration.notes:
        show_text(note)

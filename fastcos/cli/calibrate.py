"""fastcos calibrate: what a similarity score of a file of embeddings means."""

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
Report what a similarity score means: the share of random pairs that have it or more, thresholds by
false-positive rate with their intervals, and pairs just above and below the threshold. With
--condition, also how far rescalings of the latent dimensions move the threshold; with --labelled,
error rates and probabilities from pairs that are known to be relevant or not. Writes
calibration.json, which needs no fastcos to be read, and calibration.html, a page that needs no
network."""
EPILOG = f"""\
examples:
  fastcos calibrate items.npy
  fastcos calibrate texts.parquet --score 0.72
  fastcos calibrate films --condition 1.2 --names movies.csv
  fastcos calibrate items.npy --queries queries.npy --fpr 1e-5
  fastcos calibrate items.npy --labelled pairs.csv --method platt
  fastcos calibrate items.npy --measure query_normalized
input: a folder of fastcos fit or export, or
{options.VECTOR_FORMATS}"""
# rows drawn from each side by default: 400 million pairs, half a minute
SAMPLE = 20_000
FOLDER = "calibration"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("items", metavar="ITEMS", help="file of item embeddings, or a model")
    add("--queries", metavar="FILE", help="vectors that search the items (default: the items)")
    options.add_measure(parser)
    add("--fpr", type=float, default=1e-4, metavar="P", help="false-positive rate (default 1e-4)")
    add("--score", type=float, metavar="S", help="a score in use, to be explained")
    help_ = "also search rescalings D whose largest entry over the smallest is up to C"
    add("--condition", type=float, metavar="C", help=help_)
    help_ = f"rows drawn from each side (default {SAMPLE:,}; 0 for all)"
    add("--sample", type=int, default=SAMPLE, metavar="N", help=help_)
    add("--labelled", metavar="FILE", help="table of item, item and 1 if relevant, 0 if not")
    help_ = "probabilities by isotonic or platt (default isotonic), for --labelled"
    add("--method", default="isotonic", metavar="NAME", help=help_)
    add("--names", metavar="FILE", help="table of item ids and names")
    add("--only", metavar="FILE", help="text with the ids of the items to use, one a line")
    options.add_model_name(parser)
    options.add_vectors(parser)
    options.add_output(parser, FOLDER)
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Read, calibrate, write, show."""
    from fastcos.auditing import calibrate, pairs_near
    from fastcos.auditing.calibration.labelled import METHODS
    from fastcos.plots.html import calibration_page

    folder = options.out_directory(given)
    validation.as_choice("--method", given.method, METHODS)
    measure = options.as_measure("--measure", given.measure)
    if given.score is not None:
        as_threshold("--score", given.score, get_measure(measure))
    sample = validation.as_count("--sample", given.sample, low=0) or None
    if given.queries is not None:
        validation.check_none("--labelled", given.labelled, "with --queries")
    items, ids = read_items(given.items, given)
    if given.only is not None:
        items, ids = _with_only(items, ids, io.read_ids(given.only))
    queries = query_ids = None
    if given.queries is not None:
        queries, query_ids = options.read_vectors(given.queries, given, shared=True)
    names = ids
    if given.names is not None:
        with options.recognised_columns("--names"):
            names = io.read_names(given.names, ids)
    labelled = None if given.labelled is None else _labelled(given, items, ids, measure)
    with progress_bar("scoring pairs") as progress:
        calibration = calibrate(
            items, queries, measure=measure, fpr=given.fpr, sample=sample,
            condition=given.condition, model=given.model,
            progress=progress, random_state=given.seed,
        )  # fmt: skip
    examples = pairs_near(
        items, calibration.threshold(), queries, measure=measure, random_state=given.seed
    )
    facts = provenance.provenance(options.arguments(given))
    page = calibration_page(
        calibration, name=Path(given.items).name, score=given.score, examples=examples,
        labels=(names if query_ids is None else query_ids, names), labelled=labelled,
        provenance=facts,
    )  # fmt: skip
    document = {**facts, "calibration": calibration.to_dict()}
    if labelled is not None:
        document["labelled"] = labelled.to_dict()
    folder.mkdir(parents=True, exist_ok=True)
    calibration.save(folder / "calibration.json")
    io.write_text(folder / "calibration.html", page)
    written = [folder / "calibration.json", folder / "calibration.html"]
    if labelled is not None:
        io.write_json(folder / "labelled.json", labelled.to_dict())
        written.append(folder / "labelled.json")
    if given.json:
        print_json(provenance.json_ready(document))
    else:
        _show(calibration, labelled, given.score)
    say("wrote " + ", ".join(map(str, written)))
    if not given.json:
        print_next(_next_commands(calibration, given))
    return 0


def _with_only(items: Any, ids: Any, wanted: Any) -> tuple[Any, Any]:
    """Leave out the items whose ids are not among those of --only."""
    if len(wanted) < 2:
        raise ValueError(f"--only must hold at least 2 ids, got {len(wanted)}")
    rows = positions_in(ids, wanted)
    if (rows < 0).any():
        unknown = str(wanted[rows.argmin()])
        raise ValueError(f"--only must hold ids of the items, got {unknown!r}")
    return items[rows], ids[rows]


def _labelled(
    given: argparse.Namespace, items: Any, ids: Any, measure: Any
) -> "LabelledCalibration":
    """Calibrate by the labelled pairs of a table."""
    from fastcos.auditing import calibrate_pairs, score_pairs

    found = io.read_pairs(given.labelled, ids)
    if not np.isin(found.ratings, (0, 1)).all():
        odd = found.ratings[~np.isin(found.ratings, (0, 1))][0]
        raise ValueError(f"--labelled must hold 1 or 0 in its third column, got {odd:g}")
    say(f"labelled pairs: {len(found.pairs):,}, {found.n_unknown:,} of unknown items")
    scores = score_pairs(items, found.pairs, measure=measure)
    return calibrate_pairs(scores, found.ratings, method=given.method)


def _next_commands(
    calibration: "Calibration", given: argparse.Namespace
) -> list[tuple[list[str], str]]:
    """The command that uses the threshold, or what to do where no score has the rate."""
    columns = options.words_of(given, "vector_column", "id_column", "ids", "names")
    if given.measure != "cosine":
        columns += options.words_of(given, "measure")
    queries, rate = options.words_of(given, "queries"), ["--fpr", f"{given.fpr:g}"]
    if calibration.is_reachable(given.fpr):
        file = str(Path(given.out) / "calibration.json")
        search = ["fastcos", "neighbors", given.items, *columns, *queries, "--calibration", file]
        return [([*search, *rate], "only neighbours beyond chance")]
    if given.only is not None or given.measure != "cosine":
        return []  # no copies are left, or another score than 1 is theirs
    kept = ["fastcos", "index", "duplicates", given.items, *columns, "--min-score", "0.9999"]
    defaults = {"out": FOLDER, "sample": SAMPLE, "method": "isotonic", "seed": 0}
    changed = [name for name, default in defaults.items() if getattr(given, name) != default]
    names = ("score", "condition", "labelled", "model", *changed)
    again = ["fastcos", "calibrate", given.items, *columns, *queries, "--only", "kept.txt", *rate]
    again += options.words_of(given, *names)
    return [([*kept, "--kept", "kept.txt"], "finds the copies"), (again, "without them")]


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

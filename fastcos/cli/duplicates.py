"""The command ``fastcos index duplicates``, which finds groups of near-duplicates."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastcos import io, validation
from fastcos.cli import lists, options
from fastcos.cli.model_folder import read_items
from fastcos.cli.terminal import print_json, print_table, say, show_text
from fastcos.search import SimilarityIndex, near_duplicates
from fastcos.search.request import as_threshold
from fastcos.similarity import get_measure
from fastcos.storage.provenance import json_ready, provenance

if TYPE_CHECKING:
    from fastcos.auditing import Calibration

SUMMARY = "find pairs of items that are nearly the same"
DESCRIPTION = """\
Find all pairs of items whose score is at least a threshold. You give the threshold itself
(--min-score), or the share of random pairs whose score reaches the threshold (--fpr). The command
prints the pairs just above the threshold, so that you can judge whether the threshold is right. The
command writes a table with one row per pair. The row contains the two items, their score, their
group of near-duplicates, and the item to keep from this group. With --kept, the command also writes
the ids of the items to keep: one item of each group of near-duplicates, and every item that is in
no group. The command itself deletes nothing."""
# The command prints this many pairs: those whose scores are nearest to the threshold.
N_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument("source", metavar="SOURCE", help="file of vectors, or folder of an index")
    threshold = parser.add_mutually_exclusive_group(required=True)
    threshold.add_argument(
        "--min-score", type=float, metavar="S", help="lowest score of a pair (the threshold)"
    )
    help_ = (
        "share of random pairs whose score reaches the threshold; the command computes the "
        "threshold from this share"
    )
    threshold.add_argument("--fpr", type=float, metavar="P", help=help_)
    options.add_measure(parser)
    options.add_vectors(parser)
    lists.add_names(parser)
    help_ = "output file for the table of pairs, .csv or .parquet (default duplicates.csv)"
    parser.add_argument("--out", default="duplicates.csv", metavar="FILE", help=help_)
    help_ = (
        "text file to write, with one id per line. It lists the items to keep: one item of each "
        "group of near-duplicates, and every item that is in no group"
    )
    parser.add_argument("--kept", metavar="FILE", help=help_)
    options.add_json(parser)
    options.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Read the items, find near-duplicates, and write and print their pairs."""
    out = Path(args.out)
    validation.as_choice("the suffix of --out", out.suffix, (".csv", ".parquet"))
    for name, path in (("--out", out), ("--kept", args.kept)):
        if path is not None:
            options.check_output_file(name, Path(path))
    if (Path(args.source) / "header.json").is_file():
        index = SimilarityIndex.open(args.source)
        items, ids, source_vectors = index.vectors_of(index.ids), index.ids, None
    else:
        source_vectors = read_items(args.source, args)
        items, ids = source_vectors
    names = lists.read_names(args, args.source, ids, source_vectors)
    measure = options.as_measure("--measure", args.measure)
    if args.min_score is not None:
        threshold: Any = as_threshold("--min-score", args.min_score, get_measure(measure))
    else:
        threshold = _calibrated(items, measure, args)
    duplicates = near_duplicates(items, threshold, measure=measure)
    frame = duplicates.rows(ids, names)
    text_columns = () if names is None else ("first_text", "second_text")
    header = ("score", "first", "second", "group", "kept", *text_columns)
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".csv":
        io.write_csv(out, header, frame)
    else:
        columns = list(zip(*frame, strict=True)) or [()] * len(header)
        io.write_parquet(out, dict(zip(header, columns, strict=True)))
    if args.kept is not None:
        representatives = ids[duplicates.representatives].tolist()
        io.write_text(Path(args.kept), "".join(f"{id_}\n" for id_ in representatives))
    min_score = threshold if args.fpr is None else threshold.threshold()
    if args.json:
        counts = {"pairs": len(frame), "kept": len(duplicates.representatives), "items": len(ids)}
        facts = provenance(options.arguments(args))
        print_json(json_ready({**facts, "threshold": min_score, **counts}))
    else:
        show_text(f"{duplicates.verdict} The threshold is a {args.measure} of {min_score:.4f}.")
        if frame:
            print_table("pairs nearest to the threshold", header, frame[-N_SHOWN:])
    say(f"wrote {len(frame):,} pairs to {out}")
    return 0


def _calibrated(items: Any, measure: Any, args: argparse.Namespace) -> "Calibration":
    """Calibrate the scores of the items.

    If too many items are copies of each other, no threshold has a false-positive rate as low as
    ``args.fpr``. In this case, calibrate again without the copies.
    """
    from fastcos.auditing import calibrate

    settings = {"measure": measure, "fpr": args.fpr, "random_state": args.seed}
    calibration = calibrate(items, **settings)
    if calibration.is_reachable(args.fpr):
        return calibration
    top_edge = float(calibration.edges[-2])
    representatives = near_duplicates(items, top_edge, measure=measure).representatives
    n_copies = len(items) - len(representatives)
    say(f"calibrated the threshold without {n_copies:,} items that are copies of other items")
    return calibrate(items[representatives], **settings)

"""fastcos index duplicates: near-duplicates to review, and what to keep of them."""

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

SUMMARY = "pairs that are nearly the same, and what to keep"
DESCRIPTION = """\
Find the pairs of items that are nearly the same: by a least score, or by the share of random pairs
that may reach it (--fpr). Prints the pairs just above the threshold, which decide whether it is
right, and writes all of them with their scores, groups and what is kept: the first item of each
group. --kept writes the ids that are left. Nothing is deleted."""
# pairs that are printed: those nearest to the threshold
N_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("source", metavar="SOURCE", help="vectors, or an index")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--min-score", type=float, metavar="S", help="least score of a pair")
    which.add_argument("--fpr", type=float, metavar="P", help="share of random pairs at most")
    options.add_measure(parser)
    options.add_vectors(parser)
    lists.add_names(parser)
    help_ = "table of pairs, .csv or .parquet (default duplicates.csv)"
    parser.add_argument("--out", default="duplicates.csv", metavar="FILE", help=help_)
    parser.add_argument("--kept", metavar="FILE", help="text for the ids that stay, one a line")
    options.add_json(parser)
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Read, calibrate, connect, write and print."""
    out = Path(given.out)
    validation.as_choice("the suffix of --out", out.suffix, (".csv", ".parquet"))
    for name, path in (("--out", out), ("--kept", given.kept)):
        if path is not None:
            options.check_output_file(name, Path(path))
    if (Path(given.source) / "header.json").is_file():
        index = SimilarityIndex.open(given.source)
        items, ids, read = index.vectors_of(index.ids), index.ids, None
    else:
        read = read_items(given.source, given)
        items, ids = read
    names = lists.read_names(given, given.source, ids, read)
    measure = options.as_measure("--measure", given.measure)
    if given.min_score is not None:
        threshold: Any = as_threshold("--min-score", given.min_score, get_measure(measure))
    else:
        threshold = _calibrated(items, measure, given)
    found = near_duplicates(items, threshold, measure=measure)
    frame = found.rows(ids, names)
    named = () if names is None else ("first_text", "second_text")
    header = ("score", "first", "second", "group", "kept", *named)
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".csv":
        io.write_csv(out, header, frame)
    else:
        columns = list(zip(*frame, strict=True)) or [()] * len(header)
        io.write_parquet(out, dict(zip(header, columns, strict=True)))
    if given.kept is not None:
        kept = "".join(f"{one}\n" for one in ids[found.representatives].tolist())
        io.write_text(Path(given.kept), kept)
    least = threshold if given.fpr is None else threshold.threshold()
    if given.json:
        facts = {"threshold": least, "pairs": len(frame), "kept": len(found.representatives)}
        about = provenance(options.arguments(given))
        print_json(json_ready({**about, **facts, "items": len(ids)}))
    else:
        show_text(f"{found.verdict} The threshold is a {given.measure} of {least:.4f}.")
        if frame:
            print_table("pairs nearest to the threshold", header, frame[-N_SHOWN:])
    say(f"wrote {len(frame):,} pairs to {out}")
    return 0


def _calibrated(items: Any, measure: Any, given: argparse.Namespace) -> "Calibration":
    """Calibrate; without copies, where they are more than the rate allows."""
    from fastcos.auditing import calibrate

    chosen = {"measure": measure, "fpr": given.fpr, "random_state": given.seed}
    found = calibrate(items, **chosen)
    if found.is_reachable(given.fpr):
        return found
    kept = near_duplicates(items, float(found.edges[-2]), measure=measure).representatives
    say(f"calibrated without {len(items) - len(kept):,} items that repeat others")
    return calibrate(items[kept], **chosen)

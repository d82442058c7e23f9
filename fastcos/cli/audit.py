"""fastcos audit: how arbitrary are the cosines of a file of embeddings."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fastcos import io, report, validate
from fastcos.cli import options
from fastcos.cli.terminal import print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from fastcos.auditing import Audit

DESCRIPTION = """\
Tell how much of what cosine similarity says of item embeddings is a free choice of the training:
which share of the nearest neighbours is certain to survive rescalings of the latent dimensions,
which share is known not to, what other conventions would have shown, and what to compare instead.
Writes audit.json. Exit status 1 if a limit of --fail-under is not reached."""
EPILOG = """\
examples:
  fastcos audit items.npy --users users.npy
  fastcos audit vectors.npz --labels words.csv --label-column category --condition 1.2
  fastcos audit items.npy --condition 1.1 --fail-under certified=0.2,jaccard=0.5"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    parser.add_argument("items", metavar="ITEMS", help=".npy or .npz of item embeddings")
    parser.add_argument("--users", metavar="FILE", help=".npy or .npz of user embeddings")
    parser.add_argument("--k", type=int, default=10, metavar="K", help="neighbours (default 10)")
    parser.add_argument(
        "--condition",
        type=float,
        default=2.0,
        metavar="C",
        help="largest over smallest entry of D, for the verdict (default 2)",
    )
    parser.add_argument(
        "--fail-under",
        metavar="NAME=SHARE,...",
        help="exit 1 if lower: certified (at --condition), jaccard (least of the family)",
    )
    options.add_labels(parser)
    options.add_output(parser, "audit")
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Read, audit, write, show, judge."""
    from fastcos.auditing import audit

    options.apply_common(given)
    limits = _limits(given.fail_under)
    items, ids = io.read_vectors(given.items)
    users = None if given.users is None else io.read_vectors(given.users).vectors
    labelled = options.read_labels(given, ids)
    labels = None
    if labelled is not None:
        labels = [None if code < 0 else str(labelled.classes[code]) for code in labelled.labels]
    with progress_bar("searching neighbours") as progress:
        card = audit(
            items,
            users,
            labels=labels,
            k=given.k,
            condition=given.condition,
            seed=given.seed,
            progress=progress,
        )
    files = {"items": given.items, "users": given.users, "labels": given.labels}
    parameters = {"files": files, "seed": given.seed, "k": card.k, "condition": card.condition}
    document = {**report.provenance(parameters), "audit": report.json_ready(card.to_dict())}
    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    io.write_json(folder / "audit.json", document)
    if given.json:
        print_json(document)
    else:
        show(card)
    say(f"wrote {folder / 'audit.json'}")
    return _judged(card, limits)


def show(card: "Audit") -> None:
    """Print the card."""
    print(card.verdict)
    zero = f", {card.n_zero:,} of them zero and left out" if card.n_zero else ""
    print(f"{card.n_items:,} items of {card.n_dimensions} dimensions{zero}")
    print_table(
        f"share of the {card.k} nearest that survive every map of at most this condition",
        ["condition", "linear, certified", "rescaling, certified", "rescaling, not yet lost"],
        [[f"{point.condition:g}", *point[1:]] for point in card.survival],
    )
    print_table(
        "the same items otherwise",
        ["embeddings", "condition", "Jaccard", "overlap", "RSA", "hubness", "AUC", "compares"],
        [
            [row.name, row.condition, row.jaccard, row.overlap, row.rsa, row.hubness, row.auc,
             row.meaning]
            for row in (card.given, *card.family, *card.alternatives)
        ],
    )  # fmt: skip
    print_table(
        "shape",
        ["number", "value"],
        [
            ["arbitrariness (mean total-variation index)", card.arbitrariness],
            ["the same in a random basis", card.random_basis],
            ["largest share of one dimension in it", float(card.dimensions.max())],
            ["mean cosine", card.mean_cosine],
            ["effective rank", card.effective_rank],
            ["IsoScore", card.isoscore],
            ["hubness (skewness)", card.hubness.skewness],
            ["items in no list", card.hubness.antihub_share],
        ],
    )


def _limits(text: str | None) -> dict[str, float]:
    limits = {}
    for part in [] if text is None else text.split(","):
        name, _, share = part.partition("=")
        name = validate.as_choice("--fail-under", name.strip(), ("certified", "jaccard"))
        number = validate.as_number("--fail-under", share)
        limits[name] = validate.as_real("--fail-under", number, low=0, high=1)
    return limits


def _judged(card: "Audit", limits: dict[str, float]) -> int:
    """Return 1, with the reason told, if a share is below its limit."""
    point = next(point for point in card.survival if point.condition == card.condition)
    shares = {
        "certified": point.certified,
        "jaccard": min(row.jaccard for row in card.family),
    }
    failed = [name for name, limit in limits.items() if shares[name] < limit]
    for name in failed:
        say(f"failed: {name} is {shares[name]:.3f}, less than {limits[name]:g}")
    return 1 if failed else 0

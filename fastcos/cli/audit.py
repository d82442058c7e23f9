"""fastcos audit: how arbitrary are the cosines of a file of embeddings."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.model_folder import read_factors
from fastcos.cli.terminal import print_json, print_table, progress_bar, say
from fastcos.storage import provenance

if TYPE_CHECKING:
    from fastcos.auditing.model_diff import VersionChange
    from fastcos.auditing.report import Audit

DESCRIPTION = """\
Tell how much of what cosine similarity says of item embeddings is a free choice of the training:
which share of the nearest neighbours is certain to survive rescalings of the latent dimensions,
which share is known not to, what other conventions would have shown, and what to compare instead.
Writes audit.json and audit.html, a page that needs no network. With --against, also tells how much
of the change since an old version is a mere change of coordinates. Exit status 1 if a limit of
--fail-under is not reached."""
EPILOG = """\
examples:
  fastcos audit films
  fastcos audit items.npy --users users.npy
  fastcos audit vectors.npz --labels words.csv --label-column category
  fastcos audit new.npy --against old.npy --fail-under unchanged=0.9
  fastcos audit items.npy --fail-under certified=0.2,jaccard=0.5
input: a folder of fastcos fit, .npy, .npz (also as implicit saves models), .safetensors, .parquet,
word2vec or GloVe text, word2vec .bin"""
LIMITS = ("certified", "jaccard", "unchanged")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("items", metavar="ITEMS", help="file of item embeddings, or a model")
    parser.add_argument(
        "--users", metavar="FILE", help="user or query embeddings; interactions, for a folder"
    )
    parser.add_argument("--k", type=int, default=10, metavar="K", help="neighbours (default 10)")
    parser.add_argument(
        "--condition",
        type=float,
        default=2.0,
        metavar="C",
        help="largest over smallest entry of D, for the verdict (default 2)",
    )
    parser.add_argument(
        "--popularity", metavar="FILE", help="table of items and counts, such as their users"
    )
    parser.add_argument("--against", metavar="OLD", help="the old version of the same items")
    parser.add_argument("--old-users", metavar="FILE", help="users of the old version")
    parser.add_argument(
        "--fail-under",
        metavar="NAME=SHARE,...",
        help="exit 1 if lower: certified (at --condition), jaccard (least of the family), "
        "unchanged (neighbours kept from OLD once a linear map is allowed for)",
    )
    options.add_labels(parser)
    options.add_output(parser, "audit")
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Read, audit, write, show, judge."""
    from fastcos.auditing.embeddings import audit
    from fastcos.plots.html import audit_page

    options.apply_common(given)
    folder = options.out_directory(given)
    options.check_labels(given)
    limits = _limits(given)
    model = read_factors(given.items, given.users)
    for note in model.notes:
        say(note)
    old = _old_version(given, model.ids)
    labelled = options.read_labels(given, model.ids)
    labels = None if labelled is None else _texts(labelled)
    popularity = _popularity(given, model.ids)
    with progress_bar("searching neighbours") as progress:
        card = audit(
            model.items, model.users, labels=labels, popularity=popularity, k=given.k,
            condition=given.condition, seed=given.seed, progress=progress,
        )  # fmt: skip
    change = None if old is None else _change(given, model, old)
    facts = provenance.provenance(_parameters(given, card, model))
    document = {**facts, "audit": provenance.json_ready(card.to_dict())}
    if change is not None:
        document["change"] = _described(change, model.ids)
    folder.mkdir(parents=True, exist_ok=True)
    io.write_json(folder / "audit.json", document)
    page = audit_page(card, name=Path(given.items).name, change=change, provenance=facts)
    io.write_text(folder / "audit.html", page)
    if given.json:
        print_json(document)
    else:
        show(card)
        if change is not None:
            _show_change(change, model.ids)
    say(f"wrote {folder / 'audit.json'} and {folder / 'audit.html'}")
    return _judged(card, change, limits)


def _parameters(given: argparse.Namespace, card: "Audit", model: io.Factors) -> dict[str, Any]:
    names = ("items", "users", "labels", "popularity", "against", "old_users")
    return {
        "files": {name: getattr(given, name) for name in names},
        "read": list(model.notes),
        "seed": given.seed,
        "k": card.k,
        "condition": card.condition,
    }


def _described(change: "VersionChange", ids: Any) -> Any:
    """Return a change as JSON-ready values, with the ids of the items that changed most."""
    named = {"verdict": change.verdict, **change._asdict()}
    named["most_changed"] = [str(ids[item]) for item in change.most_changed]
    return provenance.json_ready(named)


def _texts(labelled: io.ItemLabels) -> list[str | None]:
    say(f"labels: {(labelled.labels >= 0).sum():,} items in {len(labelled.classes)} classes")
    return [None if code < 0 else str(labelled.classes[code]) for code in labelled.labels]


def _popularity(given: argparse.Namespace, ids: Any) -> Any:
    if given.popularity is None:
        return None
    found = io.read_popularity(given.popularity, ids)
    say(f"popularity: {len(ids) - found.n_missing:,} items, {found.n_missing:,} not in the file")
    return found.values


class _OldVersion(NamedTuple):
    """The old factors, and which of their rows are which of the new ones."""

    factors: io.Factors
    rows: Any
    old_rows: Any


def _old_version(given: argparse.Namespace, ids: Any) -> _OldVersion | None:
    """Read the old version before the work begins, and match its items."""
    if given.against is None:
        validation.check_none("--old-users", given.old_users, "without --against")
        return None
    old = read_factors(given.against, given.old_users)
    for note in old.notes:
        say(f"old version: {note}")
    rows, old_rows = io.common_rows(given.items, ids, given.against, old.ids)
    say(f"{len(rows):,} items are in both versions")
    return _OldVersion(old, rows, old_rows)


def _change(given: argparse.Namespace, model: io.Factors, old: _OldVersion) -> "VersionChange":
    """Compare the items that both versions have."""
    from fastcos.auditing.model_diff import version_change

    change = version_change(
        model.items[old.rows],
        old.factors.items[old.old_rows],
        users=model.users,
        old_users=old.factors.users,
        k=given.k,
        seed=given.seed,
    )
    return change._replace(most_changed=old.rows[change.most_changed])


def show(card: "Audit") -> None:
    """Print the card."""
    print(card.verdict)
    zero = f", {card.n_zero:,} of them zero and left out" if card.n_zero else ""
    twice = f", {card.n_duplicates:,} duplicates of others" if card.n_duplicates else ""
    print(f"{card.n_items:,} items of {card.n_dimensions} dimensions{zero}{twice}")
    if card.convention is not None:
        print(f"convention: {card.convention.name}: {card.convention.meaning}")
    print_table(
        f"share of the {card.k} nearest that survive every map of at most this condition; "
        f"rescalings: {card.n_sampled} sampled items",
        ["condition", "linear, certified", "rescaling, certified", "±", "not yet lost", "±"],
        [
            [f"{point.condition:g}", point.certified_linear, point.certified,
             point.certified_error, point.survives_attack, point.attack_error]
            for point in card.survival
        ],
    )  # fmt: skip
    print_table(
        f"the same items otherwise, by the lists of {card.n_listed:,} of them",
        ["embeddings", "condition", "Jaccard", "±", "overlap", "RSA", "hubness", "AUC", "compares"],
        [
            [row.name, row.condition, row.jaccard, row.jaccard_error, row.overlap, row.rsa,
             row.hubness, row.auc, row.meaning]
            for row in (card.given, *card.family, *card.alternatives)
        ],
    )  # fmt: skip
    print_table("shape", ["number", "value"], _shape(card))
    for number, line in enumerate(card.advice, 1):
        print(f"{number}. {line}")


def _shape(card: "Audit") -> list[list[Any]]:
    rows: list[list[Any]] = [
        ["arbitrariness (mean total-variation index)", card.arbitrariness],
        ["the same in a random basis", card.random_basis],
        ["largest share of one dimension in it", float(card.dimensions.max())],
        ["mean cosine", card.mean_cosine],
        ["effective rank", card.effective_rank],
        ["IsoScore", card.isoscore],
        ["hubness (skewness)", card.hubness.skewness],
        ["items in no list", card.hubness.antihub_share],
    ]
    if card.popularity is not None:
        rows += [
            ["popularity and norm, correlation", card.popularity.norm_correlation],
            ["popularity and hubness, correlation", card.popularity.hubness_correlation],
            ["popularity and mean cosine, correlation", card.popularity.cosine_correlation],
        ]
    if card.recovery is not None:
        bound = f"rescalings up to {card.recovery.condition:g}"
        rows += [
            [f"least AUC of labels found, {bound}", card.recovery.low],
            [f"greatest AUC of labels found, {bound}", card.recovery.high],
        ]
    return rows


def _show_change(change: "VersionChange", ids: Any) -> None:
    print(change.verdict)
    print_table(
        f"share of the {change.k} nearest that the old version has too, {change.n_listed:,} items",
        ["old version", "share kept"],
        [
            ["as it is", change.kept],
            ["columns rescaled to fit", change.after_rescaling],
            ["mapped linearly to fit", change.after_linear],
            ["by each version's query metric", change.query_metric],
        ],
    )
    if len(change.most_changed):
        names = ", ".join(str(ids[item]) for item in change.most_changed[:10])
        print(f"really changed most: {names}")


def _limits(given: argparse.Namespace) -> dict[str, float]:
    limits = {}
    for part in [] if given.fail_under is None else given.fail_under.split(","):
        name, _, share = part.partition("=")
        name = validation.as_choice("--fail-under", name.strip(), LIMITS)
        number = validation.as_number(f"--fail-under {name}", share)
        limits[name] = validation.as_real(f"--fail-under {name}", number, low=0, high=1)
    if "unchanged" in limits:
        validation.as_instance("--against", given.against, str, "given for --fail-under unchanged")
    return limits


def _judged(card: "Audit", change: "VersionChange | None", limits: dict[str, float]) -> int:
    """Return 1, with the reason told, if a share is below its limit."""
    shares = {"certified": card.point.certified, "jaccard": card.worst.jaccard}
    if change is not None:
        shares["unchanged"] = change.after_linear
    failed = [name for name, limit in limits.items() if shares[name] < limit]
    for name in failed:
        say(f"failed: {name} is {shares[name]:.3f}, less than {limits[name]:g}")
    return 1 if failed else 0

"""fastcos audit: how arbitrary are the cosines of a file of embeddings."""

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.model_folder import is_model_folder, read_factors, read_model_folder
from fastcos.cli.terminal import (
    print_json,
    print_next,
    progress_bar,
    say,
    say_written,
    show_sections,
    show_text,
    spinner,
)
from fastcos.io.columns import positions_in
from fastcos.storage import provenance

if TYPE_CHECKING:
    from fastcos.auditing.model_diff import ModelDiff
    from fastcos.auditing.report import Audit

DESCRIPTION = """\
Report how far the cosine similarities of item embeddings depend on the parametrisation of their
model, which a loss of dot products leaves open: bounds on the share of nearest neighbours that
survive rescalings of the latent dimensions, the neighbours of other parametrisations, and what to
compare instead. Writes audit.json and audit.html, a page that needs no network. With --against,
also splits the change since an old version into a change of basis and a real change. Exit status 1
if a share is below --fail-under."""
EPILOG = f"""\
examples:
  fastcos audit films
  fastcos audit items.npy --users users.npy
  fastcos audit vectors.npz --labels words.csv --label-column category
  fastcos audit new.npy --against old.npy --fail-under unchanged=0.9
  fastcos audit items.npy --users users.npy --explore page.html
  fastcos audit items.npy --fail-under certified=0.2,jaccard=0.5
input: a folder of fastcos fit or export, or
{options.VECTOR_FORMATS}"""
# rows whose pairs are scored for the thresholds: 4 million pairs, 0.3 s
_CALIBRATED = 2000
LIMITS = ("certified", "jaccard", "unchanged")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("items", metavar="ITEMS", help="file of item embeddings, or a model")
    add("--users", metavar="FILE", help="user or query embeddings; interactions, for a folder")
    add("--k", type=int, default=10, metavar="K", help="neighbours (default 10)")
    help_ = "largest over smallest entry of D, for the verdict (default 1.2)"
    add("--condition", type=float, metavar="C", help=help_)
    help_ = "what the model was trained on: dot, cosine or unknown (default unknown)"
    add("--trained-on", default="unknown", metavar="LOSS", help=help_)
    help_ = "whether the loss had weight decay on users and items: both, not both or unknown"
    add("--weight-decay", default="unknown", metavar="SIDES", help=help_)
    add("--popularity", metavar="FILE", help="table of items and counts, such as their users")
    add("--against", metavar="OLD", help="the old version of the same items")
    add("--old-users", metavar="FILE", help="users of the old version")
    help_ = (
        "exit 1 if lower: certified (at --condition), jaccard (of the worst "
        "parametrisation), unchanged (overlap with OLD after the best linear map)"
    )
    add("--fail-under", metavar="NAME=SHARE,...", help=help_)
    help_ = "also write a page on which you rescale up to 2,000 items, and see their neighbours"
    add("--explore", metavar="PAGE", help=help_)
    help_ = "ids of the items of that page, one a line (default: the most popular)"
    add("--explore-items", metavar="FILE", help=help_)
    options.add_vectors(parser)
    options.add_labels(parser)
    options.add_output(parser, "audit")
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Read, audit, write, show, compare with the limits."""
    from fastcos.auditing import audit, calibrate, diff_models
    from fastcos.plots.html import audit_page

    folder = options.out_directory(given)
    options.check_labels(given)
    limits = _limits(given)
    if given.explore is None:
        validation.check_none("--explore-items", given.explore_items, "without --explore")
    else:
        options.check_output_file("--explore", Path(given.explore))
    model = read_factors(given.items, given.users, given)
    old = _old_version(given, model.ids)
    labelled, labels, popularity = _about_items(given, model.ids)
    condition = {} if given.condition is None else {"condition": given.condition}
    trained_on, weight_decay = _loss(given)
    with progress_bar("searching neighbours") as progress:
        report = audit(
            model.items, model.users, labels=labels, popularity=popularity, k=given.k,
            trained_on=trained_on, weight_decay=weight_decay, progress=progress,
            random_state=given.seed, **condition,
        )  # fmt: skip
    diff = None
    if old is not None:
        older, rows, old_rows = old
        diff = diff_models(
            model.items[rows], older.items[old_rows], users=model.users, old_users=older.users,
            k=given.k, random_state=given.seed,
        )  # fmt: skip
        # of the common items: as rows of the new version
        diff = dataclasses.replace(diff, most_changed=rows[diff.most_changed])
    calibration = calibrate(
        model.items, sample=_CALIBRATED, condition=report.condition, random_state=given.seed
    )
    facts = provenance.provenance(options.arguments(given) | {"read": model.notes})
    document = {
        **facts,
        "audit": provenance.json_ready(report.to_dict()),
        # the whole distribution is for fastcos calibrate
        "calibration": {
            "verdict": calibration.verdict,
            "n_pairs": calibration.n_pairs,
            "thresholds": {f"{rate:g}": calibration.threshold(rate) for rate in calibration.rates},
        },
    }
    if diff is not None:
        changed = [str(model.ids[item]) for item in diff.most_changed]
        document["diff"] = provenance.json_ready({**diff.to_dict(), "most_changed": changed})
    page = audit_page(
        report, name=Path(given.items).name, diff=diff, calibration=calibration, provenance=facts
    )
    folder.mkdir(parents=True, exist_ok=True)
    io.write_json(folder / "audit.json", document)
    io.write_text(folder / "audit.html", page)
    if given.explore is not None:
        _write_explorer(given, model, labelled, labels, popularity, report.condition, facts)
    if given.json:
        print_json(document)
    else:
        show(report)
        if diff is not None:
            show_text(diff.verdict)
            show_sections(diff.sections())
            if changed:
                show_text(f"largest real change: {', '.join(changed[:10])}")
    say_written([folder / "audit.html", folder / "audit.json"])
    if not given.json:
        print_next(_next_commands(report, given))
    return _status(report, diff, limits)


def _about_items(given: argparse.Namespace, ids: Any) -> tuple["io.ItemLabels | None", Any, Any]:
    """Read the labels, also as a list with None, and the popularities of the items."""
    labels = popularity = None
    labelled = options.read_labels(given, ids)
    if labelled is not None:
        labels = options.label_names(labelled)
        n_labelled = len(labels) - labels.count(None)
        say(f"labels: {n_labelled:,} items in {len(labelled.classes)} classes")
    if given.popularity is not None:
        with options.recognised_columns("--popularity"):
            found = io.read_popularity(given.popularity, ids)
        popularity, n_known = found.values, len(ids) - found.n_missing
        say(f"popularity: {n_known:,} items, {found.n_missing:,} not in the file")
    return labelled, labels, popularity


def _loss(given: argparse.Namespace) -> tuple[str, str]:
    """What the model was trained on: as given, or as fastcos fit does where nothing was."""
    trained_on, weight_decay = given.trained_on, given.weight_decay
    if is_model_folder(given.items):
        has_decay = read_model_folder(given.items).model.objective == "weight_decay"
        trained_on = "dot" if trained_on == "unknown" else trained_on
        if weight_decay == "unknown":
            weight_decay = "both" if has_decay else "not both"
    return trained_on, weight_decay


def _write_explorer(
    given: argparse.Namespace,
    model: io.Factors,
    labelled: "io.ItemLabels | None",
    labels: Any,
    popularity: Any,
    condition: float,
    facts: dict[str, Any],
) -> None:
    """Write the page of --explore: the items named, or the most popular."""
    from fastcos.plots.html import items_page

    rows = None
    if given.explore_items is not None:
        wanted = io.read_ids(given.explore_items)
        rows = sorted({*positions_in(model.ids, wanted).tolist()} - {-1})
        if not rows:
            raise ValueError(f"--explore-items must name items of {given.items}, got none of them")
    if popularity is None and is_model_folder(given.items):
        popularity = read_model_folder(given.items).popularity
    with spinner("certifying neighbours"):
        page = items_page(
            model.items, model.users, names=model.ids if labelled is None else labelled.names,
            labels=labels, popularity=popularity, rows=rows, name=Path(given.items).name,
            condition=condition, provenance=facts,
        )  # fmt: skip
    io.write_text(Path(given.explore), page)
    say(f"wrote {given.explore}")


def _old_version(given: argparse.Namespace, ids: Any) -> tuple[io.Factors, Any, Any] | None:
    """Read the old version, and match items: its factors, rows of the new one, rows of the old."""
    if given.against is None:
        validation.check_none("--old-users", given.old_users, "without --against")
        return None
    say(f"old version: {given.against}")
    old = read_factors(given.against, given.old_users)
    rows, old_rows = io.common_rows(given.items, ids, given.against, old.ids)
    say(f"{len(rows):,} items are in both versions")
    return old, rows, old_rows


def show(report: "Audit") -> None:
    """Print the report."""
    show_text(report.headline)
    for number, line in enumerate(report.advice, 1):
        show_text(f"{number}. {line}")
    show_text(report.verdict)
    show_text(report.summary)
    for form in report.parametrizations:
        if form.name == report.parametrization:
            show_text(f"parametrisation: {form.name}: {form.meaning}")
    show_sections(report.sections())


def _next_commands(report: "Audit", given: argparse.Namespace) -> list[tuple[list[str], str]]:
    """Commands that follow from the report, each with what it gains."""
    columns = options.words_of(given, *options.VECTOR_COLUMNS)
    k = options.words_of(given, "k") if given.k != given.parser.get_default("k") else []
    users = options.words_of(given, "users")
    if report.trained_on == "cosine":
        serve = ["fastcos", "neighbors", given.items, *columns, *k]
        return [(serve, "neighbours by the cosine that was trained")]
    audited = ["fastcos", "audit", given.items, *options.words_given(given, "trained_on")]
    found = []
    if report.equal_norms and report.trained_on == "unknown":
        again = [*audited, "--trained-on", "cosine"]
        found.append((again, "if it was: no rescaling is free, and the cosine can stay"))
    metrics = {row.name: row for row in report.invariant_baselines}
    if "query_metric" not in metrics:
        given_loss = options.words_of(given, "trained_on") if report.trained_on != "unknown" else []
        with_users = [*audited, *given_loss, "--users", "users.npy"]
        return [*found, (with_users, "finds what no rescaling changes")]
    row = metrics["query_metric"]
    gain = f"no rescaling changes it; {row.neighbors_kept:.0%} of today's neighbours stay"
    if row.auc is not None and report.given.auc is not None:
        gain += f"; AUC of the labels {row.auc:.2f} in place of {report.given.auc:.2f}"
    export = ["fastcos", "index", "export", given.items, *columns, *users, "--out", "served"]
    serve = ["fastcos", "neighbors", "served", *k]
    return [*found, (export, gain), (serve, "their exact neighbours")]


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


def _status(report: "Audit", diff: "ModelDiff | None", limits: dict[str, float]) -> int:
    """Return 1, and print the reason, if a share is below its limit."""
    shares = {
        "certified": report.at_condition.certified,
        "jaccard": report.worst_parametrization.jaccard,
    }
    if diff is not None:
        shares["unchanged"] = diff.unchanged
    failed = [name for name, limit in limits.items() if shares[name] < limit]
    for name in failed:
        say(f"failed: {name} is {shares[name]:.3f}, less than {limits[name]:g}")
    return 1 if failed else 0

"""The command ``fastcos audit``, which reports to what extent cosines are arbitrary."""

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
Report how much the cosine similarities of item embeddings depend on the scale of each latent
dimension. A loss that depends only on dot products of users and items does not determine the scale
of a dimension. A rescaling multiplies each dimension of the items by a number, and divides the same
dimension of the users by this number. Every prediction then stays the same, but the cosines between
items change. The condition number of a rescaling is its largest factor divided by its smallest. The
option --condition sets the largest condition number that the audit considers. The report states
which share of the nearest neighbours survives all rescalings up to this condition number. The share
is stated as a lower and an upper bound. The report also compares the neighbours in ITEMS with the
neighbours in other forms of the same model, and recommends similarities that no rescaling changes.
The command writes audit.json and audit.html, a page that needs no network.

With --against, the command also compares ITEMS with an old version of the embeddings. The report
then states how many neighbours have changed. It distinguishes two kinds of changes: real changes,
and changes that come only from a linear change of basis. With --fail-under, the exit status is 1 if
a share is below the limit that you give for this share."""
EPILOG = f"""\
examples:
  fastcos audit films
  fastcos audit items.npy --users users.npy
  fastcos audit vectors.npz --labels words.csv --label-column category
  fastcos audit new.npy --against old.npy --fail-under unchanged=0.9
  fastcos audit items.npy --users users.npy --explore page.html
  fastcos audit items.npy --fail-under certified=0.2,jaccard=0.5
input: a folder written by `fastcos fit` or `fastcos index export`, or
{options.VECTOR_FORMATS}"""
# The thresholds are computed from the pairs of this many rows. 2,000 rows form 4 million pairs.
_CALIBRATED = 2000
LIMITS = ("certified", "jaccard", "unchanged")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    help_ = "file of item embeddings, or folder written by `fastcos fit`"
    add("items", metavar="ITEMS", help=help_)
    help_ = (
        "file of user or query embeddings, or file of interactions if ITEMS is a folder written by "
        "`fastcos fit`"
    )
    add("--users", metavar="FILE", help=help_)
    help_ = "number of nearest neighbours per item (default 10)"
    add("--k", type=int, default=10, metavar="K", help=help_)
    help_ = (
        "largest condition number of the rescalings that the verdict considers (default 1.2); the "
        "condition number of a rescaling is its largest factor divided by its smallest"
    )
    add("--condition", type=float, metavar="C", help=help_)
    help_ = (
        "'dot' if the training loss depends only on dot products of users and items; 'cosine' if "
        "it depends only on cosines of users and items; 'ranking' if it depends only on "
        "differences between the dot products of one user with several items, as for BPR, for a "
        "softmax over items, and for a model with one bias per user; otherwise 'unknown' (default)"
    )
    add("--trained-on", default="unknown", metavar="LOSS", help=help_)
    help_ = (
        "'both' if the training loss applied weight decay to users and items; 'not both' if it "
        "applied weight decay to users only, to items only, or to neither; otherwise 'unknown' "
        "(default)"
    )
    add("--weight-decay-on", default="unknown", metavar="DECAY", help=help_)
    help_ = "table with item ids and a count for each item, such as its number of users"
    add("--popularity", metavar="FILE", help=help_)
    help_ = "file of the item embeddings of an old version; the command compares ITEMS with them"
    add("--against", metavar="OLD", help=help_)
    add("--old-users", metavar="FILE", help="user or query embeddings of the old version")
    help_ = (
        "exit with status 1 if a share is below its limit. NAME is 'certified', 'jaccard' or "
        "'unchanged'. 'certified' is the share of neighbours that provably remain neighbours under "
        "every rescaling whose condition number is at most --condition. 'jaccard' is "
        "the lowest Jaccard index between the neighbours in ITEMS and the neighbours in another "
        "form of the same model. 'unchanged' is the share of neighbours that are also neighbours "
        "in OLD; a linear change of basis between OLD and ITEMS does not lower this share"
    )
    add("--fail-under", metavar="NAME=SHARE,...", help=help_)
    help_ = (
        "also write an HTML page to PAGE, on which you can rescale the dimensions of up to 2,000 "
        "items and watch their neighbours change"
    )
    add("--explore", metavar="PAGE", help=help_)
    help_ = (
        "text file with one item id per line; the page of --explore shows the items in this file "
        "(default: the most popular items)"
    )
    add("--explore-items", metavar="FILE", help=help_)
    options.add_vectors(parser)
    options.add_labels(parser)
    options.add_output(parser, "audit")
    options.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Audit the embeddings, write and print the report, and check the limits of --fail-under."""
    from fastcos.auditing import audit, calibrate, diff_models
    from fastcos.plots.html import audit_page

    folder = options.out_directory(args)
    options.check_labels(args)
    limits = _limits(args)
    if args.explore is None:
        validation.check_none("--explore-items", args.explore_items, "without --explore")
    else:
        options.check_output_file("--explore", Path(args.explore))
    model = read_factors(args.items, args.users, args)
    old_version = _old_version(args, model.ids)
    item_labels, labels, popularity = _read_item_data(args, model.ids)
    condition = {} if args.condition is None else {"condition": args.condition}
    trained_on, weight_decay_on = _training_loss(args)
    with progress_bar("searching neighbours") as progress:
        report = audit(
            model.items, model.users, labels=labels, popularity=popularity, k=args.k,
            trained_on=trained_on, weight_decay_on=weight_decay_on, progress=progress,
            random_state=args.seed, **condition,
        )  # fmt: skip
    diff = None
    if old_version is not None:
        old_model, rows, old_rows = old_version
        diff = diff_models(
            model.items[rows], old_model.items[old_rows], users=model.users,
            old_users=old_model.users, k=args.k, random_state=args.seed,
        )  # fmt: skip
        # diff_models returns positions in the list of items that both versions contain. The report
        # needs row numbers of the new version, so the positions are converted.
        diff = dataclasses.replace(diff, most_changed=rows[diff.most_changed])
    calibration = calibrate(
        model.items, sample=_CALIBRATED, condition=report.condition, random_state=args.seed
    )
    facts = provenance.provenance(options.arguments(args) | {"read": model.notes})
    document = {
        **facts,
        "audit": provenance.json_ready(report.to_dict()),
        # audit.json contains only thresholds; `fastcos calibrate` writes the whole distribution.
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
        report, name=Path(args.items).name, diff=diff, calibration=calibration, provenance=facts
    )
    folder.mkdir(parents=True, exist_ok=True)
    io.write_json(folder / "audit.json", document)
    io.write_text(folder / "audit.html", page)
    if args.explore is not None:
        _write_explorer(args, model, item_labels, labels, popularity, report.condition, facts)
    if args.json:
        print_json(document)
    else:
        if diff is not None:  # With `--against`, the output begins with the comparison.
            show_text(diff.verdict)
            show_sections(diff.sections())
            if changed:
                show_text(f"The items with the largest real change are {', '.join(changed[:10])}.")
        show(report)
    say_written([folder / "audit.html", folder / "audit.json"])
    if not args.json:
        print_next(_next_commands(report, args))
    return _status(report, diff, limits)


def _read_item_data(args: argparse.Namespace, ids: Any) -> tuple["io.ItemLabels | None", Any, Any]:
    """Read the labels and the popularity of the items.

    Return three values, each of which may be None: the result of `options.read_labels`, a list with
    the label of each item, and the popularity of each item.
    """
    labels = popularity = None
    item_labels = options.read_labels(args, ids)
    if item_labels is not None:
        labels = options.label_names(item_labels)
        n_labelled = len(labels) - labels.count(None)
        say(f"read the labels of {n_labelled:,} items in {len(item_labels.classes)} classes")
    if args.popularity is not None:
        with options.errors_name_flag("--popularity"):
            column = io.read_popularity(args.popularity, ids)
        popularity, n_read = column.values, len(ids) - column.n_missing
        missing = f"{column.n_missing:,} items are missing from the file"
        say(f"read the popularity of {n_read:,} items; {missing}")
    return item_labels, labels, popularity


def _training_loss(args: argparse.Namespace) -> tuple[str, str]:
    """Return the values of --trained-on and --weight-decay-on.

    If ITEMS is a folder that `fastcos fit` wrote, the function replaces the value "unknown" by the
    loss or the weight decay of the saved model.
    """
    trained_on, weight_decay_on = args.trained_on, args.weight_decay_on
    if is_model_folder(args.items):
        has_decay = read_model_folder(args.items).model.objective == "weight_decay"
        trained_on = "dot" if trained_on == "unknown" else trained_on
        if weight_decay_on == "unknown":
            weight_decay_on = "both" if has_decay else "not both"
    return trained_on, weight_decay_on


def _write_explorer(
    args: argparse.Namespace,
    model: io.Factors,
    item_labels: "io.ItemLabels | None",
    labels: Any,
    popularity: Any,
    condition: float,
    facts: dict[str, Any],
) -> None:
    """Write the page of --explore.

    The page shows the items of --explore-items or, by default, the most popular items.
    """
    from fastcos.plots.html import items_page

    rows = None
    if args.explore_items is not None:
        explored_ids = io.read_ids(args.explore_items)
        rows = sorted({*positions_in(model.ids, explored_ids).tolist()} - {-1})
        if not rows:
            rule = f"contain ids of items in {args.items}"
            raise ValueError(f"--explore-items must {rule}, got only other ids")
    if popularity is None and is_model_folder(args.items):
        popularity = read_model_folder(args.items).popularity
    with spinner("certifying neighbours"):
        page = items_page(
            model.items, model.users, names=model.ids if item_labels is None else item_labels.names,
            labels=labels, popularity=popularity, rows=rows, name=Path(args.items).name,
            condition=condition, provenance=facts,
        )  # fmt: skip
    io.write_text(Path(args.explore), page)
    say(f"wrote {args.explore}")


def _old_version(args: argparse.Namespace, ids: Any) -> tuple[io.Factors, Any, Any] | None:
    """Read the factors of the old version, if there is one.

    Return the old factors and, for the items that both versions contain, two arrays of row numbers.
    The first array contains the rows of these items in the new version, and the second array
    contains their rows in the old version.
    """
    if args.against is None:
        validation.check_none("--old-users", args.old_users, "without --against")
        return None
    say(f"comparing the items with the old version {args.against}")
    old_factors = read_factors(args.against, args.old_users)
    rows, old_rows = io.common_rows(args.items, ids, args.against, old_factors.ids)
    say(f"{len(rows):,} items are in both versions")
    return old_factors, rows, old_rows


def show(report: "Audit") -> None:
    """Print the report, starting with the headline and the advice."""
    show_text(report.headline)
    for number, line in enumerate(report.advice, 1):
        show_text(f"{number}. {line}")
    show_text(report.verdict)
    show_text(f"The embeddings contain {report.summary}.")
    for form in report.parametrizations:
        if form.name == report.parametrization:
            show_text(f'The embeddings have the form "{form.name}": {form.meaning}.')
    show_sections(report.sections())


def _next_commands(report: "Audit", args: argparse.Namespace) -> list[tuple[list[str], str]]:
    """Return the commands that follow from the report, each with the reason to run it."""
    columns = options.option_words(args, *options.VECTOR_COLUMNS)
    k = options.option_words(args, "k") if args.k != args.parser.get_default("k") else []
    users = options.option_words(args, "users")
    if report.trained_on == "cosine":
        neighbors = ["fastcos", "neighbors", args.items, *columns, *k]
        explanation = "finds neighbours by the cosine, the similarity that training optimised"
        return [(neighbors, explanation)]
    audit = ["fastcos", "audit", args.items, *options.command_words(args, "trained_on")]
    commands = []
    if report.equal_norms and report.trained_on == "unknown":
        reason = (
            "run this command instead if the model was trained on the cosine, because such "
            "training determines the scale of each dimension"
        )
        commands.append(([*audit, "--trained-on", "cosine"], reason))
    metrics = {row.name: row for row in report.invariant_baselines}
    if "query_metric" not in metrics:
        is_known = report.trained_on != "unknown"
        loss = options.option_words(args, "trained_on") if is_known else []
        audit_with_users = [*audit, *loss, "--users", "users.npy"]
        reason = "adds the query metric to the report; no rescaling changes the query metric"
        return [*commands, (audit_with_users, reason)]
    row = metrics["query_metric"]
    reason = (
        "writes embeddings whose cosines stay the same under every rescaling; "
        f"{row.neighbors_kept:.0%} of their nearest neighbours are the same as in the audited "
        "embeddings"
    )
    if row.auc is not None and report.given.auc is not None:
        reason += (
            f"; the AUC of the labels is {row.auc:.2f} for the written embeddings, and "
            f"{report.given.auc:.2f} for the audited embeddings"
        )
    export = ["fastcos", "index", "export", args.items, *columns, *users, "--out", "served"]
    neighbors = ["fastcos", "neighbors", "served", *k]
    if report.centered is not None:
        neighbors += ["--measure", "centered_cosine"]
    search_reason = "finds the exact neighbours of the exported items"
    return [*commands, (export, reason), (neighbors, search_reason)]


def _limits(args: argparse.Namespace) -> dict[str, float]:
    """Return a dict of the limits in --fail-under: the name of each share, and its limit."""
    limits = {}
    for part in [] if args.fail_under is None else args.fail_under.split(","):
        name, _, share = part.partition("=")
        name = validation.as_choice("--fail-under", name.strip(), LIMITS)
        number = validation.as_number(f"--fail-under {name}", share)
        limits[name] = validation.as_real(f"--fail-under {name}", number, low=0, high=1)
    if "unchanged" in limits:
        validation.as_instance("--against", args.against, str, "given for --fail-under unchanged")
    return limits


def _status(report: "Audit", diff: "ModelDiff | None", limits: dict[str, float]) -> int:
    """Return 1 and print the reason if a share is below its limit; otherwise, return 0."""
    shares = {
        "certified": report.at_condition.certified,
        "jaccard": report.worst_parametrization.jaccard,
    }
    if diff is not None:
        shares["unchanged"] = diff.unchanged
    failed = [name for name, limit in limits.items() if shares[name] < limit]
    for name in failed:
        share = f"the share {name!r} is {shares[name]:.3f}"
        say(f"--fail-under failed: {share}, but must be at least {limits[name]:g}")
    return 1 if failed else 0

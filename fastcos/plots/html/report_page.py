"""The page: verdict, advice, then what they rest on, section by section."""

from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import numpy as np

from fastcos.auditing.model_diff import VersionChange
from fastcos.auditing.report import Audit, Comparison
from fastcos.plots.html import charts
from fastcos.plots.html.markup import Markup, element, folded, joined, table

_NONE = "-"


def audit_page(
    card: Audit,
    *,
    name: str = "item embeddings",
    change: VersionChange | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> str:
    """Return a card as one self-contained HTML page: no network, no script.

    Parameters
    ----------
    card : Audit
        What :func:`fastcos.audit` returned.
    name : str
        What was audited, such as a file name.
    change : VersionChange, optional
        What :func:`fastcos.auditing.version_change` returned.
    provenance : mapping, optional
        Parameters, versions and machine, for the foot of the page.

    Returns
    -------
    str
        HTML; colours follow the reader's light or dark setting.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import audit
    >>> from fastcos.plots.html import audit_page
    >>> card = audit(np.random.default_rng(0).standard_normal((60, 4)), k=3)
    >>> page = audit_page(card, name="a < b")
    >>> card.verdict in page, "a &lt; b" in page, "<script" in page
    (True, True, False)
    """
    sections = (
        _head(card, name),
        _change(change),
        _survival(card),
        _dimensions(card),
        _conventions(card),
        _unchanged(card),
        _recovery(card),
        _shape(card),
        _method(card),
    )
    head = joined(
        [
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            element("title", f"Audit of {name}"),
            element("style", Markup(resources.files("fastcos.plots.html").joinpath("style.css")
                                    .read_text("utf8"))),
        ]
    )  # fmt: skip
    body = joined([element("main", *sections), _foot(provenance)])
    page = element("html", element("head", head), element("body", body), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _head(card: Audit, name: str) -> Markup:
    left_out = f", {card.n_zero:,} of them zero rows and left out" if card.n_zero else ""
    twice = f", {card.n_duplicates:,} duplicates of others" if card.n_duplicates else ""
    return element(
        "header",
        element("p", f"How arbitrary are the cosine similarities of {name}?", class_="name"),
        element("h1", card.verdict),
        element(
            "p",
            f"{card.n_items:,} items of {card.n_dimensions} dimensions{left_out}{twice}.",
            class_="quiet",
        ),
        element("ol", *(element("li", line) for line in card.advice), class_="advice"),
    )


def _section(title: str, *children: object) -> Markup:
    return element("section", element("h2", title), *children)


def _survival(card: Audit) -> Markup:
    point = card.point
    rows = [
        (
            f"{p.condition:g}",
            f"{p.certified_linear:.1%}",
            _estimate(p.certified, p.certified_error),
            _estimate(p.survives_attack, p.attack_error),
        )
        for p in card.survival
    ]
    return _section(
        "How much rescaling do the neighbours survive?",
        element(
            "p",
            "A rescaling D multiplies the latent dimensions of the users and divides those of the "
            "items: no prediction changes, cosines do. Its condition is the largest of its "
            "factors over the smallest. The true share of neighbours that survive "
            "every D of a condition lies in the band: below it they are certified, above it a D "
            f"that loses them was found. At condition {card.condition:g}: "
            f"{_estimate(point.certified, point.certified_error)} to "
            f"{_estimate(point.survives_attack, point.attack_error)}.",
        ),
        element(
            "ul",
            element("li", "certified to not yet lost, rescalings"),
            element("li", "certified for every linear map", class_="other"),
            element("li", f"condition of the verdict, {card.condition:g}", class_="mark"),
            class_="legend",
        ),
        charts.survival_chart(card.survival, card.condition),
        folded(
            "The numbers",
            table(
                f"Share of the {card.k} nearest neighbours that survive every map of at most this "
                f"condition. Rescalings: {card.n_sampled} sampled items, ± one standard error; "
                "linear maps: all items.",
                ("condition", "linear, certified", "rescaling, certified", "rescaling, not lost"),
                rows,
            ),
        ),
    )


def _dimensions(card: Audit) -> Markup:
    order = np.argsort(-card.dimensions, kind="stable")
    shown = np.sort(order[: charts.MOST_BARS])
    shares = [(str(number), float(card.dimensions[number])) for number in shown.tolist()]
    left = card.n_dimensions - len(shares)
    telling = f"; {left} smaller ones are not drawn" if left else ""
    first = [(str(number), f"{card.dimensions[number]:.1%}") for number in order[:10].tolist()]
    return _section(
        "Which dimensions does it come from?",
        element(
            "p",
            f"The local index of arbitrariness is {card.arbitrariness:.2f} on a scale from 0 to 1 "
            f"({card.random_basis:.2f} in a random basis): a rescaling of condition κ moves "
            "Fisher's z of a neighbour by up to about that times ln κ. Each bar is the part of one "
            f"latent dimension, counted from 0{telling}; the dotted line is an even share.",
        ),
        charts.shares_chart(shares, 1 / card.n_dimensions) if card.dimensions.any() else "",
        folded(
            "The ten largest", table("Share of the arbitrariness", ("dimension", "share"), first)
        ),
    )


def _conventions(card: Audit) -> Markup:
    told = f" The given factors: {card.convention.meaning}." if card.convention else ""
    return _section(
        "The same model under other conventions",
        element(
            "p",
            "Each row is the same model with the same predictions. Where its neighbours differ "
            f"from the given ones, the difference is a matter of convention.{told}",
        ),
        _comparisons("Rescalings", "rescaling", (card.given, *card.family), card),
        element(
            "p",
            f"Jaccard of the {card.k} nearest neighbours of {card.n_listed:,} items with those of "
            "the given embeddings, ± one standard error where it is at least 0.005; RSA: "
            "correlation of all their cosines; hubness: skewness of how often an item is listed; "
            "condition: of the rescaling that leads there.",
            class_="quiet",
        ),
    )


def _unchanged(card: Audit) -> Markup:
    with_users = any(row.name == "query_metric" for row in card.alternatives)
    needed = "" if with_users else " Those that know what users do need the users' embeddings."
    return _section(
        "What no rescaling changes",
        element(
            "p",
            "Cosines of these forms are the same for every rescaling, and for every linear map, of "
            "the model. Low agreement with the given embeddings is not a fault of theirs."
            f"{needed}",
        ),
        _comparisons("Alternatives", "form", card.alternatives, card),
    )


def _comparisons(caption: str, kind: str, rows: Iterable[Comparison], card: Audit) -> Markup:
    """A table of comparisons; the column of AUC where there are labels."""
    labelled = card.given.auc is not None
    header = ("Jaccard with given", "RSA", "hubness", *(["AUC"] if labelled else []), "condition")
    lines = (
        (
            joined([row.name.replace("_", " "), element("small", row.meaning)]),
            charts.meter(row.jaccard, row.jaccard_error),
            _optional(row.rsa, ".2f"),
            f"{row.hubness:.1f}",
            *([_optional(row.auc, ".3f")] if labelled else []),
            _optional(row.condition, ".3g"),
        )
        for row in rows
    )
    return table(caption, (kind, *header), lines)


def _recovery(card: Audit) -> Markup:
    found = card.recovery
    if found is None:
        return Markup("")
    return _section(
        "How far the labels' recovery can be moved",
        element(
            "p",
            f"Pairwise AUC over {found.n_items:,} labelled items: the chance that two items of one "
            f"label are nearer than two of different labels. Rescalings of condition at most "
            f"{found.condition:g} move it from {found.low:.3f} to {found.high:.3f}; both ends were "
            "found by search, so the true range is at least as wide.",
        ),
        charts.recovery_chart(found),
        element("p", "Scale of each dimension under the worst:", class_="quiet"),
        charts.rescaling_chart("Worst rescaling, items divided by D", 1 / found.low_rescaling),
        element("p", "and under the best:", class_="quiet"),
        charts.rescaling_chart("Best rescaling, items divided by D", 1 / found.high_rescaling),
    )


def _shape(card: Audit) -> Markup:
    facts = [
        ("mean cosine of all pairs", f"{card.mean_cosine:.3f}"),
        (f"effective rank, of {card.n_dimensions}", f"{card.effective_rank:.1f}"),
        ("IsoScore, 1 is isotropic", _optional(card.isoscore, ".3f")),
        ("hubness, skewness of N_k", f"{card.hubness.skewness:.2f}"),
        ("items in no list", f"{card.hubness.antihub_share:.1%}"),
    ]
    if card.popularity is not None:
        bias = card.popularity
        facts += [
            ("popularity and norm, correlation", _correlation(bias.norm_correlation)),
            ("popularity and hubness, correlation", _correlation(bias.hubness_correlation)),
            ("popularity and mean cosine, correlation", _correlation(bias.cosine_correlation)),
            ("popularity of neighbours over that of items", f"{bias.lift:.2f}"),
        ]
    return _section(
        "Shape",
        element(
            "p",
            "These describe the embeddings as they are given; every one of them changes under a "
            "rescaling.",
        ),
        _facts(facts),
    )


def _change(change: VersionChange | None) -> Markup:
    if change is None:
        return Markup("")
    rows = [
        ("as they are", charts.meter(change.kept, change.kept_error)),
        *(
            [("old columns rescaled to fit", charts.meter(change.after_rescaling, 0.0))]
            if change.after_rescaling is not None
            else []
        ),
        (
            "old items mapped linearly to fit",
            charts.meter(change.after_linear, change.linear_error),
        ),
        *(
            [("by each version's query metric", charts.meter(change.query_metric, 0.0))]
            if change.query_metric is not None
            else []
        ),
    ]
    facts = [
        ("of the new items, linear image of the old", f"{change.of_new:.1%}"),
        ("of the old items, linear image of the new", f"{change.of_old:.1%}"),
        ("condition of the linear map", f"{change.condition:.3g}"),
    ]
    if change.predictions is not None:
        facts.append(("relative change of predictions", f"{change.predictions:.2%}"))
    return _section(
        "Since the old version",
        element("p", element("strong", change.verdict)),
        table(
            f"Share of the {change.k} nearest neighbours of the new version that the old one has "
            f"too, {change.n_listed:,} items",
            ("old version", "share kept"),
            rows,
        ),
        _facts(facts),
    )


def _method(card: Audit) -> Markup:
    return _section(
        "How to read this",
        element(
            "p",
            "Training fixes what the model predicts. For many models it does not fix the scale of "
            "the latent dimensions: any D on one side and its inverse on the other predict the "
            "same (Steck, Ekanadham, Kallus 2024, arXiv:2403.05440). Condition 1 is no change. For "
            "scale: 2.3 lies between the two special cases of that paper on its own simulation.",
        ),
        element(
            "p",
            f"Certificates and attacks are of {card.n_sampled} sampled items, the comparisons of "
            f"{card.n_listed:,}, all else of all items unless it says otherwise. A certificate is "
            "a proof; an attack is a D that was found; between the two nothing is known.",
        ),
    )


def _foot(provenance: Mapping[str, Any] | None) -> Markup:
    if provenance is None:
        return Markup("")
    lines = []
    for part in ("parameters", "versions", "machine"):
        values = "; ".join(f"{key} {value}" for key, value in _flat(provenance.get(part, {})))
        if values:
            lines.append(element("p", f"{part}: {values}"))
    return element("footer", *lines)


def _flat(values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        elif value is not None:
            yield key, value


def _facts(facts: Iterable[tuple[str, str]]) -> Markup:
    entries = (element("div", element("dt", name), element("dd", value)) for name, value in facts)
    return element("dl", *entries, class_="facts")


def _estimate(share: float, error: float) -> str:
    return f"{share:.1%} ± {error:.1%}" if error > 0 else f"{share:.1%}"


def _optional(value: float | None, form: str) -> str:
    return _NONE if value is None else format(value, form)


def _correlation(value: float) -> str:
    return _NONE if np.isnan(value) else f"{value:+.2f}"

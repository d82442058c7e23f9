"""The page of an audit: verdict and advice, then the evidence section by section."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fastcos.auditing.model_diff import ModelDiff
from fastcos.auditing.report import Audit, VariantScores
from fastcos.calibration.result import Calibration
from fastcos.plots.html.calibration_page import threshold_section
from fastcos.plots.html.svg import figure
from fastcos.plots.report import (
    MAX_BARS,
    DimensionSharesDisplay,
    LabelRecoveryDisplay,
    RobustnessDisplay,
)
from fastcos.reports.markup import Markup, element, joined, table
from fastcos.reports.page import document, facts, optional, section


def audit_page(
    report: Audit,
    *,
    name: str = "item embeddings",
    diff: ModelDiff | None = None,
    calibration: Calibration | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> str:
    """Return the report of an audit as one self-contained HTML page: no network, no script.

    Parameters
    ----------
    report : Audit
        The result of :func:`fastcos.audit`.
    name : str
        What was audited, such as a file name.
    diff : ModelDiff, optional
        The result of :func:`fastcos.auditing.diff_models`.
    calibration : Calibration, optional
        The result of :func:`fastcos.calibrate`, for a table of thresholds.
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
    >>> report = audit(np.random.default_rng(0).standard_normal((60, 4)), k=3)
    >>> page = audit_page(report, name="a < b")
    >>> report.verdict in page, "a &lt; b" in page, "<script" in page
    (True, True, False)
    """
    sections = (
        _header(report, name),
        _model_diff(diff),
        _robustness(report),
        Markup("") if calibration is None else threshold_section(calibration),
        _dimensions(report),
        _parametrizations(report),
        _invariants(report),
        _label_recovery(report),
        _shape(report),
        _method(report),
    )
    return document(f"Audit of {name}", sections, provenance)


def _header(report: Audit, name: str) -> Markup:
    return element(
        "header",
        element("p", f"How arbitrary are the cosine similarities of {name}?", class_="name"),
        element("h1", report.verdict),
        element("p", f"{report.summary}.", class_="quiet"),
        element("ol", *(element("li", line) for line in report.advice), class_="advice"),
    )


def _model_diff(diff: ModelDiff | None) -> Markup:
    if diff is None:
        return Markup("")
    rows = [
        ("as it is", diff.overlap, diff.overlap_error),
        ("columns rescaled to fit", diff.overlap_after_rescaling, 0.0),
        ("mapped linearly to fit", diff.overlap_after_linear_map, diff.linear_error),
        ("by each version's query metric", diff.query_metric_overlap, 0.0),
    ]
    changes = {
        "of the new items, linear image of the old": f"{diff.explained_new:.1%}",
        "of the old items, linear image of the new": f"{diff.explained_old:.1%}",
        "condition of the linear map": f"{diff.condition:.3g}",
        "relative change of predictions": optional(diff.prediction_change, ".2%"),
    }
    return section(
        "Since the old version",
        element("p", element("strong", diff.verdict)),
        table(
            f"Share of the {diff.k} nearest neighbours of the new version that the old one has "
            f"too, {diff.n_listed:,} items",
            ("old version", "overlap"),
            [(row, _meter(share, error)) for row, share, error in rows if share is not None],
        ),
        facts(changes),
    )


def _robustness(report: Audit) -> Markup:
    point = report.at_condition
    certified = _estimate(point.certified, point.certified_error)
    unbroken = _estimate(point.unbroken, point.unbroken_error)
    rows = [
        (
            f"{p.condition:g}",
            f"{p.certified_linear:.1%}",
            _estimate(p.certified, p.certified_error),
            _estimate(p.unbroken, p.unbroken_error),
        )
        for p in report.robustness
    ]
    label = "Share of neighbours that survive every rescaling, by condition: " + "; ".join(
        f"at {p.condition:g} between {p.certified:.0%} and {p.unbroken:.0%}"
        for p in report.robustness
    )
    return section(
        "How much rescaling do the neighbours survive?",
        "A rescaling D multiplies the latent dimensions of the users and divides those of the "
        "items. It changes cosines, but no dot product of a user and an item. Its condition is "
        "its largest factor over the smallest. The true share of neighbours that survive "
        "every D of a condition is in the shaded band. Below the band neighbours are "
        "certified; above it an attack found a D that removes them. At condition "
        f"{report.condition:g}, the vertical line: {certified} to {unbroken}.",
        figure(RobustnessDisplay(report), 320, label),
        element(
            "details",
            element("summary", "The numbers"),
            table(
                f"Share of the {report.k} nearest neighbours that survive every map of at most "
                f"this condition. Rescalings: {report.n_sampled} sampled items, ± one standard "
                "error; linear maps: all items.",
                ("condition", "linear, certified", "rescaling, certified", "rescaling, unbroken"),
                rows,
            ),
        ),
    )


def _dimensions(report: Audit) -> Markup:
    hidden = max(0, report.n_dimensions - MAX_BARS)
    order = np.argsort(-report.dimension_shares, kind="stable")[:10].tolist()
    largest = [(str(number), f"{report.dimension_shares[number]:.1%}") for number in order]
    label = (
        f"Share of each latent dimension in the sensitivity index: the largest is {largest[0][1]}, "
        f"of dimension {largest[0][0]}; an equal share would be {1 / report.n_dimensions:.1%}"
    )
    return section(
        "Which dimensions does it come from?",
        f"The sensitivity index is {report.sensitivity:.2f} on a scale from 0 to 1 "
        f"({report.random_basis_sensitivity:.2f} in a random basis). A rescaling of condition "
        "κ moves Fisher's z of a neighbour by up to about the index times ln κ. Each bar is "
        "the share of one latent dimension, counted from 0"
        + (f"; {hidden} smaller ones are not drawn" if hidden else "")
        + ". The dashed line is an equal share.",
        figure(DimensionSharesDisplay(report), 260, label) if report.dimension_shares.any() else "",
        element(
            "details",
            element("summary", "The ten largest"),
            table("Share in the sensitivity index", ("dimension", "share"), largest),
        ),
    )


def _parametrizations(report: Audit) -> Markup:
    forms = report.parametrizations
    known = next((one.meaning for one in forms if one.name == report.parametrization), None)
    return section(
        "The same model under other parametrisations",
        "Each row has the same dot products of users and items. If its neighbours differ from "
        "the given ones, only the parametrisation differs."
        + (f" The given factors: {known}." if known else ""),
        _variants("Parametrisations", "form", (report.given, *forms)),
        element(
            "p",
            f"Jaccard index of the {report.k} nearest neighbours of {report.n_listed:,} items with "
            "the given ones, ± one standard error if it is at least 0.005. RSA: correlation of all "
            "their cosines. Hubness: skewness of how often an item is listed. Condition: of the "
            "linear map from the given items.",
            class_="quiet",
        ),
    )


def _invariants(report: Audit) -> Markup:
    rows = report.invariant_baselines
    with_users = any(row.name == "query_metric" for row in rows)
    return section(
        "What no rescaling changes",
        "Cosines of these baselines are the same for every rescaling, and for every linear "
        "map, of the model. Low agreement with the given embeddings is not their fault."
        + ("" if with_users else " One more needs the embeddings of the users."),
        _variants("Invariant baselines", "baseline", rows),
    )


def _variants(caption: str, kind: str, rows: Iterable[VariantScores]) -> Markup:
    """A table of variants, with a column of AUC if there are labels."""
    rows = list(rows)
    auc = ["AUC"] if any(row.auc is not None for row in rows) else []
    lines = (
        (
            joined([row.name.replace("_", " "), element("small", row.meaning)]),
            _meter(row.jaccard, row.jaccard_error),
            optional(row.rsa, ".2f"),
            f"{row.hubness:.1f}",
            *(optional(row.auc, ".3f") for _ in auc),
            optional(row.condition, ".3g"),
        )
        for row in rows
    )
    return table(caption, (kind, "Jaccard with given", "RSA", "hubness", *auc, "condition"), lines)


def _label_recovery(report: Audit) -> Markup:
    found = report.label_recovery
    if found is None:
        return Markup("")
    label = (
        f"Scale of each dimension under the worst rescaling found, with an AUC of {found.low:.3f}, "
        f"and under the best, with {found.high:.3f}; as given it is {found.given:.3f}"
    )
    return section(
        "How far a rescaling moves label recovery",
        f"Pairwise AUC over {found.n_items:,} labelled items: the probability that two items "
        f"of one label are nearer than two of different labels. It is {found.given:.3f} as "
        f"given; 0.5 is chance level. Rescalings of condition at most {found.condition:g} move "
        f"it from {found.low:.3f} to {found.high:.3f}. Both ends were found by search, so the "
        "true range is at least as wide.",
        figure(LabelRecoveryDisplay(found), 260, label),
    )


def _shape(report: Audit) -> Markup:
    return section(
        "Shape",
        "Statistics of the embeddings as given; a rescaling changes each of them.",
        facts({name: optional(value, ".3g") for name, value in report.shape().items()}),
    )


def _method(report: Audit) -> Markup:
    return section(
        "How to read this",
        "Training determines what the model predicts. For many models it does not determine "
        "the scale of the latent dimensions: any D on one side and its inverse on the other "
        "predict the same (Steck, Ekanadham, Kallus 2024, arXiv:2403.05440). Condition 1 is no "
        "change. For scale: 2.3 lies between the two special cases of that paper on its own "
        "simulation.",
        f"Certificates and attacks use {report.n_sampled} sampled items, the comparisons "
        f"{report.n_listed:,}, all else all items unless it says otherwise. A certificate is a "
        "proof; an attack is a D that was found; between the two nothing is known.",
    )


def _meter(share: float, error: float) -> Markup:
    """A bar from 0 to 1 with its number, for a table."""
    fill = element("span", style=f"width:{100 * min(max(share, 0.0), 1.0):.1f}%")
    number = f"{share:.2f}" + (f" ± {error:.2f}" if error >= 0.005 else "")
    return element("span", element("span", fill, class_="track"), number, class_="meter")


def _estimate(share: float, error: float) -> str:
    return f"{share:.1%} ± {error:.1%}" if error > 0 else f"{share:.1%}"

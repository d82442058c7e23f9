"""The page of a calibration: what one score means, then the distribution behind it."""

from collections.abc import Mapping
from typing import Any

from fastcos.calibration.labelled import LabelledCalibration
from fastcos.calibration.pairs import NearPairs
from fastcos.calibration.result import Calibration
from fastcos.plots.calibration import (
    OperatingCurveDisplay,
    ScoreDistributionDisplay,
    TailDisplay,
)
from fastcos.plots.html.svg import figure
from fastcos.reports.markup import Markup, element, joined, table
from fastcos.reports.page import document, facts, section

# prevalences of the table of probabilities, from one relevant pair in a thousand
_PREVALENCES = (0.5, 0.1, 0.01, 0.001)
# rows of the table of labelled pairs
_LABELLED_ROWS = 9


def calibration_page(
    calibration: Calibration,
    *,
    name: str = "these embeddings",
    score: float | None = None,
    examples: NearPairs | None = None,
    labels: tuple[Any, Any] | None = None,
    labelled: LabelledCalibration | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> str:
    """Return a calibration as one self-contained HTML page: no network, no script.

    Parameters
    ----------
    calibration : Calibration
        The result of :func:`fastcos.calibrate`.
    name : str
        What was calibrated, such as a file name.
    score : float, optional
        A score in use, which the first line then explains.
    examples : NearPairs, optional
        Pairs next to the threshold, see :func:`fastcos.calibration.pairs_near`.
    labels : pair of sequences, optional
        How to print the queries and the items of examples, by row. Default: row numbers.
    labelled : LabelledCalibration, optional
        The result of :func:`fastcos.calibration.calibrate_pairs`.
    provenance : mapping, optional
        Parameters, versions and machine, for the foot of the page.

    Returns
    -------
    str
        HTML; colours follow the reader's light or dark setting.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import calibrate
    >>> from fastcos.plots.html import calibration_page
    >>> found = calibrate(np.random.default_rng(0).standard_normal((200, 6)))
    >>> page = calibration_page(found, name="a < b")
    >>> found.verdict in page, "a &lt; b" in page, "<script" in page
    (True, True, False)
    """
    sections = (
        _header(calibration, name, score),
        _distribution(calibration),
        threshold_section(calibration),
        _examples(calibration, examples, labels),
        _rescaling(calibration),
        _labelled(labelled),
        _method(calibration),
    )
    return document(f"Calibration of {name}", sections, provenance)


def threshold_section(found: Calibration) -> Markup:
    """Return the table of thresholds by false-positive rate; also on the page of an audit."""
    condition = None if found.rescaling is None else found.rescaling.condition
    rows = []
    for rate in found.rates:
        threshold = found.threshold(rate)
        low, high = found.threshold_interval(rate, confidence=0.99)
        cells = [
            f"{rate:g}",
            f"{threshold:.3f}",
            f"{low:.3f} .. {high:.3f}",
            f"{rate * found.n_given[1]:,.3g}",
        ]
        if condition is not None:
            least, most = found.rate_range(min(threshold, 1.0), condition)
            cells.append(f"{least:.1g} .. {most:.1g}")
        rows.append(cells)
    moved = [] if condition is None else [f"rate, linear maps up to {condition:g}"]
    return section(
        "What threshold for what error?",
        "A false positive is a random pair that reaches the threshold. The interval is over rows "
        f"drawn again. The last {'but one ' if moved else ''}column is how many items a query "
        "finds by chance.",
        table(
            f"Thresholds of the {found.measure} by false-positive rate",
            (
                "rate",
                "threshold",
                "99 % interval",
                f"by chance in {found.n_given[1]:,} items",
                *moved,
            ),
            rows,
        ),
    )


def _header(found: Calibration, name: str, score: float | None) -> Markup:
    verdict = found.verdict if score is None else found.reading(score)
    sampled = (found.n_queries, found.n_items) != found.n_given
    sides = (
        f"{found.n_items:,} items"
        if found.self_join
        else f"{found.n_queries:,} queries and {found.n_items:,} items"
    )
    zero = f", {found.n_zero:,} zero rows left out" if found.n_zero else ""
    size = f"{found.n_pairs:,} pairs of {sides}{', sampled' if sampled else ''}{zero}"
    model = " ".join(part for part in (found.model, found.model_version) if part)
    notes = [element("li", note) for note in found.notes]
    first, _, rest = verdict.partition(". ")
    return element(
        "header",
        element("p", f"What does a {found.measure} of {name} mean?", class_="name"),
        element("h1", f"{first.rstrip('.')}."),
        element("p", rest) if rest else "",
        element("p", found.verdict) if score is not None else "",
        element("p", f"{size}{f'; model {model}' if model else ''}.", class_="quiet"),
        element("ol", *notes, class_="advice") if notes else "",
    )


def _distribution(found: Calibration) -> Markup:
    shares = "; ".join(f"{found.threshold(rate):.3f} or more: {rate:g}" for rate in found.rates)
    model = "The tail has no spread: there is no model of it."
    if (tail := found.tail) is not None:
        model = (
            f"Where fewer than 100 pairs are left, a generalised Pareto distribution continues the "
            f"{tail.n_pairs:,} highest scores: shape {tail.shape:.2f}, scale {tail.scale:.3g}, "
            f"from {tail.start:.3f} on. Its largest distance to them (Kolmogorov-Smirnov) is "
            f"{tail.distance:.3f}."
        )
    return section(
        "How scores of random pairs are distributed",
        f"Scores of all pairs. The dashed line is the threshold {found.threshold():.3f} for a rate "
        f"of {found.fpr:g}.",
        figure(
            ScoreDistributionDisplay(found),
            260,
            f"Histogram of the scores of random pairs; {shares}",
        ),
        model,
        figure(TailDisplay(found), 300, f"Probability of a score or more: {shares}"),
    )


def _examples(
    found: Calibration,
    examples: NearPairs | None,
    labels: tuple[Any, Any] | None,
) -> Markup:
    if examples is None:
        return Markup("")
    rows = []
    for query, item, score in zip(*(array.tolist() for array in examples), strict=True):
        names = (query, item) if labels is None else (labels[0][query], labels[1][item])
        p = f"{float(found.p_value(score)):.1e}"
        # to three decimals all would be the threshold
        rows.append((joined([str(names[0])]), str(names[1]), f"{score:.5f}", p))
    return section(
        "Pairs just above and just below the threshold",
        f"The threshold is {found.threshold():.5f}. Are the pairs above it related?",
        table("Pairs next to the threshold", ("query", "item", found.measure, "p"), rows),
    )


def _rescaling(found: Calibration) -> Markup:
    moved = found.rescaling
    if moved is None:
        return Markup("")
    return section(
        "How far a free choice moves the threshold",
        element("p", element("strong", moved.verdict)),
        "A rescaling D multiplies the latent dimensions of one side of a model and divides "
        "those of the other. It changes cosines, but no dot product. Both ends were found by "
        f"search on the pairs of {moved.n_rows:,} items, so the true range is at least as "
        "wide. No linear map of the condition moves the threshold beyond the bounds.",
        facts(
            {
                "least threshold found": f"{moved.low:.3f}",
                f"as given, rate {moved.fpr:.2g}": f"{moved.given:.3f}",
                "greatest threshold found": f"{moved.high:.3f}",
                "bounds": f"{moved.bound_low:.3f} .. {moved.bound_high:.3f}",
            }
        ),
    )


def _labelled(found: LabelledCalibration | None) -> Markup:
    if found is None:
        return Markup("")
    steps = range(_LABELLED_ROWS)
    span = found.thresholds[-1] - found.thresholds[0]
    thresholds = [found.thresholds[0] + step * span / (_LABELLED_ROWS - 1) for step in steps]
    rows = []
    for threshold in thresholds:
        false_positive, false_negative = found.error_rates(threshold)
        chances = [
            f"{float(found.probability(threshold, prevalence=share)):.3f}" for share in _PREVALENCES
        ]
        rows.append(
            (f"{threshold:.3f}", f"{false_positive:.1%}", f"{false_negative:.1%}", *chances)
        )
    header = ("threshold", "false positive", "false negative")
    shares = [f"if {share:g}" for share in _PREVALENCES]
    return section(
        "Labelled pairs",
        f"{found.n_relevant:,} pairs are labelled relevant and {found.n_other:,} not; a "
        f"relevant one has the higher score with probability {found.auc:.3f}. The probability "
        f"that a pair is relevant ({found.method}) depends on the share of relevant pairs "
        "where it comes from, which is usually far lower than among labelled ones.",
        figure(
            OperatingCurveDisplay(found),
            260,
            "Share of the pairs that are not relevant and accepted, and of the relevant ones that "
            "are not accepted, by threshold",
        ),
        table(
            "Error rates by threshold, and the probability that a pair of this score is relevant, "
            "if this share of all pairs is",
            (*header, *shares),
            rows,
        ),
    )


def _method(found: Calibration) -> Markup:
    return section(
        "How to read this",
        "Random pairs hold a few related ones. The rate among unrelated pairs is therefore at "
        "most the one given, and nearly it where related pairs are rare. The rates hold for "
        "rows from the same source as these: calibrate again for another model, language or "
        "collection.",
        f"Scores are counted exactly in bins of width {found.width:.2g}; a score within "
        "rounding of an edge may be in the next bin. Pairs share rows, so that the intervals "
        "count them as fewer independent ones, as a bootstrap of the rows does.",
        element("p", f"Data: SHA-256 {found.dataset}.", class_="quiet"),
    )

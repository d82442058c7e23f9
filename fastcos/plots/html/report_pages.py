"""Pages of reports, without a script: of an audit and of a calibration."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastcos.auditing.calibration.labelled import LabelledCalibration
from fastcos.auditing.calibration.pairs import NearPairs
from fastcos.auditing.calibration.result import Calibration
from fastcos.auditing.model_diff import ModelDiff
from fastcos.auditing.report import Audit
from fastcos.plots.html.page import report_page
from fastcos.reports import Section, Table


class _Head(NamedTuple):
    """What a page says first: a question, the verdict in one sentence, and the size of the data.

    advice: what to do, most important first. more: the answer in full, to open.
    """

    question: str
    verdict: str
    size: str
    advice: Sequence[str] = ()
    more: Sequence[str] = ()


def audit_page(
    report: Audit,
    *,
    name: str = "item embeddings",
    diff: ModelDiff | None = None,
    calibration: Calibration | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> str:
    """Return the report of an audit as one self-contained HTML page: no network, no script.

    report is of :func:`fastcos.audit`, diff of :func:`fastcos.auditing.diff_models`; calibration,
    for a table of thresholds, of :func:`fastcos.calibrate`. name: what was audited, such as a file
    name. provenance: parameters, versions and machine, for the foot of the page. Colours follow the
    reader's light or dark setting.

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
    sections = [
        *(() if diff is None else diff.sections()),
        *report.sections(),
        *(() if calibration is None else [calibration.thresholds()]),
    ]
    question = f"How arbitrary are the cosine similarities of {name}?"
    head = _Head(question, report.headline, f"{report.summary}.", report.advice, [report.verdict])
    return _page(f"Audit of {name}", head, sections, provenance)


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
        Pairs next to the threshold, see :func:`fastcos.auditing.pairs_near`.
    labels : pair of sequences, optional
        How to print the queries and the items of examples, by row. Default: row numbers.
    labelled : LabelledCalibration, optional
        The result of :func:`fastcos.auditing.calibrate_pairs`.
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
    sections = [
        *calibration.sections(),
        *(() if examples is None else [_examples(calibration, examples, labels)]),
        *(() if labelled is None else labelled.sections()),
    ]
    head = _head(calibration, name, score)
    return _page(f"Calibration of {name}", head, sections, provenance)


def _page(
    title: str, head: _Head, sections: Sequence[Section], provenance: Mapping[str, Any] | None
) -> str:
    """Return a page: the head, the first figure, advice, and all else to open.

    The first sentence of the section of the first figure is its caption.
    """
    parts, figure, caption = list(sections), None, ""
    place = next((i for i, section in enumerate(parts) if section.figures), None)
    if place is not None:
        lead = parts[place]
        figure, caption = lead.figures[0], " ".join(lead.sentences[:1])
        parts[place] = lead._replace(sentences=lead.sentences[1:], figures=lead.figures[1:])
    if head.more:
        parts.insert(0, Section("The answer in full", head.more))
    return report_page(
        title, provenance, head=head, figure=figure, caption=caption, sections=parts
    )  # fmt: skip


def _head(found: Calibration, name: str, score: float | None) -> _Head:
    verdict = found.verdict if score is None else found.reading(score)
    sampled = (found.n_queries, found.n_items) != found.n_given
    sides = (
        f"{found.n_items:,} items"
        if found.self_join
        else f"{found.n_queries:,} queries and {found.n_items:,} items"
    )
    zero = f", {found.n_zero:,} zero rows left out" if found.n_zero else ""
    size = f"{found.n_pairs:,} pairs of {sides}{', sampled' if sampled else ''}{zero}"
    first, _, rest = verdict.partition(". ")
    more = (rest, found.verdict if score is not None else "")
    return _Head(
        f"What does a {found.measure} of {name} mean?",
        f"{first.rstrip('.')}.",
        f"{size}{f'; model {found.model}' if found.model else ''}.",
        found.notes,
        [text for text in more if text],
    )


def _examples(found: Calibration, examples: NearPairs, labels: tuple[Any, Any] | None) -> Section:
    rows = []
    for query, item, score in zip(*(array.tolist() for array in examples), strict=True):
        names = (query, item) if labels is None else (labels[0][query], labels[1][item])
        # to three decimals all would be the threshold
        rows.append((*map(str, names), f"{score:.5f}", f"{float(found.p_value(score)):.1e}"))
    table = Table("Pairs next to the threshold", ("query", "item", found.measure, "p"), rows)
    return Section(
        "Pairs just above and just below the threshold",
        tables=[table],
        verdict=f"Are the pairs above {found.threshold():.5f} related?",
    )

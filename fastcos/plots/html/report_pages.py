"""The page of an audit and the page of a calibration, both without a script."""

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
    """The head of a page: a question, the verdict in one sentence, and the size of the data.

    `advice` lists recommended steps, starting with the most important one. `more` is the full
    answer, which a reader can unfold.
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
    """Return the report of an audit as one self-contained HTML page without a script.

    Parameters
    ----------
    report : Audit
        The result of :func:`fastcos.audit`.
    name : str
        A name for the embeddings, such as a file name.
    diff : ModelDiff, optional
        The result of :func:`fastcos.auditing.diff_models`, which the page shows before the report.
    calibration : Calibration, optional
        The result of :func:`fastcos.calibrate`. The page shows the thresholds of this calibration.
    provenance : mapping, optional
        Parameters, versions and machine, which are printed at the foot of the page.

    Returns
    -------
    str
        An HTML page. It is light or dark, depending on the setting of the reader's browser.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import audit
    >>> from fastcos.plots.html import audit_page
    >>> report = audit(np.random.default_rng(0).standard_normal((60, 4)), k=3)
    >>> page = audit_page(report, name="a < b")
    >>> report.headline in page, "a &lt; b" in page, "<script" in page
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
    """Return a calibration as one self-contained HTML page without a script.

    Parameters
    ----------
    calibration : Calibration
        The result of :func:`fastcos.calibrate`.
    name : str
        A name for the embeddings, such as a file name.
    score : float, optional
        A score. If ``score`` is passed, the head of the page says what this score means.
    examples : NearPairs, optional
        Pairs with scores near the threshold, as :func:`fastcos.auditing.pairs_near` returns them.
    labels : pair of sequences, optional
        The names of the queries and the names of the items, by row number. By default, the examples
        show row numbers.
    labelled : LabelledCalibration, optional
        The result of :func:`fastcos.auditing.calibrate_pairs`.
    provenance : mapping, optional
        Parameters, versions and machine, which are printed at the foot of the page.

    Returns
    -------
    str
        An HTML page. It is light or dark, depending on the setting of the reader's browser.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import calibrate
    >>> from fastcos.plots.html import calibration_page
    >>> calibration = calibrate(np.random.default_rng(0).standard_normal((200, 6)))
    >>> page = calibration_page(calibration, name="a < b")
    >>> calibration.verdict in page, "a &lt; b" in page, "<script" in page
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
    """Return a page with a head, a figure, the advice and folded sections.

    The figure is the first one in the first section that contains a figure. The caption of the
    figure is the first sentence of its section.
    """
    parts, figure, caption = list(sections), None, ""
    number = next((i for i, section in enumerate(parts) if section.figures), None)
    if number is not None:
        lead = parts[number]
        figure, caption = lead.figures[0], " ".join(lead.sentences[:1])
        parts[number] = lead._replace(sentences=lead.sentences[1:], figures=lead.figures[1:])
    if head.more:
        parts.insert(0, Section("The answer in full", head.more))
    return report_page(
        title, provenance, head=head, figure=figure, caption=caption, sections=parts
    )  # fmt: skip


def _head(calibration: Calibration, name: str, score: float | None) -> _Head:
    verdict = calibration.verdict if score is None else calibration.reading(score)
    is_sampled = (calibration.n_queries, calibration.n_items) != calibration.n_given
    counts = (
        f"{calibration.n_items:,} items"
        if calibration.self_join
        else f"{calibration.n_queries:,} queries and {calibration.n_items:,} items"
    )
    zero = f", without {calibration.n_zero:,} zero rows" if calibration.n_zero else ""
    sample = "a sample of " if is_sampled else ""
    size = f"{calibration.n_pairs:,} pairs of {sample}{counts}{zero}"
    first_sentence, _, remainder = verdict.partition(". ")
    more = (remainder, calibration.verdict if score is not None else "")
    return _Head(
        f"What does a {calibration.measure} of {name} mean?",
        f"{first_sentence.rstrip('.')}.",
        f"{size}{f'; model {calibration.model}' if calibration.model else ''}.",
        calibration.notes,
        [text for text in more if text],
    )


def _examples(
    calibration: Calibration, examples: NearPairs, labels: tuple[Any, Any] | None
) -> Section:
    rows = []
    for query, item, score in zip(*(array.tolist() for array in examples), strict=True):
        names = (query, item) if labels is None else (labels[0][query], labels[1][item])
        # With only three decimals, all scores would look equal to the threshold.
        rows.append((*map(str, names), f"{score:.5f}", f"{float(calibration.p_value(score)):.1e}"))
    table = Table("Pairs next to the threshold", ("query", "item", calibration.measure, "p"), rows)
    return Section(
        "Pairs just above and just below the threshold",
        tables=[table],
        verdict=f"Are the pairs above {calibration.threshold():.5f} related?",
    )

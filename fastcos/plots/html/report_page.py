"""The page of an audit: verdict and advice, then the evidence section by section."""

from collections.abc import Mapping
from typing import Any

from fastcos.auditing.model_diff import ModelDiff
from fastcos.auditing.report import Audit
from fastcos.calibration.result import Calibration
from fastcos.plots.html.svg import draw
from fastcos.reports.page import Head, document


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
    head = Head(question, report.headline, f"{report.summary}.", report.advice, [report.verdict])
    return document(f"Audit of {name}", head, sections, draw, provenance)

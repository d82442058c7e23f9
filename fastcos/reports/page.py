"""Results as a self-contained HTML page: no network, no script."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from fastcos.reports.markup import Markup, element, table
from fastcos.reports.record import Figure, Section
from fastcos.reports.table import Estimate, Table, as_text


def document(
    title: str,
    header: Markup,
    sections: Iterable[Section],
    draw: Callable[[Figure], Markup],
    provenance: Mapping[str, Any] | None,
) -> str:
    """Return a page of these sections, with parameters, versions and machine at its foot.

    draw returns the drawing of a figure.
    """
    style = resources.files("fastcos.reports").joinpath("style.css").read_text("utf8")
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", title),
        element("style", Markup(style)),
    )
    main = element("main", header, *(_section(section, draw) for section in sections))
    body = element("body", main, footer(provenance))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def header(question: str, verdict: str, size: str, advice: Sequence[str], *more: str) -> Markup:
    """Return the head of a page: the question, the answer, the size of the data, what to do."""
    lines = [element("li", line) for line in advice]
    return element(
        "header",
        element("p", question, class_="name"),
        element("h1", verdict),
        *(element("p", text) for text in more if text),
        element("p", size, class_="quiet"),
        element("ol", *lines, class_="advice") if lines else "",
    )


def _section(section: Section, draw: Callable[[Figure], Markup]) -> Markup:
    """A section; tables behind a figure are folded, since they have its numbers."""
    verdict = element("p", element("strong", section.verdict)) if section.verdict else ""
    tables = [_table(one) for one in section.tables]
    if section.figures and tables:
        tables = [element("details", element("summary", "The numbers"), *tables)]
    return element(
        "section",
        element("h2", section.title),
        verdict,
        *(element("p", sentence) for sentence in section.sentences),
        *map(draw, section.figures),
        *tables,
        _facts(section.facts) if section.facts else "",
    )


def _table(given: Table) -> Markup:
    rows = [[_cell(value) for value in row] for row in given.rows]
    return table(given.title, given.header, rows)


def _cell(value: Any) -> str:
    """A value of a table; of an estimate, a bar and its number."""
    if not isinstance(value, Estimate):
        return as_text(value)
    fill = element("span", style=f"width:{100 * min(max(value.share, 0.0), 1.0):.1f}%")
    return element("span", element("span", fill, class_="track"), str(value), class_="meter")


def _facts(values: Mapping[str, float | str | None]) -> Markup:
    """Named numbers side by side."""
    entries = (
        element("div", element("dt", name), element("dd", _fact(value)))
        for name, value in values.items()
    )
    return element("dl", *entries, class_="facts")


def _fact(value: float | str | None) -> str:
    if isinstance(value, str):
        return value
    return "-" if value is None or np.isnan(value) else f"{value:.3g}"


def footer(provenance: Mapping[str, Any] | None) -> Markup:
    """Return parameters, versions and machine; nothing without a provenance."""
    lines, provenance = [], provenance or {}
    for part in ("parameters", "versions", "machine"):
        values = "; ".join(f"{key} {value}" for key, value in _flat(provenance.get(part, {})))
        if values:
            lines.append(element("p", f"{part}: {values}"))
    return element("footer", *lines) if lines else Markup("")


def _flat(values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        elif value is not None:
            yield key, value

"""Results as a self-contained HTML page: no network, no script."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from fastcos.plots.html.markup import Markup, element, joined, table
from fastcos.reports import Estimate, Figure, Section, Table, as_text


class Head(NamedTuple):
    """What a page says first: a question, the verdict in one sentence, and the size of the data.

    advice: what to do, most important first. more: the answer in full, to open.
    """

    question: str
    verdict: str
    size: str
    advice: Sequence[str] = ()
    more: Sequence[str] = ()


def document(
    title: str,
    head: Head,
    sections: Iterable[Section],
    draw: Callable[[Figure], Markup],
    provenance: Mapping[str, Any] | None,
) -> str:
    """Return a page: the head, the first figure, advice, and all else to open.

    draw returns the drawing of a figure. The first sentence of its section is its caption.
    """
    parts, figure = list(sections), Markup("")
    place = next((i for i, section in enumerate(parts) if section.figures), None)
    if place is not None:
        lead = parts[place]
        caption = element("figcaption", *lead.sentences[:1])
        figure = element("figure", draw(lead.figures[0]), caption)
        parts[place] = lead._replace(sentences=lead.sentences[1:], figures=lead.figures[1:])
    if head.more:
        parts.insert(0, Section("The answer in full", head.more))
    advice = [element("li", line) for line in head.advice]
    main = element(
        "main",
        element(
            "header",
            element("p", head.question, class_="name"),
            element("h1", head.verdict),
            element("p", head.size, class_="quiet"),
        ),
        figure,
        element("ol", *advice, class_="advice") if advice else "",
        *(folded(section, draw) for section in parts),
    )
    return whole_page(title, own_style(), main, provenance)


def own_style() -> str:
    """Return the style of all pages."""
    return resources.files("fastcos.plots.html").joinpath("style.css").read_text("utf8")


def whole_page(
    title: str,
    style: str,
    main: Markup,
    provenance: Mapping[str, Any] | None,
    *,
    metas: str = "",
    scripts: str = "",
) -> str:
    """Return a page of these parts; metas are more elements of its head."""
    head = element(
        "head",
        Markup(f'<meta charset="utf-8">{metas}'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", title),
        Markup(f"<style>{style}</style>"),
    )
    body = element("body", main, footer(provenance), Markup(scripts))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def folded(section: Section, draw: Callable[[Figure], Markup]) -> Markup:
    """Return a section to open, behind its title and its conclusion."""
    verdict = element("span", section.verdict, class_="answer") if section.verdict else ""
    return element(
        "details",
        element("summary", element("h2", section.title), verdict),
        *(element("p", sentence) for sentence in section.sentences),
        *map(draw, section.figures),
        *map(_table, section.tables),
        _facts(section.facts) if section.facts else "",
        class_="section",
    )


def _table(given: Table) -> Markup:
    rows = [[_cell(value) for value in row] for row in given.rows]
    more = [element("p", given.more, class_="quiet")] if given.more else []
    return joined([table(given.title, given.header, rows), *more])


def _cell(value: Any) -> str:
    """A value of a table; of an estimate, a bar and its number."""
    if not isinstance(value, Estimate):
        return as_text(value)
    fill = element("span", style=f"width:{100 * min(max(value.share, 0.0), 1.0):.1f}%")
    return element("span", str(value), element("span", fill, class_="track"), class_="meter")


def _facts(values: Mapping[str, float | str | None]) -> Markup:
    """Named numbers side by side."""
    entries = []
    for name, value in values.items():
        if not isinstance(value, str):
            value = "-" if value is None or np.isnan(value) else f"{value:.3g}"
        entries.append(element("div", element("dt", name), element("dd", value)))
    return element("dl", *entries, class_="facts")


def footer(provenance: Mapping[str, Any] | None) -> Markup:
    """Return parameters, versions and machine, to open; nothing without a provenance."""
    lines, provenance = [], provenance or {}
    for part in ("parameters", "versions", "machine"):
        values = "; ".join(f"{key} {value}" for key, value in _flat(provenance.get(part, {})))
        if values:
            lines.append(element("p", f"{part}: {values}"))
    if not lines:
        return Markup("")
    title = element("summary", "Parameters, versions, machine")
    return element("footer", element("details", title, *lines))


def _flat(values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        elif value is not None:
            yield key, value

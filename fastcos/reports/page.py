"""A self-contained page: its frame, sections, facts and foot."""

from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import numpy as np

from fastcos.reports.markup import Markup, element


def document(title: str, sections: Iterable[Markup], provenance: Mapping[str, Any] | None) -> str:
    """Return a page of these sections, with parameters, versions and machine at its foot."""
    style = resources.files("fastcos.reports").joinpath("style.css").read_text("utf8")
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", title),
        element("style", Markup(style)),
    )
    body = element("body", element("main", *sections), _footer(provenance))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def section(title: str, *children: object) -> Markup:
    """Return a section with a heading; texts that are not markup become paragraphs."""
    parts = (
        child if isinstance(child, Markup) or not child else element("p", child)
        for child in children
    )
    return element("section", element("h2", title), *parts)


def facts(values: Mapping[str, str]) -> Markup:
    """Return named numbers side by side."""
    entries = (element("div", element("dt", key), element("dd", values[key])) for key in values)
    return element("dl", *entries, class_="facts")


def optional(value: float | None, form: str) -> str:
    """Return a number in that form; a dash for None and NaN."""
    return "-" if value is None or np.isnan(value) else format(value, form)


def _footer(provenance: Mapping[str, Any] | None) -> Markup:
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

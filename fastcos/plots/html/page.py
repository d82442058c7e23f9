"""Render the templates in this folder as HTML pages, each of which is a single file.

The pages need no network. All texts are escaped, so no text in the data can end the block that
contains the data. The ``Content-Security-Policy`` of a page with a script allows only this script
and the style of the page; both are identified by their digests.
"""

import base64
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fastcos.plots.html.svg import draw
from fastcos.reports import Estimate, as_text

# If a table cell has more characters than this, it counts as a sentence, and its text may be
# broken into lines.
_SENTENCE = 20


def report_page(title: str, provenance: Mapping[str, Any] | None, **values: Any) -> str:
    """Return a page without a script, from the template ``report.html`` with these values."""
    return _render("report", title, provenance, style=_read("style.css"), script="", **values)


def page_with_script(
    template: str,
    title: str,
    provenance: Mapping[str, Any] | None,
    *,
    styles: tuple[str, ...],
    data: Mapping[str, Any],
    **values: Any,
) -> str:
    """Return a page from a template, with the script of the same name and the script's data."""
    script = _read("parts.js") + _read(f"{template}.js")
    style = "".join(map(_read, ("style.css", *styles)))
    # An HTML parser ends a script block at </script, even inside a string of JSON.
    block = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    block = block.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = _render(
        template, title, provenance, style=style, script=Markup(script), data=Markup(block),
        policy=Markup(policy), **values,
    )  # fmt: skip
    # UTF-8 cannot represent lone surrogates, which occur in file names that are not valid UTF-8.
    # Lone surrogates are therefore written as escapes, which readers of JSON understand.
    return page.encode("utf8", "backslashreplace").decode("utf8")


def _render(
    template: str, title: str, provenance: Mapping[str, Any] | None, style: str, **values: Any
) -> str:
    return _environment().get_template(f"{template}.html").render(
        title=title, provenance=_lines(provenance or {}), style=Markup(style), **values
    )  # fmt: skip


@functools.cache
def _environment() -> Environment:
    """Return the Jinja environment, with the functions that the templates call."""
    environment = Environment(
        loader=PackageLoader("fastcos.plots.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["draw"] = draw
    environment.filters |= {"as_text": as_text, "fact": _fact, "typeset": _typeset}
    environment.tests |= {"estimate": _is_estimate, "sentence": _is_sentence}
    return environment


def _is_estimate(value: Any) -> bool:
    return isinstance(value, Estimate)


def _is_sentence(value: Any) -> bool:
    return not _is_estimate(value) and len(as_text(value)) > _SENTENCE


def _fact(value: float | str | None) -> str:
    """Return a value as text: numbers get three digits, and None and NaN become "-"."""
    if isinstance(value, str):
        return value
    return "-" if value is None or np.isnan(value) else f"{value:.3g}"


def _typeset(text: str) -> Markup:
    """Return the text as markup; exponents, as in S^1/2 and Σ^b, become superscripts."""
    return Markup(re.sub(r"\^(-?[\d./]*\d|[ab]\b)", r"<sup>\1</sup>", str(escape(text))))


def _lines(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return up to three lines of text: the parameters, the versions and the machine."""
    parts = ("parameters", "versions", "machine")
    lines = {
        part: "; ".join(f"{key} {value}" for key, value in _flat(provenance.get(part, {})))
        for part in parts
    }
    return {part: text for part, text in lines.items() if text}


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        elif value is not None:
            yield key, value


def _read(name: str) -> str:
    return resources.files("fastcos.plots.html").joinpath(name).read_text("utf8")


def _digest(text: str) -> str:
    """Return the hash with which a security policy identifies this inline script or style."""
    digest = base64.b64encode(hashlib.sha256(text.encode("utf8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"

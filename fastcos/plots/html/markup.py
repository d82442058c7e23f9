"""Elements of HTML, and displays as inline SVG. Text that is not markup is escaped."""

import io
import re
from collections.abc import Iterable, Sequence
from html import escape

from fastcos.plots.style import COLOURS, GRID_COLOUR, Display, figure_style

# widths of a drawing in CSS pixels: the page shows one of the two, so that text keeps its size
_WIDTHS = {"wide": 700, "narrow": 340}
_PIXELS_PER_INCH = 96
# the page's own colours, which follow the light or dark setting of the reader
_CSS_COLOURS = {
    COLOURS[0].lower(): "var(--main)",
    COLOURS[1].lower(): "var(--other)",
    COLOURS[2].lower(): "var(--third)",
    GRID_COLOUR.lower(): "var(--rule)",
    "#000000": "currentColor",
}


class Markup(str):
    """Text that is HTML."""


def element(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element; class_ is its class, other underscores become hyphens, None is left out.

    Examples
    --------
    >>> element("p", "a < b", class_="note", data_n=3)
    '<p class="note" data-n="3">a &lt; b</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def joined(children: Iterable[object]) -> Markup:
    """Return children one after the other."""
    return Markup(
        "".join(child if isinstance(child, Markup) else escape(str(child)) for child in children)
    )


def table(caption: str, header: Sequence[object], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table that scrolls sideways on a narrow screen; the first cell heads its row."""
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    body = [
        element(
            "tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])
        )
        for row in rows
    ]
    written = element(
        "table", element("caption", caption), element("thead", head), element("tbody", *body)
    )
    # focusable, so that a keyboard can scroll it
    return element("div", written, class_="scroll", tabindex=0, role="region", aria_label=caption)


def figure(display: Display, height: int, label: str) -> Markup:
    """Return the drawing of a display as SVG at both widths.

    height: CSS pixels; label: the content of the drawing in words, for screen readers.
    """
    drawings = [_svg(display, width, height, label, kind) for kind, width in _WIDTHS.items()]
    return element("div", *drawings, class_="chart")


def _svg(display: Display, width: int, height: int, label: str, kind: str) -> Markup:
    from matplotlib.figure import Figure

    inches = width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH
    written = io.StringIO()
    # text stays text; ids differ between drawings, since all are in one document
    with figure_style(svg_fonttype="none", svg_hashsalt=label + kind):
        drawing = Figure(figsize=inches, layout="constrained")
        ax = drawing.subplots()
        display.plot(ax)
        ax.set_title("", loc="left")  # the page has a heading
        drawing.savefig(written, format="svg", transparent=True)
    svg = written.getvalue()
    # the content alone: no style sheet, comment or name space of a file of its own
    svg = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s+", " ", re.sub(r'<g id="[^"]*"', "<g", svg))
    svg = re.sub("|".join(_CSS_COLOURS), lambda colour: _CSS_COLOURS[colour[0]], svg)
    return element(
        "svg", Markup(svg), viewBox=f"0 0 {inches[0] * 72:g} {inches[1] * 72:g}", width=width,
        height=height, role="img", aria_label=label, class_=kind,
    )  # fmt: skip

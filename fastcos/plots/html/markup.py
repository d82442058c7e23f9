"""Elements of HTML. Text that is not markup is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

# letters of a cell from which it is a sentence, whose lines are broken
_SENTENCE = 20


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
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell, class_=_kind(cell)) for cell in row[1:]),
        )
        for row in rows
    ]
    written = element(
        "table", element("caption", caption), element("thead", head), element("tbody", *body)
    )
    # focusable, so that a keyboard can scroll it
    return element("div", written, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _kind(cell: object) -> str | None:
    """Class of a cell of a table."""
    return "words" if not isinstance(cell, Markup) and len(str(cell)) > _SENTENCE else None

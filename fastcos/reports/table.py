"""Results as small tables, in text and in a notebook.

A result has the decorator :func:`as_table` and a method ``table``; without one it is listed by its
fields. ``repr`` is the table as text, ``_repr_html_`` the same for notebooks.
"""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from fastcos.reports.markup import element, joined, table

Result = TypeVar("Result", bound=type)

# rows that a table of many shows: a screen has 24 lines
MAX_ROWS = 10
# letters of a cell, and of a line of words
_WIDEST, _LINE = 60, 100


class Estimate(NamedTuple):
    """A share from 0 to 1 with its standard error; a page adds a bar."""

    share: float
    error: float = 0.0

    def __str__(self) -> str:
        return f"{self.share:.3f}" + (f" ± {self.error:.3f}" if self.error > 0 else "")


class Table(NamedTuple):
    """A title, names of columns, and rows of values, between two texts.

    lead is the result in words, which a reader sees first; more is what the rows alone do not say,
    such as what is left out, or the verdict.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    more: str = ""
    lead: str = ""

    def text(self) -> str:
        """The table as lines of text, numbers to the right."""
        cells = [list(map(printable, self.header)), *(list(map(as_cell, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.header)
        right = [any(isinstance(v, (int, float, Estimate)) for v in column) for column in columns]
        lines = [
            "  ".join(
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in cells
        ]
        lead, more = (textwrap.wrap(printable(text), _LINE) for text in (self.lead, self.more))
        return "\n".join([*lead, printable(self.title), *lines, *more])

    def html(self) -> str:
        """The table as HTML; texts are escaped."""
        rows = [list(map(as_text, row)) for row in self.rows]
        lead, more = (element("p", text) if text else "" for text in (self.lead, self.more))
        return joined([lead, table(self.title, self.header, rows), more])


def as_cell(value: Any) -> str:
    """A value as text of at most 60 letters."""
    text = as_text(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def as_text(value: Any) -> str:
    """A value as text: three decimals, an array by its shape and type, a record by its fields."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}"
    if hasattr(value, "shape") and value.shape:
        return f"{' x '.join(f'{n:,}' for n in value.shape)}, {value.dtype}"
    return printable(" ".join(str(value).split()))


def printable(text: str) -> str:
    """Text with its control characters spelled out: a terminal would obey them.

    Names in files may hold escape sequences, or bytes that are no text.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def as_table(kind: Result) -> Result:
    """Class decorator: give a result a repr and a form for notebooks, from its ``table``."""
    if not hasattr(kind, "table"):
        kind.table = table_of_fields  # type: ignore[attr-defined]
    kind.__repr__ = lambda self: self.table().text()  # type: ignore[assignment, method-assign, misc]
    kind._repr_html_ = lambda self: self.table().html()  # type: ignore[attr-defined]
    return kind


def table_of_fields(record: Any) -> Table:
    """The fields of a record, one a row."""
    names = getattr(record, "_fields", None) or vars(record)
    rows = [(name, getattr(record, name)) for name in names]
    return Table(type(record).__name__, ("field", "value"), rows)

"""Results, described once, and shown in every form.

A result is a dataclass with the base ``Record``. Its ``verdict`` is a sentence, its ``sections``
hold explanations, tables, single numbers and named figures. Renderers show them::

    Record.sections()
      +-- as_table                                 repr, and the form for notebooks: the first table
      |                                            and the verdict
      +-- fastcos.plots.html.page                  a self-contained HTML page, all of it
      +-- fastcos.cli.terminal.show_sections       tables and numbers on a terminal
    Record.to_dict()                               plain values, for JSON

A new statistic is one line of the result's ``sections``. Results that are no such dataclass have
the decorator ``as_table`` and a method ``table``; without one they are listed by their fields.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any, NamedTuple, TypeVar

import numpy as np

Result = TypeVar("Result", bound=type)

# rows that a table of many shows: a screen has 24 lines
MAX_ROWS = 10
# letters of a cell, and of a line of words
_LONGEST, _LINE = 60, 100


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

    def text(self, longest: int | None = _LONGEST) -> str:
        """The table as lines of text, numbers to the right; longer cells are cut, None: none is."""
        cells = [list(map(printable, self.header))]
        cells += [[as_cell(value, longest) for value in row] for row in self.rows]
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
        lead, more = (f"<p>{escape(text)}</p>" if text else "" for text in (self.lead, self.more))
        head = "".join(f'<th scope="col">{escape(as_text(name))}</th>' for name in self.header)
        rows = "".join(map(_html_row, self.rows))
        table = f"<caption>{escape(self.title)}</caption><thead><tr>{head}</tr></thead>{rows}"
        return f'{lead}<div class="scroll"><table>{table}</table></div>{more}'


def _html_row(row: Sequence[Any]) -> str:
    """A row of a table as HTML; the first cell heads it."""
    first, *others = (escape(as_text(value)) for value in row)
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'


def as_cell(value: Any, longest: int | None) -> str:
    """A value as text of at most this many letters."""
    text = as_text(value)
    return text if longest is None or len(text) <= longest else f"{text[: longest - 3]}..."


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
    names = getattr(record, "_fields", None) or [
        name for name in vars(record) if not name.startswith("_")
    ]
    rows = [(name, getattr(record, name)) for name in names]
    return Table(type(record).__name__, ("field", "value"), rows)


class Figure(NamedTuple):
    """A figure by the name of its display, the record that it draws, and its content in words.

    height: CSS pixels on a page.
    """

    name: str
    record: Any
    height: int
    label: str


class Section(NamedTuple):
    """Part of a result.

    Attributes
    ----------
    title : str
    sentences : sequence of str
        The explanation, for a page. A terminal shows tables and facts.
    tables : sequence of Table
    facts : mapping of str to number, str or None
        Single numbers, by names that need no title.
    figures : sequence of Figure
    verdict : str
        Its conclusion, shown before all else.
    """

    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    facts: Mapping[str, float | str | None] = {}
    figures: Sequence[Figure] = ()
    verdict: str = ""


class Record:
    """Base of the dataclasses that hold results.

    A statistic belongs into a table or the facts of ``sections``: repr, terminal and page show it.
    """

    @property
    def verdict(self) -> str:
        """The result in a sentence; "" for none."""
        return ""

    def sections(self) -> Sequence[Section]:
        """The parts of the result, in their order on a page."""
        return ()

    def table(self) -> Table:
        """The first table of the sections, for ``repr``, below the verdict."""
        found = [table for section in self.sections() for table in section.tables]
        if not found:
            return table_of_fields(self)
        return found[0]._replace(rows=found[0].rows[:MAX_ROWS], lead=self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Fields as plain Python values: records as dicts, arrays as lists."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value

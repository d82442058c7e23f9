"""The base class of results, and the parts of a result: sections, tables, figures and shares.

A result is a dataclass with the base class ``Record``. The ``verdict`` of a result is one sentence,
and its ``sections`` contain explanations, tables, single numbers and named figures. Several
renderers show the sections::

    Record.sections()
      +-- as_table                                 repr, and the form for notebooks: the verdict and
      |                                            the first table
      +-- fastcos.plots.html.page                  a self-contained HTML page with all sections
      +-- fastcos.cli.terminal.show_sections       tables and numbers on a terminal
    Record.to_dict()                               plain values, for JSON

To show a new statistic of a result, add one line to its method ``sections``. A result class that
does not derive from ``Record`` is decorated with ``as_table``. The repr of its instances shows the
table that the method ``table`` returns. If the class has no method ``table``, the repr shows a
table of the fields.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any, NamedTuple, TypeVar

import numpy as np

Result = TypeVar("Result", bound=type)

# The method repr shows this many rows of a long table. A table of ten rows, its title and the
# verdict together fit into the 24 lines of a terminal.
MAX_ROWS = 10
# _LONGEST_CELL is the largest number of characters in a cell of a table. _LINE is the largest
# number of characters in a line of the texts around a table.
_LONGEST_CELL, _LINE = 60, 100


class Estimate(NamedTuple):
    """A share from 0 to 1 with its standard error; an HTML page also shows the share as a bar."""

    share: float
    error: float = 0.0

    def __str__(self) -> str:
        return f"{self.share:.3f}" + (f" ± {self.error:.3f}" if self.error > 0 else "")


class Table(NamedTuple):
    """A table with a title, the names of its columns, its rows, and two texts.

    `lead` is the text above the table, and states the result in words. `more` is the text below the
    table, and adds details, such as the rows that the table does not show.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    more: str = ""
    lead: str = ""

    def text(self, longest: int | None = _LONGEST_CELL) -> str:
        """Return the table as lines of text, in which columns of numbers are right-aligned.

        A cell with more than ``longest`` characters is cut; if ``longest`` is None, no cell is cut.
        """
        cells = [list(map(printable, self.header))]
        cells += [[as_cell(value, longest) for value in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.header)
        is_numeric = [
            any(isinstance(value, (int, float, Estimate)) for value in column) for column in columns
        ]
        lines = [
            "  ".join(
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(line, widths, is_numeric, strict=True)
            ).rstrip()
            for line in cells
        ]
        lead, more = (textwrap.wrap(printable(text), _LINE) for text in (self.lead, self.more))
        return "\n".join([*lead, printable(self.title), *lines, *more])

    def html(self) -> str:
        """Return the table as HTML, with escaped texts."""
        lead, more = (f"<p>{escape(text)}</p>" if text else "" for text in (self.lead, self.more))
        head = "".join(f'<th scope="col">{escape(as_text(name))}</th>' for name in self.header)
        rows = "".join(map(_html_row, self.rows))
        table = f"<caption>{escape(self.title)}</caption><thead><tr>{head}</tr></thead>{rows}"
        return f'{lead}<div class="scroll"><table>{table}</table></div>{more}'


def _html_row(row: Sequence[Any]) -> str:
    """Return a row of a table as HTML; the first cell becomes the heading of the row."""
    heading, *cells = (escape(as_text(value)) for value in row)
    return f'<tr><th scope="row">{heading}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def as_cell(value: Any, longest: int | None) -> str:
    """Return a value as text, cut to ``longest`` characters unless ``longest`` is None."""
    text = as_text(value)
    return text if longest is None or len(text) <= longest else f"{text[: longest - 3]}..."


def as_text(value: Any) -> str:
    """Return a value as text: a float with three decimals, and an array as its shape and dtype."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}"
    if hasattr(value, "shape") and value.shape:
        return f"{' x '.join(f'{n:,}' for n in value.shape)}, {value.dtype}"
    return printable(" ".join(str(value).split()))


def printable(text: str) -> str:
    """Return the text with readable escape codes in place of its control characters.

    Names in files may contain bytes that are not valid text, or control sequences that a terminal
    would execute.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def as_table(kind: Result) -> Result:
    """Decorate a class so that its repr and notebooks show an instance as a table."""
    if not hasattr(kind, "table"):
        kind.table = table_of_fields  # type: ignore[attr-defined]
    kind.__repr__ = lambda self: self.table().text()  # type: ignore[assignment, method-assign, misc]
    kind._repr_html_ = lambda self: self.table().html()  # type: ignore[attr-defined]
    return kind


def table_of_fields(record: Any) -> Table:
    """Return a table of the fields of a record, one field per row."""
    names = getattr(record, "_fields", None) or [
        name for name in vars(record) if not name.startswith("_")
    ]
    rows = [(name, getattr(record, name)) for name in names]
    return Table(type(record).__name__, ("field", "value"), rows)


class Figure(NamedTuple):
    """A figure: the name of a display, the record that the display draws, a height and a label.

    `height` is the height of the figure on a page, in CSS pixels. `label` describes the content of
    the figure in words.
    """

    name: str
    record: Any
    height: int
    label: str


class Section(NamedTuple):
    """A part of a result, with a title.

    Attributes
    ----------
    title : str
    sentences : sequence of str
        The explanation of this part. An HTML page shows the sentences of the explanation; a
        terminal shows only tables and facts.
    tables : sequence of Table
    facts : mapping of str to number, str or None
        Single values by their names.
    figures : sequence of Figure
    verdict : str
        The conclusion of this part, which is shown before everything else.
    """

    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    facts: Mapping[str, float | str | None] = {}
    figures: Sequence[Figure] = ()
    verdict: str = ""


class Record:
    """Base class of the dataclasses that hold results.

    Put every statistic into a table or into the facts of ``sections``, so that the repr, the
    terminal and the HTML page show it.
    """

    @property
    def verdict(self) -> str:
        """The result in one sentence, or an empty text."""
        return ""

    def sections(self) -> Sequence[Section]:
        """Return the parts of the result, in the order in which a page shows them."""
        return ()

    def table(self) -> Table:
        """Return the table that ``repr`` shows: the verdict and the first table of the sections."""
        tables = [table for section in self.sections() for table in section.tables]
        if not tables:
            return table_of_fields(self)
        return tables[0]._replace(rows=tables[0].rows[:MAX_ROWS], lead=self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain Python values: records as dicts, and arrays as lists."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value

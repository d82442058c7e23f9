"""The base of results: what a result says, once, for every form in which it is shown."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from fastcos.reports.table import MAX_ROWS, Table, table_of_fields


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

"""Results, described once, and shown in every form.

A result is a dataclass with the base ``Record``. Its ``verdict`` is a sentence, its ``sections``
hold explanations, tables, single numbers and named figures. Renderers show them::

    Record.sections()
      +-- table    repr, and the form for notebooks: the first table and the verdict
      +-- page     a self-contained HTML page, all of it; plots draw the figures
      +-- fastcos.cli.terminal.show_sections     tables and numbers on a terminal
    Record.to_dict()                             plain values, for JSON

A new statistic is one line of the result's ``sections``. Results that are no such dataclass have
the decorator ``as_table``. ``markup`` writes single elements of HTML.
"""

from fastcos.reports.record import Figure, Record, Section
from fastcos.reports.table import MAX_ROWS, Estimate, Table, as_table, as_text, printable

__all__ = [
    "MAX_ROWS",
    "Estimate",
    "Figure",
    "Record",
    "Section",
    "Table",
    "as_table",
    "as_text",
    "printable",
]

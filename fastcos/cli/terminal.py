"""Output of a command: messages and progress on stderr, tables and JSON on stdout.

Tables and progress bars are drawn by rich. If rich is not installed, tables are printed by
:class:`fastcos.reports.Table`, and no progress is shown.
"""

import contextlib
import json
import os
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

    from fastcos.reports import Section, Table

# Width in characters of a table that is printed to a file or a pipe. The default width of rich, 80
# characters, would be too narrow for most tables.
WIDTH_OF_FILES = 160
# A text with more than _TEXT characters, and a heading with more than _HEADING characters, may be
# wrapped.
_TEXT, _HEADING = 14, 12
# The page of the documentation that explains the next steps after an audit or a comparison. The
# file exists only in a source checkout, because a wheel does not contain the documentation.
DECISION_PAGE = Path(__file__).parents[2] / "docs" / "howto" / "decide.md"
# Seconds between two lines of progress if stderr is not a terminal.
SECONDS_PER_LINE = 10.0


def fail(program: str, message: str) -> None:
    """Print an error as one line on stderr, without control characters."""
    # The import is here and not at the top of the file, because fastcos.validation imports NumPy,
    # which `fastcos --help` does not need.
    from fastcos.validation import one_line

    say(f"{program}: {one_line(message)}")


def say(message: str) -> None:
    """Print a message on stderr; ignore errors while writing, such as a closed pipe."""
    from fastcos.reports import printable

    with contextlib.suppress(OSError):
        print(_wrap(printable(message), sys.stderr), file=sys.stderr, flush=True)


def say_written(paths: Sequence[Path]) -> None:
    """Print the files that a command wrote, and the page that explains the next steps."""
    say(f"wrote to the folder {paths[0].parent}: {', '.join(path.name for path in paths)}")
    if DECISION_PAGE.is_file():
        say(f"to decide what to do next, read {DECISION_PAGE}")


def show_text(text: str) -> None:
    """Print a text on stdout, without the control characters that names may contain."""
    # fastcos.reports is imported here, because it imports NumPy, which `fastcos --help` does not
    # need.
    from fastcos.reports import printable

    print(_wrap(printable(text), sys.stdout))


def _wrap(text: str, stream: TextIO | None) -> str:
    """Wrap a text to the width of a terminal, breaking only between words.

    If the stream is not a terminal, or is None because the process has no console, the text is
    returned unchanged.
    """
    if stream is None or not stream.isatty():
        return text
    width = 80
    with contextlib.suppress(OSError, ValueError):
        width = int(os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno()).columns)
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line, max(width, 20), subsequent_indent=indent, break_long_words=False,
            break_on_hyphens=False,
        ) or [""]  # fmt: skip
    return "\n".join(lines)


@contextlib.contextmanager
def report_compilation() -> Iterator[None]:
    """Print the number of seconds that the block spent compiling kernels, unless it is 0."""
    from fastcos.kernels.jit import seconds_compiling

    seconds_before = seconds_compiling()
    yield
    if seconds_compiling() > seconds_before:
        seconds = seconds_compiling() - seconds_before
        say(f"{seconds:.1f} s of the run time were spent compiling kernels")


@contextlib.contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function progress(done, total) that shows progress and remaining time on stderr.

    On a terminal, the progress is shown by a progress bar; on another stream, a line is printed
    every ten seconds. The total may change from one call to the next.
    """
    if not has_rich():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    count = TextColumn("{task.fields[count]}")
    with _progress(BarColumn(), count, TimeRemainingColumn()) as bar:
        # rich forgets the measured speed whenever the total of a task changes. The total is
        # therefore always 1, and the progress is a fraction of 1.
        bar.add_task(name, total=1.0, count="")
        task = bar.tasks[0]
        last_done, last_print = 0, time.monotonic()

        def progress(done: int, total: int) -> None:
            nonlocal last_done, last_print
            if done < last_done:  # The caller has started a new count from 0.
                bar.reset(task.id)
            count = f"{done:,} of {total:,}"
            bar.update(task.id, completed=done / max(1, total), count=count)
            last_done, now, remaining = done, time.monotonic(), task.time_remaining
            if bar.disable and done and now - last_print >= SECONDS_PER_LINE:
                last_print = now
                if task.speed:
                    rate = task.speed * total
                    count += f", {rate:,.0f}/s" if rate >= 10 else f", {rate:.2g}/s"
                time_left = "" if remaining is None else f", about {remaining:,.0f} s left"
                say(f"{name}: {count}{time_left}")

        yield progress


@contextlib.contextmanager
def spinner(name: str) -> Iterator[None]:
    """Show a spinner on stderr while the block runs, if stderr is a terminal."""
    if not has_rich():
        yield
        return
    with _progress() as bar:
        bar.add_task(name, total=None)
        yield


def has_rich() -> bool:
    """Return whether rich is installed; the extra ``cli`` installs it."""
    return find_spec("rich") is not None


def _progress(*columns: "ProgressColumn") -> "Progress":
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = _console(stderr=True)
    text = TextColumn("{task.description}", markup=False)
    # One step may take minutes. By default, rich estimates the remaining time from the steps of the
    # last 30 s. If a step took longer than 30 s, rich would show no estimate.
    return Progress(
        SpinnerColumn(), text, TimeElapsedColumn(), *columns, console=console, transient=True,
        disable=not console.is_terminal, speed_estimate_period=600, get_time=time.monotonic,
    )  # fmt: skip


def _console(**options: Any) -> "Console":
    """Return a console that prints square brackets literally instead of as markup."""
    from rich.console import Console

    class _LiteralConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # main sets the exit status; rich would exit with status 1.

    return _LiteralConsole(markup=False, emoji=False, highlight=False, **options)


def print_next(commands: Sequence[tuple[Sequence[str], str]]) -> None:
    """Print commands that the user can copy to a shell, each with the reason to run it."""
    from fastcos.reports import printable

    if commands:
        show_text("next:")
    for words, reason in commands:  # The lines are not wrapped, so that they can be copied.
        print(printable(f"  {shlex.join(words)}  # {reason}"))


def show_sections(sections: "Iterable[Section]") -> None:
    """Print the tables of a result and, at the end, a table of its single numbers (facts)."""
    facts: list[tuple[str, Any]] = []
    for section in sections:
        for table in section.tables:
            show_table(table)
        facts += section.facts.items()
    if facts:
        print_table("numbers", ("statistic", "value"), facts)


def show_table(table: "Table") -> None:
    """Print a table of a result, and the text below the table."""
    print_table(table.title, table.header, table.rows)
    if table.more:
        show_text(table.more)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table on stdout: texts aligned left, and numbers aligned right with 3 decimals.

    Texts are wrapped. If some columns do not fit into the width of the terminal, they are printed
    in additional tables below. Each additional table repeats the first column.
    """
    if not has_rich():
        from fastcos import reports

        show_text(reports.Table(title, header, rows).text(longest=None))
        return
    from rich.table import Table

    from fastcos.reports import as_text, printable

    console = _console()
    if not console.is_terminal:
        console = _console(width=WIDTH_OF_FILES)

    columns = [[as_text(row[number]) for row in rows] for number in range(len(header))]
    headings = [printable(heading) for heading in header]
    # A heading may be wrapped between its words. A long text may also be wrapped, unless it is in
    # the first column.
    cell_widths = [max(map(len, cells), default=1) for cells in columns]
    heading_widths = [
        max(min(len(heading), _HEADING), *map(len, heading.split()), 1) for heading in headings
    ]
    is_text = [not n or all(isinstance(row[n], str) for row in rows) for n in range(len(header))]
    is_long = [n > 0 and is_text[n] and cell_widths[n] > _TEXT for n in range(len(header))]
    widths = [
        max(heading, _TEXT if long else cells)
        for heading, cells, long in zip(heading_widths, cell_widths, is_long, strict=True)
    ]
    pending_columns = list(range(1, len(header)))
    while True:
        # The border of the table takes 4 characters.
        shown_columns, used_width = [0], widths[0] + 4
        while pending_columns and (
            len(shown_columns) == 1 or used_width + widths[pending_columns[0]] + 3 <= console.width
        ):
            used_width += widths[pending_columns[0]] + 3
            shown_columns.append(pending_columns.pop(0))
        table = Table(title=printable(title), title_justify="left")
        for n in shown_columns:
            width = None if is_long[n] else widths[n]
            justify: Any = "left" if is_text[n] else "right"
            table.add_column(headings[n], justify=justify, width=width, min_width=widths[n])
        for cells in zip(*(columns[n] for n in shown_columns), strict=True):
            table.add_row(*cells)
        console.print(table)
        title = ""
        if not pending_columns:
            return


def print_json(content: Any) -> None:
    """Print one JSON document on stdout, with null for NaN; raise OSError if the disk is full."""
    print(json.dumps(content, indent=2, allow_nan=False), flush=True)

"""Output of a command: messages and progress on stderr, tables and JSON on stdout.

rich draws tables and progress bars. Where it is not installed, tables are those of
:class:`fastcos.reports.Table`, and there are no progress bars.
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

# columns of a table in a file or a pipe, where rich would squeeze it into 80
WIDTH_OF_FILES = 160
# letters of a text, and of a heading, from which on they are wrapped
_TEXT, _HEADING = 14, 12
# of an audit and of a comparison; installed from a wheel, there is no such page
DECISION_PAGE = Path(__file__).parents[2] / "docs" / "howto" / "decide.md"
# seconds between two lines of progress in a log
SECONDS_PER_LINE = 10.0


def fail(program: str, message: str) -> None:
    """Print an error as one line on stderr, without control characters."""
    from fastcos.validation import one_line  # imports NumPy

    say(f"{program}: {one_line(message)}")


def say(message: str) -> None:
    """Print a message on stderr; a closed or full stderr does not stop the work."""
    from fastcos.reports import printable

    with contextlib.suppress(OSError):
        print(_wrapped(printable(message), sys.stderr), file=sys.stderr, flush=True)


def say_written(written: Sequence[Path]) -> None:
    """Name the files in a folder, a page first, and the page of this clone that says what to do."""
    say(f"wrote to {written[0].parent}: {', '.join(path.name for path in written)}")
    if DECISION_PAGE.is_file():
        say(f"what to do about it, step by step: {DECISION_PAGE}")


def show_text(text: str) -> None:
    """Print text on stdout, without control characters of names in it."""
    from fastcos.reports import printable  # imports NumPy

    print(_wrapped(printable(text), sys.stdout))


def _wrapped(text: str, stream: TextIO | None) -> str:
    """Return text in lines that fit the terminal, broken between words; elsewhere as it is.

    A process without a console has no stream.
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
def compilation_reported() -> Iterator[None]:
    """Report the time of compiling kernels in the block at its end."""
    from fastcos.kernels.jit import seconds_compiling

    before = seconds_compiling()
    yield
    if seconds_compiling() > before:
        say(f"compiled for {seconds_compiling() - before:.1f} s")


@contextlib.contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Report progress and the remaining time on stderr: progress(done, total).

    A bar on a terminal; elsewhere a line every ten seconds. The total may change on the way.
    """
    if not has_rich():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    count = TextColumn("{task.fields[count]}")
    with _progress(BarColumn(), count, TimeRemainingColumn()) as bar:
        # a share of 1, because rich forgets the speed when the total changes
        bar.add_task(name, total=1.0, count="")
        task = bar.tasks[0]
        before, printed = 0, time.monotonic()

        def progress(done: int, total: int) -> None:
            nonlocal before, printed
            if done < before:  # counted from 0 again
                bar.reset(task.id)
            count = f"{done:,} of {total:,}"
            bar.update(task.id, completed=done / max(1, total), count=count)
            before, now, left = done, time.monotonic(), task.time_remaining
            if bar.disable and done and now - printed >= SECONDS_PER_LINE:
                printed = now
                if task.speed:
                    rate = task.speed * total
                    count += f", {rate:,.0f} a second" if rate >= 10 else f", {rate:.2g} a second"
                say(f"{name}: {count}" + ("" if left is None else f", about {left:,.0f} s left"))

        yield progress


@contextlib.contextmanager
def spinner(name: str) -> Iterator[None]:
    """Show on stderr that work of unknown length runs; silent where stderr is no terminal."""
    if not has_rich():
        yield
        return
    with _progress() as bar:
        bar.add_task(name, total=None)
        yield


def has_rich() -> bool:
    """Whether rich is installed, which the extra ``cli`` brings."""
    return find_spec("rich") is not None


def _progress(*columns: "ProgressColumn") -> "Progress":
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = _console(stderr=True)
    text = TextColumn("{task.description}", markup=False)
    # a step may take minutes: rich's default of 30 s would leave no estimate
    return Progress(
        SpinnerColumn(), text, TimeElapsedColumn(), *columns, console=console, transient=True,
        disable=not console.is_terminal, speed_estimate_period=600, get_time=time.monotonic,
    )  # fmt: skip


def _console(**options: Any) -> "Console":
    """A console that prints names with square brackets as they are."""
    from rich.console import Console

    class _Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # for the exit status of a closed pipe; rich would exit with 1

    return _Plain(markup=False, emoji=False, highlight=False, **options)


def print_next(commands: Sequence[tuple[Sequence[str], str]]) -> None:
    """Print commands to copy, each with what it gains; its words are quoted for a shell."""
    from fastcos.reports import printable

    if commands:
        show_text("next:")
    for words, gain in commands:  # never wrapped: they are to be copied
        print(printable(f"  {shlex.join(words)}  # {gain}"))


def show_sections(sections: "Iterable[Section]") -> None:
    """Print the tables of a result, and its single numbers as one more table."""
    facts: list[tuple[str, Any]] = []
    for section in sections:
        for table in section.tables:
            show_table(table)
        facts += section.facts.items()
    if facts:
        print_table("numbers", ("statistic", "value"), facts)


def show_table(table: "Table") -> None:
    """Print one table of a result, and the words below it."""
    print_table(table.title, table.header, table.rows)
    if table.more:
        show_text(table.more)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table on stdout: text left, numbers right with 3 decimals.

    Texts are wrapped. Columns beyond the width of the terminal go into further tables below, with
    the first column again.
    """
    if not has_rich():
        from fastcos import reports

        show_text(reports.Table(title, header, rows).text())
        return
    from rich.table import Table

    from fastcos.reports import as_text, printable  # imports NumPy

    console = _console()
    if not console.is_terminal:
        console = _console(width=WIDTH_OF_FILES)

    columns = [[as_text(row[number]) for row in rows] for number in range(len(header))]
    heads = [printable(one) for one in header]
    # a heading may be wrapped between its words, and a long text that is not in the first column
    longest = [max(map(len, cells), default=1) for cells in columns]
    whole = [max(map(len, head.split()), default=1) for head in heads]
    whole = [max(one, min(len(head), _HEADING)) for one, head in zip(whole, heads, strict=True)]
    is_text = [not n or all(isinstance(row[n], str) for row in rows) for n in range(len(header))]
    is_long = [n > 0 and is_text[n] and longest[n] > _TEXT for n in range(len(header))]
    widths = [
        max(head, _TEXT if long else cells)
        for head, cells, long in zip(whole, longest, is_long, strict=True)
    ]
    left = list(range(1, len(header)))
    while True:
        shown, used = [0], widths[0] + 4  # and the border
        while left and (len(shown) == 1 or used + widths[left[0]] + 3 <= console.width):
            used += widths[left[0]] + 3
            shown.append(left.pop(0))
        table = Table(title=printable(title), title_justify="left")
        for n in shown:
            width = None if is_long[n] else widths[n]
            justify: Any = "left" if is_text[n] else "right"
            table.add_column(heads[n], justify=justify, width=width, min_width=widths[n])
        for cells in zip(*(columns[n] for n in shown), strict=True):
            table.add_row(*cells)
        console.print(table)
        title = ""
        if not left:
            return


def print_json(content: Any) -> None:
    """Print one JSON document on stdout; NaN becomes null. A full disk raises OSError here."""
    print(json.dumps(content, indent=2, allow_nan=False), flush=True)

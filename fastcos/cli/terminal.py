"""What a person sees while a verb works: progress and errors on stderr, tables on stdout."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

# a table that goes to a file or a pipe must not be squeezed into rich's default of 80 columns
_WIDTH_OF_NO_TERMINAL = 160


def fail(program: str, message: str) -> None:
    """Tell an error in one line on stderr."""
    print(f"{program}: {' '.join(message.split())}", file=sys.stderr)


def say(message: str) -> None:
    """Talk on stderr."""
    print(message, file=sys.stderr)


@contextlib.contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Draw progress on stderr while the block runs; silent where stderr is no terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(name, total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield progress


@contextlib.contextmanager
def spinner(name: str) -> Iterator[None]:
    """Show on stderr that something of unknown length runs; silent where it is no terminal."""
    console = Console(stderr=True)
    with console.status(name) if console.is_terminal else contextlib.nullcontext():
        yield


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], *, numbers: bool = True
) -> None:
    """Print a table on stdout: the first column left, numbers right with 3 decimals."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_NO_TERMINAL)
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(header):
        is_text = number == 0 or not numbers
        table.add_column(name, justify="left" if is_text else "right", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console.print(table)


def print_json(content: Any) -> None:
    """Print one JSON document on stdout; NaN becomes null."""
    print(json.dumps(content, indent=2, allow_nan=False))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)

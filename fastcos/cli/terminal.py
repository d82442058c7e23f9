"""What a person sees while a verb works: progress and errors on stderr, tables on stdout."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

# a table that goes to a file or a pipe must not be squeezed into rich's default of 80 columns
_WIDTH_OF_NO_TERMINAL = 160
# a log gets one line of progress in so many seconds
_SECONDS_PER_LINE = 10.0


def fail(program: str, message: str) -> None:
    """Tell an error in one line on stderr, without what would command a terminal."""
    line = " ".join(message.split())
    say(f"{program}: {''.join(c if c.isprintable() else ascii(c)[1:-1] for c in line)}")


def say(message: str) -> None:
    """Talk on stderr; where nothing can be written there, work goes on."""
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Tell on stderr how far the block is, how fast, and how long it will still take.

    A bar on a terminal; elsewhere a line every ten seconds. The total may change as it goes.
    """
    from rich.console import Console

    console, pace = Console(stderr=True), _Pace()
    if not console.is_terminal:
        yield _lines(name, pace)
        return
    with _bar(console) as bar:
        task = bar.add_task(name, total=None, pace="")

        def progress(done: int, total: int) -> None:
            told = pace.told(done, total, time.monotonic())
            bar.update(task, completed=done, total=total, pace=told)

        yield progress


class _Pace:
    """How fast something goes, and how long it will take at that pace."""

    def __init__(self) -> None:
        # the first step may compile, so the pace is that of the steps after it
        self._first: tuple[int, float] | None = None

    def told(self, done: int, total: int, now: float) -> str:
        """Return the rate and the time left in words; nothing before the second step."""
        if self._first is not None and done < self._first[0]:
            self._first = None  # counted from 0 again
        if self._first is None and done:
            self._first = done, now
        if self._first is None or now <= self._first[1] or done <= self._first[0]:
            return ""
        rate = (done - self._first[0]) / (now - self._first[1])
        return f"{_rate(rate)}, about {_duration((total - done) / rate)} left"


def _bar(console: "Console") -> "Progress":
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[pace]}"),
        console=console,
        transient=True,
    )


def _lines(name: str, pace: _Pace) -> Callable[[int, int], None]:
    last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        told = pace.told(done, total, now)
        if now - last >= _SECONDS_PER_LINE and done:
            last = now
            say(f"{name}: {done:,} of {total:,}" + (f", {told}" if told else ""))

    return progress


def _duration(seconds: float) -> str:
    """45 s, 12 min, 3.5 h: what a person plans by."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _rate(rate: float) -> str:
    """1234567 a second as 1.23M/s, a tenth of one as 10 s each: three digits are enough."""
    if rate < 1:
        return f"{1 / rate:.3g} s each"
    for unit in ("", "k", "M"):
        if rate < 1000:
            return f"{rate:.3g}{unit}/s"
        rate /= 1000
    return f"{rate:.3g}G/s"


@contextlib.contextmanager
def spinner(name: str) -> Iterator[None]:
    """Show on stderr that something of unknown length runs; silent where it is no terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as p:
        p.add_task(name, total=None)
        yield


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], *, numbers: bool = True
) -> None:
    """Print a table on stdout: text left, numbers right with 3 decimals.

    Columns that the terminal has no room for go into further tables below, with the first column
    again: a squeezed number is none. With numbers=False long texts are wrapped instead.
    """
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_NO_TERMINAL)
    columns = [[_cell(row[number]) for row in rows] for number in range(len(header))]
    is_text = [all(isinstance(row[number], str) for row in rows) for number in range(len(header))]
    shown = [list(range(len(header)))]
    if numbers:
        widths = [
            max(map(len, (*name.split(), *cells)), default=0)
            for name, cells in zip(header, columns, strict=True)
        ]
        shown = _groups(widths, console.width)
    for group in shown:
        table = Table(title=title, title_justify="left")
        for number in group:
            table.add_column(
                header[number],
                justify="left" if number == 0 or is_text[number] else "right",
                no_wrap=number == 0,
            )
        for row in range(len(rows)):
            table.add_row(*(columns[number][row] for number in group))
        console.print(table)
        title = ""


def _groups(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the columns that stand beside each other, each group led by the first column."""
    margin = 3  # two spaces and a line
    groups, taken = [[0]], widths[0] + margin + 1
    for number, width in enumerate(widths[1:], 1):
        if len(groups[-1]) > 1 and taken + width + margin > room:
            groups.append([0])
            taken = widths[0] + margin + 1
        groups[-1].append(number)
        taken += width + margin
    return groups


def print_json(content: Any) -> None:
    """Print one JSON document on stdout; NaN becomes null. A full disk is told by the verb."""
    print(json.dumps(content, indent=2, allow_nan=False), flush=True)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)

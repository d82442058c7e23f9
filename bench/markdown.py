"""Markdown tables, as every script prints them, and the machine that their numbers are of.

`python bench/markdown.py PACKAGE ...` prints the versions of packages as JSON, in any interpreter.
"""

import contextlib
import json
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

RULES = {"l": "---", "r": "---:"}


def table(columns, header, rows):
    """Yield the lines of a table; columns has l (left) or r (right) for each, as in LaTeX."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join(RULES[column] for column in columns)}|"
    for row in rows:
        yield f"| {' | '.join(map(text_of, row))} |"


def text_of(cell):
    """Return a cell as text: a float has three digits, None is empty."""
    if isinstance(cell, float):
        return f"{float(f'{cell:.3g}'):,g}"
    return "" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell)


def print_table(columns, header, rows):
    """Print a table, each row as soon as it is measured."""
    for line in table(columns, header, rows):
        print(line, flush=True)


def replace_between(path, begin, end, text):
    """Write a text between two marks of a file."""
    before, rest = path.read_text("utf8").split(begin)
    path.write_text(f"{before}{begin}{text}{end}{rest.split(end)[1]}", "utf8")


def cpu_name():
    """Return the system's name of the CPU, LLVM's, which distinguishes virtual ones, and AMX."""
    try:
        (line, *_) = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except (OSError, ValueError):
        line = platform.processor() or platform.machine()
    from llvmlite import binding

    with_amx = " with AMX" if binding.get_host_cpu_features().get("amx-int8") else ""
    return f"{line} ({binding.get_host_cpu_name()}{with_amx})"


def versions_of(packages):
    """Return the versions of those packages that are installed here."""
    found = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


if __name__ == "__main__":
    print(json.dumps(versions_of(sys.argv[1:])))

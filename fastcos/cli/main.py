"""The command ``fastcos VERB``: data on stdout and in files, talk and progress on stderr.

Exit status: 0 fine; 1 the answer is no; 2 bad input, told in one line without a traceback;
130 interrupted.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from fastcos.cli import audit, compare, doctor, fit, neighbors, reproduce, simulate, warmup
from fastcos.cli.terminal import fail

VERBS = (reproduce, simulate, compare, fit, neighbors, audit, doctor, warmup)
DESCRIPTION = """\
Exact similarity at scale, and the truth about what cosine similarity of embeddings means.
Results go to files or stdout, talk and progress to stderr. Exit status: 0 fine, 1 the answer
is no, 2 bad input."""


class _Parser(argparse.ArgumentParser):
    """Tells a wrong argument in one line instead of with the whole usage."""

    def error(self, message: str) -> NoReturn:
        fail(self.prog, f"{message} (see {self.prog} --help)")
        raise SystemExit(2)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    top = _Parser(prog="fastcos", description=DESCRIPTION)
    verbs = top.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    for module in VERBS:
        module.add_parser(verbs)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status."""
    given = parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except (ValueError, TypeError, OSError, MemoryError) as error:
        fail(f"fastcos {given.verb}", str(error) or type(error).__name__)
        return 2
    except KeyboardInterrupt:
        fail(f"fastcos {given.verb}", "interrupted")
        return 130


def entry_point() -> NoReturn:
    """Run as the installed command."""
    sys.exit(main())

"""The command ``fastcos VERB``: data on stdout and in files, talk and progress on stderr.

Exit status: 0 fine; 1 the answer is no; 2 bad input, told in one line without a traceback;
130 interrupted.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Any, NoReturn

from fastcos.cli.compilation import compilation_told
from fastcos.cli.terminal import fail

# each verb is the module of its name, imported when it is called: the help must come at once
VERBS = {
    "reproduce": "Figure 1 of the paper and its table: start here",
    "simulate": "the paper's simulated interactions as files",
    "compare": "the same question on your own interactions",
    "ingest": "a table larger than memory as shards on disk",
    "fit": "a linear model of your interactions, kept on disk",
    "neighbors": "exact nearest neighbours, of a model or of vectors",
    "audit": "how arbitrary are the cosines of your embeddings",
    "export": "embeddings that no rescaling changes, ready for an index",
    "bench": "how fast it is here, against the rivals installed",
    "doctor": "what it sees of this machine, and what to change",
    "warmup": "compile every kernel now: for images and servers",
}
SHELLS = ("bash", "zsh", "tcsh")
DESCRIPTION = """\
Exact similarity at scale, and what the cosine similarity of your embeddings means."""
EPILOG = """\
fastcos VERB --help tells inputs, outputs, examples. Exit status: 0 fine, 1 no, 2 bad input."""


class _Parser(argparse.ArgumentParser):
    """Tells a wrong argument in one line instead of with the whole usage."""

    def error(self, message: str) -> NoReturn:
        fail(self.prog, f"{message} (see {self.prog} --help)")
        raise SystemExit(2)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of descriptions, and a verb on the line of its summary."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)


class _Completion(argparse.Action):
    """Prints the completion script of a shell."""

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> NoReturn:
        _, shell, _ = given
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error("--completion needs shtab: pip install 'fastcos[completion]'")
        print(shtab.complete(whole_parser(VERBS), str(shell)))
        raise SystemExit(0)


class _Version(argparse.Action):
    """Prints the installed version."""

    def __call__(self, *_: Any) -> NoReturn:
        print(f"fastcos {metadata.version('fastcos')}")
        raise SystemExit(0)


def whole_parser(called: Sequence[str] | dict[str, str]) -> argparse.ArgumentParser:
    """Return the parser of all verbs, with the arguments of those that are called."""
    top = _Parser(prog="fastcos", description=DESCRIPTION, epilog=EPILOG, formatter_class=_Help)
    top.add_argument("--version", action=_Version, nargs=0, help="print the version")
    top.add_argument(
        "--completion",
        action=_Completion,
        choices=SHELLS,
        help=f"print the completion script of a shell ({', '.join(SHELLS)})",
        metavar="SHELL",
    )
    verbs = top.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    for name, summary in VERBS.items():
        if name in called:
            verb = import_module(f"fastcos.cli.{name}")
            parser = verbs.add_parser(
                name,
                help=summary,
                description=verb.DESCRIPTION,
                epilog=verb.EPILOG,
                formatter_class=_Help,
            )
            verb.add_arguments(parser)
            parser.set_defaults(run=verb.run)
        else:
            verbs.add_parser(name, help=summary)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    given = whole_parser(words).parse_args(words)
    try:
        with compilation_told(given.verb):
            return int(given.run(given))
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        fail(f"fastcos {given.verb}", str(error) or type(error).__name__)
        return 2
    except KeyboardInterrupt:
        fail(f"fastcos {given.verb}", "interrupted")
        return 130


def entry_point() -> NoReturn:
    """Run as the installed command."""
    sys.exit(main())

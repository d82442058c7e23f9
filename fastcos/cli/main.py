"""The command ``fastcos VERB``: data on stdout and in files, talk and progress on stderr.

Exit status: 0 fine; 1 the answer is no; 2 bad input, told in one line without a traceback;
130 interrupted; 141 the reader of a pipe has gone.
"""

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path
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
    "bench": "time fastcos and other installed libraries",
    "doctor": "what it sees of this machine, and what to change",
    "warmup": "compile every kernel now: for images and servers",
}
READER_GONE = 141  # as shells tell of a process that SIGPIPE ended
SHELLS = ("bash", "zsh", "tcsh")
DESCRIPTION = """\
Exact similarity at scale, and what the cosines of your embeddings mean."""
EPILOG = """\
fastcos VERB --help has examples. Exit status: 0 fine, 1 no, 2 bad input."""


class _Parser(argparse.ArgumentParser):
    """Tells a wrong argument in one line instead of with the whole usage."""

    def error(self, message: str) -> NoReturn:
        fail(self.prog, f"{message} (see {self.prog} --help)")
        raise SystemExit(2)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Fills paragraphs to the terminal, keeps indented lines, and a verb beside its summary."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        told: list[str] = []
        paragraph: list[str] = []
        for line in (*text.split("\n"), ""):
            kept = not line or line.startswith(" ")
            if not kept:
                paragraph.append(line)
            if paragraph and (kept or line.endswith(":")):
                told.append(textwrap.fill(" ".join(paragraph), width))
                paragraph = []
            if kept:
                told.append(line)
        return "\n".join(told[:-1])

    def _format_action(self, action: argparse.Action) -> str:
        told = super()._format_action(action)
        if isinstance(action, argparse._SubParsersAction):
            return told.partition("\n")[2]  # without a line that says VERB
        return told


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
        help=f"print completion for a shell ({', '.join(SHELLS)})",
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
            parser.set_defaults(run=verb.run, parser=parser)
        else:
            verbs.add_parser(name, help=summary)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    given, unknown = whole_parser(words).parse_known_args(words)
    if unknown:
        given.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        from fastcos import config

        config.get_config()  # a wrong variable of the environment is told by itself
        with compilation_told(given.verb):
            return int(given.run(given))
    except BrokenPipeError:
        raise  # for entry_point
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        fail(f"fastcos {given.verb}", _in_words_of_flags(error, given.parser))
        return 2
    except KeyboardInterrupt:
        fail(f"fastcos {given.verb}", "interrupted")
        return 130


def _in_words_of_flags(error: Exception, parser: argparse.ArgumentParser) -> str:
    """Tell an error of the library with the flag for its argument, one of a file without errno."""
    if isinstance(error, OSError) and error.strerror:
        told = f"{error.strerror[:1].lower()}{error.strerror[1:]}"
        return told if error.filename is None else f"{error.filename}: {told}"
    text = str(error) or type(error).__name__
    names = {
        action.dest: action.option_strings[-1] if action.option_strings else str(action.metavar)
        for action in parser._actions
    }
    places = [action for action in parser._actions if not action.option_strings]
    if len(places) == 1:
        names["path"] = names[places[0].dest]  # what a reader calls its only file
    # a word that ends with a dot or a slash begins the name of a file
    return re.sub(r"^\w+(?![\w./])", lambda first: names.get(first[0], first[0]), text)


def entry_point() -> NoReturn:
    """Run as the installed command."""
    _open_what_is_closed()
    status = 0
    try:
        try:
            status = main()
        finally:  # --help and --completion leave by SystemExit
            sys.stdout.flush()
    except OSError as error:
        # a reader such as head has seen enough, or the disk is full: write nothing more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            status = READER_GONE
        elif status != 2:  # not yet told
            fail("fastcos", f"standard output: {error.strerror or error}")
            status = 2
    try:
        sys.stderr.flush()
    except OSError:  # Python would end with 120 where it cannot write at exit what is left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(status)


def _open_what_is_closed() -> None:
    """Give a standard stream that the caller closed a file, so that no other file gets its number.

    Python has None for such a stream, and print writes to stdout in place of it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open to the end

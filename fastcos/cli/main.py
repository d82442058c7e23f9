"""The command ``fastcos COMMAND``: builds the parser, runs the command, reports errors.

Exit status: 0 fine; 1 the answer is no; 2 bad input, reported in one line without a traceback;
130 interrupted; 141 the reader of a pipe has closed it.
"""

import argparse
import contextlib
import gc
import io
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module, metadata
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from fastcos.cli.terminal import compilation_reported, fail, say

# each command is the module of its name, imported when it is called, so that the help is instant
COMMANDS = {
    "reproduce": "Figure 1 of the paper and its table: start here",
    "compare": "which similarity to use for your interactions",
    "fit": "a linear model of your interactions, saved on disk",
    "neighbors": "exact nearest neighbours, of a model or of vectors",
    "index": "an index on disk: build, add, remove, search, export",
    "recommend": "the best items for each user, without those seen",
    "calibrate": "what a score means: thresholds by false-positive rate",
    "audit": "how arbitrary are the cosines of your embeddings",
    "doctor": "settings and limits of this machine, and what to change",
    "warmup": "compile every kernel now: for images and servers",
}
# the exit status that shells report for a process that SIGPIPE ended
CLOSED_PIPE = 141
SHELLS = ("bash", "zsh", "tcsh")
DESCRIPTION = """\
Exact similarity at scale, and what the cosines of your embeddings mean. fastcos COMMAND --help has
examples. Exit status: 0 fine, 1 no, 2 bad input."""


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line instead of with the whole usage."""

    def error(self, message: str) -> NoReturn:
        from fastcos.validation import did_you_mean  # imports NumPy

        wrong = re.fullmatch(r"(.*invalid choice: '(.*)') \(choose from (.*)\)", message)
        if wrong is not None:
            choices = [one.strip("' ") for one in wrong[3].split(",")]
            message = f"{wrong[1]}{did_you_mean(wrong[2], choices) or message[len(wrong[1]) :]}"
        fail(self.prog, f"{message} (see {self.prog} --help)")
        raise SystemExit(2)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Fills paragraphs to the terminal, keeps indented lines, and a command beside its summary."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled: list[str] = []
        for kept, group in groupby(text.split("\n"), lambda line: not line or line[0] == " "):
            lines = list(group)
            if not kept:  # a paragraph also ends after a colon
                parts = re.split(r"(?<=:)\n", "\n".join(lines))
                lines = [textwrap.fill(part, width) for part in parts]
            filled += lines
        return "\n".join(filled)

    def _format_action(self, action: argparse.Action) -> str:
        formatted = super()._format_action(action)
        if isinstance(action, argparse._SubParsersAction):
            return formatted.partition("\n")[2]  # without a line that says COMMAND
        return formatted


class _Completion(argparse.Action):
    """Prints the completion script of a shell."""

    def __call__(self, parser: argparse.ArgumentParser, *values: Any) -> NoReturn:
        _, shell, _ = values
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error("--completion needs shtab: pip install shtab")
        print(shtab.complete(whole_parser(COMMANDS), str(shell)))
        raise SystemExit(0)


class _Version(argparse.Action):
    """Prints the installed version; argparse's own action ignores a full disk."""

    def __call__(self, *_: Any) -> NoReturn:
        print(f"fastcos {metadata.version('fastcos')}")
        raise SystemExit(0)


def whole_parser(called: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands, with the arguments of those that are called."""
    top = _Parser(prog="fastcos", description=DESCRIPTION, formatter_class=_Help, add_help=False)
    # known to all, and the help of all commands fits one screen
    top.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    top.add_argument("--version", action=_Version, nargs=0, help="print the version")
    help_ = f"print completion for a shell ({', '.join(SHELLS)})"
    top.add_argument(
        "--completion", action=_Completion, choices=SHELLS, metavar="SHELL", help=help_
    )
    commands = top.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )
    for name, summary in COMMANDS.items():
        if name not in called:
            commands.add_parser(name, help=summary)
            continue
        command = import_module(f"fastcos.cli.{name}")
        parser = commands.add_parser(
            name,
            help=summary,
            description=command.DESCRIPTION,
            epilog=command.EPILOG,
            formatter_class=_Help,
        )
        command.add_arguments(parser)
        parser.set_defaults(run=command.run, parser=parser)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    given, unknown = whole_parser(words).parse_known_args(words)
    if unknown:
        from fastcos.validation import did_you_mean

        flag = unknown[0].partition("=")[0]
        hint = did_you_mean(flag, given.parser._option_string_actions)
        given.parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    program = given.parser.prog
    try:
        from fastcos import config
        from fastcos.validation import as_thread_count

        config.get_config()  # refuse a wrong environment variable before any work
        if getattr(given, "threads", None) is not None:
            config.set_config(n_threads=as_thread_count("--threads", given.threads))
        with compilation_reported(), _warnings_said():
            return int(given.run(given))
    except BrokenPipeError:
        raise  # for entry_point
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        fail(program, _with_flags(error, given.parser))
        return 2
    except KeyboardInterrupt:
        fail(program, "interrupted")
        return 130


@contextlib.contextmanager
def _warnings_said() -> Iterator[None]:
    """Print the warnings of this library as the other messages of a command."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning)
        warnings.showwarning = show
        yield


def _with_flags(error: Exception, parser: argparse.ArgumentParser) -> str:
    """Format an error: with the flag of a library's argument, or the file without errno."""
    if isinstance(error, OSError) and error.strerror:
        reason = f"{error.strerror[:1].lower()}{error.strerror[1:]}"
        return reason if error.filename is None else f"{error.filename}: {reason}"
    text = str(error) or type(error).__name__
    text = text.replace("(give vector_column)", "(give --vector-column)")
    text = text.replace(" must be None ", " must be left out ")  # a flag
    names = {"random_state": "--seed", "n_components": "--rank"} | {
        action.dest: action.option_strings[-1] if action.option_strings else str(action.metavar)
        for action in parser._actions
    }
    places = [action for action in parser._actions if not action.option_strings]
    if len(places) == 1:
        names["path"] = names[places[0].dest]  # a reader's name of its only file
    # a word that ends with a dot or a slash begins the name of a file
    return re.sub(r"^\w+(?![\w./])", lambda first: names.get(first[0], first[0]), text)


def entry_point() -> NoReturn:
    """Run as the installed command."""
    _open_closed_streams()
    status = 0
    try:
        try:
            status = main()
        finally:  # --help and --completion leave by SystemExit
            sys.stdout.flush()
    except OSError as error:
        # a reader such as head has closed the pipe, or the disk is full: write no more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            status = CLOSED_PIPE
        elif status != 2:  # not yet reported
            fail("fastcos", f"standard output: {error.strerror or error}")
            status = 2
    try:
        sys.stderr.flush()
    except OSError:  # Python would exit with 120 if it cannot write the rest at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    gc.freeze()  # Python searches all objects for garbage as it ends: 0.5 s after reproduce
    sys.exit(status)


def _open_closed_streams() -> None:
    """Give a standard stream that the caller closed a file, so that no other file gets its number.

    Python has None for such a stream, and print would write to stdout in place of it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # letters that its encoding lacks are spelled out
            stream.reconfigure(errors="backslashreplace")

"""The main function of ``fastcos COMMAND``, which builds the parser and runs the command.

Bad input is reported in one line, without a traceback. The exit status is 0 for success, 1 if a
check fails, 2 for bad input, 130 after an interrupt, and 141 if the program that reads the output
has closed the pipe.
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

from fastcos.cli.terminal import fail, report_compilation, say

# Each command is implemented in the module of the same name. The module is imported when the
# command is called, so that `fastcos --help` prints at once.
COMMANDS = {
    "reproduce": "reproduce Figure 1 of Steck et al. 2024: start here",
    "compare": "find out which similarity to use for your data",
    "fit": "fit a linear model to interactions and save it",
    "neighbors": "find the exact nearest neighbours of vectors",
    "index": "build, change, search and export an index on disk",
    "recommend": "recommend unseen items to each user",
    "calibrate": "choose a score threshold by its false-positive rate",
    "audit": "measure how much cosines depend on arbitrary scales",
    "doctor": "show settings of this machine and possible problems",
    "warmup": "compile every kernel now, for container images and servers",
}
# The exit status that shells report if SIGPIPE has ended a process.
CLOSED_PIPE = 141
SHELLS = ("bash", "zsh", "tcsh")
DESCRIPTION = """\
Find exact nearest neighbours, and measure how much the cosines of your embeddings depend on the
arbitrary scale of the latent dimensions. For examples, run fastcos COMMAND --help. The exit status
is 0 for success, 1 if a check fails, and 2 for bad input."""


class _Parser(argparse.ArgumentParser):
    """A parser that reports a wrong argument in one line, without the whole usage."""

    def error(self, message: str) -> NoReturn:
        from fastcos.validation import did_you_mean  # imports NumPy

        match = re.fullmatch(
            r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message
        )
        if match is not None:
            choices = [choice.strip("' ") for choice in match[3].split(",")]
            hint = did_you_mean(match[2], choices)
            message = f"{match[1]} must be one of {', '.join(choices)}, got {match[2]!r}{hint}"
        match = re.fullmatch(r"one of the arguments (\S+) (\S+) is required", message)
        if match is not None:
            message = f"{match[1]} or {match[2]} must be given"
        match = re.fullmatch(r"argument (\S+): invalid (int|float) value: (.*)", message)
        if match is not None:
            kind = "a whole number" if match[2] == "int" else "a number"
            message = f"{match[1]} must be {kind}, got {match[3]}"
        fail(self.prog, f"{message} (see {self.prog} --help)")
        raise SystemExit(2)


class _Help(argparse.RawDescriptionHelpFormatter):
    """A help formatter that wraps paragraphs but preserves indented lines.

    The formatter prints each command and its summary on one line.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled: list[str] = []
        for is_literal, group in groupby(text.split("\n"), lambda line: not line or line[0] == " "):
            lines = list(group)
            if not is_literal:  # A paragraph also ends after a colon.
                parts = re.split(r"(?<=:)\n", "\n".join(lines))
                lines = [textwrap.fill(part, width) for part in parts]
            filled += lines
        return "\n".join(filled)

    def _format_action(self, action: argparse.Action) -> str:
        formatted = super()._format_action(action)
        if isinstance(action, argparse._SubParsersAction):
            return formatted.partition("\n")[2]  # Leave out the line with the metavar COMMAND.
        return formatted


class _Completion(argparse.Action):
    """An action that prints a completion script for a shell."""

    def __call__(self, parser: argparse.ArgumentParser, *values: Any) -> NoReturn:
        _, shell, _ = values
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error("--completion needs shtab: pip install shtab")
        print(shtab.complete(build_parser(COMMANDS), str(shell)))
        raise SystemExit(0)


class _Version(argparse.Action):
    """An action that prints the installed version.

    The version action of argparse is not used, because it reports no error if the output cannot be
    written.
    """

    def __call__(self, *_: Any) -> NoReturn:
        print(f"fastcos {metadata.version('fastcos')}")
        raise SystemExit(0)


def build_parser(called: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands.

    The parser contains arguments only for the commands in ``called``.

    Adding the arguments of a command imports the module of the command.
    """
    top = _Parser(prog="fastcos", description=DESCRIPTION, formatter_class=_Help, add_help=False)
    # --help is hidden, so that the list of commands fits on one screen.
    top.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    top.add_argument("--version", action=_Version, nargs=0, help="print the version")
    help_ = f"print a completion script for a shell ({', '.join(SHELLS)})"
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
    """Run one command and return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        build_parser(()).print_help()
        return 2
    args, unknown = build_parser(words).parse_known_args(words)
    if unknown:
        from fastcos.validation import did_you_mean

        flag = unknown[0].partition("=")[0]
        hint = did_you_mean(flag, args.parser._option_string_actions)
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    program = args.parser.prog
    try:
        from fastcos import config
        from fastcos.validation import as_thread_count

        config.get_config()  # A wrong environment variable raises an error here, before any work.
        if getattr(args, "threads", None) is not None:
            config.set_config(n_threads=as_thread_count("--threads", args.threads))
        with report_compilation(), _show_warnings_as_messages():
            return int(args.run(args))
    except BrokenPipeError:
        raise  # entry_point sets the exit status.
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        fail(program, _format_error(error, args.parser))
        return 2
    except KeyboardInterrupt:
        fail(program, "interrupted")
        return 130


@contextlib.contextmanager
def _show_warnings_as_messages() -> Iterator[None]:
    """Print warnings of this library in the same way as the messages of a command."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning)
        warnings.showwarning = show
        yield


def _format_error(error: Exception, parser: argparse.ArgumentParser) -> str:
    """Return the text of an error; flags replace argument names, and errno is left out."""
    if isinstance(error, OSError) and error.strerror:
        reason = f"{error.strerror[:1].lower()}{error.strerror[1:]}"
        return reason if error.filename is None else f"{error.filename}: {reason}"
    text = str(error) or type(error).__name__
    text = text.replace("(give vector_column)", "(give --vector-column)")
    # A user cannot pass None on the command line.
    text = text.replace(" must be None ", " must be left out ")
    if " must be given" in text:  # The option is missing, so "got None" would confuse the user.
        text = text.removesuffix(", got None")
    names = {"random_state": "--seed", "n_components": "--rank"} | {
        action.dest: action.option_strings[-1] if action.option_strings else str(action.metavar)
        for action in parser._actions
    }
    positionals = [action for action in parser._actions if not action.option_strings]
    if len(positionals) == 1:
        # In the functions that read files, the argument for the file is called "path".
        names["path"] = names[positionals[0].dest]
    # A first word that ends with a dot or a slash is part of a file name, not an argument.
    return re.sub(r"^\w+(?![\w./])", lambda word: names.get(word[0], word[0]), text)


def entry_point() -> NoReturn:
    """Run the command with the arguments of the process; the console script calls this function."""
    _open_closed_streams()
    status = 0
    try:
        try:
            status = main()
        finally:  # --help and --completion raise SystemExit.
            sys.stdout.flush()
    except OSError as error:
        # A reader such as `head` has closed the pipe, or the disk is full. The stream stdout is
        # redirected, so that Python does not try to write the buffered text at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            status = CLOSED_PIPE
        elif status != 2:  # An error with status 2 has already been reported.
            fail("fastcos", f"standard output: {error.strerror or error}")
            status = 2
    try:
        sys.stderr.flush()
    except OSError:  # Python exits with status 120 if it cannot flush stderr.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    # At exit, Python would search all objects for garbage, which would take 0.5 s after the command
    # `reproduce`. After gc.freeze(), Python ignores the objects that exist now.
    gc.freeze()
    sys.exit(status)


def _open_closed_streams() -> None:
    """Open os.devnull in place of each standard stream that the caller has closed.

    If os.devnull were not opened, the next file to be opened would get the file descriptor of the
    closed stream. Python sets a closed stream to None, and ``print(file=None)`` writes to stdout.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open until exit
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Characters that the encoding of the stream cannot represent are written as escapes.
            stream.reconfigure(errors="backslashreplace")

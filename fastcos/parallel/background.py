"""The process that compiles the search kernels while searches run in NumPy.

A process that has searched in NumPy for 0.1 s starts one compiling process for each type of rows.
The compiling process writes compiled code to the code cache, which all processes read. The
compiling process gets the ``sys.path`` of its parent and never imports from the working directory,
so that it runs the same packages as its parent.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, NamedTuple

from fastcos import config
from fastcos.kernels import code_cache

# A compiling process that has not ended after this many seconds, for example because it was
# stopped, counts as failed.
_MAX_SECONDS = 300.0
# The flags of the interpreter that are passed to the compiling process, by name in sys.flags.
_FLAGS = {
    "isolated": "-I", "ignore_environment": "-E", "no_site": "-S", "no_user_site": "-s",
    "dont_write_bytecode": "-B",
}  # fmt: skip


class _Child(NamedTuple):
    """A compiling process, the file of its error messages, its deadline, and its parent's id."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    deadline: float
    parent: int


# For each type of rows, the process that compiles its searches.
_children: dict[str, _Child] = {}
# For each type of rows that no other process compiles, the reason.
failures: dict[str, str] = {}


def start(dtype: str) -> None:
    """Start one process that compiles searches of rows of a type, and report it on stderr."""
    if dtype in _children or dtype in failures:
        return
    reason = _obstacle()
    if reason:
        _fail(dtype, reason)
        return
    settings = {"FASTCOS_CACHE_DIR": str(code_cache.cache_directory()), "FASTCOS_BACKGROUND": "0"}
    if "isa" in config.overrides:
        settings["FASTCOS_ISA"] = config.isa()
    program = (
        f"import sys; sys.path[:] = {_import_path()!r}; "
        f"from fastcos.search.compile_searches import main; main({dtype!r})"
    )
    flags = [flag for name, flag in _FLAGS.items() if getattr(sys.flags, name)]
    optimize = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    # The option -P keeps the working directory off the path while the interpreter starts.
    command = [sys.executable, "-P", *flags, *optimize, "-c", program]
    try:
        errors = tempfile.TemporaryFile()  # noqa: SIM115  it is read after the process has ended
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            start_new_session=True, env={**os.environ, **settings},
        )  # fmt: skip
    except OSError as error:
        _fail(dtype, f"no process could be started: {error}")
        return
    _children[dtype] = _Child(process, errors, time.monotonic() + _MAX_SECONDS, os.getpid())
    _say(
        f"fastcos: compiling the search of {dtype} rows in the background, once on this machine; "
        "until it is done, after about a minute, NumPy searches more slowly "
        "(fastcos warmup compiles everything beforehand)"
    )


def is_running(dtype: str) -> bool:
    """Return whether a process that this process started compiles kernels for a type of rows.

    Compiling processes that have failed, for any type, are reported once.
    """
    for name, child in list(_children.items()):
        reason = _reason_of_end(child)
        if reason is not None:
            del _children[name]
            child.errors.close()
            if reason:
                _fail(name, reason)
    return dtype in _children


def is_running_elsewhere(dtype: str) -> bool:
    """Return whether a process that another program started compiles kernels for a type of rows."""
    directory = code_cache.cache_directory()
    if directory is None or not code_cache.is_writable():
        return False
    if not code_cache.exists(directory / f"{lock_name(dtype)}.lock"):  # the type is not compiled
        return False
    with code_cache.sole_process(lock_name(dtype)) as is_sole:
        return not is_sole


def lock_name(dtype: str) -> str:
    """Return the name of the lock that the only process that compiles a type of rows holds."""
    return f"background-{dtype}"


def why_not(dtype: str) -> str:
    """Return the reason why no other process compiles rows of a type, or an empty string."""
    return _obstacle() or failures.get(dtype, "")


def _reason_of_end(child: _Child) -> str | None:
    """Return None while a process runs, "" if it has succeeded, or the reason of its failure."""
    if os.getpid() != child.parent:  # a forked process cannot wait for a child of its parent
        return None if time.monotonic() < child.deadline else "another process has not finished"
    status = child.process.poll()
    if status is None:
        if time.monotonic() < child.deadline:
            return None
        return f"process {child.process.pid} has not finished in {_MAX_SECONDS:.0f} s"
    if status == 0:
        return ""
    if status < 0:
        return f"its process was ended by signal {-status}"
    with contextlib.suppress(OSError, ValueError):
        child.errors.seek(0)
        lines = child.errors.read().decode(errors="replace").strip().splitlines()
        if lines:
            return f"its process ended with {lines[-1][:200]}"
    return f"its process ended with exit status {status}"


def _obstacle() -> str:
    """Return the reason why no process may be started, or an empty string."""
    if os.environ.get("FASTCOS_BACKGROUND") == "0":
        return "FASTCOS_BACKGROUND is 0"
    if not code_cache.has_compiler():
        return "Numba is not installed"
    if not code_cache.is_writable():
        return "compiled code cannot be kept: set FASTCOS_CACHE_DIR to a folder that can be written"
    if getattr(sys, "frozen", False):
        return "this program is frozen"
    # If Python is embedded, sys.executable is the application, which would be started again.
    if not re.match(r"(python|pypy)", Path(sys.executable or "").name.lower()):
        return f"sys.executable is no Python interpreter: {sys.executable or None!r}"
    return ""


def _import_path() -> list[str]:
    """Return sys.path without the working directory, and with the directory of fastcos."""
    home = str(Path(__file__).parents[2])
    path = [entry for entry in sys.path if isinstance(entry, str) and entry not in ("", ".")]
    return path if home in path else [*path, home]


def _fail(dtype: str, reason: str) -> None:
    """Store the reason why no other process compiles a type of rows, and report it on stderr.

    The reason is not reported if the user has turned the compiling process off.
    """
    failures[dtype] = reason
    if reason != "FASTCOS_BACKGROUND is 0":
        _say(
            f"fastcos: the search of {dtype} rows is not compiled in the background ({reason}); "
            "this process will compile it itself after some more searching"
        )


def _say(text: str) -> None:
    if sys.stderr is not None:
        # The text is lost if stderr is full or closed.
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)

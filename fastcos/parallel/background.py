"""Compile the search kernels in another process, while this process searches in NumPy.

Once a process has searched in NumPy for 0.1 s, it starts one compiling process. The compiling
process writes the compiled code to the code cache, from which every other process can load it. The
compiling process gets the ``sys.path`` of its parent process, so that both processes import the
same packages. The working directory is left out of ``sys.path``, so that no file in it is imported
by accident.
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

# A compiling process that has not ended after this many seconds, for example because a user has
# suspended it, counts as failed.
_MAX_SECONDS = 300.0
# If this process runs with one of these interpreter options, the compiling process gets the option,
# too. Each key is the attribute of sys.flags that tells whether the option is set.
_FLAGS = {
    "isolated": "-I", "ignore_environment": "-E", "no_site": "-S", "no_user_site": "-s",
    "dont_write_bytecode": "-B",
}  # fmt: skip


class _Child(NamedTuple):
    """A compiling process, its error file, its deadline, and the id of its parent process.

    `errors` is the file that receives the error messages of the compiling process. `deadline` is a
    value of `time.monotonic()`. A compiling process that is still running at this time counts as
    failed. `parent` is the id of the process that started the compiling process.
    """

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    deadline: float
    parent: int


# The name of the lock that a process holds while it compiles the search kernels.
LOCK_NAME = "background"


class State:
    """The compiling process that this process has started, and the reason if compiling failed.

    `child` is None while no compiling process is running, and `failure` is "" unless a
    compiling process could not be started or has failed.
    """

    def __init__(self) -> None:
        self.child: _Child | None = None
        self.failure = ""


state = State()


def start() -> None:
    """Start a process that compiles the search kernels, and announce it on stderr.

    If a compiling process is already running, or has failed before, nothing happens.
    """
    if state.child is not None or state.failure:
        return
    reason = _obstacle()
    if reason:
        _fail(reason)
        return
    settings = {"FASTCOS_CACHE_DIR": str(code_cache.cache_directory()), "FASTCOS_BACKGROUND": "0"}
    if "isa" in config.overrides:
        settings["FASTCOS_ISA"] = config.isa()
    program = (
        f"import sys; sys.path[:] = {_import_path()!r}; "
        "from fastcos.search.compile_searches import main; main()"
    )
    flags = [flag for name, flag in _FLAGS.items() if getattr(sys.flags, name)]
    optimize = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    # The option -P keeps the working directory out of sys.path while the interpreter starts.
    command = [sys.executable, "-P", *flags, *optimize, "-c", program]
    try:
        errors = tempfile.TemporaryFile()  # noqa: SIM115  it is read after the process has ended
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            start_new_session=True, env={**os.environ, **settings},
        )  # fmt: skip
    except OSError as error:
        _fail(f"no process could be started: {error}")
        return
    state.child = _Child(process, errors, time.monotonic() + _MAX_SECONDS, os.getpid())
    _say(
        "fastcos: compiling the search kernels in the background, once on this machine. The "
        "compilation takes about a minute; until then, searches run in NumPy and are slower. To "
        "compile all kernels in advance, run fastcos warmup."
    )


def is_running() -> bool:
    """Return whether a child of this process is compiling the search kernels.

    If the child has failed since the last call, a message is printed on stderr.
    """
    child = state.child
    if child is None:
        return False
    reason = _reason_of_end(child)
    if reason is None:
        return True
    state.child = None
    child.errors.close()
    if reason:
        _fail(reason)
    return False


def is_running_elsewhere() -> bool:
    """Return whether a process of another program is compiling the search kernels."""
    directory = code_cache.cache_directory()
    if directory is None or not code_cache.is_writable():
        return False
    # If there is no lock file, no process has ever started to compile the search kernels.
    if not code_cache.exists(directory / f"{LOCK_NAME}.lock"):
        return False
    with code_cache.sole_process(LOCK_NAME) as is_sole:
        return not is_sole


def why_not() -> str:
    """Return the reason why other processes cannot compile the kernels, or "" if they can."""
    return _obstacle() or state.failure


def _reason_of_end(child: _Child) -> str | None:
    """Return None while a process runs, "" if it has succeeded, or the reason why it failed."""
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
        return f"the compiling process was ended by signal {-status}"
    with contextlib.suppress(OSError, ValueError):
        child.errors.seek(0)
        lines = child.errors.read().decode(errors="replace").strip().splitlines()
        if lines:
            return f"the compiling process ended with {lines[-1][:200]}"
    return f"the compiling process ended with exit status {status}"


def _obstacle() -> str:
    """Return why this process cannot start a compiling process, or "" if it can start one."""
    if os.environ.get("FASTCOS_BACKGROUND") == "0":
        return "FASTCOS_BACKGROUND is 0"
    if not code_cache.has_compiler():
        return "Numba is not installed"
    if not code_cache.is_writable():
        return "compiled code cannot be stored: set FASTCOS_CACHE_DIR to a folder with write access"
    if getattr(sys, "frozen", False):
        return "this program is frozen"
    # If an application embeds Python, sys.executable is the application, and starting it would
    # start the application a second time.
    if not re.match(r"(python|pypy)", Path(sys.executable or "").name.lower()):
        return f"sys.executable is no Python interpreter: {sys.executable or None!r}"
    return ""


def _import_path() -> list[str]:
    """Return `sys.path` without the working directory, but with the directory of fastcos."""
    home = str(Path(__file__).parents[2])
    path = [entry for entry in sys.path if isinstance(entry, str) and entry not in ("", ".")]
    return path if home in path else [*path, home]


def _fail(reason: str) -> None:
    """Store the reason why no other process compiles the search kernels, and print it on stderr.

    Nothing is printed if the user has set FASTCOS_BACKGROUND=0, so that no other process compiles.
    """
    state.failure = reason
    if reason != "FASTCOS_BACKGROUND is 0":
        _say(
            f"fastcos: the search kernels are not compiled in the background ({reason}). Searches "
            "continue in NumPy. If Numba is installed, this process compiles the kernels later"
        )


def _say(text: str) -> None:
    if sys.stderr is not None:
        # If stderr is closed, or is a file on a full disk, the text is dropped.
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)

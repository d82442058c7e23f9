"""The cache of compiled code on disk.

The name of each file contains a digest of everything that affects the code in the file. Numba's own
cache has three faults. First, Numba checks only one source file: the file that defines the compiled
function. If an upgrade changes a helper function in another file, Numba may therefore run the old
helper function (see ``fingerprint``). Second, two processes that save at the same time can corrupt
the index of Numba's cache. Third, the import of a cached function fails if no directory is
writable. This module avoids the faults of Numba's cache: it saves every signature in a separate
file without an index, and turns disk errors into warnings.

Each file in the cache is a pickle, so anybody who can write such a file can make this process run
arbitrary code. Only the user has access to the directories that this module creates. A file is read
only if the user or root owns it, and if it is not writable by everyone. The digest in a file
detects damage but does not prevent attacks. ``numba_internals`` makes Numba use the files of this
cache.
"""

import contextlib
import functools
import hashlib
import importlib.util
import os
import pickle
import stat
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from .fingerprint import fingerprint, module_fingerprint

# A process waits at most this many seconds for another process that compiles the same kernel,
# because the other process may be suspended. Compiling the largest kernel takes 20 s on a busy
# machine.
LONGEST_WAIT = 120.0

# Code that no process has used for this many seconds (60 days) is removed. When a process uses a
# file, the date of the file is renewed, at most once a day.
_SECONDS_UNUSED = 60 * 86400
_SECONDS_BETWEEN_DATES = 86400
# Some files contain code that only other kernels can call. The names of these files begin with this
# character.
INNER = "~"

# The directory that was passed to set_cache_directory; None stands for the default directory.
_directory = None


def set_cache_directory(path):
    """Set the cache directory to `path`, or to the default directory if `path` is None.

    The default is the directory in the environment variable FASTCOS_CACHE_DIR if it is set, and
    otherwise the user's cache directory.
    """
    global _directory
    _directory = None if path is None else _absolute(Path(path))


def cache_directory():
    """Return the cache directory, which need not exist yet, or None if it cannot be determined.

    The cache directory cannot be determined if FASTCOS_CACHE_DIR and HOME are not set and the
    system does not know the user. The directory is unknown, for example, in a container that runs
    under an arbitrary user id.
    """
    if _directory is not None:
        return _directory
    variable = os.environ.get("FASTCOS_CACHE_DIR")
    try:
        if variable:
            return _absolute(Path(variable))
        home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        return _absolute(Path(home, "fastcos"))
    except (OSError, RuntimeError):  # there is no working directory or no home directory
        return None


@functools.cache
def _absolute(directory):
    """Return the absolute form of a path; a relative path starts at the working directory.

    A relative path is resolved only once, so the cache stays where it is when the process changes
    its working directory.
    """
    return directory.absolute()


def exists(path):
    """Return whether a path exists; if its directory is not readable, return False."""
    try:
        return path.exists()
    except OSError:
        return False


def is_writable():
    """Return whether the cache directory is writable, or can be created if it does not exist."""
    directory = cache_directory()
    if directory is None:
        return False
    for existing in (directory, *directory.parents):
        if exists(existing):
            return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    return False


@contextlib.contextmanager
def sole_process(name):
    """Try to lock `name` during a `with` block; yield False if another process holds the lock.

    All processes with the same cache directory share the locks. If the file system does not support
    locks, True is yielded.
    """
    with contextlib.ExitStack() as stack:
        try:
            import fcntl

            directory = _required_directory()
            _make_private(directory)
            file = stack.enter_context((directory / f"{name}.lock").open("ab"))
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system releases the lock at exit
        except (
            BlockingIOError,
            PermissionError,
        ):  # another process holds the lock
            yield False
        except (ImportError, OSError):  # Windows and some file systems have no locks
            yield True
        else:
            yield True


@functools.cache
def sources_digest():
    """Return a digest of all kernel source files.

    A native library is used only if its digest is equal to the digest of the sources.
    """
    content = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.[cp]*")):
        if path.suffix in (".c", ".py"):
            content.update(path.relative_to(folder).as_posix().encode())
            content.update(path.read_bytes())
    return content.hexdigest()[:16]


# The digest is computed at import, because an upgrade may later replace the files of a running
# process.
sources_digest()
# The digests of the modules that decide how kernels are compiled and stored.
_MACHINERY = [
    module_fingerprint(f"{__package__}.{name}") for name in ("jit", "compiler", "numba_internals")
]


# The file in the working directory from which Numba reads settings.
_NUMBA_FILE = Path(".numba_config.yaml")


def has_numba_file():
    """Return whether the working directory contains a file with settings of Numba."""
    return exists(_NUMBA_FILE)


def numba_setting(name):
    """Return whether a setting of Numba is on; import Numba only if there is a settings file."""
    if "numba" in sys.modules or has_numba_file():
        import numba

        return bool(getattr(numba.config, name))
    return os.environ.get(f"NUMBA_{name}", "0") not in ("", "0")


def has_compiler():
    """Return whether Numba is installed; wheels with native code work without Numba."""
    return importlib.util.find_spec("numba") is not None


# The environment variables of Numba that do not change the compiled code of a signature. The name
# and the features of the CPU do change the code, but they are part of the key of each file.
HARMLESS_VARIABLES = {
    "NUMBA_CACHE_DIR",
    "NUMBA_CPU_FEATURES",
    "NUMBA_CPU_NAME",
    "NUMBA_NUM_THREADS",
    "NUMBA_THREADING_LAYER",
    "NUMBA_THREADING_LAYER_PRIORITY",
}


@functools.cache
def code_digest():
    """Return a digest of versions, settings and modules that affect compiled code.

    The digest covers the versions of Python, NumPy, Numba and llvmlite, the settings of Numba, and
    the modules that decide how kernels are compiled and stored.
    """
    compilers = [_version(name) for name in ("numba", "llvmlite")] if has_compiler() else []
    settings = [
        (name, value)
        for name, value in sorted(os.environ.items())
        if name.startswith("NUMBA_") and name not in HARMLESS_VARIABLES
    ]
    if has_numba_file():
        settings.append(_NUMBA_FILE.read_text())
    content = (
        sys.implementation.cache_tag, np.__version__, compilers, _MACHINERY, settings,
        numba_setting("BOUNDSCHECK"),
    )  # fmt: skip
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def _version(name):
    """Return the version of an installed package."""
    from importlib import metadata

    try:
        return metadata.version(name)  # this takes 20 ms; importing the package takes 0.4 s
    except metadata.PackageNotFoundError:  # a frozen program contains no metadata
        return importlib.import_module(name).__version__


def leave_mark(name, kernels):
    """Create a file that tells other processes that the cache contains all code of some kernels."""
    path = _mark(name, kernels)
    _make_private(path.parent)
    path.touch()


def is_marked(name, kernels):
    """Return whether leave_mark(name, kernels) was called with the present code of the kernels."""
    try:
        return _mark(name, kernels).exists()
    except OSError:  # the directory does not exist or is not accessible
        return False


def _mark(name, kernels):
    content = " ".join(fingerprint(kernel) for kernel in kernels)
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return _required_directory() / code_digest() / f"{name}.{digest}.mark"


def signatures():
    """Return the paths of the files with code for Python; each file holds one signature."""
    directory = cache_directory()
    return [] if directory is None else list((directory / code_digest()).glob(f"*/[!{INNER}]*-*"))


class Files:
    """The files with the compiled code of one function, one file per signature.

    A file consists of a SHA-256 digest of the file name and the payload, followed by the payload.
    The file name begins with the argument `mark`, the name of the function and the fingerprint of
    the function.
    """

    def __init__(self, function, mark=""):
        self._function, self._mark = function, mark

    @property
    def _name(self):
        name = self._function.__qualname__.replace("<", "").replace(">", "")
        return f"{self._mark}{name}-{fingerprint(self._function)[:16]}"

    @property
    def _folder(self):
        return _required_directory() / code_digest() / str(self._function.__module__)

    def _path(self, key):
        name = f"{self._name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}"
        return self._folder / name

    def exist(self):
        """Return whether the cache has a file for any signature of the function."""
        try:
            return any(self._folder.glob(f"{self._name}-*"))
        except OSError:  # the directory does not exist or is not readable
            return False

    @contextlib.contextmanager
    def turn(self, keys):
        """Yield whether a signature must be compiled.

        The signature must be compiled if no file exists for any of its keys. In this case, the
        signature is locked during the `with` block. While another process holds the lock, the
        method waits. Without locks on signatures, eight test workers that start together would
        compile each kernel eight times. If the file system does not support locks, the method does
        not wait.
        """
        is_missing = True
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ImportError, OSError):  # ImportError: no fcntl on Windows
                paths = list(map(self._path, keys))
                is_missing = not any(path.exists() for path in paths)
                if is_missing:
                    _wait_for_lock(stack, paths[0])
            yield is_missing

    def load(self, key):
        """Return the object that was saved under `key`, or None."""
        try:
            path = self._path(key)
            with path.open("rb") as file:
                _refuse_foreign(path, os.fstat(file.fileno()))
                content = file.read()
        except FileNotFoundError:
            return None
        digest, payload = content[:32], content[32:]
        if _digest(path, payload) != digest:
            raise ValueError(f"{path} is damaged")
        _note_use(path)
        return pickle.loads(payload)

    def save(self, key, payload):
        """Save the pickle `payload` under `key`; other processes never see an incomplete file."""
        path = self._path(key)
        _make_private(path.parent)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_digest(path, payload) + payload)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _remove_unused()


def _note_use(path):
    """Renew the modification time of a file that this process has used, at most once per day."""
    with contextlib.suppress(OSError):  # the cache in a container image may be read-only
        if time.time() - path.stat().st_mtime > _SECONDS_BETWEEN_DATES:
            os.utime(path)


@functools.cache  # once per process
def _remove_unused():
    """Remove code that no process has used for a long time, mostly code of older versions."""
    directory = _required_directory()
    for path in directory.glob("*/*/*-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _SECONDS_UNUSED:
                path.unlink()
    for folder in (*directory.glob("*/*/"), *directory.glob("*/")):
        with contextlib.suppress(OSError):  # the directory is not empty
            folder.rmdir()


def _required_directory():
    """Return the directory of compiled code; raise FileNotFoundError if there is none."""
    directory = cache_directory()
    if directory is None:
        raise FileNotFoundError(
            "there is no home directory to keep compiled code in; set FASTCOS_CACHE_DIR"
        )
    return directory


def _wait_for_lock(stack, path):
    """Lock the byte that stands for `path` in the lock file; closing `stack` releases the lock."""
    import fcntl

    _make_private(path.parent.parent)
    file = stack.enter_context((path.parent.parent / "lock").open("ab"))
    # The operating system releases the lock when the file is closed or the process ends.
    byte = int.from_bytes(_digest(path, b"")[:7])
    end = time.monotonic() + LONGEST_WAIT
    while time.monotonic() < end:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            break
        except (
            BlockingIOError,
            PermissionError,
        ):  # another process holds the lock
            time.sleep(0.05)


def _refuse_foreign(path, status):
    """Raise PermissionError for a file that another user owns or that every user may write."""
    if os.name != "posix":
        return
    if status.st_uid not in (0, os.geteuid()):
        raise PermissionError(f"{path} belongs to another user")
    if status.st_mode & stat.S_IWOTH:
        raise PermissionError(f"{path} may be written by every user")


def _digest(path, payload):
    """Return a digest of a file's name and payload, so that a renamed file counts as damaged."""
    return hashlib.sha256(path.name.encode() + payload).digest()


def _make_private(directory):
    """Create a directory and its missing parents, accessible to the user alone."""
    for missing in reversed([p for p in (directory, *directory.parents) if not p.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


# The kinds of events of which this process has already warned; each kind is reported only once.
warned = set()


def warn(event, cause):
    """Warn of an event only once per process.

    If every event caused a warning, a full disk would cause a warning for every kernel.
    """
    if event not in warned:
        warned.add(event)
        warnings.warn(f"fastcos {event}: {cause}", stacklevel=3)

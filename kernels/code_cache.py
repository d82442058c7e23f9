"""Compiled code on disk, keyed by the content of every kernel source.

Numba's own cache has three faults. It watches the file of the compiled function only, so after an
upgrade it may run an old helper of another file. Two processes that save at once can corrupt its
index. It fails at import if no directory is writable. Here every signature is one file, there is no
index, and failures of the disk become warnings.

A file is a pickle, so whoever can write it can run code. Directories are created for the user
alone, and a file of another user (root excepted) is not read. The digest in a file detects damage,
not attacks.
"""

import functools
import hashlib
import os
import pickle
import sys
import tempfile
import warnings
from pathlib import Path

import numba
import numpy as np
from numba.core import caching, serialize
from numba.core.runtime import rtsys

# directory of set_cache_directory; None: from the environment
_directory = None


def set_cache_directory(path):
    """Store compiled code under path; None: FASTCOS_CACHE_DIR or the user's cache directory."""
    global _directory
    _directory = None if path is None else Path(path)


def cache_directory():
    """Directory of the compiled code; it may not exist yet."""
    if _directory is not None:
        return _directory
    given = os.environ.get("FASTCOS_CACHE_DIR")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(home) / "fastcos"


@functools.cache
def sources_digest():
    """Digest of all kernel sources, the versions of Python, NumPy and Numba, and bounds checks."""
    versions = sys.implementation.cache_tag, np.__version__, numba.__version__
    content = hashlib.sha256(f"{versions} {numba.config.BOUNDSCHECK}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        content.update(path.name.encode())
        content.update(path.read_bytes())
    return content.hexdigest()[:16]


class _Files:
    """One file per signature: the sha256 of the payload, then the payload."""

    def __init__(self, function):
        # computed at import: an upgrade may later replace the sources of a running process
        self._folder = Path(sources_digest(), function.__module__.rpartition(".")[2])
        self._name = function.__qualname__.replace("<", "").replace(">", "")

    def _path(self, key):
        name = f"{self._name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}"
        return cache_directory() / self._folder / name

    def load(self, key):
        path = self._path(key)
        try:
            with path.open("rb") as file:
                if os.name == "posix" and os.fstat(file.fileno()).st_uid not in (0, os.geteuid()):
                    raise PermissionError(f"{path} belongs to another user")
                content = file.read()
        except FileNotFoundError:
            return None
        digest, payload = content[:32], content[32:]
        if hashlib.sha256(payload).digest() != digest:
            raise ValueError(f"{path} is damaged")
        return pickle.loads(payload)

    def save(self, key, data):
        path = self._path(key)
        _make_private(path.parent)
        payload = serialize.dumps(data)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def flush(self):
        """Do nothing: stale files have another digest."""


def _make_private(directory):
    """Create directory and missing parents, accessible to the user alone."""
    for missing in reversed([p for p in (directory, *directory.parents) if not p.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


class _Locator:
    """Stub for Numba, which requests a path at decoration; _Files finds it at every use."""

    def ensure_cache_path(self):
        pass

    def get_cache_path(self):
        return ""

    def get_source_stamp(self):
        return None

    def get_disambiguator(self):
        return None

    @classmethod
    def from_function(cls, py_func, py_file):
        return cls()


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  defined by Numba


class CodeCache(caching.FunctionCache):
    """Cache of one function; errors become warnings."""

    _impl_class = _Implementation

    def __init__(self, function):
        super().__init__(function)
        self._cache_file = _Files(function)

    def load_overload(self, sig, target_context):
        """Return compiled code for a signature, or None with a warning if it is not usable."""
        try:
            # Loaded code calls the runtime. Numba refreshes the whole context here, which imports
            # its typing of NumPy, and SciPy: 0.85 s of every process. A compilation does so itself.
            rtsys.initialize(target_context)
            result = self._load_overload(sig, target_context)
        except Exception as error:  # a pickle can raise anything
            _warn("compiles again", error)
            return None
        if result is not None and tuple(result.signature.args) != tuple(sig):
            _warn("compiles again", f"a cached {self._py_func.__name__} has the wrong signature")
            return None
        return result

    def save_overload(self, sig, data):
        """Save compiled code, or warn."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _warn("cannot keep compiled code", error)


# kinds of warnings issued in this process: each is issued once
warned = set()


def _warn(what, why):
    """Warn once per process: a full disk fails for every kernel alike."""
    if what not in warned:
        warned.add(what)
        warnings.warn(f"fastcos {what}: {why}", stacklevel=3)

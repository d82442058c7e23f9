"""Compiled code on disk, keyed by the content of every kernel source.

numba's own cache watches the file of the compiled function only, so after an upgrade that changes
a helper in another file it keeps running the old helper; its index can be corrupted by two
processes that save at once; and it fails at import where no directory is writable. Here every
signature is one file without an index, and no failure of disk or file reaches the caller.
"""

import functools
import hashlib
import os
import pickle
import tempfile
import warnings
from pathlib import Path

import numba
from numba.core import caching, serialize

_directory = None


def set_cache_directory(path):
    """Keep compiled code under path; None means FASTCOS_CACHE_DIR or the user's cache directory."""
    global _directory
    _directory = None if path is None else Path(path)


def cache_directory():
    """Directory of the compiled code, not necessarily existing."""
    if _directory is not None:
        return _directory
    given = os.environ.get("FASTCOS_CACHE_DIR")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(home) / "fastcos"


@functools.cache
def sources_digest():
    """A new value for every change of a kernel source, of numba or of its bounds checks."""
    content = hashlib.sha256(f"{numba.__version__} {numba.config.BOUNDSCHECK}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        content.update(path.name.encode())
        content.update(path.read_bytes())
    return content.hexdigest()[:16]


class _Files:
    """One file per signature: the sha256 of the payload, then the payload."""

    def __init__(self, function):
        self._module = function.__module__.rpartition(".")[2]
        self._name = function.__qualname__.replace("<", "").replace(">", "")

    def _path(self, key):
        name = f"{self._name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}"
        return cache_directory() / sources_digest() / self._module / name

    def load(self, key):
        try:
            content = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        digest, payload = content[:32], content[32:]
        if hashlib.sha256(payload).digest() != digest:
            raise ValueError(f"{self._path(key)} is damaged")
        return pickle.loads(payload)

    def save(self, key, data):
        path = self._path(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        payload = serialize.dumps(data)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            temporary.replace(path)
        except BaseException:
            temporary.unlink()
            raise

    def flush(self):
        """Nothing: stale files lie under another digest."""


class _Locator(caching._CacheLocator):
    """numba asks for a place at decoration; _Files finds the place anew at every use."""

    def ensure_cache_path(self):
        pass

    def get_cache_path(self):
        return str(cache_directory())

    def get_source_stamp(self):
        return None

    def get_disambiguator(self):
        return None

    @classmethod
    def from_function(cls, py_func, py_file):
        return cls()


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  numba's own attribute


class CodeCache(caching.FunctionCache):
    """The cache of one function, with warnings in place of errors."""

    _impl_class = _Implementation

    def __init__(self, function):
        super().__init__(function)
        self._cache_file = _Files(function)

    def load_overload(self, sig, target_context):
        """Return compiled code for a signature, or None with a warning where it cannot be used."""
        try:
            result = super().load_overload(sig, target_context)
        except Exception as error:  # a pickle can raise anything
            warnings.warn(f"fastcos compiles again: {error}", stacklevel=2)
            return None
        if result is not None and tuple(result.signature.args) != tuple(sig):
            warnings.warn("fastcos compiles again: a cached signature is wrong", stacklevel=2)
            return None
        return result

    def save_overload(self, sig, data):
        """Keep compiled code, or warn."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            warnings.warn(f"fastcos could not keep compiled code: {error}", stacklevel=2)

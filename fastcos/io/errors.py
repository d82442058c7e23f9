"""Errors of readers and writers: damaged files, and formats that need a package."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from fastcos.storage import FastcosFormatError, PathLike


@contextmanager
def damage_refused(path: Path, rule: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn a reader's errors for damaged files into "<path> must be <rule>: <error>"."""
    try:
        yield
    except FastcosFormatError:
        raise
    except errors as error:
        # of the system, such as a full disk of the caller; but EINVAL is a seek before the file
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        what = (str(error) or type(error).__name__).partition("\n")[0]
        raise FastcosFormatError(f"{path} must be {rule}: {what}") from None


def import_for(path: PathLike, what: str, module: str) -> Any:
    """Return a module that a format needs; what begins the message, such as "HDF5 needs"."""
    try:
        return import_module(module)
    except ImportError:
        raise FastcosFormatError(f"{path}: {what} {module}: pip install {module}") from None

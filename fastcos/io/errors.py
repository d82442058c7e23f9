"""Errors that readers and writers raise if a file is damaged, or if a package is missing."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from fastcos.storage import FastcosFormatError, PathLike


@contextmanager
def damage_refused(path: Path, rule: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Convert errors that a damaged file causes in the `with` block to FastcosFormatError.

    The message is "<path> must be <rule>: <error>".
    """
    try:
        yield
    except FastcosFormatError:
        raise
    except errors as error:
        # An OSError usually has a cause outside the file, such as a failing disk, so it is raised
        # unchanged. EINVAL is an exception: it is raised when a reader of a damaged file seeks to a
        # negative position.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        raise FastcosFormatError(f"{path} must be {rule}: {reason}") from None


def import_for(path: PathLike, subject: str, module: str) -> Any:
    """Import a module that a format needs; errors start with `subject`, such as "HDF5 needs"."""
    try:
        return import_module(module)
    except ImportError:
        raise FastcosFormatError(f"{path}: {subject} {module}: pip install {module}") from None

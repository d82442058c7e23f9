"""Atomic writing of files: a file is replaced completely, or stays unchanged."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastcos.storage.directory import PathLike, sync_directory
from fastcos.validation import as_instance, as_path, one_line


@contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path; the file written there replaces path at the end of the with block.

    The with block must write the temporary file, which is in the directory of path and has its
    suffix. At the end of the block, the file is flushed to disk and renamed. If the block raises an
    error, the temporary file is removed and path stays unchanged. A killed process leaves at most a
    hidden file. Symbolic links are followed. The function raises OSError if the directory is
    missing or not writable, or if path is not a regular file.
    """
    # If links are circular, the resolved path is still a link.
    target = Path(os.path.realpath(as_path("path", path)))
    if (target.exists() or target.is_symlink()) and not target.is_file():
        raise OSError(one_line(f"path must be a regular file or a new one, got {path}"))
    if not target.parent.is_dir():
        rule = "lie in an existing directory"
        raise FileNotFoundError(one_line(f"path must {rule}, got {path}"))
    temporary = target.with_name(f".{target.stem[:80]}.{secrets.token_hex(8)}{target.suffix}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        if error.filename not in (None, str(temporary)):
            raise
        # Errors that the system or NumPy raises for a full disk do not name the file.
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(target.parent)


def write_text(path: PathLike, text: str) -> None:
    """Write text as UTF-8, atomically; raise OSError in the same cases as :func:`atomic_path`."""
    as_instance("text", text, str, "a text")
    with atomic_path(path) as temporary:
        # A lone surrogate, which occurs in names of files that are not UTF-8, cannot be encoded.
        # The escape sequence of such a surrogate can be read as JSON.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")

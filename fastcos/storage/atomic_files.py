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
    """Yield a temporary path; after the `with` block, the file there replaces the file at `path`.

    The `with` block must write the temporary file. The temporary file is in the same directory as
    `path`, and has the same suffix. At the end of the block, the temporary file is flushed to disk
    and renamed to `path`. If the block raises an error, the temporary file is removed, and the file
    at `path` stays unchanged. If the process is killed, at most a hidden temporary file remains. If
    `path` is a symbolic link, the file to which the link leads is replaced. OSError is raised if
    the directory of `path` is missing or not writable, or if `path` exists but is not a regular
    file.
    """
    # If symbolic links form a circle, the resolved path is still a symbolic link.
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
        # If the disk is full, the errors of the operating system and of NumPy do not name the file.
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(target.parent)


def write_text(path: PathLike, text: str) -> None:
    """Write text as UTF-8, atomically; raise OSError in the same cases as :func:`atomic_path`."""
    as_instance("text", text, str, "a string")
    with atomic_path(path) as temporary:
        # Python represents a file name that is not UTF-8 by lone surrogates, which UTF-8 cannot
        # encode. Lone surrogates are written as escape sequences, which JSON readers understand.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")

"""Atomic writing of files: a file is complete, or it is unchanged."""

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
    """Yield a temporary path, which replaces path at the end of the block.

    The temporary file, which the block must write, is in the same directory and has the same
    suffix. At the end of the block it is flushed to disk and renamed; if the block raises, it is
    removed and path is unchanged. A killed process leaves at most a hidden file. Symbolic links are
    followed. OSError if the directory is missing or not writable, or path is not a regular file.
    """
    target = Path(os.path.realpath(as_path("path", path)))  # still a link if links are circular
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
        # errors of a full disk, from the system or NumPy, do not name the file
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(target.parent)


def write_text(path: PathLike, text: str) -> None:
    """Write text as UTF-8, atomically; OSError as :func:`atomic_path`."""
    as_instance("text", text, str, "a text")
    with atomic_path(path) as temporary:
        # half a character, as in names of broken files, has no UTF-8; JSON reads its escape
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")

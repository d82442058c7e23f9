"""Bytes of a file that may be compressed, without ever holding more than a buffer of them."""

import functools
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from fastcos.parallel import Progress
from fastcos.storage import FastcosFormatError

LONGEST_LINE = 1 << 24
# a table shrinks 3 to 30 times; what shrinks 100 times and is this large was made to fill a memory
LARGEST_UNPROVEN = 1 << 30
LARGEST_RATIO = 100
DAMAGE = (
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    OSError,  # gzip, bzip2 and seeking; the file itself is open by then
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
)


class Source(Protocol):
    """What can be read."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most size bytes, none at the end."""


class BoundedReader(io.RawIOBase):
    """Passes bytes on, and stops at lines without an end and at decompression bombs."""

    def __init__(
        self,
        source: Source,
        path: Path,
        stored: int,
        told: Callable[[], object] = lambda: None,
    ) -> None:
        self._source, self._told = source, told
        self._path = path
        self._most = max(LARGEST_UNPROVEN, LARGEST_RATIO * stored)
        self._total = 0
        self._since_line_end = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # a stricter buffer
        """Fill buffer with the next bytes."""
        block = self._source.read(len(buffer))
        self._told()
        buffer[: len(block)] = block
        self._total += len(block)
        if self._total > self._most:
            raise FastcosFormatError(
                f"{self._path} must not expand more than {LARGEST_RATIO}-fold beyond "
                f"{LARGEST_UNPROVEN >> 30} GiB; decompress it first if it is what it should be"
            )
        line_end = max(block.rfind(b"\n"), block.rfind(b"\r"))
        self._since_line_end = len(block) - line_end + (self._since_line_end if line_end < 0 else 0)
        if self._since_line_end > LONGEST_LINE:
            raise FastcosFormatError(
                f"{self._path} must be text in lines, got a line of more than "
                f"{LONGEST_LINE >> 20} MiB"
            )
        return len(block)


@contextmanager
def open_bytes(
    path: Path, member: str | None = None, progress: Progress | None = None
) -> Iterator[io.BufferedReader]:
    """Open a file: plain, gzip, or one file of a zip archive, told by its first bytes.

    Parameters
    ----------
    path : pathlib.Path
    member : str, optional
        Name of the file in a zip archive, with or without its folders.
    progress : callable, optional
        Called as progress(done, total) with numbers of bytes as they are stored.

    Raises
    ------
    FastcosFormatError
        Damaged, encrypted, a decompression bomb, or no such member.
    OSError
        No such file.
    """
    with path.open("rb") as file:
        try:
            stored = path.stat().st_size
            told = functools.partial(_tell, progress, file, 0, stored)
            magic = file.read(4)
            file.seek(0)
            is_zip = magic in (b"PK\x03\x04", b"PK\x05\x06")
            if member is not None and not is_zip:
                raise FastcosFormatError(f"member must be None: {path} is no zip archive")
            if is_zip:
                with zipfile.ZipFile(file) as archive:
                    info = _find_member(archive, path, member)
                    size = info.compress_size
                    told = functools.partial(_tell, progress, file, info.header_offset, size)
                    with archive.open(info) as content:
                        yield _buffered(content, path, size, told)
            elif magic[:2] == b"\x1f\x8b":
                with gzip.GzipFile(fileobj=file) as content:
                    yield _buffered(content, path, stored, told)
            else:
                yield _buffered(file, path, stored, told)
        except DAMAGE as error:
            what = str(error) or type(error).__name__
            raise FastcosFormatError(f"{path} must be a whole, readable file: {what}") from None


def _tell(progress: Progress | None, file: BinaryIO, first: int, size: int) -> None:
    if progress is not None:
        progress(min(file.tell() - first, size), size)


def _buffered(
    source: Source | BinaryIO, path: Path, stored: int, told: Callable[[], object]
) -> io.BufferedReader:
    return io.BufferedReader(BoundedReader(source, path, stored, told), 1 << 18)


def _find_member(archive: zipfile.ZipFile, path: Path, member: str | None) -> zipfile.ZipInfo:
    files = [
        info
        for info in archive.infolist()
        if not info.is_dir() and not info.filename.startswith("__MACOSX/")
    ]
    found = (
        files
        if member is None
        else [info for info in files if info.filename == member]
        or [info for info in files if info.filename.rpartition("/")[2] == member]
    )
    if len(found) != 1:
        names = ", ".join(info.filename for info in files[:10])
        more = f" and {len(files) - 10} more" if len(files) > 10 else ""
        raise FastcosFormatError(
            f"member must name one file in {path} ({names or 'it is empty'}{more}), got {member!r}"
        )
    return found[0]

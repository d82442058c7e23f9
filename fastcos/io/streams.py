"""Streams of possibly compressed files, with limits on their expansion."""

import codecs
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from fastcos.io.errors import damage_refused
from fastcos.parallel import Progress
from fastcos.storage import FastcosFormatError

# bytes of a line; longer lines are no text, and would fill the memory of the csv module
LONGEST_LINE = 1 << 24
# decompressed bytes that any file of arrays may have
LARGEST_FREE_SIZE = 1 << 30
# decompressed bytes that any text may have: as rows of numbers they take up to sixteen times that
LARGEST_FREE_TEXT = 1 << 24
# beyond that, decompressed over stored bytes; tables have ratios of 3 to 30
LARGEST_RATIO = 100
# byte order marks and encodings; that of UTF-32 begins with that of UTF-16
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# errors of the standard library for damaged files
DAMAGE = (
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    OSError,  # of gzip, bzip2 and seeking; the file itself is already open
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
)


def largest_size(stored: int) -> int:
    """Return the limit of decompressed bytes of arrays for a number of stored bytes."""
    return max(LARGEST_FREE_SIZE, LARGEST_RATIO * stored)


class BoundedReader(io.RawIOBase):
    """Passes bytes on; refuses endless lines and decompression bombs."""

    def __init__(
        self, source: IO[bytes], path: Path, stored: int, report: Callable[[], object]
    ) -> None:
        self._source, self._report, self._path = source, report, path
        self._most = max(LARGEST_FREE_TEXT, LARGEST_RATIO * stored)
        self._total = 0
        self._since_line_end = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # a stricter buffer
        """Fill buffer with the next bytes."""
        block = self._source.read(len(buffer))
        self._report()
        buffer[: len(block)] = block
        self._total += len(block)
        if self._total > self._most:
            raise FastcosFormatError(
                f"{self._path} must not expand more than {LARGEST_RATIO}-fold beyond "
                f"{LARGEST_FREE_TEXT >> 20} MiB; if it is genuine, decompress it first"
            )
        line_end = max(block.rfind(b"\n"), block.rfind(b"\r"))
        self._since_line_end = len(block) - line_end + (self._since_line_end if line_end < 0 else 0)
        if self._since_line_end > LONGEST_LINE:
            got = f"a line of more than {LONGEST_LINE >> 20} MiB"
            raise FastcosFormatError(f"{self._path} must be text in lines, got {got}")
        return len(block)


class _Transcoder(io.RawIOBase):
    """Passes the text of a stream on as UTF-8."""

    def __init__(self, source: IO[bytes], encoding: str, path: Path) -> None:
        self._source, self._path, self._encoding = source, path, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._rest = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # a stricter buffer
        """Fill buffer with the next bytes."""
        while not self._rest:
            block = self._source.read(1 << 16)
            try:
                text = self._decoder.decode(block, final=not block)
                self._rest = text.encode()
            except UnicodeError as error:
                raise FastcosFormatError(
                    f"{self._path} must be {self._encoding} text, as its byte order mark says: "
                    f"{error}"
                ) from None
            if not block:
                break
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


@contextmanager
def open_text(
    path: Path, member: str | None = None, progress: Progress | None = None
) -> Iterator[io.BufferedReader]:
    """Open a file of text as open_bytes does: bytes in UTF-8, without a byte order mark.

    A byte order mark of UTF-16 or UTF-32, as spreadsheets write it, is followed.
    """
    with open_bytes(path, member, progress) as stream:
        start = stream.peek(4)[:4]
        encoding = next((name for mark, name in _MARKS if start.startswith(mark)), None)
        if encoding is None:
            yield stream
        elif encoding == "utf-8":
            stream.read(len(codecs.BOM_UTF8))
            yield stream
        else:
            yield io.BufferedReader(_Transcoder(stream, encoding, path), 1 << 18)


@contextmanager
def open_bytes(
    path: Path, member: str | None = None, progress: Progress | None = None
) -> Iterator[io.BufferedReader]:
    """Open a plain or gzip file, or a file of a zip archive, recognised by its first bytes.

    member is the name of the file in a zip archive, with or without its folders. progress is called
    as progress(done, total) with numbers of stored bytes. Damaged and encrypted files and
    decompression bombs raise FastcosFormatError.
    """
    with path.open("rb") as file, damage_refused(path, "a whole, readable file", DAMAGE):
        stored = path.stat().st_size
        magic = file.read(4)
        file.seek(0)
        is_zip = magic in (b"PK\x03\x04", b"PK\x05\x06")
        if member is not None and not is_zip:
            raise FastcosFormatError(
                f"member must be None for {path}, which is not a zip archive, got {member!r}"
            )
        if is_zip:
            with zipfile.ZipFile(file) as archive:
                info = _find_member(archive, path, member)
                first, size = info.header_offset, info.compress_size
                with archive.open(info) as content:
                    yield _buffered(content, path, file, first, size, progress)
        elif magic[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=file) as content:
                yield _buffered(content, path, file, 0, stored, progress)
        else:
            yield _buffered(file, path, file, 0, stored, progress)


def _buffered(
    content: Any, path: Path, file: BinaryIO, first: int, size: int, progress: Progress | None
) -> io.BufferedReader:
    """Buffer content, whose size stored bytes start at position first of the file."""

    def report() -> None:
        if progress is not None:
            progress(min(file.tell() - first, size), size)

    return io.BufferedReader(BoundedReader(content, path, size, report), 1 << 18)


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

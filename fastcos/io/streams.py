"""Streams of files that may be compressed, with limits on the size of decompressed content."""

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

# Largest number of bytes in a line. A file with a longer line is not a table; moreover, the csv
# module would hold the whole line in memory.
LONGEST_LINE = 1 << 24
# Compressed arrays may expand to this number of bytes, even if the file is very small.
LARGEST_FREE_SIZE = 1 << 30
# Compressed text may expand to this number of bytes, even if the file is very small. After the text
# has been converted to rows of numbers, it takes up to 16 times as many bytes.
LARGEST_FREE_TEXT = 1 << 24
# A text of more than LARGEST_FREE_TEXT bytes may be at most this many times as large as the
# compressed file. The same limit applies to other content of more than LARGEST_FREE_SIZE bytes.
# Tables typically expand by a factor of 3 to 30.
LARGEST_RATIO = 100
# Byte order marks and their encodings. UTF-32 comes before UTF-16, because the mark of UTF-32
# begins with the mark of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Exceptions that the standard library raises for damaged files.
DAMAGE = (
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    OSError,  # raised by gzip, bz2 and seek; opening the file has already succeeded
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
)


def largest_size(stored: int) -> int:
    """Return the largest allowed size of the decompressed arrays of a file with `stored` bytes."""
    return max(LARGEST_FREE_SIZE, LARGEST_RATIO * stored)


class BoundedReader(io.RawIOBase):
    """A reader that raises FastcosFormatError for endless lines and for decompression bombs."""

    def __init__(
        self, source: IO[bytes], path: Path, stored: int, report: Callable[[], object]
    ) -> None:
        self._source, self._report, self._path = source, report, path
        self._max_total = max(LARGEST_FREE_TEXT, LARGEST_RATIO * stored)
        self._total = 0
        self._since_line_end = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # a stricter buffer
        """Write the next bytes to the buffer, and return how many bytes were written."""
        block = self._source.read(len(buffer))
        self._report()
        buffer[: len(block)] = block
        self._total += len(block)
        if self._total > self._max_total:
            raise FastcosFormatError(
                f"{self._path} must expand to at most {LARGEST_FREE_TEXT >> 20} MiB or to "
                f"{LARGEST_RATIO} times its compressed size, whichever is larger. If you trust "
                "the file, decompress it first"
            )
        line_end = max(block.rfind(b"\n"), block.rfind(b"\r"))
        self._since_line_end = len(block) - line_end + (self._since_line_end if line_end < 0 else 0)
        if self._since_line_end > LONGEST_LINE:
            got = f"a line of more than {LONGEST_LINE >> 20} MiB"
            raise FastcosFormatError(f"{self._path} must be text in lines, got {got}")
        return len(block)


class _Transcoder(io.RawIOBase):
    """A reader that converts the text of a stream to UTF-8."""

    def __init__(self, source: IO[bytes], encoding: str, path: Path) -> None:
        self._source, self._path, self._encoding = source, path, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._pending = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # a stricter buffer
        """Write the next bytes to the buffer, and return how many bytes were written."""
        while not self._pending:
            block = self._source.read(1 << 16)
            try:
                text = self._decoder.decode(block, final=not block)
                self._pending = text.encode()
            except UnicodeError as error:
                raise FastcosFormatError(
                    f"{self._path} must be valid {self._encoding} text, because it begins with the "
                    f"byte order mark of this encoding: {error}"
                ) from None
            if not block:
                break
        size = min(len(buffer), len(self._pending))
        buffer[:size], self._pending = self._pending[:size], self._pending[size:]
        return size


@contextmanager
def open_text(
    path: Path, member: str | None = None, progress: Progress | None = None
) -> Iterator[io.BufferedReader]:
    """Open a text file, and yield a stream of its text as UTF-8 without a byte order mark.

    The arguments have the same meaning as in :func:`open_bytes`. Text with a byte order mark of
    UTF-16 or UTF-32 (from a spreadsheet, for example) is converted to UTF-8.
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
    """Open a plain file, a gzip file or a file in a zip archive, and yield a stream of its bytes.

    The kind of the file is recognised by its first bytes. ``member`` is the name of a file in a zip
    archive, with or without its folders. The function calls ``progress(done, total)``; both numbers
    count bytes before decompression. Damaged files, encrypted files and decompression bombs raise
    FastcosFormatError.
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
    """Return a buffered reader of content that is stored in a part of the file.

    The part starts at byte offset ``first``, and contains ``size`` bytes.
    """

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
    matches = (
        files
        if member is None
        else [info for info in files if info.filename == member]
        or [info for info in files if info.filename.rpartition("/")[2] == member]
    )
    if len(matches) != 1:
        names = ", ".join(info.filename for info in files[:10])
        ending = f" and {len(files) - 10} more" if len(files) > 10 else ""
        raise FastcosFormatError(
            f"member must name one file in {path} ({names or 'it is empty'}{ending}), "
            f"got {member!r}"
        )
    return matches[0]

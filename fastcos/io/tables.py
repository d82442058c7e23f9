"""Tables with one row per interaction or item: delimited text, and Parquet (``parquet``)."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastcos.io.columns import Chunk, Columns, TextColumn, Vocabulary, check_texts, refuse_rows
from fastcos.io.parquet import ARROW_SUFFIXES, PARQUET_SUFFIXES, ParquetTable
from fastcos.io.streams import open_bytes
from fastcos.parallel import Progress
from fastcos.storage import FastcosFormatError
from fastcos.validation import Integers, as_flag, check_none, check_progress, check_text

# rows of one chunk: larger chunks cost time in the garbage collector
_CHUNK = 512
# distinct texts of numbers that are cached, a few MB
_MAX_CACHED_NUMBERS = 1 << 16


class _Numbers(dict[str, float]):
    """Cache of parsed texts, up to a bound; NaN for texts that are not finite decimal numbers."""

    first_broken: str | None = None

    def __missing__(self, text: str) -> float:
        try:
            number = math.nan if "_" in text else float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            number = math.nan
            if self.first_broken is None:
                self.first_broken = text
        if len(self) < _MAX_CACHED_NUMBERS:
            self[text] = number
        return number


class DelimitedTable:
    """csv and tsv, read as a stream: UTF-8, every row as long as the first; header optional."""

    def __init__(
        self, stream: io.BufferedReader, path: Path, delimiter: str | None, header: bool
    ) -> None:
        self.path = path
        self._numbers = _Numbers()
        # bytes that are not UTF-8 matter only in the columns that are read
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        first_line = text.readline()
        if not first_line.strip():
            raise FastcosFormatError(f"{path} must start with a header line, got an empty line")
        if "\0" in first_line:
            raise FastcosFormatError(f"{path} must be UTF-8 text, got a zero byte in line 1")
        if not delimiter and "\t" in first_line:
            delimiter = "\t"
        elif not delimiter:
            delimiter = ";" if ";" in first_line and "," not in first_line else ","
        # in tab-separated files a quote is an ordinary character (IANA)
        self._reader = csv.reader(
            chain([first_line], text),
            delimiter=delimiter,
            quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
            strict=True,
        )
        try:
            first = next(self._reader)
        except csv.Error as error:
            raise FastcosFormatError(f"{path}: line 1 must be a header line: {error}") from None
        if len(first) < 2:
            raise FastcosFormatError(
                f"{path} must have columns separated by tab, comma, semicolon or the "
                f"given delimiter, got one column in line 1: {first_line.strip()[:60]!r}"
            )
        self.names = first if header else [str(1 + i) for i in range(len(first))]
        self._rows: Iterator[list[str]] = self._reader
        self._line = self._reader.line_num
        if not header:
            self._rows = chain([first], self._reader)
            self._line = 0

    def read(self, texts: Sequence[str], number: str | None) -> Columns:
        """Read columns of texts and one of finite numbers."""
        vocabularies = [Vocabulary() for _ in texts]
        chunks = list(self.chunks(texts, number, vocabularies))
        if not chunks:
            raise FastcosFormatError(f"{self.path} must have at least one row, got none")
        lines = np.concatenate([chunk.lines for chunk in chunks])
        values = None
        if number is not None:
            values = np.concatenate(
                [chunk.numbers for chunk in chunks if chunk.numbers is not None]
            )
            self.check_numbers(number, values, lines)
        columns = [
            TextColumn(list(known), np.concatenate([chunk.codes[i] for chunk in chunks]))
            for i, known in enumerate(vocabularies)
        ]
        for name, column_of_texts in zip(texts, columns, strict=True):
            check_texts(self.path, name, column_of_texts, lines)
        return Columns(columns, values, lines)

    def chunks(
        self, texts: Sequence[str], number: str | None, vocabularies: Sequence[Vocabulary]
    ) -> Iterator[Chunk]:
        """Read columns chunk by chunk; new texts are added to the vocabularies."""
        at = [self.names.index(name) for name in texts]
        for rows, lines in self._chunks():
            codes = [
                np.fromiter(map(known.__getitem__, map(itemgetter(i), rows)), np.int64, len(rows))
                for i, known in zip(at, vocabularies, strict=True)
            ]
            values = None
            if number is not None:
                cells = map(itemgetter(self.names.index(number)), rows)
                values = np.fromiter(map(self._numbers.__getitem__, cells), np.float64, len(rows))
            yield Chunk(codes, values, lines)

    def check_numbers(self, name: str, values: npt.NDArray[np.float64], lines: Integers) -> None:
        """Refuse NaN in values: cells that are not finite numbers."""
        if self._numbers.first_broken is not None:
            rule = f"column {name!r} must hold finite numbers"
            what = repr(self._numbers.first_broken[:60])
            refuse_rows(self.path, rule, what, lines[np.isnan(values)])

    def rows(self) -> Iterator[tuple[Integers, list[list[str]]]]:
        """Yield line numbers and rows, some at a time; blank lines are skipped."""
        for rows, lines in self._chunks():
            yield lines, rows

    def _chunks(self) -> Iterator[tuple[list[list[str]], Integers]]:
        """Yield rows and their line numbers; blank lines are skipped."""
        width = {len(self.names)}
        while True:
            try:
                chunk = list(islice(self._rows, _CHUNK))
            except csv.Error as error:
                line = self._reader.line_num
                raise FastcosFormatError(f"{self.path}: line {line}: {error}") from None
            if not chunk:
                return
            first_line, self._line = self._line, self._reader.line_num
            if self._line - first_line == len(chunk):
                lines = np.arange(first_line + 1, self._line + 1)
            else:
                heights = [1 + sum(map(_line_ends, row)) for row in chunk]
                lines = first_line + 1 + np.cumsum([0, *heights[:-1]])
            if set(map(len, chunk)) != width:
                filled = np.array([len(row) > 0 for row in chunk])
                chunk = [row for row in chunk if row]
                lines = lines[filled]
                odd = np.array([len(row) not in width for row in chunk], dtype=bool)
                if odd.any():
                    what = f"{len(chunk[int(odd.argmax())])}"
                    rule = f"must have {len(self.names)} fields in every row"
                    refuse_rows(self.path, rule, what, lines[odd])
                if not chunk:
                    continue
            yield chunk, lines


def _line_ends(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")


# a table whose header has been read
Table = DelimitedTable | ParquetTable


@contextmanager
def open_table(
    path: Path,
    *,
    member: str | None,
    delimiter: str | None,
    header: bool,
    progress: Progress | None = None,
) -> Iterator[Table]:
    """Open a table by its suffix and read its header; progress counts the bytes of a text file."""
    header = as_flag("header", header)
    check_text("member", member)
    check_text("delimiter", delimiter)
    if delimiter is not None and len(delimiter) > 1:
        raise ValueError(f"delimiter must be one letter, got {delimiter!r}")
    check_progress(progress)
    if path.suffix.lower() in (*PARQUET_SUFFIXES, *ARROW_SUFFIXES):
        check_none("member", member, "for Parquet")
        check_none("delimiter", delimiter, "for Parquet")
        yield ParquetTable(path)
        return
    with open_bytes(path, member, progress) as stream:
        yield DelimitedTable(stream, path, delimiter, header)

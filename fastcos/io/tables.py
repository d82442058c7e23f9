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

from fastcos.io.columns import (
    Chunk,
    Columns,
    TextColumn,
    Vocabulary,
    check_texts,
    new_vocabulary,
    refuse_rows,
)
from fastcos.io.parquet import ARROW_SUFFIXES, PARQUET_SUFFIXES, ParquetTable
from fastcos.io.streams import open_bytes
from fastcos.parallel import Progress
from fastcos.storage import FastcosFormatError
from fastcos.validation import Floats, Integers, as_flag, check_none, check_progress, check_text

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
            rule = "have columns separated by tab, comma, semicolon or the given delimiter"
            got = f"one column in line 1: {first_line.strip()[:60]!r}"
            raise FastcosFormatError(f"{path} must {rule}, got {got}")
        self.names = first if header else [str(1 + i) for i in range(len(first))]
        self._rows = self._reader if header else chain([first], self._reader)

    def chunks(
        self, texts: Sequence[str], number: str | None, vocabularies: Sequence[Vocabulary]
    ) -> Iterator[Chunk]:
        """Read columns of texts and one of finite numbers; new texts enter the vocabularies."""
        at = [self.names.index(name) for name in texts]
        for lines, rows in self.rows():
            codes = [
                np.fromiter(map(known.__getitem__, map(itemgetter(i), rows)), np.int64, len(rows))
                for i, known in zip(at, vocabularies, strict=True)
            ]
            values = None
            if number is not None:
                cells = map(itemgetter(self.names.index(number)), rows)
                values = np.fromiter(map(self._numbers.__getitem__, cells), np.float64, len(rows))
            yield Chunk(codes, values, lines)

    def check_numbers(self, name: str, values: Floats, lines: Integers) -> None:
        """Refuse NaN in values: cells that are not finite numbers."""
        if self._numbers.first_broken is not None:
            rule = f"column {name!r} must hold finite numbers"
            what = repr(self._numbers.first_broken[:60])
            refuse_rows(self.path, rule, what, lines[np.isnan(values)])

    def rows(self) -> Iterator[tuple[Integers, list[list[str]]]]:
        """Yield the numbers of the lines on which rows end, and the rows, some at a time.

        Blank lines are skipped.
        """
        numbered = ((self._reader.line_num, row) for row in self._rows if row)
        while True:
            try:
                chunk = list(islice(numbered, _CHUNK))
            except csv.Error as error:
                line = self._reader.line_num
                raise FastcosFormatError(f"{self.path}: line {line}: {error}") from None
            if not chunk:
                return
            lines, rows = np.array([line for line, _ in chunk]), [row for _, row in chunk]
            if odd := [place for place, row in enumerate(rows) if len(row) != len(self.names)]:
                rule = f"must have {len(self.names)} fields in every row"
                refuse_rows(self.path, rule, f"{len(rows[odd[0]])}", lines[odd])
            yield lines, rows


# a table whose header has been read
Table = DelimitedTable | ParquetTable


def read_columns(table: Table, texts: Sequence[str], number: str | None = None) -> Columns:
    """Read whole columns of texts and one of finite numbers, of at least one row."""
    vocabularies = [new_vocabulary() for _ in texts]
    chunks = list(table.chunks(texts, number, vocabularies))
    if not chunks:
        raise FastcosFormatError(f"{table.path} must have at least one row, got none")
    lines = np.concatenate([chunk.lines for chunk in chunks])
    values = None
    if number is not None:
        values = np.concatenate([chunk.numbers for chunk in chunks if chunk.numbers is not None])
        table.check_numbers(number, values, lines)
    columns = [
        TextColumn(list(known), np.concatenate([chunk.codes[i] for chunk in chunks]))
        for i, known in enumerate(vocabularies)
    ]
    for name, column in zip(texts, columns, strict=True):
        check_texts(table.path, name, column, lines)
    return Columns(columns, values, lines)


@contextmanager
def open_table(
    path: Path,
    *,
    member: str | None = None,
    delimiter: str | None = None,
    header: bool = True,
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

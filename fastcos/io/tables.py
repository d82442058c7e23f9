"""Tables with one row per interaction, item or vector, in delimited text, JSON lines and Arrow."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fastcos.io.column_choice import names_ids
from fastcos.io.columns import (
    Cells,
    Numbers,
    TextColumn,
    check_texts,
    classify_text,
    encode,
    new_vocabulary,
    refuse_rows,
)
from fastcos.io.parquet import ARROW_SUFFIXES, PARQUET_SUFFIXES, ArrowTable
from fastcos.io.streams import open_text
from fastcos.parallel import Progress
from fastcos.storage import FastcosFormatError
from fastcos.validation import (
    Floats,
    Integers,
    as_flag,
    check_none,
    check_progress,
    check_text,
    format_value,
)

JSON_SUFFIXES = (".jsonl", ".ndjson")
TEXT_SUFFIXES = (".csv", ".tsv")
TABLE_SUFFIXES = (*PARQUET_SUFFIXES, *ARROW_SUFFIXES, *JSON_SUFFIXES, *TEXT_SUFFIXES)
# Number of rows in a chunk. With larger chunks, the garbage collector takes more time.
_CHUNK = 512
# A character that replaces the delimiter "::", because the csv module supports only delimiters of
# one character.
_SEPARATOR = "\x1f"


class Table(Protocol):
    """A table whose rows are read in chunks.

    Attributes
    ----------
    path : Path
    lists : sequence of str
        The names of the columns that contain lists of numbers. Empty if the file does not declare
        the types of its columns.
    """

    path: Path
    lists: Sequence[str]

    @property
    def names(self) -> list[str]:
        """The names of the columns, in the order of the file."""

    def chunks(self, names: Sequence[str] | None) -> Iterator[tuple[Integers, list[Cells]]]:
        """Yield line numbers and columns of cells, one chunk of rows at a time.

        In formats that are not text, rows are counted from 1, and the row numbers take the place of
        the line numbers. If the argument ``names`` is None, each chunk contains all columns that
        have occurred so far, in the order of ``self.names``.
        """


class DelimitedTable:
    """Text with delimiters, read as a stream; every row has as many fields as the first row.

    If the argument ``header`` is None, :func:`_is_header` decides whether the first line names the
    columns.
    """

    lists: Sequence[str] = ()

    def __init__(
        self,
        stream: io.BufferedReader,
        path: Path,
        delimiter: str | None,
        header: bool | None,
        quotes: bool = True,
    ) -> None:
        self.path = path
        # Columns that are not read may contain bytes that are not UTF-8. Such bytes must not raise
        # an error, so decoding accepts them here.
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape", newline="")
        first_line = text.readline()
        if not first_line.strip():
            raise FastcosFormatError(f"{path} must start with a header line, got an empty line")
        if "\0" in first_line:
            rule = "UTF-8 text, or UTF-16 with a byte order mark"
            raise FastcosFormatError(f"{path} must be {rule}, got a zero byte in line 1")
        if not delimiter:
            delimiter = "\t" if suffix_of(path) == ".tsv" else _find_delimiter(first_line)
        lines: Iterator[str] = chain([first_line], text)
        if delimiter == "::":
            lines, delimiter = map(partial(_replace_colons, path), lines), _SEPARATOR
        self._reader = csv.reader(
            lines,
            delimiter=delimiter,
            # MovieLens, the only source of files with "::", does not use quotes.
            quoting=csv.QUOTE_MINIMAL if quotes and delimiter != _SEPARATOR else csv.QUOTE_NONE,
            strict=True,
        )
        try:
            first = next(self._reader)
            line = self._reader.line_num
            # The first rows of the table decide whether the first line is a header.
            start = [(self._reader.line_num, row) for row in islice(self._reader, _CHUNK) if row]
        except csv.Error as error:
            raise self._quote_error(error) from None
        if header is None:
            header = _is_header(path, first, [row for _, row in start])
        elif header and all(_kind(field) == "number" for field in first):
            rule = "line 1 must name the columns"
            hint = "If the file has no line of names, pass header=False (--no-header)"
            got = ", ".join(first)[:60]
            raise FastcosFormatError(f"{path}: {rule}, got only numbers ({got}). {hint}")
        self.names = first if header else [str(1 + i) for i in range(len(first))]
        self._start = start if header else [(line, first), *start]

    def chunks(self, names: Sequence[str] | None) -> Iterator[tuple[Integers, list[Cells]]]:
        """Yield line numbers and columns of cells, one chunk of rows at a time.

        If a row extends over several lines, its line number is the number of the last line.
        """
        names = self.names if names is None else names
        positions = [self.names.index(name) for name in names]
        for lines, rows in self._rows():
            yield lines, [list(map(itemgetter(position), rows)) for position in positions]

    def _rows(self) -> Iterator[tuple[Integers, list[list[str]]]]:
        """Yield non-blank rows in chunks, together with the number of the last line of each row."""
        numbered = chain(self._start, ((self._reader.line_num, row) for row in self._reader if row))
        while True:
            try:
                chunk = list(islice(numbered, _CHUNK))
            except csv.Error as error:
                raise self._quote_error(error) from None
            if not chunk:
                return
            lines, rows = np.array([line for line, _ in chunk]), [row for _, row in chunk]
            width = len(self.names)
            if faulty_rows := [number for number, row in enumerate(rows) if len(row) != width]:
                rule = f"must have {width} fields in every row"
                refuse_rows(self.path, rule, f"{len(rows[faulty_rows[0]])}", lines[faulty_rows])
            yield lines, rows

    def _quote_error(self, error: csv.Error) -> FastcosFormatError:
        hint = ""
        if "limit" not in str(error):
            hint = "; double each quote in a field, or pass quotes=False to keep quotes as they are"
        reason = str(error).replace("\t", "a tab")
        return FastcosFormatError(f"{self.path}: line {self._reader.line_num}: {reason}{hint}")


def _replace_colons(path: Path, line: str) -> str:
    if _SEPARATOR in line:
        raise FastcosFormatError(f"{path} must be text, got the control character U+001F")
    return line.replace("::", _SEPARATOR)


def _find_delimiter(line: str) -> str:
    if "\t" in line:
        return "\t"
    if "," in line:
        return ","
    return "::" if "::" in line else ";" if ";" in line else ","


def _is_header(path: Path, first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line of a table of vectors is a header, which names the columns.

    The first line is not a header if it contains lists. The first line is a header in three cases:
    it contains no numbers; one of its texts stands above numbers or lists; or one of its numbers
    stands above lists. A first line with the numbers 0, 1, 2, ... is a header, because pandas
    writes these numbers as names of columns. Suppose that all numbers in the first line are whole.
    Then the first line is also a header if another field is blank or is a known name for ids.
    Suppose that no field is blank, and that no field is a known name for ids. Then the first line
    counts as a row of the table if it contains a fractional, negative or repeated number, or if it
    consists of one whole number other than 0. In all other cases, an error is raised.
    """
    kinds = [_kind(field) for field in first]
    if "list" in kinds:
        return False
    for position, kind in enumerate(kinds):
        below = {_kind(row[position]) for row in rows if len(row) > position} - {"blank"}
        if (kind == "text" and below and below <= {"number", "list"}) or below == {"list"}:
            return True
    numbers = [field.strip() for field, kind in zip(first, kinds, strict=True) if kind == "number"]
    if not numbers:
        return True
    # A blank field cannot be an id, but it may be the header of an index column, because pandas
    # leaves this header blank.
    is_named = any(
        kind == "blank" or (kind == "text" and names_ids(field))
        for field, kind in zip(first, kinds, strict=True)
    )
    are_whole = all(number.isdigit() for number in numbers)
    are_column_numbers = len(numbers) > 1 and numbers == list(map(str, range(len(numbers))))
    if are_column_numbers or (is_named and are_whole):
        return True
    may_be_names = are_whole and len(set(numbers)) == len(numbers)
    if is_named or (may_be_names and (len(first) > 1 or numbers == ["0"])):
        rule = "line 1 must be recognisable as a header or as a row"
        hint = "add a header line with names such as id,x1,x2"
        raise FastcosFormatError(f"{path}: {rule}, got {', '.join(first)[:60]!r}: {hint}")
    return False


def _kind(field: str) -> str:
    category, _ = classify_text(field)
    if category.startswith("blank"):
        return "blank"
    if category == "number":
        return "number"
    return "list" if field.strip()[0] == "[" else "text"


class JsonTable:
    """A table of JSON lines; if an object does not have the key of a column, the cell is blank."""

    lists: Sequence[str] = ()

    def __init__(self, path: Path, member: str | None, progress: Progress | None) -> None:
        self.path = path
        self._member, self._progress = member, progress
        self._names: dict[str, None] = {}

    @property
    def names(self) -> list[str]:
        """The keys of all objects, in the order of their first occurrence."""
        if not self._names:
            for _, record in self._records(None):
                self._names.update(dict.fromkeys(record))
        return list(self._names)

    def chunks(self, names: Sequence[str] | None) -> Iterator[tuple[Integers, list[Cells]]]:
        """Yield line numbers and columns of cells, one chunk of rows at a time."""
        records = self._records(self._progress)
        while chunk := list(islice(records, _CHUNK)):
            lines = np.array([line for line, _ in chunk])
            if names is None:
                for _, record in chunk:
                    self._names.update(dict.fromkeys(record))
            columns = self._names if names is None else names
            yield lines, [[record.get(name) for _, record in chunk] for name in columns]

    def _records(self, progress: Progress | None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the line number and the JSON object of every line that is not blank."""
        decode = json.JSONDecoder(object_pairs_hook=_object).decode
        with open_text(self.path, self._member, progress) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    record = decode(line.decode())
                    got = type(record).__name__
                except (ValueError, RecursionError) as error:
                    record, got = None, str(error) or type(error).__name__
                if not isinstance(record, dict):
                    rule = "must have a JSON object in every line"
                    raise FastcosFormatError(f"{self.path} {rule}, got {got} in line {number}")
                yield number, record


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("the same key twice in one object")
    return record


class Columns(NamedTuple):
    """Columns of a table, with the line numbers (text files) or row numbers (other files)."""

    texts: list[TextColumn]
    numbers: Floats | None
    lines: Integers


def read_columns(table: Table, texts: Sequence[str], number: str | None = None) -> Columns:
    """Read columns of texts and, if ``number`` is passed, a column of finite numbers.

    ``texts`` and ``number`` contain names of columns. A table without rows raises
    FastcosFormatError.
    """
    vocabularies = [new_vocabulary() for _ in texts]
    numbers = Numbers()
    codes: list[list[Integers]] = [[] for _ in texts]
    values: list[Floats] = []
    all_lines: list[Integers] = []
    for lines, cells in table.chunks([*texts, *([] if number is None else [number])]):
        all_lines.append(lines)
        for number_of_column, name in enumerate(texts):
            vocabulary, column_cells = vocabularies[number_of_column], cells[number_of_column]
            codes[number_of_column].append(
                encode(table.path, name, column_cells, lines, vocabulary)
            )
        if number is not None:
            values.append(numbers.read(cells[-1]))
    if not all_lines:
        raise FastcosFormatError(f"{table.path} must have at least one row, got none")
    lines = np.concatenate(all_lines)
    columns = [
        TextColumn(list(vocabulary), np.concatenate(parts))
        for vocabulary, parts in zip(vocabularies, codes, strict=True)
    ]
    for name, column in zip(texts, columns, strict=True):
        check_texts(table.path, name, column, lines)
    if number is None:
        return Columns(columns, None, lines)
    return Columns(
        columns, numbers.finish(table.path, number, np.concatenate(values), lines), lines
    )


def suffix_of(path: Path) -> str:
    """Return the suffix of the format, without a compression suffix such as .gz."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in (".gz", ".zip") else suffix


@contextmanager
def open_table(
    path: Path,
    *,
    member: str | None = None,
    delimiter: str | None = None,
    header: bool | None = True,
    quotes: bool = True,
    progress: Progress | None = None,
) -> Iterator[Table]:
    """Open a table in the format of its suffix, and read its header.

    While a text file is read, ``progress`` is called with the number of bytes read so far. If
    ``header`` is None, the content decides whether the first line of delimited text is a header.
    """
    if header is not None:
        header = as_flag("header", header)
    quotes = as_flag("quotes", quotes)
    check_text("member", member)
    check_text("delimiter", delimiter)
    if delimiter is not None and len(delimiter) > 1 and delimiter != "::":
        raise ValueError(f"delimiter must be one character or '::', got {format_value(delimiter)}")
    check_progress(progress)
    suffix = suffix_of(Path(member or path))
    if suffix in (*PARQUET_SUFFIXES, *ARROW_SUFFIXES, *JSON_SUFFIXES):
        check_none("delimiter", delimiter, f"for {suffix}")
    if suffix in JSON_SUFFIXES:
        yield JsonTable(path, member, progress)
        return
    if suffix in (*PARQUET_SUFFIXES, *ARROW_SUFFIXES):
        check_none("member", member, f"for {suffix}")
        yield ArrowTable(path)
        return
    with open_text(path, member, progress) as stream:
        table = DelimitedTable(stream, path, delimiter, header, quotes)
        if header is not None and len(table.names) < 2:
            rule = "have columns separated by tab, comma, semicolon, '::' or the given delimiter"
            got = f"one column in line 1: {table.names[0][:60]!r}"
            raise FastcosFormatError(f"{path} must {rule}, got {got}")
        yield table

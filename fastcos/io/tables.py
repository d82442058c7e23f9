"""Long tables, delimited text or Parquet: columns as distinct texts and their codes."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from fastcos.io.streams import open_bytes
from fastcos.storage import FastcosFormatError
from fastcos.validate import some_rows

Integers = npt.NDArray[np.int64]

DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon"}
# rows handed over at once; more of them only feed the garbage collector
CHUNK = 512
MOST_KNOWN_NUMBERS = 1 << 16


class TextColumn(NamedTuple):
    """Column of texts: row r holds texts[codes[r]]; texts are distinct, by first appearance."""

    texts: list[str]
    codes: Integers


class Columns(NamedTuple):
    """What was read of a table.

    Attributes
    ----------
    texts : list of TextColumn
    numbers : ndarray (rows,), float64, or None
    lines : ndarray (rows,), int64
        Where every row stands in the file: 1-based line of text, or row of Parquet.
    """

    texts: list[TextColumn]
    numbers: npt.NDArray[np.float64] | None
    lines: Integers


class Table(Protocol):
    """A table whose header has been read."""

    path: Path
    names: list[str]

    def read(self, texts: Sequence[str], number: str | None) -> Columns:
        """Read columns of texts and one of finite numbers."""


class _Codes(dict[str, int]):
    """Numbers every new text."""

    def __missing__(self, text: str) -> int:
        code = self[text] = len(self)
        return code


class _Numbers(dict[str, float]):
    """Parses every new text; NaN for what is no finite decimal number. Forgets beyond a bound."""

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
        if len(self) < MOST_KNOWN_NUMBERS:
            self[text] = number
        return number


class DelimitedTable:
    """csv and tsv: UTF-8, a header line unless told otherwise, every row as long as the first."""

    def __init__(
        self, stream: io.BufferedReader, path: Path, delimiter: str | None, header: bool
    ) -> None:
        self.path = path
        # bytes that are no UTF-8 matter only where they are used: in a column that is read
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        first_line = text.readline()
        if not first_line.strip():
            raise FastcosFormatError(f"{path} must start with a header line, got an empty line")
        if "\0" in first_line:
            raise FastcosFormatError(f"{path} must be UTF-8 text, got a zero byte in line 1")
        delimiter = delimiter or _guess_delimiter(first_line)
        # in tab-separated files a quote is a character like any other (IANA)
        self._reader = csv.reader(
            chain([first_line], text),
            delimiter=delimiter,
            quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
            strict=True,
        )
        try:
            first = next(self._reader)
        except csv.Error as error:
            raise FastcosFormatError(f"{path}: line 1 is no header line: {error}") from None
        if len(first) < 2:
            raise FastcosFormatError(
                f"{path} must have columns separated by {', '.join(DELIMITERS.values())} or the "
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
        at = [self.names.index(name) for name in texts]
        codes = [_Codes() for _ in at]
        numbers = _Numbers()
        coded: list[list[Integers]] = [[] for _ in at]
        parsed: list[npt.NDArray[np.float64]] = []
        lines: list[Integers] = []
        for chunk, chunk_lines in self._chunks():
            lines.append(chunk_lines)
            for i, column in enumerate(at):
                cells = map(codes[i].__getitem__, map(itemgetter(column), chunk))
                coded[i].append(np.fromiter(cells, np.int64, len(chunk)))
            if number is not None:
                cells_of_numbers = map(itemgetter(self.names.index(number)), chunk)
                found = map(numbers.__getitem__, cells_of_numbers)
                parsed.append(np.fromiter(found, np.float64, len(chunk)))
        if not lines:
            raise FastcosFormatError(f"{self.path} must have at least one row, got none")
        all_lines = np.concatenate(lines)
        values = None
        if number is not None:
            values = np.concatenate(parsed)
            if numbers.first_broken is not None:
                refuse_rows(
                    self.path,
                    f"column {number!r} must hold finite numbers",
                    repr(numbers.first_broken[:60]),
                    all_lines[np.isnan(values)],
                )
        columns = [
            TextColumn(list(known), np.concatenate(cells))
            for known, cells in zip(codes, coded, strict=True)
        ]
        for name, column_of_texts in zip(texts, columns, strict=True):
            _check_texts(self.path, name, column_of_texts, all_lines)
        return Columns(columns, values, all_lines)

    def _chunks(self) -> Iterator[tuple[list[list[str]], Integers]]:
        """Yield rows and their line numbers; blank lines are skipped."""
        width = {len(self.names)}
        while True:
            try:
                chunk = list(islice(self._rows, CHUNK))
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


class ParquetTable:
    """Parquet, by pyarrow."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as arrow
            from pyarrow import parquet
        except ImportError:
            raise FastcosFormatError(
                f"{path}: Parquet needs pyarrow: pip install 'fastcos[io]'"
            ) from None
        self.path = path
        self._arrow = arrow
        try:
            self._file = parquet.ParquetFile(path)
        except arrow.ArrowException as error:
            raise self._damaged(error) from None
        self.names: list[str] = list(self._file.schema_arrow.names)

    def read(self, texts: Sequence[str], number: str | None) -> Columns:
        """Read columns of texts and one of finite numbers."""
        arrow = self._arrow
        wanted = [*texts, *([number] if number is not None else [])]
        try:
            table = self._file.read(columns=wanted)
        except (arrow.ArrowException, OSError) as error:
            raise self._damaged(error) from None
        if not table.num_rows:
            raise FastcosFormatError(f"{self.path} must have at least one row, got none")
        lines = np.arange(1, table.num_rows + 1)
        columns = [self._text_column(name, table[name], lines) for name in texts]
        values = None
        if number is not None:
            column = table[number]
            self._refuse_nulls(number, column, lines)
            if not (
                arrow.types.is_integer(column.type)
                or arrow.types.is_floating(column.type)
                or arrow.types.is_boolean(column.type)
                or arrow.types.is_decimal(column.type)
            ):
                raise FastcosFormatError(
                    f"{self.path}: column {number!r} must hold numbers, got {column.type}"
                )
            values = column.cast(arrow.float64(), safe=False).to_numpy()
            broken = ~np.isfinite(values)
            if broken.any():
                rule = f"column {number!r} must hold finite numbers"
                refuse_rows(self.path, rule, f"{values[broken][0]}", lines[broken])
        return Columns(columns, values, lines)

    def _text_column(self, name: str, column: Any, lines: Integers) -> TextColumn:
        arrow = self._arrow
        self._refuse_nulls(name, column, lines)
        kind = column.type
        if arrow.types.is_dictionary(kind):
            kind = kind.value_type
            column = column.cast(kind)
        if arrow.types.is_floating(kind):
            values = column.to_numpy()
            whole = np.abs(values) < 2.0**53
            whole[whole] = values[whole] == np.floor(values[whole])
            if not whole.all():
                rule = f"column {name!r} must hold whole numbers or texts"
                refuse_rows(self.path, rule, f"{values[~whole][0]}", lines[~whole])
            column = column.cast(arrow.int64())
        elif not (
            arrow.types.is_integer(kind)
            or arrow.types.is_string(kind)
            or arrow.types.is_large_string(kind)
            or arrow.types.is_boolean(kind)
        ):
            raise FastcosFormatError(
                f"{self.path}: column {name!r} must hold whole numbers or texts, got {kind}"
            )
        coded = column.combine_chunks().dictionary_encode()
        if isinstance(coded, arrow.ChunkedArray):
            coded = coded.combine_chunks()
        texts = [str(value) for value in coded.dictionary.to_pylist()]
        found = TextColumn(texts, coded.indices.to_numpy(zero_copy_only=False).astype(np.int64))
        _check_texts(self.path, name, found, lines)
        return found

    def _refuse_nulls(self, name: str, column: Any, lines: Integers) -> None:
        if column.null_count:
            nulls = column.is_null().to_numpy().astype(bool)
            refuse_rows(self.path, f"column {name!r} must have no nulls", "null", lines[nulls])

    def _damaged(self, error: Exception) -> FastcosFormatError:
        what = str(error).partition("\n")[0]
        return FastcosFormatError(f"{self.path} must be a whole Parquet file: {what}")


@contextmanager
def open_table(
    path: Path, *, member: str | None, delimiter: str | None, header: bool
) -> Iterator[Table]:
    """Open a table by its kind and read its header."""
    if path.suffix.lower() in (".parquet", ".pq"):
        yield ParquetTable(path)
        return
    with open_bytes(path, member) as stream:
        yield DelimitedTable(stream, path, delimiter, header)


def refuse_rows(path: Path, rule: str, what: str, lines: Integers) -> NoReturn:
    """Raise for rows of a file, naming the first five."""
    raise FastcosFormatError(f"{path}: {rule}, got {what} ({some_rows(lines)})")


def refuse_empty(path: Path, name: str, column: TextColumn, lines: Integers) -> None:
    """Raise where a column of ids is blank."""
    for code, text in enumerate(column.texts):
        if not text.strip():
            at = column.codes == code
            refuse_rows(
                path, f"column {name!r} must have an id in every row", repr(text), lines[at]
            )


def _check_texts(path: Path, name: str, column: TextColumn, lines: Integers) -> None:
    for code, text in enumerate(column.texts):
        # utf-8 with surrogateescape leaves surrogates for bytes that are no UTF-8
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            refuse_rows(
                path,
                f"column {name!r} must be UTF-8 text",
                repr(text[:60].encode("utf-8", "surrogateescape")),
                lines[column.codes == code],
            )
        if "\0" in text:
            refuse_rows(
                path,
                f"column {name!r} must be text",
                "a zero byte",
                lines[column.codes == code],
            )


def _guess_delimiter(first_line: str) -> str:
    if "\t" in first_line:
        return "\t"
    return ";" if ";" in first_line and "," not in first_line else ","


def _line_ends(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")

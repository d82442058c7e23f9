"""csv and tsv, read as a stream by the standard library's parser."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastcos.io.text_columns import (
    Columns,
    Integers,
    TextColumn,
    refuse_broken_texts,
    refuse_rows,
)
from fastcos.storage import FastcosFormatError

DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon"}
# rows handed over at once; more of them only feed the garbage collector
CHUNK = 512
MOST_KNOWN_NUMBERS = 1 << 16


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
            refuse_broken_texts(self.path, name, column_of_texts, all_lines)
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


def _guess_delimiter(first_line: str) -> str:
    if "\t" in first_line:
        return "\t"
    return ";" if ";" in first_line and "," not in first_line else ","


def _line_ends(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")

"""Rules for reading the columns of a table, which are the same for all formats.

The same table yields the same result in every format. CSV has the fewest types. A cell of any other
format is therefore read as if the table had been saved as a CSV file. For example, the string
``"12"`` in a Parquet file is read as the number 12. All cells of a column, and not only the first
ones, decide its kind:

numbers
    Every cell is a finite decimal number, or every cell is a boolean. A boolean counts as 1 (true)
    or 0 (false).
lists
    Every cell is a list of numbers; in CSV, a list is written as JSON, such as ``"[0.5, 1]"``.
texts
    Every cell can be written as a text, but the cells are neither all numbers nor all lists. Dates
    (2026-11-28) and bytes in UTF-8 are texts.

A blank cell is empty, null or absent. Words such as ``nan``, ``NA`` and ``null`` count as blank
cells in a column of numbers, and as ordinary words in a column of texts. Ids are whole numbers or
texts:

- if all ids of a column are plain integers in the range of int64, they are int64; otherwise, all of
  them are texts. A single id "007" turns all ids of the column into texts, because the ids "007"
  and "7" differ;
- whole numbers that were stored as floats, such as ``10.0``, become integers such as 10;
- blanks, booleans, other decimal numbers, times, durations, structures and binary data raise an
  error, which names the column and the type.
"""

import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from fastcos.storage import FastcosFormatError, PathLike
from fastcos.validation import Floats, Integers, format_rows

# Largest number of characters of an id. If a column contains longer texts, it is probably not a
# column of ids.
LONGEST_ID = 500
# Texts that pandas, R, SQL and spreadsheets write for a blank cell among numbers.
_BLANK_WORDS = frozenset(
    ("na", "n/a", "#n/a", "<na>", "nan", "null", "none", "nat", "nil", "\\n", "?", "-")
)
_INFINITE_WORDS = frozenset(
    f"{sign}{word}" for sign in ("", "+", "-") for word in ("inf", "infinity")
)
_BOOLEANS = {"true": 1.0, "false": 0.0}
NUMBER_PATTERN = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER = re.compile(NUMBER_PATTERN, re.ASCII)
# A pattern for whole numbers, which may be written as floats such as 7.0.
_WHOLE = re.compile(r"(0|-?[1-9]\d*)(\.0+)?", re.ASCII)
# Every integer up to this number can be represented exactly in float64.
_LARGEST_EXACT = 2**53
# The cache contains at most this many texts, each with the number that was parsed from it. The
# cache takes a few MB.
_MAX_CACHED_NUMBERS = 1 << 16

# The cells of a column: an array of numbers without blanks, or Python values with None for a blank.
Cells = npt.NDArray[Any] | Sequence[Any]


class Unsupported(NamedTuple):
    """A cell that contains neither a number, nor a list of numbers, nor a text."""

    type: str
    is_nested: bool = False


class TextColumn(NamedTuple):
    """A column of distinct texts, in which the text of row r is ``texts[codes[r]]``."""

    texts: list[str]
    codes: Integers


# The code of each text; codes are numbered in the order in which texts first occur.
Vocabulary = defaultdict[str, int]


def new_vocabulary() -> Vocabulary:
    """Return an empty vocabulary, which numbers texts in the order of their first occurrence."""
    return defaultdict(count().__next__)


def refuse_rows(path: PathLike, rule: str, got: str, lines: Integers) -> NoReturn:
    """Raise a FastcosFormatError that lists the first five rows that violate a rule."""
    raise FastcosFormatError(f"{path}: {rule}, got {got} ({format_rows(lines)})")


def classify_text(text: str) -> tuple[str, float]:
    """Return the kind of a cell from its text, and the value of the cell as a number or NaN.

    The kind is "blank", "number", "infinity", "boolean", "blank word" (such as NA) or "text".
    """
    text = text.strip()
    if not text:
        return "blank", math.nan
    if _NUMBER.fullmatch(text):
        number = float(text)
        return ("number", number) if math.isfinite(number) else ("infinity", math.nan)
    folded = text.casefold()
    if folded in _BOOLEANS:
        return "boolean", _BOOLEANS[folded]
    if folded in _BLANK_WORDS:
        return "blank word", math.nan
    return ("infinity" if folded in _INFINITE_WORDS else "text"), math.nan


def _quoted(text: str) -> str:
    return repr(text[:60]) if text else "a blank"


# --- texts and ids -------------------------------------------------------------------------------


def cell_text(cell: Any) -> str | Unsupported:
    """Return the text that a cell would have in CSV; a blank becomes the empty text."""
    if isinstance(cell, str):
        return cell
    if cell is None:
        return ""
    if isinstance(cell, (bool, np.bool_)):
        return "true" if cell else "false"
    if isinstance(cell, (int, float, np.number)):
        return str(cell)
    if isinstance(cell, Decimal):
        return f"{cell:f}"
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError:
            return Unsupported("binary data that is not UTF-8")
    if isinstance(cell, date) and not isinstance(cell, datetime):
        return cell.isoformat()
    if isinstance(cell, Unsupported):
        return cell
    return Unsupported("a list" if isinstance(cell, list) else "an object", is_nested=True)


def encode(
    path: PathLike, name: str, cells: Cells, lines: Integers, vocabulary: Vocabulary
) -> Integers:
    """Return the code of the text in each cell; new texts are added to the vocabulary."""
    if isinstance(cells, np.ndarray):
        distinct, positions = np.unique(cells, return_inverse=True)
        texts = [str(cell_text(cell)) for cell in distinct]
        return np.array([vocabulary[text] for text in texts], np.int64)[positions]
    if set(map(type, cells)) != {str}:
        texts = []
        for cell, line in zip(cells, lines.tolist(), strict=True):
            text = cell_text(cell)
            if isinstance(text, Unsupported):
                rule = f"column {name!r} must hold whole numbers or texts"
                refuse_rows(path, rule, text.type, np.array([line]))
            texts.append(text)
        cells = texts
    return np.fromiter(map(vocabulary.__getitem__, cells), np.int64, len(cells))


def check_texts(path: PathLike, name: str, column: TextColumn, lines: Integers) -> None:
    """Raise FastcosFormatError if a text is not UTF-8, or contains a zero byte.

    NumPy would drop zero bytes at the end of a text.
    """
    for code, text in enumerate(column.texts):
        # The error handler surrogateescape turns bytes that are not UTF-8 into surrogates.
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            handler = "surrogateescape" if _is_escaped(text) else "backslashreplace"
            rule = f"column {name!r} must be UTF-8 text"
            got = repr(text[:60].encode("utf-8", handler))
            refuse_rows(path, rule, got, lines[column.codes == code])
        if "\0" in text:
            rule = f"column {name!r} must be text"
            refuse_rows(path, rule, "a zero byte", lines[column.codes == code])


def _is_escaped(text: str) -> bool:
    """Return whether every surrogate in a text represents a byte that is not UTF-8.

    A text from JSON may also contain one half of a surrogate pair; such a half represents no byte.
    """
    return all(not "\ud800" <= letter <= "\udfff" or "\udc80" <= letter <= "\udcff"
               for letter in text)  # fmt: skip


def id_column(path: PathLike, name: str, column: TextColumn, lines: Integers) -> TextColumn:
    """Check a column of ids; return it with the same spelling for every file format.

    Blanks, ids of more than 500 characters, booleans and fractional numbers raise an error.
    """
    for code, text in enumerate(column.texts):
        if not text.strip():
            rule = f"column {name!r} must have an id in every row"
            refuse_rows(path, rule, _quoted(text), lines[column.codes == code])
        if len(text) > LONGEST_ID:
            rule = f"column {name!r} must hold ids of at most {LONGEST_ID} characters"
            refuse_rows(path, rule, f"{len(text)}", lines[column.codes == code])
    if column.texts and all(text.strip().casefold() in _BOOLEANS for text in column.texts):
        rule = f"column {name!r} must hold whole numbers or texts"
        refuse_rows(path, rule, "booleans", lines)
    return common_spelling(path, name, column, lines)


def common_spelling(
    path: PathLike, name: str, column: TextColumn, lines: Integers, *, allow_blanks: bool = False
) -> TextColumn:
    """Return a column of ids or labels with the same spelling for every file format.

    Only numbers and booleans have several spellings; all other texts stay the same. If
    `allow_blanks` is false, blanks and fractional numbers in a column of numbers raise an error.
    For labels, pass allow_blanks=True; words such as NA then become blanks.
    """
    texts = [text.strip() for text in column.texts]
    not_numbers = [code for code, text in enumerate(texts) if not _NUMBER.fullmatch(text)]
    filled_texts = [texts[code].casefold() for code in not_numbers if texts[code]]
    if len(not_numbers) == len(texts):
        if not filled_texts or any(text not in _BOOLEANS for text in filled_texts):
            return column
        return _merged([text.capitalize() for text in texts], column.codes)
    if any(text not in _BLANK_WORDS and text not in _INFINITE_WORDS for text in filled_texts):
        return column
    if allow_blanks:
        for code in not_numbers:
            texts[code] = ""
    elif not_numbers:
        rule = f"column {name!r} must have an id in every row"
        got = _quoted(column.texts[not_numbers[0]])
        refuse_rows(path, rule, got, lines[np.isin(column.codes, not_numbers)])
    matches = [_WHOLE.fullmatch(text) for text in texts]
    if not all(match or not text for match, text in zip(matches, texts, strict=True)):
        decimals = [
            code
            for code, (match, text) in enumerate(zip(matches, texts, strict=True))
            if not match and not text.lstrip("+-").isdigit()
        ]
        if decimals and not allow_blanks:
            rule = f"column {name!r} must hold whole numbers or texts"
            got = f"the decimal number {texts[decimals[0]]!r}"
            refuse_rows(path, rule, got, lines[np.isin(column.codes, decimals)])
        return _merged(texts, column.codes) if allow_blanks else column
    for code, match in enumerate(matches):
        if match and match[2] and abs(int(match[1])) >= _LARGEST_EXACT:
            condition = "if they are written with a decimal point"
            rule = f"column {name!r} must hold whole numbers below 2^53 {condition}"
            refuse_rows(path, rule, repr(texts[code]), lines[column.codes == code])
    integers = [match[1] if match else "" for match in matches]
    merged = _merged(integers, column.codes)
    if len(merged.texts) < len(integers) and not allow_blanks:
        repeated = Counter(integers).most_common(1)[0][0]
        spellings = [code for code, text in enumerate(integers) if text == repeated]
        rule = f"column {name!r} must always write an id in the same way"
        got = " and ".join(repr(column.texts[code]) for code in spellings[:2])
        refuse_rows(path, rule, got, lines[np.isin(column.codes, spellings)])
    return merged


def _merged(texts: list[str], codes: Integers) -> TextColumn:
    """Give equal texts the same code; return a column whose texts are distinct."""
    vocabulary = new_vocabulary()
    new_codes = np.array([vocabulary[text] for text in texts], np.int64)
    return TextColumn(list(vocabulary), new_codes[codes])


def parse_ids(texts: Sequence[str]) -> npt.NDArray[Any]:
    """Return the ids as int64 if all of them are plain integers, else as strings."""
    try:
        numbers = [int(text) for text in texts]
        if list(map(str, numbers)) != list(texts):
            raise ValueError
        return np.array(numbers, dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(texts, dtype=np.str_)


def ids_of_cells(path: PathLike, name: str, cells: Cells, lines: Integers) -> npt.NDArray[Any]:
    """Return the cells of a column as ids (n,), int64 or strings."""
    vocabulary = new_vocabulary()
    codes = encode(path, name, cells, lines, vocabulary)
    column = TextColumn(list(vocabulary), codes)
    check_texts(path, name, column, lines)
    column = id_column(path, name, column, lines)
    return parse_ids(column.texts)[column.codes]


def check_row_numbers(
    path: PathLike, ids: npt.NDArray[Any], file_ids: Any, hint: str = "ids=, --ids FILE"
) -> None:
    """Raise FastcosFormatError if the rows have no ids and the ids in a file are not row numbers.

    If the argument `ids` contains the row numbers from 0 to n-1 in order, the function assumes that
    the rows have no ids. If the rows have no ids, every id in the file (file_ids) must be a row
    number. If `file_ids` contains all row numbers, it may also contain additional ids, because the
    file may describe a larger catalogue. The ids in the file may also be row numbers that start
    from 1. The function therefore issues a warning if `file_ids` contains the row number 1 but not
    the row number 0, and at least half of all row numbers. `hint` explains how to pass ids.
    """
    if ids.dtype.kind not in "iu" or not np.array_equal(ids, np.arange(len(ids))):
        return
    row_numbers = {str(number) for number in range(len(ids))}
    names = set(map(str, file_ids))
    unknown = min(names - row_numbers, default=None)
    if unknown is not None and not row_numbers <= names:
        rule = f"name rows by their numbers, 0 to {len(ids) - 1}"
        condition = f"if no ids are given ({hint})"
        raise FastcosFormatError(f"{path} must {rule}, {condition}, got {unknown[:40]!r}")
    n_named = len(names & row_numbers)
    if "0" not in names and "1" in names and 2 * n_named >= len(ids):
        warnings.warn(
            f"{path} contains {n_named:,} of the row numbers 1 to {len(ids) - 1}, but not row "
            "number 0. fastcos assumes that the numbers in the file are row numbers, counted from "
            "0. If the rows are counted from 1, or if the numbers are ids, the rows that fastcos "
            f"assigns to the numbers are wrong. In this case, pass the ids ({hint})",
            stacklevel=4,
        )


def positions_in(ids: npt.NDArray[Any], queried_ids: npt.NDArray[Any]) -> Integers:
    """Return the position of each queried id in `ids`, or -1 for an unknown id.

    Ids are compared as strings.
    """
    position_of = {str(id_): position for position, id_ in enumerate(ids.tolist())}
    return np.array([position_of.get(str(id_), -1) for id_ in queried_ids.tolist()], np.int64)


def check_distinct(path: PathLike, name: str, ids: npt.NDArray[Any]) -> None:
    """Raise FastcosFormatError if two rows have the same id."""
    _, first, codes = np.unique(ids, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[codes] != np.arange(len(ids)))
    if len(repeated):
        row = int(repeated[0])
        got = f"{ids[row].item()!r} in rows {first[codes[row]]} and {row}"
        raise FastcosFormatError(f"{path}: {name} must be distinct, got {got}")


# --- numbers -------------------------------------------------------------------------------------


class Numbers(dict[str, float]):
    """Reads the cells of one column as float64; a cell that is not a finite number becomes NaN.

    The method ``read`` returns infinity for true and minus infinity for false. No number becomes
    infinite, so an infinite value always stands for a boolean. If all cells are booleans,
    :meth:`finish` converts infinity to 1 and minus infinity to 0. A limited number of parsed texts
    is cached.
    """

    first_broken: str | None = None

    def __missing__(self, text: str) -> float:
        category, number = classify_text(text)
        if category == "boolean":
            number = math.copysign(math.inf, number - 0.5)
        elif category != "number" and self.first_broken is None:
            self.first_broken = text
        if len(self) < _MAX_CACHED_NUMBERS:
            self[text] = number
        return number

    def read(self, cells: Cells) -> Floats:
        """Parse cells, and return values that must be passed to :meth:`finish`."""
        if isinstance(cells, np.ndarray):
            if cells.dtype.kind == "b":
                return np.where(cells, np.inf, -np.inf)
            values = cells.astype(np.float64)
            is_invalid = ~np.isfinite(values)
            if is_invalid.any():
                values[is_invalid] = np.nan
                self.first_broken = self.first_broken or str(cells[is_invalid][0])
            return values
        if set(map(type, cells)) != {str}:
            texts = map(cell_text, cells)
            cells = [text.type if isinstance(text, Unsupported) else text for text in texts]
        return np.fromiter(map(self.__getitem__, cells), np.float64, len(cells))

    def finish(self, path: PathLike, name: str, values: Floats, lines: Integers) -> Floats:
        """Convert booleans in the results of ``read`` to 1 and 0.

        Cells that are not finite numbers raise FastcosFormatError.
        """
        is_invalid = np.isnan(values)
        if is_invalid.any():
            rule = f"column {name!r} must hold finite numbers"
            refuse_rows(path, rule, _quoted(self.first_broken or ""), lines[is_invalid])
        is_boolean = np.isinf(values)
        if is_boolean.all() and len(values):
            return (values > 0).astype(np.float64)
        if is_boolean.any():
            rule = f"column {name!r} must hold either numbers or booleans"
            refuse_rows(path, rule, "both", lines[is_boolean])
        return values

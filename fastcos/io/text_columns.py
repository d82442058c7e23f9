"""What is read of a table, columns as distinct texts and their codes; rows refused by number."""

from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from fastcos.storage import FastcosFormatError
from fastcos.validation import format_rows

Integers = npt.NDArray[np.int64]

LONGEST_ID = 500


class TextColumn(NamedTuple):
    """Column of texts: row r holds texts[codes[r]]; texts are distinct, by first appearance."""

    texts: list[str]
    codes: Integers


class Vocabulary(dict[str, int]):
    """Numbers every new text, by first appearance."""

    def __missing__(self, text: str) -> int:
        code = self[text] = len(self)
        return code


class Chunk(NamedTuple):
    """Some rows of a table.

    Attributes
    ----------
    codes : list of ndarray (rows,), int64
        Of the texts of each column in its vocabulary.
    numbers : ndarray (rows,), float64, or None
        NaN for what is no finite number.
    lines : ndarray (rows,), int64
        As in Columns.
    """

    codes: list[Integers]
    numbers: npt.NDArray[np.float64] | None
    lines: Integers


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


def refuse_rows(path: Path, rule: str, what: str, lines: Integers) -> NoReturn:
    """Raise for rows of a file, naming the first five."""
    raise FastcosFormatError(f"{path}: {rule}, got {what} ({format_rows(lines)})")


def refuse_unsuitable_ids(path: Path, name: str, column: TextColumn, lines: Integers) -> None:
    """Raise where a column of ids is blank, or holds one that is too long."""
    refuse_empty(path, name, column, lines)
    for code, text in enumerate(column.texts):
        if len(text) > LONGEST_ID:
            rule = f"column {name!r} must hold ids of at most {LONGEST_ID} letters"
            refuse_rows(path, rule, f"{len(text)}", lines[column.codes == code])


def refuse_empty(path: Path, name: str, column: TextColumn, lines: Integers) -> None:
    """Raise where a column of ids is blank."""
    for code, text in enumerate(column.texts):
        if not text.strip():
            at = column.codes == code
            refuse_rows(
                path, f"column {name!r} must have an id in every row", repr(text), lines[at]
            )


def refuse_broken_texts(path: Path, name: str, column: TextColumn, lines: Integers) -> None:
    """Raise where a text was no UTF-8 or holds a zero byte, which NumPy would drop."""
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

"""Columns of tables: which one has the users, items or values, and validation of its cells."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from fastcos.storage import FastcosFormatError, PathLike
from fastcos.validation import Integers, format_rows
from fastcos.validation.column_names import ITEM_WORDS, USER_WORDS, VALUE_WORDS, column_word, is_id

# letters of an id; longer texts are a column of the wrong kind
LONGEST_ID = 500


def find_column(
    argument: str, given: str | None, words: Collection[str], names: Sequence[str], path: Path
) -> str | None:
    """Return the given column of the header, else the only one whose name is in words, else None.

    Names match words without case, punctuation and an ending such as Id. A given name must match
    one column exactly; several matching columns raise FastcosFormatError. argument is the name for
    messages.
    """
    if given is not None:
        if names.count(given) != 1:
            raise FastcosFormatError(
                f"{argument} must name one column of {path} ({_format_names(names)}), got {given!r}"
            )
        return given
    found = [name for name in names if column_word(name, words) in words]
    if len(found) > 1:
        raise FastcosFormatError(
            f"{argument} must be given for {path}: it may be any of {_format_names(found)}"
        )
    return found[0] if found else None


def require_column(
    argument: str, given: str | None, words: Collection[str], names: Sequence[str], path: Path
) -> str:
    """Return the result of find_column; raise if it is None."""
    column = find_column(argument, given, words, names, path)
    if column is None:
        raise FastcosFormatError(
            f"{argument} must be given for {path}: no column matches among {_format_names(names)}"
        )
    return column


def interaction_columns(
    path: Path, names: Sequence[str], user: str | None, item: str | None, value: str | None
) -> tuple[str, str, str | None]:
    """Return the columns of users, items and values; no values if value is the empty string."""
    user = require_column("user", user, USER_WORDS, names, path)
    item = require_column("item", item, ITEM_WORDS, names, path)
    value = find_column("value", value, VALUE_WORDS, names, path) if value != "" else None
    if user == item or value in (user, item):
        rule, got = f"different columns of {path}", f"{user!r}, {item!r} and {value!r}"
        raise FastcosFormatError(f"user, item and value must be {rule}, got {got}")
    return user, item, value


def names_pairs(names: Sequence[str]) -> bool:
    """Whether a table with these columns has a row per user and item."""
    return all(any(column_word(n, w) in w for n in names) for w in (USER_WORDS, ITEM_WORDS))


def choose_vector_columns(
    path: Path,
    lists: Sequence[str],
    numbers: Sequence[str],
    texts: Sequence[str],
    vector_column: str | None,
    id_column: str | None,
) -> tuple[list[str], str | None]:
    """Return the columns of the vectors, and that of the ids or None.

    The vectors are the one column of lists, or else all columns of numbers in their order. Ids are
    by default the one column with such a name, or else the one column of texts.
    """
    names = [*lists, *numbers, *texts]
    if vector_column is not None and vector_column not in lists:
        rule = f"name a column of lists of {path} ({_format_names(lists)})"
        raise FastcosFormatError(f"vector_column must {rule}, got {vector_column!r}")
    if vector_column is None and len(lists) > 1:
        raise FastcosFormatError(
            f"vector_column must be given for {path}: it may be any of {_format_names(lists)}"
        )
    if not lists and names_pairs(names):
        got = f"a table of users and items ({_format_names(names)})"
        raise FastcosFormatError(f"{path} must have a row per vector, got {got}")
    if id_column and id_column not in names:
        rule = f"name a column of {path} ({_format_names(names)})"
        raise FastcosFormatError(f"id_column must {rule}, got {id_column!r}")
    known = [id_column] if id_column else []
    if id_column is None:
        known = [n for n in names if is_id(n) or column_word(n, ITEM_WORDS) in ITEM_WORDS]
        known = [n for n in known if n not in lists] or list(texts)
    if len(known) > 1:
        rule = f"given for {path}, or '' for none: it may be any of {_format_names(known)}"
        raise FastcosFormatError(f"id_column must be {rule}")
    id_ = known[0] if known else None
    columns = [vector_column or lists[0]] if lists else [n for n in numbers if n != id_]
    if not columns:
        rule = "hold one column of lists of numbers, or columns of numbers"
        raise FastcosFormatError(f"{path} must {rule}, got {_format_names(names)}")
    return columns, id_


def as_ids(texts: Sequence[str]) -> npt.NDArray[Any]:
    """Return ids as int64 if all are plain integers, else as texts."""
    try:
        numbers = [int(text) for text in texts]
        if list(map(str, numbers)) != list(texts):
            raise ValueError
        return np.array(numbers, dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(texts, dtype=np.str_)


def check_row_numbers(path: PathLike, ids: npt.NDArray[Any], others: Any) -> None:
    """Refuse others, ids in a file, that are no row numbers where rows have no other ids.

    Ids 0 .. n-1 in order are row numbers. Others that name all of them may have more: a catalogue.
    """
    if ids.dtype.kind not in "iu" or not np.array_equal(ids, np.arange(len(ids))):
        return
    numbers = {str(number) for number in range(len(ids))}
    known = set(map(str, others))
    foreign = min(known - numbers, default=None)
    if foreign is not None and not numbers <= known:
        rule = f"name rows by their numbers, 0 to {len(ids) - 1}"
        where = "where no ids are given (ids=, --ids FILE)"
        raise FastcosFormatError(f"{path} must {rule}, {where}, got {foreign[:40]!r}")


def positions_in(ids: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Integers:
    """Return the positions (m,) of wanted ids (m,) in ids, compared as texts; -1 for others."""
    place = {str(one): position for position, one in enumerate(ids.tolist())}
    return np.array([place.get(str(one), -1) for one in wanted.tolist()], np.int64)


def check_distinct(path: PathLike, name: str, ids: npt.NDArray[Any]) -> None:
    """Refuse an id of two rows."""
    _, first, codes = np.unique(ids, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[codes] != np.arange(len(ids)))
    if len(again):
        row = int(again[0])
        got = f"{ids[row].item()!r} in rows {first[codes[row]]} and {row}"
        raise FastcosFormatError(f"{path}: {name} must be distinct, got {got}")


def _format_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(name[:40] for name in names[:20]) + more


class TextColumn(NamedTuple):
    """Column of texts: row r has texts[codes[r]]; texts are distinct, by first occurrence."""

    texts: list[str]
    codes: Integers


# codes of texts
Vocabulary = defaultdict[str, int]


def new_vocabulary() -> Vocabulary:
    """Return a vocabulary that numbers its texts by first occurrence."""
    return defaultdict(count().__next__)


class Chunk(NamedTuple):
    """Rows of a table; codes are those of each column's texts in its vocabulary."""

    codes: list[Integers]
    numbers: npt.NDArray[np.float64] | None
    lines: Integers


class Columns(NamedTuple):
    """Columns read from a table; lines are the lines of text or the rows of Parquet, from 1 on."""

    texts: list[TextColumn]
    numbers: npt.NDArray[np.float64] | None
    lines: Integers


def refuse_rows(path: Path, rule: str, what: str, lines: Integers) -> NoReturn:
    """Raise for rows of a file; the message lists the first five."""
    raise FastcosFormatError(f"{path}: {rule}, got {what} ({format_rows(lines)})")


def check_ids(path: Path, name: str, column: TextColumn, lines: Integers) -> None:
    """Refuse a column with blank or very long ids."""
    for code, text in enumerate(column.texts):
        if not text.strip():
            rule = f"column {name!r} must have an id in every row"
            refuse_rows(path, rule, repr(text), lines[column.codes == code])
        if len(text) > LONGEST_ID:
            rule = f"column {name!r} must hold ids of at most {LONGEST_ID} letters"
            refuse_rows(path, rule, f"{len(text)}", lines[column.codes == code])


def check_texts(path: Path, name: str, column: TextColumn, lines: Integers) -> None:
    """Refuse texts that are not UTF-8 or have a zero byte, which NumPy would drop."""
    for code, text in enumerate(column.texts):
        # bytes that are not UTF-8 become surrogates under the error handler surrogateescape
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            what = repr(text[:60].encode("utf-8", "surrogateescape"))
            rule = f"column {name!r} must be UTF-8 text"
            refuse_rows(path, rule, what, lines[column.codes == code])
        if "\0" in text:
            rule = f"column {name!r} must be text"
            refuse_rows(path, rule, "a zero byte", lines[column.codes == code])

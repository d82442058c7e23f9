"""Choose the columns of users, items, values, ids and vectors, by name and content."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from fastcos.io.column_kinds import Column
from fastcos.storage import FastcosFormatError
from fastcos.validation.column_names import ITEM_WORDS, USER_WORDS, VALUE_WORDS, column_word, is_id

# An index without a name becomes a column with one of these names:
# - the empty name, if pandas or R writes the index to CSV,
# - "Unnamed: 0", if pandas reads this CSV file and writes it again,
# - "__index_level_0__", if pandas writes the index to Parquet,
# - "index", if pandas or polars turns the index into a column.
_INDEX = re.compile(r"|Unnamed: 0|__index_level_0__|index")


def find_column(
    argument: str, column: str | None, words: Collection[str], names: Sequence[str], path: Path
) -> str | None:
    """Return the name of a column, or None if ``column`` is None and no name matches `words`.

    If ``column`` is not None, exactly one column must have this name. If ``column`` is None, the
    function looks for a column whose name is in `words`. Case, punctuation and endings such as Id
    are ignored. If several names match, FastcosFormatError is raised. ``argument`` is the name by
    which error messages mention ``column``.
    """
    if column is not None:
        if names.count(column) != 1:
            raise FastcosFormatError(
                f"{argument} must name one column of {path} ({_format_names(names)}), "
                f"got {column!r}"
            )
        return column
    matches = [name for name in names if column_word(name, words) in words]
    if len(matches) > 1:
        raise FastcosFormatError(
            f"{argument} must be given for {path}: there are several possible columns "
            f"({_format_names(matches)})"
        )
    return matches[0] if matches else None


def require_column(
    argument: str, column: str | None, words: Collection[str], names: Sequence[str], path: Path
) -> str:
    """Return the result of find_column; raise FastcosFormatError if no column matches."""
    column = find_column(argument, column, words, names, path)
    if column is None:
        raise FastcosFormatError(
            f"{argument} must be given for {path}: no column has a name that fastcos recognises "
            f"({_format_names(names)})"
        )
    return column


def interaction_columns(
    path: Path, names: Sequence[str], user: str | None, item: str | None, value: str | None
) -> tuple[str, str, str | None]:
    """Return the columns of users, items and values; the column of values may be None."""
    user = require_column("user", user, USER_WORDS, names, path)
    item = require_column("item", item, ITEM_WORDS, names, path)
    value = find_column("value", value, VALUE_WORDS, names, path) if value != "" else None
    if user == item or value in (user, item):
        rule, got = f"different columns of {path}", f"{user!r}, {item!r} and {value!r}"
        raise FastcosFormatError(f"user, item and value must be {rule}, got {got}")
    return user, item, value


def names_pairs(names: Sequence[str]) -> bool:
    """Return whether a table with these columns has one row per pair of a user and an item."""
    return all(any(column_word(n, w) in w for n in names) for w in (USER_WORDS, ITEM_WORDS))


def names_ids(name: str) -> bool:
    """Return whether a column with this name contains ids of rows."""
    return is_id(name) or column_word(name, ITEM_WORDS) in ITEM_WORDS


def is_index(column: Column) -> bool:
    """Return whether a column has the name of a row index that pandas, polars or R has written."""
    return _INDEX.fullmatch(column.name.strip()) is not None and column.may_be_ids


def choose_vector_columns(
    path: Path,
    columns: Mapping[str, Column],
    vector_column: str | None,
    id_column: str | None,
) -> tuple[list[str], str | None]:
    """Return the columns of the vectors, and the column of the ids or None.

    If a table has a column of lists, this column contains the vectors. Otherwise, every column of
    numbers contains one dimension of the vectors, except columns of ids and indices. By default,
    the ids are read from the only column whose name stands for ids, such as ``id`` or ``item``. If
    no column has such a name, the ids are read from an index that pandas, polars or R has written.
    An index is not used if it contains only the row numbers 0, 1, 2, ... If a table has neither a
    column with a name for ids nor a usable index, the ids are read from its only column of texts.
    In a table with a column of lists, the column of ids may also contain whole numbers. If no
    column of a table contains lists, a column that mixes numbers with blanks or texts raises an
    error. Columns of texts and of other types are not part of the vectors.
    """
    _check_names(path, columns, vector_column, id_column)
    lists = [name for name, column in columns.items() if column.kind == "lists"]
    if vector_column is None and not lists and names_pairs([*columns]):
        got = f"a table of users and items ({_format_names(columns)})"
        raise FastcosFormatError(f"{path} must have a row per vector, got {got}")
    if vector_column is None and len(lists) > 1:
        raise FastcosFormatError(
            f"vector_column must be given for {path}: there are several possible columns "
            f"({_format_names(lists)})"
        )
    vectors = [vector_column] if vector_column is not None else lists
    ids = _choose_ids(path, columns, vectors, id_column)
    if not vectors:
        data_columns = [
            name
            for name in columns
            if name != ids and not names_ids(name) and not is_index(columns[name])
        ]
        for kind in ("odd numbers", "mixed", "blanks"):
            for name in data_columns:
                if columns[name].kind == kind:
                    columns[name].refuse_as_numbers(path)
        vectors = [name for name in data_columns if columns[name].kind == "numbers"]
    if not vectors:
        rule = "hold one column of lists of numbers, or columns of numbers"
        got = ", ".join(column.describe() for column in columns.values())
        raise FastcosFormatError(f"{path} must {rule}, got {got[:200]}")
    return vectors, ids


def _check_names(
    path: Path, columns: Mapping[str, Column], vector_column: str | None, id_column: str | None
) -> None:
    if vector_column is not None and (
        vector_column not in columns or columns[vector_column].kind != "lists"
    ):
        descriptions = ", ".join(column.describe() for column in columns.values())
        rule = f"name a column of {path} that contains lists ({descriptions[:200]})"
        raise FastcosFormatError(f"vector_column must {rule}, got {vector_column!r}")
    if id_column and id_column not in columns:
        rule = f"name a column of {path} ({_format_names(columns)})"
        raise FastcosFormatError(f"id_column must {rule}, got {id_column!r}")


def _choose_ids(
    path: Path, columns: Mapping[str, Column], vectors: Sequence[str], id_column: str | None
) -> str | None:
    if id_column is not None:
        return id_column or None
    scalars = [name for name in columns if name not in vectors and columns[name].kind != "lists"]
    candidates = [name for name in scalars if names_ids(name)]
    indices = [name for name in scalars if is_index(columns[name])]
    data = [name for name in scalars if name not in indices]
    if not candidates:
        candidates = [name for name in indices if not columns[name].counts_rows(path)]
    if not candidates and vectors:
        candidates = [name for name in data if columns[name].may_be_ids]
    elif not candidates:
        candidates = [name for name in data if columns[name].kind == "texts"]
    if len(candidates) > 1:
        raise FastcosFormatError(
            f"id_column must be given for {path}: there are several possible columns "
            f"({_format_names(candidates)}). If no column holds ids, pass ''"
        )
    return candidates[0] if candidates else None


def _format_names(names: Iterable[str]) -> str:
    all_names = list(names)
    ending = f" and {len(all_names) - 20} more" if len(all_names) > 20 else ""
    return ", ".join(name[:40] for name in all_names[:20]) + ending

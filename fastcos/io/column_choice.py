"""Which columns of a table have the users, items, values, ids or vectors, by name and content."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from fastcos.io.column_kinds import Column
from fastcos.storage import FastcosFormatError
from fastcos.validation.column_names import ITEM_WORDS, USER_WORDS, VALUE_WORDS, column_word, is_id

# what pandas and R call an index that has no name, in CSV, in CSV read again, and in Parquet; and
# what pandas and polars call it as a column
_INDEX = re.compile(r"|Unnamed: 0|__index_level_0__|index")


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


def names_ids(name: str) -> bool:
    """Whether a column of this name holds ids of rows."""
    return is_id(name) or column_word(name, ITEM_WORDS) in ITEM_WORDS


def is_index(column: Column) -> bool:
    """Whether a column is an index of rows that pandas, polars or R has written, by its name."""
    return _INDEX.fullmatch(column.name.strip()) is not None and column.may_be_ids


def choose_vector_columns(
    path: Path,
    columns: Mapping[str, Column],
    vector_column: str | None,
    id_column: str | None,
) -> tuple[list[str], str | None]:
    """Return the columns of the vectors, and that of the ids or None.

    The vectors are the one column of lists, or else all columns of numbers in their order. Ids are
    by default the one column with such a name, or else the only column of texts; beside a column of
    lists also the only one of whole numbers. An index that pandas, polars or R has written takes
    the place of such a name, unless it counts the rows from 0. Without a column of lists, a column
    with numbers among blanks or texts is refused; columns of texts and of other types are left out.
    """
    _check_names(path, columns, vector_column, id_column)
    lists = [name for name, column in columns.items() if column.kind == "lists"]
    if vector_column is None and not lists and names_pairs([*columns]):
        got = f"a table of users and items ({_format_names(columns)})"
        raise FastcosFormatError(f"{path} must have a row per vector, got {got}")
    if vector_column is None and len(lists) > 1:
        raise FastcosFormatError(
            f"vector_column must be given for {path}: it may be any of {_format_names(lists)}"
        )
    chosen = [vector_column] if vector_column is not None else lists
    id_ = _choose_ids(path, columns, chosen, id_column)
    if not chosen:
        others = [name for name in columns if name != id_ and not names_ids(name)]
        others = [name for name in others if not is_index(columns[name])]
        for kind in ("odd numbers", "mixed", "blanks"):
            for name in others:
                if columns[name].kind == kind:
                    columns[name].refuse_as_numbers(path)
        chosen = [name for name in others if columns[name].kind == "numbers"]
    if not chosen:
        rule = "hold one column of lists of numbers, or columns of numbers"
        got = ", ".join(column.describe() for column in columns.values())
        raise FastcosFormatError(f"{path} must {rule}, got {got[:200]}")
    return chosen, id_


def _check_names(
    path: Path, columns: Mapping[str, Column], vector_column: str | None, id_column: str | None
) -> None:
    if vector_column is not None and (
        vector_column not in columns or columns[vector_column].kind != "lists"
    ):
        held = ", ".join(column.describe() for column in columns.values())
        rule = f"name a column of lists of {path} ({held[:200]})"
        raise FastcosFormatError(f"vector_column must {rule}, got {vector_column!r}")
    if id_column and id_column not in columns:
        rule = f"name a column of {path} ({_format_names(columns)})"
        raise FastcosFormatError(f"id_column must {rule}, got {id_column!r}")


def _choose_ids(
    path: Path, columns: Mapping[str, Column], vectors: Sequence[str], id_column: str | None
) -> str | None:
    if id_column is not None:
        return id_column or None
    others = [name for name in columns if name not in vectors and columns[name].kind != "lists"]
    found = [name for name in others if names_ids(name)]
    indices = [name for name in others if is_index(columns[name])]
    others = [name for name in others if name not in indices]
    if not found:
        found = [name for name in indices if not columns[name].counts_rows(path)]
    if not found and vectors:
        found = [name for name in others if columns[name].may_be_ids]
    elif not found:
        found = [name for name in others if columns[name].kind == "texts"]
    if len(found) > 1:
        rule = f"given for {path}, or '' for none: it may be any of {_format_names(found)}"
        raise FastcosFormatError(f"id_column must be {rule}")
    return found[0] if found else None


def _format_names(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - 20} more" if len(listed) > 20 else ""
    return ", ".join(name[:40] for name in listed[:20]) + more

"""Readers of labels, names, popularities and rated pairs for items whose ids are known."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.io.column_choice import find_column, require_column
from fastcos.io.columns import (
    LONGEST_ID,
    TextColumn,
    check_row_numbers,
    common_spelling,
    id_column,
)
from fastcos.io.tables import Table, open_table, read_columns
from fastcos.reports import as_table
from fastcos.storage import FastcosFormatError, PathLike
from fastcos.validation import Integers, as_list, as_path, check_text, format_value, read_only
from fastcos.validation.column_names import ITEM_WORDS, NAME_WORDS, VALUE_WORDS

Texts = npt.NDArray[np.str_]
# If a cell contains one of these texts, the item has no label. MovieLens writes "(no genres
# listed)" for a film without a genre.
NO_LABEL = ("", "(no genres listed)")
# Largest number of characters of a printed name. The length is limited because in a NumPy array,
# every text takes as much memory as the longest text.
LONGEST_NAME = 200
# Names by which a column of popularities is recognised.
POPULARITY_WORDS = VALUE_WORDS | {"popularity", "users", "n", "nusers", "decks", "ndecks"}


class _LabelFields(NamedTuple):
    labels: Integers
    classes: Texts
    names: Texts
    n_several: int
    n_none: int
    n_other: int
    n_unknown: int


@as_table
class ItemLabels(_LabelFields):
    """One label per item, and the counts of items without a label.

    Attributes
    ----------
    labels : ndarray (p,), int64
        Position of the label of each item in ``classes``; -1 if the item has no label, several
        labels, or a label that is not in ``only``.
    classes : ndarray (C,), str
        The labels, ascending.
    names : ndarray (p,), str
        Names of the items, of at most 200 characters each; an item without a name has its id as the
        name.
    n_several, n_none, n_other : int
        Counts of the items with the entry -1 in ``labels``, one count per reason. ``n_several``
        counts items with several labels. ``n_none`` counts items that have no label or no row in
        the table. ``n_other`` counts items with a label that is not in ``only``.
    n_unknown : int
        Number of items in the file that are not in ``item_ids``.
    columns : mapping of str
        The names of the columns that were read, under the keys ``"items"``, ``"labels"`` and
        ``"names"``. The entry ``"names"`` may be None. ``columns`` is not an element of the tuple.
    """

    columns: Mapping[str, str | None] = MappingProxyType({})


def read_labels(
    path: PathLike,
    item_ids: npt.ArrayLike,
    *,
    column: str,
    item: str | None = None,
    name: str | None = None,
    separator: str | None = "|",
    only: Collection[str] | None = None,
    member: str | None = None,
) -> ItemLabels:
    r"""Read the label of every item that has exactly one label.

    A cell may contain several labels with separators between them, and an item may have several
    rows. An item has the entry -1 in ``labels`` if it has several distinct labels, no label, or a
    label that is not in ``only``. The result also contains the number of items with several labels,
    the number of items with no label, and the number of items with a label that is not in ``only``.

    Parameters
    ----------
    path : str or path-like
        A table in a format that read_interactions reads, with at least one row per item.
    item_ids : array_like (p,), integers or strings
        Ids of the items, for example from read_interactions. Ids are compared as text: 7 matches
        "7", not "07".
    column : str
        Name of the column of labels.
    item : str, optional
        Name of the column of ids. By default, the column is recognised by its name, such as
        ``item``, ``movieId`` or ``StockCode``.
    name : str, optional
        The column that contains the names of the items. By default, names are read from a column
        called ``name``, ``title`` or ``description``, if the table has one.
    separator : str or None
        The text that separates several labels in one cell; None if every cell contains one label.
    only : collection of str, optional
        The labels to use; items with any other label are left out.
    member : str, optional
        As in read_interactions.

    Raises
    ------
    FastcosFormatError
        The file is damaged or unsuitable, no item of the file is in ``item_ids``, there are fewer
        than two labels, or no item has one of the labels in ``only``. A file counts as damaged or
        unsuitable in the same cases as in :func:`read_interactions`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "movies.csv"
    ...     _ = file.write_text("movieId,title,genres\n3,Heat,Crime\n4,Big,Comedy|Drama\n"
    ...                         "8,Up,Comedy\n9,It,Horror\n")
    ...     genres = read_labels(file, [3, 4, 8], column="genres")
    >>> genres.labels.tolist(), genres.classes.tolist(), genres.names.tolist()
    ([1, -1, 0], ['Comedy', 'Crime'], ['Heat', 'Big', 'Up'])
    >>> genres.n_several, genres.n_unknown
    (1, 1)
    """
    path = as_path("path", path)
    if only is not None:
        only = {only} if isinstance(only, str) else set(as_list("only", only))
    check_text("separator", separator)
    positions = _Positions(item_ids)
    with open_table(path, member=member) as table:
        item = _item_column(item, table, path)
        column = require_column("column", column, (), table.names, path)
        name = find_column("name", name, NAME_WORDS, table.names, path)
        names_to_read = [item, column] if name is None else [item, column, name]
        columns = read_columns(table, names_to_read)
    items = common_spelling(path, item, columns.texts[0], columns.lines, allow_blanks=True)
    cells = common_spelling(path, column, columns.texts[1], columns.lines, allow_blanks=True)
    rows, row_positions, n_unknown = positions.match(path, items)
    labels_of_cell = []
    for text in cells.texts:
        parts = text.split(separator) if separator and text.strip() not in NO_LABEL else [text]
        labels_of_cell.append({part.strip() for part in parts} - {*NO_LABEL})
    labels_of_item: dict[int, set[str]] = defaultdict(set)
    for position, code in zip(row_positions.tolist(), cells.codes[rows].tolist(), strict=True):
        labels_of_item[position].update(labels_of_cell[code])
    single_labels = {
        position: next(iter(s)) for position, s in labels_of_item.items() if len(s) == 1
    }
    longest = max(map(len, single_labels.values()), default=0)
    if longest > LONGEST_ID:
        rule = f"hold labels of at most {LONGEST_ID} characters"
        raise FastcosFormatError(f"{path}: column {column!r} must {rule}, got {longest}")
    used_labels = {
        position: label
        for position, label in single_labels.items()
        if only is None or label in only
    }
    classes = sorted(set(used_labels.values()))
    unknown_labels = sorted(set(only or ()) - set(classes))
    if unknown_labels:
        examples = sorted(set(single_labels.values()))[:10]
        got = ", ".join(map(repr, unknown_labels[:5]))
        rule = f"list labels in column {column!r} of {path} (such as {', '.join(examples)})"
        raise FastcosFormatError(f"only must {rule}, got {got}")
    if len(classes) < 2:
        rule = "have at least two different labels among the items that have exactly one label"
        raise FastcosFormatError(f"{path}: column {column!r} must {rule}, got {len(classes)}")
    numbers = {label: number for number, label in enumerate(classes)}
    labels = np.full(len(positions.ids), -1, dtype=np.int64)
    labels[list(used_labels)] = [numbers[label] for label in used_labels.values()]
    n_several = sum(len(item_labels) > 1 for item_labels in labels_of_item.values())
    names = positions.ids.tolist()
    if name is not None:
        names = _item_names(positions.ids, row_positions, columns.texts[2], rows)
    labelled = ItemLabels(
        labels=read_only(labels),
        classes=np.array(classes, dtype=np.str_),
        names=np.array(names, dtype=np.str_),
        n_several=n_several,
        n_none=len(labels) - len(single_labels) - n_several,
        n_other=len(single_labels) - len(used_labels),
        n_unknown=n_unknown,
    )
    labelled.columns = {"items": item, "labels": column, "names": name}
    return labelled


def read_names(
    path: PathLike, item_ids: npt.ArrayLike, *, name: str | None = None, item: str | None = None
) -> Texts:
    """Read the first name of each item; a name has at most 200 characters.

    An item without a name in the file gets its id as the name. ``name`` and ``item`` are the
    columns of names and of ids; by default, the columns are recognised by their names. ``path`` and
    ``item_ids`` have the same meaning as in :func:`read_labels`, and the same errors are raised.
    """
    path = as_path("path", path)
    positions = _Positions(item_ids)
    with open_table(path) as table:
        item = _item_column(item, table, path)
        name = require_column("name", name, NAME_WORDS, table.names, path)
        columns = read_columns(table, [item, name])
    items = common_spelling(path, item, columns.texts[0], columns.lines, allow_blanks=True)
    rows, row_positions, _ = positions.match(path, items)
    return np.array(_item_names(positions.ids, row_positions, columns.texts[1], rows), np.str_)


def read_texts(path: PathLike, column: str) -> Texts:
    """Read a column of texts in the order of the rows; each text is cut to 200 characters."""
    path = as_path("path", path)
    with open_table(path) as table:
        name = require_column("column", column, (), table.names, path)
        (texts_of_rows,) = read_columns(table, [name]).texts
    texts = [text.strip()[:LONGEST_NAME] for text in texts_of_rows.texts]
    return np.array(texts, np.str_)[texts_of_rows.codes]


def _item_names(ids: Texts, positions: Integers, column: TextColumn, rows: Integers) -> list[str]:
    """Return the name of each item, or the id of an item without a name.

    Row ``rows[i]`` of the column contains a name of the item at position ``positions[i]``.
    """
    names: list[str] = ids.tolist()
    codes = column.codes[rows]
    # If an item has several names, the first of them is kept. The names are therefore assigned in
    # reverse order: the first name is assigned last, and overwrites the others.
    for position, code in zip(positions[::-1].tolist(), codes[::-1].tolist(), strict=True):
        names[position] = column.texts[code].strip()[:LONGEST_NAME] or str(ids[position])
    return names


@as_table
class Popularity(NamedTuple):
    """The popularity of items, one number per item.

    Attributes
    ----------
    values : ndarray (p,), float64
        Popularities, at least 0; 0 for items that are not in the file.
    n_missing : int
        Number of items that are not in the file.
    n_unknown : int
        Number of items in the file that are not in ``item_ids``.
    """

    values: npt.NDArray[np.float64]
    n_missing: int
    n_unknown: int


def read_popularity(
    path: PathLike, item_ids: npt.ArrayLike, *, column: str | None = None, item: str | None = None
) -> Popularity:
    """Read a number of at least 0 for each item, such as the number of its users.

    ``column`` and ``item`` are the columns of numbers and of ids; by default, the columns are
    recognised by their names. ``path`` and ``item_ids`` have the same meaning as in
    :func:`read_labels`, and the same errors are raised. FastcosFormatError is also raised if the
    number of an item in ``item_ids`` is negative, or if such an item occurs in two rows.
    """
    path = as_path("path", path)
    positions = _Positions(item_ids)
    with open_table(path) as table:
        item = _item_column(item, table, path)
        column = require_column("column", column, POPULARITY_WORDS, table.names, path)
        columns = read_columns(table, [item], column)
    items = id_column(path, item, columns.texts[0], columns.lines)
    rows, row_positions, n_unknown = positions.match(path, items)
    numbers = np.asarray(columns.numbers, np.float64)[rows]
    if (numbers < 0).any():
        raise FastcosFormatError(
            f"{path}: column {column!r} must hold numbers of at least 0, got {numbers.min():g}"
        )
    if len(np.unique(row_positions)) != len(row_positions):
        raise FastcosFormatError(
            f"{path} must have one row per item, got several rows for one item"
        )
    values = np.zeros(len(positions.ids))
    values[row_positions] = numbers
    return Popularity(read_only(values), len(values) - len(row_positions), n_unknown)


@as_table
class ItemPairs(NamedTuple):
    """Rated pairs of known items.

    Attributes
    ----------
    pairs : ndarray (m, 2), int64
        Positions of the two items of each pair in the list of ids.
    ratings : ndarray (m,), float64
        Rating of each pair.
    n_unknown : int
        Number of pairs with an item that is not among the ids.
    """

    pairs: npt.NDArray[np.int64]
    ratings: npt.NDArray[np.float64]
    n_unknown: int


def read_pairs(path: PathLike, ids: npt.ArrayLike) -> ItemPairs:
    """Read a table with two items and a rating per line, as in WS-353, MEN and SimLex-999.

    The table has no header, and its first three columns are read. If an item is not among the ids,
    its name in lower case is looked up. FastcosFormatError is raised if the table has fewer than
    three columns, if a rating is not a finite number, or if fewer than two pairs consist of known
    items.
    """
    path = as_path("path", path)
    with open_table(path, header=False) as table:
        if len(table.names) < 3:
            raise FastcosFormatError(
                f"{path} must have three columns (item, item, rating), got {len(table.names)}"
            )
        first, second, rating = table.names[:3]
        read = read_columns(table, (first, second), rating)
    columns = [
        id_column(path, name, column, read.lines)
        for name, column in zip((first, second), read.texts, strict=True)
    ]
    check_row_numbers(path, np.asarray(ids), columns[0].texts + columns[1].texts)
    position_of = {str(id_): position for position, id_ in enumerate(np.asarray(ids).tolist())}
    item_positions = []
    for column in columns:
        positions = [
            position_of.get(text, position_of.get(text.lower(), -1)) for text in column.texts
        ]
        item_positions.append(np.array(positions, dtype=np.int64)[column.codes])
    is_known = (item_positions[0] >= 0) & (item_positions[1] >= 0)
    if is_known.sum() < 2:
        got = f"{int(is_known.sum())} of {len(is_known)}"
        raise FastcosFormatError(f"{path} must hold at least two pairs of known items, got {got}")
    return ItemPairs(
        read_only(np.stack(item_positions, axis=1)[is_known]),
        read_only(np.asarray(read.numbers, dtype=np.float64)[is_known]),
        int((~is_known).sum()),
    )


def _item_column(item: str | None, table: Table, path: Path) -> str:
    """Return the column of item ids, or the column "id" if no name refers to items."""
    column = find_column("item", item, ITEM_WORDS, table.names, path)
    return column or require_column("item", item, {"id"}, table.names, path)


class _Positions:
    """Positions of item ids, which are compared as text."""

    def __init__(self, item_ids: npt.ArrayLike) -> None:
        ids = np.asarray(item_ids)
        if ids.ndim != 1 or ids.dtype.kind not in "iuUO" or not len(ids):
            raise TypeError(f"item_ids must be a list of ids, got {format_value(item_ids)}")
        self._item_ids = ids
        self.ids: Texts = np.array([str(id_) for id_ in ids.tolist()], np.str_)
        self._position_of = {id_: position for position, id_ in enumerate(self.ids.tolist())}

    def match(self, path: Path, column: TextColumn) -> tuple[Integers, Integers, int]:
        """Return the row numbers and positions of known items, and the number of unknown items."""
        positions = np.array(
            [self._position_of.get(text, -1) for text in column.texts], dtype=np.int64
        )
        unknown = np.flatnonzero(positions < 0)
        if len(unknown) == len(positions):
            examples = ", ".join(map(repr, self.ids[:3].tolist()))
            got = ", ".join(repr(column.texts[code][:40]) for code in unknown[:5])
            raise FastcosFormatError(
                f"{path} must contain at least one of the items (such as {examples}), got "
                f"{len(unknown)} ids, none of which is an item: {got}"
            )
        check_row_numbers(path, self._item_ids, column.texts)
        rows = np.flatnonzero(positions[column.codes] >= 0)
        return rows, positions[column.codes[rows]], len(unknown)

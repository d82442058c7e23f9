"""Labels, names, popularities and rated pairs of items, aligned with given item ids."""

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
# cells that mean no label; the second is MovieLens'
NO_LABEL = ("", "(no genres listed)")
# letters of a name for printing; an array takes as much memory for each as for the longest
LONGEST_NAME = 200
# column names of popularities
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
    """One label per item, and counts of the items without one.

    Attributes
    ----------
    labels : ndarray (p,), int64
        Position in classes; -1 for no label.
    classes : ndarray (C,), str
        Ascending.
    names : ndarray (p,), str
        Names for printing, of at most 200 letters; the id if an item has no name.
    n_several, n_none, n_other : int
        Items without a label because of several labels; no label or no row; a label not in only.
    n_unknown : int
        Items of the file that have no interactions.
    columns : mapping of str
        The columns of the table that were read: ``"items"``, ``"labels"``, and ``"names"``, which
        may be None. It is not part of the tuple.
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
    r"""Read the label of every item that has exactly one.

    A cell may hold several labels between separators, and an item may have several rows. Items
    with several distinct labels, with none, or with one that is not in only get -1 and are counted.

    Parameters
    ----------
    path : str or path-like
        A table as for read_interactions, with one or more rows per item.
    item_ids : array_like (p,), integers or strings
        As returned by read_interactions. Ids match as text: 7 matches "7", not "07".
    column : str
        Name of the column of labels.
    item : str, optional
        Name of the column of ids. Default: recognised by its name (item, movieId, StockCode ...).
    name : str, optional
        Name of the column of names. Default: name, title or description, if one exists.
    separator : str or None
        Text between several labels of a cell; None if a cell is one label.
    only : collection of str, optional
        The classes; items with any other label are left out.
    member : str, optional
        As in read_interactions.

    Raises
    ------
    FastcosFormatError
        As in read_interactions; no item of the file is in item_ids; fewer than two classes; a class
        of only that no item has.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "movies.csv"
    ...     _ = file.write_text("movieId,title,genres\n3,Heat,Crime\n4,Big,Comedy|Drama\n"
    ...                         "8,Up,Comedy\n9,It,Horror\n")
    ...     found = read_labels(file, [3, 4, 8], column="genres")
    >>> found.labels.tolist(), found.classes.tolist(), found.names.tolist()
    ([1, -1, 0], ['Comedy', 'Crime'], ['Heat', 'Big', 'Up'])
    >>> found.n_several, found.n_unknown
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
        wanted = [item, column] if name is None else [item, column, name]
        read = read_columns(table, wanted)
    items = common_spelling(path, item, read.texts[0], read.lines, allow_blanks=True)
    cells = common_spelling(path, column, read.texts[1], read.lines, allow_blanks=True)
    rows, at, n_unknown = positions.match(path, items)
    labels_of = []
    for text in cells.texts:
        parts = text.split(separator) if separator and text.strip() not in NO_LABEL else [text]
        labels_of.append({part.strip() for part in parts} - {*NO_LABEL})
    found: dict[int, set[str]] = defaultdict(set)
    for position, code in zip(at.tolist(), cells.codes[rows].tolist(), strict=True):
        found[position].update(labels_of[code])
    single = {position: next(iter(s)) for position, s in found.items() if len(s) == 1}
    longest = max(map(len, single.values()), default=0)
    if longest > LONGEST_ID:
        rule = f"hold labels of at most {LONGEST_ID} letters"
        raise FastcosFormatError(f"{path}: column {column!r} must {rule}, got {longest}")
    kept = {at: label for at, label in single.items() if only is None or label in only}
    classes = sorted(set(kept.values()))
    absent = sorted(set(only or ()) - set(classes))
    if absent:
        known, got = sorted(set(single.values()))[:10], ", ".join(map(repr, absent[:5]))
        rule = f"name labels of column {column!r} of {path} ({', '.join(known)})"
        raise FastcosFormatError(f"only must {rule}, got {got}")
    if len(classes) < 2:
        rule = "have at least two different labels among items with exactly one"
        raise FastcosFormatError(f"{path}: column {column!r} must {rule}, got {len(classes)}")
    numbers = {label: number for number, label in enumerate(classes)}
    labels = np.full(len(positions.ids), -1, dtype=np.int64)
    labels[list(kept)] = [numbers[label] for label in kept.values()]
    n_several = sum(len(several) > 1 for several in found.values())
    names = positions.ids.tolist()
    if name is not None:
        names = _named(positions.ids, at, read.texts[2], rows)
    labelled = ItemLabels(
        labels=read_only(labels),
        classes=np.array(classes, dtype=np.str_),
        names=np.array(names, dtype=np.str_),
        n_several=n_several,
        n_none=len(labels) - len(single) - n_several,
        n_other=len(single) - len(kept),
        n_unknown=n_unknown,
    )
    labelled.columns = {"items": item, "labels": column, "names": name}
    return labelled


def read_names(
    path: PathLike, item_ids: npt.ArrayLike, *, name: str | None = None, item: str | None = None
) -> Texts:
    """Read a name of at most 200 letters for each item: the first one, or its id without any.

    name and item are the columns of names and of ids, by default recognised by their names; path
    and item_ids as in :func:`read_labels`, and FastcosFormatError.
    """
    path = as_path("path", path)
    positions = _Positions(item_ids)
    with open_table(path) as table:
        item = _item_column(item, table, path)
        name = require_column("name", name, NAME_WORDS, table.names, path)
        read = read_columns(table, [item, name])
    items = common_spelling(path, item, read.texts[0], read.lines, allow_blanks=True)
    rows, at, _ = positions.match(path, items)
    return np.array(_named(positions.ids, at, read.texts[1], rows), np.str_)


def read_texts(path: PathLike, column: str) -> Texts:
    """Read a column of texts, of at most 200 letters each, in the order of the rows."""
    path = as_path("path", path)
    with open_table(path) as table:
        name = require_column("column", column, (), table.names, path)
        (read,) = read_columns(table, [name]).texts
    texts = [text.strip()[:LONGEST_NAME] for text in read.texts]
    return np.array(texts, np.str_)[read.codes]


def _named(ids: Texts, at: Integers, column: TextColumn, rows: Integers) -> list[str]:
    """Return the names of the items: the ids, but column's texts in these rows for those at."""
    names: list[str] = ids.tolist()
    # backwards: of several names, the first one in the file is written last
    for position, code in zip(at[::-1].tolist(), column.codes[rows][::-1].tolist(), strict=True):
        names[position] = column.texts[code].strip()[:LONGEST_NAME] or str(ids[position])
    return names


@as_table
class Popularity(NamedTuple):
    """One number per item.

    Attributes
    ----------
    values : ndarray (p,), float64
        At least 0; 0 for items that are not in the file.
    n_missing : int
        Number of items that are not in the file.
    n_unknown : int
        Number of rows of the file with other items.
    """

    values: npt.NDArray[np.float64]
    n_missing: int
    n_unknown: int


def read_popularity(
    path: PathLike, item_ids: npt.ArrayLike, *, column: str | None = None, item: str | None = None
) -> Popularity:
    """Read a number of at least 0 for each item, such as the number of its users.

    column and item are the columns of numbers and of ids, by default recognised by their names;
    path and item_ids as in :func:`read_labels`. FastcosFormatError also for a negative number, and
    for an item in two rows.
    """
    path = as_path("path", path)
    positions = _Positions(item_ids)
    with open_table(path) as table:
        item = _item_column(item, table, path)
        column = require_column("column", column, POPULARITY_WORDS, table.names, path)
        read = read_columns(table, [item], column)
    items = id_column(path, item, read.texts[0], read.lines)
    rows, at, n_unknown = positions.match(path, items)
    numbers = np.asarray(read.numbers, np.float64)[rows]
    if (numbers < 0).any():
        raise FastcosFormatError(
            f"{path}: column {column!r} must hold numbers of at least 0, got {numbers.min():g}"
        )
    if len(np.unique(at)) != len(at):
        raise FastcosFormatError(f"{path} must have one row per item, got several for one")
    values = np.zeros(len(positions.ids))
    values[at] = numbers
    return Popularity(read_only(values), len(values) - len(at), n_unknown)


@as_table
class ItemPairs(NamedTuple):
    """Rated pairs of known items.

    Attributes
    ----------
    pairs : ndarray (m, 2), int64
        Positions in the ids.
    ratings : ndarray (m,), float64
    n_unknown : int
        Number of pairs with an item that is not among the ids.
    """

    pairs: npt.NDArray[np.int64]
    ratings: npt.NDArray[np.float64]
    n_unknown: int


def read_pairs(path: PathLike, ids: npt.ArrayLike) -> ItemPairs:
    """Read a table with two items and a rating per line, the format of WS-353, MEN and SimLex-999.

    It has no header, and its first three columns are used. An item that is not among the ids is
    also searched in lower case. FastcosFormatError for fewer columns, a rating that is no finite
    number, and fewer than two known pairs.
    """
    path = as_path("path", path)
    with open_table(path, header=False) as table:
        if len(table.names) < 3:
            raise FastcosFormatError(
                f"{path} must have three columns (item, item, rating), got {len(table.names)}"
            )
        first, second, rating = table.names[:3]
        read = read_columns(table, (first, second), rating)
    both = [
        id_column(path, name, column, read.lines)
        for name, column in zip((first, second), read.texts, strict=True)
    ]
    check_row_numbers(path, np.asarray(ids), both[0].texts + both[1].texts)
    known_ids = {str(one): position for position, one in enumerate(np.asarray(ids).tolist())}
    sides = []
    for column in both:
        at = [known_ids.get(text, known_ids.get(text.lower(), -1)) for text in column.texts]
        sides.append(np.array(at, dtype=np.int64)[column.codes])
    known = (sides[0] >= 0) & (sides[1] >= 0)
    if known.sum() < 2:
        got = f"{int(known.sum())} of {len(known)}"
        raise FastcosFormatError(f"{path} must hold at least two pairs of known items, got {got}")
    return ItemPairs(
        read_only(np.stack(sides, axis=1)[known]),
        read_only(np.asarray(read.numbers, dtype=np.float64)[known]),
        int((~known).sum()),
    )


def _item_column(item: str | None, table: Table, path: Path) -> str:
    """Return the column of item ids; one named id is taken if no name says item."""
    known = find_column("item", item, ITEM_WORDS, table.names, path)
    return known or require_column("item", item, {"id"}, table.names, path)


class _Positions:
    """Positions of item ids, matched as text."""

    def __init__(self, item_ids: npt.ArrayLike) -> None:
        listed = np.asarray(item_ids)
        if listed.ndim != 1 or listed.dtype.kind not in "iuUO" or not len(listed):
            raise TypeError(f"item_ids must be a list of ids, got {format_value(item_ids)}")
        self._given = listed
        self.ids: Texts = np.array([str(one) for one in listed.tolist()], np.str_)
        self._of = {one: position for position, one in enumerate(self.ids.tolist())}

    def match(self, path: Path, column: TextColumn) -> tuple[Integers, Integers, int]:
        """Return rows of known items, their positions, and the number of unknown items."""
        found = np.array([self._of.get(text, -1) for text in column.texts], dtype=np.int64)
        unknown = np.flatnonzero(found < 0)
        if len(unknown) == len(found):
            some = ", ".join(map(repr, self.ids[:3].tolist()))
            others = ", ".join(repr(column.texts[one][:40]) for one in unknown[:5])
            raise FastcosFormatError(
                f"{path} must contain some of the items (such as {some}), got {len(unknown)} "
                f"others: {others}"
            )
        check_row_numbers(path, self._given, column.texts)
        rows = np.flatnonzero(found[column.codes] >= 0)
        return rows, found[column.codes[rows]], len(unknown)

"""Labels and names of items, aligned with the columns of an interaction matrix."""

import os
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.io.columns import ITEM_WORDS, NAME_WORDS, find_column, require_column
from fastcos.io.tables import open_table
from fastcos.io.text_columns import Integers, refuse_empty
from fastcos.storage import FastcosFormatError
from fastcos.validation import read_only

Texts = npt.NDArray[np.str_]
NO_LABEL = ("", "(no genres listed)")


class ItemLabels(NamedTuple):
    """One label an item, and what was left out.

    Attributes
    ----------
    labels : ndarray (p,), int64
        Position in classes; -1 for an item that was left out.
    classes : ndarray (C,), str
        Rising.
    names : ndarray (p,), str
        Names for printing; the id of an item without one.
    n_several, n_none, n_other : int
        Items left out: with several labels; with none, or in no row; with one that is not in only.
    n_unknown : int
        Items of the file that have no interactions.
    """

    labels: Integers
    classes: Texts
    names: Texts
    n_several: int
    n_none: int
    n_other: int
    n_unknown: int


def read_labels(
    path: str | os.PathLike[str],
    item_ids: npt.ArrayLike,
    *,
    column: str,
    item: str | None = None,
    name: str | None = None,
    separator: str | None = "|",
    only: Collection[str] | None = None,
    missing: Collection[str] = NO_LABEL,
    strict: bool = False,
    member: str | None = None,
    delimiter: str | None = None,
    header: bool = True,
) -> ItemLabels:
    r"""Read the label of every item that has exactly one.

    A cell may hold several labels between separators, and an item may stand in several rows; an
    item keeps a label if all of these together are one. Items with several labels, with none, or
    with one that is not in only are left out (-1) and counted.

    Parameters
    ----------
    path : str or path-like
        A table as read_interactions takes it, with one row or more an item.
    item_ids : array_like (p,), integers or strings
        As read_interactions returned them. Ids match as text: 7 matches "7", not "07".
    column : str
        Name of the column of labels.
    item : str, optional
        Name of the column of ids; by default told by its name (item, movieId, StockCode ...).
    name : str, optional
        Name of the column of names; by default name, title or description, if there is one of them.
    separator : str or None
        What stands between several labels of a cell; None where a cell is one label.
    only : collection of str, optional
        The classes; items with any other label are left out.
    missing : collection of str
        Cells that mean no label.
    strict : bool
        Refuse a file with items that have no interactions, or rows without an id, in place of
        counting them as unknown.
    member, delimiter, header
        As in read_interactions.

    Returns
    -------
    ItemLabels

    Raises
    ------
    FastcosFormatError
        As in read_interactions; no item of the file has interactions, or with strict, one has none;
        fewer than two classes; a class of only that no item has.
    OSError
        No such file.

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
    path = Path(path)
    if only is not None:
        only = {only} if isinstance(only, str) else set(only)
    places = Places(item_ids)
    with open_table(path, member=member, delimiter=delimiter, header=header) as table:
        item = require_column("item", item, ITEM_WORDS, table.names, path)
        column = require_column("column", column, (), table.names, path)
        name = find_column("name", name, NAME_WORDS, table.names, path)
        wanted = [item, column] if name is None else [item, column, name]
        read = table.read(wanted, None)
    if strict:
        refuse_empty(path, item, read.texts[0], read.lines)
    rows, at, n_unknown = places.match(path, read.texts[0].texts, read.texts[0].codes, strict)
    parts = [_split(text, separator, missing) for text in read.texts[1].texts]
    found: dict[int, set[str]] = defaultdict(set)
    for position, code in zip(at.tolist(), read.texts[1].codes[rows].tolist(), strict=True):
        found[position].update(parts[code])
    single = {position: next(iter(s)) for position, s in found.items() if len(s) == 1}
    kept = {place: label for place, label in single.items() if only is None or label in only}
    classes = sorted(set(kept.values()))
    _check_classes(path, column, classes, only, set(single.values()))
    numbers = {label: number for number, label in enumerate(classes)}
    labels = np.full(len(places.ids), -1, dtype=np.int64)
    labels[list(kept)] = [numbers[label] for label in kept.values()]
    n_several = sum(len(several) > 1 for several in found.values())
    names = places.ids if name is None else _names(places.ids, at, rows, read.texts[2])
    return ItemLabels(
        labels=read_only(labels),
        classes=np.array(classes, dtype=np.str_),
        names=names,
        n_several=n_several,
        n_none=len(labels) - len(single) - n_several,
        n_other=len(single) - len(kept),
        n_unknown=n_unknown,
    )


def read_names(
    path: str | os.PathLike[str],
    item_ids: npt.ArrayLike,
    *,
    item: str | None = None,
    name: str | None = None,
    member: str | None = None,
    delimiter: str | None = None,
    header: bool = True,
) -> Texts:
    r"""Read the names of items, where there are no labels.

    Parameters
    ----------
    path, item_ids, item, name, member, delimiter, header
        As in read_labels; the column of names is required.

    Returns
    -------
    ndarray (p,), str
        The first name in the file; the id of an item without one.

    Raises
    ------
    FastcosFormatError, OSError
        As in read_labels.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "items.csv"
    ...     _ = file.write_text("StockCode,Description\n10002,GLOBE\n")
    ...     read_names(file, [10002, 10080]).tolist()
    ['GLOBE', '10080']
    """
    path = Path(path)
    places = Places(item_ids)
    with open_table(path, member=member, delimiter=delimiter, header=header) as table:
        item = require_column("item", item, ITEM_WORDS, table.names, path)
        name = require_column("name", name, NAME_WORDS, table.names, path)
        read = table.read((item, name), None)
    refuse_empty(path, item, read.texts[0], read.lines)
    rows, at, _ = places.match(path, read.texts[0].texts, read.texts[0].codes, False)
    return _names(places.ids, at, rows, read.texts[1])


class Places:
    """Positions of item ids, by text."""

    def __init__(self, item_ids: npt.ArrayLike) -> None:
        self.ids: Texts = np.array([str(one) for one in np.asarray(item_ids).tolist()], np.str_)
        self._places = {one: place for place, one in enumerate(self.ids.tolist())}

    def match(
        self, path: Path, texts: Sequence[str], codes: Integers, strict: bool
    ) -> tuple[Integers, Integers, int]:
        """Return rows of known items, their positions, and the number of unknown items."""
        places = np.array([self._places.get(text, -1) for text in texts], dtype=np.int64)
        unknown = np.flatnonzero(places < 0)
        if len(unknown) == len(texts) or (strict and len(unknown)):
            rule = "name only" if strict else "name some of the"
            shown = ", ".join(repr(texts[one][:40]) for one in unknown[:5])
            raise FastcosFormatError(
                f"{path} must {rule} items (such as "
                f"{', '.join(map(repr, self.ids[:3].tolist()))}), got {len(unknown)} of "
                f"{len(texts)} without any: {shown}"
            )
        rows = np.flatnonzero(places[codes] >= 0)
        return rows, places[codes[rows]], len(unknown)


def _split(text: str, separator: str | None, missing: Collection[str]) -> set[str]:
    if text.strip() in missing:
        return set()
    parts = text.split(separator) if separator else [text]
    return {part.strip() for part in parts if part.strip() not in missing and part.strip()}


def _check_classes(
    path: Path,
    column: str,
    classes: Sequence[str],
    only: Collection[str] | None,
    present: Collection[str],
) -> None:
    absent = sorted(set(only or ()) - set(classes))
    if absent:
        raise FastcosFormatError(
            f"only must name labels of column {column!r} of {path} "
            f"({', '.join(sorted(present)[:10])}), got {', '.join(map(repr, absent[:5]))}"
        )
    if len(classes) < 2:
        raise FastcosFormatError(
            f"{path}: column {column!r} must have at least two different labels among items with "
            f"exactly one, got {len(classes)}"
        )


def _names(ids: Texts, at: Integers, rows: Integers, column: Any) -> Texts:
    names = ids.tolist()
    for place, code in zip(at[::-1].tolist(), column.codes[rows][::-1].tolist(), strict=True):
        names[place] = column.texts[code].strip() or ids[place]
    return np.array(names, dtype=np.str_)

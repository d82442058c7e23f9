"""How popular items are, aligned with their ids."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.io.columns import ITEM_WORDS, VALUE_WORDS, require_column
from fastcos.io.labels import Places
from fastcos.io.tables import open_table
from fastcos.io.text_columns import refuse_empty
from fastcos.storage import FastcosFormatError
from fastcos.validation import read_only

POPULARITY_WORDS = VALUE_WORDS | {"popularity", "users", "n", "nusers", "decks", "ndecks"}


class Popularity(NamedTuple):
    """One number an item.

    Attributes
    ----------
    values : ndarray (p,), float64
        Of at least 0; 0 for items that the file does not name.
    n_missing : int
        Items that the file does not name.
    n_unknown : int
        Rows of the file that name no item.
    """

    values: npt.NDArray[np.float64]
    n_missing: int
    n_unknown: int


def read_popularity(
    path: str | os.PathLike[str],
    item_ids: npt.ArrayLike,
    *,
    column: str | None = None,
    item: str | None = None,
) -> Popularity:
    r"""Read a number of at least 0 for items, such as the number of their users.

    Parameters
    ----------
    path : str or path-like
        A table as read_interactions takes it, with at most one row an item.
    item_ids : array_like (p,), integers or strings
        Ids match as text: 7 matches "7", not "07".
    column, item : str, optional
        Names of the columns of numbers and of ids; by default told by their names.

    Returns
    -------
    Popularity

    Raises
    ------
    FastcosFormatError
        As in read_interactions; a negative number; an item in two rows; no item of the file is
        among item_ids.
    OSError
        No such file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "counts.csv"
    ...     _ = file.write_text("item,count\n3,10\n4,2\n")
    ...     read_popularity(file, [4, 5, 3])
    Popularity(values=array([ 2.,  0., 10.]), n_missing=1, n_unknown=0)
    """
    path = Path(path)
    places = Places(item_ids)
    with open_table(path, member=None, delimiter=None, header=True) as table:
        item = require_column("item", item, ITEM_WORDS, table.names, path)
        column = require_column("column", column, POPULARITY_WORDS, table.names, path)
        read = table.read([item], column)
    refuse_empty(path, item, read.texts[0], read.lines)
    rows, at, n_unknown = places.match(path, read.texts[0].texts, read.texts[0].codes, False)
    numbers = np.asarray(read.numbers, np.float64)[rows]
    if (numbers < 0).any():
        raise FastcosFormatError(
            f"{path}: column {column!r} must hold numbers of at least 0, got {numbers.min():g}"
        )
    if len(np.unique(at)) != len(at):
        raise FastcosFormatError(f"{path} must have one row an item, got several for one")
    values = np.zeros(len(places.ids))
    values[at] = numbers
    return Popularity(read_only(values), len(values) - len(at), n_unknown)

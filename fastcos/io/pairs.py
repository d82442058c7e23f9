"""Pairs of items, and how alike people find them."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.io.tables import open_table
from fastcos.io.text_columns import refuse_empty
from fastcos.storage import FastcosFormatError
from fastcos.validation import read_only


class ItemPairs(NamedTuple):
    """Pairs of which both items are known.

    Attributes
    ----------
    pairs : ndarray (m, 2), int64
        Positions in the ids.
    ratings : ndarray (m,), float64
    n_unknown : int
        Pairs of the file with an item that is not among the ids.
    """

    pairs: npt.NDArray[np.int64]
    ratings: npt.NDArray[np.float64]
    n_unknown: int


def read_pairs(
    path: str | os.PathLike[str],
    ids: npt.ArrayLike,
    *,
    header: bool = False,
    delimiter: str | None = None,
    member: str | None = None,
) -> ItemPairs:
    r"""Read a table of two items and a rating a line, as WS-353, MEN and SimLex-999 come.

    Parameters
    ----------
    path : str or path-like
        A table as read_interactions takes it; its first three columns count.
    ids : array_like (n,), integers or strings
        Ids or words. An item that is not among them is looked for in lower case too.
    header : bool, default False
        Whether the first line holds names.
    delimiter, member
        As in read_interactions.

    Returns
    -------
    ItemPairs

    Raises
    ------
    FastcosFormatError
        Fewer than three columns; a rating that is no finite number; fewer than two known pairs.
    OSError
        No such file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "pairs.txt"
    ...     _ = file.write_text("sun\tmoon\t6.5\nsun\tJam\t1\nsun\twake\t3\n")
    ...     found = read_pairs(file, ["jam", "moon", "sun"])
    >>> found.pairs.tolist(), found.ratings.tolist(), found.n_unknown
    ([[2, 1], [2, 0]], [6.5, 1.0], 1)
    """
    path = Path(path)
    with open_table(path, member=member, delimiter=delimiter, header=header) as table:
        if len(table.names) < 3:
            raise FastcosFormatError(
                f"{path} must have three columns (item, item, rating), got {len(table.names)}"
            )
        first, second, rating = table.names[:3]
        read = table.read((first, second), rating)
    refuse_empty(path, first, read.texts[0], read.lines)
    refuse_empty(path, second, read.texts[1], read.lines)
    places = {str(one): place for place, one in enumerate(np.asarray(ids).tolist())}
    sides = [_places(column, places) for column in read.texts]
    known = (sides[0] >= 0) & (sides[1] >= 0)
    if known.sum() < 2:
        raise FastcosFormatError(
            f"{path} must hold at least two pairs of known items, got {int(known.sum())} of "
            f"{len(known)}"
        )
    return ItemPairs(
        read_only(np.stack(sides, axis=1)[known]),
        read_only(np.asarray(read.numbers, dtype=np.float64)[known]),
        int((~known).sum()),
    )


def _places(column: Any, places: dict[str, int]) -> npt.NDArray[np.int64]:
    found = [places.get(text, places.get(text.lower(), -1)) for text in column.texts]
    numbers: npt.NDArray[np.int64] = np.array(found, dtype=np.int64)[column.codes]
    return numbers

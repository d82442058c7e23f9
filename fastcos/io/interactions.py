"""Interactions of users with items, from whatever file they come in."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos.io.columns import interaction_columns
from fastcos.io.matrices import as_small, read_mtx_matrix, read_npz_matrix
from fastcos.io.tables import open_table
from fastcos.io.text_columns import Integers, refuse_rows, refuse_unsuitable_ids
from fastcos.linalg.csr import as_interactions
from fastcos.parallel import Progress
from fastcos.storage import FastcosFormatError
from fastcos.validation import as_choice, check_none

Ids = npt.NDArray[Any]

DUPLICATES = ("sum", "last", "max", "error")


class Interactions(NamedTuple):
    r"""Who touched what, and how often.

    Attributes
    ----------
    X : csr_array (n, p), float32 where that is exact, else float64
        Canonical; no stored zeros.
    user_ids : ndarray (n,), int64 or str
        Rising.
    item_ids : ndarray (p,), int64 or str
        Rising.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import fastcos
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "seen.csv")
    ...     _ = path.write_text("user,item\nann,7\nbob,7\nbob,9\n")
    ...     data = fastcos.read_interactions(path)
    >>> data.X.shape, data.user_ids.tolist(), data.item_ids.tolist()
    ((2, 2), ['ann', 'bob'], [7, 9])
    """

    X: sp.csr_array
    user_ids: Ids
    item_ids: Ids


def read_interactions(
    path: str | os.PathLike[str],
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    duplicates: str = "sum",
    member: str | None = None,
    delimiter: str | None = None,
    header: bool = True,
    progress: Progress | None = None,
) -> Interactions:
    r"""Read interactions from a table of (user, item, value) rows or from a matrix file.

    The kind is told by the suffix: ``.npz`` (scipy.sparse.save_npz, or arrays indptr, indices,
    data, shape), ``.mtx`` and ``.mtx.gz`` (Matrix Market), ``.parquet`` (needs pyarrow); anything
    else is delimited text in UTF-8, plain, gzip or zip. Text is separated by tabs if the first line
    has one, else by semicolons if it has those and no comma, else by commas. Comma and semicolon
    files quote as RFC 4180 says; in tab-separated files a quote is a character like any other.

    Ids become rows and columns through sorted vocabularies, so that the order of the file does not
    matter. If every id of a column is a whole number written plainly, its ids are int64 and sort
    as numbers; otherwise they are strings and sort by code point. So "007" stays distinct from "7",
    and makes its whole column strings. Ids of a matrix file are positions 0 .. n-1 and 0 .. p-1.

    Parameters
    ----------
    path : str or path-like
    user, item : str, optional
        Names of columns. By default the only column whose name, less case, punctuation and an
        ending such as Id, is a word such as user, customer, household; item, movie, product.
    value : str, optional
        Name of the column of finite numbers, found in the same way (rating, quantity, count ...).
        Where there is none, or value is the empty string, every row counts 1.
    duplicates : {"sum", "last", "max", "error"}
        What several rows of one user and item become; "last" is last in the file.
    member : str, optional
        Which file of a zip archive, where there are several.
    delimiter : str, optional
        One character.
    header : bool
        False where the first line is data; columns are then named "1", "2", ...
    progress : callable, optional
        Called as progress(done, total) with numbers of bytes of the file, while text is read.

    Returns
    -------
    Interactions
        X (n, p), user_ids (n,), item_ids (p,).

    Raises
    ------
    FastcosFormatError
        A damaged or unsuitable file; a missing or ambiguous column; an empty id, a value that is no
        finite number, or a duplicate where none may be, with the first five rows.
    OSError
        No such file.
    ValueError
        An unknown duplicates, or an argument that the kind of file has no use for.

    Notes
    -----
    Text is read as a stream by the csv module: about 1.6 s and 115 MB of memory a million rows.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "ratings.csv"
    ...     _ = file.write_text("userId,movieId,rating\n7,12,4.5\n7,3,1\n10,12,2\n")
    ...     X, user_ids, item_ids = read_interactions(file)
    >>> user_ids.tolist(), item_ids.tolist(), X.toarray().tolist()
    ([7, 10], [3, 12], [[1.0, 4.5], [0.0, 2.0]])
    """
    as_choice("duplicates", duplicates, DUPLICATES)
    path = Path(path)
    kind = "".join(path.suffixes[-2:]).lower()
    if kind.endswith((".npz", ".mtx", ".mtx.gz")):
        for name, given in (("user", user), ("item", item), ("value", value), ("member", member)):
            check_none(name, given, "for a matrix file")
        as_choice("duplicates, for a matrix file,", duplicates, ("sum",))
        X = read_npz_matrix(path) if kind.endswith(".npz") else read_mtx_matrix(path)
        return Interactions(as_small(X), np.arange(X.shape[0]), np.arange(X.shape[1]))
    with open_table(
        path, member=member, delimiter=delimiter, header=header, progress=progress
    ) as table:
        user, item, value = interaction_columns(path, table.names, user, item, value)
        (users, items), values, lines = table.read((user, item), value)
    for name, column in ((user, users), (item, items)):
        refuse_unsuitable_ids(path, name, column, lines)
    user_ids, user_ranks = sorted_ids(users.texts)
    item_ids, item_ranks = sorted_ids(items.texts)
    if values is None:
        values = np.ones(len(lines))
    cells = user_ranks[users.codes] * len(item_ids) + item_ranks[items.codes]
    cells, values = merge_cells(path, cells, values, lines, duplicates)
    rows, columns = np.divmod(cells, len(item_ids))
    shape = (len(user_ids), len(item_ids))
    try:
        X = as_interactions("values", sp.coo_array((values, (rows, columns)), shape=shape))
    except ValueError as error:  # a sum that overflows
        raise FastcosFormatError(f"{path}: {error}") from None
    return Interactions(as_small(X), user_ids, item_ids)


def sorted_ids(texts: list[str]) -> tuple[Ids, Integers]:
    """Return distinct texts as sorted ids, int64 where all are plain whole numbers; and ranks.

    Examples
    --------
    >>> sorted_ids(["10", "9"])
    (array([ 9, 10]), array([1, 0]))
    >>> sorted_ids(["10", "9", "09"])[0].tolist()
    ['09', '10', '9']
    """
    ids: Ids
    try:
        numbers = [int(text) for text in texts]
        if list(map(str, numbers)) != texts:
            raise ValueError
        ids = np.array(numbers, dtype=np.int64)
    except (ValueError, OverflowError):
        ids = np.array(texts, dtype=np.str_)
    order = np.argsort(ids, kind="stable")
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ids[order], ranks


def merge_cells(
    path: Path, cells: Integers, values: npt.NDArray[np.float64], lines: Integers, duplicates: str
) -> tuple[Integers, npt.NDArray[np.float64]]:
    """Return every cell once, rising, with its value."""
    order = np.argsort(cells, kind="stable")
    is_first = np.ones(len(cells), dtype=bool)
    sorted_cells = cells[order]
    is_first[1:] = sorted_cells[1:] != sorted_cells[:-1]
    if is_first.all():
        return sorted_cells, values[order]
    if duplicates == "error":
        repeated = np.sort(lines[order[~is_first]])
        refuse_rows(path, "must hold every user and item once", "a repetition", repeated)
    starts = np.flatnonzero(is_first)
    if duplicates == "last":
        return sorted_cells[starts], values[order[np.append(starts[1:], len(cells)) - 1]]
    # by value within a cell: sums are rounded alike whatever the order of the file
    order = np.lexsort((values, cells))
    merge = np.add if duplicates == "sum" else np.maximum
    return sorted_cells[starts], merge.reduceat(values[order], starts)

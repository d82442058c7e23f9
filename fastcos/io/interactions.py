"""Readers of user-item interactions in tables and matrix files."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos.io.column_choice import interaction_columns
from fastcos.io.columns import id_column, parse_ids, refuse_rows
from fastcos.io.matrices import as_float32_if_exact, read_mtx_matrix, read_npz_matrix
from fastcos.io.tables import open_table, read_columns, suffix_of
from fastcos.linalg.csr import as_interactions
from fastcos.parallel import Progress
from fastcos.reports import as_table
from fastcos.storage import FastcosFormatError, PathLike
from fastcos.validation import Integers, as_choice, as_path, check_none

Ids = npt.NDArray[Any]

DUPLICATES = ("sum", "last", "max", "error")


class _InteractionFields(NamedTuple):
    X: sp.csr_array
    user_ids: Ids
    item_ids: Ids


@as_table
class Interactions(_InteractionFields):
    r"""Interactions of users with items.

    Attributes
    ----------
    X : csr_array (n, p), float32 if that is exact, else float64
        The interactions, as a canonical matrix without stored zeros.
    user_ids : ndarray (n,), int64 or str
        Ids of the rows, ascending.
    item_ids : ndarray (p,), int64 or str
        Ids of the columns, ascending.
    columns : mapping of str
        The names of the columns that were read, under the keys ``"users"``, ``"items"`` and
        ``"values"``. The entry ``"values"`` is None if every row counted as 1. The mapping is empty
        for a matrix file. ``columns`` is not an element of the tuple, so
        ``X, user_ids, item_ids = read_interactions(path)`` works.
    """

    columns: Mapping[str, str | None] = MappingProxyType({})


def read_interactions(
    path: PathLike,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    duplicates: str = "sum",
    member: str | None = None,
    delimiter: str | None = None,
    header: bool = True,
    quotes: bool = True,
    progress: Progress | None = None,
) -> Interactions:
    r"""Read interactions from a table of (user, item, value) rows or from a matrix file.

    The suffix determines the format: ``.npz`` (scipy.sparse.save_npz, or arrays indptr, indices,
    data, shape), ``.mtx`` and ``.mtx.gz`` (Matrix Market), ``.parquet``, ``.arrow`` and
    ``.feather`` (which need pyarrow), ``.jsonl`` and ``.ndjson`` (one JSON object per line). Files
    with any other suffix are delimited text in UTF-8, or in UTF-16 with a byte order mark; they may
    be compressed by gzip or zip. The delimiter is found in the first line: the function looks first
    for a tab, then for a comma, then for ``::`` (MovieLens), and then for a semicolon. Quotes
    follow RFC 4180, as in pandas and R, also in tab-separated files. In files with the delimiter
    ``::``, quotes are ordinary characters.

    Rows and columns are sorted by id, so the order of the file does not matter. If all ids of a
    column are plain integers, the ids become int64 and are sorted as numbers; otherwise the ids
    become strings and are sorted by code point. A single id "007" turns all ids of the column into
    strings, and "007" differs from "7". Whole numbers that are stored as floats, such as 7.0,
    become integers. The ids of a matrix file are the positions 0 .. n-1 and 0 .. p-1. The same
    table yields the same result in every format.

    Parameters
    ----------
    path : str or path-like
    user, item : str, optional
        Names of the columns of users and items. Default: the only column with a known name, such as
        ``user`` or ``customer`` for users, and ``item``, ``movie`` or ``product`` for items. A name
        is recognised regardless of its case and punctuation; it may have an ending such as "Id".
    value : str, optional
        Name of the column of values. The values are finite numbers, or true (for 1) and false (for
        0).
        Default: the only column with a known name, such as ``rating``, ``quantity`` or ``count``.
        If the table has no column of values, or if ``value`` is the empty string, every row counts
        as 1.
    duplicates : {"sum", "last", "max", "error"}
        How to combine several rows with the same user and item; "last" keeps the last of these
        rows.
    member : str, optional
        Name of the file to read from a zip archive with several files.
    delimiter : str, optional
        One character, or ``::``.
    header : bool
        Pass False if the first line is data; the columns are then named "1", "2", ... A header that
        consists of numbers raises an error.
    quotes : bool
        Pass False if quotes are ordinary characters, as in some tab-separated files.
    progress : callable, optional
        Called as progress(done, total) while a text file is read; both numbers count bytes of the
        file.

    Returns
    -------
    Interactions
        X (n, p), user_ids (n,), item_ids (p,).

    Raises
    ------
    FastcosFormatError
        The file is damaged or unsuitable; a column is missing or ambiguous; an id is empty; a value
        is not a finite number; or ``duplicates`` is "error" and two rows have the same user and
        item. The message lists the first five faulty rows.
    ValueError
        ``duplicates`` has an unknown value, or an argument does not apply to the format.

    Notes
    -----
    The csv module reads text as a stream: reading a million rows takes about 1.6 s and 115 MB of
    memory.

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
    path = as_path("path", path)
    kind = suffix_of(path)
    if kind in (".npz", ".mtx"):
        arguments = {"user": user, "item": item, "value": value, "member": member}
        for name, argument in arguments.items():
            check_none(name, argument, "for a matrix file")
        as_choice("duplicates, for a matrix file,", duplicates, ("sum",))
        X = read_npz_matrix(path) if kind == ".npz" else read_mtx_matrix(path)
        return Interactions(as_float32_if_exact(X), np.arange(X.shape[0]), np.arange(X.shape[1]))
    with open_table(
        path, member=member, delimiter=delimiter, header=header, quotes=quotes, progress=progress
    ) as table:
        user, item, value = interaction_columns(path, table.names, user, item, value)
        (users, items), values, lines = read_columns(table, (user, item), value)
    users, items = id_column(path, user, users, lines), id_column(path, item, items, lines)
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
    except ValueError as error:  # The sum of several values of one cell overflows.
        raise FastcosFormatError(f"{path}: {error}") from None
    interactions = Interactions(as_float32_if_exact(X), user_ids, item_ids)
    interactions.columns = {"users": user, "items": item, "values": value}
    return interactions


def sorted_ids(texts: list[str]) -> tuple[Ids, Integers]:
    """Return distinct texts as sorted ids, and the rank of each text among the ids.

    The ids are int64 if all texts are plain integers.
    """
    ids = parse_ids(texts)
    order = np.argsort(ids, kind="stable")
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ids[order], ranks


def merge_cells(
    path: Path, cells: Integers, values: npt.NDArray[np.float64], lines: Integers, duplicates: str
) -> tuple[Integers, npt.NDArray[np.float64]]:
    """Merge the values of each cell; return the distinct cells, ascending, and their values."""
    order = np.argsort(cells, kind="stable")
    is_first = np.ones(len(cells), dtype=bool)
    sorted_cells = cells[order]
    is_first[1:] = sorted_cells[1:] != sorted_cells[:-1]
    if is_first.all():
        return sorted_cells, values[order]
    if duplicates == "error":
        repeated = np.sort(lines[order[~is_first]])
        rule = "must hold every pair of a user and an item at most once"
        refuse_rows(path, rule, "repetitions", repeated)
    starts = np.flatnonzero(is_first)
    if duplicates == "last":
        return sorted_cells[starts], values[order[np.append(starts[1:], len(cells)) - 1]]
    # The values of a cell are sorted, so that the rounding of their sum does not depend on the
    # order of the file.
    order = np.lexsort((values, cells))
    merge = np.add if duplicates == "sum" else np.maximum
    return sorted_cells[starts], merge.reduceat(values[order], starts)

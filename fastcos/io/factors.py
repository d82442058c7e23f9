"""Item and user embeddings of saved models, without the bias columns of implicit."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fastcos.io.arrays import Array
from fastcos.io.columns import check_row_numbers, positions_in
from fastcos.io.tables import suffix_of
from fastcos.io.vectors import (
    ID_NAMES,
    NAMED_ARRAY_SUFFIXES,
    as_vector_rows,
    check_columns,
    of_export,
    read_ids,
    read_named_arrays,
    read_vectors,
    vectors_of_arrays,
)
from fastcos.reports.table import as_table
from fastcos.storage import FastcosFormatError, PathLike
from fastcos.storage.memmap import as_mapped_rows, iter_blocks
from fastcos.validation import Integers, Rows, as_path, check_none, check_same_width, format_value

# rows of a memory map that are read at once
_ROWS = 8192

# names of the arrays of items and users in one file
_SIDES = (
    ("item_factors", "user_factors"),  # implicit
    ("items", "users"),
    ("item_embeddings", "user_embeddings"),
)


TRANSPOSED = "transposed components_: its items do not carry the singular values, the users do"


class _FactorFields(NamedTuple):
    items: Rows
    users: Rows | None
    ids: Array
    notes: tuple[str, ...]


@as_table
class Factors(_FactorFields):
    """Item embeddings, user embeddings if there are any, and notes on their conversion.

    Attributes
    ----------
    items : ndarray (p, d), float32 or float64
    users : ndarray (n, d), float32 or float64, or None
    ids : ndarray (p,), int64 or str
        Of the items; the positions 0 .. p-1 if the file has none.
    notes : tuple of str
        What was recognised and stripped.
    columns : mapping of str
        The columns that were read, as in :class:`fastcos.io.Vectors`; not part of the tuple.
    """

    columns: Mapping[str, Any] = MappingProxyType({})


def read_factors(
    path: PathLike,
    users: PathLike | None = None,
    *,
    ids: PathLike | None = None,
    vector_column: str | None = None,
    id_column: str | None = None,
) -> Factors:
    """Read item embeddings and optional user embeddings, and strip bias columns.

    Recognised: implicit's saved models (.npz with item_factors and user_factors); arrays items and
    users, or item_embeddings and user_embeddings; scikit-learn's components_ (d, p), which are
    transposed; all formats of read_vectors. The columns of biases and of ones that implicit's BPR
    and logistic factorisation append are stripped where both sides are given and both show the
    columns of ones. A single matrix keeps all of its columns.

    Parameters
    ----------
    path : str or path-like
        Items, or a model with both sides.
    users : str or path-like, optional
        Users or queries, if path does not hold them.
    ids : str or path-like, optional
        Ids of the items for a file without, as :func:`read_ids` reads them.
    vector_column, id_column : str, optional
        Of the items, as in read_vectors; nothing is recognised or stripped then.

    Raises
    ------
    FastcosFormatError
        As in read_vectors.
    ValueError
        users given although path holds them; sides of different width.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     users = np.column_stack([np.eye(2), np.ones(2)])
    ...     np.savez(f"{folder}/bpr.npz", item_factors=np.ones((4, 3)) / 2, user_factors=users)
    ...     found = read_factors(f"{folder}/bpr.npz")
    >>> found.items.shape, found.notes
    ((4, 2), ('stripped the bias column of the items (BPR)',))
    """
    path = as_path("path", path)
    check_columns(vector_column, id_column)
    has_arrays = suffix_of(path) in NAMED_ARRAY_SUFFIXES
    arrays = read_named_arrays(path) if has_arrays else {}
    sides = None if vector_column is not None else _sides(path, arrays)
    if sides is not None:
        items, own_users, own_ids, notes = sides
        columns: Mapping[str, Any] = {}
    else:
        if has_arrays:
            vectors = vectors_of_arrays(path, arrays, vector_column, id_column)
        else:
            vectors = read_vectors(path, vector_column=vector_column, id_column=id_column)
        (items, own_ids), columns = vectors, vectors.columns
        own_users, notes = None, ()
    if own_users is not None:
        check_none("--users", users, f"where {path} holds the users")
    elif users is not None:
        own_users = read_vectors(as_path("users", users)).vectors
    if own_users is not None:
        check_same_width("users", own_users, "items", items)
    stripped: tuple[str, ...] = ()
    if vector_column is None and not of_export(path):
        items, own_users, stripped = strip_biases(items, own_users)
    if ids is not None:
        own_ids = read_ids(ids, len(items))
    factors = Factors(items, own_users, own_ids, (*notes, *stripped))
    factors.columns = columns
    return factors


def strip_biases(items: Rows, users: Rows | None) -> tuple[Rows, Rows | None, tuple[str, ...]]:
    """Return both sides without columns of biases and of ones, and a note if there were any.

    implicit's logistic factorisation appends (bias, 1) to items and (1, bias) to users; its BPR
    appends (bias) to items and (1) to users. Rows of zeros have no ones. Items without users keep
    all of their columns, because a column of ones alone may just as well be data.
    """
    d = items.shape[1]
    if users is None:
        return items, users, ()
    if d > 2 and _ones(items, -1) and _ones(users, -2):
        kept, note = d - 2, "stripped two bias columns of either side (logistic factorisation)"
    elif d > 1 and _ones(users, -1):
        kept, note = d - 1, "stripped the bias column of the items (BPR)"
    else:
        return items, users, ()
    users = as_mapped_rows("users", users[:, :kept])
    return as_mapped_rows("items", items[:, :kept]), users, (note,)


def common_rows(
    path: PathLike, ids: Array, old_path: PathLike, old_ids: Array
) -> tuple[Integers, Integers]:
    """Return the rows of the common items of two files, matched by id.

    Files without a common id, or without ids and of different lengths, raise FastcosFormatError.
    """
    for name, side in (("ids", ids), ("old_ids", old_ids)):
        if not isinstance(side, np.ndarray) or side.ndim != 1:
            raise TypeError(f"{name} must be a 1-dimensional array, got {format_value(side)}")
    rows, old_rows = (np.arange(len(side), dtype=np.int64) for side in (ids, old_ids))
    if len(ids) == len(old_ids) and np.array_equal(ids, old_ids):
        return rows, old_rows
    if np.array_equal(ids, rows) and np.array_equal(old_ids, old_rows):
        rule = f"hold as many items as {path} ({len(ids)}) if both have no ids"
        raise FastcosFormatError(f"{old_path} must {rule}, got {len(old_ids)}")
    check_row_numbers(old_path, ids, old_ids)
    check_row_numbers(path, old_ids, ids)
    old_rows = positions_in(old_ids, ids)
    rows = np.flatnonzero(old_rows >= 0)
    if not len(rows):
        rule = f"hold items of {path} (such as {ids[0]})"
        raise FastcosFormatError(f"{old_path} must {rule}, got only others (such as {old_ids[0]})")
    return rows, old_rows[rows]


def _sides(
    path: Path, arrays: Mapping[str, Array]
) -> tuple[Rows, Rows | None, Array, tuple[str, ...]] | None:
    """Return items, users, ids and notes of arrays that a model saved; None for other arrays."""
    for item_name, user_name in _SIDES:
        if item_name in arrays and user_name in arrays:
            named = {name: arrays[name] for name in ID_NAMES if name in arrays}
            items, ids = vectors_of_arrays(path, {**named, "vectors": arrays[item_name]})
            return items, as_vector_rows(path, arrays[user_name]), ids, ()
    if "components_" in arrays:
        items = as_vector_rows(path, np.ascontiguousarray(arrays["components_"].T))
        return items, None, np.arange(len(items)), (TRANSPOSED,)
    return None


def _ones(rows: Any, column: int) -> bool:
    """Return whether a column is 1 in every non-zero row, and such a row exists."""
    found = False
    for _, chunk in iter_blocks("vectors", rows, _ROWS):
        non_zero = chunk.any(axis=1)
        if not (chunk[non_zero, column] == 1).all():
            return False
        found = found or bool(non_zero.any())
    return found

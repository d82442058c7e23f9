"""The two sides of a model, without what libraries hide in their factors."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.io.vectors import as_vectors, read_arrays, read_vectors
from fastcos.storage import FastcosFormatError
from fastcos.storage.memmap import as_mapped_rows, iter_blocks
from fastcos.validation import Rows, check_none, check_same_width

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
_ROWS_AT_ONCE = 8192

# what a file calls the items and the users of one model
SIDES = (
    ("item_factors", "user_factors"),  # implicit
    ("items", "users"),
    ("item_embeddings", "user_embeddings"),
)


class Factors(NamedTuple):
    """Item embeddings, user embeddings where there are some, and what was done to them.

    Attributes
    ----------
    items : ndarray (p, d), float32 or float64
    users : ndarray (n, d), float32 or float64, or None
    ids : ndarray (p,), int64 or str
        Of the items; the positions 0 .. p-1 where the file has none.
    notes : tuple of str
        What was recognised and stripped, for a person to read.
    """

    items: Rows
    users: Rows | None
    ids: Array
    notes: tuple[str, ...]


def read_factors(
    path: str | os.PathLike[str], users: str | os.PathLike[str] | None = None
) -> Factors:
    """Read item embeddings and perhaps user embeddings, and strip hidden bias columns.

    Recognised: implicit's saved models (.npz with item_factors and user_factors), and pairs named
    items and users or item_embeddings and user_embeddings; the components_ (d, p) of scikit-learn,
    which are transposed; anything that read_vectors reads. Stripped: the columns of biases and of
    ones that implicit's BPR and logistic factorisation append, told by their ones.

    Parameters
    ----------
    path : str or path-like
        Items, or a model with both sides.
    users : str or path-like, optional
        Users or queries, where path does not hold them.

    Returns
    -------
    Factors

    Raises
    ------
    FastcosFormatError
        As in read_vectors.
    ValueError
        users given although path holds them; sides of different width.
    OSError
        No such file.

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
    path = Path(path)
    arrays = read_arrays(path)
    items, own_users, ids, notes = _sides(path, arrays)
    if own_users is not None:
        check_none("--users", users, f"where {path} holds the users")
    elif users is not None:
        own_users = read_vectors(users).vectors
    if own_users is not None:
        check_same_width("users", own_users, "items", items)
    items, own_users, stripped = strip_biases(items, own_users)
    return Factors(items, own_users, ids, (*notes, *stripped))


def strip_biases(items: Rows, users: Rows | None) -> tuple[Rows, Rows | None, tuple[str, ...]]:
    """Return both sides without columns of biases and of ones, and a note if there were any.

    implicit's logistic factorisation ends items with (bias, 1) and users with (1, bias); its BPR
    ends items with (bias) and users with (1). Rows of zeros have no ones.
    """
    d = items.shape[1]
    if d > 2 and _ones(items, -1) and (users is None or _ones(users, -2)):
        kept, note = d - 2, "stripped two bias columns of either side (logistic factorisation)"
    elif d > 1 and users is not None and _ones(users, -1):
        kept, note = d - 1, "stripped the bias column of the items (BPR)"
    else:
        return items, users, ()
    fewer = None if users is None else as_mapped_rows("users", users[:, :kept])
    return as_mapped_rows("items", items[:, :kept]), fewer, (note,)


def common_rows(
    path: str | os.PathLike[str], ids: Array, old_path: str | os.PathLike[str], old_ids: Array
) -> tuple[Integers, Integers]:
    """Return the rows of two files that are the same items, by id.

    Raises
    ------
    FastcosFormatError
        No id in common; or files without ids and with different numbers of items.
    """
    rows, old_rows = (np.arange(len(some), dtype=np.int64) for some in (ids, old_ids))
    if len(ids) == len(old_ids) and np.array_equal(ids, old_ids):
        return rows, old_rows
    if np.array_equal(ids, rows) and np.array_equal(old_ids, old_rows):
        raise FastcosFormatError(
            f"{old_path} must hold as many items as {path} ({len(ids)}) where neither has ids, got "
            f"{len(old_ids)}"
        )
    _, rows, old_rows = np.intersect1d(
        ids.astype(str), old_ids.astype(str), assume_unique=True, return_indices=True
    )
    if not len(rows):
        raise FastcosFormatError(
            f"{old_path} must hold items of {path} (such as {ids[0]!s}), got others (such as "
            f"{old_ids[0]!s})"
        )
    order = np.argsort(rows)
    return rows[order].astype(np.int64), old_rows[order].astype(np.int64)


def _sides(
    path: Path, arrays: Mapping[str, Array]
) -> tuple[Rows, Rows | None, Array, tuple[str, ...]]:
    for item_name, user_name in SIDES:
        if item_name in arrays and user_name in arrays:
            named = {name: arrays[name] for name in ("ids", "words", "names") if name in arrays}
            items, ids = as_vectors(path, {**named, "vectors": arrays[item_name]})
            users = as_vectors(path, {"vectors": arrays[user_name]}).vectors
            return items, users, ids, ()
    if "components_" in arrays:
        turned = np.ascontiguousarray(arrays["components_"].T)
        items, ids = as_vectors(path, {"vectors": turned})
        note = "transposed components_: its items do not carry the singular values, the users do"
        return items, None, ids, (note,)
    items, ids = as_vectors(path, arrays)
    return items, None, ids, ()


def _ones(rows: Any, column: int) -> bool:
    """Whether a column is 1 in every row that is not zero, and there is such a row."""
    found = False
    for _, some in iter_blocks("vectors", rows, _ROWS_AT_ONCE):
        directed = some.any(axis=1)
        if not (some[directed, column] == 1).all():
            return False
        found = found or bool(directed.any())
    return found

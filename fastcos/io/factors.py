"""Readers of the item and user embeddings that saved models contain."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from fastcos.parallel.memmap import as_mapped_rows, iter_blocks
from fastcos.reports import as_table
from fastcos.similarity.scoring_embeddings import ScoringEmbeddings
from fastcos.storage import FastcosFormatError, PathLike
from fastcos.validation import (
    Integers,
    Rows,
    as_path,
    as_vector,
    check_none,
    check_same_width,
    format_value,
)

# Number of rows that are read from a memory map at a time.
_ROWS = 8192

# Names of the arrays of items, users and their biases, in files and as attributes of models.
SIDES = (
    ("item_factors", "user_factors", "item_biases", "user_biases"),  # implicit
    ("item_embeddings", "user_embeddings", "item_biases", "user_biases"),  # LightFM
    ("qi", "pu", "bi", "bu"),  # Surprise
    ("i_factors", "u_factors", "i_biases", "u_biases"),  # Cornac
)
_SIDES_OF_FILES = (*SIDES, ("items", "users", "item_biases", "user_biases"))


# The biases of the items and of the users.
Biases = tuple[Array | None, Array | None]
TRANSPOSED = (
    "the items are components_.T, which does not include the singular values; transform(X) returns "
    "the users, which include the singular values"
)


@as_table
@dataclass(eq=False)
class Factors:
    """Item embeddings, user embeddings if there are any, and notes on their conversion.

    Attributes
    ----------
    items : ndarray (p, d), float32 or float64
        Item embeddings.
    users : ndarray (n, d), float32 or float64, or None
        User embeddings.
    ids : ndarray (p,), int64 or str
        Ids of the items, or the positions 0 .. p-1 if there are no ids.
    notes : tuple of str
        The conversions that were applied, such as bias columns that were removed.
    columns : mapping of str
        The columns that were read, as in :class:`fastcos.io.Vectors`.
    has_ids : bool
        True if the file or model contains ids, or if the argument ``ids`` was passed. If
        ``has_ids`` is False, the ids are the positions of the rows.
    """

    items: Rows
    users: Rows | None
    ids: Array
    notes: tuple[str, ...]
    columns: Mapping[str, Any] = field(default_factory=dict)
    has_ids: bool = False
    _with_biases: tuple[Rows, Rows] | None = field(default=None, init=False, repr=False)

    @property
    def has_biases(self) -> bool:
        """Whether the model has biases; ``items`` and ``users`` do not contain the biases."""
        return self._with_biases is not None

    def scoring_embeddings(self) -> ScoringEmbeddings:
        """Return rows of users and items whose inner products are the scores of the model.

        Use the returned rows for recommendations, and use ``items`` and ``users`` for similarities
        between items. The bias of an item increases the score of the item for every user, but does
        not tell which items are similar to it. If the model has biases (like BPR), the returned
        rows have one or two columns in addition to the columns of ``items`` and ``users``.

        Returns
        -------
        ScoringEmbeddings
            users and items, for ``top_k(users, items, k, measure="dot", exclude=X)``.

        Raises
        ------
        ValueError
            The model has no users.

        Examples
        --------
        >>> import warnings
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> import fastcos
        >>> model = SimpleNamespace(item_embeddings=np.eye(3), user_embeddings=np.ones((2, 3)),
        ...                         item_biases=[0.0, 2.0, 1.0], user_biases=[0.0, 0.0])
        >>> with warnings.catch_warnings(action="ignore"):
        ...     users, items = fastcos.from_model(model).scoring_embeddings()  # as of LightFM
        >>> fastcos.top_k(users, items, 2, measure="dot").indices.tolist()
        [[1, 2], [1, 2]]
        """
        if self.users is None:
            raise ValueError(
                "users must be given for scoring_embeddings, got a model without users"
            )
        if self._with_biases is not None:
            return ScoringEmbeddings(*self._with_biases)
        return ScoringEmbeddings(self.users, self.items)


def read_factors(
    path: PathLike,
    users: PathLike | None = None,
    *,
    ids: PathLike | None = None,
    vector_column: str | None = None,
    id_column: str | None = None,
) -> Factors:
    """Read item embeddings and optional user embeddings, without the biases of a model.

    The function reads all formats of read_vectors, and recognises the following named arrays:

    - ``item_factors`` and ``user_factors``, as the library implicit saves them;
    - ``items`` and ``users``, or ``item_embeddings`` and ``user_embeddings``, with or without
      ``item_biases`` and ``user_biases``;
    - the arrays of Surprise and Cornac, if they are named like the attributes of the model;
    - ``components_`` (d, p) of scikit-learn, which is transposed.

    In the library implicit, BPR and logistic factorisation append columns of biases and columns of
    ones to items and users. If the file contains both items and users, the function recognises the
    columns of ones, and removes these columns and the columns of biases. If the file contains no
    users, the items are returned with all of their columns.

    The returned rows are meant for similarities between items. For recommendations, use
    ``scoring_embeddings()`` of the result, which includes the biases. If the model has biases, the
    function issues a warning.

    Parameters
    ----------
    path : str or path-like
        File of the items, or of a model with items and users.
    users : str or path-like, optional
        File of users or queries, if ``path`` does not contain them.
    ids : str or path-like, optional
        A file with the ids of the items, in a format that :func:`read_ids` reads. These ids replace
        any ids in ``path``.
    vector_column, id_column : str, optional
        Columns of the items, as in read_vectors. If ``vector_column`` is passed, the function does
        not look for the arrays of a model, and does not remove columns of biases or ones.

    Raises
    ------
    FastcosFormatError
        A file is damaged or unsuitable, as described for :func:`read_vectors`.
    ValueError
        ``users`` is passed although ``path`` contains users, or items and users have different
        widths.

    Examples
    --------
    >>> import warnings
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     users = np.column_stack([np.eye(2), np.ones(2)])
    ...     np.savez(f"{folder}/bpr.npz", item_factors=np.ones((4, 3)) / 2, user_factors=users)
    ...     with warnings.catch_warnings(action="ignore"):
    ...         factors = read_factors(f"{folder}/bpr.npz")
    >>> factors.items.shape, factors.notes
    ((4, 2), ('removed the bias column of the items (BPR)',))
    >>> factors.scoring_embeddings().items.shape
    (4, 3)
    """
    factors = load_factors(path, users, ids=ids, vector_column=vector_column, id_column=id_column)
    warn_of_biases("read_factors", factors)
    return factors


def warn_of_biases(function: str, factors: Factors) -> None:
    """Warn the caller of a public function if biases were left out."""
    if factors.has_biases:
        warnings.warn(
            f"{function} left out the model's biases, because similarities between items do not "
            "depend on biases. To rank the items for a user as the model does, use "
            "scoring_embeddings() of the result.",
            stacklevel=3,
        )


def load_factors(
    path: PathLike,
    users: PathLike | None = None,
    *,
    ids: PathLike | None = None,
    vector_column: str | None = None,
    id_column: str | None = None,
) -> Factors:
    """Return the result of read_factors, but issue no warning, because commands print the notes."""
    path = as_path("path", path)
    check_columns(vector_column, id_column)
    has_arrays = suffix_of(path) in NAMED_ARRAY_SUFFIXES
    arrays = read_named_arrays(path) if has_arrays else {}
    sides = None if vector_column is not None else _sides(path, arrays)
    biases: Biases = (None, None)
    columns: Mapping[str, Any] = {}
    if sides is not None:
        items, user_rows, item_ids, has_ids, notes, biases = sides
    else:
        if has_arrays:
            vectors = vectors_of_arrays(path, arrays, vector_column, id_column)
        else:
            vectors = read_vectors(path, vector_column=vector_column, id_column=id_column)
        (items, item_ids), columns, has_ids = vectors, vectors.columns, vectors.has_ids
        user_rows, notes = None, ()
    if user_rows is not None:
        check_none("users", users, f"if {path} contains the users")
    elif users is not None:
        user_rows = read_vectors(as_path("users", users)).vectors
    if user_rows is not None:
        check_same_width("users", user_rows, "items", items)
    if ids is not None:
        item_ids, has_ids = read_ids(ids, len(items)), True
    if vector_column is not None or of_export(path):
        factors = Factors(items, user_rows, item_ids, notes)
    else:
        factors = for_similarity(items, user_rows, item_ids, notes, *biases)
    factors.columns, factors.has_ids = columns, has_ids
    return factors


def for_similarity(
    items: Rows,
    users: Rows | None,
    ids: Array,
    notes: tuple[str, ...],
    item_biases: Any = None,
    user_biases: Any = None,
) -> Factors:
    """Return factors without biases; ``scoring_embeddings()`` of the result includes the biases.

    ``item_biases`` (p,) and ``user_biases`` (n,) contain the biases of a model that stores them
    apart from the factors. If ``item_biases`` is None, ``strip_biases`` looks for biases among the
    columns of the items and users.
    """
    plain_items, plain_users, bias_notes = strip_biases(items, users)
    with_biases: Any = (users, items)
    if item_biases is not None:
        bias = as_vector("biases of the items", item_biases, len(items))
        plain_items, plain_users, bias_notes = items, users, ("left out the biases of the items",)
        if users is not None:
            user_bias = np.zeros(len(users)) if user_biases is None else user_biases
            user_bias = as_vector("biases of the users", user_bias, len(users))
            with_biases = (
                np.column_stack([users, np.ones(len(users)), user_bias]),
                np.column_stack([items, bias, np.ones(len(items))]),
            )
    factors = Factors(plain_items, plain_users, ids, (*notes, *bias_notes))
    if bias_notes and users is not None:
        factors._with_biases = with_biases
    return factors


def strip_biases(items: Rows, users: Rows | None) -> tuple[Rows, Rows | None, tuple[str, ...]]:
    """Return items and users without bias columns or columns of ones, and a note on these columns.

    In the library implicit, logistic factorisation appends two columns to the items: first the
    biases, then a column of ones. It also appends two columns to the users: first a column of ones,
    then the biases. The BPR model appends a column of biases to the items and a column of ones to
    the users. In a row of items or of users that is zero, the entry in the column of ones is 0. If
    ``users`` is None, a column of ones in the items may be data, so no column is removed from the
    items.
    """
    d = items.shape[1]
    if users is None:
        return items, users, ()
    if d > 2 and _is_ones(items, -1) and _is_ones(users, -2):
        width = d - 2
        note = (
            "removed the last two columns of the items and of the users: on each side, a column of "
            "biases and a column of ones (logistic factorisation)"
        )
    elif d > 1 and _is_ones(users, -1):
        width, note = d - 1, "removed the bias column of the items (BPR)"
    else:
        return items, users, ()
    users = as_mapped_rows("users", users[:, :width])
    return as_mapped_rows("items", items[:, :width]), users, (note,)


def common_rows(
    path: PathLike, ids: Array, old_path: PathLike, old_ids: Array
) -> tuple[Integers, Integers]:
    """Find the items that two files have in common; return their row numbers in each file.

    FastcosFormatError is raised if the two files have no id in common, or if they contain no ids
    and have different lengths.
    """
    for name, side in (("ids", ids), ("old_ids", old_ids)):
        if not isinstance(side, np.ndarray) or side.ndim != 1:
            raise TypeError(f"{name} must be a 1-dimensional array, got {format_value(side)}")
    rows, old_rows = (np.arange(len(side), dtype=np.int64) for side in (ids, old_ids))
    if len(ids) == len(old_ids) and np.array_equal(ids, old_ids):
        return rows, old_rows
    if np.array_equal(ids, rows) and np.array_equal(old_ids, old_rows):
        rule = f"hold as many items as {path} ({len(ids)}), because neither file has ids"
        raise FastcosFormatError(f"{old_path} must {rule}, got {len(old_ids)}")
    check_row_numbers(old_path, ids, old_ids)
    check_row_numbers(path, old_ids, ids)
    old_rows = positions_in(old_ids, ids)
    rows = np.flatnonzero(old_rows >= 0)
    if not len(rows):
        rule = f"hold items of {path} (such as {ids[0]})"
        got = f"only other items (such as {old_ids[0]})"
        raise FastcosFormatError(f"{old_path} must {rule}, got {got}")
    return rows, old_rows[rows]


def _sides(
    path: Path, arrays: Mapping[str, Array]
) -> "tuple[Rows, Rows | None, Array, bool, tuple[str, ...], Biases] | None":
    """Recognise the arrays of a saved model; return None if the file is not a model.

    The result is a tuple (items, users, ids, has_ids, notes, biases), where has_ids says whether
    the file contains ids.
    """
    for item_name, user_name, *bias_names in _SIDES_OF_FILES:
        if item_name in arrays and user_name in arrays:
            id_arrays = {name: arrays[name] for name in ID_NAMES if name in arrays}
            vectors = vectors_of_arrays(path, {**id_arrays, "vectors": arrays[item_name]})
            users = as_vector_rows(path, arrays[user_name])
            item_biases, user_biases = (arrays.get(name) for name in bias_names)
            items, ids = vectors
            return items, users, ids, vectors.has_ids, (), (item_biases, user_biases)
    if "components_" in arrays:
        items = as_vector_rows(path, np.ascontiguousarray(arrays["components_"].T))
        return items, None, np.arange(len(items)), False, (TRANSPOSED,), (None, None)
    return None


def _is_ones(rows: Any, column: int) -> bool:
    """Return whether a column is 1 in all nonzero rows; return False if all rows are zero."""
    has_nonzero_row = False
    for _, chunk in iter_blocks("vectors", rows, _ROWS):
        is_nonzero = chunk.any(axis=1)
        if not (chunk[is_nonzero, column] == 1).all():
            return False
        has_nonzero_row = has_nonzero_row or bool(is_nonzero.any())
    return has_nonzero_row

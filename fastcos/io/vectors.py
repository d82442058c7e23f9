"""Readers of dense vectors with their ids or words, for all formats of vectors."""

import errno
from collections.abc import Collection, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.io.arrays import Array, read_npy, read_npz, read_safetensors
from fastcos.io.column_choice import choose_vector_columns, names_ids, names_pairs
from fastcos.io.column_kinds import Column
from fastcos.io.columns import (
    Cells,
    Unsupported,
    check_distinct,
    ids_of_cells,
    refuse_rows,
)
from fastcos.io.streams import open_text
from fastcos.io.tables import TABLE_SUFFIXES, TEXT_SUFFIXES, Table, open_table, suffix_of
from fastcos.io.word_vectors import WORD_VECTOR_SUFFIXES, read_binary_vectors, read_text_vectors
from fastcos.parallel.memmap import as_mapped_rows, iter_blocks
from fastcos.reports import as_table
from fastcos.storage import FastcosFormatError, PathLike
from fastcos.validation import Integers, as_count, as_path, check_none, check_text

# Number of rows of a memory map that are validated at a time.
_ROWS = 8192
# A table counts as a table of vectors if it has no columns of users and items, and if at least this
# many of its columns contain numbers.
_MIN_NUMBER_COLUMNS = 8
# Names of arrays with ids in .npz and .safetensors files.
ID_NAMES = ("ids", "words", "names")
NAMED_ARRAY_SUFFIXES = (".npz", ".safetensors")
SUFFIXES = (".npy", *NAMED_ARRAY_SUFFIXES, *TABLE_SUFFIXES, *WORD_VECTOR_SUFFIXES)
# The name of the JSON file that `fastcos index export` writes beside the arrays.
EXPORT_FILE = "export.json"


class _VectorFields(NamedTuple):
    vectors: Any
    ids: npt.NDArray[Any]


@as_table
class Vectors(_VectorFields):
    """One vector per row.

    Attributes
    ----------
    vectors : ndarray (n, d), float32 or float64
        The vectors, which are finite, C-contiguous and read-only. An .npy file larger than the
        setting ``working_memory`` is memory-mapped, with the dtype of the file.
    ids : ndarray (n,), int64 or str
        Ids of the rows, in the order of the rows. If the file has no ids, the ids are the positions
        0 .. n-1.
    columns : mapping of str
        The names of the columns or arrays in the file: ``"vectors"`` is a tuple of names, ``"ids"``
        is a name or None, and ``"unused"`` is a tuple of the names that were not read. The mapping
        is empty for formats without names. ``columns`` is not an element of the tuple, so
        ``vectors, ids = read_vectors(path)`` works.
    has_ids : bool
        Whether the file contains the ids. If ``has_ids`` is False, the ids are the positions of the
        rows. ``has_ids`` is not an element of the tuple.
    """

    columns: Mapping[str, Any] = MappingProxyType({})
    has_ids: bool = False


def holds_vectors(path: PathLike) -> bool:
    """Return whether a file or folder contains vectors rather than interactions.

    The following files and folders contain vectors: .npy, .safetensors, .vec and .bin files; .npz
    files with a 2-dimensional array; tables with a column of lists; tables with at least eight
    columns of numbers and without columns of users and items; and folders that ``fastcos index
    export`` wrote. Only the first rows of a table are examined. A damaged .npz or Parquet file
    raises FastcosFormatError.
    """
    path = as_path("path", path)
    kind = suffix_of(path)
    if kind == ".npz":
        return any(array.ndim == 2 for array in read_npz(path).values())
    if kind in TABLE_SUFFIXES:
        return _has_vector_columns(path)
    return kind in (".npy", ".safetensors", ".vec", ".bin") or is_export(path)


def is_export(path: Path) -> bool:
    """Return whether ``fastcos index export`` wrote the folder."""
    return (path / EXPORT_FILE).is_file() and (path / "items.npy").is_file()


def of_export(path: Path) -> bool:
    """Return True for a folder that ``fastcos index export`` wrote, and for its file items.npy."""
    return is_export(path) or (path.name == "items.npy" and is_export(path.parent))


def read_vectors(
    path: PathLike, *, vector_column: str | None = None, id_column: str | None = None
) -> Vectors:
    """Read dense vectors, with their words or ids if the file contains any; nothing is unpickled.

    Parameters
    ----------
    path : str or path-like
        A file whose suffix determines the format. A .npy file contains a 2-dimensional array, and
        .npz and .safetensors files contain arrays with names. Files with the suffix .parquet,
        .arrow, .feather, .csv, .tsv, .jsonl or .ndjson (one JSON object per line) are tables. A
        table contains ids, and either a column of lists or one column per dimension. Files with the
        suffix .txt or .vec contain word vectors in the text format of word2vec or GloVe, and .bin
        files contain word vectors in the binary format of word2vec. Text may be compressed by gzip
        or zip. The path may also be a folder that ``fastcos index export`` wrote.
    vector_column : str, optional
        The column of lists in a table, or the array in an .npz or .safetensors file. By default,
        the function reads the column of lists or the 2-dimensional array, if there is exactly one.
        A table without lists has one column per dimension.
    id_column : str, optional
        The column or array of ids; "" for no ids. If exactly one column has a name for ids, such as
        ``id``, ``item``, ``ids`` or ``words``, the ids are read from this column by default. If no
        column has a name for ids, the ids are read from the index that pandas, polars or R has
        written. If the table has no index either, the ids are read from the column of texts, if
        there is exactly one such column. If the vectors are in a column of lists, the ids may be
        whole numbers instead of texts.

    Returns
    -------
    Vectors
        The vectors and ids; the attribute ``columns`` lists the columns that were read.

    Raises
    ------
    FastcosFormatError
        The file is damaged; there is no column of vectors, or more than one; a cell is blank,
        broken or not finite (the message names its column and row); ids repeat or are invalid; or
        it is unclear whether the first line is a header.

    Notes
    -----
    The kind of a column depends on all of its cells. Every cell is read as if the table had been
    saved as a CSV file, so the same table yields the same result in every format. CSV and JSON
    lines are read as a stream.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/v.npz", words=np.array(["a", "b"]), vectors=np.eye(2))
    ...     vectors, ids = read_vectors(f"{folder}/v.npz")
    >>> vectors.shape, ids.tolist()
    ((2, 2), ['a', 'b'])
    """
    path = as_path("path", path)
    check_columns(vector_column, id_column)
    kind = suffix_of(path)
    if kind in TABLE_SUFFIXES:
        return _read_table(path, vector_column, id_column)
    if kind in NAMED_ARRAY_SUFFIXES:
        return vectors_of_arrays(path, read_named_arrays(path), vector_column, id_column)
    if is_export(path):
        return read_vectors(path / "items.npy", vector_column=vector_column, id_column=id_column)
    if kind in (".npy", *WORD_VECTOR_SUFFIXES):
        check_none("vector_column", vector_column, f"for {kind}, which has one array")
        check_none("id_column", id_column or None, f"for {kind}, which has no other columns")
    if kind == ".npy":
        ids = path.with_name("ids.npy")
        has_ids = of_export(path) and ids.is_file()
        rows = as_vector_rows(path, read_npy(path))
        return _vectors(rows, read_ids(ids, len(rows)) if has_ids else None)
    if kind in WORD_VECTOR_SUFFIXES:
        words, rows = read_binary_vectors(path) if kind == ".bin" else read_text_vectors(path)
        word_ids = ids_of_cells(path, "word", words, np.arange(1, len(words) + 1))
        check_distinct(path, "words", word_ids)
        vectors = _vectors(as_vector_rows(path, rows), word_ids)
        vectors.columns = {"vectors": ("numbers",), "ids": "word", "unused": ()}
        return vectors
    rule, got = f"be a file of vectors ({', '.join(SUFFIXES)})", kind or "no suffix"
    if kind in (".pt", ".pth", ".pkl", ".kv", ".joblib"):
        got = f"a pickle ({kind}), which may run code. Save the array with numpy.save instead"
    if path.is_dir():
        if (path / "header.json").is_file():
            got = "a saved index, which `fastcos index search` and `fastcos index duplicates` read"
        else:
            rule = "be a file of vectors, or a folder that fastcos fit or export wrote"
            got = (
                "another folder. If the vectors belong to a model of fastcos, save its "
                "item_embeddings() as .npy"
            )
    elif not path.exists():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
    raise FastcosFormatError(f"{path} must {rule}, got {got}")


def check_columns(vector_column: Any, id_column: Any) -> None:
    """Raise an error if a column name is neither None nor a text; only `id_column` may be ""."""
    check_text("vector_column", vector_column)
    check_text("id_column", None if id_column == "" else id_column)


def read_named_arrays(path: Path) -> Mapping[str, Array]:
    """Read the arrays of an .npz or .safetensors file."""
    return read_npz(path) if suffix_of(path) == ".npz" else read_safetensors(path)


def as_vector_rows(path: Path, rows: Any) -> Any:
    """Return an array of a file as rows (n, d); raise FastcosFormatError for invalid values."""
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        rule, got = "hold one 2-dimensional array of numbers", f"{rows.dtype} {rows.shape}"
        raise FastcosFormatError(f"{path} must {rule}, got {got}")
    if rows.dtype.kind == "b":
        rows = rows.astype(np.float32)
    try:
        vectors = as_mapped_rows("vectors", rows)
        for _ in iter_blocks("vectors", vectors, _ROWS):
            pass  # Reading a block raises ValueError if a value is not finite.
    except (TypeError, ValueError) as error:
        raise FastcosFormatError(f"{path}: {error}") from None
    return vectors


def vectors_of_arrays(
    path: Path,
    arrays: Mapping[str, Array],
    vector_column: str | None = None,
    id_column: str | None = None,
) -> Vectors:
    """Return the vectors of named arrays, which are treated like the columns of a table.

    An array (n, d) is treated like a column of lists. An array (n,) is treated like a column of
    numbers or texts. Arrays with no dimension or with more than two dimensions are not used.
    """
    rows = {n: len(a) for n, a in arrays.items() if a.ndim == 2 and a.dtype.kind in "fiub"}
    if vector_column is not None:
        if vector_column not in rows:
            shapes = ", ".join(f"{name} {a.shape}" for name, a in arrays.items())
            rule = f"name an array (n, d) of numbers in {path} ({shapes[:200]})"
            raise FastcosFormatError(f"vector_column must {rule}, got {vector_column!r}")
        rows = {vector_column: rows[vector_column]}
    if id_column is None:
        named = [name for name in ID_NAMES if name in arrays]
        id_column = named[0] if len(named) == 1 and rows else None
    n = next(iter(rows.values())) if rows else max(map(np.size, arrays.values()), default=0)
    columns = {}
    for name, values in arrays.items():
        is_column = values.ndim == 1 and (len(values) == n or not rows or name == id_column)
        if not is_column and name not in rows:
            continue
        if len(values) != n and (values.ndim == 1 or len(rows) == 1):
            got = f"{name} of shape {values.shape}"
            raise FastcosFormatError(f"{path} must hold arrays of {n} rows each, got {got}")
        columns[name] = Column(name, stores_cells=values.ndim == 1)
        if len(values):
            columns[name].add(_cells_of_array(values), np.arange(1, len(values) + 1))
    if not n:
        raise FastcosFormatError(f"{path} must have at least one row, got none")
    vector_columns, id_column = choose_vector_columns(path, columns, vector_column, id_column)
    lines = np.arange(1, n + 1)
    return _vectors_of_columns(path, columns, [*arrays], lines, vector_columns, id_column)


def _cells_of_array(values: Array) -> Cells:
    """Return an array as the cells of a column."""
    if values.dtype.kind in "iufb":
        return values
    if values.dtype.kind in "US" or values.dtype == "datetime64[D]":
        cells: list[Any] = values.tolist()
        return cells
    return [Unsupported(str(values.dtype), is_nested=values.ndim > 1)] * len(values)


def _read_table(path: Path, vector_column: str | None, id_column: str | None) -> Vectors:
    with open_table(path, header=None) as table:
        id_names = [name for name in table.names if names_ids(name)] if table.lists else []
        names_to_read = None  # None stands for all columns.
        if table.lists and vector_column in (None, *table.lists) and (id_names or id_column):
            names_to_read = [*table.lists, *(id_names if id_column is None else [id_column])]
            names_to_read = [name for name in dict.fromkeys(names_to_read) if name in table.names]
        columns, lines = _read_columns(table, names_to_read, id_column)
        names = table.names
    if names == [*columns] and len(names) == 1 and columns[names[0]].kind == "odd numbers":
        rule = "have columns separated by tab, comma, semicolon or '::'"
        raise FastcosFormatError(f"{path} must {rule}, got one column {names[0][:60]!r}")
    vector_columns, id_column = choose_vector_columns(path, columns, vector_column, id_column)
    if id_column is not None and not columns[id_column].stores_cells:
        columns[id_column] = Column(id_column, stores_cells=True)
        with open_table(path, header=None) as table:
            for chunk_lines, (cells,) in table.chunks([id_column]):
                columns[id_column].add(cells, chunk_lines)
    return _vectors_of_columns(path, columns, names, lines, vector_columns, id_column)


def _read_columns(
    table: Table, names: Collection[str] | None, id_column: str | None
) -> tuple[dict[str, Column], Integers]:
    """Read the columns with these names, or all columns if ``names`` is None.

    Return the columns, and the line number of every row.
    """
    columns: dict[str, Column] = {}
    lines = np.zeros(0, np.int64)
    parts: list[Integers] = []
    for chunk_lines, chunk_cells in table.chunks(None if names is None else list(names)):
        chunk_names = table.names if names is None else list(names)
        if len(set(chunk_names)) < len(chunk_names):
            repeated = next(name for name in chunk_names if chunk_names.count(name) > 1)
            rule = "name every column once"
            raise FastcosFormatError(f"{table.path} must {rule}, got {repeated[:40]!r} twice")
        for name, cells in zip(chunk_names, chunk_cells, strict=True):
            if name not in columns:
                stores_cells = name == id_column if id_column is not None else names_ids(name)
                columns[name] = Column(name, stores_cells)
                # In JSON lines, a key may occur for the first time after the first chunk.
                if parts:
                    previous_lines = np.concatenate(parts)
                    columns[name].add([None] * len(previous_lines), previous_lines)
            columns[name].add(cells, chunk_lines)
        parts.append(chunk_lines)
    if not parts:
        raise FastcosFormatError(f"{table.path} must have at least one row, got none")
    lines = np.concatenate(parts)
    return columns, lines


def _vectors(rows: Any, ids: npt.NDArray[Any] | None) -> Vectors:
    """Return the vectors with their ids, or with their positions if there are no ids."""
    vectors = Vectors(rows, np.arange(len(rows)) if ids is None else ids)
    vectors.has_ids = ids is not None
    return vectors


def _vectors_of_columns(
    path: Path,
    columns: Mapping[str, Column],
    names: Collection[str],
    lines: Integers,
    vector_columns: list[str],
    id_column: str | None,
) -> Vectors:
    """Return the vectors and the ids that the columns of a table contain."""
    if columns[vector_columns[0]].kind == "lists":
        rows = columns[vector_columns[0]].lists(path)
        is_invalid = ~np.isfinite(rows).all(axis=1) if rows.dtype.kind == "f" else np.zeros(0, bool)
        if is_invalid.any():
            rule = f"column {vector_columns[0]!r} must hold finite numbers"
            values = rows[is_invalid][0]
            refuse_rows(path, rule, str(values[~np.isfinite(values)][0]), lines[is_invalid])
    else:
        numbers = [columns[name].numbers(path) for name in vector_columns]
        types = {column.dtype for column in numbers}
        is_float = len(types) == 1 and numbers[0].dtype.kind == "f"
        dtype = numbers[0].dtype if is_float else np.float64
        rows = np.empty((len(lines), len(vector_columns)), dtype)
        for dimension, column in enumerate(numbers):
            rows[:, dimension] = column
    valid_rows = as_vector_rows(path, rows)
    ids = None
    if id_column is not None:
        ids = columns[id_column].ids(path)
        if len(ids) != len(valid_rows):
            rule = f"hold one id for each of {len(valid_rows)} vectors"
            raise FastcosFormatError(f"{path} must {rule}, got {len(ids)} in {id_column!r}")
        check_distinct(path, id_column, ids)
    vectors = _vectors(valid_rows, ids)
    unused = tuple(name for name in names if name not in vector_columns and name != id_column)
    vectors.columns = {"vectors": tuple(vector_columns), "ids": id_column, "unused": unused}
    return vectors


def read_ids(path: PathLike, length: int | None = None) -> npt.NDArray[Any]:
    """Read one id per row if a length is passed; otherwise, read a list of ids and drop repeats.

    The ids are returned in the order of the file. The file may be .npy; .npz with an array ``ids``;
    text with one id per line; or a table (.csv, .tsv, .jsonl, .parquet, .arrow) with a header. A
    table of several columns must have exactly one column with a name such as ``id`` or ``item``.
    Text may end with blank lines. If no length is passed, blank lines may also stand between ids.
    The function raises FastcosFormatError if the file is damaged, if an id is missing, or if the
    file does not contain ``length`` distinct ids.
    """
    path = as_path("path", path)
    if length is not None:
        length = as_count("length", length, 0)
    kind = suffix_of(path)
    name: str = "ids"
    if kind in TABLE_SUFFIXES:
        name, ids = _table_ids(path)
    elif kind in (".npy", ".npz"):
        stored = np.asarray(read_npy(path)) if kind == ".npy" else read_npz(path).get("ids")
        if stored is None or stored.ndim != 1:
            got = "none" if stored is None else f"shape {stored.shape}, dtype {stored.dtype}"
            raise FastcosFormatError(f"{path} must hold {length or 'a list of'} ids, got {got}")
        lines = np.arange(1, len(stored) + 1)
        ids = ids_of_cells(path, "ids", _cells_of_array(stored), lines)
    else:
        with open_text(path) as stream:
            text = stream.read().decode("utf-8", "surrogateescape")
        texts = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        rows = np.array([row for row, text in enumerate(texts, 1) if text.strip()], np.int64)
        if length is not None and len(rows) and rows[-1] != len(rows):
            blank = np.setdiff1d(np.arange(1, rows[-1]), rows)
            refuse_rows(path, "must have an id in every line", "a blank", blank)
        ids = ids_of_cells(path, "ids", [texts[row - 1] for row in rows], rows)
    if length not in (None, len(ids)):
        got = f"shape {ids.shape}, dtype {ids.dtype}"
        raise FastcosFormatError(f"{path} must hold {length} ids, got {got}")
    if length is None:
        return ids[np.sort(np.unique(ids, return_index=True)[1])]
    check_distinct(path, name, ids)
    return ids


def _table_ids(path: Path) -> tuple[str, npt.NDArray[Any]]:
    """Return the name of the column of ids, and the ids.

    If exactly one column has a name for ids, such as id or item, it is the column of ids.
    Otherwise, the table must have only one column.
    """
    with open_table(path, header=None) as table:
        id_names = [name for name in table.names if names_ids(name)]
        name = id_names[0] if len(id_names) == 1 else table.names[0]
        if len(id_names) != 1 and len(table.names) > 1:
            rule = "have a single column, or exactly one column with a name such as id or item"
            raise FastcosFormatError(f"{path} must {rule}, got {', '.join(table.names)[:100]}")
        column = Column(name, stores_cells=True)
        for lines, (cells,) in table.chunks([name]):
            column.add(cells, lines)
    if not id_names and suffix_of(path) in TEXT_SUFFIXES and column.kind == "texts":
        rule = "begin with a header line such as 'id', or be a .txt file with one id per line"
        raise FastcosFormatError(f"{path} must {rule}, got {name[:40]!r}")
    return name, column.ids(path)


def _has_vector_columns(path: Path) -> bool:
    """Return whether a table contains vectors; return False if it contains interactions.

    If the table cannot be read, the function returns False.
    """
    try:
        with open_table(path, header=None) as table:
            if table.lists:
                return True
            columns: dict[str, Column] = {}
            for lines, all_cells in islice(table.chunks(None), 1):
                for name, cells in zip(table.names, all_cells, strict=True):
                    columns[name] = Column(name)
                    columns[name].add(cells, lines)
    except FastcosFormatError:  # read_interactions reads the file next and raises this error again
        return False
    kinds = [column.kind for column in columns.values()]
    is_wide = kinds.count("numbers") >= _MIN_NUMBER_COLUMNS and not names_pairs([*columns])
    return "lists" in kinds or is_wide

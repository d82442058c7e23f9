"""Dense vectors with their ids or words, from all formats of vectors."""

import errno
import json
import mmap
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.io.arrays import Array, read_npy, read_npz, read_safetensors
from fastcos.io.columns import (
    LONGEST_ID,
    as_ids,
    check_distinct,
    choose_vector_columns,
    names_pairs,
)
from fastcos.io.parquet import ARROW_SUFFIXES, PARQUET_SUFFIXES, ParquetTable, read_vector_table
from fastcos.io.streams import open_bytes
from fastcos.io.tables import DelimitedTable
from fastcos.reports.table import as_table
from fastcos.storage import FastcosFormatError, PathLike
from fastcos.storage.memmap import as_mapped_rows, iter_blocks
from fastcos.validation import as_path, check_none, check_text

# rows of a memory map that are validated at once
_ROWS = 8192
# columns of numbers from which on a table without a user and an item holds vectors
_FEWEST_NUMBERS = 8
# digits of a declared size: more are no size, and Python refuses to read 4,300
_MOST_DIGITS = 18
ID_NAMES = ("ids", "words", "names")
_TABLES = (".csv", ".tsv")
SUFFIXES = (
    ".npy", ".npz", ".safetensors", *PARQUET_SUFFIXES, *ARROW_SUFFIXES, ".jsonl", *_TABLES, ".txt",
    ".vec", ".bin",
)  # fmt: skip
# what export writes beside its arrays
EXPORT_FILE = "export.json"


@as_table
class Vectors(NamedTuple):
    """One vector per row.

    Attributes
    ----------
    vectors : ndarray (n, d), float32 or float64
        Finite, C-contiguous, read-only. An .npy file larger than the setting ``working_memory`` is
        memory-mapped and keeps its dtype.
    ids : ndarray (n,), int64 or str
        In row order; the positions 0 .. n-1 if the file has none.
    """

    vectors: Any
    ids: npt.NDArray[Any]


def holds_vectors(path: PathLike) -> bool:
    """Return whether a file or folder holds vectors, where it could also hold interactions.

    It does if it is .npy, .safetensors, .jsonl, .vec or .bin; .npz with a 2-dimensional array; a
    table with a column of lists, or without users and items but with eight columns of numbers; or
    what ``fastcos index export`` wrote. Raises FastcosFormatError for a damaged .npz or Parquet
    file.
    """
    path = as_path("path", path)
    kind = _kind(path)
    if kind == ".npz":
        return any(array.ndim == 2 for array in read_npz(path).values())
    if kind in (*PARQUET_SUFFIXES, *ARROW_SUFFIXES, *_TABLES):
        return _has_vector_columns(path)
    return kind in (".npy", ".safetensors", ".jsonl", ".vec", ".bin") or is_export(path)


def is_export(path: Path) -> bool:
    """Return whether ``fastcos index export`` wrote the folder."""
    return (path / EXPORT_FILE).is_file() and (path / "items.npy").is_file()


def of_export(path: Path) -> bool:
    """Return whether a path is a folder of ``fastcos index export``, or the items in it."""
    return is_export(path) or (path.name == "items.npy" and is_export(path.parent))


def read_vectors(
    path: PathLike, *, vector_column: str | None = None, id_column: str | None = None
) -> Vectors:
    """Read dense vectors, and their words or ids if the file has them. Nothing is unpickled.

    Parameters
    ----------
    path : str or path-like
        By its suffix: .npy, a 2-dimensional array; .npz or .safetensors, arrays by name; .parquet,
        .arrow or .feather, .csv or .tsv (also gzipped), .jsonl (one JSON object a line), tables
        with a column of lists or one column per dimension, and ids; .txt or .vec, word vectors of
        word2vec or GloVe (also gzipped); .bin, word2vec's binary format. Or the folder that
        ``fastcos index export`` wrote.
    vector_column : str, optional
        The column of lists of a table, or the array of an .npz or .safetensors file. Default: the
        only one. A table without lists has one column per dimension.
    id_column : str, optional
        The column or array of ids; "" for none. Default: the only one with a name such as id,
        item, ids, words; else the only column of texts or whole numbers.

    Returns
    -------
    Vectors

    Raises
    ------
    FastcosFormatError
        Damaged; no or several such arrays; not finite; repeated ids, or another number of them.

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
    arrays = read_arrays(path, vector_column, id_column)
    return as_vectors(path, arrays, vector_column, id_column)


def check_columns(vector_column: Any, id_column: Any) -> None:
    """Refuse columns that are no texts; an empty id_column is none."""
    check_text("vector_column", vector_column)
    check_text("id_column", None if id_column == "" else id_column)


def read_arrays(
    path: Path, vector_column: str | None = None, id_column: str | None = None
) -> Mapping[str, Array]:
    """Return the arrays of a file of vectors, by its suffix; a table's are vectors and ids."""
    kind = _kind(path)
    if kind in (".npy", ".txt", ".vec", ".bin"):
        check_none("vector_column", vector_column, f"for {kind}, which has one array")
        check_none("id_column", id_column or None, f"for {kind}, which has no other columns")
    if kind == ".npy":
        ids = path.with_name("ids.npy")
        has_ids = of_export(path) and ids.is_file()
        return {"vectors": read_npy(path)} | ({"ids": read_npy(ids)} if has_ids else {})
    if kind in _READERS:
        return _READERS[kind](path)
    if kind in (*PARQUET_SUFFIXES, *ARROW_SUFFIXES):
        return read_vector_table(path, vector_column, id_column)
    if kind in (".jsonl", *_TABLES):
        records = _json_records(path) if kind == ".jsonl" else _table_records(path)
        return _read_records(path, records, vector_column, id_column)
    if is_export(path):
        return read_arrays(path / "items.npy")
    what = kind or "no suffix"
    if kind in (".pt", ".pth", ".pkl", ".kv", ".joblib"):
        what = f"{kind}, a pickle, which may run code: save the array by numpy.save"
    if path.is_dir():
        what = "a folder that is not of fastcos fit or export: save item_embeddings() as .npy"
        if (path / "header.json").is_file():
            what = "a saved index, which fastcos index search and duplicates read"
    elif not path.exists():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
    raise FastcosFormatError(
        f"{path} must be a file of vectors ({', '.join(SUFFIXES)}), got {what}"
    )


def _kind(path: Path) -> str:
    kind = path.suffix.lower()
    return Path(path.stem).suffix.lower() if kind == ".gz" else kind


def as_vectors(
    path: Path,
    arrays: Mapping[str, Array],
    vector_column: str | None = None,
    id_column: str | None = None,
) -> Vectors:
    """Return the named or only 2-dimensional array of numbers, with its ids if there are any."""
    of_table = _kind(path) not in (".npz", ".safetensors")
    if vector_column is not None and not of_table:
        if vector_column not in arrays:
            rule = f"an array of {path} ({', '.join(arrays)})"
            raise FastcosFormatError(f"vector_column must be {rule}, got {vector_column!r}")
        arrays = {n: a for n, a in arrays.items() if n == vector_column or a.ndim == 1}
    held = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items())
    found = [array for array in arrays.values() if array.ndim == 2 and array.dtype.kind in "fiub"]
    if len(found) != 1:
        hint = " (give vector_column)" if len(found) > 1 else ""
        got = f"{held[:200] or 'nothing'}{hint}"
        raise FastcosFormatError(f"{path} must hold one 2-dimensional array of numbers, got {got}")
    try:
        vectors = as_mapped_rows("vectors", found[0])
        for _ in iter_blocks("vectors", vectors, _ROWS):
            pass  # reading refuses values that are not finite
    except (TypeError, ValueError) as error:
        raise FastcosFormatError(f"{path}: {error}") from None
    named = [name for name in ID_NAMES if name in arrays]
    if id_column is not None and not of_table:
        named = [id_column] if id_column else []
        if id_column and id_column not in arrays:
            raise FastcosFormatError(f"id_column must be an array of {path}, got {id_column!r}")
    if not named:
        return Vectors(vectors, np.arange(len(vectors)))
    ids = arrays[named[0]]
    if len(named) > 1 or ids.shape != (len(vectors),) or ids.dtype.kind not in "iuU":
        rule = f"hold one id or word for each of {len(vectors)} vectors"
        got = f"{', '.join(named)} of shape {ids.shape}, dtype {ids.dtype}"
        raise FastcosFormatError(f"{path} must {rule}, got {got}")
    check_distinct(path, named[0], ids)
    return Vectors(vectors, ids)


def read_ids(path: PathLike, length: int | None = None) -> npt.NDArray[Any]:
    """Read one id for each of some rows, in their order; without a length, each id once.

    The file is .npy, .npz with the array ids, or text with one id a line; blank lines are none.
    Raises FastcosFormatError if it is damaged, or does not have length different ids.
    """
    path = as_path("path", path)
    if path.suffix == ".npz":
        ids = read_npz(path).get("ids")
    elif path.suffix == ".npy":
        ids = np.asarray(read_npy(path))
    else:
        with open_bytes(path) as lines:
            filled = ((row, line.strip()) for row, line in enumerate(lines, 1) if line.strip())
            ids = as_ids([_as_word(path, text, row) for row, text in filled])
    is_list = ids is not None and ids.ndim == 1 and ids.dtype.kind in "iuU"
    if ids is None or not is_list or length not in (None, len(ids)):
        what = "none" if ids is None else f"shape {ids.shape}, dtype {ids.dtype}"
        raise FastcosFormatError(f"{path} must hold {length or 'a list of'} ids, got {what}")
    if length is None:
        return ids[np.sort(np.unique(ids, return_index=True)[1])]
    check_distinct(path, "ids", ids)
    return ids


def _read_text_vectors(path: Path) -> Mapping[str, Array]:
    """Read lines ``word number ... number``; word2vec's first line ``n d`` is optional.

    A word may have spaces: the last d fields are the numbers.
    """
    entries, declared, width = array("f"), None, 0
    words: dict[str, int] = {}
    with open_bytes(path) as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split()
            if number == 1 and re.fullmatch(rb"[+-]?\d+\s+[+-]?\d+", line.strip()):
                if not all(field.isdigit() and len(field) <= _MOST_DIGITS for field in fields):
                    rule = f"declare counts of at most {_MOST_DIGITS} digits in line 1"
                    got = line[:40].decode().strip()
                    raise FastcosFormatError(f"{path} must {rule}, got {got!r}")
                declared, width = int(fields[0]), int(fields[1])
                continue
            if not fields:
                continue
            width = width or len(fields) - 1
            word, *texts = line.strip().rsplit(None, width)
            broken = b"_" in line and any(b"_" in text for text in texts)
            if len(texts) != width or not width or broken or not _add_numbers(entries, texts):
                rule = f"have a word and {max(width, 1)} numbers in every line"
                got = f"{line[:40].decode(errors='replace').strip()!r} in line {number}"
                raise FastcosFormatError(f"{path} must {rule}, got {got}")
            text = _as_word(path, word, number)
            if text in words:  # refused here, so that a bomb of equal lines fills no memory
                raise FastcosFormatError(
                    f"{path}: words must be distinct, got {text!r} again in line {number}"
                )
            words[text] = number
    if not words or declared not in (None, len(words)):
        wanted = "at least one vector" if declared is None else f"{declared} vectors"
        raise FastcosFormatError(f"{path} must hold {wanted}, got {len(words)}")
    vectors = np.frombuffer(entries, np.float32).reshape(len(words), width)
    return {"words": np.array(list(words), np.str_), "vectors": vectors}


def _read_binary_vectors(path: Path) -> Mapping[str, Array]:
    """Read word2vec's binary format: ``n d`` and a line end, then word, space, d float32 each."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.readline(64)
        fields = head.split()
        if len(fields) != 2 or not all(field.isdigit() for field in fields):
            raise _not_binary(path, f"a first line {head[:30]!r}")
        n, d = int(fields[0]), int(fields[1])
        # a vector takes at least a letter, a space and the numbers
        if not n or not d or n * (4 * d + 2) > size:
            raise _not_binary(path, f"{size} bytes for {n} vectors of {d} numbers")
        words, vectors, at = [], np.empty((n, d), np.float32), len(head)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for row in range(n):
                space = content.find(b" ", at)
                end = space + 1 + 4 * d
                if space < 0 or end > size:
                    raise _not_binary(path, f"an end in vector {row + 1} of {n}")
                words.append(_as_word(path, content[at:space].lstrip(b"\n"), row + 1))
                vectors[row] = np.frombuffer(content[space + 1 : end], "<f4")
                at = end
    return {"words": np.array(words, np.str_), "vectors": vectors}


def _as_word(path: Path, word: bytes, number: int) -> str:
    """Return a word as text; an array of words takes as much memory for each as for the longest."""
    text = word.decode(errors="backslashreplace")
    if len(text) > LONGEST_ID:
        rule = f"have words of at most {LONGEST_ID} letters"
        raise FastcosFormatError(f"{path} must {rule}, got {len(text)} in vector {number}")
    return text


def _add_numbers(entries: "array[float]", texts: list[Any]) -> bool:
    """Append texts as numbers; False if one is no number. Python reads 1_000, others do not."""
    if any(isinstance(text, str) and "_" in text for text in texts):
        return False
    try:
        entries.extend(map(float, texts))
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _json_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of the lines of a file, with the numbers of their lines."""
    with open_bytes(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                what = type(record).__name__
            except (ValueError, RecursionError) as error:
                record, what = None, str(error) or type(error).__name__
            if not isinstance(record, dict):
                raise FastcosFormatError(
                    f"{path} must have a JSON object in every line, got {what} in line {number}"
                )
            yield number, record


def _table_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a delimited table, with lists where a cell has one; header optional."""
    with open_bytes(path) as stream:
        names = DelimitedTable(stream, path, None, True).names
    # a first line whose fields, but the first, are all numbers is no header
    has_header = any(_as_number(name) is None for name in names[1:])
    with open_bytes(path) as stream:
        table = DelimitedTable(stream, path, None, has_header)
        for lines, rows in table.rows():
            for number, row in zip(lines.tolist(), rows, strict=True):
                yield number, dict(zip(table.names, map(_as_cell, row), strict=True))


def _has_vector_columns(path: Path) -> bool:
    """Whether a table has vectors in place of interactions; False if it cannot be read as one."""
    try:
        if _kind(path) in _TABLES:
            _, first = next(_table_records(path), (0, {}))
            lists, numbers, _ = _kinds(first)
        else:
            table = ParquetTable(path)
            lists, numbers = table.names_of_lists(), table.names_of("floating")
    except FastcosFormatError:  # the reader of interactions reports it
        return False
    return bool(lists) or (len(numbers) >= _FEWEST_NUMBERS and not names_pairs(numbers))


def _kinds(record: dict[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Return the names of the lists, of the numbers and of the texts of a row."""
    lists, numbers, texts = [], [], []
    for name, value in record.items():
        if isinstance(value, list):
            lists.append(name)
        elif isinstance(value, (int, float)) or (
            isinstance(value, str) and _as_number(value) is not None
        ):
            numbers.append(name)
        elif isinstance(value, str):
            texts.append(name)
    return lists, numbers, texts


def _as_cell(text: str) -> Any:
    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return text


def _as_number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _read_records(
    path: Path,
    records: Iterator[tuple[int, dict[str, Any]]],
    vector_column: str | None,
    id_column: str | None,
) -> Mapping[str, Array]:
    """Return the arrays vectors and, if a column holds them, ids of the rows of a table."""
    first = next(records, None)
    if first is None:
        raise FastcosFormatError(f"{path} must have at least one row, got none")
    columns, id_name = choose_vector_columns(path, *_kinds(first[1]), vector_column, id_column)
    entries, ids, width = array("d"), [], 0
    for number, record in chain([first], records):
        try:
            cells = [record[name] for name in columns]
            id_ = None if id_name is None else record[id_name]
        except KeyError as error:
            rule = f"have the column {error.args[0]!r} in every row"
            raise FastcosFormatError(f"{path} must {rule}, got none in line {number}") from None
        values = cells[0] if isinstance(cells[0], list) else cells
        width = width or len(values)
        if len(values) != width or not _add_numbers(entries, values):
            got = f"{str(values)[:40]} in line {number}"
            raise FastcosFormatError(f"{path} must have {width} numbers in every row, got {got}")
        if id_name is not None and (
            not isinstance(id_, (str, int)) or isinstance(id_, bool) or len(str(id_)) > LONGEST_ID
        ):
            rule = f"column {id_name!r} must hold ids of at most {LONGEST_ID} letters"
            raise FastcosFormatError(f"{path}: {rule}, got {str(id_)[:40]!r} in line {number}")
        ids.append(str(id_))
    found = {"vectors": np.frombuffer(entries).reshape(len(ids), width)}
    return found if id_name is None else found | {"ids": as_ids(ids)}


def _not_binary(path: Path, came: str) -> FastcosFormatError:
    return FastcosFormatError(
        f"{path} must be a whole file in word2vec's binary format, got {came}"
    )


_READERS: dict[str, Callable[[Path], Mapping[str, Array]]] = {
    ".npz": read_npz, ".safetensors": read_safetensors, ".bin": _read_binary_vectors,
    ".txt": _read_text_vectors, ".vec": _read_text_vectors,
}  # fmt: skip

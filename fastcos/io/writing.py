"""Atomic writing of files: a file is complete, or it is unchanged."""

import csv
import errno
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.io.errors import import_for
from fastcos.storage import PathLike
from fastcos.storage.directory import sync_directory
from fastcos.validation import as_instance, as_list, as_path, format_value, one_line

# what a cell starts with that spreadsheets run
_FORMULAS = ("=", "+", "-", "@", "\t")


@contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path, which replaces path at the end of the block.

    The temporary file, which the block must write, is in the same directory and has the same
    suffix. At the end of the block it is flushed to disk and renamed; if the block raises, it is
    removed and path is unchanged. A killed process leaves at most a hidden file. Symbolic links are
    followed. OSError if the directory is missing or not writable, or path is not a regular file.
    """
    target = Path(os.path.realpath(as_path("path", path)))  # still a link if links are circular
    if (target.exists() or target.is_symlink()) and not target.is_file():
        raise OSError(one_line(f"path must be a regular file or a new one, got {path}"))
    if not target.parent.is_dir():
        rule = "lie in an existing directory"
        raise FileNotFoundError(one_line(f"path must {rule}, got {path}"))
    temporary = target.with_name(f".{target.stem[:80]}.{secrets.token_hex(8)}{target.suffix}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        if error.filename not in (None, str(temporary)):
            raise
        # errors of a full disk, from the system or NumPy, do not name the file
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(target.parent)


def write_json(path: PathLike, value: Any) -> None:
    """Write value as indented JSON, atomically.

    Raises OSError as :func:`atomic_path`; TypeError or ValueError for values without a JSON form,
    NaN and infinity included. See ``fastcos.storage.provenance.json_ready``.
    """
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise type(error)(f"value must have a JSON form, got {error}") from None
    write_text(path, text + "\n")


def write_text(path: PathLike, text: str) -> None:
    """Write text as UTF-8, atomically; OSError as :func:`atomic_path`."""
    as_instance("text", text, str, "a text")
    with atomic_path(path) as temporary:
        # half a character, as in names of broken files, has no UTF-8; JSON reads its escape
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def _check_saved(name: str, array: Any) -> None:
    if np.asarray(array).dtype.hasobject:
        raise ValueError(f"{name} must not hold objects, which need pickle, got {type(array)}")


def write_npy(path: PathLike, array: npt.NDArray[Any]) -> None:
    """Write an array as .npy, atomically; ValueError for arrays of objects, which need pickle."""
    _check_saved("array", array)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def write_npz(path: PathLike, arrays: dict[str, Any]) -> None:
    """Write arrays as uncompressed .npz, atomically; ValueError for arrays of objects."""
    for name, array in as_instance("arrays", arrays, dict, "a dict of arrays").items():
        as_instance("arrays", name, str, "a dict of texts to arrays")
        _check_saved(f"arrays[{name!r}]", array)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def write_parquet(path: PathLike, columns: dict[str, Any]) -> None:
    """Write columns as Parquet, atomically; FastcosFormatError without pyarrow."""
    as_instance("columns", columns, dict, "a dict of names to values")
    arrow = import_for(path, "Parquet needs", "pyarrow")
    from pyarrow import parquet

    table = arrow.table({name: list(one) for name, one in columns.items()})
    with atomic_path(path) as temporary:
        parquet.write_table(table, temporary)


def write_csv(
    path: PathLike,
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    for_spreadsheets: bool = False,
) -> None:
    """Write a header and rows as UTF-8 csv, atomically.

    None becomes an empty field; floats are written with the digits that restore them exactly.
    for_spreadsheets: texts that a spreadsheet would run as a formula, which start with ``=``,
    ``+``, ``-``, ``@`` or a tab, get an apostrophe in front, and carriage returns become spaces:
    these are no longer the texts that were given.
    Raises OSError as :func:`atomic_path`; ValueError for a row with another length than header.
    """
    header = as_list("header", header)
    if not isinstance(rows, Iterable):
        raise TypeError(f"rows must be rows of values, got {format_value(rows)}")
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            if len(row) != len(header):
                raise ValueError(f"rows must have {len(header)} fields as header, got {len(row)}")
            writer.writerow([_as_text(cell) for cell in row] if for_spreadsheets else row)


def _as_text(cell: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula."""
    if not isinstance(cell, str):
        return cell
    # Python before 3.13 does not quote a carriage return, which ends a row
    text = cell.replace("\r", " ")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULAS) else text

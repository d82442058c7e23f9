"""Writers of arrays, tables and JSON; each file is complete, or it is unchanged."""

import csv
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.io.errors import import_for
from fastcos.storage import PathLike
from fastcos.storage.atomic_files import atomic_path, write_text
from fastcos.validation import as_instance, as_list, format_value

# what a cell starts with that spreadsheets run
_FORMULAS = ("=", "+", "-", "@", "\t")


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

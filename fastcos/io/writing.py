"""Writers of arrays, tables and JSON, which replace a file completely or not at all."""

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

# If the text of a cell starts with one of these characters, a spreadsheet runs the text as a
# formula.
_FORMULAS = ("=", "+", "-", "@", "\t")


def write_json(path: PathLike, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically.

    The function raises OSError in the same cases as :func:`atomic_path`. Values that have no JSON
    form, such as NaN and infinity, raise TypeError or ValueError. Values without a JSON form can be
    converted by ``fastcos.storage.provenance.json_ready``.
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
    """Write an array as .npy, atomically.

    An array of objects raises ValueError, because writing it would need pickle.
    """
    _check_saved("array", array)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def write_npz(path: PathLike, arrays: dict[str, Any]) -> None:
    """Write arrays as uncompressed .npz, atomically; an array of objects raises ValueError."""
    for name, array in as_instance("arrays", arrays, dict, "a dict of arrays").items():
        as_instance("arrays", name, str, "a dict whose keys are texts")
        _check_saved(f"arrays[{name!r}]", array)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def write_parquet(path: PathLike, columns: dict[str, Any]) -> None:
    """Write columns as Parquet, atomically; raise FastcosFormatError if pyarrow is missing."""
    as_instance("columns", columns, dict, "a dict of names to values")
    arrow = import_for(path, "Parquet needs", "pyarrow")
    from pyarrow import parquet

    table = arrow.table({name: list(values) for name, values in columns.items()})
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

    None becomes an empty field. Floats are written with enough digits to restore them exactly. If
    ``for_spreadsheets`` is true, texts are changed so that no spreadsheet runs them as a formula.
    An apostrophe is put in front of every text that starts with ``=``, ``+``, ``-``, ``@`` or a
    tab, and carriage returns become spaces. The function raises OSError in the same cases as
    :func:`atomic_path`. A row that is longer or shorter than the header raises ValueError.
    """
    header = as_list("header", header)
    if not isinstance(rows, Iterable):
        raise TypeError(f"rows must be rows of values, got {format_value(rows)}")
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            if len(row) != len(header):
                raise ValueError(
                    f"rows must have {len(header)} fields, like the header, got {len(row)}"
                )
            writer.writerow([_without_formula(cell) for cell in row] if for_spreadsheets else row)


def _without_formula(cell: Any) -> Any:
    """Change a text so that no spreadsheet runs it as a formula."""
    if not isinstance(cell, str):
        return cell
    # Before Python 3.13, the csv module does not quote a carriage return, which spreadsheets read
    # as the end of a line.
    text = cell.replace("\r", " ")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULAS) else text

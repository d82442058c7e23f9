"""Vectors in Parquet: one column of lists, or one column a dimension."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.io.parquet import ParquetTable
from fastcos.storage import FastcosFormatError


def read_vector_table(path: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Return the arrays vectors and, where one column holds whole numbers or texts, ids.

    The vectors are the one column of lists of floats, or else all columns of floats in their order.
    """
    table = ParquetTable(path)
    schema, types = table.schema, table.types
    lists = [
        field.name
        for field in schema
        if (types.is_list(field.type) or types.is_large_list(field.type)
            or types.is_fixed_size_list(field.type))
        and types.is_floating(field.type.value_type)
    ]  # fmt: skip
    floats = [field.name for field in schema if types.is_floating(field.type)]
    named = [
        field.name
        for field in schema
        if types.is_integer(field.type)
        or types.is_string(field.type)
        or types.is_large_string(field.type)
    ]
    if len(lists) > 1 or not (lists or floats) or len(named) > 1:
        held = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise FastcosFormatError(
            f"{path} must hold one column of lists of floats, or columns of floats, and at most "
            f"one of ids, got {held[:200]}"
        )
    columns = table.arrow_columns([*(lists or floats), *named])
    if lists:
        vectors = _from_lists(path, columns[lists[0]])
    else:
        vectors = np.stack([columns[name].to_numpy() for name in floats], axis=1)
    arrays = {"vectors": vectors}
    if named:
        try:
            ids = columns[named[0]].to_pylist()
        except UnicodeDecodeError as error:
            raise FastcosFormatError(
                f"{path}: column {named[0]!r} must hold UTF-8 texts: {error}"
            ) from None
        if None in ids:
            raise FastcosFormatError(f"{path}: column {named[0]!r} must have no nulls")
        arrays["ids"] = np.array(ids)
    return arrays


def _from_lists(path: Path, column: Any) -> npt.NDArray[Any]:
    lists = column.combine_chunks()
    lengths = np.unique(lists.value_lengths().to_numpy(zero_copy_only=False))
    if column.null_count or len(lengths) != 1 or not lengths[0] > 0:
        raise FastcosFormatError(f"{path} must hold lists of one length, without nulls")
    values = lists.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values.reshape(len(lists), int(lengths[0])))

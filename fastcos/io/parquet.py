"""Read Parquet and Arrow files as tables, with the optional dependency pyarrow."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from fastcos.io.columns import Cells, Unsupported
from fastcos.io.errors import damage_refused, import_for
from fastcos.io.streams import LARGEST_FREE_SIZE, LARGEST_RATIO, largest_size
from fastcos.storage import FastcosFormatError
from fastcos.validation import Integers

PARQUET_SUFFIXES = (".parquet", ".pq")
ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")
# Number of rows in a chunk. A chunk takes a few MB.
ROWS_PER_CHUNK = 1 << 18
_LISTS = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")
_TEXTS = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
_NESTED = (*_LISTS, "struct", "map", "union")


class _ArrowFile:
    """An Arrow file or stream; it has all methods of a ParquetFile that ArrowTable calls."""

    def __init__(self, arrow: Any, path: Path) -> None:
        source = arrow.memory_map(str(path))
        try:
            self._table = arrow.ipc.open_file(source).read_all()
        except arrow.ArrowInvalid:  # Datasets of Hugging Face are Arrow streams.
            source.seek(0)
            self._table = arrow.ipc.open_stream(source).read_all()
        self.schema_arrow = self._table.schema

    def iter_batches(self, batch_size: int, columns: list[str] | None) -> Any:
        table = self._table if columns is None else self._table.select(columns)
        # Arrow files have no checksum. If an offset in a file were wrong, pyarrow would read memory
        # outside of the file.
        table.validate(full=True)
        return table.to_batches(max_chunksize=batch_size)


class ArrowTable:
    """A Parquet or Arrow file whose schema has been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._arrow = import_for(path, "Parquet and Arrow need", "pyarrow")
        from pyarrow import parquet

        path.stat()  # If the file is missing, path.stat raises FileNotFoundError.
        with self._reading():
            if path.suffix.lower() in ARROW_SUFFIXES:
                self._file: Any = _ArrowFile(self._arrow, path)
            else:
                self._file = parquet.ParquetFile(path)
                self._refuse_bomb(self._file.metadata)
            schema = self._file.schema_arrow
            self.names: list[str] = list(schema.names)  # a damaged name may not be UTF-8
        self._types = [self._plain_type(field.type) for field in schema]
        self.lists: Sequence[str] = [
            name
            for name, kind in zip(self.names, self._types, strict=True)
            if self._is(kind, *_LISTS) and self._is(kind.value_type, "integer", "floating")
        ]

    def chunks(self, names: Sequence[str] | None) -> Iterator[tuple[Integers, list[Cells]]]:
        """Yield row numbers and columns of cells, one chunk of rows at a time.

        The first row has the number 1.
        """
        first = 1
        distinct = None if names is None else list(dict.fromkeys(names))
        for name in distinct or ():
            if self.names.count(name) > 1:
                raise FastcosFormatError(
                    f"{self.path} must name every column once, got {name[:40]!r} twice"
                )
        with self._reading():
            for batch in self._file.iter_batches(ROWS_PER_CHUNK, columns=distinct):
                if not batch.num_rows:
                    continue
                lines = np.arange(first, first + batch.num_rows)
                first += batch.num_rows
                columns: Iterator[tuple[str, Any]]
                if names is None:
                    columns = zip(self.names, batch.columns, strict=True)
                else:
                    columns = ((name, batch.column(name)) for name in names)
                yield lines, [self._named_cells(name, column) for name, column in columns]

    def _named_cells(self, name: str, column: Any) -> Cells:
        try:
            return self._cells(column)
        except UnicodeDecodeError as error:
            rule = f"column {name!r} must be UTF-8 text"
            raise FastcosFormatError(f"{self.path}: {rule}: {error}") from None

    def _cells(self, column: Any) -> Cells:
        """Return an Arrow array as an array of numbers, or as Python values."""
        arrow = self._arrow
        if isinstance(column, arrow.ExtensionArray):
            column = column.storage
        if self._is(column.type, "dictionary"):
            # dictionary_decode does not support string_view.
            values, codes = self._cells(column.dictionary), column.indices.to_pylist()
            return [None if code is None else values[code] for code in codes]
        kind = column.type
        if self._is(kind, "run_end_encoded"):
            return self._cells(arrow.compute.run_end_decode(column))
        if self._is(kind, "integer", "floating", "boolean") and not column.null_count:
            return np.asarray(column.to_numpy(zero_copy_only=False))
        if self._is(kind, *_LISTS[:3]) and (rows := self._rows(column)) is not None:
            return rows
        if self._is(kind, "integer", "floating", "boolean", "decimal", "date", *_TEXTS, *_LISTS):
            cells: list[Any] = column.to_pylist()
            return cells
        cell = Unsupported(str(kind), is_nested=self._is(kind, *_NESTED))
        return [cell if is_filled else None for is_filled in column.is_valid().to_pylist()]

    def _rows(self, column: Any) -> Any:
        """Return lists of numbers as rows (n, d) if all lists have the same length, else None."""
        if column.null_count or not self._is(column.type.value_type, "integer", "floating"):
            return None
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        if not lengths[0] or (lengths != lengths[0]).any():
            return None
        values = column.flatten()
        if values.null_count:
            return None
        return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(column), -1)

    def _plain_type(self, kind: Any) -> Any:
        """Return the type of the stored values of an extension type or dictionary type.

        A type that is neither an extension type nor a dictionary type is returned unchanged.
        """
        if isinstance(kind, self._arrow.BaseExtensionType):
            return self._plain_type(kind.storage_type)
        return self._plain_type(kind.value_type) if self._is(kind, "dictionary") else kind

    def _is(self, kind: Any, *names: str) -> bool:
        types = self._arrow.types
        # Older versions of pyarrow lack the tests of some types, such as is_string_view.
        tests = (getattr(types, f"is_{name}", None) for name in names)
        return any(test is not None and test(kind) for test in tests)

    def _refuse_bomb(self, metadata: Any) -> None:
        """Raise FastcosFormatError if decompression would make a file too large.

        A column of equal values takes almost no bytes in a file, but many bytes in memory.
        """
        # If the statistics of a column are damaged, reading the metadata of the column makes
        # pyarrow end the process. For columns without lists, the number of values is therefore not
        # read: every such column has one value per row.
        lists = [
            column
            for column in range(metadata.num_columns)
            if metadata.schema.column(column).max_repetition_level
        ]
        expanded = 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            values = group.num_rows * (metadata.num_columns - len(lists))
            values += sum(group.column(column).num_values for column in lists)
            expanded += max(8 * values, group.total_byte_size)
        if expanded > largest_size(self.path.stat().st_size):
            raise FastcosFormatError(
                f"{self.path} must expand to at most {LARGEST_FREE_SIZE >> 30} GiB or to "
                f"{LARGEST_RATIO} times its size on disk, whichever is larger, got "
                f"{expanded / 2**30:,.1f} GiB. If you trust the file, split it into smaller files"
            )

    def _reading(self) -> AbstractContextManager[None]:
        damage = (self._arrow.ArrowException, UnicodeDecodeError, OSError)
        return damage_refused(self.path, "a complete Parquet or Arrow file", damage)

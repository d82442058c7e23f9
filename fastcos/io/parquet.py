"""Tables and vectors in Parquet and Arrow files, read by pyarrow, which is an extra."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.io.columns import (
    LONGEST_ID,
    Chunk,
    TextColumn,
    Vocabulary,
    check_texts,
    choose_vector_columns,
    refuse_rows,
)
from fastcos.io.errors import damage_refused, import_for
from fastcos.io.streams import LARGEST_FREE_SIZE, LARGEST_RATIO, largest_size
from fastcos.storage import FastcosFormatError
from fastcos.validation import Integers

PARQUET_SUFFIXES = (".parquet", ".pq")
ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")
# rows of one chunk, some MB
ROWS_PER_CHUNK = 1 << 18
# names of Arrow types that may be ids, and of lists
_ID_TYPES = ("integer", "string", "large_string")
_LIST_TYPES = ("list", "large_list", "fixed_size_list")


class _ArrowFile:
    """An Arrow file or stream, with what is used here of pyarrow's ParquetFile."""

    def __init__(self, arrow: Any, path: Path) -> None:
        source = arrow.memory_map(str(path))
        try:
            self._table = arrow.ipc.open_file(source).read_all()
        except arrow.ArrowInvalid:  # a stream, as Hugging Face's datasets write
            source.seek(0)
            self._table = arrow.ipc.open_stream(source).read_all()
        self.schema_arrow = self._table.schema

    def read(self, columns: list[str]) -> Any:
        return self._table.select(columns)

    def iter_batches(self, columns: list[str], batch_size: int) -> Any:
        return self._table.select(columns).to_batches(max_chunksize=batch_size)


class ParquetTable:
    """A Parquet or Arrow file whose schema has been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._arrow = import_for(path, "Parquet and Arrow need", "pyarrow")
        from pyarrow import parquet

        path.stat()  # a missing file is reported in the system's words
        with self._reading():
            if path.suffix.lower() in ARROW_SUFFIXES:
                self._file: Any = _ArrowFile(self._arrow, path)
            else:
                self._file = parquet.ParquetFile(path)
                self._refuse_bomb(self._file.metadata)
            self.schema = self._file.schema_arrow
            self.names: list[str] = list(self.schema.names)

    def arrow_columns(self, names: Sequence[str]) -> Any:
        """Return these columns as a pyarrow table of at least one row."""
        with self._reading():
            table = self._file.read(columns=list(names))
        if not table.num_rows:
            raise FastcosFormatError(f"{self.path} must have at least one row, got none")
        return table

    def chunks(
        self, texts: Sequence[str], number: str | None, vocabularies: Sequence[Vocabulary]
    ) -> Iterator[Chunk]:
        """Read columns of texts and one of finite numbers; new texts enter the vocabularies."""
        wanted = [*texts, *([number] if number is not None else [])]
        first = 1
        with self._reading():
            for batch in self._file.iter_batches(columns=wanted, batch_size=ROWS_PER_CHUNK):
                lines = np.arange(first, first + batch.num_rows)
                first += batch.num_rows
                table = self._arrow.Table.from_batches([batch])
                codes = []
                for name, known in zip(texts, vocabularies, strict=True):
                    column = self._text_column(name, table[name], lines)
                    of_texts = np.array([known[text] for text in column.texts], np.int64)
                    codes.append(of_texts[column.codes])
                values = None if number is None else self._numbers(number, table[number], lines)
                yield Chunk(codes, values, lines)

    def names_of(self, *types: str) -> list[str]:
        """Return the names of the columns of these types."""
        return [field.name for field in self.schema if self._is(field.type, *types)]

    def names_of_lists(self) -> list[str]:
        """Return the names of the columns of lists of floats, or else of whole numbers."""
        lists = [field for field in self.schema if self._is(field.type, *_LIST_TYPES)]
        for kind in ("floating", "integer"):
            if found := [one.name for one in lists if self._is(one.type.value_type, kind)]:
                return found
        return []

    def _refuse_bomb(self, metadata: Any) -> None:
        """Refuse a file whose columns expand too far: equal values take nearly no bytes."""
        # pyarrow ends the process at damaged statistics of a column: only lists need their number
        lists = [
            column
            for column in range(metadata.num_columns)
            if metadata.schema.column(column).max_repetition_level
        ]
        needed = 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            values = group.num_rows * (metadata.num_columns - len(lists))
            values += sum(group.column(column).num_values for column in lists)
            needed += max(8 * values, group.total_byte_size)
        if needed > largest_size(self.path.stat().st_size):
            raise FastcosFormatError(
                f"{self.path} must not expand more than {LARGEST_RATIO}-fold beyond "
                f"{LARGEST_FREE_SIZE >> 30} GiB, got {needed / 2**30:,.1f} GiB; split it if it is "
                "genuine"
            )

    def _reading(self) -> AbstractContextManager[None]:
        damage = (self._arrow.ArrowException, UnicodeDecodeError, OSError)
        return damage_refused(self.path, "a whole Parquet file", damage)

    def check_numbers(self, name: str, values: npt.NDArray[np.float64], lines: Integers) -> None:
        """Do nothing: chunks has validated the numbers."""

    def _numbers(self, name: str, column: Any, lines: Integers) -> npt.NDArray[np.float64]:
        self._refuse_nulls(name, column, lines)
        if not self._is(column.type, "integer", "floating", "boolean", "decimal"):
            raise FastcosFormatError(
                f"{self.path}: column {name!r} must hold numbers, got {column.type}"
            )
        values: npt.NDArray[np.float64] = column.cast(self._arrow.float64(), safe=False).to_numpy()
        broken = ~np.isfinite(values)
        if broken.any():
            rule = f"column {name!r} must hold finite numbers"
            refuse_rows(self.path, rule, f"{values[broken][0]}", lines[broken])
        return values

    def _text_column(self, name: str, column: Any, lines: Integers) -> TextColumn:
        arrow = self._arrow
        self._refuse_nulls(name, column, lines)
        kind = column.type
        if self._is(kind, "dictionary"):
            kind = kind.value_type
            column = column.cast(kind)
        if self._is(kind, "floating"):
            values = column.to_numpy()
            whole = np.abs(values) < 2.0**53
            whole[whole] = values[whole] == np.floor(values[whole])
            if not whole.all():
                rule = f"column {name!r} must hold whole numbers or texts"
                refuse_rows(self.path, rule, f"{values[~whole][0]}", lines[~whole])
            column = column.cast(arrow.int64())
        elif not self._is(kind, *_ID_TYPES, "boolean"):
            raise FastcosFormatError(
                f"{self.path}: column {name!r} must hold whole numbers or texts, got {kind}"
            )
        coded = column.combine_chunks().dictionary_encode()
        if isinstance(coded, arrow.ChunkedArray):
            coded = coded.combine_chunks()
        texts = [str(value) for value in coded.dictionary.to_pylist()]
        found = TextColumn(texts, coded.indices.to_numpy(zero_copy_only=False).astype(np.int64))
        check_texts(self.path, name, found, lines)
        return found

    def _is(self, kind: Any, *names: str) -> bool:
        return any(getattr(self._arrow.types, f"is_{name}")(kind) for name in names)

    def _refuse_nulls(self, name: str, column: Any, lines: Integers) -> None:
        if column.null_count:
            nulls = column.is_null().to_numpy().astype(bool)
            refuse_rows(self.path, f"column {name!r} must have no nulls", "null", lines[nulls])


def read_vector_table(
    path: Path, vector_column: str | None = None, id_column: str | None = None
) -> Mapping[str, npt.NDArray[Any]]:
    """Return the array vectors and, if a column holds them, ids: see choose_vector_columns."""
    table = ParquetTable(path)
    lists, floats, named = (
        table.names_of_lists(), table.names_of("floating"), table.names_of(*_ID_TYPES)
    )  # fmt: skip
    vectors, id_ = choose_vector_columns(path, lists, floats, named, vector_column, id_column)
    columns = table.arrow_columns([*vectors, *([] if id_ is None else [id_])])
    if lists:
        arrays = {"vectors": _from_lists(path, columns[vectors[0]])}
    else:
        arrays = {"vectors": np.stack([columns[name].to_numpy() for name in vectors], axis=1)}
    if id_ is not None:
        try:
            ids = columns[id_].to_pylist()
        except UnicodeDecodeError as error:
            raise FastcosFormatError(
                f"{path}: column {id_!r} must hold UTF-8 texts: {error}"
            ) from None
        if None in ids:
            raise FastcosFormatError(f"{path}: column {id_!r} must have no nulls")
        longest = max(len(str(one)) for one in ids)
        if longest > LONGEST_ID:
            rule = f"hold ids of at most {LONGEST_ID} letters"
            raise FastcosFormatError(f"{path}: column {id_!r} must {rule}, got {longest}")
        arrays["ids"] = np.array(ids)
    return arrays


def _from_lists(path: Path, column: Any) -> npt.NDArray[Any]:
    lists = column.combine_chunks()
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    width = next((one for one in lengths if one > 0), 0)  # NaN for a null
    odd = np.flatnonzero(lengths != width)
    if len(odd) or not width:
        row = int(odd[0]) if len(odd) else 0
        what = "none" if np.isnan(lengths[row]) else f"{lengths[row]:.0f} numbers"
        got = f"{what} in row {row} ({width:.0f} in another)"
        raise FastcosFormatError(f"{path} must hold lists of one length, without nulls, got {got}")
    values = lists.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values.reshape(len(lists), int(width)))

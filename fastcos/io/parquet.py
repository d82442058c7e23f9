"""Tables and vectors in Parquet files, read by pyarrow, which is an extra."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.io.columns import (
    Chunk,
    Columns,
    Integers,
    TextColumn,
    Vocabulary,
    check_texts,
    refuse_rows,
)
from fastcos.storage import FastcosFormatError

# rows of one chunk, some MB
ROWS_PER_CHUNK = 1 << 18
# names of Arrow types that may be ids, and of lists
_ID_TYPES = ("integer", "string", "large_string")
_LIST_TYPES = ("list", "large_list", "fixed_size_list")


class ParquetTable:
    """A Parquet file whose schema has been read."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as arrow
            from pyarrow import parquet
        except ImportError:
            raise FastcosFormatError(
                f"{path}: Parquet needs pyarrow: pip install 'fastcos[io]'"
            ) from None
        self.path = path
        self._arrow = arrow
        with self._reading():
            self._file = parquet.ParquetFile(path)
            self.schema = self._file.schema_arrow
            self.names: list[str] = list(self.schema.names)

    def read(self, texts: Sequence[str], number: str | None) -> Columns:
        """Read columns of texts and one of finite numbers."""
        table = self.arrow_columns([*texts, *([number] if number is not None else [])])
        with self._reading():
            return self._columns(table, texts, number, np.arange(1, table.num_rows + 1))

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
        """Read columns chunk by chunk; new texts are added to the vocabularies."""
        arrow = self._arrow
        wanted = [*texts, *([number] if number is not None else [])]
        first = 1
        with self._reading():
            for batch in self._file.iter_batches(columns=wanted, batch_size=ROWS_PER_CHUNK):
                lines = np.arange(first, first + batch.num_rows)
                first += batch.num_rows
                table = arrow.Table.from_batches([batch])
                columns, values, _ = self._columns(table, texts, number, lines)
                codes = [
                    np.array([known[text] for text in column.texts], np.int64)[column.codes]
                    for column, known in zip(columns, vocabularies, strict=True)
                ]
                yield Chunk(codes, values, lines)

    def names_of(self, *types: str, of_floats: bool = False) -> list[str]:
        """Return the names of the columns of these types, or of lists of floats."""
        return [
            field.name
            for field in self.schema
            if self._is(field.type, *types)
            and (not of_floats or self._is(field.type.value_type, "floating"))
        ]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn errors of pyarrow for damaged files into FastcosFormatError."""
        try:
            yield
        except (self._arrow.ArrowException, UnicodeDecodeError) as error:
            raise self._damaged(error) from None
        except OSError as error:
            if error.errno is not None:  # from the system, such as no such file
                raise
            raise self._damaged(error) from None

    def check_numbers(self, name: str, values: npt.NDArray[np.float64], lines: Integers) -> None:
        """Do nothing: _columns has validated the numbers."""

    def _columns(
        self, table: Any, texts: Sequence[str], number: str | None, lines: Integers
    ) -> Columns:
        arrow = self._arrow
        columns = [self._text_column(name, table[name], lines) for name in texts]
        values = None
        if number is not None:
            column = table[number]
            self._refuse_nulls(number, column, lines)
            if not self._is(column.type, "integer", "floating", "boolean", "decimal"):
                raise FastcosFormatError(
                    f"{self.path}: column {number!r} must hold numbers, got {column.type}"
                )
            values = column.cast(arrow.float64(), safe=False).to_numpy()
            broken = ~np.isfinite(values)
            if broken.any():
                rule = f"column {number!r} must hold finite numbers"
                refuse_rows(self.path, rule, f"{values[broken][0]}", lines[broken])
        return Columns(columns, values, lines)

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

    def _damaged(self, error: Exception) -> FastcosFormatError:
        what = str(error).partition("\n")[0]
        return FastcosFormatError(f"{self.path} must be a whole Parquet file: {what}")


def read_vector_table(path: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Return the array vectors and, if one column has integers or texts, ids.

    The vectors are the one column of lists of floats, or else all columns of floats in their order.
    """
    table = ParquetTable(path)
    lists, floats = table.names_of(*_LIST_TYPES, of_floats=True), table.names_of("floating")
    named = table.names_of(*_ID_TYPES)
    if len(lists) > 1 or not (lists or floats) or len(named) > 1:
        held = ", ".join(f"{field.name} {field.type}" for field in table.schema)
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

"""Parquet, by pyarrow, which is an extra."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.io.text_columns import (
    Chunk,
    Columns,
    Integers,
    TextColumn,
    Vocabulary,
    refuse_broken_texts,
    refuse_rows,
)
from fastcos.storage import FastcosFormatError

_ROWS = 1 << 18


class ParquetTable:
    """Parquet, by pyarrow."""

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
        self.types = arrow.types

    def read(self, texts: Sequence[str], number: str | None) -> Columns:
        """Read columns of texts and one of finite numbers."""
        table = self.arrow_columns([*texts, *([number] if number is not None else [])])
        with self._reading():
            return self._columns(table, texts, number, np.arange(1, table.num_rows + 1))

    def arrow_columns(self, names: Sequence[str]) -> Any:
        """Return a table of these columns, as pyarrow has it, of at least one row."""
        with self._reading():
            table = self._file.read(columns=list(names))
        if not table.num_rows:
            raise FastcosFormatError(f"{self.path} must have at least one row, got none")
        return table

    def chunks(
        self, texts: Sequence[str], number: str | None, vocabularies: Sequence[Vocabulary]
    ) -> Iterator[Chunk]:
        """Read the same some rows at a time; new texts enter the vocabularies."""
        arrow = self._arrow
        wanted = [*texts, *([number] if number is not None else [])]
        first = 1
        with self._reading():
            for batch in self._file.iter_batches(columns=wanted, batch_size=_ROWS):
                lines = np.arange(first, first + batch.num_rows)
                first += batch.num_rows
                table = arrow.Table.from_batches([batch])
                columns, values, _ = self._columns(table, texts, number, lines)
                codes = [
                    np.array([known[text] for text in column.texts], np.int64)[column.codes]
                    for column, known in zip(columns, vocabularies, strict=True)
                ]
                yield Chunk(codes, values, lines)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """What pyarrow says of damage, as a FastcosFormatError."""
        try:
            yield
        except (self._arrow.ArrowException, UnicodeDecodeError) as error:
            raise self._damaged(error) from None
        except OSError as error:
            if error.errno is not None:  # no such file, for one
                raise
            raise self._damaged(error) from None

    def refuse_broken_numbers(
        self, name: str, values: npt.NDArray[np.float64], lines: Integers
    ) -> None:
        """Do nothing: reading has refused them."""

    def _columns(
        self, table: Any, texts: Sequence[str], number: str | None, lines: Integers
    ) -> Columns:
        arrow = self._arrow
        columns = [self._text_column(name, table[name], lines) for name in texts]
        values = None
        if number is not None:
            column = table[number]
            self._refuse_nulls(number, column, lines)
            if not (
                arrow.types.is_integer(column.type)
                or arrow.types.is_floating(column.type)
                or arrow.types.is_boolean(column.type)
                or arrow.types.is_decimal(column.type)
            ):
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
        if arrow.types.is_dictionary(kind):
            kind = kind.value_type
            column = column.cast(kind)
        if arrow.types.is_floating(kind):
            values = column.to_numpy()
            whole = np.abs(values) < 2.0**53
            whole[whole] = values[whole] == np.floor(values[whole])
            if not whole.all():
                rule = f"column {name!r} must hold whole numbers or texts"
                refuse_rows(self.path, rule, f"{values[~whole][0]}", lines[~whole])
            column = column.cast(arrow.int64())
        elif not (
            arrow.types.is_integer(kind)
            or arrow.types.is_string(kind)
            or arrow.types.is_large_string(kind)
            or arrow.types.is_boolean(kind)
        ):
            raise FastcosFormatError(
                f"{self.path}: column {name!r} must hold whole numbers or texts, got {kind}"
            )
        coded = column.combine_chunks().dictionary_encode()
        if isinstance(coded, arrow.ChunkedArray):
            coded = coded.combine_chunks()
        try:
            texts = [str(value) for value in coded.dictionary.to_pylist()]
        except UnicodeDecodeError as error:
            raise self._damaged(error) from None
        found = TextColumn(texts, coded.indices.to_numpy(zero_copy_only=False).astype(np.int64))
        refuse_broken_texts(self.path, name, found, lines)
        return found

    def _refuse_nulls(self, name: str, column: Any, lines: Integers) -> None:
        if column.null_count:
            nulls = column.is_null().to_numpy().astype(bool)
            refuse_rows(self.path, f"column {name!r} must have no nulls", "null", lines[nulls])

    def _damaged(self, error: Exception) -> FastcosFormatError:
        what = str(error).partition("\n")[0]
        return FastcosFormatError(f"{self.path} must be a whole Parquet file: {what}")

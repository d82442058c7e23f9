"""Long tables, delimited text or Parquet."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastcos.io.delimited import DelimitedTable
from fastcos.io.parquet import ParquetTable
from fastcos.io.streams import open_bytes
from fastcos.io.text_columns import Chunk, Columns, Integers, Vocabulary
from fastcos.parallel import Progress
from fastcos.validation import check_none


class Table(Protocol):
    """A table whose header has been read."""

    path: Path
    names: list[str]

    def read(self, texts: Sequence[str], number: str | None) -> Columns:
        """Read columns of texts and one of finite numbers."""

    def chunks(
        self, texts: Sequence[str], number: str | None, vocabularies: Sequence[Vocabulary]
    ) -> Iterator[Chunk]:
        """Read the same some rows at a time; new texts enter the vocabularies."""

    def refuse_broken_numbers(
        self, name: str, values: npt.NDArray[np.float64], lines: Integers
    ) -> None:
        """Raise where numbers of a chunk are NaN for what is no finite number."""


@contextmanager
def open_table(
    path: Path,
    *,
    member: str | None,
    delimiter: str | None,
    header: bool,
    progress: Progress | None = None,
) -> Iterator[Table]:
    """Open a table by its kind and read its header; progress is that of open_bytes, of text."""
    if path.suffix.lower() in (".parquet", ".pq"):
        check_none("member", member, "for Parquet")
        check_none("delimiter", delimiter, "for Parquet")
        yield ParquetTable(path)
        return
    with open_bytes(path, member, progress) as stream:
        yield DelimitedTable(stream, path, delimiter, header)

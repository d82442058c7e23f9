"""Lists of neighbours or recommendations with ids and names, in files and on the terminal."""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.terminal import print_json, print_table, say
from fastcos.io.columns import positions_in
from fastcos.io.items import read_texts
from fastcos.io.tables import TABLE_SUFFIXES, suffix_of
from fastcos.storage.provenance import json_ready, provenance

if TYPE_CHECKING:
    from fastcos.auditing import Calibration
    from fastcos.search.results import Neighbors

SUFFIXES = (".csv", ".npz", ".json", ".parquet")
STDOUT = Path("-")
# Number of rows that are converted to Python values at a time.
_ROWS = 1 << 16
_PLURALS = {"item": "items", "query": "queries", "user": "users", "neighbor": "neighbours"}


def as_output(out: str | None, default: str = "neighbors.csv") -> Path:
    """Return the path of --out, or STDOUT; raise ValueError if the path cannot be written."""
    path = Path(default if out is None else out)
    if path != STDOUT:
        validation.as_choice("the suffix of --out", path.suffix, SUFFIXES)
        options.check_output_file("--out", path)
    return path


class RankedLists(NamedTuple):
    """Lists of items, with the ids of queries and items, and with the names or texts of the items.

    - `neighbors`: the lists, whose indices are positions in `ids`.
    - `query_ids`: the ids of the queries.
    - `ids`: the ids of the items.
    - `names`: the names or texts of the items, or None.
    - `columns`: the names of the columns for the queries and for the listed items.
    - `calibration`: the calibration that provides the p-values of the scores, or None.
    """

    neighbors: "Neighbors"
    query_ids: Any
    ids: Any
    names: Any = None
    columns: tuple[str, str] = ("item", "neighbor")
    calibration: "Calibration | None" = None

    @property
    def _are_items(self) -> bool:
        return self.columns[0] == "item"

    def table(self) -> dict[str, Any]:
        """Return the columns of the table, without padded entries.

        If the items were ranked by votes, their scores are NaN, and the table has no column of
        scores.
        """
        indices, scores = self.neighbors.indices, self.neighbors.scores
        rows, ranks = np.nonzero(indices >= 0)
        positions, (query, neighbor) = indices[rows, ranks], self.columns
        table = {query: self.query_ids[rows]}
        if self.names is not None and self._are_items:
            table["name"] = self.names[positions_in(self.ids, self.query_ids)][rows]
        table |= {"rank": ranks + 1, neighbor: self.ids[positions]}
        if self.names is not None:
            table[f"{neighbor}_name"] = self.names[positions]
        if not np.isnan(scores).any():
            table["score"] = scores[rows, ranks].astype(np.float64)
        if self.calibration is not None:
            table["p_value"] = self.calibration.p_value(scores)[rows, ranks]
        return table

    def write_or_print(self, args: argparse.Namespace, out: Path, title: str) -> int:
        """With --show, print the lists; otherwise, write them to a file. Return the exit status."""
        table = self.table()
        if args.show:
            if args.json:
                print_json(_records(table))
            else:
                print_table(title, [*table], list(_rows(table)))
            return 0
        self.write(out, table)
        if args.json:
            print_json(provenance(options.arguments(args) | {"out": str(out)}))
        queries, neighbors = (_PLURALS[column] for column in self.columns)
        n_rows, n = len(table["rank"]), len(self.query_ids)
        per_query = f"at most {args.k} per {self.columns[0]}"
        say(f"wrote {n_rows:,} {neighbors} for {n:,} {queries} ({per_query}) to {out}")
        return 0

    def write(self, out: Path, table: dict[str, Any]) -> None:
        """Write the lists to a file; the suffix of its name selects the format.

        The folder is created if it does not exist. On stdout, the format is CSV.
        """
        if out == STDOUT:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(table)
            writer.writerows(_rows(table))
            return
        out.resolve().parent.mkdir(parents=True, exist_ok=True)
        if out.suffix == ".npz":
            arrays = {"ids": self.ids, **self.neighbors._asdict()}
            if self.calibration is not None:
                arrays["p_values"] = self.calibration.p_value(self.neighbors.scores)
            if not self._are_items:
                arrays[f"{self.columns[0]}_ids"] = self.query_ids
            if self.names is not None:
                arrays["names"] = self.names
            io.write_npz(out, arrays)
        elif out.suffix == ".json":
            io.write_json(out, _records(table))
        elif out.suffix == ".csv":
            io.write_csv(out, [*table], _rows(table))
        else:
            io.write_parquet(out, table)


def _rows(table: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table of arrays as tuples of Python values."""
    for first in range(0, len(table["rank"]), _ROWS):
        parts = (column[first : first + _ROWS].tolist() for column in table.values())
        yield from zip(*parts, strict=True)


def _records(table: dict[str, Any]) -> Any:
    """Return the rows of a table as dicts of plain values, for JSON."""
    return json_ready([dict(zip(table, row, strict=True)) for row in _rows(table)])


def add_lists(
    parser: argparse.ArgumentParser,
    k_help: str = "number of neighbours per query",
    show_metavar: str = "ID",
    out: str = "neighbors.csv",
    more_formats: str = "",
) -> None:
    """Add --k, --show, --names, --text, --out and --json."""
    parser.add_argument("--k", type=int, default=10, metavar="K", help=f"{k_help} (default 10)")
    help_ = "print the results for these ids instead of writing a file"
    parser.add_argument("--show", nargs="+", metavar=show_metavar, help=help_)
    add_names(parser)
    formats = f"{', '.join(SUFFIXES)}, or - for stdout{more_formats}"
    help_ = f"file to write; its suffix selects the format: {formats} (default {out})"
    parser.add_argument("--out", metavar="FILE", help=help_)
    options.add_json(parser)


def add_names(parser: "argparse._ActionsContainer") -> None:
    """Add --names and --text."""
    help_ = "table with ids and names of the items; the names are added to the output"
    parser.add_argument("--names", metavar="FILE", help=help_)
    help_ = (
        "column of texts to add to the output. The column is read from the table of --names; "
        "without --names, it is read from the table of vectors"
    )
    parser.add_argument("--text", metavar="C", help=help_)


def read_names(
    args: argparse.Namespace, source: str, ids: Any, source_vectors: "io.Vectors | None" = None
) -> Any:
    """Return the names in --names or the texts in --text; None if neither option is given.

    `source_vectors` contains the vectors and ids of the file `source`, or is None if `source` is
    not a file of vectors. If --names is not given, the texts are read from the table `source`.
    """
    if args.names is None and args.text is None:
        return None
    if args.names is not None:
        with options.errors_name_flag("--names", "--text"):
            return io.read_names(args.names, ids, name=args.text)
    if source_vectors is None or suffix_of(Path(source)) not in TABLE_SUFFIXES:
        raise ValueError(
            "--text must be a column of the table of --names, got no --names; without --names, "
            f"{source} must be a table of vectors"
        )
    if args.ids is None and source_vectors.columns["ids"] is not None:
        return io.read_names(source, ids, name=args.text, item=source_vectors.columns["ids"])
    texts = read_texts(source, args.text)
    validation.check_shape("--text", texts.shape, (len(ids),))
    return texts


def rows_to_show(args: argparse.Namespace, ids: Any) -> Any:
    """Return the position in `ids` of each id in --show, in the order of --show."""
    rows = positions_in(ids, np.array(args.show))
    if (rows < 0).any():
        text = args.show[rows.argmin()]
        hint = validation.did_you_mean(text, ids.astype(str).tolist()) if len(ids) < 10**5 else ""
        raise ValueError(f"--show must be a known id, such as {ids[0]}, got {text!r}{hint}")
    return rows

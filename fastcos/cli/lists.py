"""Lists of neighbours or recommendations with ids and names, as files and on the terminal."""

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
# rows that are Python values at once
_ROWS = 1 << 16
_PLURALS = {"item": "items", "query": "queries", "user": "users", "neighbor": "neighbours"}


def as_output(out: str | None, default: str = "neighbors.csv") -> Path:
    """Return the path of --out, refused before the work where it cannot be written; or stdout."""
    path = Path(default if out is None else out)
    if path != STDOUT:
        validation.as_choice("the suffix of --out", path.suffix, SUFFIXES)
        options.check_output_file("--out", path)
    return path


class Lists(NamedTuple):
    """Lists of items, with the ids of both sides and the names or texts of the items.

    The indices of the neighbours are positions in ids. columns: what the queries and the items
    found are called. A calibration adds the p-values of the scores.
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
        """The columns of the table, without padding; votes have no score."""
        indices, scores = self.neighbors.indices, self.neighbors.scores
        rows, ranks = np.nonzero(indices >= 0)
        places, (query, found) = indices[rows, ranks], self.columns
        table = {query: self.query_ids[rows]}
        if self.names is not None and self._are_items:
            table["name"] = self.names[positions_in(self.ids, self.query_ids)][rows]
        table |= {"rank": ranks + 1, found: self.ids[places]}
        if self.names is not None:
            table[f"{found}_name"] = self.names[places]
        if not np.isnan(scores).any():
            table["score"] = scores[rows, ranks].astype(np.float64)
        if self.calibration is not None:
            table["p_value"] = self.calibration.p_value(scores)[rows, ranks]
        return table

    def deliver(self, given: argparse.Namespace, out: Path, title: str) -> int:
        """Print the lists of --show, or write all; return the exit status."""
        table = self.table()
        if given.show:
            if given.json:
                print_json(_records(table))
            else:  # a row of the table always together: long names are wrapped
                print_table(title, [*table], list(_rows(table)))
            return 0
        self.write(out, table)
        if given.json:
            print_json(provenance(options.arguments(given) | {"out": str(out)}))
        query, found = (_PLURALS[one] for one in self.columns)
        n_found, n = len(table["rank"]), len(self.query_ids)
        say(f"wrote {n_found:,} {found} of {n:,} {query}, {given.k} of each at most, to {out}")
        return 0

    def write(self, out: Path, table: dict[str, Any]) -> None:
        """Write the lists in the format of the suffix; a folder that is missing is made."""
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
    """The rows of a table of arrays as Python values, some at a time."""
    for first in range(0, len(table["rank"]), _ROWS):
        parts = (column[first : first + _ROWS].tolist() for column in table.values())
        yield from zip(*parts, strict=True)


def _records(table: dict[str, Any]) -> Any:
    """The rows of a table as dicts, ready for JSON."""
    return json_ready([dict(zip(table, row, strict=True)) for row in _rows(table)])


def add_lists(
    parser: argparse.ArgumentParser,
    what: str = "neighbours",
    of: str = "ID",
    out: str = "neighbors.csv",
    more: str = "",
) -> None:
    """Add --k, --show, --names, --text, --out and --json."""
    parser.add_argument("--k", type=int, default=10, metavar="K", help=f"{what} (default 10)")
    parser.add_argument("--show", nargs="+", metavar=of, help="print the lists of these only")
    add_names(parser)
    help_ = f"{', '.join(SUFFIXES)}, - for stdout (default {out}){more}; not written with --show"
    parser.add_argument("--out", metavar="FILE", help=help_)
    options.add_json(parser)


def add_names(parser: "argparse._ActionsContainer") -> None:
    """Add --names and --text."""
    parser.add_argument(
        "--names", metavar="FILE", help="table of item ids and names, which are then shown too"
    )
    parser.add_argument(
        "--text", metavar="C", help="column of texts to show, of --names or of the items' own table"
    )


def read_names(
    given: argparse.Namespace, source: str, ids: Any, read: "io.Vectors | None" = None
) -> Any:
    """Read the names of --names, or the texts of --text; None where neither is given.

    read: the vectors of the items' own table, whose texts are in the same rows, or beside the ids
    that were read with the vectors.
    """
    if given.names is None and given.text is None:
        return None
    if given.names is not None:
        with options.recognised_columns("--names", "--text"):
            return io.read_names(given.names, ids, name=given.text)
    if read is None or suffix_of(Path(source)) not in TABLE_SUFFIXES:
        rule = "be a column of --names, or of the vectors' own table"
        raise ValueError(f"--text must {rule}, got {source!r}")
    if given.ids is None and read.columns["ids"] is not None:
        return io.read_names(source, ids, name=given.text, item=read.columns["ids"])
    texts = read_texts(source, given.text)
    validation.check_shape("--text", texts.shape, (len(ids),))
    return texts


def shown_rows(given: argparse.Namespace, ids: Any) -> Any:
    """Return the positions of the ids of --show, in their order."""
    rows = positions_in(ids, np.array(given.show))
    if (rows < 0).any():
        text = given.show[rows.argmin()]
        hint = validation.did_you_mean(text, ids.astype(str).tolist()) if len(ids) < 10**5 else ""
        raise ValueError(f"--show must be an id of the items, such as {ids[0]}, got {text!r}{hint}")
    return rows

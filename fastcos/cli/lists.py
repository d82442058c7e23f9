"""Lists of neighbours or recommendations with ids and names, as files and on the terminal."""

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.terminal import print_json, print_table, say
from fastcos.storage.provenance import json_ready, provenance

if TYPE_CHECKING:
    from fastcos.calibration import Calibration
    from fastcos.neighbors.results import Neighbors

SUFFIXES = (".csv", ".npz", ".json", ".parquet")
STDOUT = Path("-")
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

    @property
    def header(self) -> tuple[str, ...]:
        """The columns of the table."""
        named = () if self.names is None else ("name",)
        query, found = self.columns
        first = (query, *named) if self._are_items else (query,)
        last = [] if np.isnan(self.neighbors.scores).any() else ["score"]
        last += [] if self.calibration is None else ["p_value"]
        return *first, "rank", found, *(f"{found}_{one}" for one in named), *last

    def lines(self) -> Iterator[tuple[Any, ...]]:
        """The rows of the table, without padding; votes have no score."""
        named, indices = self.names is not None, self.neighbors.indices
        scores: Any = self.neighbors.scores
        columns = [] if np.isnan(scores).any() else [scores]
        if self.calibration is not None:
            columns.append(self.calibration.p_value(scores))
        names = dict(zip(self.ids.tolist(), self.names, strict=True)) if named else {}
        for number, (query, items) in enumerate(zip(self.query_ids, indices, strict=True)):
            first = (query, names[query.item()]) if named and self._are_items else (query,)
            for rank, item in enumerate(items):
                if item < 0:
                    break
                found = (self.ids[item], self.names[item]) if named else (self.ids[item],)
                yield *first, rank + 1, *found, *(float(one[number, rank]) for one in columns)

    def deliver(self, given: argparse.Namespace, out: Path, title: str) -> int:
        """Print the lists of --show, or write all; return the exit status."""
        if given.show:
            if given.json:
                print_json(self.records())
            else:  # a row of the table always together: long names are wrapped
                print_table(title, self.header, list(self.lines()))
            return 0
        self.write(out)
        if given.json:
            print_json(provenance(options.arguments(given) | {"out": str(out)}))
        query, found = (_PLURALS[one] for one in self.columns)
        n_found, n = int((self.neighbors.indices >= 0).sum()), len(self.query_ids)
        say(f"wrote {n_found:,} {found} of {n:,} {query}, {given.k} of each at most, to {out}")
        return 0

    def write(self, out: Path) -> None:
        """Write the lists in the format of the suffix; a folder that is missing is made."""
        if out == STDOUT:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerows([self.header, *self.lines()])
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
            io.write_json(out, self.records())
        else:
            write_table(out, self.header, self.lines())

    def records(self) -> Any:
        """The rows of the table as dicts, ready for JSON."""
        return json_ready([dict(zip(self.header, line, strict=True)) for line in self.lines()])


def write_table(out: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as .csv or .parquet, by the suffix."""
    if out.suffix == ".csv":
        io.write_csv(out, header, rows)
    else:
        columns = list(zip(*rows, strict=True)) or [()] * len(header)
        io.write_parquet(out, dict(zip(header, columns, strict=True)))


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
    parser.add_argument(
        "--out",
        metavar="FILE",
        help=f"{', '.join(SUFFIXES)}, - for stdout (default {out}){more}; not written with --show",
    )
    options.add_json(parser)


def add_names(parser: "argparse._ActionsContainer") -> None:
    """Add --names and --text."""
    parser.add_argument(
        "--names", metavar="FILE", help="table of item ids and names, which are then shown too"
    )
    parser.add_argument(
        "--text", metavar="C", help="column of texts to show, of --names or of the items' own table"
    )


def read_names(given: argparse.Namespace, source: str, ids: Any) -> Any:
    """Read the names of --names, or the texts of --text; None where neither is given."""
    if given.names is None and given.text is None:
        return None
    own = given.names is None
    item = getattr(given, "id_column", None) if own else None
    return io.read_names(source if own else given.names, ids, name=given.text, item=item)


def position_of(name: str, text: str, ids: Any) -> int:
    """Return the position of the id that is written like text."""
    found = np.flatnonzero(ids.astype(str) == text)
    if len(found) == 0:
        hint = (
            validation.did_you_mean(text, list(map(str, ids.tolist()))) if len(ids) < 10**5 else ""
        )
        raise ValueError(f"{name} must be an id of the items, such as {ids[0]}, got {text!r}{hint}")
    return int(found[0])

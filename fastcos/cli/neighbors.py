"""fastcos neighbors: the exact nearest neighbours of every item of a model or of vectors."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastcos import io, validation
from fastcos.cli import ground_truth, options
from fastcos.cli.model_folder import is_model_folder, read_model_folder
from fastcos.cli.terminal import print_json, print_table, progress_bar, say
from fastcos.storage import OccupiedError
from fastcos.storage.provenance import json_ready, provenance

if TYPE_CHECKING:
    from fastcos.calibration import Calibration
    from fastcos.comparison.candidates import Embeddings
    from fastcos.neighbors.types import Neighbors

DESCRIPTION = """\
Find the k most similar items of every item, exactly: of a folder of fastcos fit or export, or of
vectors. With --queries, the k most similar items of every row of another file. Writes a table of
item, rank, neighbor, score, or an .npz of the arrays ids, indices and scores; with --show, prints
the neighbours of those items instead. With --checkpoint, the same command resumes a search that was
stopped.

For benchmarks of approximate indexes: of items and --queries in .fvecs, .fbin, .npy or .hdf5
(train, test), of any size, writes the numbers of the neighbours to .ivecs, .ibin, .npy or .hdf5
(neighbors). With --result, prints the recall of the neighbours in that file: the share of them
whose exact score reaches the k-th best, so that an item that ties with it counts."""
EPILOG = f"""\
examples:
  fastcos neighbors films --k 20 --out neighbors.csv
  fastcos neighbors films --rescaling balanced --show 318 296 --names movies.csv
  fastcos neighbors films --measure query_metric_cosine --show 318
  fastcos neighbors texts.parquet --queries queries.jsonl --min-score 0.7
  fastcos neighbors items.npy --calibration calibration.json --fpr 1e-4
  fastcos neighbors vectors.npz --measure soft_cosine:matrix=S.npy
  fastcos neighbors large.npy --checkpoint parts --out neighbors.npz
  fastcos neighbors base.fbin --queries queries.fbin --k 100 --out truth.ibin
  fastcos neighbors base.fbin --queries queries.fbin --k 100 --result found.ibin
input: a folder of fastcos fit or export, or
{options.VECTOR_FORMATS}"""
SUFFIXES = (".csv", ".npz", ".json", ".parquet")


class _Found(NamedTuple):
    """Neighbours of some queries, with the ids of both sides and the names of the items."""

    neighbors: "Neighbors"
    query_ids: Any
    ids: Any
    names: Any
    of_queries: bool
    calibration: "Calibration | None" = None

    @property
    def header(self) -> tuple[str, ...]:
        """The columns of the table."""
        named = () if self.names is None else ("name",)
        first = ("query",) if self.of_queries else ("item", *named)
        last = () if self.calibration is None else ("p_value",)
        return *first, "rank", "neighbor", *(f"neighbor_{one}" for one in named), "score", *last

    @property
    def p_values(self) -> tuple[Any, ...]:
        """The p-values of the scores (n, k), where there is a calibration."""
        if self.calibration is None:
            return ()
        return (self.calibration.p_value(self.neighbors.scores),)

    def lines(self) -> Iterator[tuple[Any, ...]]:
        """The rows of the table, without padding."""
        named = self.names is not None
        names = dict(zip(self.ids.tolist(), self.names, strict=True)) if named else {}
        for query, columns, *values in zip(
            self.query_ids, *self.neighbors, *self.p_values, strict=True
        ):
            first = (query, names[query.item()]) if named and not self.of_queries else (query,)
            for rank, (column, *numbers) in enumerate(zip(columns, *values, strict=True), 1):
                if column < 0:
                    break
                found = (self.ids[column], self.names[column]) if named else (self.ids[column],)
                yield *first, rank, *found, *map(float, numbers)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", metavar="SOURCE", help="folder of fastcos fit, or vectors")
    parser.add_argument(
        "--queries", metavar="FILE", help="vectors whose neighbours to find (default: the items)"
    )
    parser.add_argument("--k", type=int, default=10, metavar="K", help="neighbours (default 10)")
    parser.add_argument("--min-score", type=float, metavar="S", help="only neighbours of score S")
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        help="calibration.json of fastcos calibrate, for p-values beside the scores",
    )
    parser.add_argument(
        "--fpr",
        type=float,
        metavar="P",
        help="only neighbours that a random pair reaches with this probability, by --calibration",
    )
    options.add_measure(parser)
    parser.add_argument(
        "--rescaling",
        metavar="NAME",
        help="D of a model of Eq. 1 (default identity; a wrong name lists all)",
    )
    parser.add_argument("--show", nargs="+", metavar="ID", help="print neighbours of these items")
    parser.add_argument(
        "--names", metavar="FILE", help="table of item ids and names, which are then written too"
    )
    options.add_vectors(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help=f"{', '.join(SUFFIXES)} (default neighbors.csv), or of a benchmark; not written with "
        "--show",
    )
    parser.add_argument("--result", metavar="FILE", help="neighbours whose recall to print")
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="directory for the finished blocks, as .npy arrays"
    )
    options.add_json(parser)
    options.add_common(parser, seed=False)


def run(given: argparse.Namespace) -> int:
    """Read, search, write or print."""
    from fastcos.comparison.candidates import select_candidates

    options.apply_common(given)
    if ground_truth.is_wanted(given):
        return ground_truth.run(given)
    out = Path("neighbors.csv" if given.out is None else given.out)
    validation.as_choice("the suffix of --out", out.suffix, SUFFIXES)
    options.check_output_file("--out", out)
    if given.min_score is not None:
        validation.as_real("--min-score", given.min_score)
    if given.queries is not None:
        validation.check_none("--show", given.show, "with --queries")
    named = options.as_measure("--measure", given.measure)
    embeddings, ids = _embeddings(given)
    names = None if given.names is None else io.read_names(given.names, ids)
    *_, candidate = select_candidates([named], embeddings, argument="--measure")[0]
    items, measure = candidate.rows(embeddings), candidate.make(embeddings)
    calibration, min_score = _calibration(given, measure)
    own = given.queries is None
    k = validation.as_count("--k", given.k, high=len(items) - own)
    wanted: dict[str, Any] = {"measure": measure, "min_score": min_score}
    if given.show:
        found = _search_shown(given.show, items, ids, k, wanted)
        _show(_Found(*found, ids, names, False, calibration), given)
        return 0
    queries, query_ids = _queries(given, items, ids)
    try:
        with progress_bar("searching") as progress:
            neighbors = _search(queries, items, k, wanted, progress, given.checkpoint)
    except OccupiedError as error:  # "out must ..."
        raise ValueError(str(error).replace("out", "--checkpoint", 1)) from None
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    _write(out, _Found(neighbors, query_ids, ids, names, not own, calibration))
    if given.json:
        files = {"source": given.source, "queries": given.queries, "out": str(out)}
        print_json(provenance({**files, "k": k, "measure": given.measure}))
    what = f"{len(items):,} items" if own else f"{len(query_ids):,} queries"
    say(f"wrote the {k} nearest of {what} to {out}")
    return 0


def _calibration(
    given: argparse.Namespace, measure: Any
) -> tuple["Calibration | None", float | None]:
    """Read --calibration; return it and the least score, of --fpr or of --min-score."""
    if given.calibration is None:
        validation.check_none("--fpr", given.fpr, "without --calibration")
        return None, given.min_score
    from fastcos.calibration import Calibration

    calibration = Calibration.load(given.calibration)
    if calibration.measure != measure.name:
        raise ValueError(f"--calibration must be of {measure.name}, got {calibration.measure}")
    if given.fpr is None:
        return calibration, given.min_score
    validation.check_none("--min-score", given.min_score, "with --fpr")
    return calibration, calibration.threshold(given.fpr)


def _search(
    queries: Any, items: Any, k: int, wanted: dict[str, Any], progress: Any, out: Any
) -> "Neighbors":
    from fastcos.neighbors.search import top_k

    if queries is None:
        return top_k(items, k=k, progress=progress, out=out, **wanted)
    return top_k(queries, items, k, progress=progress, out=out, **wanted)


def _search_shown(
    shown: list[str], items: Any, ids: Any, k: int, wanted: dict[str, Any]
) -> tuple["Neighbors", Any]:
    """Return the neighbours of the items with these ids, and their ids."""
    from fastcos.neighbors.search import top_k

    rows = [_position("--show", item, ids) for item in shown]
    themselves = sp.csr_array(
        (np.ones(len(rows)), (np.arange(len(rows)), rows)), shape=(len(rows), len(items))
    )
    return top_k(items[rows], items, k, exclude=themselves, **wanted), ids[rows]


def _embeddings(given: argparse.Namespace) -> tuple["Embeddings", Any]:
    """Return the embeddings that measures are fitted to, and the ids of the items."""
    from fastcos.comparison.candidates import Embeddings

    source = Path(given.source)
    source.stat()  # a missing file is reported before its suffix is refused
    columns = {"vector_column": given.vector_column, "id_column": given.id_column}
    if is_model_folder(source):
        for name, value in columns.items():
            validation.check_none(f"--{name.replace('_', '-')}", value, "for a model")
        model, ids, typical = read_model_folder(source)
        items = model.item_embeddings(given.rescaling)
        free = model.objective == "dropout"
        return Embeddings(items, None, model, typical, given.rescaling if free else None), ids
    validation.check_none("--rescaling", given.rescaling, "for vectors, which have no model")
    found = io.read_factors(source, **columns)
    for note in found.notes:
        say(note)
    return Embeddings(found.items), found.ids


def _queries(given: argparse.Namespace, items: Any, ids: Any) -> tuple[Any, Any]:
    """Return the queries and their ids; None for the items themselves."""
    if given.queries is None:
        return None, ids
    found = options.read_vectors(given.queries, given)
    validation.check_same_width("--queries", found.vectors, "items", items)
    return found


def _position(name: str, text: str, ids: Any) -> int:
    """Return the position of the id that is written like text."""
    found = np.flatnonzero(ids.astype(str) == text)
    if len(found) == 0:
        raise ValueError(f"{name} must be an id of the items, such as {ids[0]}, got {text!r}")
    return int(found[0])


def _write(out: Path, found: _Found) -> None:
    if out.suffix == ".npz":
        arrays = {"ids": found.ids, **found.neighbors._asdict()}
        if found.calibration is not None:
            arrays["p_values"] = found.p_values[0]
        if found.of_queries:
            arrays["query_ids"] = found.query_ids
        if found.names is not None:
            arrays["names"] = found.names
        io.write_npz(out, arrays)
    elif out.suffix == ".csv":
        io.write_csv(out, found.header, found.lines())
    elif out.suffix == ".json":
        io.write_json(out, _records(found))
    else:
        columns = list(zip(*found.lines(), strict=True)) or [()] * len(found.header)
        io.write_parquet(out, dict(zip(found.header, columns, strict=True)))


def _records(found: _Found) -> Any:
    return json_ready([dict(zip(found.header, line, strict=True)) for line in found.lines()])


def _show(found: _Found, given: argparse.Namespace) -> None:
    if given.json:
        print_json(_records(found))
    else:
        print_table(f"by {given.measure}", found.header, list(found.lines()))

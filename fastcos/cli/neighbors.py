"""fastcos neighbors: the exact nearest neighbours of every item of a model or of vectors."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from fastcos import io, validation
from fastcos.cli import ground_truth, lists, options
from fastcos.cli.model_folder import is_model_folder, read_model_folder
from fastcos.cli.terminal import print_json, progress_bar, say
from fastcos.storage import OccupiedError
from fastcos.storage.provenance import provenance

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", metavar="SOURCE", help="folder of fastcos fit, or vectors")
    parser.add_argument(
        "--queries", metavar="FILE", help="vectors whose neighbours to find (default: the items)"
    )
    parser.add_argument("--k", type=int, default=10, metavar="K", help="neighbours (default 10)")
    parser.add_argument("--min-score", type=float, metavar="S", help="only scores from S on")
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
        help="D of a model of Eq. 1 (default identity; a wrong name lists all), or A,B for S^A Σ^B",
    )
    parser.add_argument("--show", nargs="+", metavar="ID", help="print neighbours of these items")
    lists.add_names(parser)
    options.add_vectors(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help=f"{', '.join(lists.SUFFIXES)}, - for stdout (default neighbors.csv), or of a "
        "benchmark; not written with --show",
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
    out = lists.as_output("neighbors.csv" if given.out is None else given.out)
    if given.min_score is not None:
        validation.as_real("--min-score", given.min_score)
    named = options.as_measure("--measure", given.measure)
    embeddings, ids = _embeddings(given)
    names = lists.read_names(given, given.source, ids)
    *_, candidate = select_candidates([named], embeddings, argument="--measure")[0]
    items, measure = candidate.rows(embeddings), candidate.make(embeddings)
    calibration, min_score = _calibration(given, measure)
    own = given.queries is None
    k = validation.as_count("--k", given.k, high=len(items) - own)
    wanted: dict[str, Any] = {"measure": measure, "min_score": min_score}
    columns = ("item" if own else "query", "neighbor")
    queries, query_ids = _queries(given, items, ids)
    if given.show:
        if own:
            found = _search_shown(given.show, items, ids, k, wanted)
        else:
            rows = [lists.position_of("--show", one, query_ids) for one in given.show]
            found = _search(queries[rows], items, k, wanted, None, None), query_ids[rows]
        shown = lists.Lists(*found, ids, names, columns, calibration)
        shown.show(f"by {given.measure}", as_json=given.json)
        return 0
    try:
        with progress_bar("searching") as progress:
            neighbors = _search(queries, items, k, wanted, progress, given.checkpoint)
    except OccupiedError as error:  # "out must ..."
        raise ValueError(str(error).replace("out", "--checkpoint", 1)) from None
    lists.Lists(neighbors, query_ids, ids, names, columns, calibration).write(out)
    if given.json:
        files = {"source": given.source, "queries": given.queries, "out": str(out)}
        print_json(provenance({**files, "k": k, "measure": given.measure}))
    what = f"{len(items):,} items" if own else f"{len(query_ids):,} queries"
    n_found = int((neighbors.indices >= 0).sum())
    say(f"wrote {n_found:,} neighbours of {what}, {k} of each at most, to {out}")
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

    rows = [lists.position_of("--show", item, ids) for item in shown]
    themselves = sp.csr_array(
        (np.ones(len(rows)), (np.arange(len(rows)), rows)), shape=(len(rows), len(items))
    )
    return top_k(items[rows], items, k, exclude=themselves, **wanted), ids[rows]


def _embeddings(given: argparse.Namespace) -> tuple["Embeddings", Any]:
    """Return the embeddings that measures are fitted to, and the ids of the items."""
    from fastcos.comparison.candidates import Embeddings

    source = Path(given.source)
    source.stat()  # a missing file is reported before its suffix is refused
    columns = {name: getattr(given, name) for name in ("vector_column", "id_column", "ids")}
    if is_model_folder(source):
        for name, value in columns.items():
            validation.check_none(f"--{name.replace('_', '-')}", value, "for a model")
        model, ids, typical, popularity = read_model_folder(source)
        D = None if given.rescaling is None else options.as_rescaling(given.rescaling)
        items = model.item_embeddings(D)
        free = model.objective == "dropout"
        return Embeddings(items, popularity, model, typical, D if free else None), ids
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

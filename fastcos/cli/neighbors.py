"""fastcos neighbors: the exact nearest neighbours of every item of a model or of vectors."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastcos import validation
from fastcos.cli import ground_truth, lists, options
from fastcos.cli.model_folder import is_model_folder, model_embeddings, read_items
from fastcos.cli.terminal import progress_bar
from fastcos.io.ann_files import NEIGHBOR_SUFFIXES
from fastcos.linalg.csr import one_per_row
from fastcos.search import top_k
from fastcos.storage import OccupiedError

if TYPE_CHECKING:
    from fastcos.auditing import Calibration
    from fastcos.comparison.candidates import Embeddings
    from fastcos.io import Vectors

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
    add = parser.add_argument
    add("source", metavar="SOURCE", help="folder of fastcos fit, or vectors")
    add("--queries", metavar="FILE", help="vectors whose neighbours to find (default: the items)")
    add("--min-score", type=float, metavar="S", help="only scores from S on")
    help_ = "calibration.json of fastcos calibrate, for p-values beside the scores"
    add("--calibration", metavar="FILE", help=help_)
    help_ = "only neighbours that a random pair reaches with this probability, by --calibration"
    add("--fpr", type=float, metavar="P", help=help_)
    options.add_measure(parser)
    help_ = "D of a model of Eq. 1 (default identity; a wrong name lists all), or A,B for S^A Σ^B"
    add("--rescaling", metavar="NAME", help=help_)
    options.add_vectors(parser)
    lists.add_lists(parser, more=", or of a benchmark")
    add("--result", metavar="FILE", help="neighbours whose recall to print")
    add("--checkpoint", metavar="DIR", help="directory for the finished blocks, as .npy arrays")
    options.add_common(parser, seed=False)


def run(given: argparse.Namespace) -> int:
    """Read, search, write or print."""
    from fastcos.comparison.candidates import select_candidates

    if given.result is not None or Path(given.out or "").suffix in NEIGHBOR_SUFFIXES:
        return ground_truth.run(given)
    out = lists.as_output(given.out)
    if given.min_score is not None:
        validation.as_real("--min-score", given.min_score)
    named = options.as_measure("--measure", given.measure)
    embeddings, ids, read = _embeddings(given)
    names = lists.read_names(given, given.source, ids, read)
    *_, candidate = select_candidates([named], embeddings, argument="--measure")[0]
    items, measure = candidate.rows(embeddings), candidate.make(embeddings)
    calibration, min_score = _calibration(given, measure)
    own = given.queries is None
    k = validation.as_count("--k", given.k, high=len(items) - own)
    wanted: dict[str, Any] = {"measure": measure, "min_score": min_score}
    columns = ("item" if own else "query", "neighbor")
    queries, query_ids = items, ids
    if not own:
        queries, query_ids = options.read_vectors(given.queries, given, shared=True)
        validation.check_same_width("--queries", queries, "items", items)
    if given.show:
        rows = lists.shown_rows(given, query_ids)
        if own:  # an item does not find itself
            wanted["exclude"] = one_per_row(rows, len(items))
        queries, query_ids = queries[rows], query_ids[rows]
    searched = None if queries is items else items  # None: the queries themselves
    try:
        with progress_bar("searching") as progress:
            out_folder = None if given.show else given.checkpoint
            found = top_k(queries, searched, k, progress=progress, out=out_folder, **wanted)
    except OccupiedError as error:  # "out must ..."
        raise ValueError(str(error).replace("out", "--checkpoint", 1)) from None
    best = lists.Lists(found, query_ids, ids, names, columns, calibration)
    return best.deliver(given, out, f"by {given.measure}")


def _calibration(
    given: argparse.Namespace, measure: Any
) -> tuple["Calibration | None", float | None]:
    """Read --calibration; return it and the least score, of --fpr or of --min-score."""
    if given.calibration is None:
        validation.check_none("--fpr", given.fpr, "without --calibration")
        return None, given.min_score
    from fastcos.auditing import Calibration

    calibration = Calibration.load(given.calibration)
    if calibration.measure != measure.name:
        raise ValueError(f"--calibration must be of {measure.name}, got {calibration.measure}")
    if given.fpr is None:
        return calibration, given.min_score
    validation.check_none("--min-score", given.min_score, "with --fpr")
    return calibration, calibration.threshold(given.fpr)


def _embeddings(given: argparse.Namespace) -> tuple["Embeddings", Any, "Vectors | None"]:
    """Return what measures are fitted to, the ids of the items, and the vectors of a file."""
    from fastcos.comparison.candidates import Embeddings

    source = Path(given.source)
    source.stat()  # a missing file is reported before its suffix is refused
    if is_model_folder(source):
        options.refuse(given, "for a model", *options.VECTOR_COLUMNS)
        return *model_embeddings(source, given.rescaling), None
    validation.check_none("--rescaling", given.rescaling, "for vectors, which have no model")
    # users that search by inner products find what the model recommends
    of_users = given.queries is not None and given.measure == "dot"
    read = read_items(source, given, keep_biases=of_users)
    return Embeddings(read.vectors), read.ids, read

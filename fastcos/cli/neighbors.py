"""The command ``fastcos neighbors``, which finds exact nearest neighbours of items or queries."""

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
For every item, find the k items that are most similar to it, without approximation. The command
reads the items from a folder that `fastcos fit` or `fastcos index export` wrote, or from a file of
vectors. With --queries, the command finds the k items that are most similar to each row of the file
of queries. The command writes a table with columns for item, rank, neighbor and score, or an .npz
file with the arrays ids, indices and scores. With --show, the command prints the neighbours of the
named items instead of writing a file. If a search with --checkpoint was stopped, repeating the same
command resumes the search.

For benchmarks of approximate indexes, the command reads the items and the queries from .fvecs,
.fbin, .npy or .hdf5 files of any size. In an .hdf5 file, the data set train contains the items, and
the data set test contains the queries. The command writes the row numbers of the neighbours to a
file with the suffix .ivecs, .ibin, .npy or .hdf5 (data set neighbors). With --result and --queries,
the command reads a file of neighbours, and prints which share of these neighbours is correct (the
recall). A neighbour counts as correct if its exact score is at least the k-th best score of its
query. A neighbour whose score equals the k-th best score is therefore correct, too."""
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
input: a folder written by `fastcos fit` or `fastcos index export`, or
{options.VECTOR_FORMATS}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("source", metavar="SOURCE", help="file of vectors, or folder written by `fastcos fit`")
    help_ = "file of query vectors (default: the items are also the queries)"
    add("--queries", metavar="FILE", help=help_)
    add("--min-score", type=float, metavar="S", help="lowest score that a neighbour can have")
    help_ = (
        "file calibration.json of `fastcos calibrate`; with this file, the output contains a "
        "p-value for each score"
    )
    add("--calibration", metavar="FILE", help=help_)
    help_ = (
        "highest p-value of a neighbour; neighbours with a higher p-value are left out. The "
        "p-value of a score is the share of random pairs that score at least as high"
    )
    add("--fpr", type=float, metavar="P", help=help_)
    options.add_measure(parser)
    help_ = (
        "rescaling D of the dimensions, only for a model that `fastcos fit --objective dropout` "
        "wrote. NAME is one of identity (the default), orthonormal, weights, balanced, data and "
        "smoothed. NAME "
        "can also be two numbers A,B, which stand for the rescaling D = S^A Σ^B. "
        f"{options.RESCALING_SYMBOLS}"
    )
    add("--rescaling", metavar="NAME", help=help_)
    options.add_vectors(parser)
    lists.add_lists(parser, more_formats="; for benchmarks also .ivecs, .ibin, .npy, .hdf5")
    help_ = "print the recall of the neighbours in FILE (needs --queries)"
    add("--result", metavar="FILE", help=help_)
    help_ = "directory for finished blocks, so that the command can resume an interrupted search"
    add("--checkpoint", metavar="DIR", help=help_)
    options.add_common(parser, seed=False)


def run(args: argparse.Namespace) -> int:
    """Read the vectors, find the neighbours, and write or print them."""
    from fastcos.comparison.candidates import select_candidates

    if args.result is not None or Path(args.out or "").suffix in NEIGHBOR_SUFFIXES:
        return ground_truth.run(args)
    out = lists.as_output(args.out)
    if args.min_score is not None:
        validation.as_real("--min-score", args.min_score)
    measure_option = options.as_measure("--measure", args.measure)
    embeddings, ids, source_vectors = _embeddings(args)
    names = lists.read_names(args, args.source, ids, source_vectors)
    *_, candidate = select_candidates([measure_option], embeddings, argument="--measure")[0]
    items, measure = candidate.rows(embeddings), candidate.make(embeddings)
    calibration, min_score = _calibration(args, measure)
    queries_are_items = args.queries is None
    k = validation.as_count("--k", args.k, high=len(items) - queries_are_items)
    settings: dict[str, Any] = {"measure": measure, "min_score": min_score}
    columns = ("item" if queries_are_items else "query", "neighbor")
    queries, query_ids = items, ids
    if not queries_are_items:
        queries, query_ids = options.read_vectors(args.queries, args, shared=True)
        validation.check_same_width("--queries", queries, "items", items)
    if args.show:
        rows = lists.rows_to_show(args, query_ids)
        if queries_are_items:  # An item is not a neighbour of itself.
            settings["exclude"] = one_per_row(rows, len(items))
        queries, query_ids = queries[rows], query_ids[rows]
    # If the items are also the queries, top_k gets None as items, so that no row is returned as its
    # own neighbour.
    searched_items = None if queries is items else items
    try:
        with progress_bar("searching") as progress:
            out_folder = None if args.show else args.checkpoint
            neighbors = top_k(
                queries, searched_items, k, progress=progress, out=out_folder, **settings
            )
    # The message begins with "out", the name of an argument of top_k. For users of the command,
    # "out" is replaced by the name of the option, --checkpoint.
    except OccupiedError as error:
        raise ValueError(str(error).replace("out", "--checkpoint", 1)) from None
    ranked = lists.RankedLists(neighbors, query_ids, ids, names, columns, calibration)
    return ranked.write_or_print(args, out, f"by {args.measure}")


def _calibration(
    args: argparse.Namespace, measure: Any
) -> tuple["Calibration | None", float | None]:
    """Return the calibration that --calibration names, and the lowest allowed score.

    The option --fpr or --min-score determines the lowest score.
    """
    if args.calibration is None:
        if args.fpr is not None:
            raise ValueError("--fpr needs --calibration, a file that `fastcos calibrate` wrote")
        return None, args.min_score
    from fastcos.auditing import Calibration

    calibration = Calibration.load(args.calibration)
    if calibration.measure != measure.name:
        rule = f"be a calibration of the measure {measure.name}"
        raise ValueError(f"--calibration must {rule}, got a calibration of {calibration.measure}")
    if args.fpr is None:
        return calibration, args.min_score
    validation.check_none("--min-score", args.min_score, "with --fpr")
    return calibration, calibration.threshold(args.fpr)


def _embeddings(args: argparse.Namespace) -> tuple["Embeddings", Any, "Vectors | None"]:
    """Return the embeddings of the items, the ids of the items, and the vectors in SOURCE.

    The third value is None if SOURCE is a model folder and not a file of vectors.
    """
    from fastcos.comparison.candidates import Embeddings

    source = Path(args.source)
    source.stat()  # A missing file should be reported as missing, and not as a wrong suffix.
    if is_model_folder(source):
        options.refuse(args, "for a model", *options.VECTOR_COLUMNS)
        return *model_embeddings(source, args.rescaling), None
    reason = "for vectors, because only a model written by `fastcos fit` can be rescaled"
    validation.check_none("--rescaling", args.rescaling, reason)
    # If the measure is the inner product and the queries are user vectors, the results are the
    # recommendations of the model. The scores of the model include its biases, so the biases are
    # read as additional columns.
    keep_biases = args.queries is not None and args.measure == "dot"
    source_vectors = read_items(source, args, keep_biases=keep_biases)
    return Embeddings(source_vectors.vectors), source_vectors.ids, source_vectors

"""Write exact neighbours in the formats of approximate-index benchmarks, and compute recall."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.terminal import print_json, progress_bar, say, show_text
from fastcos.io import ann_files
from fastcos.io.columns import positions_in
from fastcos.search import rescore, top_k

# Options of `fastcos neighbors` that do not apply to the file formats of benchmarks.
_UNSUPPORTED = (
    "min_score", "calibration", "fpr", "rescaling", "show", "names", "text", "checkpoint", "ids",
)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Find the exact neighbours; write them to files, or print the recall of --result."""
    options.refuse(args, "for benchmark files", *_UNSUPPORTED)
    rule = "given if --out is a benchmark file" if args.result is None else "given with --result"
    validation.as_instance("--queries", args.queries, str, rule)
    if args.out is not None:
        out = Path(args.out)
        suffixes = ann_files.NEIGHBOR_SUFFIXES
        validation.as_choice("the suffix of --out", out.suffix, suffixes)
        options.check_output_file("--out", out)
    without_columns = {*ann_files.VECTOR_SUFFIXES, ".npy"}
    if {Path(path).suffix for path in (args.source, args.queries)} <= without_columns:
        options.refuse(args, "for benchmark files", "vector_column", "id_column")
    items, ids = _vectors("SOURCE", args.source, "train", args)
    queries, query_ids = _vectors("--queries", args.queries, "test", args)
    measure = options.as_measure("--measure", args.measure)
    result = None
    if args.result is not None:
        if Path(args.result).suffix in ann_files.NEIGHBOR_SUFFIXES:
            numbers = ann_files.read_neighbors("--result", args.result)
            result = _as_result(numbers, args.k, len(queries), len(items))
        else:
            result = _result_of_ids(args.result, args.k, query_ids, ids)
    with progress_bar("searching queries") as progress:
        truth = top_k(queries, items, args.k, measure=measure, progress=progress)
    report: dict[str, Any] = {"queries": len(queries), "items": len(items), "k": args.k}
    if args.out is not None:
        ann_files.write_neighbors(out, truth.indices)
        say(f"wrote the {args.k} nearest neighbours of each of {len(queries):,} queries to {out}")
    if result is not None:
        rescored = rescore(np.asarray(queries), items, result, args.k, measure=measure)
        # If a neighbour occurs twice in a list, it counts once, because rescore replaces its second
        # occurrence by padding.
        report["recall"] = float((rescored.scores >= truth.scores[:, -1:]).mean())
    if args.json:
        print_json(report)
    elif result is not None:
        show_text(f"The recall@{args.k} of {args.result} is {report['recall']:.4f}.")
    return 0


def _vectors(name: str, path: str, dataset: str, args: argparse.Namespace) -> tuple[Any, Any]:
    """Read vectors and ids from the file of a benchmark, or from another file of vectors."""
    if Path(path).suffix in ann_files.VECTOR_SUFFIXES:
        rows = ann_files.read_vectors(name, path, dataset)
        return rows, np.arange(len(rows))
    return options.read_vectors(path, args, shared=dataset == "test")


def _result_of_ids(path: str, k: int, query_ids: Any, ids: Any) -> Any:
    """Read a table of query ids and neighbour ids; return positions (n, k), padded with -1."""
    pairs = io.read_interactions(path, user="query", item="neighbor", value="")
    positions = positions_in(ids, pairs.item_ids)
    rows = positions_in(query_ids, pairs.user_ids)
    if min(positions.min(), rows.min()) < 0:
        raise ValueError(
            "--result must hold only ids from SOURCE and from --queries, got unknown ids in "
            f"{path!r}"
        )
    longest = int(np.diff(pairs.X.indptr).max())
    validation.as_count("k", k, low=longest)
    result = np.full((len(query_ids), k), -1)
    X = pairs.X.tocoo()
    rank = np.arange(len(X.row)) - pairs.X.indptr[X.row]
    result[rows[X.row], rank] = positions[X.col]
    return result


def _as_result(neighbors: Any, k: int, n_queries: int, n_items: int) -> Any:
    """Return the first k neighbours of each query; raise ValueError if neighbours are missing."""
    validation.as_count("k", k, high=n_items)
    if len(neighbors) != n_queries or neighbors.shape[1] < k:
        rule = f"have at least {k} neighbours for each of {n_queries} queries"
        size = f"{neighbors.shape[1]} neighbours for each of {len(neighbors)} queries"
        raise ValueError(f"--result must {rule}, got {size}")
    first = np.array(neighbors[:, :k])
    if first.min() < -1 or first.max() >= n_items:
        rule = f"hold item numbers from 0 to {n_items - 1}, or -1 as padding"
        raise ValueError(f"--result must {rule}, got numbers from {first.min()} to {first.max()}")
    return first

"""fastcos groundtruth: exact neighbours as benchmarks of approximate indexes need them; recall."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.cli import options
from fastcos.cli.terminal import print_json, progress_bar, say

DESCRIPTION = """\
Find the exact k nearest items of every query and write their numbers, the ground truth for
approximate indexes. With --result, print the recall of the neighbours in that file: the share of
them whose exact score reaches the k-th best, so that an item that ties with it counts."""
EPILOG = """\
examples:
  fastcos groundtruth base.fbin queries.fbin --k 100 --out truth.ibin
  fastcos groundtruth base.fbin queries.fbin --k 100 --result found.ibin
  fastcos groundtruth base.fvecs queries.fvecs --measure dot --out truth.ivecs
  fastcos groundtruth glove.hdf5 glove.hdf5 --k 100 --result glove.hdf5
input: .fvecs, .fbin, .npy or .hdf5 (train, test), of any size; neighbours: .ivecs, .ibin, .npy or
.hdf5 (neighbors)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("items", metavar="ITEMS", help="vectors of the items")
    parser.add_argument("queries", metavar="QUERIES", help="vectors of the queries")
    parser.add_argument("--k", type=int, default=10, metavar="K", help="neighbours (default 10)")
    parser.add_argument(
        "--measure",
        default="cosine",
        metavar="NAME",
        help="cosine (default), dot or neg_euclidean; a wrong name lists all",
    )
    parser.add_argument("--out", metavar="FILE", help="neighbours to write")
    parser.add_argument("--result", metavar="FILE", help="neighbours whose recall to print")
    options.add_json(parser)
    options.add_common(parser, seed=False)


def run(given: argparse.Namespace) -> int:
    """Search; write or compare."""
    from fastcos.io import ann_files
    from fastcos.neighbors import top_k

    options.apply_common(given)
    if given.out is None and given.result is None:
        raise ValueError("--out must be given where --result is not, got neither")
    if given.out is not None:
        out = Path(given.out)
        suffixes = ann_files.NEIGHBOR_SUFFIXES
        validation.as_choice("the suffix of --out", out.suffix, suffixes)
        options.check_output_file("--out", out)
    items = ann_files.read_vectors("ITEMS", given.items, "train")
    queries = ann_files.read_vectors("QUERIES", given.queries, "test")
    measure = options.as_measure("--measure", given.measure)
    result = None
    if given.result is not None:
        found = ann_files.read_neighbors("--result", given.result)
        result = _as_result(found, given.k, len(queries), len(items))
    with progress_bar("searching queries") as progress:
        truth = top_k(queries, items, given.k, measure=measure, progress=progress)
    report: dict[str, Any] = {"queries": len(queries), "items": len(items), "k": given.k}
    if given.out is not None:
        ann_files.write_neighbors(out, truth.indices)
        say(f"wrote {given.k} neighbours of {len(queries):,} queries to {out}")
    if result is not None:
        report["recall"] = recall(queries, items, result, truth.scores[:, -1], measure)
    if given.json:
        print_json(report)
    elif result is not None:
        print(f"recall@{given.k}: {report['recall']:.4f}")
    return 0


def recall(queries: Any, items: Any, result: Any, least: Any, measure: Any) -> float:
    """Return the share of results (n, k) with an exact score of at least `least` (n,)."""
    from fastcos.neighbors import rescore

    k = result.shape[1]
    found = rescore(np.asarray(queries), items, result, k, measure=measure)
    # repeated numbers count once: the others are padding
    return float((found.scores >= least[:, None]).mean())


def _as_result(found: Any, k: int, n_queries: int, n_items: int) -> Any:
    """Return the first k neighbours of each query."""
    validation.as_count("k", k, high=n_items)
    if len(found) != n_queries or found.shape[1] < k:
        raise ValueError(
            f"--result must have at least {k} neighbours of {n_queries} queries, got "
            f"{found.shape[1]} of {len(found)}"
        )
    first = np.array(found[:, :k])
    if first.min() < -1 or first.max() >= n_items:
        raise ValueError(
            f"--result must hold item numbers from 0 to {n_items - 1} or -1, got {first.min()} to "
            f"{first.max()}"
        )
    return first

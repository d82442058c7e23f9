"""Exact neighbours in the files of benchmarks for approximate indexes, and recall."""

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

# arguments of fastcos neighbors that these files have no place for
_WITHOUT = (
    "min_score", "calibration", "fpr", "rescaling", "show", "names", "text", "checkpoint", "ids",
)  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Search; write or compare."""
    options.refuse(given, "for files of benchmarks", *_WITHOUT)
    validation.as_instance("--queries", given.queries, str, "given for files of benchmarks")
    if given.out is not None:
        out = Path(given.out)
        suffixes = ann_files.NEIGHBOR_SUFFIXES
        validation.as_choice("the suffix of --out", out.suffix, suffixes)
        options.check_output_file("--out", out)
    without_columns = {*ann_files.VECTOR_SUFFIXES, ".npy"}
    if {Path(one).suffix for one in (given.source, given.queries)} <= without_columns:
        options.refuse(given, "for files of benchmarks", "vector_column", "id_column")
    items, ids = _vectors("SOURCE", given.source, "train", given)
    queries, query_ids = _vectors("--queries", given.queries, "test", given)
    measure = options.as_measure("--measure", given.measure)
    result = None
    if given.result is not None:
        if Path(given.result).suffix in ann_files.NEIGHBOR_SUFFIXES:
            numbers = ann_files.read_neighbors("--result", given.result)
            result = _as_result(numbers, given.k, len(queries), len(items))
        else:
            result = _result_of_ids(given.result, given.k, query_ids, ids)
    with progress_bar("searching queries") as progress:
        truth = top_k(queries, items, given.k, measure=measure, progress=progress)
    report: dict[str, Any] = {"queries": len(queries), "items": len(items), "k": given.k}
    if given.out is not None:
        ann_files.write_neighbors(out, truth.indices)
        say(f"wrote {given.k} neighbours of {len(queries):,} queries to {out}")
    if result is not None:
        found = rescore(np.asarray(queries), items, result, given.k, measure=measure)
        # repeated numbers count once: the others are padding
        report["recall"] = float((found.scores >= truth.scores[:, -1:]).mean())
    if given.json:
        print_json(report)
    elif result is not None:
        show_text(f"recall@{given.k}: {report['recall']:.4f}")
    return 0


def _vectors(name: str, path: str, dataset: str, given: argparse.Namespace) -> tuple[Any, Any]:
    """Read vectors and ids of a benchmark's file, or of any that fastcos neighbors reads."""
    if Path(path).suffix in ann_files.VECTOR_SUFFIXES:
        rows = ann_files.read_vectors(name, path, dataset)
        return rows, np.arange(len(rows))
    return options.read_vectors(path, given, shared=dataset == "test")


def _result_of_ids(path: str, k: int, query_ids: Any, ids: Any) -> Any:
    """Read a table of queries and neighbours by id: positions of at most k neighbours, else -1."""
    pairs = io.read_interactions(path, user="query", item="neighbor", value="")
    positions = positions_in(ids, pairs.item_ids)
    rows = positions_in(query_ids, pairs.user_ids)
    if min(positions.min(), rows.min()) < 0:
        raise ValueError(f"--result must hold ids of the items and queries, got others in {path!r}")
    most = int(np.diff(pairs.X.indptr).max())
    validation.as_count("k", k, low=most)
    result = np.full((len(query_ids), k), -1)
    X = pairs.X.tocoo()
    place = np.arange(len(X.row)) - pairs.X.indptr[X.row]
    result[rows[X.row], place] = positions[X.col]
    return result


def _as_result(found: Any, k: int, n_queries: int, n_items: int) -> Any:
    """Return the first k neighbours of each query."""
    validation.as_count("k", k, high=n_items)
    if len(found) != n_queries or found.shape[1] < k:
        rule = f"have at least {k} neighbours of {n_queries} queries"
        raise ValueError(f"--result must {rule}, got {found.shape[1]} of {len(found)}")
    first = np.array(found[:, :k])
    if first.min() < -1 or first.max() >= n_items:
        rule = f"hold item numbers from 0 to {n_items - 1} or -1"
        raise ValueError(f"--result must {rule}, got {first.min()} to {first.max()}")
    return first

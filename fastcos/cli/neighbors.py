"""fastcos neighbors: the exact nearest neighbours of every item of a model or of vectors."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.model_folder import read_model_folder
from fastcos.cli.terminal import print_json, print_table, progress_bar, say
from fastcos.storage import OccupiedError
from fastcos.storage.provenance import json_ready, provenance

if TYPE_CHECKING:
    from fastcos.comparison.candidates import Embeddings
    from fastcos.neighbors.types import Neighbors

DESCRIPTION = """\
Find the k most similar items of every item, exactly: of a folder that fastcos fit wrote, or of
vectors in .npy or .npz. Writes a csv of item, rank, neighbor, score, or an .npz of the arrays ids,
indices and scores; with --show, prints the neighbours of those items instead. With --checkpoint,
the same command resumes a search that was stopped."""
EPILOG = """\
examples:
  fastcos neighbors films --k 20 --out neighbors.csv
  fastcos neighbors films --rescaling balanced --show 318 296
  fastcos neighbors vectors.npz --measure dot --k 100 --out neighbors.npz
  fastcos neighbors vectors.npz --measure soft_cosine:matrix=S.npy
  fastcos neighbors large.npy --checkpoint parts --out neighbors.npz"""
HEADER = ("item", "rank", "neighbor", "score")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", metavar="SOURCE", help="folder of fastcos fit, .npy or .npz")
    parser.add_argument("--k", type=int, default=10, metavar="K", help="neighbours (default 10)")
    parser.add_argument(
        "--measure",
        default="cosine",
        metavar="NAME",
        help=f"default cosine; a wrong name lists all; {options.MEASURE_SYNTAX}",
    )
    parser.add_argument(
        "--rescaling",
        metavar="NAME",
        help="D of a model of Eq. 1 (default identity; a wrong name lists all)",
    )
    parser.add_argument("--show", nargs="+", metavar="ID", help="print neighbours of these items")
    parser.add_argument(
        "--out",
        default="neighbors.csv",
        metavar="FILE",
        help=".csv or .npz (default neighbors.csv); not written with --show",
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="directory for the finished blocks, as .npy arrays"
    )
    options.add_json(parser)
    options.add_common(parser, seed=False)


def run(given: argparse.Namespace) -> int:
    """Read, search, write or print."""
    from fastcos.comparison.candidates import select_candidates
    from fastcos.neighbors.search import top_k

    options.apply_common(given)
    out = Path(given.out)
    validation.as_choice("the suffix of --out", out.suffix, (".csv", ".npz"))
    options.check_output_file("--out", out)
    named = options.as_measure("--measure", given.measure)
    embeddings, ids = _embeddings(given)
    *_, candidate = select_candidates([named], embeddings, argument="--measure")[0]
    items, measure = candidate.rows(embeddings), candidate.make(embeddings)
    k = validation.as_count("--k", given.k, high=len(items) - 1)
    if given.show:
        rows = [_position("--show", item, ids) for item in given.show]
        themselves = sp.csr_array(
            (np.ones(len(rows)), (np.arange(len(rows)), rows)), shape=(len(rows), len(items))
        )
        _show(ids, rows, top_k(items[rows], items, k, measure=measure, exclude=themselves), given)
        return 0
    try:
        with progress_bar("searching") as progress:
            found = top_k(items, k=k, measure=measure, progress=progress, out=given.checkpoint)
    except OccupiedError as error:  # "out must ..."
        raise ValueError(str(error).replace("out", "--checkpoint", 1)) from None
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".npz":
        io.write_npz(out, {"ids": ids, "indices": found.indices, "scores": found.scores})
    else:
        io.write_csv(out, HEADER, _lines(ids, range(len(ids)), found))
    if given.json:
        facts = {"source": given.source, "k": k, "measure": given.measure, "out": given.out}
        print_json(provenance(facts))
    say(f"wrote the {k} nearest of {len(items):,} items to {out}")
    return 0


def _embeddings(given: argparse.Namespace) -> tuple["Embeddings", Any]:
    """Return the embeddings that measures are fitted to, and the ids of the items."""
    from fastcos.comparison.candidates import Embeddings

    source = Path(given.source)
    source.stat()  # a missing file is reported before its suffix is refused
    if source.is_dir():
        model, ids, typical = read_model_folder(source)
        items = model.item_embeddings(given.rescaling)
        free = model.objective == "dropout"
        return Embeddings(items, None, model, typical, given.rescaling if free else None), ids
    validation.check_none("--rescaling", given.rescaling, "for vectors, which have no model")
    found = io.read_vectors(source)
    return Embeddings(found.vectors), found.ids


def _position(name: str, text: str, ids: Any) -> int:
    """Return the position of the id that is written like text."""
    found = np.flatnonzero(ids.astype(str) == text)
    if len(found) == 0:
        raise ValueError(f"{name} must be an id of the items, such as {ids[0]}, got {text!r}")
    return int(found[0])


def _lines(ids: Any, rows: Sequence[int], found: "Neighbors") -> Iterator[tuple[Any, ...]]:
    for row, columns, scores in zip(rows, found.indices, found.scores, strict=True):
        for rank, (column, score) in enumerate(zip(columns, scores, strict=True)):
            yield ids[row], rank + 1, ids[column], float(score)


def _show(ids: Any, rows: Sequence[int], found: "Neighbors", given: argparse.Namespace) -> None:
    lines = list(_lines(ids, rows, found))
    if given.json:
        print_json(json_ready([dict(zip(HEADER, line, strict=True)) for line in lines]))
    else:
        print_table(f"by {given.measure}", HEADER, lines)

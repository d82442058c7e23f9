"""fastcos index: an index on disk, built, changed, searched and exported from the shell."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import io
from fastcos.cli import duplicates, export, lists, options
from fastcos.cli.model_folder import read_items
from fastcos.cli.terminal import print_json, print_next, progress_bar, say
from fastcos.io.columns import as_ids, check_row_numbers, positions_in
from fastcos.search import Neighbors, SimilarityIndex
from fastcos.search.ids import are_strings

DESCRIPTION = """\
Build, change and search an exact index in a directory, the one that SimilarityIndex.open opens: add
and remove write only what is new, each whole or not at all, and services that have it open take it
up by refresh. Also embeddings for other indexes, and near-duplicates."""
EPILOG = f"""\
examples:
  fastcos index build served shop
  fastcos index build als.npz shop --ids items.txt --measure dot
  fastcos index add shop today.parquet
  fastcos index remove shop 318 296
  fastcos index search shop --show 527 --names movies.csv
  fastcos index search shop --queries users.npz --exclude bought.csv
  fastcos index duplicates chunks.parquet --fpr 1e-6 --text text
  fastcos index export films --out served
fastcos index VERB --help has the arguments, such as --json;
input: a folder of fastcos fit or of fastcos index export, or
{options.VECTOR_FORMATS}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of all verbs."""
    verbs = parser.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    for name, (summary, add, run_verb) in _VERBS.items():
        about = _DESCRIPTIONS.get(name, summary)
        one = verbs.add_parser(
            name, help=summary, description=about, formatter_class=parser.formatter_class
        )
        add(one)
        one.set_defaults(run_verb=run_verb, parser=one)


def run(given: argparse.Namespace) -> int:
    """Run the verb."""
    return int(given.run_verb(given))


def _add_build(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="vectors, or a folder of fastcos fit")
    parser.add_argument("index", metavar="DIR", help="a new directory")
    options.add_measure(parser)
    options.add_vectors(parser)
    options.add_model_name(parser)
    options.add_json(parser)
    options.add_common(parser, seed=False)


def _build(given: argparse.Namespace) -> int:
    if Path(given.index).exists():
        rule = "a new directory (fastcos index add changes one)"
        raise ValueError(f"DIR must be {rule}, got {given.index!r}")
    measure = options.as_measure("--measure", given.measure)
    # by inner products, users search for what the model recommends
    vectors, ids = read_items(given.source, given, keep_biases=measure == "dot")
    index = SimilarityIndex(measure, model=given.model).fit(vectors, ids, copy=False)
    index.save(given.index)
    status = _report(given, f"wrote {index}", items=len(index))
    if not given.json:
        print_next([(["fastcos", "index", "search", given.index], "the neighbours of every item")])
    return status


def _add_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="DIR", help="what fastcos index build wrote")
    parser.add_argument("source", metavar="SOURCE", help="vectors with ids")
    options.add_vectors(parser)
    options.add_model_name(parser)
    options.add_json(parser)


def _add(given: argparse.Namespace) -> int:
    index = SimilarityIndex.open(given.index, model=given.model)
    read = read_items(given.source, given)
    (vectors, ids), before = read, len(index)
    if read.has_ids:
        index.upsert(vectors, ids)
    else:
        index.add(vectors)  # refused where the items of the index have ids
    index.save(given.index)
    new = len(index) - before
    text = f"items added: {new:,}, replaced: {len(ids) - new:,}"
    return _report(given, text, items=len(index), added=new, replaced=len(ids) - new)


def _add_remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="DIR", help="what fastcos index build wrote")
    parser.add_argument("gone", nargs="*", metavar="ID", help="ids of items")
    parser.add_argument("--ids", metavar="FILE", help="text with one id a line")
    options.add_json(parser)


def _remove(given: argparse.Namespace) -> int:
    if bool(given.gone) == (given.ids is not None):
        got = "both" if given.gone else "none"
        raise ValueError(f"ID or --ids must be given, and not both, got {got}")
    gone = as_ids(given.gone) if given.gone else io.read_ids(given.ids)
    index = SimilarityIndex.open(given.index)
    index.remove(_typed(index, gone))
    index.save(given.index)
    return _report(given, f"items removed: {len(gone):,}", items=len(index), removed=len(gone))


def _report(given: argparse.Namespace, text: str, **counts: int) -> int:
    """Print what was done, as JSON where that was asked for."""
    if given.json:
        print_json({"index": given.index, **counts})
    say(f"{text}; {given.index} has {counts['items']:,} items")
    return 0


def _add_search(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("index", metavar="DIR", help="what fastcos index build wrote")
    add("--queries", metavar="FILE", help="vectors that search, with their ids")
    add("--min-score", type=float, metavar="S", help="only scores from S on")
    help_ = (
        "table of user,item pairs, such as what was bought: a query finds no item that a line "
        "with its id names"
    )
    add("--exclude", metavar="FILE", help=help_)
    add("--only", metavar="FILE", help="text with the ids that may be found, one a line")
    options.add_vectors(parser)
    options.add_model_name(parser)
    lists.add_lists(parser)
    options.add_common(parser, seed=False)


def _search(given: argparse.Namespace) -> int:
    out = lists.as_output(given.out)
    options.refuse(given, "for an index, which has its own", "ids")
    if given.queries is None:
        options.refuse(given, "without --queries", "vector_column", "id_column")
    index = SimilarityIndex.open(given.index, model=given.model)
    ids = index.ids
    names = lists.read_names(given, given.index, ids)
    wanted: dict[str, Any] = {"k": given.k, "min_score": given.min_score}
    if given.only is not None:
        wanted["allowed_ids"] = _typed(index, io.read_ids(given.only))
    queries, query_ids = None, ids
    if given.queries is not None:
        queries, query_ids = options.read_vectors(given.queries, given)
    if given.show:
        rows = lists.shown_rows(given, query_ids)
        queries, query_ids = None if queries is None else queries[rows], query_ids[rows]
    wanted["exclude_ids"] = _excluded(given, index, query_ids)
    with progress_bar("searching") as progress:
        if queries is None:
            found = index.similar(query_ids, **wanted)
        else:
            found = index.search(queries, progress=progress, **wanted)
    # numbers in ids of what is found there by position
    places = np.full(index.n_positions_ + 1, -1)
    places[index.positions_of(ids)] = np.arange(len(ids))
    neighbors = Neighbors(places[found.indices], found.scores)
    columns = ("item" if queries is None else "query", "neighbor")
    best = lists.Lists(neighbors, query_ids, ids, names, columns)
    return best.deliver(given, out, f"in {given.index}")


def _excluded(
    given: argparse.Namespace, index: SimilarityIndex, query_ids: npt.NDArray[Any]
) -> list[npt.NDArray[Any]] | None:
    """The ids that each query must not find, of --exclude."""
    if given.exclude is None:
        return None
    data = io.read_interactions(given.exclude, value="")
    hint = "an array or a column of ids in the file of --queries"
    check_row_numbers(given.exclude, query_ids, data.user_ids, hint)
    check_row_numbers(given.exclude, index.ids, data.item_ids)
    items, pairs = _typed(index, data.item_ids), sp.csr_array(data.X)
    return [
        items[pairs.indices[slice(*pairs.indptr[row : row + 2])]] if row >= 0 else items[:0]
        for row in positions_in(data.user_ids, query_ids).tolist()
    ]


def _typed(index: SimilarityIndex, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ids that were read as texts where those of the index are."""
    return ids.astype(str) if are_strings(index.ids) else ids


# of each verb its summary, and the functions that add its arguments and run it
_VERBS = {
    "build": ("a new index of vectors with ids, by a measure", _add_build, _build),
    "add": ("add items, or replace those with the same ids", _add_add, _add),
    "remove": ("remove items by id", _add_remove, _remove),
    "search": ("neighbours of items, or of other vectors", _add_search, _search),
    "duplicates": (duplicates.SUMMARY, duplicates.add_arguments, duplicates.run),
    "export": (export.SUMMARY, export.add_arguments, export.run),
}
_DESCRIPTIONS = {
    "search": "Find the k most similar items of every item of an index, of some (--show), or of "
    "every vector of --queries. Writes a table as fastcos neighbors does.",
    "duplicates": duplicates.DESCRIPTION,
    "export": export.DESCRIPTION,
}

"""The command ``fastcos index`` builds, changes, searches and exports an index on disk."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import io
from fastcos.cli import duplicates, export, lists, options
from fastcos.cli.model_folder import read_items
from fastcos.cli.terminal import print_json, print_next, progress_bar, say, show_text
from fastcos.io.columns import check_row_numbers, parse_ids, positions_in
from fastcos.search import Neighbors, SimilarityIndex
from fastcos.validation.ids import are_strings

DESCRIPTION = """\
Build, change and search an exact index in a directory. In Python, SimilarityIndex.open opens the
index. `fastcos index add` and `fastcos index remove` write only what has changed, and each change
takes effect completely or not at all. A running service reads the changes by calling
SimilarityIndex.refresh. `fastcos index export` writes embeddings for other vector indexes, and
`fastcos index duplicates` finds near-duplicates."""
EPILOG = f"""\
examples:
  fastcos index build served shop
  fastcos index build als.npz shop --ids items.txt --measure dot
  fastcos index add shop today.parquet
  fastcos index remove shop 318 296
  fastcos index search shop --show 527 --names movies.csv
  fastcos index search shop --queries users.npz --exclude bought.csv
  fastcos index explain shop --queries 1000
  fastcos index duplicates chunks.parquet --fpr 1e-6 --text text
  fastcos index export films --out served
For the options of a subcommand, such as --json, run fastcos index SUBCOMMAND --help.

input: a folder written by `fastcos fit` or `fastcos index export`, or
{options.VECTOR_FORMATS}"""


_INDEX_HELP = "directory of an index that `fastcos index build` wrote"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of all subcommands."""
    verbs = parser.add_subparsers(
        title="subcommands", dest="verb", required=True, metavar="SUBCOMMAND"
    )
    for name, (summary, add, run_verb) in _VERBS.items():
        verb = verbs.add_parser(
            name,
            help=summary,
            description=_DESCRIPTIONS.get(name, summary),
            formatter_class=parser.formatter_class,
        )
        add(verb)
        verb.set_defaults(run_verb=run_verb, parser=verb)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    return int(args.run_verb(args))


def _add_build(parser: argparse.ArgumentParser) -> None:
    help_ = "file of vectors, or folder written by `fastcos fit`"
    parser.add_argument("source", metavar="SOURCE", help=help_)
    parser.add_argument("index", metavar="DIR", help="new directory for the index")
    options.add_measure(parser)
    options.add_vectors(parser)
    options.add_model_name(parser)
    options.add_json(parser)
    options.add_common(parser, seed=False)


def _build(args: argparse.Namespace) -> int:
    if Path(args.index).exists():
        rule = "a new directory (to change an existing index, use `fastcos index add`)"
        raise ValueError(f"DIR must be {rule}, got {args.index!r}")
    measure = options.as_measure("--measure", args.measure)
    # If the measure is the inner product, queries are usually user vectors, and the results are the
    # recommendations of the model. The scores of the model include its biases, so the biases are
    # read as additional columns.
    vectors, ids = read_items(args.source, args, keep_biases=measure == "dot")
    index = SimilarityIndex(measure, model=args.model).fit(vectors, ids, copy=False)
    index.save(args.index)
    status = _report(args, f"wrote {index}", items=len(index))
    if not args.json:
        print_next(
            [(["fastcos", "index", "search", args.index], "finds the neighbours of every item")]
        )
    return status


def _add_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="DIR", help=_INDEX_HELP)
    help_ = (
        "file of vectors with ids; if an id is already in the index, the new vector replaces the "
        "old one"
    )
    parser.add_argument("source", metavar="SOURCE", help=help_)
    options.add_vectors(parser)
    options.add_model_name(parser)
    options.add_json(parser)


def _add(args: argparse.Namespace) -> int:
    index = SimilarityIndex.open(args.index, model=args.model)
    source_vectors = read_items(args.source, args)
    (vectors, ids), n_before = source_vectors, len(index)
    if source_vectors.has_ids:
        index.upsert(vectors, ids)
    else:
        index.add(vectors)  # ``add`` raises an error if the items of the index have ids
    index.save(args.index)
    n_new = len(index) - n_before
    text = f"items added: {n_new:,}, replaced: {len(ids) - n_new:,}"
    return _report(args, text, items=len(index), added=n_new, replaced=len(ids) - n_new)


def _add_remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="DIR", help=_INDEX_HELP)
    parser.add_argument("removed", nargs="*", metavar="ID", help="ids of the items to remove")
    help_ = "text file with the ids of the items to remove, one per line"
    parser.add_argument("--ids", metavar="FILE", help=help_)
    options.add_json(parser)


def _remove(args: argparse.Namespace) -> int:
    if bool(args.removed) == (args.ids is not None):
        got = "both" if args.removed else "none"
        raise ValueError(f"exactly one of ID and --ids must be given, got {got}")
    ids = parse_ids(args.removed) if args.removed else io.read_ids(args.ids)
    index = SimilarityIndex.open(args.index)
    index.remove(_as_index_ids(index, ids))
    index.save(args.index)
    return _report(args, f"items removed: {len(ids):,}", items=len(index), removed=len(ids))


def _report(args: argparse.Namespace, text: str, **counts: int) -> int:
    """Report a change in a message; with --json, also print the counts as JSON."""
    if args.json:
        print_json({"index": args.index, **counts})
    say(f"{text}; {args.index} now contains {counts['items']:,} items")
    return 0


def _add_search(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("index", metavar="DIR", help=_INDEX_HELP)
    help_ = "file of query vectors (default: the items are also the queries)"
    add("--queries", metavar="FILE", help=help_)
    add("--min-score", type=float, metavar="S", help="lowest score that a neighbour can have")
    help_ = (
        "table of items that the search must not return, such as purchases of a user. Each line "
        "contains the id of a query, and the id of an item to leave out for this query"
    )
    add("--exclude", metavar="FILE", help=help_)
    help_ = "text file with one id per line: the search finds only the items with these ids"
    add("--only", metavar="FILE", help=help_)
    options.add_vectors(parser)
    options.add_model_name(parser)
    lists.add_lists(parser)
    options.add_common(parser, seed=False)


def _search(args: argparse.Namespace) -> int:
    out = lists.as_output(args.out)
    options.refuse(args, "for an index, which already stores the ids of its items", "ids")
    if args.queries is None:
        options.refuse(args, "without --queries", "vector_column", "id_column")
    index = SimilarityIndex.open(args.index, model=args.model)
    ids = index.ids
    names = lists.read_names(args, args.index, ids)
    settings: dict[str, Any] = {"k": args.k, "min_score": args.min_score}
    if args.only is not None:
        settings["allowed_ids"] = _as_index_ids(index, io.read_ids(args.only))
    queries, query_ids = None, ids
    if args.queries is not None:
        queries, query_ids = options.read_vectors(args.queries, args)
    if args.show:
        rows = lists.rows_to_show(args, query_ids)
        queries, query_ids = None if queries is None else queries[rows], query_ids[rows]
    settings["exclude_ids"] = _read_excluded_ids(args, index, query_ids)
    with progress_bar("searching") as progress:
        if queries is None:
            by_position = index.similar(query_ids, **settings)
        else:
            by_position = index.search(queries, progress=progress, **settings)
    # A search returns positions in the index, but the printed results need positions in `ids`. The
    # item at position p of the index is at position numbers[p] of `ids`. The last entry of
    # `numbers` is -1, so that the padding value -1 stays -1.
    numbers = np.full(index.n_positions_ + 1, -1)
    numbers[index.positions_of(ids)] = np.arange(len(ids))
    neighbors = Neighbors(numbers[by_position.indices], by_position.scores)
    columns = ("item" if queries is None else "query", "neighbor")
    ranked = lists.RankedLists(neighbors, query_ids, ids, names, columns)
    return ranked.write_or_print(args, out, f"in {args.index}")


def _read_excluded_ids(
    args: argparse.Namespace, index: SimilarityIndex, query_ids: npt.NDArray[Any]
) -> list[npt.NDArray[Any]] | None:
    """Read --exclude; return the ids to exclude for each query."""
    if args.exclude is None:
        return None
    data = io.read_interactions(args.exclude, value="")
    hint = "an array or a column of ids in the file of --queries"
    check_row_numbers(args.exclude, query_ids, data.user_ids, hint)
    check_row_numbers(args.exclude, index.ids, data.item_ids)
    items, pairs = _as_index_ids(index, data.item_ids), sp.csr_array(data.X)
    return [
        items[pairs.indices[slice(*pairs.indptr[row : row + 2])]] if row >= 0 else items[:0]
        for row in positions_in(data.user_ids, query_ids).tolist()
    ]


def _as_index_ids(index: SimilarityIndex, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert ids to strings if the ids of the index are strings."""
    return ids.astype(str) if are_strings(index.ids) else ids


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="DIR", help=_INDEX_HELP)
    help_ = "number of queries of the planned search (default: the number of items)"
    parser.add_argument("--queries", type=int, metavar="N", help=help_)
    help_ = "number of neighbours per query (default 10)"
    parser.add_argument("--k", type=int, default=10, metavar="K", help=help_)
    options.add_json(parser)
    options.add_common(parser, seed=False)


def _explain(args: argparse.Namespace) -> int:
    index = SimilarityIndex.open(args.index)
    n_queries = len(index) if args.queries is None else args.queries
    explained = index.explain(n_queries, args.k)
    if args.json:
        print_json(explained.as_dict())
    else:
        show_text(str(explained))
    return 0


# For each subcommand: its summary, the function that adds its arguments, and the function that runs
# the subcommand.
_VERBS = {
    "build": ("build a new index of vectors with ids", _add_build, _build),
    "add": ("add items, and replace items with the same ids", _add_add, _add),
    "remove": ("remove items by id", _add_remove, _remove),
    "search": ("find neighbours of items or of other vectors", _add_search, _search),
    "explain": ("show how a search would run, and how long it would take", _add_explain, _explain),
    "duplicates": (duplicates.SUMMARY, duplicates.add_arguments, duplicates.run),
    "export": (export.SUMMARY, export.add_arguments, export.run),
}
_DESCRIPTIONS = {
    "search": "Find the k items of an index that are most similar to each item of the index, to "
    "each item in --show, or to each vector in --queries. The command writes the same table as "
    "`fastcos neighbors`.",
    "explain": "Show how a search of an index would run, without running it. The output names the "
    "method of the search, and says why other methods are not used. It also shows how the work "
    "would be divided among the threads, how many bytes would be read, and how much memory and "
    "time the search would need.",
    "duplicates": duplicates.DESCRIPTION,
    "export": export.DESCRIPTION,
}

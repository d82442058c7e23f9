"""fastcos recommend: the best items for every user, without those that the user has seen."""

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from fastcos import io, validation
from fastcos.cli import lists, options
from fastcos.cli.model_folder import aligned, is_model_folder, model_embeddings
from fastcos.cli.terminal import progress_bar, say, spinner
from fastcos.io.columns import check_row_numbers, positions_in
from fastcos.io.factors import load_factors

if TYPE_CHECKING:
    from fastcos.comparison.candidates import Embeddings

DESCRIPTION = """\
Recommend items to the users of a table of interactions, never one that the user has seen there: by
the scores of users and items that a model predicts (user_item_dot), or by the votes of the 20
nearest users (project_back_users) or of the 20 nearest of each item seen (any measure of items), as
fastcos compare evaluates them. Writes a table of user, rank, item and, where there is one, score;
with --show, prints it for those users instead."""
EPILOG = """\
examples:
  fastcos recommend films ratings.csv --k 20 --out recommendations.csv
  fastcos recommend films ratings.csv --show 1 2 --names movies.csv
  fastcos recommend films ratings.csv --measure project_back_users
  fastcos recommend als.npz ratings.csv --ids items.txt --user-ids users.txt
  fastcos recommend none ratings.csv --measure cosine
input: a folder of fastcos fit, or a file with item and user embeddings, such as implicit saves;
then interactions as for fastcos fit"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    help_ = "folder of fastcos fit, or both embeddings, or none: the columns of INTERACTIONS"
    add("model", metavar="MODEL", help=help_)
    options.add_interactions(parser, "file of all that the users have seen")
    options.add_measure(parser, "user_item_dot")
    add("--rescaling", metavar="NAME", help="D of a model of Eq. 1")
    add("--ids", metavar="FILE", help="ids of the items of a file of embeddings")
    add("--user-ids", metavar="FILE", help="ids of its users, in their order")
    lists.add_lists(parser, "items a user", "USER", "recommendations.csv")
    options.add_common(parser, seed=False)


def run(given: argparse.Namespace) -> int:
    """Read, recommend, write or print."""
    from fastcos.comparison.candidates import select_candidates
    from fastcos.comparison.recommending import recommend

    out = lists.as_output(given.out, "recommendations.csv")
    measure = options.as_measure("--measure", given.measure)
    if given.model == "none" and measure == "user_item_dot":
        raise ValueError("--measure must be given for none, such as cosine, got user_item_dot")
    embeddings, ids, X, user_ids = _read(given, measure)
    names = lists.read_names(given, given.model, ids)
    k = validation.as_count("--k", given.k, high=len(ids))
    *_, candidate = select_candidates(
        [measure], embeddings, with_users=given.model != "none", argument="--measure"
    )[0]
    # users of the model who have seen nothing are no users of the table
    users = np.flatnonzero(np.diff(X.indptr))
    if given.show:
        users = np.sort(lists.shown_rows(given, user_ids))
    with spinner("recommending"):
        found = recommend(candidate, embeddings, users, X, k)
    best = lists.Lists(found, user_ids[users], ids, names, ("user", "item"))
    return best.deliver(given, out, f"by {given.measure}")


def _read(given: argparse.Namespace, measure: Any) -> tuple["Embeddings", Any, sp.csr_array, Any]:
    """Both embeddings, ids of the items, what each user has seen of them, ids of the users."""
    from fastcos.comparison.candidates import Embeddings

    data = options.read_interactions(given)
    if given.model == "none":
        options.refuse(given, "without a model", "ids", "user_ids", "rescaling")
        columns = np.ascontiguousarray(data.X.T.toarray(), np.float32)
        return Embeddings(columns), data.item_ids, sp.csr_array(data.X), data.user_ids
    if is_model_folder(given.model):
        options.refuse(given, "for a model", "ids", "user_ids")
        embeddings, ids = model_embeddings(given.model, given.rescaling)
        X = aligned(ids, given.interactions, data)[0]
        return dataclasses.replace(embeddings, X=X), ids, X, data.user_ids
    validation.check_none("--rescaling", given.rescaling, "for embeddings, which have no model")
    with progress_bar("reading embeddings"):
        factors = load_factors(given.model, ids=given.ids)
    users = validation.as_instance(
        "MODEL", factors.users, np.ndarray, "a file that holds users too"
    )
    items = factors.items
    if factors.has_biases and measure == "user_item_dot":
        users, items = factors.scoring_embeddings()
        say("scores include the biases of the model")
    else:
        for note in factors.notes:
            say(note)
    user_ids = np.arange(len(users))
    if given.user_ids is not None:
        user_ids = io.read_ids(given.user_ids, len(users))
    path = Path(given.interactions)
    if not factors.has_ids:
        check_row_numbers(path, factors.ids, data.item_ids, "--ids FILE")
    if given.user_ids is None:
        check_row_numbers(path, user_ids, data.user_ids, "--user-ids FILE")
    X = aligned(factors.ids, path, data)[0].tocoo()
    row_of = positions_in(user_ids, data.user_ids)
    known = row_of[X.row] >= 0
    cells = X.data[known], (row_of[X.row[known]], X.col[known])
    X = sp.csr_array(cells, shape=(len(users), len(factors.ids)))
    return Embeddings(items, given_users=users), factors.ids, X, user_ids

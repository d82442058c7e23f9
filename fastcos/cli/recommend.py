"""The command ``fastcos recommend``, which recommends items that a user has not seen."""

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from fastcos import io, validation
from fastcos.cli import lists, options
from fastcos.cli.model_folder import (
    align_columns,
    align_to_users,
    is_model_folder,
    model_embeddings,
)
from fastcos.cli.terminal import progress_bar, say, spinner
from fastcos.io.factors import load_factors

if TYPE_CHECKING:
    from fastcos.comparison.candidates import Embeddings

DESCRIPTION = """\
Recommend items to the users of a table of interactions. Items that a user has seen, according to
INTERACTIONS, are never recommended to that user. The measure decides the ranking. The measure
user_item_dot ranks items by the predicted scores of a model, and project_back_users ranks items by
the votes of the 20 nearest users. Any other measure compares items, and ranks them by the votes of
the items that the user has seen; each of these items votes for its 20 nearest neighbours. To find
out which measure ranks best on your data, run `fastcos compare`. The command `fastcos recommend`
writes a table with the columns user, rank and item. For user_item_dot, the table also has the
column score. With --show, the command prints the recommendations for the users whose ids follow
--show, and writes no table."""
EPILOG = """\
examples:
  fastcos recommend films ratings.csv --k 20 --out recommendations.csv
  fastcos recommend films ratings.csv --show 1 2 --names movies.csv
  fastcos recommend films ratings.csv --measure project_back_users
  fastcos recommend als.npz ratings.csv --ids items.txt --user-ids users.txt
  fastcos recommend none ratings.csv --measure cosine
MODEL: a folder written by `fastcos fit`; a file with item and user embeddings, such as a model
saved by implicit; or the word "none"

INTERACTIONS: a file in one of the formats of `fastcos fit`"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    help_ = (
        "folder written by `fastcos fit`, or file with item and user embeddings, or the word "
        "'none'. With 'none', items are compared without a model, by the columns of the matrix of "
        "interactions"
    )
    add("model", metavar="MODEL", help=help_)
    options.add_interactions(parser, "file of interactions: the items that each user has seen")
    options.add_measure(parser, "user_item_dot")
    help_ = "rescaling D of the dimensions; fastcos neighbors --help describes its values"
    add("--rescaling", metavar="NAME", help=help_)
    help_ = (
        "file with the id of each item, in the order of the item embeddings; use it only if MODEL "
        "is a file of embeddings"
    )
    add("--ids", metavar="FILE", help=help_)
    help_ = (
        "file with the id of each user, in the order of the user embeddings; use it only if MODEL "
        "is a file of embeddings"
    )
    add("--user-ids", metavar="FILE", help=help_)
    lists.add_lists(parser, "number of items per user", "USER", "recommendations.csv")
    options.add_common(parser, seed=False)


def run(args: argparse.Namespace) -> int:
    """Read the model and the interactions, and write or print the recommendations."""
    from fastcos.comparison.candidates import select_candidates
    from fastcos.comparison.recommending import recommend

    out = lists.as_output(args.out, "recommendations.csv")
    measure = options.as_measure("--measure", args.measure)
    if args.model == "none" and measure == "user_item_dot":
        rule = "be a measure that compares items, such as cosine"
        raise ValueError(f"with MODEL none, --measure must {rule}, got user_item_dot")
    embeddings, ids, X, user_ids = _read(args, measure)
    names = lists.read_names(args, args.model, ids)
    k = validation.as_count("--k", args.k, high=len(ids))
    *_, candidate = select_candidates(
        [measure], embeddings, with_users=args.model != "none", argument="--measure"
    )[0]
    # Users of the model who have no interactions in the table get no recommendations.
    users = np.flatnonzero(np.diff(X.indptr))
    if args.show:
        users = np.sort(lists.rows_to_show(args, user_ids))
    with spinner("recommending"):
        recommendations = recommend(candidate, embeddings, users, X, k)
    ranked = lists.RankedLists(recommendations, user_ids[users], ids, names, ("user", "item"))
    return ranked.write_or_print(args, out, f"by {args.measure}")


def _read(args: argparse.Namespace, measure: Any) -> tuple["Embeddings", Any, sp.csr_array, Any]:
    """Return the embeddings, the ids of the items, the interactions, and the ids of the users."""
    from fastcos.comparison.candidates import Embeddings

    data = options.read_interactions(args)
    if args.model == "none":
        options.refuse(args, "without a model", "ids", "user_ids", "rescaling")
        columns = np.ascontiguousarray(data.X.T.toarray(), np.float32)
        return Embeddings(columns), data.item_ids, sp.csr_array(data.X), data.user_ids
    if is_model_folder(args.model):
        options.refuse(args, "for a model", "ids", "user_ids")
        embeddings, ids = model_embeddings(args.model, args.rescaling)
        X = align_columns(ids, args.interactions, data)[0]
        return dataclasses.replace(embeddings, X=X), ids, X, data.user_ids
    reason = "for embeddings, because only a model that `fastcos fit` wrote can be rescaled"
    validation.check_none("--rescaling", args.rescaling, reason)
    with progress_bar("reading embeddings"):
        factors = load_factors(args.model, ids=args.ids)
    rule = "a file with item and user embeddings"
    users = validation.as_instance("MODEL", factors.users, np.ndarray, rule)
    scoring = None
    if factors.has_biases and measure == "user_item_dot":
        scoring = factors.scoring_embeddings()
        say("the scores include the biases of the model")
    else:
        for note in factors.notes:
            say(note)
    has_user_ids = args.user_ids is not None
    user_ids = io.read_ids(args.user_ids, len(users)) if has_user_ids else np.arange(len(users))
    X = align_to_users(factors, user_ids, args.interactions, data, has_user_ids=has_user_ids)
    embeddings = Embeddings(factors.items, user_rows=users, scoring=scoring)
    return embeddings, factors.ids, X, user_ids

"""Recommendations: the items that a candidate ranks highest and that a user has not seen yet."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from fastcos import parallel, validation
from fastcos.comparison.candidates import USER_ITEM, Candidate, Embeddings
from fastcos.kernels import knn_vote, records
from fastcos.linalg.csr import one_per_row
from fastcos.search.results import Neighbors
from fastcos.search.top_k import top_k
from fastcos.validation import Floats, Integers

# Number of nearest items or nearest users that vote.
N_VOTES = 20


def recommend(
    candidate: Candidate, embeddings: Embeddings, users: Integers, X: sp.csr_array, k: int
) -> Neighbors:
    """Return k recommended items for each user, by user-item scores or by votes of neighbours.

    - `embeddings`: the embeddings of all items, and one user embedding for each row of X.
    - `users` (m,): ascending row numbers of the users who receive recommendations.
    - `X` (n, p): the interactions; the non-zeros of a row are the items that the user has seen.

    If the measure compares items with each other, each item that a user has seen votes for its
    nearest items. If the measure compares users, the nearest users vote for the items that they
    have seen. A user never receives an item that the user has seen.

    The recommended items of each user are in descending order of their scores or votes, and the
    list is padded with -1. If the items are ranked by votes, all scores in the result are NaN.
    """
    measure, seen = candidate.make(embeddings), sp.csr_array(X[users])
    if candidate.name in USER_ITEM:
        rows: Any = embeddings.users
        items = embeddings.items
        if embeddings.scoring is not None and candidate.name == "user_item_dot":
            rows, items = embeddings.scoring.users, embeddings.scoring.items
        return top_k(rows[users], items, k, measure=measure, exclude=seen)
    rows = candidate.rows(embeddings)
    n = rows.shape[0]
    n_votes = min(N_VOTES, n - 1)

    def nearest(sample: Integers) -> Integers:
        self_exclusions = one_per_row(sample, n)
        return top_k(rows[sample], rows, n_votes, measure=measure, exclude=self_exclusions).indices

    if candidate.compares_users:
        return _recommend_by_votes(
            knn_vote.recommend_by_users, len(users), k, validation.read_only(users),
            *_votes(nearest(users)), _items_of_users(X), X.shape[1],
        )  # fmt: skip
    voters = np.unique(seen.indices)
    if len(voters) == n:
        lists = top_k(rows, k=n_votes, measure=measure).indices
    else:
        lists = np.zeros((n, n_votes), np.int64)
        lists[voters] = nearest(voters)
    return _recommend_by_votes(
        knn_vote.recommend_by_items, len(users), k, _items_of_users(seen), *_votes(lists)
    )


def _recommend_by_votes(kernel: Any, n: int, k: int, *arguments: Any) -> Neighbors:
    """Run a kernel that counts votes, and return the k items with the most votes for each user."""
    best = parallel.unfilled((n, k), np.int64)
    parallel.run(kernel, parallel.row_blocks(n, 32), *arguments, best)
    return Neighbors(best, np.full((n, k), np.nan, np.float32))


def _items_of_users(X: sp.csr_array) -> Any:
    starts, items = X.indptr.astype(np.int64), X.indices.astype(np.int32)
    return records.Csr(validation.read_only(starts), validation.read_only(items), None)


def _votes(lists: Integers) -> tuple[Integers, Floats]:
    """Return read-only arrays: the neighbour lists, and for each rank the weight of a vote."""
    weights = 1 / np.log2(np.arange(2, lists.shape[1] + 2))
    return validation.read_only(np.ascontiguousarray(lists)), validation.read_only(weights)

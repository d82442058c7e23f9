"""Recommendations by votes, either of the items that a user has seen or of similar users."""

import numpy as np

from .jit import kernel
from .row_argsort import top_k_of_row


@kernel
def top_k_votes(votes, seen, best):
    """Write the k items that have the most votes and are not in `seen` to `best` (k,) int64.

    `votes` (p,) float64 holds the votes for each item, which are at least 0. The votes for the
    items in `seen` are set to -1. Items without votes are left out, and `best` is padded with -1.
    """
    for item in seen:
        votes[item] = -1.0
    top_k_of_row(votes, -1, best.shape[0], best)
    for rank in range(best.shape[0]):
        if votes[best[rank]] <= 0:
            best[rank] = -1


@kernel
def recommend_by_items(lo, hi, seen, neighbors, weights, best):
    """Recommend to each user the k unseen items that are most often neighbours of seen items.

    `seen` is the Csr of the items that users have seen. `neighbors` (p, K) int64 holds the nearest
    items of every item, padded with -1. `weights` (K,) float64 holds the number of votes that the
    first, second, ... neighbour of a seen item receives. The recommended items are written to
    `best` (n, k) int64, padded with -1, by descending votes; items with equal votes are ordered by
    item number. The kernel takes O(h K + p) time for a user who has seen h items, and allocates an
    array of p numbers.
    """
    indptr, indices = seen.indptr, seen.indices
    votes = np.empty(neighbors.shape[0])
    for u in range(lo, hi):
        votes[:] = 0.0
        for item in indices[indptr[u] : indptr[u + 1]]:
            for rank in range(neighbors.shape[1]):
                if neighbors[item, rank] >= 0:
                    votes[neighbors[item, rank]] += weights[rank]
        top_k_votes(votes, indices[indptr[u] : indptr[u + 1]], best[u])


@kernel
def recommend_by_users(lo, hi, users, neighbors, weights, seen, n_items, best):
    """For each of `users`, write the k unseen items with the most votes from the nearest users.

    `users` (m,) is int64. `neighbors` (m, K) int64 holds the nearest users of each user, padded
    with -1. Each of these neighbours votes for every item that the neighbour has seen. `weights`
    (K,) float64 holds the weights of the neighbours' votes: the first entry is for the nearest
    neighbour, the second entry for the second-nearest, and so on. `seen` is the Csr of the items
    that users have seen. The recommended items are written to `best` (m, k) int64, in the order
    that recommend_by_items uses. For a user whose neighbours have h interactions in total, the
    kernel takes O(p + h) time. It allocates an array of p numbers.
    """
    indptr, indices = seen.indptr, seen.indices
    votes = np.empty(n_items)
    for q in range(lo, hi):
        votes[:] = 0.0
        for rank in range(neighbors.shape[1]):
            other = neighbors[q, rank]
            if other >= 0:
                for item in indices[indptr[other] : indptr[other + 1]]:
                    votes[item] += weights[rank]
        top_k_votes(votes, indices[indptr[users[q]] : indptr[users[q] + 1]], best[q])

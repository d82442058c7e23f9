"""Recommendations by k-nearest-neighbour votes: item-based and user-based."""

import numpy as np

from .jit import kernel
from .row_argsort import top_k_of_row


@kernel
def top_k_votes(votes, seen, best):
    """Write to best the k items with most votes that are not seen, padded by -1.

    votes (p,) float64, at least 0, in/out: set to -1 for seen items; best (k,) int64, out.
    """
    for item in seen:
        votes[item] = -1.0
    top_k_of_row(votes, -1, best.shape[0], best)
    for rank in range(best.shape[0]):
        if votes[best[rank]] <= 0:
            best[rank] = -1


@kernel
def recommend_by_items(lo, hi, seen, neighbors, weights, best):
    """Item-based: best[u] = k unseen items with most votes from neighbours of seen items.

    seen: Csr of the items that users have seen; neighbors (p, K) int64: nearest items of every
    item, padded by -1; weights (K,) float64: vote for the first, second, ... neighbour; best (n, k)
    int64, out: descending votes, equal votes by lower item, padded by -1. O(h K + p) time for h
    items seen, p numbers of scratch.
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
    """User-based: best[q] = k items unseen by users[q] with most votes from nearest users.

    users (m,) int64; neighbors (m, K) int64: nearest users of each, padded by -1, who vote for all
    items that they have seen; weights (K,) float64: vote of the first, second, ... user; seen: Csr
    of the items that users have seen; best (m, k) int64, out, as in
    recommend_by_items. O(interactions of the neighbours + p) time a user, p numbers of scratch.
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

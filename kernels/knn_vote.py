"""Recommendations by votes: of what a user has seen, or of the users who are nearest."""

import numpy as np

from .jit import kernel
from .row_argsort import best_of_line


@kernel
def most_voted(votes, seen, best):
    """best: the k items with most votes that are not seen, -1 where there are fewer.

    votes (p,) float64, of at least 0, in/out: those of the seen become -1; best (k,) int64, out.
    """
    for item in seen:
        votes[item] = -1.0
    best_of_line(votes, -1, best.shape[0], best)
    for rank in range(best.shape[0]):
        if votes[best[rank]] <= 0:
            best[rank] = -1


@kernel
def recommend_by_lists(lo, hi, indptr, indices, neighbors, weights, best):
    """best[u]: the k items with most votes that user u has not seen, -1 where there are fewer.

    indptr (n + 1,) int64 and indices: CSR of what users have seen; neighbors (p, K) int64: the
    nearest of every item, -1 for none; weights (K,) float64: the vote for the first, second ...;
    best (n, k) int64, out: by falling votes, equal votes by lower item. O(h K + p) time for h
    items seen, p numbers of scratch.
    """
    votes = np.empty(neighbors.shape[0])
    for u in range(lo, hi):
        votes[:] = 0.0
        for seen in indices[indptr[u] : indptr[u + 1]]:
            for rank in range(neighbors.shape[1]):
                if neighbors[seen, rank] >= 0:
                    votes[neighbors[seen, rank]] += weights[rank]
        most_voted(votes, indices[indptr[u] : indptr[u + 1]], best[u])


@kernel
def recommend_by_users(lo, hi, users, neighbors, weights, indptr, indices, n_items, best):
    """best[q]: the k items with most votes that user users[q] has not seen, -1 for fewer.

    users (m,) int64; neighbors (m, K) int64: the nearest users of each, -1 for none, who vote for
    all that they have seen; weights (K,) float64: the vote of the first, second ...; indptr (n +
    1,) int64 and indices: CSR of what users have seen; best (m, k) int64, out: by falling votes,
    equal votes by lower item. O(interactions of the neighbours + p) time a user, p numbers of
    scratch.
    """
    votes = np.empty(n_items)
    for q in range(lo, hi):
        votes[:] = 0.0
        for rank in range(neighbors.shape[1]):
            other = neighbors[q, rank]
            if other >= 0:
                for item in indices[indptr[other] : indptr[other + 1]]:
                    votes[item] += weights[rank]
        most_voted(votes, indices[indptr[users[q]] : indptr[users[q] + 1]], best[q])

"""Recommendations by votes: what a user has seen votes for its own nearest items."""

import numpy as np

from .jit import kernel
from .line_ranks import best_of_line


@kernel
def recommend_by_lists(lo, hi, indptr, indices, neighbors, weights, best):
    """best[u]: the k items with most votes that user u has not seen, -1 where there are fewer.

    indptr (n + 1,) int64 and indices: CSR of what users have seen; neighbors (p, K) int64: the
    nearest of every item, -1 for none; weights (K,) float64: the vote for the first, second ...;
    best (n, k) int64, out: by falling votes, equal votes by lower item. O(h K + p) time for h
    items seen, p numbers of scratch.
    """
    p, k = neighbors.shape[0], best.shape[1]
    votes = np.empty(p)
    for u in range(lo, hi):
        votes[:] = 0.0
        for seen in indices[indptr[u] : indptr[u + 1]]:
            for rank in range(neighbors.shape[1]):
                if neighbors[seen, rank] >= 0:
                    votes[neighbors[seen, rank]] += weights[rank]
        for seen in indices[indptr[u] : indptr[u + 1]]:
            votes[seen] = -1.0
        best_of_line(votes, -1, k, best[u])
        for rank in range(k):
            if votes[best[u, rank]] <= 0:
                best[u, rank] = -1

"""Ranks of same-label columns in rows of scores: AUC, average precision at R, kNN vote."""

import numpy as np

from .jit import borrowing_kernel, kernel
from .row_argsort import DIGITS, argsort_row


@borrowing_kernel
def auc_of_ranked(scores, codes, own, relevant, ranked):
    """Return P(a column of own's label scores more than another column); a tie counts one half.

    scores (m,) is float64, and codes (m,) int64 holds the codes of the labels. ranked (m - 1,)
    int64 holds all columns except own, by descending score, and relevant is the number of them that
    have the label of own.
    """
    others = ranked.shape[0] - relevant
    doubled, ahead, same, different, level = 0, 0, 0, 0, np.inf
    for j in ranked:
        if scores[j] != level:
            doubled += same * (2 * (others - ahead - different) + different)
            ahead += different
            same, different, level = 0, 0, scores[j]
        is_same = codes[j] == codes[own]
        same += is_same
        different += not is_same
    doubled += same * different
    return doubled / (2.0 * relevant * others)


@borrowing_kernel
def precision_of_ranked(codes, own, relevant, ranked):
    """Return (1/R) sum over ranks r <= R of rel(r) P(r), the average precision at R = relevant."""
    total, hits = 0.0, 0
    for rank in range(relevant):
        same = codes[ranked[rank]] == codes[own]
        hits += same
        # This has no branch, because a CPU cannot predict relevance.
        total += same * (hits / (rank + 1))
    return total / relevant


@borrowing_kernel
def majority_code(codes, best, votes):
    """Return the most frequent code among the best columns (k,), and the first of equal ones.

    votes (C,) int64 is overwritten.
    """
    votes[:] = 0
    for j in best:
        votes[codes[j]] += 1
    chosen = codes[best[0]]
    for j in best:
        if votes[codes[j]] > votes[chosen]:
            chosen = codes[j]
    return chosen


@kernel
def score_label_ranks(lo, hi, scores, owns, labels, k, ranks):
    """Write AUC, average precision at R and the majority label of queries lo .. hi.

    scores (n, m) is float64, and owns (n,) int64 holds the column that is the query itself. labels
    holds the LabelCodes of the columns; from 2 to m - 1 columns must have the code of a query. The
    results are written to ranks, a LabelRanks. A query takes O(m) time if few scores are nearly
    equal. The kernel allocates 3 m numbers.
    """
    m, codes, sizes = scores.shape[1], labels.codes, labels.sizes
    keys, starts = np.empty((2, m), np.int64), np.empty((3, DIGITS), np.int64)
    ranked, votes = np.empty(m, np.int64), np.empty(sizes.shape[0], np.int64)
    for i in range(lo, hi):
        own = owns[i]
        relevant = sizes[codes[own]] - 1
        argsort_row(scores[i, :m], own, m - 1, keys, starts, ranked)
        ranks.auc[i] = auc_of_ranked(scores[i], codes, own, relevant, ranked[: m - 1])
        ranks.precision[i] = precision_of_ranked(codes, own, relevant, ranked)
        ranks.voted[i] = majority_code(codes, ranked[:k], votes)

"""Measures of how high the columns with the query's label rank in a row of scores.

The measures are the AUC and the average precision at R; this module also computes the most frequent
label of the nearest columns. The number R counts the columns with the same label as the query,
except the query itself.
"""

import numpy as np

from .jit import borrowing_kernel, kernel
from .row_argsort import DIGITS, argsort_row


@borrowing_kernel
def auc_of_ranked(scores, codes, self_column, relevant, ranked):
    """Return the probability that a column with the query's label outscores a column without it.

    A pair of columns is chosen at random: one column has the label of the query, and the other
    column does not. A pair with equal scores counts one half. The query is the column self_column.
    `scores` (m,) is float64, and `codes` (m,) int64 holds the codes of the labels. `ranked` (m -
    1,) int64 holds all columns except self_column, by descending score. `relevant` is the number of
    columns in `ranked` that have the label of the query.
    """
    n_irrelevant = ranked.shape[0] - relevant
    doubled, ahead, same, different, level = 0, 0, 0, 0, np.inf
    for j in ranked:
        if scores[j] != level:
            doubled += same * (2 * (n_irrelevant - ahead - different) + different)
            ahead += different
            same, different, level = 0, 0, scores[j]
        is_same = codes[j] == codes[self_column]
        same += is_same
        different += not is_same
    doubled += same * different
    return doubled / (2.0 * relevant * n_irrelevant)


@borrowing_kernel
def precision_of_ranked(codes, self_column, relevant, ranked):
    """Return the average precision at R, where R is `relevant`.

    The precision at rank r is the share of the first r columns that have the label of the query.
    The average precision at R is a sum divided by R. The sum adds the precision at r for every rank
    r <= R at which the column has the label of the query. The other arguments are described in
    auc_of_ranked.
    """
    total, hits = 0.0, 0
    for rank in range(relevant):
        same = codes[ranked[rank]] == codes[self_column]
        hits += same
        # The sum is computed without a branch, because a CPU could not predict which columns have
        # the label of the query.
        total += same * (hits / (rank + 1))
    return total / relevant


@borrowing_kernel
def majority_code(codes, best, votes):
    """Return the label code that occurs most often among the columns listed in `best` (k,).

    If several codes are equally frequent, the function returns the code whose column comes first in
    `best`. `votes` (C,) int64 is overwritten.
    """
    votes[:] = 0
    for j in best:
        votes[codes[j]] += 1
    majority = codes[best[0]]
    for j in best:
        if votes[codes[j]] > votes[majority]:
            majority = codes[j]
    return majority


@kernel
def score_label_ranks(lo, hi, scores, self_columns, labels, k, ranks):
    """Write the AUC, the average precision at R and the majority label code of queries lo to hi.

    `scores` (n, m) is float64. Each query is itself one of the columns, and `self_columns` (n,)
    int64 holds the number of this column for each query. `labels` holds the LabelCodes of the
    columns. At least 2 and at most m - 1 columns must have the label of the query. The majority
    label code is the most frequent code among the k best columns. The results are written to
    `ranks`, which is a LabelRanks. The kernel takes O(m) time per query if few scores are nearly
    equal, and it allocates memory for 3 m numbers.
    """
    m, codes, sizes = scores.shape[1], labels.codes, labels.sizes
    keys, starts = np.empty((2, m), np.int64), np.empty((3, DIGITS), np.int64)
    ranked, votes = np.empty(m, np.int64), np.empty(sizes.shape[0], np.int64)
    for i in range(lo, hi):
        self_column = self_columns[i]
        relevant = sizes[codes[self_column]] - 1
        argsort_row(scores[i, :m], self_column, m - 1, keys, starts, ranked)
        ranks.auc[i] = auc_of_ranked(scores[i], codes, self_column, relevant, ranked[: m - 1])
        ranks.precision[i] = precision_of_ranked(codes, self_column, relevant, ranked)
        ranks.voted[i] = majority_code(codes, ranked[:k], votes)

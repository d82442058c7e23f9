"""Where the rows of a query's own label stand in its list, for the scores of any measure."""

import numpy as np

from .jit import kernel
from .row_argsort import DIGITS, rank_row


@kernel
def auc_of_ranked(line, codes, own, relevant, ranked):
    """How often a column of own's code scores more than another one; a tie counts half.

    line (m,) float64; codes (m,) int64; ranked (m - 1,) int64: the columns but own by falling
    score; relevant int: how many of them have own's code.
    """
    others = ranked.shape[0] - relevant
    doubled, ahead, same, different, level = 0, 0, 0, 0, np.inf
    for j in ranked:
        if line[j] != level:
            doubled += same * (2 * (others - ahead - different) + different)
            ahead += different
            same, different, level = 0, 0, line[j]
        is_same = codes[j] == codes[own]
        same += is_same
        different += not is_same
    doubled += same * different
    return doubled / (2.0 * relevant * others)


@kernel
def precision_of_ranked(codes, own, relevant, ranked):
    """Average precision at R of the list: (1/R) sum over ranks r <= R of rel(r) P(r)."""
    total, hits = 0.0, 0
    for rank in range(relevant):
        same = codes[ranked[rank]] == codes[own]
        hits += same
        # no branch: which rows are relevant cannot be predicted
        total += same * (hits / (rank + 1))
    return total / relevant


@kernel
def voted_code(codes, best, votes):
    """The commonest code among the best columns (k,); of equal ones that of the better column.

    votes (C,) int64 is scratch.
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
def score_label_ranks(lo, hi, lines, owns, codes, sizes, k, auc, precision, voted):
    """AUC, average precision at R and the vote of the k nearest, for queries lo .. hi.

    lines (n, m) float64: scores of the queries with all columns; owns (n,) int64: the query's own
    column; codes (m,) int64; sizes (C,) int64: columns per code, 2 at least and less than m for the
    queries'. auc, precision (n,) float64 and voted (n,) int64, out. O(m) time a query where few
    scores are nearly equal, 3 m numbers of scratch.
    """
    m = lines.shape[1]
    keys, starts = np.empty((2, m), np.int64), np.empty((3, DIGITS), np.int64)
    ranked, votes = np.empty(m, np.int64), np.empty(sizes.shape[0], np.int64)
    for i in range(lo, hi):
        own = owns[i]
        relevant = sizes[codes[own]] - 1
        rank_row(lines[i], own, m - 1, keys, starts, ranked)
        auc[i] = auc_of_ranked(lines[i], codes, own, relevant, ranked[: m - 1])
        precision[i] = precision_of_ranked(codes, own, relevant, ranked)
        voted[i] = voted_code(codes, ranked[:k], votes)

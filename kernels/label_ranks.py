"""Where the rows of a query's own label stand in its list, for the scores of any measure."""

import numpy as np

from .jit import kernel
from .pairs import best_of_line, sort_by_score


@kernel
def count_before(line, ranked, j):
    """How many of the ranked columns score more than column j, and how many at least as much.

    line (m,) float64; ranked (r,) int64, by falling score. O(log r).
    """
    score, low, high = line[j], 0, ranked.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if line[ranked[middle]] > score:
            low = middle + 1
        else:
            high = middle
    more, high = low, ranked.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if line[ranked[middle]] >= score:
            low = middle + 1
        else:
            high = middle
    return more, low


@kernel
def own_label_ranks(line, own, codes, ranked, ahead):
    """ranked: the other columns of own's label by falling score; ahead: what stands before each.

    line (m,) float64; own int; codes (m,) int64; ranked (r,) and ahead (r + 1,) int64, out: ahead
    counts the columns of other labels that score more, or as much at a lower column. Returns the
    number of comparisons with other labels that the own one wins, a tie counting half, doubled.
    """
    found = 0
    for j in range(line.shape[0]):
        if j != own and codes[j] == codes[own]:
            ranked[found] = j
            found += 1
    sort_by_score(line, ranked)
    ahead[:] = 0
    doubled = 0
    for j in range(line.shape[0]):
        if codes[j] == codes[own]:
            continue
        more, least = count_before(line, ranked, j)
        doubled += more + least
        # among equal scores the lower column stands first
        while more < least and ranked[more] < j:
            more += 1
        ahead[more] += 1
    for place in range(1, ranked.shape[0]):
        ahead[place] += ahead[place - 1]
    return doubled


@kernel
def voted_code(line, own, codes, k, best, votes):
    """The commonest code among the k best columns but own; of equal ones that of the better column.

    best (k,) int64 and votes (C,) int64 are scratch.
    """
    best_of_line(line, own, k, best)
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
    queries'. auc, precision (n,) float64 and voted (n,) int64, out. O(m log R) time a query, 3 m
    numbers of scratch.
    """
    m = lines.shape[1]
    ranked, ahead = np.empty(m, np.int64), np.empty(m + 1, np.int64)
    best, votes = np.empty(k, np.int64), np.empty(sizes.shape[0], np.int64)
    for i in range(lo, hi):
        relevant = sizes[codes[owns[i]]] - 1
        doubled = own_label_ranks(
            lines[i], owns[i], codes, ranked[:relevant], ahead[: relevant + 1]
        )
        auc[i] = doubled / (2.0 * relevant * (m - 1 - relevant))
        total = 0.0
        for place in range(relevant):
            rank = place + 1 + ahead[place]
            if rank > relevant:
                break
            total += (place + 1) / rank
        precision[i] = total / relevant
        voted[i] = voted_code(lines[i], owns[i], codes, k, best, votes)

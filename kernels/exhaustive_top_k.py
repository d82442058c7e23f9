"""Exact top-k of dense rows, for small inputs and large k: all pairs are scored in float64.

Further kernels of this file score lists of items, merge the results of searches, and replace items
in the results with all copies of these items.
"""

import numpy as np

from .candidate_filter import is_excluded
from .jit import kernel
from .pair_scores import score_items
from .select import keep_best, write_best

# The number of candidates that are scored together. The numbers and the scores of 256 candidates
# take 4 KiB.
_CHUNK = 256


@kernel
def score_all_rows(lo, hi, scoring, ranges, parts, filters, scores, rows):
    """Divide the candidates of each query into parts, and find the best k candidates in each part.

    The candidates of a query are divided into `parts` parts of about equal size. The call performs
    tasks lo to hi. Task r belongs to query r // parts, and searches part r % parts of the
    candidates of this query. The results of task r are written to scores[r] and rows[r]; `scores`
    (n parts, k) is float64, and `rows` (n parts, k) is int64. `scoring` is a PairScoring, and
    `ranges` is a CandidateRanges. `filters` is a QueryFilters with self_rows; its field `allowed`
    is not read. With m candidates per query, the kernel performs O((hi - lo) m d / parts)
    operations in float64, and it allocates O(k) memory.
    """
    candidates, firsts, lasts = ranges.rows, ranges.firsts, ranges.lasts
    self_rows, excluded_indptr = filters.self_rows, filters.excluded_indptr
    excluded_rows = filters.excluded_rows
    k = rows.shape[1]
    capacity = 4 * k + 64
    best_scores, scratch = np.empty(capacity), np.empty(capacity)
    best_rows = np.empty(capacity, np.int64)
    chunk, chunk_scores = np.empty(_CHUNK, np.int64), np.empty(_CHUNK)
    for r in range(lo, hi):
        i, part = r // parts, r % parts
        m = lasts[i] - firsts[i]
        position, end = firsts[i] + part * m // parts, firsts[i] + (part + 1) * m // parts
        count, bound = 0, -np.inf
        first, last = excluded_indptr[i], excluded_indptr[i + 1]
        while position < end:
            chunk_size = 0
            while position < end and chunk_size < _CHUNK:
                row = candidates[position]
                position += 1
                if row == self_rows[i]:
                    continue
                if first < last and is_excluded(row, excluded_rows, first, last):
                    continue
                chunk[chunk_size] = row
                chunk_size += 1
            score_items(scoring, i, chunk, chunk_size, chunk_scores)
            for entry in range(chunk_size):
                score = chunk_scores[entry]
                # Of two candidates with equal scores, the one with the lower row number ranks
                # first, and candidates are visited by ascending row number. A candidate is
                # therefore among the best k only if its score exceeds the k-th best score so far.
                if score <= bound:
                    continue
                best_scores[count], best_rows[count] = score, chunk[entry]
                count += 1
                if count == capacity:
                    count = keep_best(best_scores, best_rows, count, k, scratch)
                    bound = best_scores[k - 1]
        count = keep_best(best_scores, best_rows, count, k, scratch)
        write_best(best_scores, best_rows, count, scores[r], rows[r])


@kernel
def merge_rows(lo, hi, part_scores, part_rows, scores, rows):
    """For each list from lo to hi, write the best k entries to `scores` and `rows` (n, k).

    List i consists of the scores part_scores[i] and the row numbers part_rows[i], both of length c.
    Short lists are padded with the row number -1.
    """
    c = part_rows.shape[1]
    list_rows, list_scores, scratch = np.empty(c, np.int64), np.empty(c), np.empty(c)
    for i in range(lo, hi):
        count = 0
        for entry in range(c):
            list_rows[count], list_scores[count] = part_rows[i, entry], part_scores[i, entry]
            count += part_rows[i, entry] >= 0
        count = keep_best(list_scores, list_rows, count, rows.shape[1], scratch)
        write_best(list_scores, list_rows, count, scores[i], rows[i])


@kernel
def keep_above(lo, hi, scoring, bounds, starts, counts, rows, scores):
    """Score the candidates of queries lo to hi; for query i, keep those that reach bounds[i].

    The candidates of query i are rows[starts[i] : starts[i] + counts[i]]. The kept candidates of
    query i and their scores are moved to the front of the query's range, and counts[i] is set to
    the number of kept candidates. `scoring` is a PairScoring. The arrays `counts` (n,), `rows`
    (starts[n],) and `scores` (starts[n],) are changed in place.
    """
    for i in range(lo, hi):
        first, count = starts[i], counts[i]
        list_rows, list_scores = rows[first : first + count], scores[first : first + count]
        score_items(scoring, i, list_rows, count, list_scores)
        n_reaching = 0
        for entry in range(count):
            if list_scores[entry] >= bounds[i]:
                list_scores[n_reaching], list_rows[n_reaching] = (
                    list_scores[entry],
                    list_rows[entry],
                )
                n_reaching += 1
        counts[i] = n_reaching


@kernel
def score_lists(lo, hi, scoring, starts, rows, scores):
    """Score every item that is listed for the queries lo to hi.

    The items that are listed for query i are rows[starts[i] : starts[i + 1]]. `scoring` is a
    PairScoring, and `starts` (n + 1,) and `rows` (starts[n],) are int64. The results are written to
    `scores` (starts[n],) float64. A NaN score, which occurs only if rows are damaged, is replaced
    with -inf.
    """
    for i in range(lo, hi):
        first, last = starts[i], starts[i + 1]
        score_items(scoring, i, rows[first:last], last - first, scores[first:last])
        for entry in range(first, last):
            if np.isnan(scores[entry]):
                scores[entry] = -np.inf


@kernel
def expand_copies(lo, hi, distinct, self_rows, groups, scores, rows):
    """For queries lo to hi, replace each neighbour with all its copies, and write the best k items.

    `distinct` is a DistinctResults, in which one item stands for all items that are equal to it.
    `groups` is the CopyGroups of the items. Each neighbour in `distinct` is replaced with all
    members of its group. `self_rows` (n,) holds, for each query, the number of the item that is the
    query itself, or -1. The results are written to `scores` (n, k) float64 and `rows` (n, k) int64.
    """
    result_rows, result_scores, members = distinct.rows, distinct.scores, groups.members
    k = rows.shape[1]
    capacity = 4 * k + 64
    best_scores, scratch = np.empty(capacity), np.empty(capacity)
    best_rows = np.empty(capacity, np.int64)
    for i in range(lo, hi):
        row, count = distinct.distinct_query[i], 0
        for entry in range(result_rows.shape[1]):
            score = result_scores[row, entry]
            if result_rows[row, entry] < 0 or (
                count >= k and score < result_scores[row, entry - 1]
            ):
                break
            group, n_copies = groups.group_of[result_rows[row, entry]], 0
            for at in range(groups.starts[group], groups.starts[group + 1]):
                if n_copies == k:
                    break
                if members[at] == self_rows[i]:
                    continue
                best_scores[count], best_rows[count] = score, members[at]
                count += 1
                n_copies += 1
                if count == capacity:
                    count = keep_best(best_scores, best_rows, count, k, scratch)
        count = keep_best(best_scores, best_rows, count, k, scratch)
        write_best(best_scores, best_rows, count, scores[i], rows[i])

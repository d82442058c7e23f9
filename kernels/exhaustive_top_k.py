"""Exact top-k of dense rows that scores every pair in float64: for small inputs and large k."""

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
    """Find each query's best k candidates within one of the `parts` parts of its candidates.

    Task r, for r from lo to hi, searches part r % parts of the candidates of query r // parts.
    scoring is a PairScoring, ranges a CandidateRanges, and filters a QueryFilters with self_rows;
    filters.allowed is not read. The results are written to scores (n parts, k) float64 and rows
    (n parts, k) int64. With m candidates per query, the kernel performs O((hi - lo) m d / parts)
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
                j = candidates[position]
                position += 1
                if j == self_rows[i]:
                    continue
                if first < last and is_excluded(j, excluded_rows, first, last):
                    continue
                chunk[chunk_size] = j
                chunk_size += 1
            score_items(scoring, i, chunk, chunk_size, chunk_scores)
            for entry in range(chunk_size):
                score = chunk_scores[entry]
                # Candidates ascend, so a candidate whose score only equals the k-th best score
                # comes after the k best.
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
    """Write the best k entries of each of the lists lo to hi to scores and rows (n, k).

    The lists are part_scores and part_rows (n, c); part_rows is padded by -1.
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
    """Score the counts[i] rows from starts[i] on, and keep the rows with scores >= bounds[i].

    The kernel does this for the queries lo to hi. scoring is a PairScoring. counts (n,), rows and
    scores (starts[n],) are changed in place.
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

    The items that are listed for query i are rows[starts[i] : starts[i + 1]]. scoring is a
    PairScoring, and starts (n + 1,) and rows (starts[n],) are int64. The results are written to
    scores (starts[n],) float64. A score that is NaN, which only damaged rows produce, is replaced
    by -inf.
    """
    for i in range(lo, hi):
        first, last = starts[i], starts[i + 1]
        score_items(scoring, i, rows[first:last], last - first, scores[first:last])
        for entry in range(first, last):
            if np.isnan(scores[entry]):
                scores[entry] = -np.inf


@kernel
def expand_copies(lo, hi, distinct, self_rows, groups, scores, rows):
    """Find the best k items of queries lo to hi, after each item is replaced by its duplicates.

    distinct is a DistinctResults, and groups the CopyGroups of the items. self_rows (n,) holds the
    number of the item that is the query itself, or -1. The results are written to scores (n, k)
    float64 and rows (n, k) int64.
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

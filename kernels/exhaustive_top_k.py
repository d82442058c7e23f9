"""Exact top-k of dense rows by scoring every pair in float64: for small inputs and large k."""

import numpy as np

from .jit import borrowing_kernel, kernel
from .pair_scores import score_items
from .select import keep_best

# The number of candidates that are scored together. Their numbers and scores take 4 KiB.
_CHUNK = 256


@borrowing_kernel
def is_excluded(column, indices, first, last):
    """Return whether column is in the sorted indices[first:last]."""
    while first < last:
        middle = (first + last) >> 1
        if indices[middle] < column:
            first = middle + 1
        elif indices[middle] > column:
            last = middle
        else:
            return True
    return False


@borrowing_kernel
def write_run(scores, columns, count, score_row, column_row):
    """Copy count <= k sorted pairs to an output row, padded by -inf and -1."""
    for j in range(column_row.shape[0]):
        if j < count:
            score_row[j], column_row[j] = scores[j], columns[j]
        else:
            score_row[j], column_row[j] = -np.inf, -1


@kernel
def score_all_rows(lo, hi, scoring, given, parts, filters, scores, columns):
    """Best k of part r % parts of the candidates for query r // parts, for runs r in lo .. hi.

    O((hi - lo) m d / parts), float64, for m candidates of a query. scoring: PairScoring; given:
    CandidateRanges; filters: QueryFilters with self_rows, whose allowed is not read; scores (n
    parts, k) float64, columns (n parts, k) int64 out. Allocates O(k).
    """
    candidates, firsts, lasts = given.rows, given.firsts, given.lasts
    own, excluded_indptr = filters.self_rows, filters.excluded_indptr
    excluded_indices = filters.excluded_rows
    k = columns.shape[1]
    capacity = 4 * k + 64
    run_scores, scratch = np.empty(capacity), np.empty(capacity)
    run_columns = np.empty(capacity, np.int64)
    chunk, chunk_scores = np.empty(_CHUNK, np.int64), np.empty(_CHUNK)
    for r in range(lo, hi):
        i, part = r // parts, r % parts
        m = lasts[i] - firsts[i]
        position, end = firsts[i] + part * m // parts, firsts[i] + (part + 1) * m // parts
        count, bound = 0, -np.inf
        first, last = excluded_indptr[i], excluded_indptr[i + 1]
        while position < end:
            taken = 0
            while position < end and taken < _CHUNK:
                j = candidates[position]
                position += 1
                if j == own[i] or (first < last and is_excluded(j, excluded_indices, first, last)):
                    continue
                chunk[taken] = j
                taken += 1
            score_items(scoring, i, chunk, taken, chunk_scores)
            for entry in range(taken):
                score = chunk_scores[entry]
                # Candidates ascend, so that a later one with the k-th best score is not better.
                if score <= bound:
                    continue
                run_scores[count], run_columns[count] = score, chunk[entry]
                count += 1
                if count == capacity:
                    count = keep_best(run_scores, run_columns, count, k, scratch)
                    bound = run_scores[k - 1]
        count = keep_best(run_scores, run_columns, count, k, scratch)
        write_run(run_scores, run_columns, count, scores[r], columns[r])


@kernel
def merge_rows(lo, hi, part_scores, part_columns, scores, columns):
    """Best k of lists lo .. hi: part_* (n, c), columns padded by -1; scores, columns (n, k) out."""
    c = part_columns.shape[1]
    found, found_scores, scratch = np.empty(c, np.int64), np.empty(c), np.empty(c)
    for i in range(lo, hi):
        count = 0
        for entry in range(c):
            found[count], found_scores[count] = part_columns[i, entry], part_scores[i, entry]
            count += part_columns[i, entry] >= 0
        count = keep_best(found_scores, found, count, columns.shape[1], scratch)
        write_run(found_scores, found, count, scores[i], columns[i])


@kernel
def keep_above(lo, hi, scoring, bounds, starts, counts, columns, scores):
    """Score the counts[i] columns from starts[i] on; keep those with scores >= bounds[i].

    scoring: PairScoring. counts (n,), columns and scores (starts[n],) are changed in place, for
    queries lo .. hi.
    """
    for i in range(lo, hi):
        first, count = starts[i], counts[i]
        some, some_scores = columns[first : first + count], scores[first : first + count]
        score_items(scoring, i, some, count, some_scores)
        kept = 0
        for entry in range(count):
            if some_scores[entry] >= bounds[i]:
                some_scores[kept], some[kept] = some_scores[entry], some[entry]
                kept += 1
        counts[i] = kept


@kernel
def score_lists(lo, hi, scoring, starts, columns, scores):
    """Score every listed item: scores[e] of query i and item columns[e], e in starts[i : i + 2].

    For queries lo .. hi. scoring: PairScoring; starts (n + 1,), columns (starts[n],) int64; scores
    (starts[n],) float64 out, -inf where the score is NaN, which only damaged rows give.
    """
    for i in range(lo, hi):
        first, last = starts[i], starts[i + 1]
        score_items(scoring, i, columns[first:last], last - first, scores[first:last])
        for entry in range(first, last):
            if np.isnan(scores[entry]):
                scores[entry] = -np.inf


@kernel
def expand_copies(lo, hi, distinct, self_rows, groups, scores, columns):
    """Best k of queries lo .. hi, where every item found is replaced by its duplicates.

    distinct: DistinctResults; self_rows (n,): the item that is the query itself, or -1; groups:
    CopyGroups of the items. scores (n, k) float64, columns (n, k) int64 out.
    """
    found, found_scores, members = distinct.rows, distinct.scores, groups.members
    k = columns.shape[1]
    capacity = 4 * k + 64
    run_scores, scratch = np.empty(capacity), np.empty(capacity)
    run_columns = np.empty(capacity, np.int64)
    for i in range(lo, hi):
        row, count = distinct.distinct_query[i], 0
        for entry in range(found.shape[1]):
            score = found_scores[row, entry]
            if found[row, entry] < 0 or (count >= k and score < found_scores[row, entry - 1]):
                break
            group, taken = groups.group_of[found[row, entry]], 0
            for at in range(groups.starts[group], groups.starts[group + 1]):
                if taken == k:
                    break
                if members[at] == self_rows[i]:
                    continue
                run_scores[count], run_columns[count] = score, members[at]
                count += 1
                taken += 1
                if count == capacity:
                    count = keep_best(run_scores, run_columns, count, k, scratch)
        count = keep_best(run_scores, run_columns, count, k, scratch)
        write_run(run_scores, run_columns, count, scores[i], columns[i])

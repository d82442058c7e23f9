"""Exact top-k of dense rows by scoring every pair in float64: the path for small or extreme k."""

import numpy as np

from .jit import kernel
from .pair_scores import pair_key
from .select import keep_best


@kernel
def is_excluded(column, indices, first, last):
    """Whether column stands in the sorted indices[first:last]."""
    while first < last:
        middle = (first + last) >> 1
        if indices[middle] < column:
            first = middle + 1
        elif indices[middle] > column:
            last = middle
        else:
            return True
    return False


@kernel
def write_run(keys, columns, count, key_row, column_row):
    """Copy an ordered run of count <= k pairs to an output row, padded by -inf and -1."""
    for j in range(column_row.shape[0]):
        if j < count:
            key_row[j], column_row[j] = keys[j], columns[j]
        else:
            key_row[j], column_row[j] = -np.inf, -1


@kernel
def score_all_rows(
    lo,
    hi,
    form,
    queries,
    query_norms,
    items,
    item_norms,
    item_offsets,
    candidates,
    own,
    excluded_indptr,
    excluded_indices,
    minimum,
    keys,
    columns,
):
    """Best k candidates of queries lo .. hi by scoring all of them. O((hi - lo) m d), float64.

    queries (n, d), items (p, d) of one dtype; norms and offsets float64; candidates (m,) rising
    item numbers; own (n,) the item that a query may not find or -1; excluded_* CSR, sorted rows;
    keys (n, k) float64 and columns (n, k) int64 out. Allocates O(k).
    """
    depth = items.shape[1]
    k = columns.shape[1]
    flat_queries, flat_items = queries.reshape(-1), items.reshape(-1)
    capacity = 4 * k + 64
    run_keys, scratch = np.empty(capacity), np.empty(capacity)
    run_columns = np.empty(capacity, np.int64)
    for i in range(lo, hi):
        count, bound = 0, -np.inf
        first, last = excluded_indptr[i], excluded_indptr[i + 1]
        for position in range(candidates.shape[0]):
            j = candidates[position]
            if j == own[i] or (first < last and is_excluded(j, excluded_indices, first, last)):
                continue
            key = pair_key(
                form, flat_queries, i, query_norms[i], flat_items, j, item_norms[j],
                item_offsets[j], depth,
            )  # fmt: skip
            # candidates rise, so a key equal to the k-th best so far comes too late
            if key <= bound or key < minimum:
                continue
            run_keys[count], run_columns[count] = key, j
            count += 1
            if count == capacity:
                count = keep_best(run_keys, run_columns, count, k, scratch)
                bound = run_keys[k - 1]
        count = keep_best(run_keys, run_columns, count, k, scratch)
        write_run(run_keys, run_columns, count, keys[i], columns[i])

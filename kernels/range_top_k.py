"""The best of the items that may reach a bound: listed by the tiles, and all of them scored."""

import numpy as np

from .candidate_filter import pass_rows
from .exhaustive_top_k import write_run
from .jit import kernel
from .pair_scores import pair_keys
from .select import keep_best


@kernel
def best_of_reaching_rows(
    lo, hi, isa, form, shape, batch, queries, items, bounds, code_type, score_type, room, counts,
    keys, columns,
):  # fmt: skip
    """The best k of what may have a key of at least bounds, for queries batch[lo:hi].

    The arguments as in screen.pass_rows; in the rows of the queries' numbers keys (n, k) float64
    and columns (n, k) int64 out, padded by -inf and -1: nothing else where more than `room` may.
    Allocates 8 room a query.
    """
    n, k = hi - lo, columns.shape[1]
    some = batch[lo:hi]
    starts, listed = np.empty(n, np.int64), np.empty(n * room, np.int64)
    for i in range(n):
        starts[i] = i * room
    first = np.int64(0)  # a literal would be compiled apart
    pass_rows(
        first, n, isa, form, shape, some, queries, items, bounds, code_type, score_type, room,
        starts, counts, listed,
    )  # fmt: skip
    # plain arrays: a member of a tuple is counted as used and unused wherever it is named
    rows, norms = queries.rows, queries.norms
    item_rows, item_norms, item_offsets = items.rows, items.norms, items.offsets
    some_keys, scratch = np.empty(room), np.empty(room)
    for i in range(n):
        query = some[i]
        count = counts[query] if counts[query] <= room else 0
        columns_here = listed[i * room : i * room + count]
        pair_keys(
            form, rows, query, norms[query], item_rows, item_norms, item_offsets, columns_here,
            count, some_keys,
        )  # fmt: skip
        count = keep_best(some_keys, columns_here, count, k, scratch)
        write_run(some_keys, columns_here, count, keys[query], columns[query])

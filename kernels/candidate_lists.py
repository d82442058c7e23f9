"""Candidate lists: the best k of each list."""

import numpy as np

from .exhaustive_top_k import write_run
from .jit import kernel
from .select import keep_best


@kernel
def best_of_lists(lo, hi, candidates, candidate_keys, keys, columns):
    """Best k of lists lo .. hi, by descending key, equal keys by lower item.

    candidates (n, c) int64, padded by -1; candidate_keys (n, c) float64; keys (n, k) float64 and
    columns (n, k) int64 out, padded by -inf and -1. O((hi - lo) c).
    """
    c = candidates.shape[1]
    found, found_keys, scratch = np.empty(c, np.int64), np.empty(c), np.empty(c)
    for i in range(lo, hi):
        count = 0
        for entry in range(c):
            found[count], found_keys[count] = candidates[i, entry], candidate_keys[i, entry]
            count += candidates[i, entry] >= 0
        count = keep_best(found_keys, found, count, columns.shape[1], scratch)
        write_run(found_keys, found, count, keys[i], columns[i])

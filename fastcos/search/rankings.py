"""Rankings: the best items of each query with their raw scores, and the merging of rankings.

Equal scores are ordered by item number, so a merged ranking does not depend on how the items were
divided into parts.
"""

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels.exhaustive_top_k import merge_rows
from fastcos.validation import Floats, Integers

# The best items of n queries, as two arrays: the row numbers or positions (n, k), and the raw
# scores (n, k). Each row is sorted by descending score, and padded with the row number -1 and the
# score -inf.
Ranking = tuple[Integers, Floats]

# The number of (query, item) pairs that a thread ranks in one block.
_PAIRS_PER_BLOCK = 20_000
# The number of queries in one block when two rankings are merged.
_MERGED_ROWS = 4096


def padding(n: int, k: int) -> Ranking:
    """Return a ranking (n, k) that consists of padding only."""
    return np.full((n, k), -1, np.int64), np.full((n, k), -np.inf)


def unfilled(n: int, k: int) -> Ranking:
    """Return a ranking of two uninitialised arrays (n, k), which kernels will fill."""
    return parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)


def select_best(numbers: Integers, scores: Floats, k: int, n_threads: int) -> Ranking:
    """Return the ranking (n, k) of each query's best items.

    ``numbers`` (n, c) contains the items of each query, where -1 stands for no item, and ``scores``
    (n, c) contains their raw scores.
    """
    n, c = numbers.shape
    best, best_scores = unfilled(n, k)
    parallel.run(
        merge_rows, parallel.row_blocks(n, max(1, _PAIRS_PER_BLOCK // c)),
        validation.read_only(scores), validation.read_only(numbers), best_scores, best,
        n_threads=n_threads,
    )  # fmt: skip
    return best, best_scores


def best_of_parts(numbers: Integers, scores: Floats) -> Ranking:
    """Merge the rankings of all parts into the ranking (n, k) of the best items.

    For each query and each part, ``numbers`` and ``scores`` (n, parts, k) contain the k best items
    of the part.
    """
    n, _, k = numbers.shape
    parts = (validation.read_only(part.reshape(n, -1)) for part in (scores, numbers))
    best, best_scores = unfilled(n, k)
    parallel.run(merge_rows, parallel.row_blocks(n, n), *parts, best_scores, best)
    return best, best_scores


def merge(first: Ranking, second: Ranking, n_threads: int) -> Ranking:
    """Merge two rankings (n, k), which have no item in common, into a ranking (n, k)."""
    numbers, scores = unfilled(*first[0].shape)
    blocks = parallel.row_blocks(len(numbers), _MERGED_ROWS)
    parallel.run(_merge_rows, blocks, first, second, numbers, scores, n_threads=n_threads)
    return numbers, scores


def _merge_rows(
    lo: int, hi: int, first: Ranking, second: Ranking, numbers: Integers, scores: Floats
) -> None:
    """Merge the rankings of queries lo to hi - 1, as one task of the thread pool."""
    both_numbers, both_scores = (
        validation.read_only(np.concatenate([first_part[lo:hi], second_part[lo:hi]], axis=1))
        for first_part, second_part in zip(first, second, strict=True)
    )
    block = parallel.row_blocks(hi - lo, hi - lo)
    parallel.run(merge_rows, block, both_scores, both_numbers, scores[lo:hi], numbers[lo:hi])

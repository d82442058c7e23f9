"""Rankings: the best items of each query with their raw scores, and the merging of rankings.

Equal scores are ordered by the number of the item, so a merged ranking does not depend on the
division of the items into parts.
"""

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels.exhaustive_top_k import merge_rows
from fastcos.validation import Floats, Integers

# Row numbers or positions, and raw scores (n, k), both sorted by score and padded by -1 and -inf.
Ranking = tuple[Integers, Floats]

# The number of pairs that a thread ranks at once.
_PAIRS_PER_BLOCK = 20_000
# The number of queries whose neighbours from two segments are merged at once.
_MERGED_ROWS = 4096


def padding(n: int, k: int) -> Ranking:
    """Return a ranking (n, k) without items."""
    return np.full((n, k), -1, np.int64), np.full((n, k), -np.inf)


def unfilled(n: int, k: int) -> Ranking:
    """Return the arrays of a ranking (n, k), which kernels fill."""
    return parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)


def select_best(numbers: Integers, scores: Floats, k: int, n_threads: int) -> Ranking:
    """Return the k best of each query's items (n, c), with raw scores; -1 stands for no item."""
    n, c = numbers.shape
    best, best_scores = unfilled(n, k)
    parallel.run(
        merge_rows, parallel.row_blocks(n, max(1, _PAIRS_PER_BLOCK // c)),
        validation.read_only(scores), validation.read_only(numbers), best_scores, best,
        n_threads=n_threads,
    )  # fmt: skip
    return best, best_scores


def best_of_parts(numbers: Integers, scores: Floats) -> Ranking:
    """Merge the k best of each part, (n, parts, k), to the k best of all parts, (n, k)."""
    n, _, k = numbers.shape
    parts = (validation.read_only(part.reshape(n, -1)) for part in (scores, numbers))
    best, best_scores = unfilled(n, k)
    parallel.run(merge_rows, parallel.row_blocks(n, n), *parts, best_scores, best)
    return best, best_scores


def merge(first: Ranking, second: Ranking, n_threads: int) -> Ranking:
    """Return the k best items of each query, with raw scores (n, k), from two rankings."""
    numbers, scores = unfilled(*first[0].shape)
    blocks = parallel.row_blocks(len(numbers), _MERGED_ROWS)
    parallel.run(_merge_rows, blocks, first, second, numbers, scores, n_threads=n_threads)
    return numbers, scores


def _merge_rows(
    lo: int, hi: int, first: Ranking, second: Ranking, numbers: Integers, scores: Floats
) -> None:
    """Merge the rankings of queries lo to hi - 1; the thread pool calls this function."""
    both_numbers, both_scores = (
        validation.read_only(np.concatenate([first_part[lo:hi], second_part[lo:hi]], axis=1))
        for first_part, second_part in zip(first, second, strict=True)
    )
    block = parallel.row_blocks(hi - lo, hi - lo)
    parallel.run(merge_rows, block, both_scores, both_numbers, scores[lo:hi], numbers[lo:hi])

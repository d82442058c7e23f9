"""Exact histograms of the scores of all pairs, and counts of the high scores of each row."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastcos import config
from fastcos.parallel import Progress
from fastcos.search.score_blocks import score_blocks
from fastcos.similarity.base import BaseMeasure, Measure
from fastcos.validation import Floats, Integers

# Number of bins of a histogram. In a histogram of cosines, a bin is 2^-15 = 3e-5 wide.
N_BINS = 2**16
# Largest number of queries in one block of scores. With larger blocks, the scores do not fit in the
# cache; with smaller blocks, BLAS is called more often. `tests.robustness.calibrated_rates null`
# measures how long a calibration takes.
_BLOCK = 128
# Bytes of memory per score while scores are counted: the score itself, and up to five float64
# intermediate results.
_BYTES_PER_SCORE = 48


class Bins(NamedTuple):
    """Bins of equal width, with the edges ``low + b * width`` for b from 0 to N_BINS.

    The width is a power of two and ``low`` is a multiple of the width, so the edges are exact
    floats. Because the edges are exact, rounding moves no score across an edge. The last bin
    includes its upper edge.
    """

    low: float
    width: float

    @property
    def edges(self) -> Floats:
        """The edges of all bins, an array (N_BINS + 1,)."""
        return self.low + self.width * np.arange(N_BINS + 1.0)

    def of(self, scores: Floats) -> Integers:
        """Return the bin of each score; scores outside of all bins go to the first or last bin."""
        first = round(self.low / self.width)
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = np.floor(scores / self.width) - first
        return np.clip(numbers, 0, N_BINS - 1).astype(np.int64)


# The bins for cosines cover all possible scores, from -1 to 1.
COSINE_BINS = Bins(-1.0, 2.0 / N_BINS)


def queries_per_block(n_items: int) -> int:
    """Return the number of queries in a block of scores that fits into ``working_memory``."""
    n_queries = config.working_memory() * 2**20 / (_BYTES_PER_SCORE * n_items)
    return max(1, min(_BLOCK, int(n_queries)))


@dataclass
class Pairs:
    """The pairs that a calibration scores: each query is paired with each item.

    - ``self_join``: Whether the queries are the items; if so, no row is paired with itself.
    - ``n_scored``: The number of queries that have been scored so far, in all passes over the
      pairs.
    """

    measure: Measure
    queries: Any
    items: Any
    self_join: bool
    progress: Progress | None
    n_scored: int = 0

    @property
    def total(self) -> int:
        """Number of pairs."""
        return len(self.queries) * (len(self.items) - self.self_join)

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield slices of the queries, and the scores of these queries with all items.

        The score of a row with itself is -inf.
        """
        block = queries_per_block(len(self.items))
        for rows, scores in score_blocks(self.measure, self.queries, self.items, block):
            if self.self_join:
                scores[np.arange(len(scores)), np.arange(rows.start, rows.stop)] = -np.inf
            yield rows, scores
            self.n_scored += len(scores)
            if self.progress is not None:
                n = len(self.queries)
                self.progress(self.n_scored, max(2, -(-self.n_scored // n)) * n)


def bins_of(pairs: Pairs) -> Bins:
    """Return bins that cover all scores.

    The bins of cosines are fixed. For any other measure, the function first makes a pass over all
    pairs to find the range of the scores.
    """
    kind = type(pairs.measure)
    if (
        pairs.measure.metric_type == "cosine"
        and getattr(kind, "to_score", None) is BaseMeasure.to_score
    ):
        return COSINE_BINS
    low, high = np.inf, -np.inf
    for _, scores in pairs.blocks():
        finite = scores[np.isfinite(scores)]
        if len(finite):
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    if not low <= high:
        name = pairs.measure.name
        raise ValueError(f"measure must give finite scores, got only NaN or infinity from {name}")
    # Below, ``low`` is rounded down to a multiple of the width. The first bin then starts at a
    # lower score, so one more bin may be needed to cover ``high``. The width is therefore computed
    # for N_BINS - 1 bins.
    span = max(high - low, abs(high) * 2.0**-20, np.finfo(np.float64).tiny * 2.0**60)
    width = 2.0 ** math.ceil(math.log2(span / (N_BINS - 1)))
    return Bins(math.floor(low / width) * width, width)


def count_scores(pairs: Pairs, bins: Bins) -> Integers:
    """Return the number of scores in each bin, (N_BINS,)."""
    counts = np.zeros(N_BINS, np.int64)
    for _, scores in pairs.blocks():
        counts += np.bincount(bins.of(scores).ravel(), minlength=N_BINS)
    # In a self-join, the score of a row with itself is -inf. Scores of -inf fall into the first
    # bin, so their number is subtracted here.
    counts[0] -= len(pairs.queries) * pairs.self_join
    return counts


def count_rows(pairs: Pairs, thresholds: Floats) -> tuple[Integers, Integers]:
    """Return how many scores of each query, and of each item, reach each threshold.

    The thresholds must be in ascending order.
    """
    n_levels = len(thresholds)
    query_counts = np.zeros((n_levels, len(pairs.queries)), np.int64)
    item_counts = np.zeros((n_levels, len(pairs.items)), np.int64)
    for rows, scores in pairs.blocks():
        query, item = np.nonzero(scores >= thresholds[0])
        high = scores[query, item]
        for level, threshold in enumerate(thresholds):
            # The thresholds ascend. A score that misses one threshold also misses all later ones,
            # so it is dropped here.
            is_above = high >= threshold
            query, item, high = query[is_above], item[is_above], high[is_above]
            query_counts[level, rows] = np.bincount(query, minlength=len(scores))
            item_counts[level] += np.bincount(item, minlength=len(pairs.items))
    return query_counts, item_counts


def independent_pairs(query_counts: Integers, item_counts: Integers, *, self_join: bool) -> float:
    """Return the effective number of independent pairs among the pairs above a threshold.

    This many independent pairs would be as informative as the pairs above the threshold. Entry i of
    ``query_counts`` (n,) is the number of scores of query i that reach the threshold, and entry j
    of ``item_counts`` (m,) is the number of scores of item j that reach the threshold. The result
    is t² / v. Here, t is the number of pairs above the threshold, and v is the variance of t in a
    bootstrap that draws rows with replacement. The variance v is computed to first order. Suppose
    that a row is in c pairs above the threshold. If the bootstrap draws the row w times, t changes
    by (w - 1) c. The noise of a single pair enters the variance twice, once for each of its rows.
    Intervals that are computed from the result are therefore too wide rather than too narrow.
    """
    total = float(query_counts.sum())
    sides = (query_counts + item_counts,) if self_join else (query_counts, item_counts)
    variance = sum(float(np.square(side - side.mean()).sum()) for side in sides)
    return total**2 / variance if variance else 0.0

"""Exact histograms of all scores, and how often each row takes part in a high one."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastcos import config
from fastcos.parallel import Progress
from fastcos.search.blocks import score_blocks
from fastcos.similarity.base import Measure, Plain
from fastcos.validation import Floats, Integers

# bins of a histogram: a bin of cosines is 2^-15 wide, 3e-5, less than the third decimal
N_BINS = 2**16
# queries scored at once, at most: the fastest of 32 .. 512 for 20,000 items of 64 columns, where a
# block of scores takes 20 MB; 60 million pairs a second
# (tests.robustness.calibrated_rates null)
_BLOCK = 128
# bytes of a score while it is counted: the product, and up to five float64 arrays made of it
_BYTES_PER_SCORE = 48


class Bins(NamedTuple):
    """Equal bins whose edges are exact floats: low + b width, b from 0 to N_BINS.

    The width is a power of two and low a multiple of it, so that no rounding moves a score across
    an edge. The last bin holds its upper edge too.
    """

    low: float
    width: float

    @property
    def edges(self) -> Floats:
        """All edges, (N_BINS + 1,)."""
        return self.low + self.width * np.arange(N_BINS + 1.0)

    def of(self, scores: Floats) -> Integers:
        """Return the bin of each score; scores outside belong to the first or the last bin."""
        first = round(self.low / self.width)
        with np.errstate(over="ignore", invalid="ignore"):
            places = np.floor(scores / self.width) - first
        return np.clip(places, 0, N_BINS - 1).astype(np.int64)


# of cosines: no score is outside
COSINE_BINS = Bins(-1.0, 2.0 / N_BINS)


def queries_per_block(n_items: int) -> int:
    """Return how many queries to score at once, so that their block fits working_memory."""
    fits = config.working_memory() * 2**20 / (_BYTES_PER_SCORE * n_items)
    return max(1, min(_BLOCK, int(fits)))


@dataclass
class Pairs:
    """Pairs to score: every query with every item; own: rows are no pair with themselves.

    n_scored: queries in all passes so far, whose number is not known beforehand.
    """

    measure: Measure
    queries: Any
    items: Any
    own: bool
    progress: Progress | None
    n_scored: int = 0

    @property
    def total(self) -> int:
        """Number of pairs."""
        return len(self.queries) * (len(self.items) - self.own)

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield the scores of some queries with all items; -inf for a row with itself."""
        block = queries_per_block(len(self.items))
        for rows, scores in score_blocks(self.measure, self.queries, self.items, block):
            if self.own:
                scores[np.arange(len(scores)), np.arange(rows.start, rows.stop)] = -np.inf
            yield rows, scores
            self.n_scored += len(scores)
            if self.progress is not None:
                n = len(self.queries)
                self.progress(self.n_scored, max(2, -(-self.n_scored // n)) * n)


def bins_of(pairs: Pairs) -> Bins:
    """Return bins that hold all scores; a pass over the pairs unless they are cosines."""
    kind = type(pairs.measure)
    if pairs.measure.metric_type == "cosine" and getattr(kind, "to_score", None) is Plain.to_score:
        return COSINE_BINS
    low, high = np.inf, -np.inf
    for _, scores in pairs.blocks():
        finite = scores[np.isfinite(scores)]
        if len(finite):
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    if not low <= high:
        raise ValueError(f"measure must give finite scores, got none by {pairs.measure.name}")
    # one bin is spare, because low is rounded down to a multiple of the width
    span = max(high - low, abs(high) * 2.0**-20, np.finfo(np.float64).tiny * 2.0**60)
    width = 2.0 ** math.ceil(math.log2(span / (N_BINS - 1)))
    return Bins(math.floor(low / width) * width, width)


def count_scores(pairs: Pairs, bins: Bins) -> Integers:
    """Return the number of scores in each bin, (N_BINS,)."""
    counts = np.zeros(N_BINS, np.int64)
    for _, scores in pairs.blocks():
        counts += np.bincount(bins.of(scores).ravel(), minlength=N_BINS)
    # a row with itself was counted in the first bin
    counts[0] -= len(pairs.queries) * pairs.own
    return counts


def count_rows(pairs: Pairs, thresholds: Floats) -> tuple[Integers, Integers]:
    """Return how many scores of each query, and of each item, reach each ascending threshold."""
    n_levels = len(thresholds)
    of_queries = np.zeros((n_levels, len(pairs.queries)), np.int64)
    of_items = np.zeros((n_levels, len(pairs.items)), np.int64)
    for rows, scores in pairs.blocks():
        query, item = np.nonzero(scores >= thresholds[0])
        high = scores[query, item]
        for level, threshold in enumerate(thresholds):
            # each threshold keeps some of those above the one before
            kept = high >= threshold
            query, item, high = query[kept], item[kept], high[kept]
            of_queries[level, rows] = np.bincount(query, minlength=len(scores))
            of_items[level] += np.bincount(item, minlength=len(pairs.items))
    return of_queries, of_items


def independent_pairs(of_queries: Integers, of_items: Integers, *, own: bool) -> float:
    """Return how many independent pairs carry as much information as these, which share rows.

    of_queries (n,), of_items (m,): scores above a threshold by row. That is the square of their
    number over its variance when rows are drawn again by the bootstrap, to first order: a row that
    is drawn w times adds w - 1 times its own count. The noise of single pairs is counted twice,
    once for each of their rows, so that intervals are rather too wide than too narrow.
    """
    total = float(of_queries.sum())
    sides = (of_queries + of_items,) if own else (of_queries, of_items)
    variance = sum(float(np.square(side - side.mean()).sum()) for side in sides)
    return total**2 / variance if variance else 0.0

"""Strategy 2: exact top-k by an upper bound that is an inner product (multi-step k-NN).

The engine ranks items by a raw score that bounds the exact one. The best few by it are scored
exactly. A query is done when its k-th best exact score exceeds what the bound leaves to all others;
for the rest, every item whose bound reaches that score is scored too.

Source: Seidl and Kriegel, Optimal multi-step k-nearest neighbor search, SIGMOD 1998.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.search import cost_model, scan
from fastcos.search.packing import AllowedRows, ExcludedItems, ExecutionOptions, Found
from fastcos.search.range_candidates import find_candidates
from fastcos.search.segments import Segment, best_of_lists
from fastcos.similarity.base import UpperBounded
from fastcos.similarity.encoded_rows import EncodedRows
from fastcos.validation import Floats, Integers

# steps of the search for a raw score that double its distance: 2^40 of a hundredth of it
_DOUBLINGS = 40
# halvings of the last step: what is left of it is 2 %
_HALVINGS = 6


class _Queries(NamedTuple):
    """Queries as given and as encoded, with what they may not find."""

    rows: validation.Rows
    encoded: EncodedRows
    exclusions: ExcludedItems

    def take(self, some: Integers) -> "_Queries":
        """Return some of the queries, ascending numbers; all of them as they are."""
        if len(some) == len(self.rows):
            return self
        return _Queries(self.rows[some], self.encoded.take(some), self.exclusions.take(some))


def filter_and_refine(
    measure: UpperBounded,
    segment: Segment,
    Q: validation.Rows,
    encoded: EncodedRows,
    exclusions: ExcludedItems,
    k: int,
    options: ExecutionOptions,
    allowed_rows: AllowedRows | None = None,
    best: Found | None = None,
) -> Found:
    """Columns and exact raw scores (n, k) of a segment's best items for the queries Q.

    allowed_rows: as Segment.allow returns; best: what earlier segments found. In the worst case
    O(m) exact scores per query; memory stays within working_memory.
    """
    n, queries = len(Q), _Queries(Q, encoded, exclusions)
    precomputed = measure.precompute(segment.rows)
    n_items = len(segment.numbers if allowed_rows is None else allowed_rows.numbers)
    width = min(n_items, k + cost_model.COSTS.extra_candidates)
    columns, scores = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    last = parallel.unfilled(n, np.float64)
    left = []
    for some in _batches(np.arange(n, dtype=np.int64), width, options):
        part = queries.take(some)
        wanted = scan.SegmentSearch(width, part.exclusions, allowed_rows)
        listed, raw = scan.search_segment(segment, part.encoded, wanted, options)
        columns[some], scores[some] = _refine(measure, part, precomputed, listed, k, options)
        last[some] = raw[:, -1]
        reached = _reached(scores, best, some)
        # a list with padding, or of all items, leaves no item out
        cut = np.flatnonzero(listed[:, -1] >= 0) if width < n_items else some[:0]
        if len(cut):
            bounds = measure.upper_bound(part.rows[cut], last[some[cut]])
            cut = cut[reached[cut] <= bounds]
        left.append(some[cut])
    some = np.concatenate(left)
    if len(some):
        reached = _reached(scores, best, some)
        part = queries.take(some)
        least = _least_raw_scores(measure, part.rows, reached, last[some])
        columns[some], scores[some] = _refine_all(
            measure, part, precomputed, segment, least, k, options, allowed_rows
        )
    return columns, scores


def _reached(scores: Floats, best: Found | None, some: Integers) -> Floats:
    """Return what k items of some queries are known to reach, in this segment or before it."""
    own: Floats = scores[some, -1]
    return own if best is None else np.maximum(own, best[1][some, -1])


def _batches(queries: Integers, width: int, options: ExecutionOptions) -> Iterator[Integers]:
    """Yield queries whose lists of this width fit the working memory."""
    size = max(
        1, int(options.working_memory / (cost_model.COSTS.refined_bytes_per_candidate * width))
    )
    for first in range(0, len(queries), size):
        yield queries[first : first + size]


def _refine(
    measure: UpperBounded,
    queries: _Queries,
    precomputed: Any,
    listed: Integers,
    k: int,
    options: ExecutionOptions,
) -> Found:
    """Columns and exact raw scores of the best k of every list (n, c), -1 for no item."""
    exact = measure.rescore(queries.rows, precomputed, np.maximum(listed, 0))
    return best_of_lists(listed, exact, k, options.n_threads)


def _refine_all(
    measure: UpperBounded,
    queries: _Queries,
    precomputed: Any,
    segment: Segment,
    least: Floats,
    k: int,
    options: ExecutionOptions,
    allowed_rows: AllowedRows | None,
) -> Found:
    """Columns and exact raw scores of the k best of all items with raw scores from least on."""
    n = len(queries.rows)
    n_items = len(segment.numbers if allowed_rows is None else allowed_rows.numbers)
    quiet = options._replace(progress=None)
    columns, scores = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float64)
    left, capacity = np.arange(n, dtype=np.int64), min(cost_model.COSTS.refined_capacity, n_items)
    while len(left):
        too_long = []
        for some in _batches(left, capacity, options):
            part = queries.take(some)
            listed = np.full((len(some), capacity), -1, np.int64)
            counts = find_candidates(
                segment.packed, part.encoded, part.exclusions, least[some], capacity,
                np.arange(0, listed.size, capacity), listed.reshape(-1), quiet, allowed_rows,
            )  # fmt: skip
            order = np.argsort(counts, kind="stable")
            fits = order[: np.searchsorted(counts[order], capacity, side="right")]
            for first in range(0, len(fits), cost_model.COSTS.refined_queries):
                few = np.sort(fits[first : first + cost_model.COSTS.refined_queries])
                lists = np.ascontiguousarray(listed[few, : max(k, counts[few].max())])
                found = _refine(measure, part.take(few), precomputed, lists, k, options)
                columns[some[few]], scores[some[few]] = found
            too_long.append(some[counts > capacity])
        left = np.concatenate(too_long)
        capacity = min(n_items, cost_model.COSTS.refined_growth * capacity)
    return columns, scores


def _least_raw_scores(
    measure: UpperBounded, Q: validation.Rows, reached: Floats, last: Floats
) -> Floats:
    """Raw scores (n,) below which no item has an exact score as high as reached (n,).

    Below the last listed raw scores, by steps that double until the bound is below what is reached,
    and then by halving the last step. -inf where no raw score is that low.
    """
    step = 0.01 * np.abs(last) + 1e-9
    least, enough = last - step, last.copy()
    high = np.arange(len(step))
    for _ in range(_DOUBLINGS):
        if not len(high):
            break
        high = high[measure.upper_bound(Q[high], least[high]) >= reached[high]]
        enough[high] = least[high]
        step[high] *= 2
        least[high] -= step[high]
    least[high] = -np.inf
    some = np.flatnonzero(np.isfinite(least))
    if not len(some):
        return least
    Q, low, enough = Q[some], least[some], enough[some]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + enough)
        below = measure.upper_bound(Q, middle) < reached[some]
        low, enough = np.where(below, middle, low), np.where(below, enough, middle)
    least[some] = low
    return least
